"""Does a prediction state the gold answer? Three verdicts: correct, wrong, undecided.

Undecided is for what the two texts leave open (50% or 0.5? 3:30 in which half of the day?), and is never to be
counted as wrong. A judgement is by the type of the gold answer; types that are not given are inferred and recorded.
Only a numeric answer has a relative error, so that tolerance stays a policy. Reference metrics, which have no third
verdict, are in `distill.metrics` and can be imported from here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from math import factorial
from typing import Final

from distill import choices, lists, mathworker, texts
from distill.agreement import Finding, compare_quantities, correct, undecided, wrong
from distill.answer_types import infer_type as infer_type
from distill.errors import DataError
from distill.final_answer import final_answer
from distill.metrics import anls as anls
from distill.metrics import exact_match as exact_match
from distill.metrics import relaxed_accuracy as relaxed_accuracy
from distill.metrics import rouge_l as rouge_l
from distill.notation import normalise
from distill.numbers import Quantity, quantities, single
from distill.stated import left_open, repeated, stated
from distill.times import compare_dates, compare_ratios, compare_times, days

MAX_CHARACTERS: Final = 20_000
"""Longer predictions are not answers and are left undecided."""
_MOST_NUMBERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its reason (a snake_case constant) and the answer type it was reached by."""

    verdict: str
    relative_error: float | None
    reason: str
    answer_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gold:
    text: str
    answer_type: str
    declared: bool
    quantity: Quantity | None
    tolerance: Decimal
    options: tuple[str, ...]


def judge(
    prediction: str,
    gold: str | Sequence[str],
    answer_type: str | None = None,
    *,
    relative_tolerance: float = 0.0,
    options: Sequence[str] | None = None,
) -> Judgement:
    """Compare a prediction with the accepted gold answers.

    `gold` may be several accepted answers: one that agrees is enough. `answer_type` is one of number, year,
    percent, money, time, ratio, choice, list, date, text, else inferred from the first gold answer. Numbers, percents
    and money within `relative_tolerance` of the gold are correct. `options` are the texts of choices A, B, C ...
    """
    return _judge(prediction, gold, answer_type, relative_tolerance, options, ask_worker=True)


def equivalent(a: str, b: str, answer_type: str | None = None, *, options: Sequence[str] | None = None) -> bool:
    """Whether two answers surely mean the same; cheap and symmetric, for clustering the answers of traces.

    With the `options` of a choice, a letter and the text of its option are the same answer.
    """
    if a == b:
        return True
    if options and answer_type in (None, "choice"):
        offered = tuple(normalise(option) for option in options)
        ours, theirs = (choices.chosen_letters(normalise(final_answer(text).text), offered) for text in (a, b))
        if len(ours) == len(theirs) == 1:
            return ours == theirs
    forth = _judge(a, b, answer_type, 0.0, None, ask_worker=False)
    holds_backwards = forth.answer_type in _ALIKE_BACKWARDS.get(forth.reason, ())
    if holds_backwards and (answer_type is not None or infer_type(a) == forth.answer_type):
        return False
    return forth.verdict == "correct" or _judge(b, a, answer_type, 0.0, None, ask_worker=False).verdict == "correct"


_ALIKE_BACKWARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "other_words": ("text",),
    "other_value": ("number", "percent", "money"),
    "other_choice": ("choice",),
    "other_year": ("year",),
}
"""Refusals that hold in either direction, by the type of both answers."""


def _judge(
    prediction: str,
    gold: str | Sequence[str],
    answer_type: str | None,
    tolerance: float,
    options: Sequence[str] | None,
    *,
    ask_worker: bool,
) -> Judgement:
    golds = [text for text in ([gold] if isinstance(gold, str) else gold) if text.strip()]
    if not golds:
        return Judgement(
            verdict="undecided", relative_error=None, reason="no_gold", answer_type=answer_type or "text"
        )
    if answer_type is not None and answer_type not in _JUDGES:
        raise DataError(f"answer type {answer_type!r} is not known; known: {', '.join(_JUDGES)}")
    best: Judgement | None = None
    offered = tuple(options or ())
    kind = answer_type or _inferred(golds[0], offered)
    for text in golds:
        goal = _gold(text, kind, answer_type is not None, tolerance, offered)
        finding = _compare(prediction, goal, ask_worker=ask_worker)
        judged = Judgement(
            verdict=finding.verdict, relative_error=finding.relative_error, reason=finding.reason, answer_type=kind
        )
        if judged.verdict == "correct":
            return judged
        best = judged if best is None else _better(best, judged)
    assert best is not None
    return best


