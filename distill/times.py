"""Clock times, calendar dates and ratios in text.

Each notation keeps what it leaves open: a time without am or pm, a date without a year, a date whose first two
numbers could be day and month in either order. Does not decide whether two answers agree (`distill.answers`).
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A time of day. `open_half` is true when it could be morning or afternoon."""

    seconds: int
    open_half: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A calendar date; None where nothing is said."""

    year: int | None
    month: int
    day: int | None


_CLOCK = re.compile(
    r"(?<![\d:.])(?P<hour>\d{1,2})(?:[:h](?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"
    r"(?:\s?(?P<half>[ap])\.?\s?m\b\.?)?|\s?(?P<bare_half>[ap])\.?\s?m\b\.?|\s?o'?\s?clock\b)",
    re.IGNORECASE,
)
_SPOKEN = re.compile(
    r"\b(?P<part>half|quarter|\d{1,2}|five|ten|twenty|twenty-five)(?:\s+minutes?)?\s+(?P<side>past|to|after|before)\s+"
    r"(?P<hour>\d{1,2}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b",
    re.IGNORECASE,
)
_NAMED_TIMES: Final = {"noon": 12 * 3600, "midday": 12 * 3600, "midnight": 0}
_SPELLED: Final = {
    word: value
    for value, word in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], start=1
    )
} | {"quarter": 15, "twenty": 20, "twenty-five": 25, "half": 30}


def clocks(text: str) -> list[Clock]:
    """Every clock time in a normalised text."""
    found = [clock for match in _CLOCK.finditer(text) if (clock := _clock(match)) is not None]
    for match in _SPOKEN.finditer(text):
        part, hour = (_SPELLED.get(match[name].lower()) or int(match[name]) for name in ("part", "hour"))
        if hour <= 24 and part < 60:
            minutes = part if match["side"].lower() in ("past", "after") else -part
            found.append(Clock(seconds=(hour * 3600 + minutes * 60) % 43200, open_half=True))
    if not found:
        words = re.findall(r"[a-z]+", text.lower())
        found = [Clock(seconds=_NAMED_TIMES[word], open_half=False) for word in words if word in _NAMED_TIMES]
    return found


def _clock(match: re.Match[str]) -> Clock | None:
    hour = int(match["hour"])
    half = (match["half"] or match["bare_half"] or "").lower()
    if hour > 24 or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    seconds = hour * 3600 + int(match["minute"] or 0) * 60 + int(match["second"] or 0)
    return Clock(
        seconds=seconds % 86400, open_half=not half and 1 <= hour <= 12 and not match["hour"].startswith("0")
    )


def same_clock(one: Clock, other: Clock) -> bool | None:
    """Whether two times agree; None when only the half of the day is open."""
    if one.seconds == other.seconds:
        return True
    if one.seconds % 43200 != other.seconds % 43200:
        return False
    return None if one.open_half or other.open_half else False


_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            ("january", "jan"),
            ("february", "feb"),
            ("march", "mar"),
            ("april", "apr"),
            ("may",),
            ("june", "jun"),
            ("july", "jul"),
            ("august", "aug"),
            ("september", "sep", "sept"),
            ("october", "oct"),
            ("november", "nov"),
            ("december", "dec"),
        ),
        start=1,
    )
    for name in names
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_ISO = re.compile(r"(?<!\d)(?P<year>\d{4})[-/](?P<month>\d{1,2})(?:[-/](?P<day>\d{1,2}))?(?![\d/.-]*\d)")
_NUMERIC = re.compile(
    r"(?<![\d/.-])(?P<first>\d{1,2})[-/.](?P<second>\d{1,2})[-/.](?P<year>\d{4}|\d{2})(?![\d/.-]*\d)"
)
_NAMED = re.compile(
    rf"\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?[\s-]+)?(?P<month>{_MONTH})\b\.?"
    r"(?:[\s-]+(?P<after>\d{1,2})(?:st|nd|rd|th)?(?!\d))?(?:\s*,?[\s-]+(?:of\s+)?(?P<year>\d{4}))?",
    re.IGNORECASE,
)


def days(text: str) -> list[tuple[Day, ...]]:
    """Every date in a normalised text, each with all of its readings."""
    found: list[tuple[Day, ...]] = []
    for match in _ISO.finditer(text):
        found.append(_valid(Day(year=int(match["year"]), month=int(match["month"]), day=_number(match["day"]))))
    for match in _NUMERIC.finditer(text):
        first, second, year = int(match["first"]), int(match["second"]), int(match["year"])
        year += 0 if year > 99 else (2000 if year < 70 else 1900)
        orders = {(first, second), (second, first)}
        found.append(_valid(*(Day(year=year, month=month, day=day) for month, day in sorted(orders))))
    for match in _NAMED.finditer(text):
        day = match["before"] or match["after"]
        month = _MONTHS[match["month"].lower()]
        found.append(_valid(Day(year=_number(match["year"]), month=month, day=_number(day))))
    return [readings for readings in found if readings]


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _valid(*readings: Day) -> tuple[Day, ...]:
    return tuple(day for day in readings if 1 <= day.month <= 12 and (day.day is None or 1 <= day.day <= 31))


def same_day(one: tuple[Day, ...], other: tuple[Day, ...]) -> bool | None:
    """Whether two dates agree; None when it depends on how they are read or on what one of them leaves out."""
    verdicts = {_same_reading(left, right) for left in one for right in other}
    return verdicts.pop() if len(verdicts) == 1 else None


def _same_reading(one: Day, other: Day) -> bool | None:
    pairs = ((one.year, other.year), (one.month, other.month), (one.day, other.day))
    if any(left is not None and right is not None and left != right for left, right in pairs):
        return False
    return None if any(left != right for left, right in pairs) else True


_RATIO = re.compile(
    r"(?<![\d:.])\d+(?:\.\d+)?(?:\s?:\s?\d+(?:\.\d+)?)+(?![\d:])|(?<![\d.])\d+(?:\.\d+)? to \d+(?:\.\d+)?"
)


def ratios(text: str) -> list[tuple[Decimal, ...]]:
    """Every ratio in a normalised text, as its terms."""
    return [
        tuple(Decimal(term) for term in re.findall(r"\d+(?:\.\d+)?", match[0])) for match in _RATIO.finditer(text)
    ]


def same_ratio(one: tuple[Decimal, ...], other: tuple[Decimal, ...]) -> bool:
    """Whether two ratios have proportional terms."""
    if len(one) != len(other):
        return False
    return all(one[0] * right == other[0] * left for left, right in zip(one, other, strict=True)) and (
        any(one) == any(other)
    )
