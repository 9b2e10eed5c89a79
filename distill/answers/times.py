"""Clock times, calendar dates and ratios in text, and whether two of them agree.

Each notation keeps what it leaves open: a time without am or pm, a date without a year, a date whose first two
numbers could be day and month in either order.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from distill.answers.answer_sentences import trusted
from distill.answers.compare import CompareResult, correct, undecided, wrong
from distill.answers.foreign_times import in_figures
from distill.answers.number_words import SMALL, TENS
from distill.answers.numbers import quantities, single
from distill.answers.text_answers import without_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A time of day. `open_half` is true when it could be morning or afternoon."""

    seconds: int
    open_half: bool
    to_the_second: bool = False
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A calendar date; None where nothing is said."""

    year: int | None
    month: int
    day: int | None


_HOURS: Final = {word: value for word, value in SMALL.items() if 1 <= value <= 12}
_MINUTES: Final = {
    **{word: value for word, value in SMALL.items() if value},
    **{
        f"{ten}{joint}{one}": TENS[ten] + SMALL[one]
        for ten in ("twenty", "thirty", "forty", "fifty")
        for one in list(SMALL)[1:10]
        for joint in ("-", " ")
    },
    **{ten: TENS[ten] for ten in ("twenty", "thirty", "forty", "fifty")},
    **{"quarter": 15, "half": 30},
}
_HOUR_NAMES: Final = "|".join(sorted(_HOURS, key=len, reverse=True))
_MINUTE_NAMES: Final = "|".join(sorted(_MINUTES, key=len, reverse=True))
_CLOCK = re.compile(
    r"(?<![\d:.])(?P<hour>\d{1,2})(?:(?::|\s?h\s?)(?P<minute>[0-5]\d)(?!\s?min)(?::(?P<second>[0-5]\d))?(?![\d:])"
    r"(?:\s?(?P<half>[ap])\.?\s?m\b\.?)?|\s?(?P<bare_half>[ap])\.?\s?m\b\.?|\s?o'?\s?clock\b"
    r"|[时時点點](?:(?P<minutes>[0-5]?\d)分)?)",
    re.IGNORECASE,
)
_SPOKEN = re.compile(
    rf"\b(?P<part>\d{{1,2}}|{_MINUTE_NAMES})(?:\s+minutes?)?\s+(?P<side>past|to|after|before|till)\s+"
    rf"(?P<hour>\d{{1,2}}|{_HOUR_NAMES})\b|\b(?P<sharp>{_HOUR_NAMES})\s?o'?\s?clock\b",
    re.IGNORECASE,
)
_READ_OUT = re.compile(
    rf"(?:it is |it's )?(?P<hour>{_HOUR_NAMES})[ -](?:oh |o')?(?P<minute>{_MINUTE_NAMES})", re.IGNORECASE
)
_MILITARY = re.compile(r"\b([01]\d|2[0-3])([0-5]\d)\s?(?:hours|hrs|h)\b", re.IGNORECASE)
_PART_OF_DAY = re.compile(r"\s?(?:in the (?P<part>morning|afternoon|evening)|at (?P<night>night))\b", re.IGNORECASE)
_NOT = re.compile(r"\bnot (?:at )?$", re.IGNORECASE)
_POINTED = re.compile(r"(?<![\d.])(\d{1,2})\.([0-5]\d)(?=\s?(?:[ap]\.?\s?m\b|Uhr\b))", re.IGNORECASE)
_ZONES: Final = {
    **{"UTC": 0, "GMT": 0, "BST": 60, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "MSK": 180, "IST": 330},
    **{"JST": 540, "KST": 540, "AEST": 600, "AEDT": 660, "EST": -300, "EDT": -240, "CST": -360, "CDT": -300},
    **{"MST": -420, "MDT": -360, "PST": -480, "PDT": -420, "ET": -300, "CT": -360, "MT": -420, "PT": -480},
}
"""Minutes ahead of UTC; ET and the like are standard time or summer time."""
_ZONE = re.compile(rf"\s?\(?({'|'.join(sorted(_ZONES, key=len, reverse=True))})\b")
_NAMED_TIMES: Final = {"noon": 12 * 3600, "midday": 12 * 3600, "midnight": 0}
_DAY: Final = 86400
_HALF_DAY: Final = 43200


def clocks(text: str) -> list[Clock]:
    """Every clock time in a normalised text that is not named as what it is not."""
    text = in_figures(_POINTED.sub(r"\1:\2", text))
    found = [clock for clock, start in _clocks(text) if not _NOT.search(text[max(0, start - 8) : start])]
    if not found and (read := _READ_OUT.fullmatch(text.strip(" ."))) is not None:
        minutes = _HOURS[read["hour"].lower()] * 60 + _MINUTES[read["minute"].lower()]
        found = [Clock(seconds=minutes * 60 % _HALF_DAY, open_half=True)]
    if not found:
        words = re.findall(r"[a-z]+", text.lower())
        found = [Clock(seconds=_NAMED_TIMES[word], open_half=False) for word in words if word in _NAMED_TIMES]
    return found


def _clocks(text: str) -> Iterator[tuple[Clock, int]]:
    for match in _CLOCK.finditer(text):
        clock = _clock(match)
        if clock is not None:
            yield _halved(clock, text, match.end()), match.start()
    for match in _SPOKEN.finditer(text):
        if match["sharp"]:
            clock = Clock(seconds=_HOURS[match["sharp"].lower()] * 3600 % _HALF_DAY, open_half=True)
        else:
            part = _MINUTES.get(match["part"].lower()) or int(match["part"])
            hour = _HOURS.get(match["hour"].lower()) or int(match["hour"])
            if hour > 24 or part > 59:
                continue
            minutes = part if match["side"].lower() in ("past", "after") else -part
            clock = Clock(seconds=(hour * 3600 + minutes * 60) % _HALF_DAY, open_half=True)
        yield _halved(clock, text, match.end()), match.start()
    for match in _MILITARY.finditer(text):
        yield Clock(seconds=int(match[1]) * 3600 + int(match[2]) * 60, open_half=False), match.start()


def _clock(match: re.Match[str]) -> Clock | None:
    hour = int(match["hour"])
    half = (match["half"] or match["bare_half"] or "").lower()
    if hour > 24 or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    seconds = hour * 3600 + int(match["minute"] or match["minutes"] or 0) * 60 + int(match["second"] or 0)
    open_half = not half and 1 <= hour <= 12 and not match["hour"].startswith("0")
    return Clock(seconds=seconds % _DAY, open_half=open_half, to_the_second=match["second"] is not None)


def _halved(clock: Clock, text: str, end: int) -> Clock:
    """The time in the part of the day that is named after it."""
    named = _PART_OF_DAY.match(text, end) if clock.open_half else None
    if named is None:
        zone = _ZONE.match(text, end)
        return clock if zone is None else replace(clock, zone=zone[1])
    evening = named["part"] is not None and named["part"].lower() != "morning"
    late = evening or (named["night"] is not None and clock.seconds % _HALF_DAY >= 6 * 3600)
    seconds = clock.seconds % _HALF_DAY + (_HALF_DAY if late else 0)
    return replace(clock, seconds=seconds, open_half=False)


def same_clock(said: Clock, meant: Clock) -> bool | None:
    """Whether a stated time is the one meant; None when the half of the day is open, or its seconds are left out."""
    one, other = said.seconds, meant.seconds
    if said.zone and meant.zone and not _same_zone(said.zone, meant.zone):
        one, other = ((clock.seconds - 60 * _ZONES[clock.zone]) % _DAY for clock in (said, meant))
    if meant.to_the_second and not said.to_the_second and one // 60 == other // 60 and one != other:
        return None
    if one == other:
        return True
    if one % _HALF_DAY != other % _HALF_DAY:
        return False
    return None if said.open_half or meant.open_half else False


def _same_zone(one: str, other: str) -> bool:
    return one == other or (one[0] == other[0] and 2 in (len(one), len(other)))


def compare_times(text: str, gold: str, declared: bool) -> CompareResult | None:
    """A stated time against the gold one; None when the gold is no time."""
    meant = clocks(gold)
    if len(meant) != 1:
        return None
    verdicts = {same_clock(clock, meant[0]) for clock in clocks(text)}
    if not verdicts:
        return undecided("no_time_found") if quantities(text) else without_number(text)
    if verdicts == {False} and not declared and _same_ratios(text, gold) and text.upper() == text.lower():
        return undecided("time_or_ratio")
    if verdicts == {True} or (verdicts == {None} and re.findall(r"\d+", text) == re.findall(r"\d+", gold)):
        # The same digits: only one of the two names the half of the day.
        return correct("same_time")
    return wrong("other_time") if verdicts == {False} else undecided("time_left_open")


_TIME_TEXT = r"(?:\d{1,2}(?:[:.h][0-5]\d)?(?:\s?[ap]\.?\s?m\b\.?)?|noon|midnight)"
_TIME_RANGE = re.compile(
    rf"(?:.*\b(?:from|between)\s|.*\b(?:is|are|at)\s)?(?P<start>{_TIME_TEXT})\s?(?:-|to|until|till|and)\s?(?P<end>{_TIME_TEXT})",
    re.IGNORECASE,
)


def compare_time_ranges(text: str, gold: str) -> CompareResult | None:
    """A stated span of time against the gold one, 10:45 to 11:00; None when one of the two is no such span."""
    spans = [match for side in (text, gold) if (match := _TIME_RANGE.fullmatch(side.rstrip("."))) is not None]
    if len(spans) != 2 or not trusted(text):
        return None
    said, meant = ([clock for end in ("start", "end") for clock in clocks(span[end])] for span in spans)
    if len(said) != 2 or len(meant) != 2:
        return None
    verdicts = {same_clock(one, other) for one, other in zip(said, meant, strict=True)}
    if False in verdicts:
        return wrong("other_times")
    return correct("same_times") if verdicts == {True} else undecided("time_left_open")


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
_MONTHS_ABROAD: Final = {
    name: number
    for number, names in enumerate(
        (
            "januar janvier enero gennaio janeiro januari जनवरी يناير",
            "februar février febrero febbraio fevereiro februari फरवरी फ़रवरी فبراير",
            "märz mars marzo março maart मार्च مارس",
            "april avril abril aprile अप्रैल أبريل",
            "mai mayo maggio maio mei मई مايو",
            "juni juin junio giugno junho जून يونيو",
            "juli juillet julio luglio julho जुलाई يوليو",
            "august août agosto augustus अगस्त أغسطس",
            "september septembre septiembre settembre setembro सितंबर سبتمبر",
            "oktober octobre octubre ottobre outubro अक्टूबर अक्तूबर أكتوبر",
            "november novembre noviembre novembro नवंबर نوفمبر",
            "dezember décembre diciembre dicembre dezembro december दिसंबर ديسمبر",
        ),
        start=1,
    )
    for name in names.split()
}
# Only in full, with day and year: mars and mai alone are other things.
_ABROAD = re.compile(
    rf"\b(?P<day>\d{{1,2}})(?:er|o)?\.?\s(?:de\s)?(?P<month>{'|'.join(_MONTHS_ABROAD)})\s(?:de\s|del\s)?(?P<year>\d{{4}})\b",
    re.IGNORECASE,
)
_DAY_RANGES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?P<first>\d{{1,2}})(?:st|nd|rd|th)?\s?(?:-|to)\s?(?P<last>\d{{1,2}})(?:st|nd|rd|th)?"
        rf"(?:\sof)?\s(?P<month>{_MONTH})\b",
        rf"\b(?P<month>{_MONTH})\.?\s(?P<first>\d{{1,2}})(?:st|nd|rd|th)?\s?(?:-|to)\s?"
        r"(?P<last>\d{1,2})(?:st|nd|rd|th)?\b(?!\s?[-/]?\d)",
    )
)
_CHARACTERS = re.compile(
    r"(?P<year>\d{4})\s?[年년]\s?(?P<month>\d{1,2})\s?[月월](?:\s?(?P<day>\d{1,2})\s?[日号號일])?"
)
_MONTH_AND_YEAR = re.compile(r"(?<![\d/.-])(?P<month>\d{1,2})/(?P<year>\d{4})(?![\d/])")
_DIGIT = re.compile(r"\d")
_ISO = re.compile(r"(?<!\d)(?P<year>\d{4})[-/](?P<month>\d{1,2})(?:[-/](?P<day>\d{1,2}))?(?![\d/.-]*\d)")
_NUMERIC = re.compile(
    r"(?<![\d/.-])(?P<first>\d{1,2})[-/.](?P<second>\d{1,2})[-/.](?P<year>\d{4}|\d{2})(?![\d/.-]*\d)"
)
_NAMED = re.compile(
    rf"\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?[\s-]+)?(?P<month>{_MONTH})\b\.?"
    r"(?:[\s-]+(?P<after>\d{1,2})(?:st|nd|rd|th)?(?!\d))?(?:\s*,?[\s-]+(?:of\s+)?(?P<year>\d{4}))?",
    re.IGNORECASE,
)


def days(text: str, *, day_first: bool = False) -> list[tuple[Day, ...]]:
    """Every date in a normalised text, each with all of its readings."""
    found = list(_in_figures(text, day_first)) if _DIGIT.search(text) else []
    for match in _NAMED.finditer(text) if not found else ():
        day = match["before"] or match["after"]
        month = _MONTHS[match["month"].lower()]
        found.append(_valid(Day(year=_number(match["year"]), month=month, day=_number(day))))
    return [readings for readings in found if readings]


def _in_figures(text: str, day_first: bool) -> Iterator[tuple[Day, ...]]:
    for match in _ISO.finditer(text):
        yield _valid(Day(year=int(match["year"]), month=int(match["month"]), day=_number(match["day"])))
    for match in _NUMERIC.finditer(text):
        first, second, year = int(match["first"]), int(match["second"]), int(match["year"])
        year += 0 if year > 99 else (2000 if year < 70 else 1900)
        orders = {(second, first)} if day_first else {(first, second), (second, first)}
        yield _valid(*(Day(year=year, month=month, day=day) for month, day in sorted(orders)))
    for pattern in (_MONTH_AND_YEAR, _CHARACTERS, _ABROAD):
        for match in pattern.finditer(text):
            groups = match.groupdict()
            name = groups["month"].lower()
            month = _MONTHS_ABROAD[name] if name in _MONTHS_ABROAD else int(name)
            yield _valid(Day(year=int(groups["year"]), month=month, day=_number(groups.get("day"))))


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


def compare_dates(text: str, gold: str) -> CompareResult | None:
    """A stated date against the gold one; None when the gold is no date and the prediction neither."""
    span, spans = _day_ranges(gold), _day_ranges(text)
    if len(span) == 1 and spans:
        return correct("same_date") if spans == span else wrong("other_date")
    if span or spans:
        return undecided("date_left_open")
    day_first = any(_ABROAD.search(side) for side in (text, gold))
    meant, found = days(gold, day_first=day_first), days(text, day_first=day_first)
    if len(meant) != 1:
        # Christmas Day and December 25 may be the same.
        return undecided("date_left_open") if found and not meant and not quantities(gold) else None
    if not found:
        return undecided("no_date_found") if quantities(text) else without_number(text)
    verdicts = {same_day(day, meant[0]) for day in found}
    if verdicts == {True}:
        return correct("same_date")
    return wrong("other_date") if verdicts == {False} else undecided("date_left_open")


def _day_ranges(text: str) -> set[tuple[int, int, int]]:
    """Month, first and last day of every span of days within a month."""
    return {
        (_MONTHS[match["month"].lower()], int(match["first"]), int(match["last"]))
        for pattern in _DAY_RANGES
        for match in pattern.finditer(text)
    }


_RATIO = re.compile(
    r"(?<![\d:.])\d+(?:\.\d+)?(?:\s?:\s?\d+(?:\.\d+)?)+(?![\d:])"
    r"|(?<![\d.])\d+(?:\.\d+)?\s?%? to \d+(?:\.\d+)?"
)
_SPELLED_RATIO = re.compile(rf"\b({'|'.join(list(SMALL)[1:])}) to ({'|'.join(list(SMALL)[1:])})\b", re.IGNORECASE)


def ratios(text: str) -> list[tuple[Decimal, ...]]:
    """Every ratio in a normalised text, as its terms."""
    found = [
        tuple(Decimal(term) for term in re.findall(r"\d+(?:\.\d+)?", match[0])) for match in _RATIO.finditer(text)
    ]
    if found:
        return found
    spoken = _SPELLED_RATIO.finditer(text)
    return [(Decimal(SMALL[match[1].lower()]), Decimal(SMALL[match[2].lower()])) for match in spoken]


def same_ratio(one: tuple[Decimal, ...], other: tuple[Decimal, ...]) -> bool:
    """Whether two ratios have proportional terms."""
    if len(one) != len(other):
        return False
    return all(one[0] * right == other[0] * left for left, right in zip(one, other, strict=True)) and (
        any(one) == any(other)
    )


def _same_ratios(text: str, other: str) -> bool:
    ours, theirs = ratios(text), ratios(other)
    return len(ours) == len(theirs) == 1 and same_ratio(ours[0], theirs[0])


def compare_ratios(text: str, gold: str) -> CompareResult | None:
    """A stated ratio against the gold one; None when the gold is no ratio, nor a number that the ratio could be."""
    meant, found = ratios(gold), ratios(text)
    if len(meant) != 1:
        number = single(gold)
        if number is None or len(found) != 1 or len(found[0]) != 2 or not found[0][1]:
            return None
        same = found[0][0] == number.value * found[0][1] or abs(found[0][0] / found[0][1] - number.value) < _TINY
        return correct("same_ratio") if same else wrong("other_ratio")
    if found:
        verdicts = {same_ratio(ratio, meant[0]) for ratio in found}
        if len(verdicts) > 1:
            return undecided("several_ratios")
        return correct("same_ratio") if verdicts == {True} else wrong("other_ratio")
    quantity = single(text)
    if quantity is None:
        return undecided("no_ratio_found")
    if len(meant[0]) == 2 and meant[0][1] and quantity.value == meant[0][0] / meant[0][1]:
        return correct("same_ratio") if "/" in text else undecided("ratio_or_number")
    return undecided("ratio_or_number") if quantity.value == meant[0][0] else wrong("other_ratio")


_TINY: Final = Decimal("1e-12")
