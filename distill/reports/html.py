"""Report pages: one self-contained HTML file each, for light and dark, wide and narrow screens.

Everything is inline: styles, pictures, charts drawn as SVG, and at most one small script that filters what is there
already. Nothing is fetched, which each page's content security policy states, so a page can be mailed and opened
years later. Templates lie in `distill/templates`; every value is escaped. Which facts a page shows is the business of
the stage that writes it.
"""

import base64
import hashlib
import io
import math
import re
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from distill.bidi import isolated, without_controls
from distill.errors import ImageError
from distill.types import Sample

PICTURE_SIDE = 384
"""Larger pictures are scaled down to this many pixels a side: a page is read, not measured."""
_ENLARGED_SIDE, MAX_ENLARGEMENT = 256, 8
"""A picture that fits into this side several times is shown enlarged, its pixels kept sharp."""
_NICE_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageImage:
    """An image ready to be shown: its data URI and its size on the page in CSS pixels."""

    uri: str
    width: int
    height: int
    pixelated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar of a histogram: values from `low` up to, not including, `high` (the last one included)."""

    low: float
    high: float
    count: int
    share: float
    """Of the highest bar, 0 to 1."""


def render(template: str, **context: object) -> str:
    """A whole page from a template's name (`filter_report.html`) or from template text."""
    environment = _environment()
    is_file_name = template.endswith(".html") and "\n" not in template
    page = environment.get_template(template) if is_file_name else environment.from_string(template)
    return page.render(context)


def data_uri(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def picture(data: bytes, *, max_pixels: int = 50_000_000, side: int = PICTURE_SIDE) -> PageImage:
    """Encoded bytes as a picture of at most `side` pixels; tiny ones are enlarged. Raises ImageError."""
    from distill.data.images import image_files

    decoded = image_files.decode(data, max_pixels=max_pixels)
    width, height = decoded.size
    longest = max(width, height)
    if longest > side:
        decoded.thumbnail((side, side))
        buffer = io.BytesIO()
        decoded.save(buffer, "JPEG", quality=82, optimize=True)
        return PageImage(uri=data_uri(buffer.getvalue(), "image/jpeg"), width=decoded.width, height=decoded.height)
    data, mime = image_files.portable(data, max_pixels=max_pixels)
    scale = min(MAX_ENLARGEMENT, max(1, _ENLARGED_SIDE // longest))
    return PageImage(uri=data_uri(data, mime), width=width * scale, height=height * scale, pixelated=scale > 1)


def pictures(sample: Sample, *, max_pixels: int = 50_000_000, side: int = PICTURE_SIDE) -> list[PageImage]:
    """The pictures of a sample that can still be read; a page is no reason to fail."""
    from distill.data.images import image_files

    page_images = []
    for ref in sample.images:
        try:
            page_images.append(picture(image_files.read_bytes(ref), max_pixels=max_pixels, side=side))
        except ImageError:
            continue
    return page_images


def edges(low: float, high: float, bins: int, *, whole: bool = False) -> tuple[float, float, int]:
    """First edge, width and number of round bars, some `bins` of them; `whole`: no narrower than 1."""
    width = nice((high - low) / bins or 1)
    if whole and (width < 1 or width != round(width)):
        width = max(1.0, float(math.ceil(width)))
    start = math.floor(low / width) * width
    return start, width, max(1, math.floor((high - start) / width) + 1)


def nice(width: float) -> float:
    """The next larger round number: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in _NICE_STEPS if step * power >= width * (1 - 1e-9))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("distill.reports", "templates"),
        autoescape=True,
        finalize=lambda value: isolated(without_controls(value)) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(count="{:,.0f}".format, percent=_percent, plain=_plain, digest=_digest, slug=_slug)
    return environment


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def _digest(code: str) -> str:
    """The SHA-256 of a script as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def _slug(name: str) -> str:
    """A name as part of an element's id."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def _plain(value: object) -> str:
    """A measured value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "not measured" if value is None else str(value)
