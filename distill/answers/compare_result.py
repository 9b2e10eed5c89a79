"""The result of every comparison of two answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareResult:
    """The outcome of one comparison. `can_be_mathematics`: ask the symbolic voter too."""

    verdict: str
    reason: str
    relative_error: float | None = None
    can_be_mathematics: bool = False


def correct(reason: str, relative_error: float | None = None) -> CompareResult:
    return CompareResult(verdict="correct", reason=reason, relative_error=relative_error)


def wrong(reason: str, relative_error: float | None = None, *, can_be_mathematics: bool = False) -> CompareResult:
    return CompareResult(
        verdict="wrong", reason=reason, relative_error=relative_error, can_be_mathematics=can_be_mathematics
    )


def undecided(reason: str, relative_error: float | None = None, *, can_be_mathematics: bool = False) -> CompareResult:
    return CompareResult(
        verdict="undecided", reason=reason, relative_error=relative_error, can_be_mathematics=can_be_mathematics
    )
