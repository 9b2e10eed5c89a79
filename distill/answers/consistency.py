"""The conclusion of a rationale, and whether the answer after it agrees with it.

The conclusion is the answer that the rationale marks ("the answer is 7", a box), else its last sentence. It is
compared with the answer as a prediction is compared with a gold answer. The module is cautious: a last sentence
without a result, or an aside after the result, contradicts nothing. An unmarked sentence can contradict a number, a
year or a choice, but not a text. It reads English; in other languages only equations and marked answers. It does not
check whether conclusion or answer is correct.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from distill.answers.final_answer import final_answer
from distill.answers.verdicts import is_numeric, judge

Conclusion = Literal["agrees", "contradicts"]

_TAIL: Final = 600
"""Characters of a rationale that can hold its conclusion. A longer answer states none that could be compared."""
_BREAK: Final = re.compile(r"\n+|(?<=[.!?])\s+(?=\S)|(?<=[。！？])")
_RESULT: Final = re.compile(
    r"[=≈→]|\b(?:so|thus|hence|therefore|altogether|together|in all|total|sum|difference|result|final"
    r"|is|are|equals?|makes?|gives?|leaves|must be)\b",
    re.IGNORECASE,
)
ASIDE: Final = re.compile(
    r"[(\[]|\b(?:check|verify|sanity|confirm|comparison|contrast|whereas|instead|would|could)", re.IGNORECASE
)
"""A sentence after the conclusion, not the conclusion."""


class StatedAnswer(NamedTuple):
    """The words that should state the answer."""

    text: str
    marked: bool
    """Whether the rationale calls them its answer."""
    around: str
    """They, and the sentence before them."""


def compare_conclusion(
    reasoning: str, answer: str, answer_type: str | None = None, options: Sequence[str] = ()
) -> Conclusion | None:
    """Whether a rationale ends in its answer or in another one; None if it leaves this open.

    `answer_type` and `options` are the question's, as for `distill.answers.verdicts.judge`.
    """
    stated = find_conclusion(reasoning)
    if stated is None or not answer.strip():
        return None
    if len(answer) > _TAIL and len(answer := final_answer(answer).text) > _TAIL:
        return None
    judgement = judge(stated.text, answer, answer_type, options=options)
    if judgement.verdict == "correct":
        return "agrees"
    if judgement.verdict == "undecided":
        return None
    if stated.marked:
        return "contradicts"
    if is_numeric(judgement.answer_type):
        return "contradicts" if _states_other_number(stated, judgement.reason, answer) else None
    return "contradicts" if judgement.answer_type == "choice" and _RESULT.search(stated.text) else None


def find_conclusion(reasoning: str) -> StatedAnswer | None:
    """The words of a rationale that should state its answer; None for a rationale without words."""
    tail = reasoning.strip()[-_TAIL:]
    final = final_answer(tail)
    if final.marked:
        return StatedAnswer(final.text, True, final.text) if final.text.strip() else None
    sentences = [part.strip() for part in _BREAK.split(tail) if part.strip()]
    return StatedAnswer(sentences[-1], False, " ".join(sentences[-2:])) if sentences else None


def _states_other_number(stated: StatedAnswer, reason: str, answer: str) -> bool:
    """Whether an unmarked sentence names one result, and the answer's number is not near it."""
    if reason not in ("other_value", "other_year") or ASIDE.search(stated.text):
        return False
    if re.search(r"[^\W\d_]", stated.text) and not _RESULT.search(stated.text):
        return False
    return not set(_digits(answer)) & set(_digits(stated.around))


def _digits(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)
