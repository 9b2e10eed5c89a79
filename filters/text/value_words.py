"""Words that are values although no digit stands in them, words that may begin a sentence, and units, in lower case.

Number words are those of ten languages: a text with another number word has another value. An article that is also
a number ("ein", "une", "uno") is left out, for edits add and drop it. `OPENERS` need not be complete: a capital at
the beginning of a sentence counts as a name where no list and no other place of the text says otherwise.
"""

from typing import Final

from filters.text.stop_words import STOP_WORDS

# ruff: noqa: E501
_NUMBER_WORDS: Final = (
    # English
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fourty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million "
    "millions billion billions trillion dozen dozens half halves third thirds quarter quarters first second fourth fifth sixth "
    "seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth "
    "twentieth thirtieth fortieth fiftieth hundredth once twice thrice double triple single pair plus minus negative positive "
    "isnt arent wasnt werent dont doesnt didnt cant cannot couldnt wont wouldnt shouldnt hasnt havent hadnt mustnt neednt aint "
    "never neither nor without "
    "last none yes no not true false percent pi times divided squared cubed "
    # German
    "null zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn "
    "neunzehn zwanzig dreissig vierzig fünfzig sechzig siebzig achtzig neunzig hundert tausend halb hälfte drittel viertel "
    "erste ersten zweite zweiten dritte dritten vierte vierten prozent ja nein nicht kein keine "
    # French
    "zéro deux trois quatre cinq sept huit neuf dix onze douze treize quatorze quinze seize vingt trente quarante "
    "cinquante soixante cent cents mille moitié tiers quart premier première deuxième troisième quatrième oui non pas moins "
    # Spanish
    "cero dos tres cuatro cinco seis siete ocho nueve diez doce trece catorce dieciséis diecisiete dieciocho diecinueve "
    "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa cien ciento mil mitad tercio cuarto primero primera "
    "segundo segunda tercero tercera menos sí "
    # Italian
    "due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici diciassette diciotto "
    "diciannove venti trenta quaranta cinquanta sessanta settanta ottanta novanta cento metà primo prima secondo terzo meno "
    # Portuguese
    "dois duas três quatro sete oito dezesseis vinte trinta quarenta cinquenta setenta oitenta noventa cem primeiro "
    "primeira terceiro terceira metade sim não "
    # Dutch, Swedish, Polish, Indonesian
    "twee drie vijf zes zeven negen tien twaalf dertien twintig honderd duizend eerste tweede derde helft nee niet "
    "två tre fyra fem sex sju åtta nio tio elva tolv tjugo hundra tusen första andra tredje hälften ja nej inte "
    "dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć sto tysiąc pierwszy drugi trzeci połowa tak nie "
    "satu dua tiga empat lima enam tujuh delapan sembilan sepuluh ratus ribu juta pertama kedua ketiga setengah ya tidak "
    # Chinese and Japanese; Cyrillic
    "零 一 二 三 四 五 六 七 八 九 十 百 千 万 亿 億 两 兩 半 不 否 没 非 "
    "ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать двадцать тридцать сорок сто тысяча "
    "миллион половина первый второй третий да нет не минус плюс процентов "
    "× ÷ ± ≤ ≥ ≠ √ ∞ € £ ¥ ₹ ₩ °"
)
NUMBER_WORDS: Final = frozenset(_NUMBER_WORDS.split())

_UNITS: Final = (
    "am pm mm cm dm km nm µm um mg kg ml cl dl hl ms sec secs second seconds min mins minute minutes hr hrs hour hours day "
    "days week weeks month months year years inch inches ft foot feet yd yard yards mile miles mph kmh kph hz khz mhz ghz kb mb "
    "gb tb kw mw gw kwh wh mah ma mv kv kn kj kcal pa hpa kpa bar psi ohm ohms volt volts watt watts amp amps degree "
    "degrees celsius fahrenheit kelvin litre litres liter liters gram grams kilogram kilograms metre metres meter meters "
    "centimetre centimetres centimeter centimeters millimetre millimetres kilometre kilometres kilometer kilometers euro "
    "euros dollar dollars pound pounds cent cents yen percent percentage usd eur gbp"
)
UNITS: Final = frozenset(_UNITS.split())

