"""Duplicates and near duplicates among the traces of one question.

Every pair of different texts is compared by the Jaccard similarity of their word shingles without case and layout.
The comparison is exact, except for collisions of 64-bit hashes. Texts with different values or names are not near
duplicates (`filters.text.values_and_names`): they are the same words with other values. Texts with another meaning
are not near duplicates either (`filters.text.edits`). Components of near pairs share one canonical trace, chosen by a
rule that knows no order: complete first, then correct, then the smallest id. Usable traces (complete, and not wrong)
are also put into an order of diversity, each as unlike those before it as can be. Questions are never compared with
each other here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distill.recipe.recipe import Recipe
from distill.types import Outcome, Sample, Trace
from filters.matching.connected_rows import ConnectedRows
from filters.signals.base import NOT_APPLICABLE, OK, family
from filters.signals.families.answer import judge_trace
from filters.text.edits import may_be_near, pairs_of, same_names, say_the_same
from filters.text.minhash import forms_of
from filters.text.shingles import Hashes, hash_shingles, hash_words, join_hashes
from filters.text.values_and_names import Form
from filters.text.words import comparable_text, composed, has_east_asian

_KINDS = 1 << 14
"""Different shingles looked at together: a row for each text, so that many texts of a sample need little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    threshold: float
    shingle: int
    relative_tolerance: float
    """Tolerance of the verdict that prefers correct traces."""

    name: ClassVar[str] = "duplicates"
    version: ClassVar[str] = "13"
    scope: ClassVar[Literal["trace", "sample"]] = "sample"
    columns: ClassVar[pa.Schema] = family(
        "duplicates",
        exact_duplicate=("flag", "another trace of the question has the same text and is preferred"),
        near_duplicate=("flag", "another trace of the question is as good as the same and is preferred"),
        duplicate_of=("text", "id of the preferred trace"),
        duplicate_jaccard=("number", "Jaccard similarity of the word shingles of both"),
        other_values=("flag", "another trace of the question says nearly the same words with other numbers or names"),
        diversity_rank=(
            "count",
            "place among the question's usable traces, each as unlike those before it as can be",
        ),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Duplicates":
        return cls(
            threshold=recipe.filter.duplicates.threshold,
            shingle=recipe.filter.duplicates.shingle,
            relative_tolerance=recipe.filter.answer.relative_tolerance,
        )

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        texts = tuple(map(_text, traces))
        ranks = [self._rank(sample, trace) for trace in traces]
        # Each text once, as the other families ask for them.
        distinct_texts = tuple(dict.fromkeys(texts))
        words = zip(distinct_texts, hash_words(distinct_texts), strict=True)
        key_of = {text: _key(text, text_words) for text, text_words in words}
        keys = [key_of[text] for text in texts]
        best: dict[bytes | str, int] = {}
        for position in sorted(range(len(traces)), key=ranks.__getitem__):
            if keys[position]:
                best.setdefault(keys[position], position)
        distinct = list(best.values())
        if not distinct:
            return [{"duplicates_state": NOT_APPLICABLE} for _ in traces]
        shingles_of_texts, text_forms = _shingles_and_forms(
            [comparable_text(traces[position]) for position in distinct], self.shingle
        )
        similarity_matrix = similarities(shingles_of_texts)
        is_alike = similarity_matrix >= self.threshold
        leaders = np.arange(len(distinct))
        has_same_values: NDArray[np.bool_] = np.eye(len(distinct), dtype=bool)
        may_repeat = may_be_near(text_forms, similarity_matrix, self.threshold)
        if np.count_nonzero(may_repeat) > len(distinct):
            # Most questions have no two equal traces.
            has_same_values = _same_values(is_alike, text_forms)
            leaders = components(self._near(may_repeat, similarity_matrix, text_forms))
        has_other_values = np.any(is_alike & ~has_same_values, axis=1)
        index_of = {position: index for index, position in enumerate(distinct)}
        usable = [index for index, position in enumerate(distinct) if self._usable(sample, traces[position])]
        order = diversity_order(similarity_matrix[usable][:, usable])
        diversity = {distinct[index]: rank for index, rank in zip(usable, order, strict=True)}
        rows: list[dict[str, Any]] = []
        for position, key in enumerate(keys):
            if not key:
                rows.append({"duplicates_state": NOT_APPLICABLE})
                continue
            exact = best[key] != position
            index = index_of[best[key]]
            repeats = exact or leaders[index] != index
            original = index if exact else leaders[index]
            rows.append(
                {
                    "duplicates_state": OK,
                    "exact_duplicate": exact,
                    "near_duplicate": repeats,
                    "duplicate_of": traces[distinct[original]].id if repeats else None,
                    "duplicate_jaccard": float(similarity_matrix[index, original]) if repeats else None,
                    "other_values": bool(has_other_values[index]),
                    "diversity_rank": diversity.get(position),
                }
            )
        return rows

    def _near(
        self, may_repeat: NDArray[np.bool_], similarity_matrix: NDArray[np.float64], text_forms: Sequence[Form]
    ) -> NDArray[np.bool_]:
        near = np.eye(len(may_repeat), dtype=bool)
        for left, right in pairs_of(may_repeat):
            near[left, right] = near[right, left] = say_the_same(
                text_forms[left], text_forms[right], similarity_matrix[left, right], self.threshold
            )
        return near

    def _rank(self, sample: Sample, trace: Trace) -> tuple[bool, bool, str]:
        return (trace.outcome != Outcome.COMPLETE, self._verdict(sample, trace) != "correct", trace.id)

    def _usable(self, sample: Sample, trace: Trace) -> bool:
        return trace.outcome == Outcome.COMPLETE and self._verdict(sample, trace) != "wrong"

    def _verdict(self, sample: Sample, trace: Trace) -> str | None:
        judgement = judge_trace(sample, trace, self.relative_tolerance)
        return None if judgement is None else judgement.verdict


def _text(trace: Trace) -> str:
    return composed("\n".join(part for part in (trace.reasoning, trace.answer) if part))


def _key(text: str, words: Hashes) -> bytes | str:
    """A key that is equal for texts that differ in white space only; empty for a text without words."""
    if has_east_asian(text):
        plain = " ".join(text.split())
        # In some scripts each character is a word, with or without white space.
        if has_east_asian(plain):
            return plain
    return words.tobytes()


def similarities(sets: list[Hashes]) -> NDArray[np.float64]:
    """The Jaccard similarity of each two texts by their shingles."""
    if len(sets) == 1:
        return np.ones((1, 1))
    values = np.concatenate(sets)
    order = np.argsort(values)
    values = values[order]
    owners = np.repeat(np.arange(len(sets)), [len(shingles) for shingles in sets])[order]
    distinct_numbers = np.zeros(len(values), np.int64)
    np.cumsum(values[1:] != values[:-1], out=distinct_numbers[1:])
    common = np.zeros((len(sets), len(sets)))
    for first in range(0, int(distinct_numbers[-1]) + 1 if len(distinct_numbers) else 0, _KINDS):
        chunk = slice(*np.searchsorted(distinct_numbers, (first, first + _KINDS)).tolist())
        holds = np.zeros((len(sets), int(distinct_numbers[chunk][-1]) - first + 1), np.float32)
        holds[owners[chunk], distinct_numbers[chunk] - first] = 1
        common += holds @ holds.T
    sizes = common.diagonal()
    # A text of nothing but punctuation has no shingles and is like itself alone.
    similarity_matrix: NDArray[np.float64] = common / np.maximum(sizes[:, None] + sizes - common, 1)
    np.fill_diagonal(similarity_matrix, 1.0)
    return similarity_matrix


def diversity_order(similarity_matrix: NDArray[np.float64]) -> list[int]:
    """The rank of each text from 1: the first text leads, then always the text least like all ranked before."""
    ranks = [0] * len(similarity_matrix)
    closest = np.zeros(len(similarity_matrix))
    latest = 0
    for rank in range(1, len(similarity_matrix) + 1):
        ranks[latest] = rank
        np.maximum(closest, similarity_matrix[latest], out=closest)
        closest[latest] = np.inf
        latest = int(closest.argmin())
    return ranks


def components(near: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each text the smallest position in its connected component of near pairs."""
    connected = ConnectedRows(len(near))
    for left, right in pairs_of(near):
        connected.join(left, right)
    return np.array([connected.root(position) for position in range(len(near))], np.int64)


def _shingles_and_forms(texts: Sequence[str], size: int) -> tuple[list[Hashes], list[Form]]:
    text_forms = forms_of(texts)
    return hash_shingles(join_hashes([form.content for form in text_forms]), size), text_forms


def _same_values(is_alike: NDArray[np.bool_], text_forms: Sequence[Form]) -> NDArray[np.bool_]:
    """The pairs whose values and names agree."""
    near = is_alike.copy()
    for left, right in pairs_of(is_alike):
        near[left, right] = near[right, left] = text_forms[left].values == text_forms[right].values and same_names(
            text_forms[left], text_forms[right]
        )
    return near
