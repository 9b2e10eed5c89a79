"""Tables as plain text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Plain aligned columns: the first one to the left, the others to the right."""
    lines = [tuple(str(cell) for cell in row) for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
    return "\n".join(line.rstrip() for line in [text[0], "  ".join("-" * width for width in widths), *text[1:]])


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


def time_span(seconds: float) -> str:
    """Seconds, minutes or hours, in two digits or so."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if hours < 2 else f"{hours:.1f} h" if hours < 20 else f"{hours:,.0f} h"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, in the singular for one."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