CHOICES: Final = frozenset(["option", "options", "choice", "choices", "letter", "opción", "opzione", "opção"])
"""Words after which a single letter is one of several, even "a"."""

_GERMAN_NOUNS: Final = (
    "zahl anzahl abbildung grafik bild schaubild darstellung diagramm foto frage antwort lösung ergebnis wert werte angabe "
    "aussage grund hinweis zeichnung beispiel schritt also folge zusammenfassung"
)
FUNCTION_WORDS: Final = frozenset(["i", "a", "an", "he", "she", "they", "his", "her"]).union(
    *STOP_WORDS.values(), _GERMAN_NOUNS.split()
)
"""Words that are no name even with a capital in the middle of a sentence, as titles have them."""

_OPENERS: Final = (
    "they we you his her its their our my your this that these those there here who whom whose what which "
    "when where why how if then than so thus hence therefore because since as although though while until unless also again "
    "still yet even only just both each every all any some many much most more few several another other such same next "
    "finally lastly overall together additionally moreover furthermore however nevertheless meanwhile otherwise instead "
    "besides indeed actually clearly obviously apparently perhaps maybe probably certainly of in on at by to from for with "
    "without within between among above below under over across behind beside near inside outside around along after before "
    "during through toward towards against into onto off out up down about apart according given based due note let lets look "
    "looking reading counting comparing adding subtracting multiplying dividing rounding going checking starting taking using "
    "moving following considering assuming knowing seeing judging observing examining calculating computing summing "
    "is are was were be been being do does did has have had can could will would shall should may might must need needs nothing "
    "something everything everyone nobody someone answer answers reasoning solution conclusion explanation step steps result "
    "question questions final analysis summary observation thinking option options image picture photo chart figure graph "
    "diagram table were im ive id its thats lets ok okay now well first second third please see find read add subtract "
    "multiply divide compare count think check recall remember notice suppose say means total"
)
OPENERS: Final = FUNCTION_WORDS.union(_OPENERS.split())

_CARDINALS: Final = (
    "0 zero null zéro cero|1 one|2 two zwei deux dos due dois duas|3 three drei trois tres tre três|4 four vier quatre "
    "cuatro quattro quatro|5 five fünf cinq cinco cinque|6 six sechs seis sei|7 seven sieben sept siete sette sete|8 eight "
    "acht huit ocho otto oito|9 nine neun neuf nueve nove|10 ten zehn dix diez dieci|11 eleven elf onze undici|12 "
    "twelve zwölf douze doce dodici|13 thirteen dreizehn treize trece|14 fourteen vierzehn quatorze catorce|15 fifteen "
    "fünfzehn quinze quince|16 sixteen sechzehn seize dieciséis|17 seventeen siebzehn|18 eighteen achtzehn|19 nineteen "
    "neunzehn|20 twenty zwanzig vingt veinte venti|30 thirty dreissig trente treinta|40 forty fourty vierzig quarante "
    "cuarenta|50 fifty fünfzig cinquante cincuenta|60 sixty sechzig soixante sesenta|70 seventy siebzig setenta|80 eighty "
    "achtzig ochenta|90 ninety neunzig noventa|% percent prozent|+ plus|- minus|km kilometre kilometres kilometer "
    "kilometers|m metre metres meter meters|cm centimetre centimetres centimeter centimeters|mm millimetre millimetres|kg "
    "kilogram kilograms|g gram grams|l litre litres liter liters|h hour hours hr hrs|min minute minutes mins|s sec secs "
    "seconds|dollars dollar usd|euros euro eur|pounds pound gbp|degrees degree °|years year|months month|weeks week|days day|"
    "inches inch|feet foot ft|yards yard yd|miles mile|watts watt w|volts volt v|amps amp|ohms ohm|cents cent|* × times x"
)
SAME_VALUES: Final = {
    word: value for value, *words in (group.split() for group in _CARDINALS.split("|")) for word in words
}
"""Words, signs and units by the value that they mean: "3" for "three", "km" for "kilometres"."""
