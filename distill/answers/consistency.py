"""What a rationale concludes, and whether the answer that follows it says the same.

A rationale concludes with the answer that it marks ("the answer is 7", a box), else with its last sentence. That is
judged by the answer itself, as a prediction is by a gold answer. Cautious, for this is to accuse a rationale: a last
sentence that names no result contradicts nothing, nor does an aside after the result, and an unmarked one can
contradict a number, a year or a choice, but no words. Knows English; of other writing only equations and marked
answers. Whether conclusion or answer is right is not looked at.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from distill.answers.final_answer import final_answer
from distill.answers.verdicts import is_numeric, judge

Conclusion = Literal["agrees", "contradicts"]

_TAIL: Final = 600
"""Characters of a rationale that can hold its conclusion."""
_BREAK: Final = re.compile(r"\n+|(?<=[.!?])\s+(?=\S)|(?<=[。！？])")
_RESULT: Final = re.compile(
    r"[=≈→]|\b(?:so|thus|hence|therefore|altogether|together|in all|total|sum|difference|result|final"
    r"|is|are|equals?|makes?|gives?|leaves|must be)\b",
    re.IGNORECASE,
)
ASIDE: Final = re.compile(
    r"[(\[]|\b(?:check|verify|sanity|confirm|comparison|contrast|whereas|instead|would|could)",
    re.IGNORECASE,
)
"""A sentence after the conclusion, not the conclusion."""


class StatedAnswer(NamedTuple):
    """The words that should state the answer."""

    text: str
    marked: bool
    """Whether the rationale calls them its answer."""
    around: str
    """They, and the sentence before them."""


def conclusion(
    reasoning: str, answer: str, answer_type: str | None = None, options: Sequence[str] = ()
) -> Conclusion | None:
    """Whether a rationale ends in its answer or in another one; None where it leaves that open.

    `answer_type` and `options` are the question's, as for `distill.answers.verdicts.judge`.
    """
    said = concluded(reasoning)
    if said is None or not answer.strip():
        return None
    found = judge(said.text, answer, answer_type, options=options)
    if found.verdict == "correct":
        return "agrees"
    if found.verdict == "undecided":
        return None
    if said.marked:
        return "contradicts"
    if is_numeric(found.answer_type):
        return "contradicts" if _other_number(said, found.reason, answer) else None
    return "contradicts" if found.answer_type == "choice" and _RESULT.search(said.text) else None


def concluded(reasoning: str) -> StatedAnswer | None:
    """What of a rationale should state its answer; None for a rationale without words."""
    tail = reasoning.strip()[-_TAIL:]
    final = final_answer(tail)
    if final.marked:
        return StatedAnswer(final.text, True, final.text) if final.text.strip() else None
    sentences = [part.strip() for part in _BREAK.split(tail) if part.strip()]
    return StatedAnswer(sentences[-1], False, " ".join(sentences[-2:])) if sentences else None


def _other_number(said: StatedAnswer, reason: str, answer: str) -> bool:
    """Whether an unmarked sentence names one result, and the answer's number stands nowhere near."""
    if reason not in ("other_value", "other_year") or ASIDE.search(said.text):
        return False
    if re.search(r"[^\W\d_]", said.text) and not _RESULT.search(said.text):
        return False
    return not set(_digits(answer)) & set(_digits(said.around))


def _digits(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,]\d+)*", text)
