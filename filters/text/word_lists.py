"""Looks up many words at once by their hashes: the lists that hold a word, and its meaning."""

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from filters.text.phrases import LONGEST, phrases, verbs_after
from filters.text.rationale_words import FILLERS, changing_words, exchangeable_words, same_words
from filters.text.shingles import Hashes, hash_polynomials, mix_bits, odd_factors
from filters.text.value_words import CHOICES, FUNCTION_WORDS, NUMBER_WORDS, OPENERS, SAME_VALUES, UNITS

NUMBER_WORD, UNIT, CHOICE, OPENER, FUNCTION, FILLER, CHANGE, EXCHANGE = (1 << bit for bit in range(8))


class _Listed(NamedTuple):
    """Listed words or phrases by their hash, the flags and the meaning of each."""

    keys: Hashes
    flags: NDArray[np.uint8]
    meanings: Hashes
    quick: NDArray[np.bool_]
    """Whether some hash that is looked for has these upper 16 bits."""


def look_up(hashes: Hashes) -> tuple[NDArray[np.uint8], Hashes]:
    """The lists of each word, as flags, and the hash of the word that represents all words with the same meaning."""
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


def mark_phrases(
    hashes: Hashes, starts: NDArray[np.int64], word_flags: NDArray[np.uint8], word_meanings: Hashes
) -> None:
    """Give the last word of each phrase the flags and the meaning of the phrase; its other words become fillers.

    `starts` are the first words of the texts, and one past the last word.
    """
    (keys, flags, meanings, quick), keeps_first = _phrase_tables()
    if len(hashes) < 2:
        return
    last_factor, factor = odd_factors("phrase", LONGEST)[:2]
    pairs = hashes[1:] * last_factor
    pairs += hashes[:-1] * factor
    # Most pairs of words end no phrase, and the upper bits show it.
    ends = np.flatnonzero(quick[pairs >> np.uint64(48)]) + 1
    for size in range(2, LONGEST + 1):
        ends = ends[ends >= size - 1]
        run_keys = _run_keys([hashes[ends - offset] for offset in range(size)])
        positions = np.minimum(np.searchsorted(keys, run_keys), len(keys) - 1)
        is_phrase = keys[positions] == run_keys
        # A phrase does not begin in the text before.
        is_phrase &= starts[np.searchsorted(starts, ends, side="right") - 1] <= ends - (size - 1)
        last, positions = ends[is_phrase], positions[is_phrase]
        others = last[~keeps_first[positions]]
        for offset in range(1, size):
            word_flags[others - offset] = FILLER | OPENER
        word_flags[last] = flags[positions]
        word_meanings[last] = meanings[positions]


def _run_keys(words: list[Hashes]) -> Hashes:
    """The keys of runs of words, from the hashes of their words, last word first."""
    keys = np.zeros(len(words[0]), np.uint64)
    for hashes, factor in zip(words, odd_factors("phrase", LONGEST), strict=False):
        keys += hashes * factor
    return keys


def value_meanings(hashes: Hashes) -> Hashes:
    """The hash of the number or sign for each value, such as the hash of "3" for "three"."""
    keys, meanings = _value_tables()
    positions = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    return np.where(keys[positions] == hashes, meanings[positions], hashes)


@lru_cache(maxsize=1)
def _tables() -> _Listed:
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
    flags = np.array([sum(flag for listed, flag in lists if word in listed) for word in words], np.uint8)
    keys = hash_listed(words)
    return _by_key(keys, flags, hash_listed([same.get(word, word) for word in words]), looked_for=keys)


@lru_cache(maxsize=1)
def _phrase_tables() -> tuple[_Listed, NDArray[np.bool_]]:
    """The phrases, and which of them change their last word only. `quick` has keys of the last two words."""
    whole = phrases()
    listed = {**verbs_after(), **whole}
    runs = [hash_listed(list(phrase))[::-1] for phrase in listed]
    keys = np.concatenate([_run_keys(np.split(run, len(run))) for run in runs])
    flags, meanings = look_up(hash_listed(list(listed.values())))
    says_nothing = np.array([not meaning for meaning in listed.values()])
    flags = np.where(says_nothing, FILLER, flags).astype(np.uint8) | np.uint8(OPENER)
    keeps_first = np.array([phrase not in whole for phrase in listed])
    flags[keeps_first] = EXCHANGE | OPENER
    last_two = _run_keys([np.array([run[place] for run in runs]) for place in (0, 1)])
    return _by_key(keys, flags, meanings, looked_for=last_two), keeps_first[np.argsort(keys)]


@lru_cache(maxsize=1)
def _value_tables() -> tuple[Hashes, Hashes]:
    keys = hash_listed(list(SAME_VALUES))
    order = np.argsort(keys)
    return keys[order], hash_listed(list(SAME_VALUES.values()))[order]


def _by_key(keys: Hashes, flags: NDArray[np.uint8], meanings: Hashes, *, looked_for: Hashes) -> _Listed:
    order = np.argsort(keys)
    quick = np.zeros(1 << 16, bool)
    quick[looked_for >> np.uint64(48)] = True
    return _Listed(keys[order], flags[order], meanings[order], quick)


def hash_listed(words: list[str]) -> Hashes:
    """The hashes of words as texts have them."""
    encoded = [word.encode() for word in words]
    bounds = np.array(list(accumulate((len(word) + 1 for word in encoded), initial=0)))
    return mix_bits(hash_polynomials(b"\n".join([b"", *encoded, b""]), bounds[:-1], bounds[1:] - 1))
