"""The result of every comparison of two answers."""

from dataclasses import dataclass
from functools import partial
from typing import Final


@dataclass(frozen=True, slots=True)
class CompareResult:
    """The outcome of one comparison. `can_be_mathematics`: ask the symbolic voter too."""

    verdict: str
    reason: str
    relative_error: float | None = None
    can_be_mathematics: bool = False


correct: Final = partial(CompareResult, "correct")
wrong: Final = partial(CompareResult, "wrong")
undecided: Final = partial(CompareResult, "undecided")
