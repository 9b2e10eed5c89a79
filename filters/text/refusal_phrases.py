"""Phrases by which a model declines or says that it sees no image, by language, from `refusal_phrases.toml`.

Each entry is a set of words and a pattern. The pattern is tried on a text that holds one of the words.
"""

from typing import Final

from distill.word_tables import compile_listed, read_table

_TABLE: Final = read_table(__file__)
_WORDED: Final = [*_TABLE["english"], *_TABLE["others"]]
_UNSPACED: Final = _TABLE["unspaced"]


def _by_word() -> dict[bytes, tuple[tuple[frozenset[bytes], int], ...]]:
    patterns_of_word: dict[bytes, list[tuple[frozenset[bytes], int]]] = {}
    for index, entry in enumerate(_WORDED):
        for gate in entry["words"].split():
            words = gate.encode().split(b"+")
            patterns_of_word.setdefault(words[-1], []).append((frozenset(words), index))
    return {word: tuple(patterns) for word, patterns in patterns_of_word.items()}


PATTERNS: Final = tuple(compile_listed(entry["pattern"], _TABLE["parts"]) for entry in [*_WORDED, *_UNSPACED])
BY_WORD: Final = _by_word()
"""The patterns of a word: for each pattern all words that a text must hold, and its index in PATTERNS."""
BY_PART: Final = tuple(
    (part, len(_WORDED) + index) for index, entry in enumerate(_UNSPACED) for part in entry["words"].split()
)
"""Parts of words of languages without spaces, each with the index of its pattern in PATTERNS."""
ABSTENTION: Final = compile_listed(_TABLE["abstention"])
"""That nothing can be known: no refusal where the gold answer or an option says the same."""
_NOT_AFTER: Final = (
    "if|when|unless|whether|where|though|claims|says|that case|case|suppose|supposing|"
    "assume|assuming|imagine|pretend|wenn|si"
)
NOT_AFTER: Final = tuple(f"{words} " for words in _NOT_AFTER.split("|"))
"""After these words an inability is a condition or another speaker's, and no refusal of this answer."""
