"""Calendar dates of other languages, written as 1998-03-05, the way `dates_and_times` reads them.

Chinese, Japanese, Korean, German, French, Spanish, Italian, Portuguese, Dutch, Russian, Hindi and Arabic, with a day
in figures or in words; changes nothing else in a text.
"""

import re
from collections.abc import Iterator
from typing import Final

from distill.answers.numbers.foreign_number_words import foreign_numbers
from distill.answers.numbers.number_words import numerals
from distill.answers.words.spelling_variants import FOREIGN_ORDINALS
from distill.word_tables import read_table

_MONTHS: Final = {
    name: number
    for number, names in enumerate(read_table(__file__)["months"].splitlines(), start=1)
    for name in names.split()
}
_ENGLISH_TOO: Final = frozenset({"april", "august", "september", "november", "december"})
_MONTH_NAMES: Final = "|".join(_MONTHS)
# Only with a year: mars and mai alone are other things.
_NAMED = re.compile(
    rf"\b(?:(?:el|le|am|der|den|il|em|op|l')\s?)?(?:(?P<day>\d{{1,2}}(?P<point>er|o|º|ª|\.)?|[^\W\d_]{{2,20}})\s(?:de\s)?)?"
    rf"(?P<month>{_MONTH_NAMES})\s(?:de\s|del\s)?(?P<year>\d{{4}})\b(?:\s(?:года?|г)\b\.?)?",
    re.IGNORECASE,
)
_HINT = re.compile(rf"[年년]|{_MONTH_NAMES}", re.IGNORECASE)
_HAN_DIGITS: Final = str.maketrans("〇零一二三四五六七八九", "00123456789")
_HAN: Final = "〇零一二三四五六七八九"
_CHARACTERS = re.compile(
    rf"(?P<year>[\d{_HAN}]{{4}})\s?[年년]\s?(?P<month>\d{{1,2}}|[{_HAN}十]{{1,2}})\s?[月월]"
    rf"(?:\s?(?P<day>\d{{1,2}}|[{_HAN}十]{{1,3}})\s?[日号號일])?"
    r"(?:\s?\(?(?:星期|周|週|礼拜)[一二三四五六日天]\)?|\s?\(?[月火水木金土日]曜日?\)?|\s?\([月火水木金土日월화수목금토일]\))?"
)


def as_iso_dates(text: str) -> str:
    """The text with the dates of other languages as year, month and day in figures."""
    if _HINT.search(text) is None:
        return text
    if not text.isascii():
        text = _CHARACTERS.sub(_iso_of_characters, text)
    return _NAMED.sub(lambda match: _iso_of_names(match) or match[0], text)


def names_day_first(text: str) -> bool:
    """Whether the text has a date of a language that writes the day before the month."""
    if _HINT.search(text) is None:
        return False
    return any(
        _iso_of_names(match) is not None and (match["month"].lower() not in _ENGLISH_TOO or match["point"])
        for match in _NAMED.finditer(text)
    )


def _iso_of_characters(match: re.Match[str]) -> str:
    year = match["year"].translate(_HAN_DIGITS)
    return _iso(year, _han_value(match["month"]), _han_value(match["day"]) if match["day"] else None)


def _han_value(figures: str) -> int:
    if figures.isdigit() and figures.isascii():
        return int(figures)
    return int(next(iter([value for value, *_ in numerals(figures)]), 0))


def _iso_of_names(match: re.Match[str]) -> str | None:
    month = _MONTHS[match["month"].lower()]
    written = match["day"]
    if written is None:
        return None if match["month"].lower() in _ENGLISH_TOO else _iso(match["year"], month, None)
    day = next(_values(written), None)
    return None if day is None else _iso(match["year"], month, day)


def _values(day: str) -> Iterator[int]:
    digits = re.match(r"\d+", day)
    if digits is not None:
        yield int(digits[0])
    elif day.lower() in FOREIGN_ORDINALS:
        yield FOREIGN_ORDINALS[day.lower()]
    else:
        yield from (int(item.value) for item in foreign_numbers(day))


def _iso(year: str, month: int, day: int | None) -> str:
    return f"{year}-{month:02}" + ("" if day is None else f"-{day:02}")
