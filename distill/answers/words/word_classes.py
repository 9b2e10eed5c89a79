"""Classes of words around an answer in a sentence, in English first."""

import re
from typing import Final

from distill.word_tables import read_table

_TABLE: Final = read_table(__file__)
CLASSES: Final = {name: frozenset(words.split()) for name, words in _TABLE.items()}
ARTICLES: Final = CLASSES["articles"]
PRONOUNS: Final = CLASSES["pronouns"]
OPENING: Final = CLASSES["opening"]
COUNTS: Final = CLASSES["counts"]
BEFORE: Final = CLASSES["before"]
AFTER: Final = CLASSES["after"]
TIED: Final = CLASSES["tied"]
AFTER_COMMA: Final = CLASSES["after_comma"]
KINDS: Final = CLASSES["kinds"]
COLOURS: Final = CLASSES["colours"]
SIZES: Final = CLASSES["sizes"]
SIDES: Final = CLASSES["sides"]
CALENDAR: Final = CLASSES["calendar"]
RANKED_BELOW: Final = CLASSES["ranked_below"]
LEADING: Final = CLASSES["leading"]
GERMAN: Final = CLASSES["german"]
NUMBERED: Final = CLASSES["numbered"]
JOINS: Final = CLASSES["joins"]
ATTACHES: Final = CLASSES["attaches"]
OPEN_PREPOSITIONS: Final = CLASSES["open_prepositions"]
MOVING: Final = CLASSES["moving"]
PLACING: Final = CLASSES["placing"]
ASKS_FOR_ANY: Final = CLASSES["asks_for_any"]
NEGATIONS: Final = CLASSES["negations"]
NAMED_THINGS: Final = CLASSES["named_things"]
COPIES: Final = CLASSES["copies"]
MEASURES: Final = CLASSES["measures"]
NATIONAL: Final = CLASSES["national"]
KNOWN: Final = CLASSES["known"]
ADJECTIVES: Final = CLASSES["adjectives"]
SHADES: Final = CLASSES["shades"]
UNTIED: Final = CLASSES["untied"]
TOPICS: Final = tuple(frozenset(topic.split()) for topic in _TABLE["topics"].split("|"))
"""Words of a question and its answer that speak of the same: who wrote it, the author is."""
SET_AGAINST: Final = CLASSES["set_against"]
"""Words that deny, doubt or contrast what stands beside them."""
_WORD = re.compile(r"[\u0900-\u0963\u0970-\u097f]+|[^\W_]+(?:['’-][^\W_]+)*")


def affirms(words: str) -> bool:
    """Whether the words around a part do not deny it, doubt it or contrast it: not "it may be"."""
    return not any(word in SET_AGAINST or word.endswith(("n't", "n’t")) for word in _WORD.findall(words.casefold()))


_SETS_APART: Final = SET_AGAINST - CLASSES["joining"]
_ASKED = re.compile(r"\?\s*\S")


def sets_apart(text: str, known: str = "") -> bool:
    """Whether a text denies or contrasts something with a word that `known` lacks, or asks: "7? No, 8."."""
    words = {*_WORD.findall(text.casefold())}
    denied = any(word in _SETS_APART or word.endswith(("n't", "n’t")) for word in words - {*_WORD.findall(known)})
    return denied or _ASKED.search(text) is not None


def denies(word: str) -> bool:
    """Whether a lower-case word is a denial: no, isn't."""
    return word in NEGATIONS or word.endswith("n't")
