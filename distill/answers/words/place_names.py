"""Countries by any of their names: Czechia and Czech Republic, Côte d'Ivoire, Elfenbeinküste and Ivory Coast.

The names of today in many languages are those of the Unicode CLDR (the Babel library); official and older names that
CLDR does not have are listed here.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from distill.answers.compare_result import CompareResult, correct, wrong

_LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "zh", "ja", "ko", "ar", "hi", "ru", "pl", "tr", "sv")
_OTHER_NAMES_TEXT: Final = """
    AE:united arab emirates|emirates|uae BA:bosnia|bosnia herzegovina BN:brunei darussalam BO:plurinational
    state of bolivia BY:byelorussia CD:democratic republic of congo|dr congo|drc|zaire|congo kinshasa|democratic
    republic of the congo CF:car CG:congo brazzaville|republic of congo|republic of the congo CI:ivory
    coast|cote d'ivoire CN:prc|people's republic of china|mainland china CV:cape verde|cabo verde
    CZ:czechia|czech republic|the czech republic FM:federated states of micronesia|micronesia GB:united
    kingdom|the uk|uk|great britain|united kingdom of great britain and northern ireland|britain GM:the
    gambia|gambia HK:hong kong|hong kong sar IR:islamic republic of iran|persia KP:north korea|democratic
    people's republic of korea|dprk KR:south korea|republic of korea|korea republic of|rok LA:lao people's
    democratic republic|lao pdr|lao LY:libyan arab jamahiriya MD:republic of moldova MK:macedonia|fyrom|former
    yugoslav republic of macedonia|republic of north macedonia MM:myanmar|burma MO:macao|macau
    NL:netherlands|holland|the netherlands PS:palestine|state of palestine|palestinian territories
    RU:russia|russian federation|the russian federation RW:ruanda SY:syrian arab republic SZ:swaziland|eswatini
    TL:east timor|timor leste TR:turkey|türkiye|turkiye|republic of turkey TW:taiwan|chinese taipei|republic of
    china TZ:united republic of tanzania US:united states|usa|the us|us|eeuu|ee uu|united states of
    america|america|the united states|the usa VA:holy see|vatican VE:bolivarian republic of venezuela VN:viet
    nam|socialist republic of vietnam DE:federal republic of germany|frg FR:french republic GR:hellenic
    republic|hellas EG:arab republic of egypt SK:slovak republic CH:swiss confederation KG:kyrgyz
    republic|kirghizia TT:trinidad tobago LK:ceylon IE:republic of ireland|eire CY:republic of cyprus
    ZA:rsa|republic of south africa IN:republic of india IN:hindustan ID:republic of indonesia PH:republic of
    the philippines|the philippines SG:republic of singapore PL:republic of poland IT:italian republic
    AT:republic of austria PT:portuguese republic ES:kingdom of spain SE:kingdom of sweden NO:kingdom of norway
    DK:kingdom of denmark BE:kingdom of belgium SA:kingdom of saudi arabia|ksa TH:kingdom of thailand|siam
    MA:kingdom of morocco JO:hashemite kingdom of jordan|kingdom of jordan BH:kingdom of bahrain MX:united
    mexican states BR:federative republic of brazil AR:argentine republic CO:republic of colombia PE:republic of
    peru CL:republic of chile KE:republic of kenya NG:federal republic of nigeria GH:republic of ghana
    ET:federal democratic republic of ethiopia PK:islamic republic of pakistan BD:people's republic of
    bangladesh AF:islamic republic of afghanistan IQ:republic of iraq KZ:republic of kazakhstan FI:republic of
    finland HU:republic of hungary RS:republic of serbia HR:republic of croatia SI:republic of slovenia
    LT:republic of lithuania LV:republic of latvia EE:republic of estonia BG:republic of bulgaria
"""
_NEVER: Final = frozenset({"world", "georgia", "us", "car", "jersey", "turkey", "chad", "guinea", "america"})
"""Names that often mean something else: another country beside them is not a wrong answer."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def compare_places(left: str, right: str) -> CompareResult | None:
    """Whether two texts name the same country; None when one of them names none."""
    left_code, right_code = _country_code(left), _country_code(right)
    if left_code is None or right_code is None:
        return None
    if left_code[0] == right_code[0]:
        return correct("same_name_abroad")
    if len(left_code[0]) != len(right_code[0]) or len(left_code[0]) > _DAY:
        return None
    return None if {_plain(left), _plain(right)} & _NEVER else wrong("other_country")


def with_country(text: str, country: str) -> str:
    """The text with this name of a country in the place of its other English ones: UK for United Kingdom."""
    names = _names_of_same().get(_plain(country))
    return text if names is None else names.sub(lambda _: country, text)


