"""Whether two stated quantities agree: value, percent sign, currency and unit."""

import re
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.numbers.currencies import SHARED
from distill.answers.numbers.measure_units import may_be_symbol, size_in
from distill.answers.numbers.quantities import Quantity
from distill.answers.numbers.units import loosely_equal, unit_factor


def compare_quantities(
    predicted: Quantity, gold: Quantity, gold_type: str, tolerance: Decimal, text: str
) -> CompareResult:
    """One stated quantity against the gold one: signs and units first, then the value.

    `gold_type` is "number" only where the data set it: then a percent sign that the gold lacks adds nothing.
    """
    same = _compare_values(predicted, gold, tolerance)
    if predicted.percent != gold.percent:
        return _compare_percent_with_plain(predicted, gold, gold_type, tolerance, same)
    if predicted.percent and (predicted.unit == "point") != (gold.unit == "point"):
        return _undecided_unless_wrong(same, "points_or_percent")
    bare_share = gold_type == "percent" and not predicted.percent and same.verdict == "wrong"
    if bare_share and _compare_values(_as_percent(predicted), gold, tolerance).verdict != "wrong":
        return undecided("percent_or_share")
    if same.verdict == "wrong" and abs(predicted.value) == abs(gold.value) and _SIGN_IN_WORDS.search(text):
        return undecided("sign_in_words", same.relative_error)
    if (
        predicted.currency
        and gold.currency
        and predicted.currency != gold.currency
        and not _may_be_same_currency(predicted, gold)
    ):
        dollars = predicted.currency.endswith("D") and gold.currency.endswith("D")
        return _undecided_unless_wrong(same, "other_currency") if dollars else wrong("other_currency")
    if predicted.unit and gold.unit and predicted.unit != gold.unit:
        predicted_factor, gold_factor = unit_factor(predicted.unit), unit_factor(gold.unit)
        if predicted_factor and gold_factor and predicted_factor[0] == gold_factor[0]:
            scaled_predicted, scaled_gold = (
                _scaled(item, factor[1]) for item, factor in ((predicted, predicted_factor), (gold, gold_factor))
            )
            converted = _compare_values(scaled_predicted, scaled_gold, tolerance)
            loose = predicted_factor[0] == "data" and loosely_equal(
                predicted.value, predicted.unit, gold.value, gold.unit
            )
            return undecided("unit_of_1024") if loose and converted.verdict == "wrong" else converted
        if predicted_factor and gold_factor and {predicted_factor[0], gold_factor[0]} in _DEGREES:
            return same
        table = (
            None
            if predicted_factor and gold_factor
            else _compare_by_unit_table(predicted, gold, tolerance, bool(predicted_factor or gold_factor))
        )
        if table is not None:
            return table
        if loosely_equal(predicted.value, predicted.unit, gold.value, gold.unit):
            return undecided("other_unit")
        if not (re.search(rf"\b{re.escape(gold.unit)}", text, re.IGNORECASE) and not unit_factor(gold.unit)):
            return (
                wrong("other_unit")
                if predicted_factor and gold_factor
                else _undecided_unless_wrong(same, "other_unit")
            )
    if _are_bits_and_bytes(predicted.written_unit, gold.written_unit):
        return _undecided_unless_wrong(same, "other_unit")
    if _differ_in_milli_or_mega(predicted.written_unit, gold.written_unit):
        return _compare_by_unit_table(predicted, gold, tolerance, True) or same
    if (gold.currency and predicted.unit and not predicted.currency) or (
        predicted.currency and gold.unit and not gold.currency
    ):
        return _undecided_unless_wrong(same, "other_unit")
    if (predicted.unit == "th") != (gold.unit == "th"):
        return _undecided_unless_wrong(same, "rank_or_amount")
    if predicted.unit.startswith("per ") != gold.unit.startswith("per "):
        return _undecided_unless_wrong(same, "amount_or_rate")
    return same


def _compare_by_unit_table(
    predicted: Quantity, gold: Quantity, tolerance: Decimal, a_unit_is_known: bool
) -> CompareResult | None:
    """Two amounts by the unit table of pint; None if it lacks a unit or the units measure different things."""
    predicted_unit, gold_unit = predicted.written_unit, gold.written_unit
    if (
        not predicted_unit
        or not gold_unit
        or not (a_unit_is_known or (may_be_symbol(predicted_unit) and may_be_symbol(gold_unit)))
    ):
        return None
    size = size_in(predicted_unit, gold_unit)
    if size is None:
        return None
    converted = _scaled(predicted, size)
    near = abs(converted.value - gold.value) <= _CONVERTED * abs(gold.value)
    return _compare_values(replace(converted, value=gold.value) if near else converted, gold, tolerance)


_CONVERTED: Final = Decimal("1e-9")
"""pint counts in floating point."""


def _differ_in_milli_or_mega(left: str, right: str) -> bool:
    """mW and MW."""
    return left != right and left[1:] == right[1:] and {left[:1], right[:1]} == {"m", "M"} and len(left) <= 4


