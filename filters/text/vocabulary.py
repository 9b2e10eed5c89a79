"""The words of a text that signals search for, and the plain form of a text.

Tokenising dominates the cost, so all signals share one pass. Words that no signal looks for are left out.
"""

from string import ascii_lowercase, ascii_uppercase
from typing import Final

from filters.text.backtracking_phrases import CLUES
from filters.text.refusal_phrases import BY_WORD
from filters.text.shared_texts import shared

_SOUGHT: Final = frozenset(CLUES).union(BY_WORD, *(needed for phrases in BY_WORD.values() for needed, _ in phrases))
_SEPARATORS: Final = b'.,:;!?()[]{}"*_`<>/\\|\n\t\r'
_PLAIN: Final = bytes.maketrans(
    _SEPARATORS + ascii_uppercase.encode(), b" " * len(_SEPARATORS) + ascii_lowercase.encode()
)


@shared
def vocabulary(text: str) -> frozenset[bytes]:
    """The sought words of a text in plain form as UTF-8, without the punctuation around them."""
    # The table turns ASCII to lower case on its way.
    data = text.encode() if text.isascii() else plain(text).encode("utf-8", "ignore")
    return _SOUGHT.intersection(data.translate(_PLAIN).split())


@shared
def plain(text: str) -> str:
    """A text in lower case with straight apostrophes."""
    return text.lower().replace("’", "'")
