"""The number of kept traces at other thresholds, and without each rule of the policy.

Traces that another rule drops are not counted: only traces that pass all other rules can change. Without a mix, the
number of selected traces follows from the limits of `filter.select` alone, because the order of a question's traces
does not change their number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distill.recipe.sections.filter import Select
from filters.decisions.decide import dropped
from filters.decisions.rules import Condition, Threshold
from filters.report.table import Column, TableFacts
from filters.tables.signal_database import text

_POINTS = 48
_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
"""Quantiles, over the traces that pass all other rules, whose values are rows of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdStep:
    """Number of kept traces for other values of a rule's threshold."""

    number: float
    kept: int
    change: int
    selected: int | None
    """None with a mix, whose shares decide instead."""
    present: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdCurve:
    rule: str
    column: Column
    operator: str
    number: float
    points: list[tuple[float, int]]
    table: list[ThresholdStep]
    passing: int
    """Traces that pass all other rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """The change without one rule."""

    rule: str
    kept: int
    selected: int | None


def curves(facts: TableFacts, rules: Sequence[Condition], select: Select) -> list[ThresholdCurve]:
    """A curve for every rule that compares one measured column with a number."""
    threshold_curves = []
    for rule in rules:
        limit = rule.threshold
        column = facts.columns.get(limit.column) if limit is not None else None
        if limit is not None and column is not None and column.kind in ("number", "count"):
            curve = _curve(facts, rule, column, limit, select)
            if curve is not None:
                threshold_curves.append(curve)
    return threshold_curves


def stand_ins(facts: TableFacts, rules: Sequence[Condition]) -> int:
    """The number of traces that are kept only because they replace a preferred trace that another rule drops."""
    kept = "SELECT id FROM decisions WHERE kept"
    (count,) = facts.row(f"SELECT count(*) FROM signals SEMI JOIN ({kept}) USING (id) WHERE {dropped(rules)}")
    return int(count)


def without(facts: TableFacts, rules: Sequence[Condition], select: Select) -> list[Without]:
    """For each rule what more would be kept and selected if it were not there."""
    if not rules:
        return []
    passing = [f"single IN ('', {text(rule.name)})" for rule in rules]
    kept = _kept(facts, ["single = ''", *passing], "true")
    selected = _selected(facts, ["single = ''", *passing], "single IS NOT NULL", select)
    return [
        Without(
            rule=rule.name,
            kept=kept[position] - kept[0],
            selected=None if selected is None else selected[position] - selected[0],
        )
        for position, rule in enumerate(rules, 1)
    ]


def _curve(
    facts: TableFacts, rule: Condition, column: Column, limit: Threshold, select: Select
) -> ThresholdCurve | None:
    pool = f"single IN ('', {text(rule.name)})"
    up = limit.operator.startswith(">")
    quantiles = [share if up else 1 - share for share in _QUANTILES]
    passing, low, high, min_value, max_value, quantile_values = facts.row(
        f"""SELECT count(*), quantile_cont({column.sql}, 0.005) FILTER ({column.finite}),
            quantile_cont({column.sql}, 0.995) FILTER ({column.finite}),
            min({column.sql}) FILTER ({column.finite}), max({column.sql}) FILTER ({column.finite}),
            quantile_cont({column.sql}, {quantiles}) FILTER ({column.finite}) FROM page WHERE {pool}"""
    )
    if not passing or low is None or not math.isfinite(limit.number):
        return None
    whole = column.kind == "count"
    if low == high or not (math.isfinite(low) and math.isfinite(high)):
        low, high = min_value, max_value
    # Between two of the largest numbers a quantile may be no number.
    quantile_values = list(filter(math.isfinite, quantile_values))
    low, high = min(low, limit.number), max(high, limit.number)
    table = sorted({limit.number, *(_round(number, up=up, whole=whole) for number in quantile_values)})
    points = sorted({*_points(low, high, whole), *(number for number in table if low <= number <= high)})
    numbers = [limit.number, *table, *points]
    kept = _kept(facts, [_passes(column, limit.operator, number) for number in numbers], pool)
    selected = _selected(facts, [_passes(column, limit.operator, number) for number in table], pool, select)
    return ThresholdCurve(
        rule=rule.name,
        column=column,
        operator=limit.operator,
        number=limit.number,
        points=list(zip(points, kept[1 + len(table) :], strict=True)),
        table=[
            ThresholdStep(
                number=number,
                kept=count,
                change=count - kept[0],
                selected=None if selected is None else selected[index],
                present=number == limit.number,
            )
            for index, (number, count) in enumerate(zip(table, kept[1 : 1 + len(table)], strict=True))
        ],
        passing=passing,
    )


def _passes(column: Column, operator: str, number: float) -> str:
    return f"NOT coalesce({column.sql} {operator} {number!r}, false)"


def _kept(facts: TableFacts, conditions: Sequence[str], where: str) -> list[int]:
    counted = ", ".join(f"count(*) FILTER ({condition})" for condition in conditions)
    return list(facts.row(f"SELECT {counted} FROM page WHERE {where}"))


def _selected(facts: TableFacts, conditions: Sequence[str], where: str, select: Select) -> list[int] | None:
    """How many would be selected of the traces that meet each condition."""
    if select.mix:
        return None
    count = len(conditions)
    counted = ", ".join(f"count(*) FILTER ({condition}) AS n{index}" for index, condition in enumerate(conditions))
    # By the hash: as good a group as the id itself, and a number.
    query = f"SELECT hash(sample_id) AS question, teacher, {counted} FROM page WHERE {where} GROUP BY 1, 2"
    by_teacher = ", ".join(f"sum({_limited(f'n{index}', select.per_teacher)}) AS n{index}" for index in range(count))
    query = f"SELECT question, {by_teacher} FROM ({query}) GROUP BY 1"
    total = ", ".join(f"sum({_limited(f'n{index}', select.per_question)})" for index in range(count))
    totals = facts.row(f"SELECT {total} FROM ({query})")
    return [min(int(number or 0), math.inf if select.limit is None else select.limit) for number in totals]  # type: ignore[misc]


def _limited(name: str, limit: int | None) -> str:
    return name if limit is None else f"least({name}, {limit})"


def _points(low: float, high: float, whole: bool) -> list[float]:
    """Evenly spaced thresholds."""
    if whole and high - low <= _POINTS:
        return [float(number) for number in range(math.floor(low), math.ceil(high) + 1)]
    half_step = (high / 2 - low / 2) / _POINTS  # halves: a whole span may be no number
    points = [2 * (low / 2 + index * half_step) for index in range(_POINTS)] + [high]
    return [float(round(point)) for point in points] if whole else points


def _round(number: float, *, up: bool, whole: bool) -> float:
    """A threshold with two digits, rounded to the side that does not drop more."""
    round_side = math.ceil if up else math.floor
    if whole:
        return float(round_side(number))
    if number == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(number))) - 1)
    if not unit:  # it is the smallest of all numbers
        return number
    rounded = float(f"{round_side(number / unit - (1e-9 if up else -1e-9)) * unit:.6g}")
    return rounded if math.isfinite(rounded) else number
