"""Numbers, percents, money and years: whether a prediction states the one that the gold answer is.

The verdict on one stated quantity is `distill.answers.compare`'s; here it is about which of a text's numbers is the
answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import factorial
from typing import Final

from distill.answers import text_answers
from distill.answers.compare import CompareResult, compare_quantities, correct, undecided, wrong
from distill.answers.numbers import Quantity, quantities, single
from distill.answers.pick_number import left_open, repeated, stated
from distill.answers.times import compare_ratios, days

_MOST_NUMBERS: Final = 200


_LATEST_YEAR: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldAnswer:
    text: str
    answer_type: str
    declared: bool
    quantity: Quantity | None
    tolerance: Decimal
    options: tuple[str, ...]
    cut: bool
    """Too long to be judged by; the text is only a part of it."""


def number(text: str, gold: GoldAnswer) -> CompareResult:
    if gold.quantity is None:
        return text_answers.compare(text, gold.text)
    if (share := _share(text, gold.quantity)) is not None:
        return share
    whole = single(text)
    if whole is not None:
        return _agree(whole, gold, text)
    found = quantities(text)
    if len(found) > _MOST_NUMBERS:
        return undecided("several_numbers")
    named = stated(text, found)
    if named is not None:
        return _agree(named, gold, text)
    if not found:
        return _no_number(text, gold)
    if all(quantity.negated for quantity in found):
        return undecided("negated")
    found = tuple(quantity for quantity in found if not quantity.negated)
    findings: dict[tuple[Decimal, bool], CompareResult] = {}
    for quantity in found:
        finding = _agree(quantity, gold, text)
        if (quantity.bound or quantity.label) and finding.verdict != "wrong":
            finding = undecided("stated_as_limit" if quantity.bound else "may_be_a_name")
        findings.setdefault((quantity.value, quantity.percent), finding)
    if len(findings) == 1:
        if (factored := _factorial(text, gold)) is not None:
            return factored
        if text_answers.looks_mathematical(text):
            return replace(undecided("expression"), can_be_mathematics=True)
        finding = next(iter(findings.values()))
        return undecided("several_numbers") if finding.verdict == "correct" and repeated(text, found) else finding
    return _among_several(found, findings, gold, text)


_OUT_OF = re.compile(r"(?:about |around |roughly )?(?:an? )?(\S+) (?:in|out of|of) (?:every )?(\S+)", re.IGNORECASE)


def _share(text: str, gold: Quantity) -> CompareResult | None:
    """A share in words for a percentage: one in eight for 12.5%; and 1.5 to 1, a ratio, for 1.5."""
    if gold.percent:
        if (match := _OUT_OF.fullmatch(text)) is not None:
            parts = [quantity.value for part in match.groups() if (quantity := single(part)) is not None]
            if len(parts) != 2 or not parts[1]:
                return None
            value = parts[0] / parts[1] * 100
        else:
            return None
        return correct("same_share") if abs(value - gold.value) < _TINY_SHARE else None
    match = _TO_ONE.fullmatch(text)
    return correct("same_ratio") if match is not None and Decimal(match[1]) == gold.value and not gold.unit else None


_TO_ONE = re.compile(r"(\d+(?:\.\d+)?)\s?(?:to|:)\s?1")
_TINY_SHARE: Final = Decimal("1e-9")


def _no_number(text: str, gold: GoldAnswer) -> CompareResult:
    digits = re.findall(r"\d", text)
    if digits and digits == re.findall(r"\d", gold.text):
        return undecided("unreadable_number")
    found = text_answers.without_number(text)
    if found.reason == "none_there" and gold.quantity is not None:
        return correct("none_there") if gold.quantity.value == 0 else wrong("none_there")
    return found


def factorial_of_gold(text: str, gold: GoldAnswer) -> CompareResult | None:
    """3628800 for a gold of 10!; None when the gold is no factorial."""
    match = re.fullmatch(r"(\d\d?)!", gold.text)
    said = single(text)
    if match is None or said is None:
        return None
    if said.value == factorial(int(match[1])):
        return correct("same_factorial")
    return undecided("factorial_or_emphasis") if said.value == int(match[1]) else wrong("other_value")


def _factorial(text: str, gold: GoldAnswer) -> CompareResult | None:
    """5! is 120, but it may be 5 with emphasis."""
    match = re.fullmatch(r"(\d\d?)!", text)
    if match is None or gold.quantity is None:
        return None
    if gold.quantity.value == factorial(int(match[1])):
        return correct("same_factorial")
    return correct("equal") if gold.quantity.value == int(match[1]) else wrong("other_value")


def _among_several(
    found: Sequence[Quantity], findings: Mapping[tuple[Decimal, bool], CompareResult], gold: GoldAnswer, text: str
) -> CompareResult:
    """Several numbers: the one with the gold's unit if it is the only one, else the question stays open."""
    assert gold.quantity is not None
    sign = (gold.quantity.percent, gold.quantity.currency, gold.quantity.unit)
    if any(sign):
        alike = {
            (quantity.value, quantity.percent)
            for quantity in found
            if (quantity.percent, quantity.currency, quantity.unit) == sign and not quantity.bound
        }
        if len(alike) == 1:
            return findings[alike.pop()]
    mathematical = text_answers.looks_mathematical(text)
    open_reasons = {finding.reason for finding in findings.values() if finding.verdict != "wrong"}
    if open_reasons <= {"ambiguous_separator", "rounded"}:
        if re.findall(r"\d", text) == re.findall(r"\d", gold.text) or _is_ratio(text, gold):
            return undecided("unreadable_number")
        open_still = left_open(text, found, gold.quantity.value)
        if open_still is not None:
            return replace(open_still, can_be_mathematics=mathematical)
        return replace(wrong("none_of_several_numbers"), can_be_mathematics=mathematical)
    return replace(undecided("several_numbers"), can_be_mathematics=mathematical)


