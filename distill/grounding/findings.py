"""The results of `distill.grounding.check`: unsupported numbers and labels of a rationale, with the reasons."""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["reading", "label", "value", "arithmetic", "result"]
"""reading: the table has another value for this label or extreme. label: the table has no such label. value: it has
no source. arithmetic: written arithmetic with a wrong result. result: not the result that the words announce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    value: str
    """The number as written, with its label if it has one."""
    reason: Reason
    expected: tuple[float, ...] = ()
    """The values of the table instead, if it has any."""
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingResult:
    checked: int
    """Numbers and strange labels that were judged."""
    unsupported: tuple[Unsupported, ...] = ()
    """The first of them, at most `max_items`."""
    count: int = 0
    """How many are unsupported in all."""
    supported: tuple[tuple[int, int], ...] = ()
    """Where the supported numbers stand in the text: first character, and the one after the last."""
    complete: bool = True
    """False for a text with too many numbers and labels: none of them was checked."""
