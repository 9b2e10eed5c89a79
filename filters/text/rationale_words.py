"""Words of rationales that can be added, left out or exchanged without a change of meaning, and words that change it.

Words with the same meaning, and words of reasoning, count with their regular inflections in English, and only in the
listed form in German, French and Spanish. A word of no list equals only itself.
"""

from collections.abc import Iterator
from typing import Final

from distill.word_tables import read_table, word_set
from filters.text.synonyms import CONTRASTS, GROUPS

_TABLE: Final = read_table(__file__)
FILLERS: Final = word_set(_TABLE["fillers"]) | word_set(_TABLE["foreign_fillers"])
"""Words that say nothing of an image."""
_NO_ADVERBS: Final = word_set(_TABLE["no_adverbs"])
_UNLIKE: Final = frozenset(["fraction", "men", "women"])
"""Words of groups for questions that are others in a rationale: as a fraction, as a percentage; a man, men."""


def _forms(word: str) -> Iterator[str]:
    """A word with its regular inflections; those that do not exist are in no text."""
    yield word
    stem = word[:-1] if word.endswith("e") else word
    yield from (f"{word}s", f"{word}es", f"{stem}ed", f"{stem}ing")
    if word.endswith("y"):
        yield from (f"{word[:-1]}ies", f"{word[:-1]}ied")
    if len(word) > 2 and word[-1] not in "aeiouwxy" and word[-2] in "aeiou" and word[-3] not in "aeiou":
        yield from (f"{word}{word[-1]}ed", f"{word}{word[-1]}ing")


def _adverb(word: str) -> str:
    """The adverb of an adjective; the word itself where its meaning may be another one."""
    if word in _NO_ADVERBS or len(word) < 4:
        return word
    return f"{word[:-1]}ily" if word.endswith("y") else f"{word[:-2]}ly" if word.endswith("le") else f"{word}ly"


def _groups(key: str) -> list[list[str]]:
    return [line.split() for line in _TABLE[key].strip().splitlines()]


def same_words() -> dict[str, str]:
    """For each word the word that represents all words of its meaning; groups that share a word are merged."""
    names: dict[str, str] = {}
    for group in (*_groups("same"), *GROUPS):
        listed = (word for word in group if word not in FILLERS and word not in _UNLIKE)
        forms = {form for word in listed for form in _forms(word)}
        joined = {names[form] for form in forms if form in names}
        if joined:
            forms |= {form for form, name in names.items() if name in joined}
        names |= dict.fromkeys(forms, min(forms, default=""))
    for word, name in list(names.items()):
        names.setdefault(_adverb(word), name)
    names |= {
        word: names.get(first, first)
        for first, *others in _groups("foreign_same")
        for word in (first, *others)
        if word not in names
    }
    return names


def changing_words() -> frozenset[str]:
    """Words that change the meaning where they are added, with their inflections."""
    english = CONTRASTS | word_set(_TABLE["changing"])
    return frozenset(form for word in english for form in _forms(word)) | word_set(_TABLE["foreign_changing"])


def exchangeable_words() -> frozenset[str]:
    """Words with which a rationale describes its own steps, with their inflections."""
    words = {language: word_set(listed) for language, listed in _TABLE["exchangeable"].items()}
    forms = frozenset(form for word in words.pop("english") for form in _forms(word)).union(*words.values())
    return forms - changing_words() - FILLERS
