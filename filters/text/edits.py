"""Whether two texts with the same values say the same: aligns their words and judges every difference.

A difference does not count as a change if it is only in fillers, in words with the same meaning, in exchangeable
words of reasoning (`filters.text.rationale_words`), in a typo or a tense (`filters.text.misspellings`), or in a word
written twice. One text may also say more. A word that changes the meaning (`CHANGING`), or an unknown word instead of
another one, makes two texts different.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from filters.text.misspellings import is_participle, is_same_word, similar_words
from filters.text.shingles import Hashes
from filters.text.values_and_names import FEWEST_WORDS, Form
from filters.text.word_lists import CHANGE, EXCHANGE, FILLER, FUNCTION, OPENER, hash_listed, look_up

WORDS_AN_EDIT = 100
"""A text may have one edited word in so many, and one in any case, below the threshold of similarity."""
_SHINGLES_AN_EDIT = 3


@dataclass(slots=True)
class Edits:
    """How many words of two texts that say the same differ."""

    more: int = 0
    """Unknown words that only one text has."""
    unknown: int = 0
    """Typos in words that no list has: where case shows no names, they may be names."""
    known: int = 0
    """Exchanged words, and typos in listed words."""
    openers: set[int] = field(default_factory=set)
    """Hashes of typos in words that commonly begin a sentence: no names, in spite of their capital."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """Words of a part of a text that are no fillers and not exchangeable, by position."""

    form: Form
    start: int
    stop: int
    positions: list[int]
    flags: list[int]
    meanings: list[int]
    exchangeable: set[int]
    """Meanings of the words of this part that count no more than a filler."""

    def pop(self, index: int) -> None:
        for column in (self.positions, self.flags, self.meanings):
            column.pop(index)


def say_the_same(left: Form, right: Form, similarity: float, threshold: float) -> bool:
    """Whether two texts with this similarity of shingles are near duplicates.

    A short text has few shingles, and one edited word takes three of them. So texts below the threshold count too, if
    no more words are edited than `WORDS_AN_EDIT` allows.
    """
    near = similarity >= threshold
    if left.values != right.values or not (near or similarity >= least_similarity(left, right, threshold)):
        return False
    edits = compare_words(left, right)
    if edits is None or not same_names(left, right, edits):
        return False
    return near or (not edits.more and edits.unknown + edits.known <= _allowed(len(left.words), len(right.words)))


def least_similarity(left: Form, right: Form, threshold: float) -> float:
    """The least similarity of shingles that texts with the allowed edits have; above 1 where none are allowed."""
    if threshold == 1 or min(len(left.words), len(right.words)) < FEWEST_WORDS:
        return 2.0
    edits = _allowed(len(left.words), len(right.words))
    shingles = max(len(left.content), len(right.content)) - _SHINGLES_AN_EDIT + 1
    lost = _SHINGLES_AN_EDIT * edits
    # A little less, because a text may have a shingle twice.
    return 0.8 * max(shingles - lost, 0) / (shingles + lost) if shingles > 0 else 0.0


def _allowed(words: int, other_words: int) -> int:
    return max(1, round(max(words, other_words) / WORDS_AN_EDIT))


def same_names(left: Form, right: Form, edits: Edits | None = None) -> bool:
    """Whether two texts with nearly the same words have the same possible names in the same order."""
    if np.array_equal(left.words, right.words):
        return True
    quoted, other_quoted = left.words[left.is_quoted], right.words[right.is_quoted]
    if len(quoted) and len(other_quoted) and not np.array_equal(quoted, other_quoted):
        return False
    if np.array_equal(left.content, right.content) and not _has_other_names(left, right):
        return True
    if not left.names or not right.names:
        # Case shows no names in one of the texts: any word may be one that is not listed.
        edits = edits or compare_words(left, right)
        return edits is not None and not edits.more and not edits.unknown
    names = {*left.certain.tolist(), *right.certain.tolist()}
    possible = {*left.possible.tolist(), *right.possible.tolist()} - (edits.openers if edits is not None else set())
    if possible:
        names |= possible.difference(left.small.tolist(), right.small.tolist())
    return _have_equal(names, left, right)


def _has_other_names(left: Form, right: Form) -> bool:
    """Whether a name that would be exchangeable as a word ("Focus", "Signal") is in only one of two texts."""
    names = {
        name for form in (left, right) for name in form.words[form.is_certain & (form.listed & EXCHANGE > 0)].tolist()
    }
    return not _have_equal(names, left, right)


def _have_equal(chosen: Container[int], left: Form, right: Form) -> bool:
    """Whether two texts have the same of these words, in the same order: a list is faster than numpy here."""
    ours, theirs = ([word for word in form.words.tolist() if word in chosen] for form in (left, right))
    return ours == theirs


def compare_words(left: Form, right: Form) -> Edits | None:
    """The edits between two texts with the same values; None if they say different things."""
    if _turns_a_relation(left, right):
        return None
    if np.array_equal(left.content, right.content):
        return Edits()
    edits = Edits()
    only_left: set[int] = set()
    only_right: set[int] = set()
    for (start, stop), (other_start, other_stop) in _differences(_words_and_phrases(left), _words_and_phrases(right)):
        removed = _content(left, start, stop)
        added = _content(right, other_start, other_stop)
        _drop_equal(removed, added)
        if removed.positions and added.positions:
            says_the_same = _exchange(removed, added, edits)
        else:
            says_the_same = _add(removed, added, edits)
        if not says_the_same:
            return None
        only_left.update(removed.meanings)
        only_right.update(added.meanings)
    # A word that moved may say another thing: "the cup left of the plate".
    return edits if only_left.isdisjoint(only_right) else None


def _turns_a_relation(left: Form, right: Form) -> bool:
    """Whether a small word is replaced by one that changes the meaning: sent by, sent to; rises by 20, to 20."""
    opposed = _opposed_words()
    if _have_equal(opposed, left, right):
        return False
    return any(
        stop - start == other_stop - other_start == 1
        and int(right.words[other_start]) in opposed.get(int(left.words[start]), ())
        and not (left.word(start) in ("in", "on") and _is_of_an_image(right, other_stop))
        for (start, stop), (other_start, other_stop) in _differences(left.words, right.words)
    )


def _is_of_an_image(form: Form, position: int) -> bool:
    """Whether the next words name the image or a part of it: "in the chart" and "on the chart" are one."""
    return any(form.word(place) in _image_words() for place in range(position, min(position + 3, len(form.words))))


_IMAGES = """image picture photo photograph figure chart graph plot diagram map screen page axis poster sign label
    screenshot drawing sketch receipt menu form slide list ticket legend scale average"""
_OPPOSED = """by/from by/to by/for to/from from/for if/because if/although if/though because/although because/though
    and/or in/on into/onto in/over in/between on/between on/over"""


@lru_cache(maxsize=1)
def _image_words() -> frozenset[str]:
    return frozenset(_IMAGES.split())


@lru_cache(maxsize=1)
def _opposed_words() -> dict[int, set[int]]:
    """For the hash of each of these words, the words that change the meaning in its place."""
    opposed: dict[int, set[int]] = {}
    for pair in _OPPOSED.split():
        one, other = hash_listed(pair.split("/")).tolist()
        opposed.setdefault(one, set()).add(other)
        opposed.setdefault(other, set()).add(one)
    return opposed


def _differences(left: Hashes, right: Hashes) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where two texts differ: from one common word to the next one."""
    start = other_start = 0
    for block in Levenshtein.editops(left.tolist(), right.tolist()).as_matching_blocks():
        if (start, other_start) != (block.a, block.b):
            yield (start, block.a), (other_start, block.b)
        start, other_start = block.a + block.size, block.b + block.size