def _are_bits_and_bytes(left: str, right: str) -> bool:
    """Mb and MB, which many texts confuse."""
    return (
        left != right and left[:1] == right[:1] and len(left) == len(right) == 2 and {left[1], right[1]} == {"b", "B"}
    )


def _may_be_same_currency(predicted: Quantity, gold: Quantity) -> bool:
    """One sign is used for several currencies."""
    pairs = ((predicted.currency, gold.currency), (gold.currency, predicted.currency))
    return any(code in SHARED.get(sign, ()) for sign, code in pairs)


def _undecided_unless_wrong(result: CompareResult, reason: str) -> CompareResult:
    return result if result.verdict == "wrong" else replace(result, verdict="undecided", reason=reason)


def _scaled(quantity: Quantity, factor: Decimal) -> Quantity:
    others = tuple(value * factor for value in quantity.others)
    return replace(quantity, value=quantity.value * factor, others=others, decimals=None)


def _compare_percent_with_plain(
    predicted: Quantity, gold: Quantity, gold_type: str, tolerance: Decimal, same: CompareResult
) -> CompareResult:
    """Only one of the two has a percent sign. 50 for 50% leaves the sign out; 0.5 may mean 0.5% or 50%."""
    plain, percent = (predicted, gold) if gold.percent else (gold, predicted)
    is_fraction = plain.decimals is None and 0 < abs(plain.value) < 1 and not (plain.unit or plain.currency)
    if is_fraction and percent.value == plain.value * 100 and not percent.unit:
        return correct("same_share", 0.0)
    unit_without_sign = predicted.unit or predicted.currency if gold.percent else gold.unit or gold.currency
    if same.verdict == "correct" and not unit_without_sign:
        if gold.percent or gold_type == "percent":
            return replace(same, reason="percent_sign_left_out")
        if gold_type == "number" and abs(gold.value) > 1:
            # Golds of charts leave the sign out; up to one they may be a share.
            return replace(same, reason="percent_sign_added")
        return undecided("percent_or_number", same.relative_error)
    predicted_percent, gold_percent = (
        (_as_percent(predicted), gold) if gold.percent else (predicted, _as_percent(gold))
    )
    if _compare_values(predicted_percent, gold_percent, tolerance).verdict != "wrong":
        return undecided("percent_or_share")
    return _undecided_unless_wrong(same, "percent_or_number")


def _as_percent(share: Quantity) -> Quantity:
    decimals = None if share.decimals is None else max(0, share.decimals - 2)
    return replace(share, value=share.value * 100, others=(), decimals=decimals)


_SIGN_IN_WORDS = re.compile(
    r"\b(?:loss|lost|decreas\w+|declin\w+|drop\w*|fell|fall\w*|down|reduc\w+|less|lower|below|deficit|negative|minus)\b"
    r"|^\([$€£¥]",
    re.IGNORECASE,
)
_DEGREES: Final = ({"angle", "celsius"}, {"angle", "fahrenheit"})
_TINY: Final = Decimal("1e-12")


def _compare_values(predicted: Quantity, gold: Quantity, tolerance: Decimal) -> CompareResult:
    """The numbers alone."""
    try:
        difference = abs(predicted.value - gold.value)
        error = float(difference / abs(gold.value)) if gold.value else (0.0 if not difference else float("inf"))
    except (InvalidOperation, OverflowError):
        return undecided("out_of_range")
    exact = predicted.decimals is not None and gold.decimals is not None
    if not difference or (not exact and difference <= _TINY * abs(gold.value)):
        alike = predicted.others and (predicted.value, predicted.others) == (gold.value, gold.others)
        if (predicted.certain and gold.certain) or alike or predicted.foreign or gold.foreign:
            return correct("equal", error)
        return undecided("ambiguous_separator", error)
    if difference <= tolerance * abs(gold.value):
        return correct("within_tolerance", error)
    if {predicted.value, *predicted.others} & {gold.value, *gold.others}:
        if predicted.foreign or gold.foreign:
            return correct("equal", 0.0)
        return undecided("ambiguous_separator", error)
    if _is_rounding(predicted, gold):
        is_fraction = gold.decimals is None and gold.value != round(gold.value, _MANY_PLACES)
        return (correct if is_fraction and _digits(predicted) >= _SURE_DIGITS else undecided)("rounded", error)
    if _is_rounding(gold, predicted):
        return undecided("more_precise", error)
    return wrong("other_value", error)


_MANY_PLACES: Final = 9
_SURE_DIGITS: Final = 3
"""Fewest digits of a decimal that stands for a fraction: 0.667 for 2/3."""


def _digits(quantity: Quantity) -> int:
    return len(quantity.value.as_tuple().digits)


def _is_rounding(predicted: Quantity, gold: Quantity) -> bool:
    """Whether the gold value rounded to the stated decimals is the predicted one; needs 3 digits (fraction: 2)."""
    if predicted.decimals is None or (gold.decimals is not None and gold.decimals <= predicted.decimals):
        return False
    if _digits(predicted) < (2 if gold.decimals is None else 3):
        return False
    return abs(predicted.value - gold.value) * 2 <= Decimal(1).scaleb(-predicted.decimals)
