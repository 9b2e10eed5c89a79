"""How much a trace repeats itself: inside (n-grams), as a whole (compression) and at its end (a loop).

The three see different things. A table read row by row repeats many n-grams and is fine; a text that runs into a
loop before the token limit has a long periodic tail. Texts shorter than one n-gram are not measured.
"""

import zlib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from distill.recipe import Recipe
from distill.types import Sample, Trace
from filters.columns import NOT_APPLICABLE, OK, family
from filters.hashes import Hashes, hashed, shingled
from filters.text import written

_LEVEL = 1
"""The fastest: prose stays below 4 and loops above 30, as at level 6, for a fifth less time."""
_LOOKAHEAD = 262
"""How much of a window zlib keeps free, and the smallest window that is not a special case for it."""
_SMALLEST_WINDOW = 10
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
        words = hashed(tuple(map(written, traces)))
        return [
            self._row(trace, found, ngrams)
            for trace, found, ngrams in zip(traces, words, shingled(words, self.ngram), strict=True)
        ]

    def _row(self, trace: Trace, words: Hashes, ngrams: Hashes) -> dict[str, Any]:
        if len(words) < self.ngram:
            return {"repetition_state": NOT_APPLICABLE}
        # The token limit may cut the last word of a loop in two.
        whole = words[:-1] if trace.finish_reason == "length" else words
        return {
            "repetition_state": OK,
            "repetition_ngram": repeated_share(ngrams),
            "repetition_compression": compression(written(trace)),
            "repetition_tail": loop_length(whole) / len(words),
        }


def repeated_share(ngrams: Hashes) -> float:
    """1 - different/all: 0 when nothing repeats, near 1 in a loop."""
    ordered = np.sort(ngrams)
    return 1 - (1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))) / len(ngrams)


def compression(text: str) -> float:
    """How many times smaller zlib makes the text: about 1 to 3 for prose, above 10 for loops."""
    data = text.encode("utf-8", "surrogatepass")
    # A window that holds the whole text compresses it as the largest does; a small one is sooner set up.
    window = min(max((len(data) + _LOOKAHEAD).bit_length(), _SMALLEST_WINDOW), zlib.MAX_WBITS)
    return len(data) / len(zlib.compress(data, _LEVEL, window))


def loop_length(words: Hashes) -> int:
    """Words in the longest suffix that is one period, at least _LOOPS times in a row; 0 if there is none."""
    if not _may_loop(words):
        return 0
    reverse = words[::-1].tolist()
    size = len(reverse)
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


def _may_loop(words: Hashes) -> bool:
    """Whether any period stands twice at the end: most texts have no loop, and this costs far less."""
    width = words.itemsize
    reverse = words[::-1].tobytes()
    last, end = reverse[:width], (len(words) // _LOOPS + 1) * width
    period = reverse.find(last, width, end)
    while period > 0:
        if period % width == 0 and reverse[:period] == reverse[period : 2 * period]:
            return True
        period = reverse.find(last, period + 1, end)
    return False
