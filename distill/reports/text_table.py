"""Tables as plain text."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

_LEAST_WIDTH = 16
"""No column is made narrower than this."""
_room: int | None = None
"""The columns of the terminal that gets the tables of this process; None: tables are as wide as they are."""


def fit_terminal() -> None:
    """Make the tables of this process no wider than its terminal, if stdout is one; files and pipes get wide ones."""
    global _room
    _room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, left: bool = False) -> str:
    """Plain aligned columns: the first one to the left, the others to the right, or all to the `left`.

    What is wider than the terminal (`fit_terminal`) gets a narrower widest column, or becomes a list with a line for
    each cell.
    """
    lines = [tuple(str(cell) for cell in row) for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    widest, room = widths.index(max(widths)), _room
    excess = max(0, sum(widths) + 2 * (len(widths) - 1) - room) if room else 0
    words = [len(word) for line in lines for word in line[widest].split()]
    if room and excess and widths[widest] - excess < max(_LEAST_WIDTH, *words):
        return "\n".join(_listed(lines[0], line, room) for line in lines[1:])
    widths[widest] -= excess
    to_left = {0, *([widest] if excess else []), *(range(len(head)) if left else [])}
    aligned = [str.ljust if column in to_left else str.rjust for column in range(len(head))]

    def text(line: Sequence[str]) -> str:
        cells = [
            textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]
            for cell, width in zip(line, widths, strict=True)
        ]
        parts = (zip(aligned, part, widths, strict=True) for part in zip_longest(*cells, fillvalue=""))
        return "\n".join("  ".join(align(cell, width) for align, cell, width in part).rstrip() for part in parts)

    return "\n".join([text(lines[0]), "  ".join("-" * width for width in widths), *map(text, lines[1:])])


def _listed(head: Sequence[str], row: Sequence[str], room: int) -> str:
    """A row of a table as lines of their own, one for each cell that is not empty."""
    named = [f"  {name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell]
    lines = [f"{head[0]}: {row[0]}", *named]
    fill = partial(textwrap.fill, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(fill(line, room) for line in lines)


def percent(share: float, *, signed: bool = False) -> str:
    """A share in percent with one digit, in signs of a keyboard."""
    return f"{100 * share:+.1f}" if signed else f"{100 * share:.1f}"


def interval(ci95: Sequence[float], *, signed: bool = False) -> str:
    """[low, high] in percent."""
    return f"[{percent(ci95[0], signed=signed)}, {percent(ci95[1], signed=signed)}]"


def difference(effect: Mapping[str, Any]) -> str:
    """The points of a difference, with its interval."""
    return f"{percent(effect['delta'], signed=True)} {interval(effect['ci95'], signed=True)}"


_UNITS = {"Z": 1e21, "E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}


def short_number(value: float, *, between: str = " ") -> str:
    """A number in three digits, with the letter of its size."""
    for letter, size in _UNITS.items():
        if value >= 0.9995 * size:
            return f"{value / size:,.3g}{between}{letter}"
    return f"{value:,.0f}"


def byte_size(size: float) -> str:
    """Bytes in MB, or in GB from a tenth of one."""
    return f"{size / 1e9:,.1f} GB" if size >= 5e7 else f"{size / 1e6:,.3g} MB"


def time_span(seconds: float) -> str:
    """Seconds, minutes or hours, in two digits or so."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.1f} h" if hours < 20 else f"{hours:,.0f} h"
