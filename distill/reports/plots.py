"""The geometry of the charts on report pages: values to places in a box, round ticks, shades of a heat map.

Pure: templates/plots.html draws what is worked out here. Places run from 0 to 100 across and from 0 (top) to HEIGHT
down, so that a chart may be stretched to any width.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from distill.reports import text_table
from distill.reports.html import nice

HEIGHT = 40
SHADES = 7
"""Number of shades of a heat map; style.css has as many."""
_TABLE_ROWS = 12
"""Rows of the table beside a chart; the chart shows every point."""
_TICKS = 4
"""Steps of an axis, about."""
_EVEN = 1e-9

Points = Sequence[tuple[float, float]]
Band = Sequence[tuple[float, float, float]]
"""(x, low, high) of an interval along a line."""


@dataclass(frozen=True, slots=True)
class Series:
    """What a chart draws under one name. Points may come in any order; values that are no number are left out."""

    points: Points
    band: Band = ()
    bars: Band = ()
    """Upright intervals at single points."""
    dotted: bool = False
    """Whether the points are drawn without a line."""
    style: int | None = None
    """Number of its colour and marks; by default its place among the series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    place: float
    """0 to 100 from the low end."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    low: float
    high: float
    ticks: tuple[Tick, ...]

    def place(self, value: float) -> float:
        """0 to 100; values beyond the axis are drawn at its end."""
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """A series: name, style number, points of the line, dots and band."""

    name: str
    style: int
    line: str
    dots: str
    band: str
    bars: str
    """Upright intervals at single points."""
    newest: str
    """The last value, as text."""
    label: tuple[float, float] | None = None
    """Where the name stands beside a single point: percent from the left, percent from the bottom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    name: str
    about: str
    x: Axis
    y: Axis
    x_name: str
    lines: tuple[PlotLine, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The points as a table; fewer rows where there are many points."""
    thinned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its interval, and what single seeds found."""

    label: str
    value: float
    low: float
    high: float
    text: str
    dots: tuple[float, ...] = ()
    tone: str = ""
    """"reference" for what the others are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    caption: str
    axis: Axis
    zero: float | None
    """Where no difference lies; None for shares."""
    rows: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    text: str
    detail: str
    shade: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    columns: tuple[str, ...]
    counts: tuple[str, ...]
    """Questions of every column."""
    rows: tuple[tuple[str, tuple[HeatCell | None, ...]], ...]
    low: str
    high: str


def percent(share: float, *, signed: bool = False) -> str:
    """A share in percent with one digit, with a true minus sign."""
    return text_table.percent(share, signed=signed).replace("-", "−")


def number(value: float) -> str:
    """A value as a person writes it, in four digits at most."""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "−")


def axis(low: float, high: float, *, unit: str = "") -> Axis:
    """An axis over at least these values that ends on round numbers. unit: "", "percent" or "points" (signed)."""
    if high - low < _EVEN:
        low, high = low - (abs(low) * 0.05 or 0.5), high + (abs(high) * 0.05 or 0.5)
    step = nice((high - low) / _TICKS)
    first, last = math.floor(low / step + _EVEN), math.ceil(high / step - _EVEN)
    low, high = first * step, last * step
    positions = [index * step for index in range(first, last + 1)]
    return Axis(
        low=low,
        high=high,
        ticks=tuple(
            Tick(place=100 * (position - low) / (high - low), text=_tick(position, unit)) for position in positions
        ),
    )


def _tick(value: float, unit: str) -> str:
    if unit:
        text = f"{100 * value:+.4g}" if unit == "points" else f"{100 * value:.4g}"
        return "0" if abs(value) < _EVEN else text.replace("-", "−")
    return number(0.0 if abs(value) < _EVEN else value)


def chart(
    name: str,
    series: Mapping[str, Series],
    *,
    about: str = "",
    x_name: str = "step",
    unit: str = "",
    table: bool = True,
) -> Chart | None:
    """Lines over one axis; None where there is nothing to draw.

    If every series is one point, names are beside the points. `unit`: of the values, as for `axis`. `table`: the
    values are also in a table beside the chart.
    """
    finite = {key: sorted(_finite(each.points)) for key, each in series.items()}
    finite = {key: points for key, points in finite.items() if points}
    if not finite:
        return None
    drawn = {key: series[key] for key in finite}
    xs = [x for points in finite.values() for x, _ in points]
    ys = [y for points in finite.values() for _, y in points]
    ys += [value for each in drawn.values() for _, *ends in (*each.band, *each.bars) for value in ends]
    across, up = axis(min(xs), max(xs)), axis(min(ys), max(ys), unit=unit)
    across = _tight(across, min(xs), max(xs))

    def place(x: float, y: float) -> str:
        return f"{across.place(x):.2f},{HEIGHT * (1 - up.place(y) / 100):.2f}"

    def say(y: float) -> str:
        return f"{percent(y)} %" if unit == "percent" else number(y)

    order = {key: index for index, key in enumerate(series)}
    scatter = len(finite) > 1 and all(len(points) == 1 for points in finite.values())
    lines = [
        PlotLine(
            name=key,
            style=order[key] if each.style is None else each.style,
            line="" if each.dotted or len(points) == 1 else " ".join(place(x, y) for x, y in points),
            dots=" ".join(f"M{place(x, y)}h0" for x, y in (points if each.dotted or len(points) == 1 else ())),
            band=_band(each.band, place),
            bars=" ".join(f"M{place(x, low)}L{place(x, high)}" for x, low, high in each.bars),
            newest=say(points[-1][1]),
            label=(across.place(points[0][0]), up.place(points[0][1])) if scatter else None,
        )
        for (key, each), points in zip(drawn.items(), finite.values(), strict=True)
    ]
    head, rows, thinned = _table(finite, x_name, say) if table else ((), (), False)
    return Chart(
        name=name,
        about=about,
        x=across,
        y=up,
        x_name=x_name,
        lines=tuple(lines),
        head=head,
        rows=rows,
        thinned=thinned,
    )


def _finite(points: Points) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in points if y is not None and math.isfinite(x) and math.isfinite(y)]


def _tight(full_axis: Axis, low: float, high: float) -> Axis:
    """The axis without the room beyond the first and last value: a line fills its chart."""
    if high - low < _EVEN:
        return full_axis
    width = full_axis.high - full_axis.low
    values = [(full_axis.low + tick.place / 100 * width, tick.text) for tick in full_axis.ticks]
    inner = [
        Tick(place=100 * (value - low) / (high - low), text=text) for value, text in values if low <= value <= high
    ]
    return Axis(low=low, high=high, ticks=tuple(inner))


def _band(band: Band, to_point: Callable[[float, float], str]) -> str:
    upper = [to_point(x, high) for x, _, high in band]
    lower = [to_point(x, low) for x, low, _ in reversed(band)]
    return " ".join(upper + lower)


def _table(
    series: Mapping[str, Points], x_name: str, say: Callable[[float], str]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], bool]:
    values = {key: dict(points) for key, points in series.items()}
    xs = sorted({x for points in series.values() for x, _ in points})
    shown = xs
    if len(xs) > _TABLE_ROWS:
        shown = [xs[round(turn * (len(xs) - 1) / (_TABLE_ROWS - 1))] for turn in range(_TABLE_ROWS)]
    rows = [(number(x), *(say(values[key][x]) if x in values[key] else "" for key in series)) for x in shown]
    return (x_name, *series), tuple(rows), len(shown) < len(xs)


def estimates(caption: str, items: Sequence[Estimate], *, zero: bool) -> Estimates | None:
    """Values with intervals over one axis. `zero`: differences around none; else shares from 0 to 1."""
    if not items:
        return None
    if zero:
        ends = [value for item in items for value in (item.low, item.high, *item.dots)]
        reach = max(0.01, *(abs(end) for end in ends))
        across = axis(-reach if min(ends) < 0 else 0.0, reach if max(ends) > 0 else 0.0, unit="points")
    else:
        across = axis(0.0, 1.0, unit="percent")
    return Estimates(caption=caption, axis=across, zero=across.place(0.0) if zero else None, rows=tuple(items))


def heat(shares: Mapping[str, Mapping[str, tuple[float, str]]], counts: Mapping[str, int | None]) -> Heat | None:
    """Shares by row and column as shaded cells. shares: {row: {column: (share, detail)}}; a missing one stays empty.

    The shades run from the lowest to the highest share of the whole table.
    """
    values = [share for cells in shares.values() for share, _ in cells.values()]
    if not values or not counts:
        return None
    low, high = min(values), max(values)

    def cell(entry: tuple[float, str] | None) -> HeatCell | None:
        if entry is None:
            return None
        share, detail = entry
        level = (share - low) / ((high - low) or 1)
        return HeatCell(text=percent(share), detail=detail, shade=min(SHADES - 1, int(level * SHADES)))

    return Heat(
        columns=tuple(counts),
        counts=tuple("" if count is None else f"{count:,}" for count in counts.values()),
        rows=tuple((name, tuple(cell(cells.get(column)) for column in counts)) for name, cells in shares.items()),
        low=percent(low),
        high=percent(high),
    )
