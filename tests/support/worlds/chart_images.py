"""Charts drawn from a table, copies of them (re-saved, resized), and charts that differ in one small thing.

Shared by the tests and benchmarks/filter/image_copies.py. A copy shows the same chart; an edited one differs
in what a
question may ask about: a title, a value, one digit of a label, a colour, the order of two bars.
"""

import io
import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

KINDS = ("bar", "stacked", "line", "pie", "scatter", "table")
EDITS = ("title", "letter", "value", "digit", "colour", "swap")
FILTERS = {
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
COLOURS = (
    *((31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189), (140, 86, 75)),
    *((227, 119, 194), (127, 127, 127), (188, 189, 34), (23, 190, 207), (58, 71, 132), (240, 200, 80)),
)
SIZES = ((320, 240), (400, 300), (480, 360), (640, 480), (720, 440), (800, 600))
WORDS = (
    *("Revenue", "Population", "Rainfall", "Exports", "Visitors", "Energy", "Wheat", "Output", "Demand", "Profit"),
    *("North", "South", "East", "West", "Urban", "Rural", "Spring", "Summer", "Autumn", "Winter", "Kenya", "Peru"),
    *("Japan", "Italy", "Chile", "Ghana", "Steel", "Paper", "Sugar", "Cotton", "Coal", "Solar", "Wind", "Hydro"),
)

Generator = np.random.Generator
Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """All that is drawn. Values lie between 0 and 100, which is the whole axis."""

    kind: str
    title: str
    labels: tuple[str, ...]
    values: tuple[float, ...]
    second: tuple[float, ...]
    names: tuple[str, str]
    colours: tuple[Colour, ...]
    size: tuple[int, int]
    font: int
    grid: bool
    written: bool
    smooth: bool
    dark: bool


def imagine(rng: Generator, kind: str | None = None, size: tuple[int, int] | None = None) -> Chart:
    """A random chart; what is written is at least 10 pixels high."""
    kind = kind or str(rng.choice(KINDS))
    size = size or SIZES[int(rng.integers(len(SIZES)))]
    count = int(rng.integers(3, 9))
    words = [str(word) for word in rng.choice(WORDS, size=count + 5, replace=False)]
    shares = 5 + rng.dirichlet(np.ones(count)) * (95 - 5 * count)
    return Chart(
        kind=kind,
        title=f"{words[0]} of {words[1]}, {rng.integers(1950, 2025)}",
        labels=tuple(words[2 : 2 + count]),
        values=tuple(round(float(value), 1) for value in (shares if kind == "pie" else rng.uniform(8, 92, count))),
        second=tuple(round(float(value), 1) for value in rng.uniform(8, 92, count)),
        names=(words[-2], words[-1]),
        colours=tuple(COLOURS[index] for index in rng.choice(len(COLOURS), size=count, replace=False)),
        size=size,
        font=int(rng.integers(max(10, size[1] // 36), max(12, size[1] // 26) + 1)),
        grid=bool(rng.random() < 0.5),
        written=bool(rng.random() < 0.5),
        smooth=bool(rng.random() < 0.6),
        dark=bool(rng.random() < 0.15),
    )


def edit(chart: Chart, what: str, rng: Generator) -> Chart:
    """The chart with one thing changed, the smallest such change that is meant to be seen."""
    free = len(chart.labels) - (chart.kind == "pie")  # the last slice follows from the others
    index = int(rng.integers(free))
    if what == "title":
        year = int(chart.title[-4:])
        word = chart.title.split()[0]
        other = str(rng.choice([name for name in WORDS if name not in chart.title]))
        title = f"{chart.title[:-4]}{year + 1}" if rng.random() < 0.5 else chart.title.replace(word, other)
        return replace(chart, title=title)
    if what == "letter":
        label = chart.labels[index]
        place = int(rng.integers(1, len(label)))
        letter = str(rng.choice([letter for letter in "aeimnorstu" if letter != label[place]]))
        return _with(chart, "labels", index, label[:place] + letter + label[place + 1 :])
    if what == "value":
        step = float(rng.uniform(1, 2)) * (1 if rng.random() < 0.5 else -1)
        return _with(replace(chart, written=False), "values", index, round(chart.values[index] + step, 1))
    if what == "colour":
        other = tuple(colour for colour in COLOURS if colour not in chart.colours)
        new = tuple(int(part) for part in other[int(rng.integers(len(other)))])
        return _with(chart, "colours", 0, new)
    first, second = sorted(int(place) for place in rng.choice(free, size=2, replace=False))
    values = list(chart.values)
    if abs(values[first] - values[second]) < 2:
        values[first] = values[second] + 2
    values[first], values[second] = values[second], values[first]
    return replace(chart, values=tuple(values))


def pair(
    rng: Generator, what: str, kind: str | None = None, size: tuple[int, int] | None = None
) -> tuple[Chart, Chart]:
    """Two charts that differ in `what` alone."""
    chart = imagine(rng, kind, size)
    if what == "value":  # where the number is not written as well
        chart = replace(chart, written=False)
        return chart, edit(chart, what, rng)
    if what == "digit":
        index = int(rng.integers(len(chart.labels)))
        one, other = (str(digit) for digit in rng.choice(10, size=2, replace=False))
        stem = str(rng.integers(10, 100))
        return _with(chart, "labels", index, stem + one), _with(chart, "labels", index, stem + other)
    return chart, edit(chart, what, rng)


def _with(chart: Chart, field: str, index: int, value: object) -> Chart:
    items = list(getattr(chart, field))
    items[index] = value
    return replace(chart, **{field: tuple(items)})


def paint(chart: Chart) -> Image.Image:
    """The chart as Pillow draws it: lines and areas smooth or stepped, writing always smooth."""
    scale = 3 if chart.smooth else 1
    width, height = chart.size
    paper, ink = ((24, 26, 32), (225, 225, 225)) if chart.dark else ((255, 255, 255), (30, 30, 30))
    image = Image.new("RGB", (width * scale, height * scale), paper)
    frame = (3.2 * chart.font, 2.6 * chart.font, width - 7.5 * chart.font, height - 2.4 * chart.font)
    pen = ImageDraw.Draw(image)
    if chart.kind != "table":
        _SHAPES[chart.kind](chart, pen, frame, scale, ink)
    if chart.smooth:
        image = image.resize(chart.size, Image.Resampling.BOX)
    _write(chart, ImageDraw.Draw(image), frame, ink)
    return image


_Frame = tuple[float, float, float, float]


def _scaled(scale: int, *numbers: float) -> tuple[int, ...]:
    return tuple(round(number * scale) for number in numbers)


def _axes(chart: Chart, pen: ImageDraw.ImageDraw, frame: _Frame, scale: int, ink: Colour) -> None:
    left, top, right, bottom = frame
    if chart.grid:
        for part in range(1, 5):
            y = bottom - (bottom - top) * part / 5
            pen.line(_scaled(scale, left, y, right, y), fill=(128, 128, 128), width=1)
    pen.line(_scaled(scale, left, top, left, bottom), fill=ink, width=scale)
    pen.line(_scaled(scale, left, bottom, right, bottom), fill=ink, width=scale)


def _bars(chart: Chart, pen: ImageDraw.ImageDraw, frame: _Frame, scale: int, ink: Colour) -> None:
    _axes(chart, pen, frame, scale, ink)
    left, top, right, bottom = frame
    step, unit = (right - left) / len(chart.values), (bottom - top) / 100
    for index, value in enumerate(chart.values):
        x = left + step * (index + 0.15)
        y = bottom - value * unit
        pen.rectangle(_scaled(scale, x, y, x + step * 0.7, bottom), fill=chart.colours[index])


def _stacked(chart: Chart, pen: ImageDraw.ImageDraw, frame: _Frame, scale: int, ink: Colour) -> None:
    _axes(chart, pen, frame, scale, ink)
    left, top, right, bottom = frame
    step, unit = (right - left) / len(chart.values), (bottom - top) / 200
    for index, (value, second) in enumerate(zip(chart.values, chart.second, strict=True)):
        x = left + step * (index + 0.15)
        middle = bottom - value * unit * 1.0
        pen.rectangle(_scaled(scale, x, middle, x + step * 0.7, bottom), fill=chart.colours[0])
        pen.rectangle(_scaled(scale, x, middle - second * unit, x + step * 0.7, middle), fill=chart.colours[1])


def _points(chart: Chart, frame: _Frame) -> list[list[tuple[float, float]]]:
    left, top, right, bottom = frame
    step, unit = (right - left) / len(chart.values), (bottom - top) / 100
    return [
        [(left + step * (index + 0.5), bottom - value * unit) for index, value in enumerate(values)]
        for values in (chart.values, chart.second)
    ]


def _lines(chart: Chart, pen: ImageDraw.ImageDraw, frame: _Frame, scale: int, ink: Colour) -> None:
    _axes(chart, pen, frame, scale, ink)
    for line, colour in zip(_points(chart, frame), chart.colours, strict=False):
        pen.line([_scaled(scale, *point) for point in line], fill=colour, width=2 * scale)


def _scatter(chart: Chart, pen: ImageDraw.ImageDraw, frame: _Frame, scale: int, ink: Colour) -> None:
    _axes(chart, pen, frame, scale, ink)
    radius = max(3.0, chart.size[1] / 100)
    for line, colour in zip(_points(chart, frame), chart.colours, strict=False):
        for x, y in line:
            pen.ellipse(_scaled(scale, x - radius, y - radius, x + radius, y + radius), fill=colour)


def _pie(chart: Chart, pen: ImageDraw.ImageDraw, frame: _Frame, scale: int, ink: Colour) -> None:
    left, top, right, bottom = frame
    radius = min(right - left, bottom - top) / 2
    x, y = (left + right) / 2, (top + bottom) / 2
    box = _scaled(scale, x - radius, y - radius, x + radius, y + radius)
    angle = -90.0
    for value, colour in zip(_slices(chart), chart.colours, strict=True):
        pen.pieslice(box, angle, angle + value, fill=colour)
        angle += value


def _slices(chart: Chart) -> list[float]:
    """Degrees. A percent of the axis is a percent of the whole pie; the last slice takes what is left."""
    parts = [value * 3.6 for value in chart.values[:-1]]
    return [*parts, 360 - sum(parts)]


_SHAPES = {"bar": _bars, "stacked": _stacked, "line": _lines, "scatter": _scatter, "pie": _pie}


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _write(chart: Chart, pen: ImageDraw.ImageDraw, frame: _Frame, ink: Colour) -> None:
    left, top, right, bottom = frame
    font, size = _font(chart.font), chart.font
    pen.text((chart.size[0] / 2, size * 0.4), chart.title, fill=ink, font=_font(round(size * 1.3)), anchor="ma")
    if chart.kind == "table":
        rows = len(chart.labels) + 1
        step = (bottom - top) / rows
        for row in range(rows + 1):
            pen.line((left, top + row * step, right, top + row * step), fill=(128, 128, 128))
        cells = [("", *chart.names)] + [
            (label, f"{value:.1f}", f"{second:.1f}")
            for label, value, second in zip(chart.labels, chart.values, chart.second, strict=True)
        ]
        for row, texts in enumerate(cells):
            for column, text in enumerate(texts):
                x = left + (right - left) * (0.02 + column / 3)
                pen.text((x, top + (row + 0.5) * step), text, fill=ink, font=font, anchor="lm")
        return
    if chart.kind != "pie":
        for part in range(0, 6):
            number = f"{part * (40 if chart.kind == 'stacked' else 20)}"
            pen.text((left - 4, bottom - (bottom - top) * part / 5), number, fill=ink, font=font, anchor="rm")
        step = (right - left) / len(chart.labels)
        for index, label in enumerate(chart.labels):
            x = left + step * (index + 0.5)
            shift = (index % 2) * size * 1.05
            pen.text((x, bottom + 2 + shift), label, fill=ink, font=font, anchor="ma")
            if chart.written and chart.kind == "bar":
                y = bottom - chart.values[index] * (bottom - top) / 100
                pen.text((x, y - 2), f"{chart.values[index]:.1f}", fill=ink, font=font, anchor="mb")
    names = chart.labels if chart.kind == "pie" else chart.names if chart.kind != "bar" else ()
    for index, name in enumerate(names):
        y = top + index * size * 1.6
        pen.rectangle((right + size * 0.6, y, right + size * 1.6, y + size), fill=chart.colours[index])
        pen.text((right + size * 1.9, y + size / 2), name, fill=ink, font=font, anchor="lm")


# Copies.


def png(image: Image.Image) -> bytes:
    return _saved(image, "PNG", compress_level=1)


def jpeg(image: Image.Image, quality: int, **options: int | bool) -> bytes:
    return _saved(image, "JPEG", quality=quality, **options)


def webp(image: Image.Image, quality: int, *, lossless: bool = False) -> bytes:
    return _saved(image, "WEBP", quality=quality, lossless=lossless, method=2)


def _saved(image: Image.Image, form: str, **options: int | bool) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def resized(image: Image.Image, factor: float, how: str) -> Image.Image:
    size = max(1, round(image.width * factor)), max(1, round(image.height * factor))
    return image.resize(size, FILTERS[how])


def drifted(image: Image.Image, rng: Generator) -> Image.Image:
    """Colours as another colour profile shows them: each channel a little stronger or weaker, greys hardly moved."""
    gains = rng.uniform(0.985, 1.015, 3)
    noise = rng.normal(0, 1.0, (image.height, image.width, 1))
    values = np.asarray(image, dtype=np.float64) * gains + noise
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


def resaved(image: Image.Image, rng: Generator, *, low: int = 50) -> tuple[bytes, str]:
    """Another encoding of the same pixels, and its name."""
    how = str(rng.choice(["jpeg", "jpeg", "jpeg", "webp", "png"]))
    if how == "jpeg":
        quality, chroma = int(rng.integers(low, 96)), int(rng.integers(3))
        return jpeg(image, quality, subsampling=chroma, progressive=bool(rng.random() < 0.3)), "jpeg"
    if how == "webp":
        if rng.random() < 0.3:
            return webp(image, 60, lossless=True), "webp lossless"
        return webp(image, int(rng.integers(max(low, 60), 96))), "webp"
    if rng.random() < 0.5:
        return png(image.convert("RGBA")), "png"
    return _saved(image, "PNG", optimize=True), "png"


def factor(rng: Generator, low: float = 0.4, high: float = 2.0) -> float:
    return float(math.exp(rng.uniform(math.log(low), math.log(high))))
