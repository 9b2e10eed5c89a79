"""The most frequent short words of twenty languages: words that are no names and carry little meaning."""

from typing import Final

from distill.word_tables import read_table, word_set

STOP_WORDS: Final = {language: word_set(words) for language, words in read_table(__file__).items()}
"""Lower-case words by language."""
