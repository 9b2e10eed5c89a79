"""Which rows an epoch trains on, and in what order: shares of the tokens by teacher and source, curricula.

An epoch has as many tokens as the stage's own rows. Every group of rows (a teacher's traces, a replayed source) is an
endless sequence of shuffles of its rows. An epoch takes the next rows of the sequence, up to the group's share of
tokens. So no row comes twice before all rows of its group have come once, and any epoch is computed without the
epochs before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distill.errors import TooFewRows

SHUFFLE = "shuffle"


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are drawn together. `quota`: tokens an epoch."""

    rows: np.ndarray
    quota: int
    replayed: bool = False


def groups(
    tokens: np.ndarray,
    sources: Sequence[str],
    teachers: Sequence[str],
    *,
    own: str,
    replay: Mapping[str, float],
    weights: Mapping[str, float],
) -> list[Group]:
    """The groups of a stage's rows; `own` is its data, the source of every row that is not replayed.

    `weights` divides the own tokens among teachers, `replay` gives other sources a share of all tokens. Raises
    TooFewRows for a group without rows.
    """
    source_names, teacher_names = np.asarray(sources), np.asarray(teachers)
    is_own = source_names == own
    total = int(tokens[is_own].sum())
    if weights:
        whole = sum(weights.values())
        result = [
            Group(_named(is_own & (teacher_names == name), f"teachers.{name}"), round(total * weight / whole))
            for name, weight in weights.items()
            if weight
        ]
    else:
        result = [Group(np.flatnonzero(is_own), total)]
    rest = 1 - sum(replay.values())
    for name, share in replay.items():
        rows = _named(source_names == name, f"replay.{name}")
        result.append(Group(rows, round(total * share / rest), replayed=True))
    return result


def _named(chosen: np.ndarray, key: str) -> np.ndarray:
    rows = np.flatnonzero(chosen)
    if not len(rows):
        raise TooFewRows(
            f"stages: {key} has a share of the tokens, but it has no usable rows; leave it out, or look at the "
            "counts of dropped rows and of the filter"
        )
    return rows


def epoch_rows(
    result: Sequence[Group], tokens: np.ndarray, *, seed: int, epoch: int, order: str, ranks: np.ndarray
) -> np.ndarray:
    """The rows of an epoch in the order of training.

    Where `order` is no shuffle, `ranks` sorts the stage's own rows, and replayed ones, sorted too, come evenly
    between them: nothing is forgotten along a curriculum.
    """
    drawn = np.concatenate([_stretch(group, tokens, seed, index, epoch) for index, group in enumerate(result)])
    rng = np.random.default_rng((seed, epoch))
    drawn = rng.permutation(drawn)
    if order == SHUFFLE:
        return drawn
    drawn = drawn[np.argsort(ranks[drawn], kind="stable")]
    replayed = np.isin(drawn, [row for group in result if group.replayed for row in group.rows])
    positions = np.empty(len(drawn))
    for some in (replayed, ~replayed):
        number = np.count_nonzero(some)
        positions[some] = (np.arange(number) + 0.5) / number
    return drawn[np.argsort(positions, kind="stable")]


def _stretch(group: Group, tokens: np.ndarray, seed: int, index: int, epoch: int) -> np.ndarray:
    """The rows whose first token lies between this epoch's beginning and end in the group's endless sequence."""
    whole = int(tokens[group.rows].sum())
    begin, end = epoch * group.quota, (epoch + 1) * group.quota
    pieces = [group.rows[:0]]
    for cycle in range(begin // whole, -(-end // whole)):
        rows = np.random.default_rng((seed, index, cycle)).permutation(group.rows)
        starts = cycle * whole + np.concatenate([[0], np.cumsum(tokens[rows])[:-1]])
        pieces.append(rows[(starts >= begin) & (starts < end)])
    return np.concatenate(pieces)
