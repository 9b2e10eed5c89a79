"""Phrases by which a writer doubts or repeats the text before them, from `backtracking_phrases.toml`.

`filters.signals.families.reasoning_steps` decides where a phrase counts.
"""

import re
from typing import Final

from distill.word_tables import compile_listed, read_table, word_set

_TABLE: Final = read_table(__file__)
_STARTS: Final = word_set(_TABLE["at_sentence_start"])
PATTERNS: Final = {word: (compile_listed(pattern), word in _STARTS) for word, pattern in _TABLE["turns"].items()}
"""The phrases by their words, and whether they count only where a sentence begins."""
OTHER_WRITING: Final = compile_listed(_TABLE["other_writing"])
CLUES: Final = {word.encode(): word for word in PATTERNS} | {
    clue.encode(): word for clue, word in (pair.split("=") for pair in _TABLE["other_clues"].split())
}
"""The words that make a phrase worth a search: a text without any of them holds no phrase."""
_RIGHT: Final = r"right(?:(?<=t right)|(?<=be right)|(?<=(?:look|seem) right)|(?<=quite right))"
NEEDED: Final = {"right": re.compile(_RIGHT)}
"""What a text must also hold, where the phrase's own word is common and the search for the phrase is slow."""
