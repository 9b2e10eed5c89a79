"""How much a trace repeats itself: inside (n-grams), as a whole (compression) and at its end (a loop).

The three see different things. A table read row by row repeats many n-grams and is fine; a text that runs into a
loop before the token limit has a long periodic tail. Texts shorter than one n-gram are not measured.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.recipe import Recipe
from distill.types import Sample, Trace
from filters.columns import NOT_APPLICABLE, OK, family
from filters.text import words_written, written

_LEVEL = 1
"""The fastest: prose stays below 4 and loops above 30, as at level 6, for a fifth less time."""
_LOOPS = 3
"""A tail is a loop when its period stands there at least this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    ngram: int = 4

    name: ClassVar[str] = "repetition"
    version: ClassVar[str] = "2"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family(
        "repetition",
        repetition_ngram=("number", "1 - different / all word n-grams of rationale and answer"),
        repetition_compression=("number", "bytes divided by zlib-compressed bytes"),
        repetition_tail=("number", "share of the words that belong to a loop at the end"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Repetition":
        return cls(ngram=recipe.filter.repetition.ngram)

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        return [self._row(trace, cut=trace.finish_reason == "length") for trace in traces]

    def _row(self, trace: Trace, *, cut: bool) -> dict[str, Any]:
        found = words_written(trace)
        if len(found) < self.ngram:
            return {"repetition_state": NOT_APPLICABLE}
        return {
            "repetition_state": OK,
            "repetition_ngram": repeated_share(found, self.ngram),
            "repetition_compression": compression(written(trace)),
            # The token limit may cut the last word of a loop in two.
            "repetition_tail": loop_length(found[:-1] if cut else found) / len(found),
        }


def repeated_share(found: Sequence[str], ngram: int) -> float:
    """1 - unique/total n-grams of at least `ngram` words: 0 when nothing repeats, near 1 in a loop."""
    total = len(found) - ngram + 1
    return 1 - len(set(zip(*(found[start:] for start in range(ngram)), strict=False))) / total


def compression(text: str) -> float:
    """How many times smaller zlib makes the text: about 1 to 3 for prose, above 10 for loops."""
    data = text.encode("utf-8", "surrogatepass")
    return len(data) / len(zlib.compress(data, _LEVEL))


def loop_length(found: Sequence[str]) -> int:
    """Words in the longest suffix that is one period, at least _LOOPS times in a row; 0 if there is none."""
    reverse = found[::-1]
    size = len(reverse)
    if not _may_loop(reverse):
        return 0
    longest = 0
    # matching[i]: how many words from i on equal those from the start on (the Z-function), linear in the size.
    matching = [0] * size
    left = right = 0
    for start in range(1, size):
        length = min(right - start, matching[start - left]) if start < right else 0
        while start + length < size and reverse[length] == reverse[start + length]:
            length += 1
        matching[start] = length
        if start + length > right:
            left, right = start, start + length
        if length >= (_LOOPS - 1) * start:
            longest = max(longest, start + length)
    return longest


def _may_loop(reverse: Sequence[str]) -> bool:
    """Whether any period stands twice at the beginning: most texts have no loop, and this costs far less."""
    period = 0
    last = len(reverse) // _LOOPS
    while period < last:
        try:
            period = reverse.index(reverse[0], period + 1, last + 1)
        except ValueError:
            return False
        if reverse[:period] == reverse[period : 2 * period]:
            return True
    return False
