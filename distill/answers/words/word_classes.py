"""Classes of words around an answer in a sentence, in English first."""

import re
from typing import Final

_TEXT: Final = """
articles: a al an das dem den der die een ein eine einem einen el gli her het his il its la las le les lo los my
    o os our some that the their these this those um uma un una une uno your;
pronouns: he it she they;
opening: based explanation hence here i note reason reasoning so there therefore thus;
counts: eight few five four many nine one seven several six ten three two;
before: from 's am an ans are as at au auf aux be been bei being by c'est called dans dice drive drives eat eats em
    en era es est está están foi for hacia had has hat have hay he's heißt hold holds im in indique ins inside
    into is ist it's labelled lautet liest like-this mean means muestra na nach named no on onto play plays read
    reads represent represents ride rides s'appelle said say says see sees she's show showing shows sieht sind
    son sont steht sur são that's there's they're through tiene titled to toward towards vers verso voit war was
    watch watches wear wearing wears were zeigt zum zur à è é était في هو هي में है;
after: a according am are as at auf avait be because by can dans did do does during en es est está for from ha
    had has hat hatte have hay im in is ist of on over since sind son sont sur tem tenía that tiene to under war
    was were when where which who will with would zu è é رنگ का की के में है;
tied: above against and around aus behind below beside between da de del der des di do dos du e et hinter
    like near neben of or over than und under vom von vor with without y;
after_comma: a about an around as at by during for from in located near on the to when where with;
kinds: age airline airplane angle angles animal animals answer app area avenue bag bar bars bay beach beer bike
    bird boat bone book bottle bowl box brand brand-name bridge building bus camera cameras can captain car cars
    category cathedral cell chairman choice church cigarettes city ciudad co code coffee college colony color
    colour company computer continent corp corporation couleur country county couple crop cup curve côté day
    degree degrees department desert director dish division dr drawing drink electronics empire energy era farbe
    festival figure film firma fish flower food force forest fruit function game glass gmbh governor group hand
    hat hospital hotel image inc incorporated invoice island jacket jersey juice kind king label lado lake land
    laptop leaves letter ligne limited line lines linie llc logo ltd línea magazine man manager mano marca marke
    marque match mayor month months mount mountain movie mr mrs ms muscle museum name newspaper number ocean one
    ones option order organ page painting pair park part particle party pattern pays país people percent person
    phone phones photo picture piece plane planet plant plate player polygon president prof professor province
    quadrilateral queen reaction region restaurant river room school sea season section segment seite senator
    shade shape shirt shop side sign sir size slice soda song sport sports square stadium stadt state station
    store street style symbol tablet tea team text thing time title tower town train tree triangle triangles
    truck type university valley value vegetable village ville war watch weather website week wine woman word
    words year years zoo bunch flock herd slices pieces stack اللون دولة لون مدينة देश रंग शहर;
colours: beige black blue brown colored crimson cyan gold golden gray green grey magenta maroon navy orange pink
    purple red silver tan teal turquoise violet white yellow;
sizes: big fresh large little long new old round short small tall young;
sides: back bottom center centre down east front left middle north right south top up west;
calendar: april august december february friday i january july june march may monday november october saturday
    september sunday thursday tuesday wednesday;
ranked_below: fifth fourth nowhere runner-up second than third;
leading: a am at au auf by en hacia im in into nach on sur to toward towards vers zu à;
german: das dem den der die ein eine hat im ist nicht und;
numbered: page pages p pp no nr number zip code postcode room line bus gate platform flight track exit form invoice po
    box suite apartment seat terminal channel gleis zimmer;
joins: aber and but e et i.e mais o oder or ou pero than that then und when where whereas which while who whose y;
attaches: above across against along am around at auf aus avec behind bei below beside between by com con da dans
    de del des do du during en for from im in inside into mit na near next no of on onto outside over sobre sur
    through under unter von vor with without über;
open_prepositions: about als as at auf aus avec by com comme como con d da dans de del des di do du en for from im
    in inside into mit nach of on onto par por sur through to via von with within zum zur;
moving: about from into onto to;
placing: atrás bajo debajo delante derrière detrás devant embaixo hinter neben sopra sotto sous unter vor über;
asks_for_any: did do does doing get had has have having look looking looks see seen show shown use used uses using;
copies: drawing figure image logo painting photo photograph picture statue symbol view;
measures: bottle bowl box bunch can couple cup form full glass group kind lot made pair part piece pile plate row
    set slice sort stack type variety;
national: czech dutch french greek hms rms swiss thai uk us uss;
known: als aus avoir bar billion c'est column comme como curve d' document don doña drawn form frau gibt got haben
    hay herr herrn l' laut letter line lo m madame man memo million mme monsieur on percent que qui segment sehen
    señor señora sido sieht slice sr sra thousand trata voit wird worden wurde y été;
adjectives: bare blank blond blonde bold brunette calm clean cold cool cute deep flat hard hot huge loose loud
    matte mid modern nice plain quiet rich rough sharp simple smooth soft steep strong thick thin tight tiny warm
    weak;
shades: chiaro clair claire clara claro escura escuro foncé foncée oscura oscuro scuro;
untied: across after also and behind beside likely near next only opposite partly since what which while who
"""
_CLASSES: Final = {
    name.strip(): frozenset(words.split())
    for name, _, words in (line.partition(":") for line in _TEXT.strip().split(";"))
}
ARTICLES: Final = _CLASSES["articles"]
"""Words between a verb or preposition and its noun."""
PRONOUNS: Final = _CLASSES["pronouns"]
OPENING: Final = _CLASSES["opening"]
"""With a capital at the beginning of a sentence."""
COUNTS: Final = _CLASSES["counts"]
BEFORE: Final = _CLASSES["before"]
"""Words before an answer that tie it to nothing else: it is, in, shows."""
AFTER: Final = _CLASSES["after"]
"""Words after an answer that begin something else: is, has, of, over."""
TIED: Final = _CLASSES["tied"]
"""Words that tie what follows to something else: the assistant of the mayor."""
AFTER_COMMA: Final = _CLASSES["after_comma"]
"""Words that begin a remark."""
KINDS: Final = _CLASSES["kinds"]
"""Names of the kind of thing that an answer is: stop sign, the planet Mars, a bottle of Budweiser."""
COLOURS: Final = _CLASSES["colours"]
SIZES: Final = _CLASSES["sizes"]
SIDES: Final = _CLASSES["sides"]
CALENDAR: Final = _CLASSES["calendar"]
RANKED_BELOW: Final = _CLASSES["ranked_below"]
"""Words that speak of another place than the first."""
LEADING: Final = _CLASSES["leading"]
"""Prepositions that a gold answer may begin with."""
GERMAN: Final = _CLASSES["german"]
"""German function words: in German all nouns have capitals."""
NUMBERED: Final = _CLASSES["numbered"]
"""Names before a number or a code that may be left out."""
JOINS: Final = _CLASSES["joins"]
"""Words that begin a second statement or join two things."""
ATTACHES: Final = _CLASSES["attaches"]
"""Words after an answer that begin what only describes or places it."""
OPEN_PREPOSITIONS: Final = _CLASSES["open_prepositions"]
"""Prepositions between a verb and its answer that do not change the answer."""
MOVING: Final = _CLASSES["moving"]
"""Prepositions that make of a thing another one: the book is about Stephen King."""
PLACING: Final = _CLASSES["placing"]
"""Prepositions of place in other languages."""
ASKS_FOR_ANY: Final = _CLASSES["asks_for_any"]
"""Verbs of a question that leave open how its answer is tied to it."""
COPIES: Final = _CLASSES["copies"]
"""What is of a thing and is not the thing."""
MEASURES: Final = _CLASSES["measures"]
"""Nouns that only say how much there is of the answer."""
NATIONAL: Final = _CLASSES["national"]
"""Words before a name that are no part of it."""
KNOWN: Final = _CLASSES["known"]
"""Words that state or count something and are no answer."""
ADJECTIVES: Final = _CLASSES["adjectives"]
"""Adjectives that no ending tells."""
SHADES: Final = _CLASSES["shades"]
"""Shades of a colour in Romance languages, after it."""
UNTIED: Final = _CLASSES["untied"]
"""Words of a remark that do not take the answer back."""
_TOPICS_TEXT: Final = """
    auteur author autor autora autorin geschrieben writer written wrote | shop store | newspaper paper | url website
    | from sender sent | firma firmante signature signed signer | departs departure leaves | bound destination fährt
    goes going headed | arbeitet job occupation profession trabaja travaille works | made material | called title
    titled | called name named | belongs owner owns | document form letter memo report | drawing painting picture |
    perched standing stands | perched seated sits sitting | lies lying | got wearing wears worn | biggest first
    greatest highest largest leads most tops | fewest last least lowest smallest | hangs liegt lies sits sitzt
    stands steht | assis couché trouve | published publisher | carries carrying held holding holds | cooking makes
    making preparing | kind sort type | made maker manufacturer produced
"""
TOPICS: Final = tuple(frozenset(topic.split()) for topic in _TOPICS_TEXT.split("|"))
"""Words of a question and its answer that speak of the same: who wrote it, the author is."""
_SET_AGAINST_TEXT: Final = """
    not no never neither nor none without except unless if whether or either but instead rather than unlike other
    another different might may could maybe perhaps possibly probably likely unlikely should would will cannot
    can can't couldn't isn't aren't wasn't weren't doesn't don't didn't won't used supposed meant so while whereas
    although though before after until since because think thought guess believe believed assume assumed suspect
    similar like near next beside behind opposite across formerly previously originally once false wrong incorrect
    mistaken hardly barely nearly almost only partly also and who which what why how both seem only unclear uncertain
    unknown fake pretend imitation incorrectly wrongly replaced former previous
    nicht kein keine keinen nie weder oder vielleicht wahrscheinlich aber sondern statt außer wohl entweder
    ne pas ni jamais ou peut-être mais sauf plutôt sans soit n'est n'était
    nunca o quizás quizá pero sino excepto sin tal vez puede
    non né mai oppure forse ma tranne invece senza
    não nem talvez mas exceto sem
    niet geen nooit misschien maar behalve
    नहीं न या शायद लेकिन ليس ليست لا غير لم لن أو ربما بدون
"""
SET_AGAINST: Final = frozenset(_SET_AGAINST_TEXT.split())
"""Words that deny, doubt or contrast what stands beside them."""
_WORD = re.compile(r"[\u0900-\u0963\u0970-\u097f]+|[^\W_]+(?:['’-][^\W_]+)*")


def affirms(words: str) -> bool:
    """Whether the words around a part do not deny it, doubt it or contrast it: not "it may be"."""
    return not any(word in SET_AGAINST or word.endswith(("n't", "n’t")) for word in _WORD.findall(words.casefold()))


_JOINING_TEXT: Final = """and also so which who what why how both only can may will would should than because since
before after until while next near beside behind opposite across seem meant think believe guess assume mai"""
_SETS_APART: Final = SET_AGAINST - {*_JOINING_TEXT.split()}
_ASKED = re.compile(r"\?\s*\S")


def sets_apart(text: str, known: str = "") -> bool:
    """Whether a text denies or contrasts something with a word that `known` lacks, or asks: "7? No, 8."."""
    words = {*_WORD.findall(text.casefold())}
    denied = any(word in _SETS_APART or word.endswith(("n't", "n’t")) for word in words - {*_WORD.findall(known)})
    return denied or _ASKED.search(text) is not None
