"""Whether two stated quantities agree: value, percent sign, currency and unit.

Also defines `CompareResult`, what every comparison of answers gives.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final

from distill.answers.measure_units import may_be_symbol, size_in
from distill.answers.numbers import Quantity
from distill.answers.units import loosely_equal, unit_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareResult:
    """The outcome of one comparison. `can_be_mathematics` invites the symbolic voter to speak."""

    verdict: str
    reason: str
    relative_error: float | None = None
    can_be_mathematics: bool = False


def correct(reason: str) -> CompareResult:
    return CompareResult(verdict="correct", reason=reason)


def wrong(reason: str) -> CompareResult:
    return CompareResult(verdict="wrong", reason=reason)


def undecided(reason: str) -> CompareResult:
    return CompareResult(verdict="undecided", reason=reason)


def compare_quantities(
    said: Quantity, meant: Quantity, gold_type: str, tolerance: Decimal, text: str
) -> CompareResult:
    """One stated quantity against the gold one: signs and units first, then the value.

    `gold_type` is "number" only where the data says so: there a percent sign that the gold lacks adds nothing.
    """
    same = _values(said, meant, tolerance)
    if said.percent != meant.percent:
        return _across_percent(said, meant, gold_type, tolerance, same)
    if said.percent and (said.unit == "point") != (meant.unit == "point"):
        return _unless_wrong(same, "points_or_percent")
    bare_share = gold_type == "percent" and not said.percent and same.verdict == "wrong"
    if bare_share and _values(_hundredfold(said), meant, tolerance).verdict != "wrong":
        return undecided("percent_or_share")
    if same.verdict == "wrong" and abs(said.value) == abs(meant.value) and _SIGN_IN_WORDS.search(text):
        return replace(undecided("sign_in_words"), relative_error=same.relative_error)
    if said.currency and meant.currency and said.currency != meant.currency and not _same_yen(said, meant):
        dollars = said.currency.endswith("D") and meant.currency.endswith("D")
        return _unless_wrong(same, "other_currency") if dollars else wrong("other_currency")
    if {said.currency or said.unit, meant.currency or meant.unit} == {"GBP", "pound"}:
        return same
    if said.unit and meant.unit and said.unit != meant.unit:
        ours, theirs = unit_factor(said.unit), unit_factor(meant.unit)
        if ours and theirs and ours[0] == theirs[0]:
            one, other = (_scaled(item, factor[1]) for item, factor in ((said, ours), (meant, theirs)))
            converted = _values(one, other, tolerance)
            loose = ours[0] == "data" and loosely_equal(said.value, said.unit, meant.value, meant.unit)
            return undecided("unit_of_1024") if loose and converted.verdict == "wrong" else converted
        if ours and theirs and {ours[0], theirs[0]} in _DEGREES:
            return same
        table = None if ours and theirs else _by_table(said, meant, tolerance, bool(ours or theirs))
        if table is not None:
            return table
        if loosely_equal(said.value, said.unit, meant.value, meant.unit):
            return undecided("other_unit")
        if not (re.search(rf"\b{re.escape(meant.unit)}", text, re.IGNORECASE) and not unit_factor(meant.unit)):
            return wrong("other_unit") if ours and theirs else _unless_wrong(same, "other_unit")
    if _bits_and_bytes(said.written_unit, meant.written_unit):
        return _unless_wrong(same, "other_unit")
    if _other_capitals(said.written_unit, meant.written_unit):
        return _by_table(said, meant, tolerance, True) or same
    if (meant.currency and said.unit and not said.currency) or (said.currency and meant.unit and not meant.currency):
        return _unless_wrong(same, "other_unit")
    if (said.unit == "th") != (meant.unit == "th"):
        return _unless_wrong(same, "rank_or_amount")
    if said.unit.startswith("per ") != meant.unit.startswith("per "):
        return _unless_wrong(same, "amount_or_rate")
    return same


def _by_table(said: Quantity, meant: Quantity, tolerance: Decimal, one_is_known: bool) -> CompareResult | None:
    """Two amounts by the unit table of pint; None where it does not know them, or as different things."""
    one, other = said.written_unit, meant.written_unit
    if not one or not other or not (one_is_known or (may_be_symbol(one) and may_be_symbol(other))):
        return None
    size = size_in(one, other)
    if size is None:
        return None
    converted = _scaled(said, size)
    near = abs(converted.value - meant.value) <= _CONVERTED * abs(meant.value)
    return _values(replace(converted, value=meant.value) if near else converted, meant, tolerance)


_CONVERTED: Final = Decimal("1e-9")
"""pint counts in floating point."""


def _other_capitals(one: str, other: str) -> bool:
    """mW and MW."""
    return one != other and one[1:] == other[1:] and {one[:1], other[:1]} == {"m", "M"} and len(one) <= 4


def _bits_and_bytes(one: str, other: str) -> bool:
    """Mb and MB, which few keep apart."""
    return one != other and one[:1] == other[:1] and len(one) == len(other) == 2 and {one[1], other[1]} == {"b", "B"}


def _same_yen(said: Quantity, meant: Quantity) -> bool:
    """One sign stands for two currencies."""
    return "¥" in (said.currency, meant.currency) and {said.currency, meant.currency} & {"JPY", "CNY"} != set()


def _unless_wrong(finding: CompareResult, reason: str) -> CompareResult:
    return finding if finding.verdict == "wrong" else replace(finding, verdict="undecided", reason=reason)


def _scaled(quantity: Quantity, factor: Decimal) -> Quantity:
    return replace(quantity, value=quantity.value * factor, others=_times(quantity.others, factor), decimals=None)


def _times(values: Sequence[Decimal], factor: Decimal) -> tuple[Decimal, ...]:
    return tuple(value * factor for value in values)


def _across_percent(
    said: Quantity, meant: Quantity, gold_type: str, tolerance: Decimal, same: CompareResult
) -> CompareResult:
    """One side has a percent sign. A bare 50 for 50% only leaves the sign out; a bare 0.5 may mean either."""
    other = said.unit or said.currency if meant.percent else meant.unit or meant.currency
    if same.verdict == "correct" and not other:
        if meant.percent or gold_type == "percent":
            return replace(same, reason="percent_sign_left_out")
        if gold_type == "number" and abs(meant.value) > 1:
            # Golds of charts leave the sign out; up to one they may be a share.
            return replace(same, reason="percent_sign_added")
        return replace(undecided("percent_or_number"), relative_error=same.relative_error)
    one, two = (_hundredfold(said), meant) if meant.percent else (said, _hundredfold(meant))
    if _values(one, two, tolerance).verdict != "wrong" or _values(two, one, tolerance).verdict != "wrong":
        return undecided("percent_or_share")
    return _unless_wrong(same, "percent_or_number")


def _hundredfold(share: Quantity) -> Quantity:
    places = None if share.decimals is None else max(0, share.decimals - 2)
    return replace(share, value=share.value * 100, others=(), decimals=places)


_SIGN_IN_WORDS = re.compile(
    r"\b(?:loss|lost|decreas\w+|declin\w+|drop\w*|fell|fall\w*|down|reduc\w+|less|lower|below|deficit|negative|minus)\b"
    r"|^\([$€£¥]",
    re.IGNORECASE,
)
_DEGREES: Final = ({"angle", "celsius"}, {"angle", "fahrenheit"})
_TINY: Final = Decimal("1e-12")


def _values(said: Quantity, meant: Quantity, tolerance: Decimal) -> CompareResult:
    """The numbers alone."""
    try:
        difference = abs(said.value - meant.value)
        error = float(difference / abs(meant.value)) if meant.value else (0.0 if not difference else float("inf"))
    except (InvalidOperation, OverflowError):
        return undecided("out_of_range")
    exact = said.decimals is not None and meant.decimals is not None
    if not difference or (not exact and difference <= _TINY * abs(meant.value)):
        alike = said.others and (said.value, said.others) == (meant.value, meant.others)
        if (said.certain and meant.certain) or alike or said.abroad or meant.abroad:
            return CompareResult(verdict="correct", reason="equal", relative_error=error)
        return CompareResult(verdict="undecided", reason="ambiguous_separator", relative_error=error)
    if difference <= tolerance * abs(meant.value):
        return CompareResult(verdict="correct", reason="within_tolerance", relative_error=error)
    if {said.value, *said.others} & {meant.value, *meant.others}:
        if said.abroad or meant.abroad:
            return CompareResult(verdict="correct", reason="equal", relative_error=0.0)
        return CompareResult(verdict="undecided", reason="ambiguous_separator", relative_error=error)
    if _is_rounding(said, meant):
        return CompareResult(verdict="undecided", reason="rounded", relative_error=error)
    if _is_rounding(meant, said):
        return CompareResult(verdict="undecided", reason="more_precise", relative_error=error)
    return CompareResult(verdict="wrong", reason="other_value", relative_error=error)


def _is_rounding(said: Quantity, meant: Quantity) -> bool:
    """Whether the gold, rounded to the places stated, gives what was said. Needs three digits, two for a fraction."""
    if said.decimals is None or (meant.decimals is not None and meant.decimals <= said.decimals):
        return False
    digits = len(said.value.as_tuple().digits.__str__().replace(" ", "").strip("(),").split(","))
    if digits < (2 if meant.decimals is None else 3):
        return False
    return abs(said.value - meant.value) * 2 <= Decimal(1).scaleb(-said.decimals)
