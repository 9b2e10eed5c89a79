"""Texts as the search for near duplicates compares them: plain words, values and names.

A text's words are those that remain without case, layout and punctuation (`filters.text.layout`). Its *values* are
its numbers, with their signs and units, number words and single letters, in order: a function of the words alone. Its
*names* are words that stand in quotes or have a capital in the middle of a sentence. Two texts whose values differ
are never near duplicates, whatever else they share; `same_names` decides whether their names agree.

A text all in capitals, in title case or without any capital says nothing of names by its case: `names` is 0 then.
Where it begins a sentence, a word with a capital counts as a name unless it stands in lower case elsewhere or
commonly begins one.

All on numpy arrays, many texts at a time; hashes as in `filters.text.shingles`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from filters.text.layout import without_layout
from filters.text.shingles import Hashed, Hashes, mixed, polynomials, running_powers
from filters.text.value_words import CHOICES, FUNCTION_WORDS, NUMBER_WORDS, OPENERS, UNITS

Flags = NDArray[np.bool_]

_LETTER, _DIGIT, _SIGN, _INNER, _DASH, _POINT = 1, 2, 3, 4, 5, 6
"""Kinds of bytes; the last three belong to a number or part words, as their neighbours say."""
_KINDS = bytes(
    _DIGIT if chr(code).isdigit() and code < 128
    else _LETTER if code >= 128 or chr(code).isalpha()
    else _SIGN if code in b"%+<>"
    else _INNER if code in b",:/*"
    else _DASH if code == ord("-")
    else _POINT if code == ord(".")
    else 0
    for code in range(256)
)  # fmt: skip
_SMALL = bytes(code + 32 if ord("A") <= code <= ord("Z") else code for code in range(256))
_ENDS_SENTENCE = np.isin(np.arange(256), list(b".!?:;"))
_NUMBER_WORD, _UNIT, _CHOICE, _OPENER, _FUNCTION = 1, 2, 4, 8, 16
_SHOUTED = 0.75
"""Share of capitals among the words of four bytes and more from which case says nothing. German prose has a half."""
_LONG = 4
FEWEST_WORDS = 8
"""A text of fewer words than this besides its values has no template: "yes, 4" and "yes, 5" are no pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """Several texts. Arrays a word go with `words`, those a text with its starts."""

    words: Hashed
    values: Hashes
    """Of each text a hash of its values in order."""
    names: Hashes
    """Of each text a hash of its certain names in order, their number in the upper bits; 0: case says nothing."""
    templates: Hashes
    """Of each text a hash of what is neither value nor name; 0 for a short one."""
    certain: Flags
    """Words that are names."""
    possible: Flags
    """Words that are names if nothing says otherwise."""
    capital: Flags
    shouted: Flags
    """Texts in capitals or title case."""

    def with_values(self) -> Hashed:
        """The words with the values of their text mixed in, so that texts of other values share no shingle."""
        counts = np.diff(self.words.starts)
        return Hashed(hashes=self.words.hashes ^ np.repeat(self.values, counts), starts=self.words.starts)

    def split(self) -> list["Form"]:
        """Every text alone."""
        spans = zip(self.words.starts[:-1], self.words.starts[1:], strict=True)
        return [
            Form(
                words=self.words.hashes[start:stop],
                values=int(self.values[place]),
                names=int(self.names[place]),
                certain=self.words.hashes[start:stop][self.certain[start:stop]],
                possible=self.words.hashes[start:stop][self.possible[start:stop]],
                small=self.words.hashes[start:stop][~self.capital[start:stop]],
                shouted=bool(self.shouted[place]),
            )
            for place, (start, stop) in enumerate(spans)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One text: its words in order, and some of them."""

    words: Hashes
    values: int
    names: int
    certain: Hashes
    possible: Hashes
    small: Hashes
    """Words without a capital."""
    shouted: bool


def same_names(one: Form, other: Form) -> bool:
    """Whether texts that are nearly the same in words agree in all that may be a name, and in its order."""
    if np.array_equal(one.words, other.words):
        return True
    if one.names and other.names and one.names != other.names:
        return False
    if (one.shouted and not other.names) or (other.shouted and not one.names):
        # Neither says by its case what is a name: any word may be one.
        return False
    names = np.concatenate([one.certain, other.certain])
    possible = np.concatenate([one.possible, other.possible])
    if len(possible):
        names = np.concatenate([names, possible[~np.isin(possible, np.concatenate([one.small, other.small]))]])
    if not len(names):
        return True
    return np.array_equal(one.words[np.isin(one.words, names)], other.words[np.isin(other.words, names)])


def apart(groups: NDArray[np.int64], names: Hashes) -> NDArray[np.int64]:
    """Groups in which no two texts say other names: a chain may lead there over texts that say nothing of names.

    Such a group falls into one for each of its names, and its texts without names are alone.
    """
    number = int(groups.max(initial=-1)) + 1
    named = names != 0
    low, high = np.full(number, np.iinfo(np.uint64).max, np.uint64), np.zeros(number, np.uint64)
    np.minimum.at(low, groups[named], names[named])
    np.maximum.at(high, groups[named], names[named])
    split = (low < high)[groups]
    result = groups.copy()
    result[split & ~named] = number + np.flatnonzero(split & ~named)
    several = np.flatnonzero(split & named)
    order = several[np.lexsort((names[several], groups[several]))]
    other = (np.diff(groups[order]) != 0) | (names[order][1:] != names[order][:-1])
    result[order] = number + len(groups) + np.cumsum(np.concatenate([[False], other]))[: len(order)]
    return result


def forms(texts: Sequence[str]) -> Forms:
    """The forms of several texts, some hundred kilobytes at most."""
    plain = [without_layout(text) for text in texts]
    raw = [text.encode("utf-8", "surrogatepass") for text in plain]
    joined = b"\n".join([b"", *raw, b"", b""])
    small = joined.translate(_SMALL)
    if len(joined) - len(plain) - 2 != sum(map(len, plain)):
        # A text that is not ASCII: its capitals are found letter by letter.
        lowered = (text.lower().encode("utf-8", "surrogatepass") for text in plain)
        small = b"\n".join([b"", *map(_of_length, lowered, raw), b"", b""])
    bounds = list(accumulate((len(text) + 1 for text in raw), initial=0))
    return _forms(joined, small, bounds)


def _of_length(lowered: bytes, raw: bytes) -> bytes:
    """Some letters depend on their neighbours when they become small; a text of such keeps its capitals."""
    lowered = lowered.replace("ς".encode(), "σ".encode())
    return lowered if len(lowered) == len(raw) else raw.translate(_SMALL)


def _forms(joined: bytes, small: bytes, bounds: list[int]) -> Forms:
    data = np.frombuffer(joined, np.uint8)
    lower = np.frombuffer(small, np.uint8)
    kinds = _kinds_of_bytes(joined, data)
    turns = np.flatnonzero(kinds[1:] != kinds[:-1])
    # By number, not by a mask: words and gaps take turns, which is what a mask is slowest with.
    held = np.flatnonzero(kinds[turns[:-1] + 1] != 0)
    begins, ends = turns[held], turns[held + 1]
    hashes = mixed(polynomials(small, begins, ends))
    starts = np.searchsorted(begins, bounds)
    firsts = begins + 1
    letters = kinds[firsts] == _LETTER
    listed = _listed(hashes)
    values = _values(lower, firsts, ends, letters, listed, starts)
    capital = letters & _is_capital(data, lower, firsts)
    quoted = _quoted(data, firsts, bounds, starts)
    opens = _opens_sentence(data, ends, firsts, capital, starts)
    shouted = _shouted(capital, letters & (ends - begins >= _LONG), starts)
    # "A" in the middle of a sentence is an option; "I" never is a name.
    option = capital & (lower[firsts] == ord("a")) & (ends - begins == 1) & ~opens
    no_name = (listed & _FUNCTION > 0) & ~option
    by_case = capital & ~values & ~shouted[_owners(starts)]
    certain = (by_case & ~opens | quoted & ~values) & ~no_name
    possible = by_case & opens & (listed & _OPENER == 0)
    names = (_ordered(hashes, certain, starts) & np.uint64((1 << 48) - 1)) | np.uint64(1)
    names |= np.minimum(_per_text(certain, starts), 0xFFFF).astype(np.uint64) << np.uint64(48)
    rest = ~(values | certain | possible)
    long_enough = np.diff(starts) - _per_text(~rest, starts) >= FEWEST_WORDS
    return Forms(
        words=Hashed(hashes=hashes, starts=starts.tolist()),
        values=_ordered(hashes, values, starts),
        names=np.where((_per_text(capital, starts) > 0) & ~shouted, names, np.uint64(0)),
        templates=np.where(long_enough, _ordered(hashes, rest, starts), np.uint64(0)),
        certain=certain,
        possible=possible,
        capital=capital,
        shouted=shouted,
    )


def _kinds_of_bytes(joined: bytes, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """What each byte belongs to: letters, a number with its sign and inner marks, a sign, or nothing."""
    kinds = np.frombuffer(bytearray(joined.translate(_KINDS)), np.uint8)
    marks = np.flatnonzero(kinds >= _INNER)
    own, left, right = kinds[marks], kinds[marks - 1], kinds[marks + 1]
    number = (right == _DIGIT) & (
        (left == _DIGIT)
        | ((own == _DASH) & (left != _LETTER))
        | ((own == _POINT) & (left != _LETTER) & (left != _POINT))
    )
    # Between two numbers with a space on either side a mark is an operator.
    spaces = (data[marks - 1] == ord(" ")) & (data[marks + 1] == ord(" "))
    operator = spaces & (kinds[marks - 2] == _DIGIT) & (np.take(kinds, marks + 2, mode="clip") == _DIGIT)
    kinds[marks] = np.where(number, _DIGIT, np.where(operator, _SIGN, 0))
    return kinds


def _listed(hashes: Hashes) -> NDArray[np.uint8]:
    """In which lists each word stands."""
    keys, flags, quick = _lists()
    found = np.zeros(len(hashes), np.uint8)
    # Most words stand in none, which the upper bits of the hash tell.
    hits = np.flatnonzero(quick[hashes >> np.uint64(48)])
    places = np.minimum(np.searchsorted(keys, hashes[hits]), len(keys) - 1)
    found[hits] = np.where(keys[places] == hashes[hits], flags[places], 0)
    return found


@lru_cache(maxsize=1)
def _lists() -> tuple[Hashes, NDArray[np.uint8], Flags]:
    lists = (
        (NUMBER_WORDS, _NUMBER_WORD),
        (UNITS, _UNIT),
        (CHOICES, _CHOICE),
        (OPENERS, _OPENER),
        (FUNCTION_WORDS, _FUNCTION),
    )
    words = sorted({word for own, _ in lists for word in own})
    encoded = [word.encode() for word in words]
    places = np.array(list(accumulate((len(word) + 1 for word in encoded), initial=0)))
    joined = b"\n".join([b"", *encoded, b""])
    keys = mixed(polynomials(joined, places[:-1], places[1:] - 1))
    flags = np.array([sum(flag for own, flag in lists if word in own) for word in words], np.uint8)
    order = np.argsort(keys)
    quick = np.zeros(1 << 16, bool)
    quick[keys >> np.uint64(48)] = True
    return keys[order], flags[order], quick


def _values(
    lower: NDArray[np.uint8],
    firsts: NDArray[np.int64],
    ends: NDArray[np.int64],
    letters: Flags,
    listed: NDArray[np.uint8],
    starts: NDArray[np.int64],
) -> Flags:
    """Which words are values: numbers, signs, number words, units after a number, single letters."""
    found: Flags = ~letters | (listed & _NUMBER_WORD > 0)
    opening = np.zeros(len(firsts), bool)
    opening[starts[:-1][starts[:-1] < starts[1:]]] = True
    units = np.flatnonzero(letters & (listed & _UNIT > 0) & ~opening)
    units = units[found[units - 1]]
    single = np.flatnonzero(letters & (ends - firsts == 0))
    first = lower[firsts[single]]
    article = (first == ord("a")) | (first == ord("i"))
    chosen = ~opening[single] & (listed[single - 1] & _CHOICE > 0)
    found[single[~article | chosen]] = True
    found[units] = True
    return found


def _is_capital(data: NDArray[np.uint8], lower: NDArray[np.uint8], firsts: NDArray[np.int64]) -> Flags:
    """Whether a word begins with a capital; the capitals of two bytes may differ in the second one alone."""
    own = data[firsts]
    found: Flags = own != lower[firsts]
    wide = np.flatnonzero(own >= 0xC3)
    found[wide] |= data[firsts[wide] + 1] != lower[firsts[wide] + 1]
    return found


def _owners(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The text of each word."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _per_text(flags: Flags, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many words of each text have a flag."""
    counts: NDArray[np.int64] = np.diff(np.searchsorted(np.flatnonzero(flags), starts))
    return counts


def _ordered(hashes: Hashes, chosen: Flags, starts: NDArray[np.int64]) -> Hashes:
    """A hash of the chosen words of each text in order: a polynomial over them, as a word is one over its bytes."""
    places = np.flatnonzero(chosen)
    bounds = np.searchsorted(places, starts)
    powers, inverses = running_powers(1 << len(places).bit_length())
    sums = np.zeros(len(places) + 1, np.uint64)
    np.cumsum(hashes[places] * powers[: len(places)], out=sums[1:])
    found: Hashes = (sums[bounds[1:]] - sums[bounds[:-1]]) * inverses[bounds[:-1]]
    return mixed(found + np.diff(bounds).astype(np.uint64))


def _shouted(capital: Flags, long: Flags, starts: NDArray[np.int64]) -> Flags:
    """Texts of which nearly every longer word has a capital; where none is long, all of which have one."""
    if not capital.any():
        return np.zeros(len(starts) - 1, bool)
    number, capitals = _per_text(long, starts), _per_text(capital & long, starts)
    found: Flags = (_per_text(capital, starts) > 0) & (capitals >= _SHOUTED * number)
    return found


def _quoted(
    data: NDArray[np.uint8], firsts: NDArray[np.int64], bounds: list[int], starts: NDArray[np.int64]
) -> Flags:
    """Words between double quotes, in texts that close all they open."""
    quotes = np.flatnonzero(data == ord('"'))
    if not len(quotes):
        return np.zeros(len(firsts), bool)
    of_text = np.searchsorted(quotes, bounds)
    counts = np.diff(starts)
    before = np.searchsorted(quotes, firsts) - np.repeat(of_text[:-1], counts)
    found: Flags = (before % 2 == 1) & np.repeat(np.diff(of_text) % 2 == 0, counts)
    return found


def _opens_sentence(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    firsts: NDArray[np.int64],
    capital: Flags,
    starts: NDArray[np.int64],
) -> Flags:
    """Whether a word with a capital follows the end of a sentence, by the first three marks before it."""
    found = np.zeros(len(firsts), bool)
    asked = np.flatnonzero(capital)
    asked = asked[asked > 0]
    gap = ends[asked - 1] + 1
    for step in range(3):
        found[asked] |= _ENDS_SENTENCE[data[np.minimum(gap + step, firsts[asked] - 1)]]
    found[starts[:-1][starts[:-1] < starts[1:]]] = True
    return found
