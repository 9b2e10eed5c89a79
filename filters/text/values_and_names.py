"""Texts as the search for near duplicates compares them: plain words, values and names.

A text's words are those that remain without case, layout and punctuation (`filters.text.layout`). Its *values* are
its numbers, with their signs and units, number words and single letters, in order: a function of the words alone. Its
*names* are words in quotes, or words with a capital in the middle of a sentence. Two texts with different values are
never near duplicates. Its *content* is its words without fillers, with one word for all words of the same meaning.
`filters.text.edits` compares the names and the content of two texts.

In a text all in capitals, in title case or without any capital, case does not show names: `names` is 0 then. At the
beginning of a sentence a word with a capital counts as a name unless it is in lower case elsewhere or is a word that
commonly begins a sentence.

All on numpy arrays, many texts at a time; hashes as in `filters.text.shingles`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from filters.text.layout import without_layout
from filters.text.shingles import Hashed, Hashes, hash_polynomials, mix_bits, running_powers
from filters.text.word_lists import (
    CHOICE,
    EXCHANGE,
    FILLER,
    FUNCTION,
    NUMBER_WORD,
    OPENER,
    UNIT,
    look_up,
    mark_phrases,
    value_meanings,
)

Flags = NDArray[np.bool_]

_LETTER, _DIGIT, _SIGN, _INNER, _DASH, _POINT = 1, 2, 3, 4, 5, 6
"""Kinds of bytes; whether the last three belong to a number or separate words depends on their neighbours."""
_KINDS = bytes(
    _DIGIT if chr(code).isdigit() and code < 128
    else _LETTER if code >= 128 or chr(code).isalpha()
    else _SIGN if code in b"%+<>#"
    else _INNER if code in b",:/*"
    else _DASH if code == ord("-")
    else _POINT if code == ord(".")
    else 0
    for code in range(256)
)  # fmt: skip
_SMALL = bytes(code + 32 if ord("A") <= code <= ord("Z") else code for code in range(256))
_ENDS_SENTENCE = np.isin(np.arange(256), list(b".!?:;"))
_SHOUTED = 0.75
"""From this share of capitals among words of four bytes and more, case does not show names. German prose has 0.5."""
_LONG = 4
FEWEST_WORDS = 8
"""A text with fewer words besides its values has no template: "yes, 4" and "yes, 5" are no pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """The forms of several texts. Arrays hold one value per word of `words`, or one value per text."""

    words: Hashed
    content: Hashed
    """The words without fillers; words with the same meaning become one word (`filters.text.rationale_words`)."""
    values: Hashes
    """For each text a hash of its values in order."""
    listed: NDArray[np.uint8]
    """The lists that hold each word (`filters.text.word_lists`)."""
    meanings: Hashes
    """For each word the word that stands for all that mean the same."""
    names: Hashes
    """For each text a hash of its certain names in order, their count in the upper bits; 0 where case shows none."""
    templates: Hashes
    """For each text a hash of the words that are neither values nor names; 0 for a short text."""
    certain: Flags
    """Words that are names."""
    possible: Flags
    """Words that begin a sentence with a capital: names unless they are in lower case elsewhere."""
    capital: Flags
    quoted: Flags
    lower: bytes
    """The texts in lower case, in which word i is lower[firsts[i]:stops[i]]."""
    firsts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def split(self) -> list["Form"]:
        numbers = (self.values.tolist(), self.names.tolist(), self.templates.tolist())
        return [
            Form(
                words=self.words.hashes[start:stop],
                content=content,
                values=values,
                listed=self.listed[start:stop],
                meanings=self.meanings[start:stop],
                names=names,
                template=template,
                is_certain=self.certain[start:stop],
                is_possible=self.possible[start:stop],
                is_capital=self.capital[start:stop],
                is_quoted=self.quoted[start:stop],
                lower=self.lower,
                firsts=self.firsts[start:stop],
                stops=self.stops[start:stop],
            )
            for (start, stop), content, values, names, template in zip(
                pairwise(self.words.starts), self.content, *numbers, strict=True
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of one text."""

    words: Hashes
    content: Hashes
    values: int
    listed: NDArray[np.uint8]
    meanings: Hashes
    names: int
    template: int
    is_certain: Flags
    is_possible: Flags
    is_capital: Flags
    is_quoted: Flags
    lower: bytes
    firsts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def word(self, position: int) -> str:
        """One word in lower case."""
        return self.lower[self.firsts[position] : self.stops[position]].decode("utf-8", "replace")

    @property
    def certain(self) -> Hashes:
        return self.words[self.is_certain]

    @property
    def possible(self) -> Hashes:
        return self.words[self.is_possible]

    @property
    def small(self) -> Hashes:
        """Words without a capital."""
        return self.words[~self.is_capital]


def compute_forms(texts: Sequence[str]) -> Forms:
    """The forms of several texts, some hundred kilobytes at most."""
    plain = [without_layout(text) for text in texts]
    raw = [text.encode("utf-8", "surrogatepass") for text in plain]
    joined = b"\n".join([b"", *raw, b"", b""])
    small = joined.translate(_SMALL)
    if len(joined) - len(plain) - 2 != sum(map(len, plain)):
        # A text is not ASCII: capitals are replaced letter by letter.
        lowered = (text.lower().encode("utf-8", "surrogatepass") for text in plain)
        small = b"\n".join([b"", *map(_with_equal_length, lowered, raw), b"", b""])
    bounds = list(accumulate((len(text) + 1 for text in raw), initial=0))
    return _forms_of_bytes(joined, small, bounds)


def _with_equal_length(lowered: bytes, raw: bytes) -> bytes:
    """The lower-case bytes; if their length differs from the length of `raw`, only ASCII letters are in lower
    case."""
    lowered = lowered.replace("ς".encode(), "σ".encode())
    return lowered if len(lowered) == len(raw) else raw.translate(_SMALL)


def _forms_of_bytes(joined: bytes, small: bytes, bounds: list[int]) -> Forms:
    data = np.frombuffer(joined, np.uint8)
    lower = np.frombuffer(small, np.uint8)
    kinds = _kinds_of_bytes(joined, data)
    kind_changes = np.flatnonzero(kinds[1:] != kinds[:-1])
    # By index and not by a mask: words and gaps alternate, and a mask is slowest with that.
    non_empty = np.flatnonzero(kinds[kind_changes[:-1] + 1] != 0)
    begins, ends = kind_changes[non_empty], kind_changes[non_empty + 1]
    hashes = mix_bits(hash_polynomials(small, begins, ends))
    starts = np.searchsorted(begins, bounds)
    firsts = begins + 1
    letters = kinds[firsts] == _LETTER
    listed, meanings = look_up(hashes)
    mark_phrases(hashes, starts, listed, meanings)
    values = _value_flags(lower, firsts, ends, letters, listed, starts)
    capital = letters & _is_capital(data, lower, firsts)
    quoted = _quoted_words(data, firsts, bounds, starts)
    opens = _opens_sentence(data, ends, firsts, capital, starts)
    shouted = _shouted_texts(capital, letters & (ends - begins >= _LONG), starts)
    # "A" in the middle of a sentence is an option; "I" never is a name.
    option = capital & (lower[firsts] == ord("a")) & (ends - begins == 1) & ~opens
    no_name = (listed & FUNCTION > 0) & ~option
    text_of_word = _text_of_each_word(starts)
    by_case = capital & ~values & ~shouted[text_of_word]
    certain = (by_case & ~opens | quoted & ~values) & ~no_name
    possible = by_case & opens & (listed & OPENER == 0)
    names = (_hash_in_order(hashes, certain, starts) & np.uint64((1 << 48) - 1)) | np.uint64(1)
    names |= np.minimum(_count_per_text(certain, starts), 0xFFFF).astype(np.uint64) << np.uint64(48)
    rest = ~(values | certain | possible)
    meanings[values] = value_meanings(hashes[values])
    # In a short text each word counts.
    is_short = np.diff(starts) < FEWEST_WORDS
    said = (listed & np.where(is_short, FILLER, FILLER | EXCHANGE)[text_of_word] == 0) | values
    # In a text with only fillers, the fillers are the content.
    said |= (_count_per_text(said, starts) == 0)[text_of_word]
    long_enough = np.diff(starts) - _count_per_text(~rest, starts) >= FEWEST_WORDS
    return Forms(
        words=Hashed(hashes=hashes, starts=starts.tolist()),
        content=Hashed(
            hashes=meanings[said],
            starts=np.searchsorted(np.flatnonzero(said), starts).tolist(),
        ),
        values=_hash_in_order(meanings, values, starts),
        listed=listed,
        meanings=meanings,
        names=np.where((_count_per_text(capital, starts) > 0) & ~shouted, names, np.uint64(0)),
        templates=np.where(long_enough, _hash_in_order(hashes, rest, starts), np.uint64(0)),
        certain=certain,
        possible=possible,
        capital=capital,
        quoted=quoted,
        lower=small,
        firsts=firsts,
        stops=ends + 1,
    )


def _kinds_of_bytes(joined: bytes, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The kind of each byte: of a letter, of a number with its sign and inner marks, a sign, or none."""
    kinds = np.frombuffer(bytearray(joined.translate(_KINDS)), np.uint8)
    marks = np.flatnonzero(kinds >= _INNER)
    mark_kinds, left, right = kinds[marks], kinds[marks - 1], kinds[marks + 1]
    number = (right == _DIGIT) & (
        (left == _DIGIT)
        | ((mark_kinds == _DASH) & ((left != _LETTER) | _is_exponent(data, kinds, marks)))
        | ((mark_kinds == _POINT) & (left != _LETTER) & (left != _POINT))
    )
    # Between two numbers, also with a space on either side, a mark is an operator; "1,5" and "7:30" are numbers.
    spaces = (data[marks - 1] == ord(" ")) & (data[marks + 1] == ord(" "))
    operator = spaces & (kinds[marks - 2] == _DIGIT) & (np.take(kinds, marks + 2, mode="clip") == _DIGIT)
    is_tight = (left == _DIGIT) & (right == _DIGIT) & np.isin(data[marks], list(b"-/*"))
    operator |= is_tight
    number &= ~is_tight
    kinds[marks] = np.where(number, _DIGIT, np.where(operator, _SIGN, 0))
    return kinds


def _is_exponent(data: NDArray[np.uint8], kinds: NDArray[np.uint8], marks: NDArray[np.int64]) -> Flags:
    """Whether a mark follows the e of a number such as 5e-3."""
    is_exponent: Flags = np.isin(data[marks - 1], (ord("e"), ord("E"))) & (kinds[marks - 2] == _DIGIT)
    return is_exponent


def _value_flags(
    lower: NDArray[np.uint8],
    firsts: NDArray[np.int64],
    ends: NDArray[np.int64],
    letters: Flags,
    listed: NDArray[np.uint8],
    starts: NDArray[np.int64],
) -> Flags:
    """Which words are values: numbers, signs, number words, units after a number, single letters."""
    is_value: Flags = ~letters | (listed & NUMBER_WORD > 0)
    opening = np.zeros(len(firsts), bool)
    opening[starts[:-1][starts[:-1] < starts[1:]]] = True
    units = np.flatnonzero(letters & (listed & UNIT > 0) & ~opening)
    units = units[is_value[units - 1]]
    single = np.flatnonzero(letters & (ends - firsts == 0))
    first = lower[firsts[single]]
    article = (first == ord("a")) | (first == ord("i"))
    chosen = ~opening[single] & (listed[single - 1] & CHOICE > 0)
    is_value[single[~article | chosen]] = True
    is_value[units] = True
    return is_value


def _is_capital(data: NDArray[np.uint8], lower: NDArray[np.uint8], firsts: NDArray[np.int64]) -> Flags:
    """Whether a word begins with a capital; a capital of two bytes may differ in the second byte only."""
    first_bytes = data[firsts]
    is_capital: Flags = first_bytes != lower[firsts]
    wide = np.flatnonzero(first_bytes >= 0xC3)
    is_capital[wide] |= data[firsts[wide] + 1] != lower[firsts[wide] + 1]
    return is_capital


def _text_of_each_word(starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of each word's text."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _count_per_text(flags: Flags, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of flagged words of each text."""
    counts: NDArray[np.int64] = np.diff(np.searchsorted(np.flatnonzero(flags), starts))
    return counts


def _hash_in_order(hashes: Hashes, chosen: Flags, starts: NDArray[np.int64]) -> Hashes:
    """A hash of the chosen words of each text in order: a polynomial over the words' hashes."""
    chosen_words = np.flatnonzero(chosen)
    bounds = np.searchsorted(chosen_words, starts)
    powers, inverses = running_powers(1 << len(chosen_words).bit_length())
    sums = np.zeros(len(chosen_words) + 1, np.uint64)
    np.cumsum(hashes[chosen_words] * powers[: len(chosen_words)], out=sums[1:])
    text_hashes: Hashes = (sums[bounds[1:]] - sums[bounds[:-1]]) * inverses[bounds[:-1]]
    return mix_bits(text_hashes + np.diff(bounds).astype(np.uint64))


def _shouted_texts(capital: Flags, long: Flags, starts: NDArray[np.int64]) -> Flags:
    """Texts in which at least _SHOUTED of the long words have a capital; one capital is needed in any case."""
    if not capital.any():
        return np.zeros(len(starts) - 1, bool)
    long_words, long_capitals = _count_per_text(long, starts), _count_per_text(capital & long, starts)
    is_shouted: Flags = (_count_per_text(capital, starts) > 0) & (long_capitals >= _SHOUTED * long_words)
    return is_shouted


def _quoted_words(
    data: NDArray[np.uint8], firsts: NDArray[np.int64], bounds: list[int], starts: NDArray[np.int64]
) -> Flags:
    """Words between double quotes, in texts with an even number of quotes."""
    quotes = np.flatnonzero(data == ord('"'))
    if not len(quotes):
        return np.zeros(len(firsts), bool)
    of_text = np.searchsorted(quotes, bounds)
    counts = np.diff(starts)
    before = np.searchsorted(quotes, firsts) - np.repeat(of_text[:-1], counts)
    is_quoted: Flags = (before % 2 == 1) & np.repeat(np.diff(of_text) % 2 == 0, counts)
    return is_quoted


def _opens_sentence(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    firsts: NDArray[np.int64],
    capital: Flags,
    starts: NDArray[np.int64],
) -> Flags:
    """Whether a word with a capital follows the end of a sentence, by the first three marks before it."""
    is_opening = np.zeros(len(firsts), bool)
    capital_words = np.flatnonzero(capital)
    capital_words = capital_words[capital_words > 0]
    gap = ends[capital_words - 1] + 1
    for step in range(3):
        is_opening[capital_words] |= _ENDS_SENTENCE[data[np.minimum(gap + step, firsts[capital_words] - 1)]]
    is_opening[starts[:-1][starts[:-1] < starts[1:]]] = True
    return is_opening
