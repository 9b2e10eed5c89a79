"""Countries by any of their names: Czechia and Czech Republic, Côte d'Ivoire, Elfenbeinküste and Ivory Coast.

Present names in many languages come from the Unicode CLDR (the Babel library); official and older names that CLDR
lacks are listed here.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from distill.answers.compare_result import CompareResult, correct, wrong
from distill.word_tables import read_table

_LANGUAGES: Final = ("en", "de", "fr", "es", "it", "pt", "nl", "zh", "ja", "ko", "ar", "hi", "ru", "pl", "tr", "sv")
_TABLE: Final = read_table(__file__)
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
    return {code: tuple(map(_plain, names.split("|"))) for code, names in _TABLE["countries"].items()}


_ARTICLE = re.compile(r"^(?:the|les?|la|los|las|el|i|gli|die|der|os?|as?) |^l'")
_COUNTRY: Final = 2
_DAY: Final = 4
"""Letters of the code of a country, and of a day of the week."""
STATES: Final[dict[str, str]] = _TABLE["states"]
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
    """Lower case without accents and punctuation; "&" and "St." (the forms of CLDR) become "and" and "saint"."""
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
            if code.isalpha() and code not in ("EU", "EZ", "UN", "XA", "XB", "QO", "ZZ"):
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
