"""What `distill.grounding.check` finds: the numbers and labels of a rationale without support, and why they have
none."""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["reading", "label", "value", "arithmetic", "result"]
"""reading: the table says otherwise for this label or extreme. label: the table has no such label. value: from
nowhere. arithmetic: written out and does not come out. result: not what the words announce."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    value: str
    """The number as written, with its label where it is said of one."""
    reason: Reason
    expected: tuple[float, ...] = ()
    """What the table says instead, where it says anything."""
    context: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingResult:
    checked: int
    """Numbers and strange labels that were judged."""
    unsupported: tuple[Unsupported, ...] = ()
    """The first of them, as many as were asked for."""
    count: int = 0
    """How many are unsupported in all."""
    complete: bool = True
    """False for a text of more numbers and labels than are judged: nothing of it was."""
