"""Which of the words that the families look for a text holds, and its plain form; they ask before they look closer.

Splitting is the dearest part of looking at a text, so it is done once for all families. Words that none of them looks
for are not kept.
"""

from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from filters.text.backtracking_phrases import CLUES
from filters.text.refusal_phrases import BY_WORD
from filters.text.stop_words import STOP_WORDS

_SOUGHT: Final = frozenset(STOP_WORDS).union(
    CLUES, BY_WORD, *(needed for phrases in BY_WORD.values() for needed, _ in phrases)
)
_SEPARATORS: Final = b'.,:;!?()[]{}"*_`<>/\\|\n\t\r'
_PLAIN: Final = bytes.maketrans(
    _SEPARATORS + ascii_uppercase.encode(), b" " * len(_SEPARATORS) + ascii_lowercase.encode()
)


def words_sought(text: str) -> frozenset[bytes]:
    """The sought words of a text in plain form as UTF-8, without the punctuation around them."""
    # The table turns ASCII to lower case on its way.
    data = text.encode() if text.isascii() else plain(text).encode("utf-8", "ignore")
    return _SOUGHT.intersection(data.translate(_PLAIN).split())


# The families look at the traces of one sample one after the other.
vocabulary: Final = lru_cache(maxsize=64)(words_sought)


@lru_cache(maxsize=64)
def plain(text: str) -> str:
    """A text in lower case with straight apostrophes."""
    return text.lower().replace("’", "'")
