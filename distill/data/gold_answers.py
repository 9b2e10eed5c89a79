"""Accepted answers of a row: one cell, a list of them, or what several annotators said.

Does not decide which column holds them (distill.data.formats) or what agrees with them (distill.answers).
"""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any

from distill.errors import DataError

VOTES = "votes"
"""Key of Sample.meta: what every annotator said, repetitions included, where ANNOTATORS or more were asked."""
ANNOTATORS = 10
"""Annotators of each question in VQA, TextVQA, A-OKVQA and similar data sets."""
_STATED = re.compile(r"<(answer|conclusion)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
"""The answer within a solution, as many sets of reasoning traces mark it."""
_QUOTED_LIST = re.compile(r"\[\s*(['\"]).*\1\s*\]", re.DOTALL)


class RowError(DataError):
    """A row that cannot be used; `reason` is the counted snake_case reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def golds(value: Any) -> tuple[str, ...]:
    """Accepted answers of a cell, the first one canonical: a text, a number, or a list of them (or of VQA's
    `{"answer": ...}` objects). The most frequent answer of several annotators comes first.

    Nothing means no gold. Raises RowError for anything else.
    """
    texts = _texts(value)
    if len(texts) < 2:
        return tuple(texts)
    counts = Counter(texts)
    return tuple(sorted(counts, key=lambda text: -counts[text]))  # stable: equally frequent ones keep their order


def votes(value: Any) -> Mapping[str, list[str]]:
    """For Sample.meta: the answers of a cell with the answers of at least ANNOTATORS people, else nothing."""
    if value is None:
        return {}
    texts = _texts(value)
    return {VOTES: texts} if len(texts) >= ANNOTATORS else {}


def read_votes(meta: Mapping[str, Any]) -> list[str]:
    """The answers of all annotators in a Sample.meta; none where a row keeps something else under this name."""
    value = meta.get(VOTES)
    are_texts = isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
    return list(value) if are_texts and value else []


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str) and "[" in value and _QUOTED_LIST.fullmatch(value.strip()):
        value = _literal(value.strip())
    items = value if isinstance(value, list | tuple) else [value]
    return [text for text in map(_gold, items) if text]


def _literal(text: str) -> Any:
    """A list of texts that was written as Python or JSON writes it; other text as it is."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else text


def _gold(item: Any) -> str:
    if isinstance(item, str):
        stated = _STATED.findall(item) if "</" in item else []
        return (stated[-1][1] if stated else item).strip()
    if isinstance(item, Mapping) and "answer" in item:
        item = item["answer"]
    if item is None or (isinstance(item, float) and not isfinite(item)):
        return ""
    if isinstance(item, datetime) and item.tzinfo is None and item.time() == time():
        item = item.date()  # columns of days are columns of times for most programs
    if isinstance(item, str | int | float | Decimal | date | time):
        return str(item).strip()
    raise RowError(
        "bad_answer", f'an answer is {item!r:.60}, neither text nor number; map columns.answer ("": no gold answers)'
    )