def _is_ratio(text: str, gold: GoldAnswer) -> bool:
    """1:4 for a gold of 1/4."""
    finding = compare_ratios(text, gold.text)
    return finding is not None and finding.verdict == "correct"


def _agree(said: Quantity, gold: GoldAnswer, text: str) -> CompareResult:
    assert gold.quantity is not None
    if gold.text[:1] == "0" and gold.text.isdigit() and len(gold.text) > 1 and not text.startswith("0"):
        if text[said.start : said.start + len(gold.text)] == gold.text:
            return correct("same_digits")
        return undecided("leading_zeros")  # 007 is a name
    kind = gold.answer_type if gold.declared or gold.answer_type != "number" else ""
    return compare_quantities(said, gold.quantity, kind, gold.tolerance, text)


def year_of(text: str, gold: GoldAnswer) -> CompareResult:
    if gold.quantity is None:
        return text_answers.compare(text, gold.text)
    year = gold.quantity.value
    if year >= _LATEST_YEAR:
        return number(text, gold)
    if (short := re.fullmatch(r"'(\d\d)", text)) is not None:
        return correct("year_without_century") if year % 100 == int(short[1]) else wrong("other_year")
    whole = single(text)
    if whole is not None:
        if whole.value == year and not whole.percent and not whole.currency:
            return correct("equal")
        if whole.value < 100 and year % 100 == whole.value:
            return undecided("year_without_century")
        return undecided("may_be_no_year") if year in (whole.value, *whole.others) else wrong("other_year")
    if re.search(rf"\b{int(year) // 10}0'?s\b", text):
        return undecided("decade")
    found = quantities(text)
    if not found:
        inside = set(re.findall(r"(?<!\d)\d{4}(?!\d)", text))
        return undecided("year_inside_a_word") if gold.text in inside else text_answers.without_number(text)
    dates = {reading.year for day in days(text) for reading in day}
    if len(dates) == 1 and None not in dates:
        return correct("only_year") if dates == {year} else wrong("other_year")
    values = {quantity.value for quantity in found if not quantity.bound and not quantity.negated}
    years = {value for value in values if 1000 <= value <= 2999 and value == int(value)}
    if len(years) == 1:
        if _NEAR_A_YEAR.search(text) and years == {year}:
            return undecided("near_the_year")
        return correct("only_year") if years == {year} else wrong("other_year")
    if year in values | {quantity.value for quantity in found}:
        return undecided("several_numbers")
    return left_open(text, found, year) or wrong("other_year")


_NEAR_A_YEAR = re.compile(
    r"\b(?:before|after|since|until|till|prior to)\s+(?:the year\s+)?\d{4}\b|\d{4}\s?[-/]\s?\d\d\b", re.IGNORECASE
)
