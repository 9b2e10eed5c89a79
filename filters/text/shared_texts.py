"""Results about texts that several families of signals need: computed once for a group of samples, then dropped.

A family measures all samples of a group before the next family begins, so the results are kept for all texts of a
group.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

MOST_SAMPLES: Final = 64
"""Samples of a group."""
MOST_CHARACTERS: Final = 1 << 19
"""Characters of the traces of a group; a sample with more is a group of its own."""
_MOST_TEXTS: Final = 1 << 10

Result = TypeVar("Result")
_forgetting: list[Callable[[], None]] = []


def shared(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """Remember what a function says of each text until `forget_texts` is called."""
    cached = lru_cache(maxsize=_MOST_TEXTS)(function)
    forget_with_texts(cached.cache_clear)
    return cached


def forget_with_texts(forget: Callable[[], None]) -> None:
    """Call this function, too, when texts are forgotten."""
    _forgetting.append(forget)


def forget_texts() -> None:
    for forget in _forgetting:
        forget()
