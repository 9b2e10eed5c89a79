"""Looks up, by the hashes of many words at once, which lists hold a word and what it means."""

from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from filters.text.rationale_words import FILLERS, changing_words, exchangeable_words, same_words
from filters.text.shingles import Hashes, hash_polynomials, mix_bits
from filters.text.value_words import CHOICES, FUNCTION_WORDS, NUMBER_WORDS, OPENERS, UNITS

NUMBER_WORD, UNIT, CHOICE, OPENER, FUNCTION, FILLER, CHANGE, EXCHANGE = (1 << bit for bit in range(8))


def look_up(hashes: Hashes) -> tuple[NDArray[np.uint8], Hashes]:
    """The lists of each word, as flags, and the hash of the word that stands for all that mean the same."""
    keys, flags, meanings, quick = _tables()
    word_flags = np.zeros(len(hashes), np.uint8)
    word_meanings = hashes.copy()
    # Most words are in no list, and the upper bits of the hash show it.
    candidates = np.flatnonzero(quick[hashes >> np.uint64(48)])
    positions = np.minimum(np.searchsorted(keys, hashes[candidates]), len(keys) - 1)
    listed = keys[positions] == hashes[candidates]
    candidates, positions = candidates[listed], positions[listed]
    word_flags[candidates] = flags[positions]
    word_meanings[candidates] = meanings[positions]
    return word_flags, word_meanings


@lru_cache(maxsize=1)
def _tables() -> tuple[Hashes, NDArray[np.uint8], Hashes, NDArray[np.bool_]]:
    same, exchangeable = same_words(), exchangeable_words()
    lists: tuple[tuple[frozenset[str], int], ...] = (
        (NUMBER_WORDS, NUMBER_WORD),
        (UNITS, UNIT),
        (CHOICES, CHOICE),
        (OPENERS | FILLERS | same.keys() | exchangeable, OPENER),
        (FUNCTION_WORDS, FUNCTION),
        (FILLERS, FILLER),
        (changing_words(), CHANGE),
        (exchangeable, EXCHANGE),
    )
    words = sorted({word for listed, _ in lists for word in listed})
    keys = hash_listed(words)
    flags = np.array([sum(flag for listed, flag in lists if word in listed) for word in words], np.uint8)
    meanings = hash_listed([same.get(word, word) for word in words])
    order = np.argsort(keys)
    quick = np.zeros(1 << 16, bool)
    quick[keys >> np.uint64(48)] = True
    return keys[order], flags[order], meanings[order], quick


def hash_listed(words: list[str]) -> Hashes:
    """The hashes of words as texts have them."""
    encoded = [word.encode() for word in words]
    bounds = np.array(list(accumulate((len(word) + 1 for word in encoded), initial=0)))
    return mix_bits(hash_polynomials(b"\n".join([b"", *encoded, b""]), bounds[:-1], bounds[1:] - 1))
