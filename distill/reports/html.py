"""Report pages: one self-contained HTML file each, for light and dark, wide and narrow screens.

Everything is inline: styles, images, charts drawn as SVG, and at most one small script that filters what is there
already. Nothing is fetched, which each page's content security policy states, so a page can be mailed and opened
years later. Templates lie in `distill/templates`; every value is escaped. Which facts a page shows is the business of
the stage that writes it.
"""

import base64
import hashlib
import io
import math
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from distill.artifacts.files import write_text
from distill.artifacts.layout import ABLATE, PAGES, REPORT, ROUNDS, VALIDATION_PAGE, by_number, stage_folders
from distill.errors import ImageError
from distill.recipe.sections.data import MAX_PIXELS
from distill.reports.bidi import isolated, without_controls
from distill.types import Sample
from distill.word_tables import counted

IMAGE_SIDE = 384
"""Larger images are scaled down to this many pixels a side: a page is read, not measured."""
_ENLARGED_SIDE, MAX_ENLARGEMENT = 256, 8
"""An image that fits into this side several times is shown enlarged, its pixels kept sharp."""
_NICE_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageImage:
    """An image ready to be shown: its data URI and its size on the page in CSS pixels."""

    uri: str
    width: int
    height: int
    pixelated: bool = False
    full: int = 0
    """Width when it is opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar of a histogram: values from `low` up to, not including, `high` (the last one included)."""

    low: float
    high: float
    count: int
    share: float
    """Share of the highest bar, 0 to 1."""


def render(template: str, **context: object) -> str:
    """A whole page from a template's name (`filter_report.html`) or from template text."""
    environment = _environment()
    is_file_name = template.endswith(".html") and "\n" not in template
    page = environment.get_template(template) if is_file_name else environment.from_string(template)
    return page.render(context)


def other_pages(page: Path, run: Path) -> list[tuple[str, str]]:
    """Name and relative address of the page that links all pages of a run, and of each other page that it has now.

    A page is not written again when a later one appears, because the manifest of its stage has its digest.
    """
    found = [("all pages", run / PAGES), *((name, path) for name, path, _ in _pages(run) if path != page)]
    return [(name, _address(path, page.parent)) for name, path in found]


def write_page(path: Path, run: Path, text: str) -> None:
    """Write a page of a run, and again the page that links all of them."""
    write_text(path, text)
    write_links(run)


def write_links(run: Path) -> None:
    """Write the page that links all pages of a run, if there is one."""
    pages = [(name, _address(path, run), about) for name, path, about in _pages(run)]
    if pages:
        write_text(
            run / PAGES, render("pages.html", title=f"{_run_name(run.resolve())}: pages of the run", pages=pages)
        )


def _run_name(run: Path) -> str:
    """The name of the folder of a run; of a round also the run that it belongs to."""
    return f"{run.parents[1].name}, round {run.name}" if run.parent.name == ROUNDS else run.name


def _pages(run: Path) -> list[tuple[str, Path, str]]:
    """Name, path and subject of each page of a run, in the order of its stages."""
    rounds = sorted((run / ROUNDS).glob(f"[1-9]*/{PAGES}"), key=by_number)
    found = [
        ("filter", run / "filter" / REPORT, "traces of the teachers, and which of them are selected"),
        *(
            (f"train, {folder.name}", folder / VALIDATION_PAGE, "measurements while the stage trains")
            for folder in stage_folders(run)
        ),
        ("eval", run / "eval" / REPORT, "what the student learned"),
        *((f"round {path.parent.name}", path, "the pages of the round") for path in rounds),
        ("ablate", run / ABLATE / REPORT, "what made the difference"),
    ]
    return [page for page in found if page[1].is_file()]


def _address(path: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(path, folder)).as_posix())


def data_uri(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def page_image(
    data: bytes, *, max_pixels: int = MAX_PIXELS, side: int = IMAGE_SIDE, full: int | None = None
) -> PageImage:
    """Encoded bytes as an image of at most `side` pixels; tiny ones are enlarged. Raises ImageError.

    `full`: most pixels that are stored, for a reader who opens it; default: `side`.
    """
    from distill.data.images import image_files

    decoded = image_files.decode(data, max_pixels=max_pixels)
    full = full or side
    if max(decoded.size) > full:
        decoded.thumbnail((full, full))
        buffer = io.BytesIO()
        decoded.save(buffer, "JPEG", quality=82, optimize=True)
        data, mime = buffer.getvalue(), "image/jpeg"
    else:
        data, mime = image_files.portable(data, max_pixels=max_pixels)
    width, height = decoded.size
    longest = max(width, height)
    scale = min(side / longest, MAX_ENLARGEMENT, max(1, _ENLARGED_SIDE // longest))
    return PageImage(
        uri=data_uri(data, mime),
        width=max(1, round(width * scale)),
        height=max(1, round(height * scale)),
        pixelated=scale > 1,
        full=width,
    )


def page_images(sample: Sample, *, max_pixels: int, side: int) -> list[PageImage]:
    """The images of a sample that can still be read; a page is no reason to fail."""
    from distill.data.images import image_files

    page_images = []
    for ref in sample.images:
        try:
            page_images.append(page_image(image_files.read_bytes(ref), max_pixels=max_pixels, side=side))
        except ImageError:
            continue
    return page_images


def edges(low: float, high: float, bins: int, *, whole: bool = False) -> tuple[float, float, int]:
    """First edge, width and number of round bars, some `bins` of them; `whole`: no narrower than 1."""
    width = nice(max((high - low) / bins, 1e-300) if high > low else 1)
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
    environment.filters.update(
        count="{:,.0f}".format, counted=counted, percent=percent, plain=_plain, digest=_digest, slug=_slug
    )
    return environment


def percent(share: float, digits: int = 1) -> str:
    """A share in percent, which is 0 or 100 only where the share is."""
    rounded, least = f"{100 * share:.{digits}f}", 10.0**-digits
    if share > 0 and not float(rounded):
        return f"under {least:.{digits}f} %"
    return f"over {100 - least:.{digits}f} %" if share < 1 and float(rounded) == 100 else f"{rounded} %"


def _digest(code: str) -> str:
    """The SHA-256 of a script as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def _slug(name: str) -> str:
    """A name as part of an element's id; names of a recipe stay as they are, so that no two are one."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-")


def _plain(value: object) -> str:
    """A measured value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return "not measured" if value is None else str(value)
