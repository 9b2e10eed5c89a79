"""The result of every comparison of two answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareResult:
    """The outcome of one comparison. `can_be_mathematics`: ask the symbolic voter too."""

    verdict: str
    reason: str
    relative_error: float | None = None
    can_be_mathematics: bool = False


def correct(reason: str) -> CompareResult:
    return CompareResult(verdict="correct", reason=reason)


def wrong(reason: str) -> CompareResult:
    return CompareResult(verdict="wrong", reason=reason)


def undecided(reason: str) -> CompareResult:
    return CompareResult(verdict="undecided", reason=reason)
