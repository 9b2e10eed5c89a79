"""Forms of one English word: umbrella and umbrellas, surf, surfs and surfing, left and leftward, wood and wooden.

One of the two must be the plain form: interested and interesting are two words.
"""

from functools import lru_cache
from typing import Final

from rapidfuzz.distance import Prefix

from distill.word_tables import read_table

_IRREGULAR: Final = dict(form.split("=") for form in read_table(__file__)["forms"].split())
_ENDINGS: Final = ("s", "es", "ies", "ing", "ed", "ward", "wards")
_OTHER_WORDS: Final = frozenset({"news", "united", "glasses", "works", "means", "states", "ours", "hers", "being"})
"""Words that only look like a form of another."""
_FEWEST_LETTERS: Final = 3


@lru_cache(maxsize=8192)
def plain_forms(word: str) -> frozenset[str]:
    """The words of which a lower-case word may be a form, itself among them."""
    forms = {word, _IRREGULAR.get(word, word)}
    if word in _OTHER_WORDS or not word.isascii() or not word.isalpha():
        return frozenset(forms)
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < _FEWEST_LETTERS or not set(stem) & set("aeiouy"):
            continue
        if ending == "ies":
            forms.add(stem + "y")
        elif ending == "s" and stem[-1] in "sui":
            continue
        else:
            forms.add(stem)
        if ending in ("ing", "ed"):
            forms.add(stem + "e")
            if len(stem) > _FEWEST_LETTERS and stem[-1] == stem[-2]:
                forms.add(stem[:-1])
    return frozenset(forms)


def same_word_form(left: str, right: str) -> bool:
    """Whether one of two lower-case words is the other, a form of it, or the form in -s of what it is a form of."""
    if left == right:
        return True
    shared = plain_forms(left) & plain_forms(right)
    return any(word in (left, right, left.removesuffix("s"), right.removesuffix("s")) for word in shared)


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


_SHARED_LETTERS: Final = 4
_ENDING: Final = 3


def looks_like_verb(word: str) -> bool:
    """Whether a lower-case word ends as a verb in a statement may."""
    return len(word) > _FEWEST_LETTERS and word.endswith(("s", "ed", "ing")) and not word.endswith(_NO_VERBS)


_NO_VERBS: Final = ("ss", "'s", "colored", "coloured", "shaped", "flavored", "flavoured")
