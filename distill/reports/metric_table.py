"""The tables of figures of a report page: how each figure is written, and the columns that are no metric of replies.

The columns of metrics follow from their entries (student/inference/reply_metrics.py). Shows the metrics in an arm's
mapping and leaves out the others. Measures nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from distill.reports import plots, text_table
from distill.reports.plots import Estimate, percent

Kind = Literal["share", "tokens", "count", "seconds", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure that an arm may have, under the first of `keys` that is there."""

    label: str
    keys: tuple[str, ...]
    kind: Kind
    note: str = ""


OTHERS: Mapping[str, tuple[Measure, ...]] = {
    "headline": (
        Measure(
            label="without image",
            keys=("without_image", "without_image_accuracy"),
            kind="share",
            note="Accuracy when the same questions are asked without their images: what needs no look.",
        ),
        Measure(label="training tokens", keys=("train_tokens",), kind="count"),
        Measure(label="training seconds", keys=("train_seconds",), kind="count"),
        Measure(
            label="seconds",
            keys=("all_seconds",),
            kind="count",
            note=(
                "Training, plus the scores, replies and new traces that the arm needs in addition to the common "
                "dataset."
            ),
        ),
    ),
    "more": (
        Measure(label="training steps", keys=("train_steps",), kind="count"),
        Measure(
            label="traces",
            keys=("traces",),
            kind="count",
            note="Traces in the data of the stage under study and its rounds; a short stage may not see all.",
        ),
    ),
}
"""Columns that are no metric of replies, by the table of the page that has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCell:
    text: str
    interval: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    measures: tuple[Measure, ...]
    rows: Mapping[str, tuple[MetricCell, ...]]


def table(arms: Mapping[str, Mapping[str, Any]], measures: Sequence[Measure]) -> MetricTable:
    """One column for every measure that some arm has; an empty cell where another has not."""
    shown = tuple(measure for measure in measures if any(value(arm, measure) is not None for arm in arms.values()))
    return MetricTable(
        measures=shown, rows={name: tuple(cell(arm, measure) for measure in shown) for name, arm in arms.items()}
    )


def value(arm: Mapping[str, Any], measure: Measure) -> float | None:
    """The number itself; None where the arm has none."""
    return _number_and_interval(arm, measure)[0]


def cell(arm: Mapping[str, Any], measure: Measure) -> MetricCell:
    number, ends = _number_and_interval(arm, measure)
    if number is None:
        return MetricCell(text="")
    return MetricCell(
        text=write(number, measure.kind), interval=interval(ends) if ends and measure.kind == "share" else ""
    )


def _number_and_interval(arm: Mapping[str, Any], measure: Measure) -> tuple[float | None, Sequence[float] | None]:
    for key in measure.keys:
        entry: Any = arm.get(key)
        ends: Any = arm.get(f"{key}_ci95")
        if isinstance(entry, Mapping):  # the same questions asked in another way
            entry, ends = entry.get("accuracy"), entry.get("ci95")
        if entry is not None and is_number(entry):
            return float(entry), ends_of(ends)
    return None, None


def write(number: float, kind: Kind) -> str:
    if kind == "share":
        return percent(number)
    if kind == "count":
        return f"{number:,.0f}"
    if kind == "tokens":
        return f"{number:,.1f}"
    return f"{number:.3g}"


def interval(ends: Sequence[float], *, signed: bool = False) -> str:
    """[low, high] in percent, with true minus signs."""
    return text_table.interval(ends, signed=signed).replace("-", "−")


def accuracy_estimate(name: str, arm: Mapping[str, Any], reference: str = "") -> Estimate:
    """An arm's accuracy with its interval, and the accuracy of each of its seeds."""
    low, high = arm["ci95"]
    return Estimate(
        label=name,
        value=arm["accuracy"],
        low=low,
        high=high,
        text=f"{percent(arm['accuracy'])} % {interval(arm['ci95'])}",
        dots=tuple(seed["accuracy"] for seed in arm.get("seeds", {}).values()),
        tone="reference" if name == reference else "",
    )


def effect_estimate(label: str, effect: Mapping[str, Any]) -> Estimate:
    """A difference with its interval, and the difference of each of its seeds."""
    low, high = effect["ci95"]
    return Estimate(
        label=label,
        value=effect["delta"],
        low=low,
        high=high,
        text=f"{percent(effect['delta'], signed=True)} {interval(effect['ci95'], signed=True)}",
        dots=tuple(seed["delta"] for seed in effect.get("by_seed", {}).values()),
    )


def heat(arms: Mapping[str, Mapping[str, Any]], key: str) -> plots.Heat | None:
    """Accuracy of every arm in each group, such as the domains; None below two groups."""
    groups = {name: arm.get(key) or {} for name, arm in arms.items()}
    counts = {column: part.get("n") for parts in groups.values() for column, part in parts.items()}
    if len(counts) < 2:
        return None
    cells = {
        name: {
            column: (part["accuracy"], interval(part["ci95"]) if part.get("ci95") else "")
            for column, part in parts.items()
        }
        for name, parts in groups.items()
    }
    return plots.heat(cells, counts)


def ends_of(values: Any) -> tuple[float, float] | None:
    """Both ends of an interval; None for another value."""
    if isinstance(values, Sequence) and len(values) == 2 and all(is_number(end) for end in values):
        return float(values[0]), float(values[1])
    return None


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def probability(p: Any) -> str:
    """A p value as a person writes it."""
    if not is_number(p):
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"
