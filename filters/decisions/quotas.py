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
from distill.recipe.sections.filter import Mix
from distill.word_tables import counted

Kind = tuple[str, ...]
_ROUNDS = 10_000
_CLOSE = 1e-9
_OTHERS = None


def target_counts(counts: Mapping[Kind, int], mixes: Sequence[Mix], limit: int | None = None) -> dict[Kind, int]:
    """Traces to take of each kind, at most as many as there are, at most `limit` together.

    Raises DataError when shares cannot be met: no trace has a value, or two mixes contradict each other.
    """
    if not any(counts.values()):
        return {}
    kinds, available, shares = _kinds_and_shares(counts, mixes)
    total = _largest_total(available, shares)
    return dict(zip(kinds, _round_counts(shares, min(total, limit or total), available), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scarcest:
    """The kind with the fewest traces for its share: it limits the size of the mix."""

    total: int
    """Traces of the whole mix."""
    kind: str
    there: int
    share: float
    without_share: int
    """Traces of kinds that have no share at all."""

    def __str__(self) -> str:
        others = (
            f"; {counted(self.without_share, 'trace is', 'traces are')} of kinds without a share"
            if self.without_share
            else ""
        )
        return (
            f"{self.kind} has only {counted(self.there, 'trace')} for {100 * self.share:.3g} % of the dataset{others}"
        )


def find_scarcest(counts: Mapping[Kind, int], mixes: Sequence[Mix]) -> Scarcest:
    """The kind that limits a mix; there must be traces. Raises what `target_counts` raises."""
    kinds, available, share = _kinds_and_shares(counts, mixes)
    with_share = np.flatnonzero(share > 0)
    rows = np.array([with_share[np.argmin(available[with_share] / share[with_share])]])
    kind = ", ".join(f"{mix.by} = {value}" for mix, value in zip(mixes, kinds[rows[0]], strict=True))
    if len(mixes) == 1:
        (mix,) = mixes
        value = _value_with_share(kinds[rows[0]][0], mix)
        rows = np.array(
            [row for row, other_kind in enumerate(kinds) if _value_with_share(other_kind[0], mix) == value]
        )
        kind = f"{mix.by} = {value}" if value is not _OTHERS else f"{mix.by} without a share of its own"
    return Scarcest(
        total=_largest_total(available, share),
        kind=kind,
        there=int(available[rows].sum()),
        share=float(share[rows].sum()),
        without_share=int(available[share == 0].sum()),
    )


def _kinds_and_shares(
    counts: Mapping[Kind, int], mixes: Sequence[Mix]
) -> tuple[list[Kind], NDArray[np.float64], NDArray[np.float64]]:
    """The kinds with traces, the number of traces of each, and their shares."""
    kinds = sorted(kind for kind, count in counts.items() if count)
    available = np.array([counts[kind] for kind in kinds], np.float64)
    return kinds, available, _rake_shares(kinds, available, mixes)


def _largest_total(available: NDArray[np.float64], shares: NDArray[np.float64]) -> int:
    """The most traces that can be taken in these shares."""
    with_share = shares > 0
    return math.floor(float((available[with_share] / shares[with_share]).min()) + _CLOSE)


def _rake_shares(kinds: Sequence[Kind], available: NDArray[np.float64], mixes: Sequence[Mix]) -> NDArray[np.float64]:
    """The share of each kind, as close to its natural one as the mixes allow."""
    shares: NDArray[np.float64] = available / available.sum()
    groups = [_groups(kinds, position, mix) for position, mix in enumerate(mixes)]
    for _ in range(_ROUNDS):
        before = shares.copy()
        for rows, target_share in (pair for group in groups for pair in group):
            current_share = shares[rows].sum()
            shares[rows] *= target_share / current_share if current_share else 0.0
        if np.abs(shares - before).max() < _CLOSE:
            break
    if any(abs(shares[rows].sum() - target_share) > 1e-6 for group in groups for rows, target_share in group):
        raise DataError(
            f"filter.select.mix: the shares of {' and '.join(mix.by for mix in mixes)} cannot be met together by "
            "the kept traces; relax one of them, or the rules"
        )
    return shares


def _groups(kinds: Sequence[Kind], position: int, mix: Mix) -> list[tuple[NDArray[np.int64], float]]:
    """The rows and the target share of each value of a mix, and of all other values together."""
    values = [kind[position] for kind in kinds]
    rest = 1 - sum(mix.shares.values())
    target_shares = [*mix.shares.items(), (_OTHERS, rest if rest > _CLOSE else 0.0)]
    groups = []
    for value, share in target_shares:
        rows = np.array(
            [row for row, mix_value in enumerate(values) if _value_with_share(mix_value, mix) == value], np.int64
        )
        if share and not len(rows):
            wanted = f"{mix.by} = {value!r}" if value is not _OTHERS else f"{mix.by} without a share of its own"
            raise DataError(
                f"filter.select.mix: {wanted} has a share of {100 * share:g} % of the dataset, but no kept trace has "
                f"this value (values of kept traces: {', '.join(sorted(set(values))[:20])}); change the shares or "
                "the rules"
            )
        groups.append((rows, share))
    return groups


def _value_with_share(value: str, mix: Mix) -> str | None:
    return value if value in mix.shares else _OTHERS


def _round_counts(shares: NDArray[np.float64], total: int, available: NDArray[np.float64]) -> list[int]:
    """Whole numbers with this sum, the largest remainders rounded up."""
    exact = shares * total
    counts = np.floor(exact + _CLOSE)
    order = np.argsort(-np.round(exact - counts, 6), kind="stable")
    roundable = [row for row in order.tolist() if counts[row] < available[row] and exact[row] > counts[row]]
    counts[roundable[: max(0, round(total - counts.sum()))]] += 1
    return [int(count) for count in counts]
