"""Does a prediction state the gold answer? Three verdicts: correct, wrong, undecided.

Undecided is for what the two texts leave open (50% or 0.5? 3:30 in which half of the day?), and is never to be
counted as wrong. A judgement is by the type of the gold answer; types that are not given are inferred and recorded.
Only a numeric answer has a relative error, so that tolerance stays a policy. Reference metrics, which have no third
verdict, are in `distill.metrics` and can be imported from here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Final

from distill import mathworker, texts
from distill.agreement import Finding, compare_quantities, correct, undecided, wrong
from distill.answer_types import infer_type as infer_type
from distill.answer_types import items
from distill.errors import DataError
from distill.final_answer import final_answer
from distill.metrics import anls as anls
from distill.metrics import exact_match as exact_match
from distill.metrics import relaxed_accuracy as relaxed_accuracy
from distill.metrics import rouge_l as rouge_l
from distill.numbers import Quantity, normalise, quantities, single
from distill.times import clocks, days, ratios, same_clock, same_day, same_ratio

MAX_CHARACTERS: Final = 20_000
"""Longer predictions are not answers and are left undecided."""


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


def equivalent(a: str, b: str, answer_type: str | None = None) -> bool:
    """Whether two answers surely mean the same; cheap and symmetric, for clustering the answers of traces."""
    if a == b:
        return True
    forth = _judge(a, b, answer_type, 0.0, None, ask_worker=False)
    return forth.verdict == "correct" or _judge(b, a, answer_type, 0.0, None, ask_worker=False).verdict == "correct"


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
    kind = answer_type or infer_type(golds[0])
    for text in golds:
        goal = _gold(text, kind, answer_type is not None, tolerance, tuple(options or ()))
        finding = _compare(prediction, goal, ask_worker=ask_worker)
        judged = Judgement(
            verdict=finding.verdict, relative_error=finding.relative_error, reason=finding.reason, answer_type=kind
        )
        if judged.verdict == "correct":
            return judged
        best = judged if best is None else _better(best, judged)
    assert best is not None
    return best


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
    text = normalise(final.text)
    if text == gold.text:
        return _same_text(gold)
    finding = _JUDGES[gold.answer_type](text, gold)
    if ask_worker and finding.verdict != "correct" and finding.relative_error is None and finding.can_be_mathematics:
        voted = mathworker.vote(final.text, gold.text)
        if voted is not None:
            return voted
    return finding


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
    for stated in _stated(text):
        return _agree(stated, gold, text)
    found = quantities(text)
    if not found:
        return texts.without_number(text)
    if all(quantity.negated for quantity in found):
        return undecided("negated")
    found = tuple(quantity for quantity in found if not quantity.negated)
    findings: dict[tuple[Decimal, bool], Finding] = {}
    for quantity in found:
        finding = _agree(quantity, gold, text)
        if quantity.bound and finding.verdict != "wrong":
            finding = undecided("stated_as_limit")
        findings.setdefault((quantity.value, quantity.percent), finding)
    if len(findings) == 1:
        if texts.looks_mathematical(text):
            return replace(undecided("expression"), can_be_mathematics=True)
        return next(iter(findings.values()))
    return _among_several(found, findings, gold, text)


def _stated(text: str) -> Iterator[Quantity]:
    """The result of an equation, or the number before a remark in parentheses."""
    for part in (text.rsplit("=", 1)[1] if "=" in text else "", text.split(" (", 1)[0] if text.endswith(")") else ""):
        quantity = single(part.strip(" ."))
        if quantity is not None:
            yield quantity


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
        return replace(wrong("none_of_several_numbers"), can_be_mathematics=mathematical)
    return replace(undecided("several_numbers"), can_be_mathematics=mathematical)


def _agree(said: Quantity, gold: _Gold, text: str) -> Finding:
    assert gold.quantity is not None
    return compare_quantities(said, gold.quantity, gold.answer_type, gold.tolerance, text)


def _year(text: str, gold: _Gold) -> Finding:
    if gold.quantity is None:
        return _text(text, gold)
    whole = single(text)
    if whole is not None:
        return correct("equal") if whole.value == gold.quantity.value else wrong("other_year")
    found = quantities(text)
    if not found:
        inside = set(re.findall(r"(?<!\d)\d{4}(?!\d)", text))
        return undecided("year_inside_a_word") if gold.text in inside else texts.without_number(text)
    values = {quantity.value for quantity in found if not quantity.bound and not quantity.negated}
    years = {value for value in values if 1000 <= value <= 2999 and value == int(value)}
    if len(years) == 1:
        return correct("only_year") if years == {gold.quantity.value} else wrong("other_year")
    return (
        undecided("several_numbers")
        if gold.quantity.value in values | {q.value for q in found}
        else wrong("other_year")
    )


# --- times, dates, ratios ---------------------------------------------------------------------------------------


def _time(text: str, gold: _Gold) -> Finding:
    meant = clocks(gold.text)
    if len(meant) != 1:
        return _text(text, gold)
    verdicts = {same_clock(clock, meant[0]) for clock in clocks(text)}
    if not verdicts:
        return undecided("no_time_found") if quantities(text) else texts.without_number(text)
    if verdicts == {False} and not gold.declared and _same_ratios(text, gold.text) and text.upper() == text.lower():
        return undecided("time_or_ratio")
    if verdicts == {True} or (verdicts == {None} and _same_digits(text, gold.text)):
        return correct("same_time")
    return wrong("other_time") if verdicts == {False} else undecided("time_left_open")


def _same_digits(text: str, other: str) -> bool:
    """Whether two times show the same digits, so that only one of them names the half of the day."""
    return re.findall(r"\d+", text) == re.findall(r"\d+", other)


def _same_ratios(text: str, other: str) -> bool:
    ours, theirs = ratios(text), ratios(other)
    return len(ours) == len(theirs) == 1 and same_ratio(ours[0], theirs[0])


def _ratio(text: str, gold: _Gold) -> Finding:
    meant = ratios(gold.text)
    if len(meant) != 1:
        return _number(text, gold) if gold.quantity else _text(text, gold)
    found = ratios(text)
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
    return wrong("other_ratio")


def _date(text: str, gold: _Gold) -> Finding:
    meant = days(gold.text)
    if len(meant) != 1:
        return _text(text, gold)
    found = days(text)
    if not found:
        return undecided("no_date_found") if quantities(text) else texts.without_number(text)
    verdicts = {same_day(day, meant[0]) for day in found}
    if verdicts == {True}:
        return correct("same_date")
    return wrong("other_date") if verdicts == {False} else undecided("date_left_open")


# --- choices and lists ------------------------------------------------------------------------------------------


def _choice(text: str, gold: _Gold) -> Finding:
    letter = texts.letter_of(gold.text, gold.options)
    if letter is None:
        return _text(text, gold)
    said = texts.chosen_letters(text, gold.options)
    if len(said) == 1:
        return correct("same_choice") if letter in said else wrong("other_choice")
    if not said:
        return undecided("no_choice_found")
    return undecided("several_choices") if letter in said else wrong("other_choice")


def _list(text: str, gold: _Gold) -> Finding:
    meant, said = items(gold.text), items(text)
    ordered = gold.text[:1] == "(" and gold.text[-1:] == ")" and all(single(item) for item in meant)
    if len(said) != len(meant):
        if any(_item(one, other, gold).verdict != "wrong" for one in said for other in meant):
            shorter = len(said) < len(meant) and len(text.split()) <= len(gold.text.split())
            return wrong("other_length") if shorter else undecided("other_length")
        return wrong("other_items")
    if ordered:
        return _all(_item(one, other, gold) for one, other in zip(said, meant, strict=True))
    findings: list[Finding] = []
    left = list(meant)
    for one in said:
        judged = [(_item(one, other, gold), other) for other in left]
        for verdict in ("correct", "undecided", "wrong"):
            chosen = next((pair for pair in judged if pair[0].verdict == verdict), None)
            if chosen is not None:
                findings.append(chosen[0])
                left.remove(chosen[1])
                break
    return _all(findings)


def _all(findings: Iterable[Finding]) -> Finding:
    verdicts = {finding.verdict for finding in findings}
    if verdicts == {"correct"}:
        return correct("same_items")
    return wrong("other_items") if "wrong" in verdicts else undecided("items_left_open")


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
