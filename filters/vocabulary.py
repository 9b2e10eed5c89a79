"""The different words of a text, which several families ask for before they look closer.

Splitting is the dearest part of looking at a text, so it is done once for all families.
"""

from functools import lru_cache
from typing import Final

_SEPARATORS: Final = b'.,:;!?()[]{}"*_`<>/\\|\n\t\r'
_SPACES: Final = bytes.maketrans(_SEPARATORS, b" " * len(_SEPARATORS))


# The families look at the traces of one sample one after the other.
@lru_cache(maxsize=64)
def vocabulary(text: str) -> frozenset[bytes]:
    """The words of a text in lower case as UTF-8, without the punctuation around them; apostrophes are straight."""
    lowered = text.lower()
    if not lowered.isascii():
        lowered = lowered.replace("’", "'")
    return frozenset(lowered.encode("utf-8", "ignore").translate(_SPACES).split())
