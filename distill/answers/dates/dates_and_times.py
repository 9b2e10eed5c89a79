"""Clock times and calendar dates in text, and whether two of them agree.

Each notation keeps its ambiguity: a time without am or pm, a date without a year, a date whose first two
numbers could be day and month in either order.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.dates.foreign_dates import as_iso_dates, names_day_first
from distill.answers.dates.foreign_times import in_figures
from distill.answers.numbers.number_words import SMALL, TENS
from distill.answers.numbers.quantities import read_quantities
from distill.answers.numbers.ratios import are_same_ratios
from distill.answers.texts.text_answers import without_number
from distill.answers.words.tokens import MONTHS
from distill.answers.words.word_classes import affirms
from distill.word_tables import longest_first


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A time of day. `open_half` is true when it could be morning or afternoon."""

    seconds: int
    open_half: bool
    to_the_second: bool = False
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A calendar date; None where the text gives none."""

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
_HOUR_NAMES: Final = longest_first(_HOURS)
_MINUTE_NAMES: Final = longest_first(_MINUTES)
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
_ZONE = re.compile(rf"\s?\(?({longest_first(_ZONES)})\b")
_NAMED_TIMES: Final = {"noon": 12 * 3600, "midday": 12 * 3600, "midnight": 0}
_DAY: Final = 86400
_HALF_DAY: Final = 43200


def read_times(text: str) -> list[Clock]:
    """Every clock time in a normalised text, without negated ones ("not at 5:00")."""
    text = in_figures(_POINTED.sub(r"\1:\2", text))
    times = [clock for clock, start in _clocks(text) if not _NOT.search(text[max(0, start - 8) : start])]
    if not times and (read_out := _READ_OUT.fullmatch(text.strip(" ."))) is not None:
        minutes = _HOURS[read_out["hour"].lower()] * 60 + _MINUTES[read_out["minute"].lower()]
        times = [Clock(seconds=minutes * 60 % _HALF_DAY, open_half=True)]
    if not times:
        words = re.findall(r"[a-z]+", text.lower())
        times = [Clock(seconds=_NAMED_TIMES[word], open_half=False) for word in words if word in _NAMED_TIMES]
    return times


def _clocks(text: str) -> Iterator[tuple[Clock, int]]:
    for match in _CLOCK.finditer(text):
        clock = _clock(match)
        if clock is not None:
            yield _with_part_of_day(clock, text, match.end()), match.start()
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
        yield _with_part_of_day(clock, text, match.end()), match.start()
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


def _with_part_of_day(clock: Clock, text: str, end: int) -> Clock:
    """The time in the part of the day that is named after it."""
    part_of_day = _PART_OF_DAY.match(text, end) if clock.open_half else None
    if part_of_day is None:
        zone = _ZONE.match(text, end)
        return clock if zone is None else replace(clock, zone=zone[1])
    evening = part_of_day["part"] is not None and part_of_day["part"].lower() != "morning"
    late = evening or (part_of_day["night"] is not None and clock.seconds % _HALF_DAY >= 6 * 3600)
    seconds = clock.seconds % _HALF_DAY + (_HALF_DAY if late else 0)
    return replace(clock, seconds=seconds, open_half=False)


def same_clock(predicted: Clock, gold: Clock) -> bool | None:
    """Whether a stated time is the one meant; None when the half of the day is open, or its seconds are left out."""
    seconds, gold_seconds = predicted.seconds, gold.seconds
    if predicted.zone and gold.zone and not _same_zone(predicted.zone, gold.zone):
        seconds, gold_seconds = ((clock.seconds - 60 * _ZONES[clock.zone]) % _DAY for clock in (predicted, gold))
    if not predicted.to_the_second and seconds // 60 == gold_seconds // 60 and seconds != gold_seconds:
        return None
    if seconds == gold_seconds:
        return True
    if seconds % _HALF_DAY != gold_seconds % _HALF_DAY:
        return False
    return None if predicted.open_half != gold.open_half else predicted.open_half


def _same_zone(left: str, right: str) -> bool:
    """Whether one zone leaves the season of the other open: PT and PST."""
    return left[0] == right[0] and 2 in (len(left), len(right))


def compare_times(text: str, gold: str, declared: bool) -> CompareResult | None:
    """A stated time against the gold one; None when the gold is no time."""
    text = _POINTED_ONLY.sub(r"\1:\2", _HOUR_AND_MINUTE.sub(r"\1h\2", text))
    gold_times = read_times(gold)
    if len(gold_times) != 1:
        return None
    times = read_times(text)
    verdicts = {same_clock(clock, gold_times[0]) for clock in times}
    if not verdicts:
        return undecided("no_time_found") if read_quantities(text) else without_number(text)
    if verdicts == {False} and not declared and are_same_ratios(text, gold) and text.upper() == text.lower():
        return undecided("time_or_ratio")
    # Only one of the two names the half of the day: the same digits, or a time that is spoken, where that is usual.
    one_names_half = len(times) == 1 and times[0].open_half != gold_times[0].open_half
    spoken = one_names_half and not (_digits(text) and _digits(gold)) and times[0].seconds % _HALF_DAY != 0
    if verdicts == {True} or (verdicts == {None} and (spoken or _digits(text) == _digits(gold))):
        return correct("same_time")
    return wrong("other_time") if verdicts == {False} else undecided("time_left_open")


def _digits(text: str) -> list[str]:
    return re.findall(r"\d+", text)


_POINTED_ONLY = re.compile(r"^(1\d|2[0-4])\.([0-5]\d)$")
_HOUR_AND_MINUTE = re.compile(r"\b(\d{1,2})\s?h\s?(\d\d)\s?min\b")
_TIME_TEXT = r"(?:\d{1,2}(?:[:.h][0-5]\d)?(?:\s?[ap]\.?\s?m\b\.?)?|noon|midnight)"
_TIME_RANGE = re.compile(
    rf"(?:.*\b(?:from|between)\s|.*\b(?:is|are|at)\s)?(?P<start>{_TIME_TEXT})\s?(?:-|to|until|till|and)\s?(?P<end>{_TIME_TEXT})",
    re.IGNORECASE,
)


def compare_time_ranges(text: str, gold: str) -> CompareResult | None:
    """A stated span of time against the gold one, 10:45 to 11:00; None when one of the two is no such span."""
    spans = [match for answer in (text, gold) if (match := _TIME_RANGE.fullmatch(answer.rstrip("."))) is not None]
    if len(spans) != 2 or not affirms(text.replace("until", "to")):
        return None
    times, gold_times = ([clock for end in ("start", "end") for clock in read_times(span[end])] for span in spans)
    if len(times) != 2 or len(gold_times) != 2:
        return None
    verdicts = {same_clock(time, gold_time) for time, gold_time in zip(times, gold_times, strict=True)}
    if False in verdicts:
        return wrong("other_times")
    return correct("same_times") if verdicts == {True} else undecided("time_left_open")


_MONTHS: Final = {name: number for number, month in enumerate(MONTHS, start=1) for name in (month, month[:3])} | {
    "sept": 9
}
_MONTH = longest_first(_MONTHS)
_DAY_RANGES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?P<first>\d{{1,2}})(?:st|nd|rd|th)?\s?(?:-|to)\s?(?P<last>\d{{1,2}})(?:st|nd|rd|th)?"
        rf"(?:\sof)?\s(?P<month>{_MONTH})\b",
        rf"\b(?P<month>{_MONTH})\.?\s(?P<first>\d{{1,2}})(?:st|nd|rd|th)?\s?(?:-|to)\s?"
        r"(?P<last>\d{1,2})(?:st|nd|rd|th)?\b(?!\s?[-/]?\d)",
    )
)
_MONTH_AND_YEAR = re.compile(r"(?<![\d/.-])(?P<month>\d{1,2})/(?P<year>\d{4})(?![\d/])")
_DIGIT = re.compile(r"\d")
_ISO = re.compile(
    r"(?<!\d)(?P<year>\d{4})(?:[-/](?P<month>\d{1,2})(?:[-/](?P<day>\d{1,2}))?"
    r"|\.\s?(?P<pointed_month>\d{1,2})\.\s?(?P<pointed_day>\d{1,2}))(?![\d/.-]*\d)"
)
_NUMERIC = re.compile(
    r"(?<![\d/.-])(?P<first>\d{1,2})[-/.](?P<second>\d{1,2})[-/.](?P<year>\d{4}|\d{2})(?![\d/.-]*\d)"
)
_NAMED = re.compile(
    rf"\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?[\s-]+)?(?P<month>{_MONTH})\b\.?"
    r"(?:[\s-]+(?P<after>\d{1,2})(?:st|nd|rd|th)?(?!\d))?(?:\s*,?[\s-]+(?:of\s+)?(?P<year>\d{4}))?",
    re.IGNORECASE,
)


def read_dates(text: str, *, day_first: bool = False) -> list[tuple[Day, ...]]:
    """Every date in a normalised text, each with all of its readings."""
    text = as_iso_dates(text)
    dates = list(_dates_in_figures(text, day_first)) if _DIGIT.search(text) else []
    for match in _NAMED.finditer(text) if not dates else ():
        day = match["before"] or match["after"]
        month = _MONTHS[match["month"].lower()]
        dates.append(_valid_readings(Day(year=_optional_int(match["year"]), month=month, day=_optional_int(day))))
    return [readings for readings in dates if readings]


def _dates_in_figures(text: str, day_first: bool) -> Iterator[tuple[Day, ...]]:
    for match in _ISO.finditer(text):
        month, day = match["month"] or match["pointed_month"], match["day"] or match["pointed_day"]
        yield _valid_readings(Day(year=int(match["year"]), month=int(month), day=_optional_int(day)))
    for match in _NUMERIC.finditer(text):
        first, second, year = int(match["first"]), int(match["second"]), int(match["year"])
        year += 0 if year > 99 else (2000 if year < 70 else 1900)
        orders = {(second, first)} if day_first and second <= 12 else {(first, second), (second, first)}
        yield _valid_readings(*(Day(year=year, month=month, day=day) for month, day in sorted(orders)))
    for match in _MONTH_AND_YEAR.finditer(text):
        yield _valid_readings(Day(year=int(match["year"]), month=int(match["month"]), day=None))


def _optional_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _valid_readings(*readings: Day) -> tuple[Day, ...]:
    return tuple(day for day in readings if 1 <= day.month <= 12 and (day.day is None or 1 <= day.day <= 31))


def same_day(left: tuple[Day, ...], right: tuple[Day, ...]) -> bool | None:
    """Whether two dates agree; None when it depends on the reading or on a part that one of them leaves out."""
    verdicts = {_same_reading(left_reading, right_reading) for left_reading in left for right_reading in right}
    return verdicts.pop() if len(verdicts) == 1 else None


def _same_reading(first: Day, second: Day) -> bool | None:
    pairs = ((first.year, second.year), (first.month, second.month), (first.day, second.day))
    if any(left is not None and right is not None and left != right for left, right in pairs):
        return False
    return None if any(left != right for left, right in pairs) else True


def compare_dates(text: str, gold: str, question: str = "") -> CompareResult | None:
    """Compares a stated date with the gold date; None if the gold answer and the prediction are no dates.

    With a `question`, a date in figures has the order of day and month that the other one has.
    """
    if (expiry := _MONTH_AND_YEAR.fullmatch(gold)) is not None and (short := _SHORT_MONTH.match(text)) is not None:
        same = (int(short[1]), short[2]) == (int(expiry["month"]), expiry["year"][2:])
        return correct("same_date") if same else wrong("other_date")
    weekdays = [{word[:3] for word in _WEEKDAY.findall(answer.lower())} for answer in (text, gold)]
    if all(weekdays) and not weekdays[0] & weekdays[1]:
        return wrong("other_weekday")
    span, spans = _day_ranges(gold), _day_ranges(text)
    if len(span) == 1 and spans:
        return correct("same_date") if spans == span else wrong("other_date")
    if span or spans:
        return undecided("date_left_open")
    day_first = any(names_day_first(answer) for answer in (text, gold))
    gold_dates, dates = read_dates(gold, day_first=day_first), read_dates(text, day_first=day_first)
    if len(gold_dates) != 1:
        # Christmas Day and December 25 may be the same.
        return undecided("date_left_open") if dates and not gold_dates and not read_quantities(gold) else None
    if not dates:
        return undecided("no_date_found") if read_quantities(text) else without_number(text)
    verdicts = {same_day(day, gold_dates[0]) for day in dates}
    if verdicts == {True}:
        return correct("same_date")
    if verdicts == {False}:
        return wrong("other_date")
    is_sure = bool(question) and len(dates) == 1 and _is_settled(text, gold, question)
    return correct("same_date") if is_sure else undecided("date_left_open")


def _is_settled(text: str, gold: str, question: str) -> bool:
    """Whether two dates that may agree do, by the order in which both are written or by what is asked for."""
    figures, gold_figures = (_NUMERIC.search(as_iso_dates(answer)) for answer in (text, gold))
    if figures is not None and gold_figures is not None:
        return [int(part) for part in figures.groups()] == [int(part) for part in gold_figures.groups()]
    if figures is None and gold_figures is None:
        (day,), (gold_day,) = (read_dates(answer)[0] for answer in (text, gold))
        is_month = day.day is None and gold_day.day is None and gold_day.year is None
        return is_month and _ASKS_FOR_A_MONTH.search(question) is not None
    named = next(_NAMED.search(answer) for answer, found in ((text, figures), (gold, gold_figures)) if found is None)
    written = figures or gold_figures
    if named is None or written is None or not (named["before"] or named["after"]):
        return False
    order = (named["before"], named["month"]) if named["before"] else (named["month"], named["after"])
    values = [_MONTHS.get(part.lower(), 0) or int(part) for part in order]
    return values == [int(written["first"]), int(written["second"])]


_ASKS_FOR_A_MONTH = re.compile(r"\b(?:month|mois|mes|mês|monat|mese)\b", re.IGNORECASE)
_SHORT_MONTH = re.compile(r"(\d{1,2})/(\d\d)(?![\d/])")
"""12/25, of a card that expires."""
_WEEKDAY = re.compile(r"\b(?:mon|tues?|wednes|thurs?|fri|satur|sun)day\b")
_NEAR_A_DATE = re.compile(
    r"\b(?:(?:before|after|since|until|till|prior to) (?:the )?(?:[A-Z]|\d)"
    r"|(?:vor dem|nach dem|seit|bis|avant|après|depuis|jusqu'au|antes del?|después del?|desde|hasta|prima del|dopo il"
    r"|fino al|dopo|antes|depois|até)\s)"
)


def is_near_a_date(text: str) -> bool:
    """Whether a text is about the time before or after a date."""
    return _NEAR_A_DATE.search(text) is not None


def _day_ranges(text: str) -> set[tuple[int, int, int]]:
    """Month, first and last day of every span of days within a month."""
    return {
        (_MONTHS[match["month"].lower()], int(match["first"]), int(match["last"]))
        for pattern in _DAY_RANGES
        for match in pattern.finditer(text)
    }
