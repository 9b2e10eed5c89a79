"""Units of measure that can be converted into each other, and one spelling for counted nouns."""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

_UNITS_TEXT: Final = """
    length: mm millimeter millimetre 0.001; cm cms centimeter centimetre 0.01; m mtr meter metre 1
    length: km kms kilometer kilometre 1000; in inch inches 0.0254; ft foot feet 0.3048; yd yard 0.9144
    length: mi mile 1609.344
    mass: mg milligram 0.000001; g gm gms gram 0.001; kg kgs kilogram kilo 1; tonne 1000
    mass: lb lbs pound 0.45359237; oz ounce 0.028349523125
    volume: ml milliliter millilitre 0.001; cl centiliter centilitre 0.01; dl deciliter decilitre 0.1
    volume: hl hectoliter 100; pint pt 0.473176473; quart qt 0.946352946; l ltr liter litre 1
    volume: m^3 meter^3 metre^3 1000; cm^3 centimeter^3 centimetre^3 0.001; cup 0.24; teaspoon tsp 0.005
    volume: tablespoon tbsp 0.015; gallon gal 3.785411784
    area: m^2 meter^2 metre^2 1; km^2 kilometer^2 kilometre^2 1000000; cm^2 centimeter^2 centimetre^2 0.0001
    area: mm^2 0.000001; ft^2 foot^2 feet^2 0.09290304; in^2 inch^2 0.00064516; hectare ha 10000
    area: acre 4046.8564224; mi^2 mile^2 2589988.110336
    data: byte 1; kb kilobyte 1000; mb megabyte 1000000; gb gigabyte 1000000000; tb terabyte 1000000000000
    energy: j joule 1; kj kilojoule 1000; mj megajoule 1000000; wh watthour watt-hour 3600
    energy: mwh megawatthour megawatt-hour 3.6e9; gwh gigawatthour 3.6e12; twh 3.6e15; cal calorie 4.184
    energy: kcal kilocalorie 4184; kwh kilowatthour kilowatt-hour 3600000
    power: w watt 1; kw kilowatt 1000; mw megawatt 1000000; gw gigawatt 1000000000
    voltage: v volt 1; mv millivolt 0.001; kv kilovolt 1000
    current: amp ampere 1
    frequency: hz hertz 1; khz kilohertz 1000; mhz megahertz 1000000; ghz gigahertz 1e9
    calendar: month mo 1; year yr 12; decade 120; century 1200
    speed: m/s meter/second meters/second 1
    speed: km/h kph kmh kmph km/hr km/hour kilometer/hour kilometers/hour 0.2777777777777777777777777778
    speed: mph mi/h mile/hour miles/hour 0.44704
    acceleration: m/s^2 1
    radian: radian rad 1
    duration: ms millisecond 0.001; s sec secs second 1; min mins minute 60; h hr hrs hour 3600; day 86400
    duration: week 604800
    celsius: °c 1
    fahrenheit: °f 1
    angle: ° degree deg 1
"""
"""A dimension, and its units: their names and their size."""
_UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    name: (dimension, Decimal(size))
    for dimension, _, units in (line.strip().partition(": ") for line in _UNITS_TEXT.strip().splitlines())
    for *names, size in map(str.split, units.split(";"))
    for name in names
}