@lru_cache(maxsize=8192)
def _inferred(gold: str, options: tuple[str, ...]) -> str:
    """The type a gold answer looks like; a choice when it is one of the options, or the letter of one."""
    if options:
        letter = choices.letter_of(normalise(final_answer(gold).text), tuple(map(normalise, options)))
        if letter is not None and choices.LETTERS.index(letter) < len(options):
            return "choice"
    return infer_type(gold)


def _better(one: Judgement, other: Judgement) -> Judgement:
    if one.verdict != other.verdict:
        return one if one.verdict == "undecided" else other
    errors = (error if (error := item.relative_error) is not None else float("inf") for item in (one, other))
    return one if next(errors) <= next(errors) else other


@lru_cache(maxsize=8192)
def _gold(text: str, kind: str, declared: bool, tolerance: float, options: tuple[str, ...]) -> _Gold:
    text = normalise(final_answer(text).text)
    return _Gold(
        text=text,
        answer_type=kind,
        declared=declared,
        quantity=single(text),
        tolerance=Decimal(repr(float(tolerance))),
        options=tuple(normalise(option) for option in options),
    )


def _compare(prediction: str, gold: _Gold, *, ask_worker: bool) -> Finding:
    if not prediction.strip():
        return wrong("empty_prediction")
    if len(prediction) > MAX_CHARACTERS:
        return undecided("too_long")
    final = final_answer(prediction)
    text = normalise(_NEW_LINE.sub("; ", final.text) if gold.answer_type == "list" else final.text)
    if text == gold.text:
        return _same_text(gold)
    finding = _JUDGES[gold.answer_type](text, gold)
    if ask_worker and finding.verdict != "correct" and finding.relative_error is None and finding.can_be_mathematics:
        voted = mathworker.vote(final.text, gold.text)
        if voted is not None and not (voted.verdict == "wrong" and _in_degrees(gold)):
            return voted
    return finding


def _in_degrees(gold: _Gold) -> bool:
    """An expression may be the same angle in radians."""
    return gold.quantity is not None and gold.quantity.unit in ("°", "degree")


_NEW_LINE = re.compile(r"(?<=[^\s,;:])[ \t]*\n\s*")
"""The items of a list may be its lines."""


def _same_text(gold: _Gold) -> Finding:
    numeric = gold.answer_type in ("number", "percent", "money") and gold.quantity is not None
    return Finding(verdict="correct", reason="same_text", relative_error=0.0 if numeric else None)


# --- numbers, percents, money -----------------------------------------------------------------------------------


def _number(text: str, gold: _Gold) -> Finding:
    if gold.quantity is None:
        return _text(text, gold)
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
    findings: dict[tuple[Decimal, bool], Finding] = {}
    for quantity in found:
        finding = _agree(quantity, gold, text)
        if (quantity.bound or quantity.label) and finding.verdict != "wrong":
            finding = undecided("stated_as_limit" if quantity.bound else "may_be_a_name")
        findings.setdefault((quantity.value, quantity.percent), finding)
    if len(findings) == 1:
        if (factored := _factorial(text, gold)) is not None:
            return factored
        if texts.looks_mathematical(text):
            return replace(undecided("expression"), can_be_mathematics=True)
        finding = next(iter(findings.values()))
        return undecided("several_numbers") if finding.verdict == "correct" and repeated(text, found) else finding
    return _among_several(found, findings, gold, text)


def _no_number(text: str, gold: _Gold) -> Finding:
    digits = re.findall(r"\d", text)
    if digits and digits == re.findall(r"\d", gold.text):
        return undecided("unreadable_number")
    return texts.without_number(text)


