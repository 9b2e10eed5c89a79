"""How much work the claims of a text may take, so that the time depends on the length of the text only.

The limits are far above what texts need: 64 kB of written exercises take 5,000 tokens and 130,000 characters of the
8,400 and 264,000 that they may.
"""

from dataclasses import dataclass
from typing import Final, Self

_TOKENS_A_NUMBER: Final = 8
_CHARACTERS_A_NUMBER: Final = 250


@dataclass(slots=True)
class ReadingEffort:
    """What is left of the work for one text."""

    tokens: int
    """Tokens of sentences that may hold an equation."""
    characters: int
    """Characters of sentences, counted once for each pattern that is searched for."""

    @classmethod
    def for_numbers(cls, max_numbers: int) -> Self:
        return cls(_TOKENS_A_NUMBER * max_numbers, _CHARACTERS_A_NUMBER * max_numbers)

    @property
    def is_used_up(self) -> bool:
        return min(self.tokens, self.characters) < 0