def _words_and_phrases(form: Form) -> Hashes:
    """The words, those of a phrase as others than the same words elsewhere: "no doubt" does not hold "doubt"."""
    return form.words ^ (form.listed & ~look_up(form.words)[0] & FILLER > 0)


def _content(form: Form, start: int, stop: int) -> _Words:
    flags, meanings = form.listed[start:stop], form.meanings[start:stop]
    is_content = flags & (FILLER | EXCHANGE) == 0
    kept = np.flatnonzero(is_content)
    return _Words(
        form=form,
        start=start,
        stop=stop,
        positions=(kept + start).tolist(),
        flags=flags[kept].tolist(),
        meanings=meanings[kept].tolist(),
        exchangeable=set(meanings[(flags & EXCHANGE > 0) & (flags & FILLER == 0)].tolist()),
    )


def _drop_equal(left: _Words, right: _Words) -> None:
    """Drop the words that both begin with or end with, and those that mean an exchangeable word of the other text."""
    for words, others in ((left, right), (right, left)):
        for index in reversed(range(len(words.positions))):
            if words.meanings[index] in others.exchangeable:
                words.pop(index)
    for index in (0, -1):
        while left.meanings and right.meanings and left.meanings[index] == right.meanings[index]:
            left.pop(index)
            right.pop(index)