def _factorial(text: str, gold: _Gold) -> Finding | None:
    """5! is 120, but it may be 5 with emphasis."""
    match = re.fullmatch(r"(\d\d?)!", text)
    if match is None or gold.quantity is None:
        return None
    if gold.quantity.value == factorial(int(match[1])):
        return correct("same_factorial")
    return correct("equal") if gold.quantity.value == int(match[1]) else wrong("other_value")


def _among_several(
    found: Sequence[Quantity], findings: Mapping[tuple[Decimal, bool], Finding], gold: _Gold, text: str
) -> Finding:
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
    mathematical = texts.looks_mathematical(text)
    open_reasons = {finding.reason for finding in findings.values() if finding.verdict != "wrong"}
    if open_reasons <= {"ambiguous_separator", "rounded"}:
        if re.findall(r"\d", text) == re.findall(r"\d", gold.text) or _is_ratio(text, gold):
            return undecided("unreadable_number")
        open_still = left_open(text, found, gold.quantity.value)
        if open_still is not None:
            return replace(open_still, can_be_mathematics=mathematical)
        return replace(wrong("none_of_several_numbers"), can_be_mathematics=mathematical)
    return replace(undecided("several_numbers"), can_be_mathematics=mathematical)


def _is_ratio(text: str, gold: _Gold) -> bool:
    """1:4 for a gold of 1/4."""
    finding = compare_ratios(text, gold.text)
    return finding is not None and finding.verdict == "correct"


def _agree(said: Quantity, gold: _Gold, text: str) -> Finding:
    assert gold.quantity is not None
    if gold.text[:1] == "0" and gold.text.isdigit() and len(gold.text) > 1 and not text.startswith("0"):
        return undecided("leading_zeros")  # 007 is a name
    return compare_quantities(said, gold.quantity, gold.answer_type, gold.tolerance, text)


def _year(text: str, gold: _Gold) -> Finding:
    if gold.quantity is None:
        return _text(text, gold)
    year = gold.quantity.value
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
        return undecided("year_inside_a_word") if gold.text in inside else texts.without_number(text)
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


# --- times, dates, ratios ---------------------------------------------------------------------------------------


def _time(text: str, gold: _Gold) -> Finding:
    return compare_times(text, gold.text, gold.declared) or _text(text, gold)


def _ratio(text: str, gold: _Gold) -> Finding:
    return compare_ratios(text, gold.text) or (_number(text, gold) if gold.quantity else _text(text, gold))


def _date(text: str, gold: _Gold) -> Finding:
    return compare_dates(text, gold.text) or _text(text, gold)


# --- choices and lists ------------------------------------------------------------------------------------------


def _choice(text: str, gold: _Gold) -> Finding:
    letter = choices.letter_of(gold.text, gold.options)
    if letter is None:
        return _text(text, gold)
    said = choices.chosen_letters(text, gold.options)
    if len(said) == 1:
        return correct("same_choice") if letter in said else wrong("other_choice")
    if not said:
        return undecided("no_choice_found")
    if letter in said or _covers(gold.options, letter):
        return undecided("several_choices")
    return wrong("other_choice")


def _covers(options: Sequence[str], letter: str) -> bool:
    """Whether an option is about the others: all of the above."""
    index = choices.LETTERS.index(letter)
    return index < len(options) and options[index].lower().startswith(("all", "both", "any", "none", "neither"))


def _list(text: str, gold: _Gold) -> Finding:
    return lists.compare(text, gold.text, lambda said, meant: _item(said, meant, gold))


def _item(said: str, meant: str, gold: _Gold) -> Finding:
    kind = infer_type(meant)
    if kind in ("list", "choice"):
        kind = "text"
    item = _gold(meant, kind, False, float(gold.tolerance), ())
    return correct("same_text") if said == item.text else _JUDGES[kind](said, item)


def _text(text: str, gold: _Gold) -> Finding:
    return texts.compare(text, gold.text)


_JUDGES: Final[Mapping[str, Callable[[str, _Gold], Finding]]] = {
    "number": _number,
    "percent": _number,
    "money": _number,
    "year": _year,
    "time": _time,
    "ratio": _ratio,
    "date": _date,
    "choice": _choice,
    "list": _list,
    "text": _text,
}
ANSWER_TYPES: Final = tuple(_JUDGES)
