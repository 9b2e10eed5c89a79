"""Phrases of two to four words that mean one word, or that say nothing, although a word of them would elsewhere.

"At first glance" has no number, "no doubt" does not deny, and "for that reason" is "therefore".
"""

from itertools import product
from typing import Final

from distill.word_tables import read_table

_TABLE: Final = read_table(__file__)
LONGEST: Final = 4
"""Words of a phrase."""


def verbs_after() -> dict[tuple[str, ...], str]:
    """For each phrase of a word and a verb that counts no more than a filler the verb."""
    listed: dict[tuple[str, ...], str] = {}
    for words, verbs in (line.split("=") for line in _TABLE["after"].strip().splitlines()):
        listed |= {(word, verb): verb for word, verb in product(words.split(), verbs.split())}
    return listed


def phrases() -> dict[tuple[str, ...], str]:
    """For each phrase in words the word that it means; an empty word for those that say nothing."""
    listed = {tuple(phrase.split()): "" for phrase in _TABLE["say_nothing"].split("|")}
    for entry in _TABLE["meanings"].split("|"):
        phrase, meaning = entry.split("=")
        listed[tuple(phrase.split())] = meaning.strip()
    return listed