def _exchange(removed: _Words, added: _Words, edits: Edits) -> bool:
    """Count the edits where words replace others; False if they say another thing."""
    if len(removed.positions) != len(added.positions):
        return False
    return all(
        removed.meanings[index] == added.meanings[index]
        or _misspelt(removed, removed.positions[index], added, added.positions[index], edits)
        for index in range(len(removed.positions))
    )


def _misspelt(left: _Words, position: int, right: _Words, other_position: int, edits: Edits) -> bool:
    """Count a typo or another form of a verb; False if the words are two."""
    word, other_word = left.form.word(position), right.form.word(other_position)
    is_same = is_same_word(word, other_word) or (
        (_follows_be(left.form, position) and is_participle(word, other_word))
        or (_follows_be(right.form, other_position) and is_participle(other_word, word))
    )
    if not is_same:
        return False
    hashes = np.array([left.form.words[position], right.form.words[other_position]])
    flags = look_up(hashes)[0]
    is_known = bool(flags.any()) or not similar_words().isdisjoint((word, other_word))
    edits.known += is_known
    edits.unknown += not is_known
    if (flags & OPENER).any():
        edits.openers.update(hashes.tolist())
    return True


def _follows_be(form: Form, position: int) -> bool:
    return position > 0 and form.word(position - 1) in _FORMS_OF_BE


_FORMS_OF_BE = frozenset(["is", "are", "was", "were", "be", "been"])


def _add(removed: _Words, added: _Words, edits: Edits) -> bool:
    """Count the edits where one text says more, or has words instead of fillers; False if that is a change."""
    words, fillers = (removed, added) if removed.positions else (added, removed)
    is_repeated = False
    for position, flags in zip(words.positions, words.flags, strict=True):
        if _is_repeated(words.form.words, position):
            is_repeated = True
        elif fillers.stop > fillers.start and not flags & FUNCTION:
            places = range(fillers.start, fillers.stop)
            if not any(_misspelt(words, position, fillers, place, edits) for place in places):
                return False
        elif flags & CHANGE:
            return False
        else:
            edits.more += 1
    edits.known += is_repeated
    return True


def _is_repeated(words: Hashes, position: int) -> bool:
    near = words[max(position - 1, 0) : position + 2]
    return bool((near == words[position]).sum() > 1)


def pairs_of(are_pairs: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The pairs of a symmetric matrix, each once, the smaller place first."""
    rows, columns = (places.tolist() for places in are_pairs.nonzero())
    return [(row, column) for row, column in zip(rows, columns, strict=True) if row < column]


def may_be_near(forms: Sequence[Form], similarities: NDArray[np.float64], threshold: float) -> NDArray[np.bool_]:
    """The pairs of texts whose similarity does not rule out that they are near duplicates."""
    near = similarities >= threshold
    least = min(
        (least_similarity(form, form, threshold) for form in forms if len(form.words) >= FEWEST_WORDS), default=2.0
    )
    for left, right in pairs_of((similarities >= least) & ~near):
        is_possible = similarities[left, right] >= least_similarity(forms[left], forms[right], threshold)
        near[left, right] = near[right, left] = is_possible
    return near
