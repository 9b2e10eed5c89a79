"""One spelling for words that English writes in several ways: British and American, abbreviations, countries.

The same word or name gets one spelling. `often_same_thing` covers words that often name the same thing
(phone and smartphone), `are_opposites` opposites.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final


def without_accents(text: str) -> str:
    """Letters without the marks that Unicode combines with them."""
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))


_PAIRS_TEXT: Final = """
    grey=gray colour=color colours=colors coloured=colored colourful=colorful favour=favor favourite=favorite
    flavour=flavor neighbour=neighbor neighbours=neighbors neighbourhood=neighborhood harbour=harbor
    labour=labor behaviour=behavior honour=honor humour=humor rumour=rumor armour=armor vapour=vapor odour=odor
    parlour=parlor theatre=theater centre=center centres=centers metre=meter metres=meters litre=liter
    litres=liters fibre=fiber calibre=caliber sombre=somber kilometre=kilometer centimetre=centimeter
    millimetre=millimeter tyre=tire tyres=tires kerb=curb plough=plow aluminium=aluminum aeroplane=airplane
    moustache=mustache pyjamas=pajamas catalogue=catalog dialogue=dialog analogue=analog programme=program
    programmes=programs cheque=check licence=license defence=defense offence=offense pretence=pretense
    jewellery=jewelry travelling=traveling traveller=traveler cancelled=canceled labelled=labeled
    modelling=modeling marvellous=marvelous organisation=organization organised=organized organise=organize
    recognise=recognize realise=realize analyse=analyze analysed=analyzed apologise=apologize
    civilisation=civilization specialised=specialized urbanisation=urbanization globalisation=globalization
    industrialisation=industrialization maths=math mum=mother mom=mother dad=father
    yoghurt=yogurt whisky=whiskey sceptical=skeptical
    storey=story doughnut=donut doughnuts=donuts saint=st mount=mt doctor=dr mister=mr okay=ok versus=vs
    airplane=plane airplanes=planes bicycle=bike bicycles=bikes television=tv televisions=tvs telephone=phone
    refrigerator=fridge photograph=photo photographs=photos racquet=racket racquets=rackets
    hippopotamus=hippo rhinoceros=rhino
"""
SPELLINGS: Final[dict[str, str]] = dict(pair.split("=") for pair in _PAIRS_TEXT.split())
"""A word to the spelling that stands for all of its spellings."""
SPELLINGS["&"] = "and"
for _word, _standard in list(SPELLINGS.items()):
    SPELLINGS[_word] = SPELLINGS.get(_standard, _standard)

NAMES: Final = {
    **dict.fromkeys(("usa", "us", "united states of america"), "united states"),
    **dict.fromkeys(("uk", "united kingdom of great britain and northern ireland"), "united kingdom"),
    "eu": "european union",
    "un": "united nations",
    "uae": "united arab emirates",
    "nyc": "new york city",
}
"""Whole answers, in lower case and without articles, to the name that stands for them."""

_SIMILAR_TEXT: Final = """
    phone/smartphone/cellphone/mobile computer/laptop/pc/notebook car/vehicle/automobile/auto/sedan
    motorbike/motorcycle/scooter couch/sofa/settee cup/mug kid/child/boy/girl kids/children
    man/person/guy/gentleman woman/person/lady top/upper bottom/lower big/large small/little street/road
    ship/boat rock/stone picture/photo/image/photograph taxi/cab store/shop coat/jacket hat/cap
    trash/garbage/rubbish bag/purse/handbag baby/infant cow/cattle/bull hill/mountain path/trail dish/plate
    film/movie autumn/fall rug/carpet bush/shrub increase/rise/growth/grow decrease/decline/fall/drop
    purple/violet/lilac beige/tan golden/gold/yellow crimson/red navy/blue turquoise/teal/cyan pink/magenta
    circle/round/oval rectangle/square sandwich/burger pants/trousers/jeans sneakers/shoes/trainers stove/oven
    tap/faucet lift/elevator truck/lorry/van soccer/football snake/python yes/correct/right no/incorrect
    none/nobody/nothing unknown/unclear maximum/highest minimum/lowest average/mean
"""
_SIMILAR: Final = tuple(frozenset(group.split("/")) for group in _SIMILAR_TEXT.split())


def often_same_thing(left: str, right: str) -> bool:
    """Whether two words often name the same thing."""
    return any(left in group and right in group for group in _SIMILAR)


_OPPOSITES_TEXT: Final = """north/south northern/southern northeast/northwest southeast/southwest east/west
    eastern/western left/right top/bottom upper/lower up/down above/below over/under inside/outside front/back
    high/low higher/lower highest/lowest first/last before/after more/less most/least increase/decrease
    increasing/decreasing increased/decreased rise/fall rising/falling male/female men/women man/woman boy/girl
    true/false open/closed on/off positive/negative hot/cold black/white old/young big/small large/small long/short
    tall/short more/fewer equal/different same/different early/late
    larger/smaller largest/smallest bigger/smaller biggest/smallest longer/shorter longest/shortest taller/shorter
    tallest/shortest older/younger oldest/youngest heavier/lighter heaviest/lightest faster/slower fastest/slowest
    nearest/farthest closest/farthest closer/farther cheapest/costliest most/fewest wet/dry full/empty fast/slow
    wide/narrow day/night agree/disagree import/export imports/exports
    foreground/background asleep/awake"""
OPPOSITES: Final = frozenset(frozenset(pair.split("/")) for pair in _OPPOSITES_TEXT.split())
_DENYING: Final = ("un", "in", "im", "il", "ir", "dis", "non")


def are_opposites(left: str, right: str) -> bool:
    """Whether two words are opposites."""
    if frozenset((left, right)) in OPPOSITES:
        return True
    if not 2 <= abs(len(left) - len(right)) <= 3:
        return False
    short, long = sorted((left, right), key=len)
    return len(short) > 3 and long.endswith(short) and long.removesuffix(short) in _DENYING


_PHRASES: Final = tuple(
    (re.compile(rf"\b{pattern}\b", re.IGNORECASE), phrase)
    for pattern, phrase in (
        (r"(?:beneath|underneath)", "under"),
        (r"upper[ -](?=(?:left|right)\b)", "top "),
        (r"lower[ -](?=(?:left|right)\b)", "bottom "),
        (r"(?:lots|a lot) of", "plenty of"),
        (r"(?:two times|2 times) (?=(?:an?|per|each|every)\b)", "twice "),
        (r"(?:per|each|every) (?=(?:hour|day|week|month|year)\b)", "a "),
        (r"per annum", "a year"),
        (r"twice (week|month|year)ly", r"twice a \1"),
        (r"twice daily", "twice a day"),
        (r"fiscal year(?= \d)", "FY"),
    )
)
"""Phrases that mean the same, to one of them."""


@lru_cache(maxsize=4096)
def in_one_phrase(text: str) -> str:
    """A text in which phrases that mean the same are written in one way."""
    for pattern, phrase in _PHRASES:
        text = pattern.sub(phrase, text)
    return text
