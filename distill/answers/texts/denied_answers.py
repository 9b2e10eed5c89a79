"""Answers that affirm one thing and deny another: "a circle, not a square"."""

import re
from collections.abc import Sequence
from typing import Final

from distill.answers.compare_result import CompareResult, correct, wrong
from distill.answers.texts.mentions import mentions
from distill.answers.words.tokens import tokens

COPULA = re.compile(
    r"(?:(?:looking at|based on|according to|from) [^,]{1,60}, )?"
    r"(?:it|this|that|they|these|those|he|she|there|(?:the|its|their|his|her)\s[\w' -]{1,60}?)"
    r"(?:\s(?:is|are|was|were)|'s|\sbelongs? to|\sgoes to)\s(?:called\s|named\s|labell?ed\s"
    r"|(?:signed|written|made|issued|published|produced|sent|painted|owned|held|approved) (?:by|in|on|at)\s)?"
    r"(?P<rest>.+)",
    re.IGNORECASE,
)
_BUT_NOT = re.compile(
    r"(?P<said>.+?)(?:,? (?:and |but )?not|, (?:und |et |e )?(?:nicht|pas|non|não)) (?P<denied>.+?)\.?",
    re.IGNORECASE,
)
_COPULA_END = re.compile(r"\b(?:is|are|was|were|do|does|did|has|have|it's)$", re.IGNORECASE)
_LONGEST: Final = 120


def compare_with_denied(text: str, gold: str, gold_words: Sequence[str]) -> CompareResult | None:
    """Compares with the part that an answer affirms and the part that it denies; None where it denies nothing.

    "A circle, not a square" is correct for circle, and wrong for square.
    """
    parted = _BUT_NOT.fullmatch(text) if len(text) <= _LONGEST else None
    if parted is None or _COPULA_END.search(parted["said"]):
        return None
    if tokens(parted["said"]) == gold_words or mentions(parted["said"], gold):
        return correct("same_words")
    denied = tokens(parted["denied"]) == gold_words or mentions(parted["denied"], gold)
    return wrong("named_as_wrong") if denied else None
