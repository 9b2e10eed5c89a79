"""What kind of answer a gold answer is, when the data does not say; and whether it may be of a stated kind."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from distill.answers.dates.dates_and_times import read_dates
from distill.answers.dates.foreign_dates import as_iso_dates
from distill.answers.dates.foreign_times import in_figures
from distill.answers.final_answer import final_answer
from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.quantities import read_single_quantity

_CHOICE = re.compile(r"\(?[A-Z]\)?[.):]?")
_TIME = re.compile(
    r"(?:(?:[01]?\d|2[0-4])(?:[:h]|\sh\s)[0-5]\d(?::[0-5]\d)?(?:\s?[apAP]\.?\s?[mM]\.?)?|\d{1,2}(?:\.[0-5]\d)?\s?[apAP]\.?\s?[mM]\.?)"
    r"(?:\s\(?[A-Z]{2,4}\)?)?"
)
_RATIO = re.compile(r"\d+(?:\.\d+)?(?:\s?:\s?\d+(?:\.\d+)?)+|\d+(?:\.\d+)? to 1")
_YEAR = re.compile(r"(?:1[89]|20)\d\d(?:\.0)?")
"""Also as a column of floats has it."""
_DATE = re.compile(
    r"\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}/\d{1,2}/\d{2}|(?:0[1-9]|1[0-2])/(?:19|20)\d\d"
)
_ISO_DATE = re.compile(r"\d{4}-\d\d(?:-\d\d)?")
_NUMBER_LIST = re.compile(
    r"\d+(?:,\d+){2,}|\S+(?:\s*[,;]\s+\S+)*\s*,?\s+(?:and|&)\s+\S+|\S+(?:\s*;\s*\S+)+|\S+(?:,\s+\S+)+"
)
_MONTH = re.compile(
    r"jan|feb|fév|fev|m[aäe]r|apr|abr|avr|ma[ygi]|giu|gen|ene|ju[inl]|jui|lug|aug|ago|ao[uû]|sep|set|o[ckut]|nov|d[eéi][czs]",
    re.IGNORECASE,
)
"""How the names of months begin: a cheap first look."""
_SEPARATOR = re.compile(r"[,;&/•*]|\band\b|\s-\s|\s\d+[.)]\s")
_AFTER_A_NAME = frozenset(
    {"inc", "ltd", "llc", "llp", "plc", "corp", "co", "gmbh", "jr", "sr", "md", "m.d", "phd", "ph.d"}
)
_FAMILY_NAME_FIRST = re.compile(r"[^\W\d_][\w'-]+, (?:[^\W\d_][\w'-]+ )?(?:[A-Z]\. ?){1,3}")
"""Smith, Alan B."""
_SLASHED = re.compile(r"[^\W\d][^\W\d ]*(?:\s?/\s?[^\W\d][^\W\d ]*)+")

_LIKE: Final[Mapping[str, frozenset[str]]] = {
    "number": frozenset({"number", "percent", "money", "year", "ratio"}),
    "percent": frozenset({"percent", "number", "ratio"}),
    "money": frozenset({"money", "number", "year"}),
    "year": frozenset({"year", "number", "date"}),
    "time": frozenset({"time", "number", "ratio"}),
    "date": frozenset({"date", "year", "time"}),
    "ratio": frozenset({"ratio", "number", "percent", "time"}),
}
"""Types that an answer of a type may look like. Any text can be a choice, an item of a list, or a text."""


@lru_cache(maxsize=8192)
def infer_type(gold: str) -> str:
    """The answer type that a gold answer looks like."""
    text = normalise(final_answer(gold).text)
    if _CHOICE.fullmatch(text):
        return "choice"
    if _TIME.fullmatch(text) or _TIME.fullmatch(in_figures(text)):
        return "time"
    if _RATIO.fullmatch(text):
        return "ratio"
    if _YEAR.fullmatch(text):
        return "year"
    if _DATE.fullmatch(text) or _ISO_DATE.fullmatch(as_iso_dates(text).rstrip(".")) or _is_named_date(text):
        return "date"
    quantity = read_single_quantity(text)
    if quantity is not None:
        if quantity.percent:
            return "percent"
        return "money" if quantity.currency else "number"
    if _is_list(text):
        return "list"
    return "text"


def looks_like(gold: str, answer_type: str) -> bool:
    """Whether a gold answer may be of a type that its row states: "3" is no date, and "noon" no number.

    Some right answers do not have the form of their type ("Monday" as a date), so most answers of a source decide,
    not a single one.
    """
    return answer_type not in _LIKE or infer_type(gold) in _LIKE[answer_type]


def _is_named_date(text: str) -> bool:
    if len(text) > 30 or not (text.rstrip(".").isalpha() or any(map(str.isdigit, text))):
        return False
    if _MONTH.search(text) is None or not (dates := read_dates(text)):
        return False
    return len(dates) == 1 and not re.sub(
        r"[\d\s,.-]|st|nd|rd|th|of|^(?:on|le|el|am|il) |[a-z]{3,9}", "", text.lower()
    )


def _is_list(text: str) -> bool:
    if text[:1] in "[({" and text[-1:] in "])}":
        return len(items(text)) > 1
    parts = items(text) if _SEPARATOR.search(text) else []
    if len(parts) < 2:
        return False
    if parts[-1].lower().strip(".") in _AFTER_A_NAME or _FAMILY_NAME_FIRST.fullmatch(text):
        return False
    numbers = [read_single_quantity(item) is not None for item in parts]
    if all(numbers):
        return _NUMBER_LIST.fullmatch(text) is not None
    return not any(numbers) and (";" in text or "," in text) and all(len(item.split()) <= 3 for item in parts)


def items(text: str) -> list[str]:
    """The parts of a list as written: brackets, separators and bullets removed."""
    inside = text[1:-1] if text[:1] in "[({" and text[-1:] in "])}" else text
    if _SLASHED.fullmatch(inside):
        parts = inside.split("/")
    elif ";" in inside:
        parts = re.split(r"\s*;\s*", inside)
    else:
        parts = re.split(
            r",\s+(?:and\s+|&\s+|et\s+|und\s+)?|,(?!\d{3}\b)|、|\s+(?:and|&|et|und|y|и|vs\.?|versus)\s+|\s+[-*•]\s+|\s+(?=\d+[.)]\s)",
            inside,
        )
    stripped = (re.sub(r"^(?:[-*•]|\d+[.)])\s+", "", part.strip()).strip(" '\"") for part in parts)
    return [part for part in stripped if part]
