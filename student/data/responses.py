"""Finds the response in a rendered conversation, and the part of the response that each token belongs to.

Chat templates of thinking models change the text: the prompt opens the thinking (`<think>` is its last word), and a
finished turn is trimmed or loses its rationale. The text that is learned here always begins with the prompt as the
student is asked with, and always has the whole rationale and answer. Does not tokenise (student/data/encode.py).
"""

import re
from collections.abc import Sequence

import numpy as np

from distill.errors import ModelError
from distill.rationale import OPEN, TAGS, opened_thinking, split, thinking_end
from student.data.rows import TrainingRow

RATIONALE, ANSWER, FORMAT = range(3)
KINDS = ("rationale", "answer", "format")
"""Parts of a response by number."""
_EMPTY_THINKING = re.compile(
    "(?:" + "|".join(rf"{re.escape(first)}\s*(?:{re.escape(last)}\s*)?" for first, last in TAGS) + r")\Z"
)
"""The end of a prompt that opens the thinking, or closes it at once."""


def learned_text(
    head: str, text: str, row: TrainingRow, marked: tuple[int, int] | None = None
) -> tuple[str, tuple[int, int]]:
    """A row's text to learn, and the characters of its response: `text` as the template renders the finished turn.

    `head`: the template's prompt, up to where the assistant begins; `marked`: the characters of its {% generation %}
    block. Where the template's text does not begin with the prompt, or lacks a part of the response, the response
    follows the prompt directly. Raises ModelError for a template that writes the question itself in another way and
    marks no block with the whole response.
    """
    if text.startswith(head) and _locate(text, len(head), row) is not None:
        begin, end = marked or (0, len(text))
        return text, (max(begin, len(head)), end)
    if not text.startswith(_EMPTY_THINKING.sub("", head)):
        if marked is not None and _locate(text, marked[0], row) is not None:
            return text, marked
        raise ModelError(
            "the student's chat template changes a question when its answer follows, and it has no {% generation "
            "%} block around the whole response; add such a block, so that the loss covers only the response"
        )
    opening = opened_thinking(head)
    rebuilt = head + (_continued(opening, row) if opening else row.response.strip())
    return rebuilt, (len(head), len(rebuilt))


def _continued(opening: str, row: TrainingRow) -> str:
    """The response after a prompt that ends with the opening tag: rationale, closing tag, answer."""
    closing = dict(TAGS)[opening.strip()]
    rationale, answer = _parts(row)
    before = "" if opening.endswith("\n") else "\n"
    return f"{before}{rationale}\n{closing}\n\n{answer}"


def _parts(row: TrainingRow) -> tuple[str, str]:
    """Rationale and answer without blanks around them."""
    rationale, answer = (row.response[slice(*span)].strip() for span in (row.rationale, row.answer))
    if not answer:
        found = split(row.response)
        return found.rationale, found.answer.strip()
    return rationale, answer


def _locate(text: str, start: int, row: TrainingRow) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Characters of rationale and answer in a text from `start` on; None where one of them is not there."""
    whole = row.response.strip()
    position = text.find(whole, start)
    if position >= 0:
        begin = position - (len(row.response) - len(row.response.lstrip()))
        return _moved(row.rationale, begin), _moved(row.answer, begin)
    if not row.rationale[1] and not row.answer[1] and not whole.startswith(OPEN):
        return None
    rationale, answer = _parts(row)
    first = text.find(rationale, start)
    if first < 0:
        return None
    end = first + len(rationale) if rationale else start
    # An answer may be one letter: only what comes after the thinking is looked at.
    second = text.find(answer, max(end, start + thinking_end(text[start:])))
    if second < 0:
        return None
    answered = (second, second + len(answer)) if row.answer[1] else (0, 0)
    return ((first, end) if rationale and row.rationale[1] else (0, 0)), answered


def _moved(span: tuple[int, int], by: int) -> tuple[int, int]:
    return (span[0] + by, span[1] + by) if span[1] else span


def kinds_of(offsets: Sequence[tuple[int, int]], text: str, start: int, row: TrainingRow) -> np.ndarray:
    """uint8: the part of the response that each token's first character belongs to; tokens by their characters."""
    starts = np.asarray([first for first, _ in offsets])
    kinds = np.full(len(starts), FORMAT, dtype=np.uint8)
    for kind, (first, end) in zip((RATIONALE, ANSWER), _locate(text, start, row) or (), strict=False):
        kinds[(starts >= first) & (starts < end)] = kind
    return kinds