@lru_cache(maxsize=1)
def _names_of_same() -> dict[str, re.Pattern[str]]:
    """By listed name a pattern of all names of that country, but those that often mean something else."""
    patterns: dict[str, re.Pattern[str]] = {}
    for names in _listed_names().values():
        clear = {*names} - _NEVER
        clear = {name for name in clear if name.removeprefix("the ") not in clear - {name}}
        sure = "|".join(map(_spelled, sorted(clear, key=len, reverse=True)))
        if sure:
            patterns |= dict.fromkeys(names, re.compile(rf"{_NOT_PART}\b(?:{sure})(?!\w)", re.IGNORECASE))
    return patterns


def _spelled(name: str) -> str:
    """A pattern of a name: U.K. for UK, too."""
    *words, last = name.split()
    if len(last) <= _LONGEST_INITIALS:
        last = r"(?:{}|{}\.?)".format(last, re.escape(".".join(last)))
    return " ".join((*words, last)).replace("'", "['’]")


_LONGEST_INITIALS: Final = 3
_NOT_PART: Final = "".join(
    f"(?<!{word} )" for word in ("people['’]s", "democratic", "northern", "north", "south", "new", "great")
)
"""Not of the name of another country or place: Democratic People's Republic of Korea, North Holland."""


@lru_cache(maxsize=1)
def _listed_names() -> dict[str, tuple[str, ...]]:
    """The listed names of each code."""
    listed = re.findall(r"([A-Z]{2}):(.*?)(?=\s[A-Z]{2}:|\Z)", " ".join(_OTHER_NAMES_TEXT.split()))
    return {code: tuple(_plain(name) for name in names.split("|")) for code, names in listed}


_ARTICLE = re.compile(r"^(?:the|les?|la|los|las|el|i|gli|die|der|os?|as?) |^l'")
_COUNTRY: Final = 2
_DAY: Final = 4
"""Letters of the code of a country, and of a day of the week."""
_STATES_TEXT: Final = """
    AL Alabama;AK Alaska;AZ Arizona;AR Arkansas;CA California;CO Colorado;CT Connecticut;DE Delaware;FL Florida;
    GA Georgia;HI Hawaii;ID Idaho;IL Illinois;IN Indiana;IA Iowa;KS Kansas;KY Kentucky;LA Louisiana;ME Maine;
    MD Maryland;MA Massachusetts;MI Michigan;MN Minnesota;MS Mississippi;MO Missouri;MT Montana;NE Nebraska;
    NV Nevada;NH New Hampshire;NJ New Jersey;NM New Mexico;NY New York;NC North Carolina;ND North Dakota;OH Ohio;
    OK Oklahoma;OR Oregon;PA Pennsylvania;RI Rhode Island;SC South Carolina;SD South Dakota;TN Tennessee;TX Texas;
    UT Utah;VT Vermont;VA Virginia;WA Washington;WV West Virginia;WI Wisconsin;WY Wyoming
"""
STATES: Final = dict(pair.strip().split(" ", 1) for pair in _STATES_TEXT.split(";"))
"""Codes and names of the states of the USA."""


def is_region(text: str) -> bool:
    """Whether a text names a state of the USA or a country, in English."""
    if text in STATES or text in STATES.values():
        return True
    code = _country_code(text)
    return code is not None and code[1] == "en" and len(code[0]) == _COUNTRY


def _country_code(text: str) -> tuple[str, str] | None:
    if len(text) > 60 or any(map(str.isdigit, text)):
        return None
    name = _plain(text)
    return _country_codes().get(name) or _country_codes().get(_ARTICLE.sub("", name))


def _plain(name: str) -> str:
    """Lower case without accents and punctuation; "&" and "St." as CLDR has them stand for "and", "saint"."""
    name = name.casefold().replace("’", "'").replace("&", " and ").replace("st.", "saint")
    if not name.isascii():
        name = "".join(sign for sign in unicodedata.normalize("NFKD", name) if not "\u0300" <= sign <= "\u036f")
    return " ".join(_WORD.findall(name))


@lru_cache(maxsize=1)
def _country_codes() -> dict[str, tuple[str, str]]:
    """Name to code and first language, of countries, days of the week and cities that have a time zone."""
    from babel import Locale

    codes: dict[str, tuple[str, str]] = {}
    for language in _LANGUAGES:
        for code, name in Locale(language).territories.items():
            if len(code) == 2 and code.isalpha() and code not in ("EU", "EZ", "UN", "XA", "XB", "QO", "ZZ"):
                codes.setdefault(_plain(name), (code, language))
                codes.setdefault(_plain(re.sub(r"\s*\(.*\)|\s*\[.*\]", "", name)), (code, language))
    for language in _LANGUAGES:
        locale = Locale(language)
        for number, name in locale.days["format"]["wide"].items():
            codes.setdefault(_plain(name), (f"day{number}", language))
        for zone, names in locale.time_zones.items():
            if "/" in zone and names.get("city"):
                codes.setdefault(_plain(names["city"]), (zone, language))
                codes.setdefault(_plain(zone.rpartition("/")[2].replace("_", " ")), (zone, "en"))
    for code, names in _listed_names().items():
        codes.update((name, (code, "en")) for name in names)
    return codes
