"""How much a trace repeats itself: inside (n-grams), as a whole (compression) and at its end (a loop).

The three measure different things. A table that is read row by row repeats many n-grams, which is no fault; a text
that loops until the token limit has a long periodic tail. Texts shorter than one n-gram are not measured.
"""

import zlib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, family
from filters.text.shingles import Hashes, hash_shingles, hash_words, running_powers
from filters.text.words import visible_text

_LEVEL = 1
"""The fastest: prose stays below 4 and loops above 30, as at level 6, for a fifth less time."""
_LOOKAHEAD = 262
"""How much of a window zlib keeps free, and the smallest window that is not a special case for it."""
_SMALLEST_WINDOW = 10
_LOOPS = 3
"""A tail is a loop when its period stands there at least this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    ngram: int

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
        words = hash_words(tuple(map(visible_text, traces)))
        return [
            self._row(trace, trace_words, ngrams)
            for trace, trace_words, ngrams in zip(traces, words, hash_shingles(words, self.ngram), strict=True)
        ]

    def _row(self, trace: Trace, words: Hashes, ngrams: Hashes) -> dict[str, Any]:
        if len(words) < self.ngram:
            return {"repetition_state": NOT_APPLICABLE}
        # The token limit may cut the last word of a loop in two.
        whole = words[:-1] if trace.finish_reason == "length" else words
        return {
            "repetition_state": OK,
            "repetition_ngram": repeated_share(ngrams),
            "repetition_compression": compression_ratio(visible_text(trace)),
            "repetition_tail": loop_length(whole) / len(words),
        }


def repeated_share(ngrams: Hashes) -> float:
    """1 - different/all: 0 when nothing repeats, near 1 in a loop."""
    ordered = np.sort(ngrams)
    return 1 - (1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))) / len(ngrams)


def compression_ratio(text: str) -> float:
    """How many times smaller zlib makes the text: about 1 to 3 for prose, above 10 for loops."""
    data = text.encode("utf-8", "surrogatepass")
    # A window that holds the whole text compresses it as the largest does; a small one is sooner set up.
    window = min(max((len(data) + _LOOKAHEAD).bit_length(), _SMALLEST_WINDOW), zlib.MAX_WBITS)
    return len(data) / len(zlib.compress(data, _LEVEL, window))


def loop_length(words: Hashes) -> int:
    """Words in the longest suffix that is one period, at least _LOOPS times in a row; 0 if there is none."""
    max_period = len(words) // _LOOPS
    # Most texts end in a word that is not in their last part again, and this costs far less.
    if not max_period or not (words[-max_period - 1 : -1] == words[-1]).any():
        return 0
    reverse = words[::-1]
    longest_loop = min_period = 0
    for period in _periods(reverse, max_period):
        if period < min_period:
            continue  # a multiple of the last one, and as long
        differs = reverse[period:] != reverse[:-period]
        length = int(differs.argmax()) + period if differs.any() else len(words)
        if length >= _LOOPS * period:
            # A period of the same words that is no multiple must be longer than this (Fine and Wilf).
            longest_loop, min_period = max(longest_loop, length), length - period + 1
    return longest_loop


def _periods(words: Hashes, max_period: int) -> list[int]:
    """The periods that seem to stand _LOOPS times at the beginning: by hashes, and for all lengths at once."""
    powers, _ = running_powers(1 << len(words).bit_length())
    sums = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(words * powers[: len(words)], out=sums[1:])
    sizes = np.arange(1, max_period + 1)
    # The suffix that begins one period later is the same text, one period shorter.
    is_repeated = sums[_LOOPS * sizes] - sums[sizes] == sums[(_LOOPS - 1) * sizes] * powers[sizes]
    periods: list[int] = sizes[is_repeated].tolist()
    return periods
