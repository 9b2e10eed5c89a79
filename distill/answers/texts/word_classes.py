"""Classes of words around an answer in a sentence, in English first; `distill.answers.texts.mentions` uses them."""

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
    box suite apartment seat terminal channel gleis zimmer
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
