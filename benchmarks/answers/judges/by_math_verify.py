"""math-verify, called the way its own page shows; LaTeX is put between the dollar signs that it wants."""

import logging
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify

logging.disable()
_WITH_WORDS = [
    LatexExtractionConfig(),
    ExprExtractionConfig(),
    StringExtractionConfig(strings=("A", "B", "C", "D", "yes", "no")),
]


def judge(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    return _verify(prediction, gold)


def judge_words(prediction: str, gold: str, answer_type: str | None, options: list[str] | None) -> bool:
    """With its extraction of strings, for which it has to know the words that may occur."""
    return _verify(prediction, gold, _WITH_WORDS)


def _verify(prediction: str, gold: str, *extraction: Any) -> bool:
    delimited = (f"${text}$" if "\\" in text and "$" not in text else text for text in (gold, prediction))
    return bool(verify(*(parse(text, *extraction) for text in delimited)))
