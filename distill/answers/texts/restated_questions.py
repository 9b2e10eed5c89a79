"""A sentence of the words of its question and the gold answer, and no others.

"Burgos has the lowest temperature" answers "Which city has the lowest temperature?": its only new word is its answer.
This needs no grammar, so it holds for many languages.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from rapidfuzz.distance import Prefix

from distill.answers.texts.answer_sentences import without_remark
from distill.answers.words.tokens import only_place, tokens
from distill.answers.words.word_classes import (
    AFTER,
    ARTICLES,
    BEFORE,
    CLASSES,
    OPENING,
    PRONOUNS,
    SET_AGAINST,
    affirms,
)
from distill.answers.words.word_forms import same_word_form

_LONGEST: Final = 300
_ASKING: Final = frozenset({"who", "which", "what", "why", "how"})
_OBJECT_ASKED: Final = frozenset({"do", "does", "did", "than", "whom", "by", "von", "par", "por"})
"""Which country did Germany attack? "Poland attacked Germany" has the same words."""
_BE: Final = CLASSES["be_in_any_language"]
_LINKS: Final = ARTICLES | {"de", "da", "do", "del"}
_SMALL: Final = _LINKS | PRONOUNS | OPENING | BEFORE | _BE
_PLACING: Final = frozenset({"in", "of", "for", "at", "on", "by", "en", "de", "à", "em", "im"})
_LATIN = re.compile(r"[^\W\d_]", re.ASCII)
_SHARED_LETTERS: Final = 4
_ENDING: Final = 3


def restates_question(text: str, gold: Sequence[str], question: str) -> bool:
    """Whether `text` has the words of `gold` first or after "is", and otherwise only words of `question`."""
    if not question or not gold or max(len(text), len(question)) > _LONGEST:
        return False
    asked = {*tokens(question)}
    # One of two that the question names, or a denied question: the words alone do not tell which.
    if {*gold} <= asked | _SMALL or (SET_AGAINST - _ASKING) & asked:
        return False
    head = without_remark(text.strip(" .!。।"))
    words = tokens(head)
    place = only_place(gold, words)
    if place is None:
        return False
    before, after = words[:place], words[place + len(gold) :]
    start = int(words[0] in ARTICLES)  # "o" is an article here, and "or" elsewhere
    if not affirms(" ".join((*before[start:], *after))) or _has_other_name(head, gold):
        return False
    is_latin = _LATIN.search(question) is not None
    if not all(
        word in _SMALL or is_form_of_any(word, asked) or (word in AFTER and not is_latin)
        for word in (*before, *after)
    ):
        return False
    if not is_latin:
        return True
    if {*before} <= _SMALL - _PLACING:
        return not after or not _OBJECT_ASKED & asked
    linked = [word for word in before if word not in _LINKS]
    return not after and bool(linked) and linked[-1] in _BE


def is_form_of_any(word: str, asked: set[str]) -> bool:
    """Whether a lower-case word of an answer is a form of one of the words asked for: cities, selling of sells."""
    return any(
        same_word_form(word, other)
        or (
            not word.isdigit()
            and (shared := Prefix.similarity(word, other)) >= _SHARED_LETTERS
            and max(len(word), len(other)) - shared <= _ENDING
        )
        for other in asked
    )


def _has_other_name(text: str, gold: Sequence[str]) -> bool:
    """Whether there is a name beside the gold answer, which may be what acts: Germany in "Germany beat France"."""
    written = [word.strip(".,;:\"'") for word in text.split()]
    return any(
        word[:1].isupper() and tokens(word) and not {*tokens(word)} & {*gold} and before.casefold() not in _PLACING
        for before, word in pairwise(written)
    )
