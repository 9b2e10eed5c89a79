"""Words that are values without a digit, words that may begin a sentence, and units, in lower case.

Number words are from ten languages: a text with another number word has another value.
"""

from typing import Final

from distill.word_tables import read_table, word_set
from filters.text.stop_words import STOP_WORDS

_TABLE: Final = read_table(__file__)
NUMBER_WORDS: Final = frozenset[str]().union(*map(word_set, _TABLE["number_words"].values()))
UNITS: Final = word_set(_TABLE["units"])
CHOICES: Final = word_set(_TABLE["choices"])
"""Words after which a single letter is one of several, even "a"."""
FUNCTION_WORDS: Final = word_set(_TABLE["no_names"]).union(*STOP_WORDS.values())
"""Words that are no name even with a capital in the middle of a sentence, as titles have them."""
OPENERS: Final = FUNCTION_WORDS | word_set(_TABLE["openers"])
SAME_VALUES: Final = {
    word: value for value, *words in map(str.split, _TABLE["same_values"].strip().splitlines()) for word in words
}
"""Words, signs and units by the value that they mean: "3" for "three", "km" for "kilometres"."""
