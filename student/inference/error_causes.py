"""Why a reply is not correct: the first part of its rationale that fails.

A rationale reads values from the image (perception), computes with them (arithmetic) and states a result, which the
answer repeats (conclusion). The parts are checked in this order, and the first that fails is the cause. If no part
fails, the student computed something else than the question asks (approach). Without a table of the image's values, a
misreading looks like another approach: `perception_or_approach`.
"""

from collections.abc import Collection
from typing import Final, Literal

from distill.grounding.arithmetic_slips import find_slips
from distill.grounding.findings import Reason

ErrorCause = Literal[
    "format",
    "no_rationale",
    "undecided",
    "perception",
    "arithmetic",
    "conclusion",
    "approach",
    "perception_or_approach",
]

CAUSES: Final[dict[ErrorCause, str]] = {
    "format": "the reply has no closed think block with an answer, or it was cut off",
    "no_rationale": "the reply has no rationale that could be checked",
    "undecided": "the judge cannot decide about the answer",
    "perception": "the rationale names a value or a label that the image's table does not hold, or lists a row of "
    "the image wrongly",
    "arithmetic": "the values are right, and a step of arithmetic is wrong",
    "conclusion": "values and arithmetic are right, but the answer differs from the conclusion of the rationale",
    "approach": "values, written arithmetic and conclusion are right, but the reply does not answer the question: "
    "another question, row or count",
    "perception_or_approach": "unknown: arithmetic and conclusion are right, and the rationale states no value that "
    "the table of the image can check",
}
"""Every cause and its meaning, in the order in which they are checked."""

_MISREAD: Final[frozenset[Reason]] = frozenset({"reading", "label", "value"})


def error_cause(
    *,
    verdict: str,
    well_formed: bool,
    rationale: str,
    consistent: bool | None,
    unsupported_reasons: Collection[Reason] | None,
    misread: bool | None = None,
) -> ErrorCause | None:
    """The cause of a reply that is not correct; None for a correct one.

    `consistent`: whether the answer is what the rationale concludes (None: open). `unsupported_reasons`: why values
    of the rationale are unsupported by the image's table (distill.grounding.check); None where no value was checked.
    `misread`: whether a row that it lists is not the image's (distill.grounding.transcript); None: none was checked.
    """
    if verdict == "correct":
        return None
    if not well_formed:
        return "format"
    if not rationale.strip():
        return "no_rationale"
    if verdict == "undecided":
        return "undecided"
    if misread or _MISREAD.intersection(unsupported_reasons or ()):
        return "perception"
    if unsupported_reasons or find_slips(rationale).slips:
        return "arithmetic"
    if consistent is False:
        return "conclusion"
    return "perception_or_approach" if unsupported_reasons is None and misread is None else "approach"