_PLURALS: Final = (
    ("ies", "y"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("uses", "us"),
    ("sses", "ss"),
    ("s", ""),
)
_IRREGULAR: Final = {
    **{"people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "teeth": "tooth"},
    **{"leaves": "leaf", "knives": "knife", "geese": "goose", "shelves": "shelf", "wolves": "wolf"},
}

_FOREIGN_TEXT: Final = """
    km:公里|千米|キロ|キロメートル|kilomètre|kilómetro|chilometro|quilômetro|किलोमीटर|किमी|كيلومتر|كم
    m:米|公尺|メートル|mètre|metro|मीटर|متر
    cm:厘米|公分|センチ|センチメートル|centimètre|centímetro|zentimeter|centimetro|सेमी|سم
    mm:毫米|ミリ|millimètre|milímetro
    kg:公斤|千克|キログラム|kilogramm|kilogramo|chilo|chilogrammo|kilogramme|quilo|किलो|किलोग्राम|كيلو|كغ|كيلوغرام
    g:克|グラム|gramm|gramme|gramo|grammo|grama|ग्राम|غرام|جرام l:升|リットル|litro|लीटर|لتر
    ml:毫升|ミリリットル|mililitro hour:小时|時間|heure|stunde|stunden|hora|ora|घंटा|घंटे|ساعة|ساعات
    minute:分|分钟|分間|minuten|minuto|मिनट|دقيقة|دقائق
    second:秒|秒钟|秒間|seconde|sekunde|sekunden|segundo|secondo|सेकंड|ثانية
    day:天|日間|jour|tage|tagen|día|giorno|giorni|dia|दिन|يوم|أيام
    week:周|星期|週間|semaine|woche|wochen|semana|settimana|settimane|हफ्ते|सप्ताह|أسبوع
    month:个月|ヶ月|monat|monate|monaten|mese|mesi|महीने
    year:年|岁|歳|an|ans|année|jahr|jahre|jahren|año|anno|anni|ano|साल|वर्ष|سنة|سنوات|عام
    person:人|名|personne|persona|persone|pessoa|personen|लोग|شخص degree:度|degré|grau
    degree:grad|grado|grados|gradi|degrés|градус|градуса|градусов vol:abv|alc tonne:吨|トン|tonelada|tonnellata
    mm:миллиметр|миллиметра|миллиметров|мм|밀리미터|مليمتر|مم|ミリメートル|millimetro|millimetri
    cm:сантиметр|сантиметра|сантиметров|см|센티미터|سنتيمتر|centimetri
    m:метр|метра|метров|미터|أمتار|metri
    km:километр|километра|километров|км|킬로미터|كيلومترات|chilometri
    in:дюйм|дюйма|дюймов|인치|بوصة|インチ|英寸|pouce|pouces|pulgada|pulgadas|pollice|pollici|polegada
    in:polegadas
    ft:фут|фута|футов|фт|피트|قدم|フィート|英尺|fuß|pieds|piede|piedi|pés
    mi:миля|мили|миль|마일|ميل|أميال|マイル|英里|meile|meilen|milla|millas|miglio|miglia|milha|milhas
    mg:миллиграмм|миллиграмма|мг|밀리그램|مليغرام|مغم|ミリグラム|毫克|milligramm|milligramme
    mg:milligrammes|miligramo|miligramos|milligrammo|milligrammi|miligrama|miligramas
    g:грамм|грамма|그램|غرامات|grammi
    kg:килограмм|килограмма|кг|킬로그램|كغم|chilogrammi|quilograma|quilogramas
    tonne:тонна|тонны|тонн|公吨|tonnen
    lb:фунт|фунта|фунтов|фнт|파운드|رطل|ポンド|pfund|libbra|libbre
    oz:унция|унции|унций|унц|온스|أونصة|オンス|盎司|unzen|onces|onzas|oncia|onça|onças
    ml:миллилитр|миллилитра|миллилитров|мл|밀리리터|مليلتر|ملتر|millilitro|millilitri
    l:литр|литра|литров|리터|litri
    s:секунда|секунды|секунд|초|ثوان|secondi|seconden
    min:минута|минуты|минут|мин|د|minuti|minuut
    h:час|часа|часов|시간
    day:день|дня|дней|дн|dagen
    week:неделя|недели|недель|нед|أسابيع|weken
    month:месяц|месяца|месяцев|мес|개월|شهر|أشهر|か月|mês|maand|maanden
    year:год|года|лет
    j:джоуль|джоуля|джоулей|дж|줄|جول|ジュール|焦耳
    kcal:килокалория|килокалории|килокалорий|ккал|킬로칼로리|キロカロリー|千卡|kilokalorie|kilokalorien
    kcal:kilocaloría|kilocalorías|chilocaloria|chilocalorie|quilocaloria|quilocalorias|kilocalorieën
    w:ватт|ватта|вт|와트|واط|ワット|瓦特|vatio|vatios
    kw:киловатт|киловатта|квт|킬로와트|كيلوواط|キロワット|千瓦|kilovatio|kilovatios|quilowatt
    kw:quilowatts
    mw:мегаватт|мегаватта|мвт|메가와트|メガワット|兆瓦|mégawatt|mégawatts|megavatio|megavatios
    v:вольт|вольта|볼트|فولت|ボルト|伏特|voltio|voltios
    hectare:гектар|гектара|гектаров|га|헥타르|هكتار|ヘクタール|公顷|hektar|hectárea|hectáreas|ettaro
    hectare:ettari
    kwh:킬로와트시|キロワット時|千瓦时|kilowattstunde|kilowattstunden|chilowattora|kilowattuur
    gallon:갤런|غالون|ガロン|加仑|gallone|gallonen|galón|galones|galloni|galão|galões
"""
"""Names listed here, then those of the CLDR (Babel) in twelve languages, without short ones of several meanings."""
_FOREIGN: Final = {
    name: unit.partition(":")[0] for unit in _FOREIGN_TEXT.split() for name in unit.partition(":")[2].split("|")
}

_MORE_AFTER = re.compile(r"[〇零一二三四五六七八九十百]|です|でした|だ(?!けど)|[いあ]ります|います|が|の|[达的是最]")


def foreign_unit_length(word: str) -> int:
    """Length of the unit at the beginning of words without spaces: 時間 of 時間二十分; else 0."""
    for end in range(min(len(word) - 1, 6), 0, -1):
        if word[:end] in _FOREIGN and _MORE_AFTER.match(word, end):
            return end
    return 0


@lru_cache(maxsize=4096)
def unit_name(word: str) -> str:
    """A unit or counted noun in the singular."""
    word = word.replace(" ", "").lower()
    if word in ("st", "nd", "rd"):
        return "th"
    if "^" in word and (base := _FOREIGN.get(word[:-2])) is not None:
        return base + word[-2:]
    if (english := _FOREIGN.get(word) or _FOREIGN.get(word.removesuffix("s"))) is not None:
        return english
    if word in _UNITS or len(word) <= 3:
        return word
    if word.removesuffix("s") in _UNITS:
        return word.removesuffix("s")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    for ending, instead in _PLURALS:
        if word.endswith(ending) and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word


def loosely_equal(value: Decimal, unit: str, other_value: Decimal, other_unit: str) -> bool:
    """Whether two amounts in known units may be the same one by a conversion that is not one factor.

    Fahrenheit and Celsius, months and days, kilobytes of 1024.
    """
    factor, other_unit_factor = unit_factor(unit), unit_factor(other_unit)
    if factor is None or other_unit_factor is None:
        return False
    kinds = {factor[0], other_unit_factor[0]}
    if kinds == {"celsius", "fahrenheit"}:
        celsius, fahrenheit = (value, other_value) if factor[0] == "celsius" else (other_value, value)
        return abs(celsius * 9 / 5 + 32 - fahrenheit) <= 1
    size, other_size = value * factor[1], other_value * other_unit_factor[1]
    if kinds == {"calendar", "duration"}:
        size, other_size = (
            amount * (2629746 if unit_size[0] == "calendar" else 1)
            for amount, unit_size in ((size, factor), (other_size, other_unit_factor))
        )
    elif kinds != {"data"}:
        return False
    return abs(size - other_size) <= abs(other_size) * Decimal("0.1" if kinds == {"data"} else "0.02")


_SYMBOL_OF: Final[dict[tuple[str, Decimal], str]] = {}
for _name, _size in _UNITS.items():
    _SYMBOL_OF.setdefault(_size, _name)


def unit_symbol(unit: str) -> str:
    """The symbol of a known unit; empty for another word."""
    size = _UNITS.get(unit)
    return "" if size is None else _SYMBOL_OF[size]


def unit_factor(unit: str) -> tuple[str, Decimal] | None:
    """Dimension of a known unit and its size in that dimension's base unit."""
    return _UNITS.get(unit)
