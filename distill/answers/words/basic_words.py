"""Everyday words of answers in the languages of the benchmarks: colours, animals, vehicles, seasons.

A model often answers a question of another language in English. Only words with one usual meaning are here; names of
countries are in `distill.answers.words.place_names`.
"""

from typing import Final

from distill.answers.words.other_scripts import other_scripts
from distill.word_tables import read_table

_TABLE: Final = read_table(__file__)
_CONCEPTS: Final = [
    [set(language.split()) for language in line.split("|")] for line in _TABLE["concepts"].splitlines()
]
_MEANINGS: Final[dict[str, list[tuple[int, int]]]] = {}
"""The concepts of each word and their languages, as numbers."""
for _concept, _languages in enumerate(_CONCEPTS):
    for _language, _words in enumerate(_languages):
        for _word in {other_scripts(word) for word in _words}:
            _MEANINGS.setdefault(_word, []).append((_concept, _language))
FOREIGN_FILLERS: Final = frozenset(map(other_scripts, _TABLE["fillers"].split()))
"""Words of a colour and its case beside the colour itself: de couleur rouge, लाल रंग."""


def is_same_word(word: str, gold_word: str) -> bool:
    """Whether two words of one language name the same everyday thing: rouge and rouges."""
    return bool({*_MEANINGS.get(word, ())} & {*_MEANINGS.get(gold_word, ())})


def is_translation(word: str, gold_word: str) -> bool:
    """Whether two words of two languages name the same everyday thing: red and rouge."""
    concepts, gold_concepts = ({concept for concept, _ in _MEANINGS.get(one, ())} for one in (word, gold_word))
    return bool(concepts & gold_concepts)


def is_colour(word: str) -> bool:
    """Whether a word names a colour in one of the languages."""
    return any(concept < _COLOURS for concept, _ in _MEANINGS.get(word, ()))


_COLOURS: Final = next(index for index, languages in enumerate(_CONCEPTS) if "left" in languages[0])
"""The concepts before "left" are colours."""
