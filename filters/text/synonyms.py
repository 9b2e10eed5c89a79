"""Word lists by which two English questions are compared: words that say nothing, and words that say the same.

Words of one group are taken for one word, inflections included (`filters.matching.question_match.stem`).
"""

from distill.word_tables import read_table, word_set

_TABLE = read_table(__file__)
SMALL = word_set(_TABLE["small"])
INSTRUCTION = word_set(_TABLE["instruction"])
ALWAYS_CONTENT = word_set(_TABLE["always_content"])
"""Instruction words that can be what is asked about, as in "the value on the right"."""
MEDIA = word_set(_TABLE["media"])
ORDER_MATTERS = word_set(_TABLE["order_matters"])
STRICT_ORDER = word_set(_TABLE["strict_order"])
"""The things before and after these words must not change places."""
UNDOING = word_set(_TABLE["undoing"])
LIGHT_VERBS = word_set(_TABLE["light_verbs"])
"""Verbs that can be left out or exchanged: "which bar shows the highest value", "which bar has the highest value"."""
NUMBERS = {
    word: number for number, *words in map(str.split, _TABLE["numbers"].strip().splitlines()) for word in words
}
GROUPS: tuple[tuple[str, ...], ...] = tuple(tuple(group.split()) for group in _TABLE["groups"].strip().splitlines())
CONTRASTS = word_set(_TABLE["contrasts"])
"""A question with another one of these words is always another question, also in a long text with the same answers.
"""
