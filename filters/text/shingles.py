"""Words and runs of words as 64-bit hashes: one fixed scheme, the same on every machine and in every version.

A text is cut into words, a word is a polynomial over its UTF-8 bytes, and `size` neighbouring words make one shingle.
All arithmetic is modulo 2**64, on numpy arrays, several texts at a time. Any two of
a million different words have the same hash with a probability of one to 37 million.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from filters.text.shared_texts import MOST_SAMPLES, forget_with_texts
from filters.text.words import spaced

Hashes = NDArray[np.uint64]

_BASE = 0x9FB21C651E98DF25
# Whether str.split() treats an ASCII byte as space.
_IS_LETTER = bytes([chr(byte).split() != [] for byte in range(128)] + [True] * 128)
# The characters beyond ASCII that str.split() treats as space.
_OTHER_SPACES = "".join(chr(code) for code in range(128, 0x3001) if chr(code).isspace())
# The bytes in UTF-8 of ASCII and of most Latin letters: neither such a space nor a script without spaces.
_COMMON = bytes([*range(0xC2), *range(0xC3, 0xE0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """The hashes of the words of several texts; text i has hashes[starts[i]:starts[i + 1]]."""

    hashes: Hashes
    starts: list[int]

    def __iter__(self) -> Iterator[Hashes]:
        return (self.hashes[start:stop] for start, stop in pairwise(self.starts))


def join_hashes(texts: Sequence[Hashes]) -> Hashed:
    """The hashes of the words of each text, joined for several texts."""
    hashes = np.concatenate(texts) if texts else np.empty(0, np.uint64)
    return Hashed(hashes=hashes, starts=list(accumulate(map(len, texts), initial=0)))


# Two families ask for the words of a sample's traces.
@lru_cache(maxsize=MOST_SAMPLES)
def hash_words(texts: tuple[str, ...]) -> Hashed:
    """The words of texts (`filters.text.words.words`)."""
    return hash_encoded_words([encode_words(text) for text in texts])


forget_with_texts(hash_words.cache_clear)


def encode_words(text: str) -> bytes:
    """The bytes of a text whose words are separated by ASCII space only."""
    if text.isascii():
        return text.encode()
    plain = text.encode("utf-8", "surrogatepass")
    if not plain.translate(None, _COMMON):
        return plain
    text = spaced(text)
    if any(space in text for space in _OTHER_SPACES):
        text = " ".join(text.split())
    return text.encode("utf-8", "surrogatepass")


def hash_encoded_words(texts: Sequence[bytes]) -> Hashed:
    """Hash each word: the sum of its bytes times rising powers of an odd number.

    With powers counted from the beginning of the batch, the sums of all words are differences of one running sum.
    The inverse power of a word's offset makes its sum independent of the offset.
    """
    joined = b"\n".join([b"", *texts, b""])
    letter = np.frombuffer(joined.translate(_IS_LETTER), bool)
    changes = np.flatnonzero(letter[1:] != letter[:-1])
    # The data begin and end with a line break, so that every word begins and stops at a turn.
    before, last = changes[::2], changes[1::2]
    bounds = list(accumulate((len(text) + 1 for text in texts), initial=0))
    return Hashed(hashes=hash_polynomials(joined, before, last), starts=np.searchsorted(before, bounds).tolist())


def hash_polynomials(data: bytes, before: NDArray[np.int64], last: NDArray[np.int64]) -> Hashes:
    """The hashes of words, given the offset before the first byte and the offset of the last byte of each."""
    powers, inverses = running_powers(1 << len(data).bit_length())
    # In place: fresh arrays of this size cost more than the arithmetic.
    sums = np.frombuffer(data, np.uint8).astype(np.uint64)
    sums += np.uint64(1)
    sums[1:] *= powers[: len(sums) - 1]
    np.cumsum(sums, out=sums)
    word_hashes: Hashes = (sums[last] - sums[before]) * inverses[before]
    return word_hashes


def hash_shingles(words: Hashed, size: int) -> list[Hashes]:
    """Hashes of the runs of `size` words of each text, repeated ones included. A shorter text is one run."""
    factors = odd_factors("shingle", size)
    total = max(len(words.hashes) - size + 1, 0)
    rolled = words.hashes[:total] * factors[0]
    for offset in range(1, size):
        rolled += words.hashes[offset : offset + total] * factors[offset]
    shingles_of_texts = []
    for start, stop in pairwise(words.starts):
        count = stop - start
        if 0 < count < size:
            products = words.hashes[start:stop] * factors[:count]
            # The count makes a short text differ from the beginning of a longer one.
            shingles_of_texts.append(products.sum(keepdims=True) + np.uint64(count))
        else:
            # The last words of a text begin no shingle: it would reach into the next text.
            shingles_of_texts.append(rolled[start : max(start, stop - size + 1)])
    return shingles_of_texts


def mix_bits(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele et al. 2014): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_values: Hashes = values ^ (values >> np.uint64(31))
    return mixed_values


@lru_cache(maxsize=16)
def odd_factors(purpose: str, count: int) -> Hashes:
    """Odd factors for a purpose, from a hash of its name: independent of any library's random generator."""
    values = [hashlib.blake2b(f"{purpose} {index}".encode(), digest_size=8).digest() for index in range(count)]
    return np.frombuffer(b"".join(values), "<u8").astype(np.uint64) | np.uint64(1)


@lru_cache(maxsize=16)
def running_powers(count: int) -> tuple[Hashes, Hashes]:
    """The first powers of the base and of its inverse modulo 2**64."""
    return _running_products(_BASE, count), _running_products(pow(_BASE, -1, 1 << 64), count)


def _running_products(base: int, count: int) -> Hashes:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)
