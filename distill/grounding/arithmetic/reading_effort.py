"""How much work the claims of a text may take, so that the time depends on the length of the text only.

The limits are far above what texts need: 64 kB of written exercises take 5,000 tokens and 130,000 characters of the
8,400 and 264,000 that they may.
"""

from dataclasses import dataclass
from typing import Final, Self

_TOKENS_A_NUMBER: Final = 8
_CHARACTERS_A_NUMBER: Final = 250
_RESULTS_A_NUMBER: Final = 40


@dataclass(slots=True)
class ReadingEffort:
    """What is left of the work for one text."""

    tokens: int
    """Tokens of sentences that may hold an equation."""
    characters: int
    """Characters of sentences, counted once for each pattern that is searched for."""
    results: int
    """Results that are computed of the numbers of a sentence."""

    @classmethod
    def for_numbers(cls, max_numbers: int) -> Self:
        limits = (_TOKENS_A_NUMBER, _CHARACTERS_A_NUMBER, _RESULTS_A_NUMBER)
        return cls(*(limit * max_numbers for limit in limits))

    @property
    def is_used_up(self) -> bool:
        return min(self.tokens, self.characters, self.results) < 0
