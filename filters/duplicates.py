"""Which traces of one question say the same thing.

Near duplicates are found exactly: every pair of different texts whose sizes allow it is compared by the Jaccard
similarity of its word shingles, so no pair is missed and no hash is involved. Components of similar pairs share one
canonical trace, chosen by a rule that knows no order: complete first, then correct, then the smallest id. Usable
traces (complete, and not wrong) are also put into an order of diversity, each as unlike those before it as can be.
Questions are never compared with each other here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.recipe import Recipe
from distill.types import Outcome, Sample, Trace
from filters.answer import judged
from filters.columns import NOT_APPLICABLE, OK, family
from filters.text import composed, has_east_asian, words

Text = tuple[str, ...]
Shingles = frozenset[Text]
Similarity = Callable[[Shingles, Shingles], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    threshold: float = 0.9
    shingle: int = 3
    relative_tolerance: float = 0.0
    """Of the verdict that prefers correct traces."""

    name: ClassVar[str] = "duplicates"
    version: ClassVar[str] = "2"
    scope: ClassVar[Literal["trace", "sample"]] = "sample"
    columns: ClassVar[pa.Schema] = family(
        "duplicates",
        exact_duplicate=("flag", "another trace of the question has the same text and is preferred"),
        near_duplicate=("flag", "another trace of the question is as good as the same and is preferred"),
        duplicate_of=("text", "id of the preferred trace"),
        duplicate_jaccard=("number", "Jaccard similarity of the word shingles of both"),
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
        texts = [_text(trace) for trace in traces]
        ranks = [self._rank(sample, trace) for trace in traces]
        best: dict[Text, int] = {}
        for position, text in enumerate(texts):
            if text and (text not in best or ranks[position] < ranks[best[text]]):
                best[text] = position
        distinct = sorted(best, key=lambda text: ranks[best[text]])
        shingles = {text: _runs(text, self.shingle) for text in distinct}
        similarity = _remembering()
        canonical = components([shingles[text] for text in distinct], self.threshold, similarity)
        leader = {text: distinct[canonical[place]] for place, text in enumerate(distinct)}
        usable = [text for text in distinct if self._usable(sample, traces[best[text]])]
        places = diverse([shingles[text] for text in usable], similarity)
        diversity = {best[text]: place for text, place in zip(usable, places, strict=True)}
        rows: list[dict[str, Any]] = []
        for position, text in enumerate(texts):
            if not text:
                rows.append({"duplicates_state": NOT_APPLICABLE})
                continue
            exact = best[text] != position
            near = exact or leader[text] != text
            original = text if exact else leader[text]
            rows.append(
                {
                    "duplicates_state": OK,
                    "exact_duplicate": exact,
                    "near_duplicate": near,
                    "duplicate_of": traces[best[original]].id if near else None,
                    "duplicate_jaccard": similarity(shingles[text], shingles[original]) if near else None,
                    "diversity_rank": diversity.get(position),
                }
            )
        return rows

    def _rank(self, sample: Sample, trace: Trace) -> tuple[bool, bool, str]:
        return (trace.outcome != Outcome.COMPLETE, self._verdict(sample, trace) != "correct", trace.id)

    def _usable(self, sample: Sample, trace: Trace) -> bool:
        return trace.outcome == Outcome.COMPLETE and self._verdict(sample, trace) != "wrong"

    def _verdict(self, sample: Sample, trace: Trace) -> str | None:
        judgement = judged(sample, trace, self.relative_tolerance)
        return None if judgement is None else judgement.verdict


def _text(trace: Trace) -> Text:
    """The words of a trace by white space alone: equal where only the layout differs."""
    if trace.reasoning.isascii() and trace.answer.isascii():
        return words(trace.reasoning) + words(trace.answer)
    return tuple(composed(f"{trace.reasoning}\n{trace.answer}").split())


def shingled(text: str, size: int) -> Shingles:
    """The runs of `size` words; a shorter text is one shingle, so that it can equal only itself."""
    return _runs(tuple(text.split()), size)


def _runs(text: Text, size: int) -> Shingles:
    joined = " ".join(text)
    found = words(joined) if has_east_asian(joined) else text
    return frozenset(zip(*(found[start:] for start in range(size)), strict=False)) or frozenset([found])


def _remembering() -> Similarity:
    """`jaccard`, computing every pair once."""
    known: dict[tuple[int, int], float] = {}

    def similarity(first: Shingles, second: Shingles) -> float:
        one, other = id(first), id(second)
        pair = (one, other) if one < other else (other, one)
        if pair not in known:
            known[pair] = jaccard(first, second)
        return known[pair]

    return similarity


def jaccard(first: Shingles, second: Shingles) -> float:
    common = len(first & second)
    return common / (len(first) + len(second) - common)


def diverse(sets: list[Shingles], similarity: Similarity = jaccard) -> list[int]:
    """The place of each set, from 1, when the first one leads and the one least like all before it comes next."""
    places = [0] * len(sets)
    closest = [0.0] * len(sets)
    latest = 0
    for place in range(1, len(sets) + 1):
        places[latest] = place
        rest = [position for position in range(len(sets)) if not places[position]]
        for position in rest:
            closest[position] = max(closest[position], similarity(sets[position], sets[latest]))
        latest = min(rest, key=lambda position: (closest[position], position), default=0)
    return places


def components(sets: list[Shingles], threshold: float, similarity: Similarity = jaccard) -> list[int]:
    """For each set the smallest position in its connected component of pairs with Jaccard >= threshold."""
    parent = list(range(len(sets)))

    def root(position: int) -> int:
        while parent[position] != position:
            parent[position] = parent[parent[position]]
            position = parent[position]
        return position

    for one, other in combinations(range(len(sets)), 2):
        small, large = sorted((len(sets[one]), len(sets[other])))
        # The smaller set over the larger one is the most that their similarity can be.
        if small >= threshold * large and similarity(sets[one], sets[other]) >= threshold:
            first, second = sorted((root(one), root(other)))
            parent[second] = first
    return [root(position) for position in range(len(sets))]
