"""Distributions on the report page: every measured number, for kept and for dropped traces.

Bars are counted in the database; only edges and counts come out of it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from distill.reports import html
from filters.report.table import Column, TableFacts

_BINS = 24
_NUMBERS = ("number", "count")
_COLUMNS_AT_ONCE = 4
"""Columns of a query: a quantile holds all values of its column, and each query takes 2 ms at the least."""
_DRAWN = 1e300
"""Numbers beyond it are in the outer bars: differences of the largest ones are no numbers."""
KEPT = "CASE WHEN kept THEN 'kept' ELSE 'dropped' END"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A column's bars. `kept` and `dropped` are shares of their own group, of the highest of all bars."""

    column: Column
    kept: list[html.Bin]
    dropped: list[html.Bin]
    medians: dict[str, float]
    counts: dict[str, int]
    clipped: bool
    """Whether the outer bars hold values from beyond the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributions:
    overlays: list[Overlay]
    constant: list[tuple[str, float]]
    """Columns with one and the same value on all traces."""
    flags: list[dict[str, Any]]


def measure(facts: TableFacts) -> Distributions:
    overlays, constant = [], []
    numbers = [column for column in facts.columns.values() if column.kind in _NUMBERS]
    for column, summary in _summaries(facts, numbers, KEPT):
        overlay = _overlay(facts, column, summary)
        if isinstance(overlay, Overlay):
            overlays.append(overlay)
        elif overlay is not None:
            constant.append((column.name, overlay))
    return Distributions(overlays=overlays, constant=constant, flags=_flags(facts))


def groups(
    facts: TableFacts, column: Column, group: str, where: str = "true", *, bins: int = _BINS
) -> dict[str, tuple[list[html.Bin], int, float]]:
    """Bars, number of values and median of a column by group, on one axis for all."""
    ((_, summary),) = _summaries(facts, [column], group, where)
    if not summary:
        return {}
    low, high = _range(summary)
    counted = _binned(facts, column, group, where, low, high, bins)
    return {
        name: (_bins(counts, edges, max(counts)), count, middle)
        for name, (count, middle, *_) in summary.items()
        for counts, edges in [counted[name]]
    }


def _overlay(facts: TableFacts, column: Column, summary: "Summary") -> Overlay | float | None:
    if not summary:
        return None
    min_value, max_value = min(row[4] for row in summary.values()), max(row[5] for row in summary.values())
    if min_value == max_value:
        return float(min_value)
    low, high = _range(summary)
    counted = _binned(facts, column, KEPT, "true", low, high, _BINS)
    highest = max(count / sum(counts) for counts, _ in counted.values() for count in counts)
    bars = {name: _bins(counts, edges, highest * sum(counts)) for name, (counts, edges) in counted.items()}
    return Overlay(
        column=column,
        kept=bars.get("kept", []),
        dropped=bars.get("dropped", []),
        medians={name: row[1] for name, row in summary.items()},
        counts={name: row[0] for name, row in summary.items()},
        clipped=low > min_value or high < max_value,
    )


Summary = dict[str, tuple[int, float, float, float, float, float]]
"""For each group: number of values, median, 1 % and 99 % quantile, minimum and maximum."""


def _summaries(
    facts: TableFacts, columns: Sequence[Column], group: str, where: str = "true"
) -> Iterator[tuple[Column, Summary]]:
    """Each column with its summary."""
    for start in range(0, len(columns), _COLUMNS_AT_ONCE):
        some = columns[start : start + _COLUMNS_AT_ONCE]
        drawn = ", ".join(f"CASE WHEN {column.finite} THEN {column.sql} END AS {column.sql}" for column in some)
        counted = ", ".join(
            f"count({name}), quantile_cont({name}, [0.5, 0.01, 0.99]), min({name}), max({name})"
            for name in (column.sql for column in some)
        )
        rows = facts.rows(
            f"""SELECT the_group, {counted} FROM (SELECT {group} AS the_group, {drawn} FROM page WHERE {where})
            GROUP BY 1 ORDER BY 1"""
        )
        for number, column in enumerate(some):
            parts = {name: values[4 * number : 4 * number + 4] for name, *values in rows}
            yield (
                column,
                {
                    name: (count, *quantiles, min_value, max_value)
                    for name, (count, quantiles, min_value, max_value) in parts.items()
                    if count
                },
            )


def _range(summary: Summary) -> tuple[float, float]:
    """Where nearly all values lie; a column that is nearly always the same shows its rare values instead."""
    low, high = min(row[2] for row in summary.values()), max(row[3] for row in summary.values())
    if low == high or not (math.isfinite(low) and math.isfinite(high)):
        low, high = min(row[4] for row in summary.values()), max(row[5] for row in summary.values())
    return max(float(low), -_DRAWN), min(float(high), _DRAWN)


Counted = tuple[list[int], tuple[float, float]]


def _binned(
    facts: TableFacts, column: Column, group: str, where: str, low: float, high: float, bins: int
) -> dict[str, Counted]:
    start, width, bin_count = html.edges(low, high, bins, whole=column.kind == "count")
    if column.kind == "number":  # the greatest value belongs to the last bar, as in a share of 0 to 1
        bin_count = max(1, math.ceil((high - start) / width - 1e-9))
    # 1e-9: a value on an edge, such as 0.3 at a width of 0.1, belongs to the bar that begins there.
    bin_sql = f"least({bin_count - 1}, greatest(0, floor(({column.sql} - {start!r}) / {width!r} + 1e-9)))::INTEGER"
    rows = facts.rows(
        f"""SELECT {group}, {bin_sql}, count(*) FROM page WHERE {column.finite} AND ({where}) GROUP BY 1, 2"""
    )
    counted: dict[str, Counted] = {}
    for name, bin_number, count in rows:
        counted.setdefault(name, ([0] * bin_count, (start, width)))[0][bin_number] = count
    return counted


def _bins(counts: Sequence[int], edges: tuple[float, float], highest: float) -> list[html.Bin]:
    start, width = edges
    return [
        html.Bin(low=start + index * width, high=start + (index + 1) * width, count=count, share=count / highest)
        for index, count in enumerate(counts)
    ]


def _flags(facts: TableFacts) -> list[dict[str, Any]]:
    """For each measured flag: on how many traces, and how often it is true among the kept and the dropped."""
    columns = [column for column in facts.columns.values() if column.kind == "flag"]
    counted = ", ".join(
        f"count({name}), avg({name}::INTEGER) FILTER (kept), avg({name}::INTEGER) FILTER (NOT kept)"
        for name in (column.sql for column in columns)
    )
    values = facts.row(f"SELECT {counted} FROM page") if columns else ()
    return [
        {"column": column, "count": count, "kept": kept, "dropped": dropped}
        for column, count, kept, dropped in zip(columns, values[::3], values[1::3], values[2::3], strict=True)
        if count
    ]
