"""How many traces of each kind a mix with given shares takes: as many as possible, none repeated.

A kind is a combination of values, one for each mix. Raking (iterative proportional fitting) meets the shares of all
mixes at the same time and keeps the other correlations between kinds. Traces are not selected here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distill.errors import DataError
from distill.recipe.filter import Mix

Kind = tuple[str, ...]
_ROUNDS = 10_000
_CLOSE = 1e-9
_OTHERS = None


def targets(counts: Mapping[Kind, int], mixes: Sequence[Mix], limit: int | None = None) -> dict[Kind, int]:
    """Traces to take of each kind, at most as many as there are, at most `limit` together.

    Raises DataError when shares cannot be met: no trace has a value, or two mixes contradict each other.
    """
    if not any(counts.values()):
        return {}
    kinds, there, share = _shared(counts, mixes)
    total = _largest(there, share)
    return dict(zip(kinds, _rounded(share, min(total, limit or total), there), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scarcest:
    """The kind of which there is too little for its share: it decides how large a mix can be."""

    total: int
    """Traces of the whole mix."""
    kind: str
    there: int
    share: float
    without_share: int
    """Traces of kinds that have no share at all."""

    def __str__(self) -> str:
        others = f"; {self.without_share:,} traces are of kinds without a share" if self.without_share else ""
        return f"of {self.kind} there are {self.there:,} for {100 * self.share:.3g} % of the dataset{others}"


def scarcest(counts: Mapping[Kind, int], mixes: Sequence[Mix]) -> Scarcest:
    """What binds a mix of these kinds, of which there must be some. Raises what `targets` does."""
    kinds, there, share = _shared(counts, mixes)
    wanted = np.flatnonzero(share > 0)
    rows = np.array([wanted[np.argmin(there[wanted] / share[wanted])]])
    kind = ", ".join(f"{mix.by} = {value}" for mix, value in zip(mixes, kinds[rows[0]], strict=True))
    if len(mixes) == 1:
        (mix,) = mixes
        value = _named(kinds[rows[0]][0], mix)
        rows = np.array([row for row, each in enumerate(kinds) if _named(each[0], mix) == value])
        kind = f"{mix.by} = {value}" if value is not _OTHERS else f"{mix.by} without a share of its own"
    return Scarcest(
        total=_largest(there, share),
        kind=kind,
        there=int(there[rows].sum()),
        share=float(share[rows].sum()),
        without_share=int(there[share == 0].sum()),
    )


def _shared(
    counts: Mapping[Kind, int], mixes: Sequence[Mix]
) -> tuple[list[Kind], NDArray[np.float64], NDArray[np.float64]]:
    """The kinds that are there, how many there are of each, and their shares."""
    kinds = sorted(kind for kind, count in counts.items() if count)
    there = np.array([counts[kind] for kind in kinds], np.float64)
    return kinds, there, _raked(kinds, there, mixes)


def _largest(there: NDArray[np.float64], share: NDArray[np.float64]) -> int:
    """The most traces that can be taken in these shares."""
    wanted = share > 0
    return math.floor(float((there[wanted] / share[wanted]).min()) + _CLOSE)


def _raked(kinds: Sequence[Kind], there: NDArray[np.float64], mixes: Sequence[Mix]) -> NDArray[np.float64]:
    """The share of each kind, as close to its natural one as the mixes allow."""
    share: NDArray[np.float64] = there / there.sum()
    groups = [_groups(kinds, position, mix) for position, mix in enumerate(mixes)]
    for _ in range(_ROUNDS):
        before = share.copy()
        for rows, wanted in (pair for found in groups for pair in found):
            has = share[rows].sum()
            share[rows] *= wanted / has if has else 0.0
        if np.abs(share - before).max() < _CLOSE:
            break
    if any(abs(share[rows].sum() - wanted) > 1e-6 for found in groups for rows, wanted in found):
        raise DataError(
            f"filter.select.mix: the shares of {' and '.join(mix.by for mix in mixes)} cannot be met together by the "
            "traces that were kept; loosen one of them, or the rules"
        )
    return share


def _groups(kinds: Sequence[Kind], position: int, mix: Mix) -> list[tuple[NDArray[np.int64], float]]:
    """Of one mix: the rows of each value that has a share, and of all other values, with what they shall have."""
    values = [kind[position] for kind in kinds]
    rest = 1 - sum(mix.shares.values())
    wanted = [*mix.shares.items(), (_OTHERS, rest if rest > _CLOSE else 0.0)]
    found = []
    for value, share in wanted:
        rows = np.array([row for row, own in enumerate(values) if _named(own, mix) == value], np.int64)
        if share and not len(rows):
            what = f"{value!r}" if value is not _OTHERS else "a value without a share of its own"
            raise DataError(
                f"filter.select.mix: {mix.by} shall be {what} in {100 * share:g} % of the dataset, but of no trace "
                f"that was kept is it (there: {', '.join(sorted(set(values))[:20])}); change the shares or the rules"
            )
        found.append((rows, share))
    return found


def _named(value: str, mix: Mix) -> str | None:
    return value if value in mix.shares else _OTHERS


def _rounded(share: NDArray[np.float64], total: int, there: NDArray[np.float64]) -> list[int]:
    """Whole numbers with this sum, the largest remainders rounded up."""
    exact = share * total
    counts = np.floor(exact + _CLOSE)
    order = np.argsort(-np.round(exact - counts, 6), kind="stable")
    room = [row for row in order.tolist() if counts[row] < there[row] and exact[row] > counts[row]]
    counts[room[: max(0, round(total - counts.sum()))]] += 1
    return [int(count) for count in counts]
