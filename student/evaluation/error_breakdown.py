"""Wrong replies of an arm by their cause, and one sentence about what limits the student.

The cause of one reply is found in student/inference/error_causes.py.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from distill.stats import intervals
from student.inference.error_causes import CAUSES
from student.inference.reply_metrics import Prediction

MIN_WRONG: Final = 20
"""With fewer wrong replies than this, no cause is called the limit."""

_LIMITS: Final[Mapping[str, str]] = {
    "format": "the form of its replies: they are cut off or have no closed think block",
    "undecided": "answers that the judge cannot decide",
    "perception": "perception: its rationales name values that the image does not show",
    "arithmetic": "arithmetic: its rationales compute wrongly with the values that they name",
    "conclusion": "the conclusion: its answers are not what its rationales conclude",
    "approach": "the approach: its rationales read and compute rightly, but for another question",
    "perception_or_approach": "perception or the approach: arithmetic and conclusions are right, and no table of the "
    "images tells which of the two it is",
}


def error_breakdown(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """`error_causes`: for each cause that occurs, its count `n`, its share of the wrong replies with the interval of
    Wilson `ci95`; in the order of CAUSES. `limited_by`: one sentence, None where too few replies are wrong."""
    wrong = [cause for prediction in predictions if (cause := prediction.get("error_cause")) is not None]
    counts = Counter(wrong)
    return {
        "error_causes": {
            cause: {
                "n": counts[cause],
                "share": counts[cause] / len(wrong),
                "ci95": intervals.wilson(counts[cause], len(wrong)),
            }
            for cause in CAUSES
            if counts[cause]
        },
        "limited_by": _limit(counts),
    }


def _limit(counts: Counter[str]) -> str | None:
    """The most frequent cause as a sentence, if it surely is the most frequent one."""
    total = sum(counts.values())
    if total < MIN_WRONG:
        return None
    ranked = counts.most_common(2)
    cause, first = ranked[0]
    second = ranked[1][1] if len(ranked) > 1 else 0
    if cause not in _LIMITS:  # without a rationale no cause can be told
        return None
    share = f"{first:,} of {total:,} wrong replies ({first / total:.0%})"
    if first + second and intervals.wilson(first, first + second)[0] <= 0.5:
        return f"No single cause limits this student: {cause} has {share}, {ranked[1][0]} {second:,}."
    return f"What limits this student is {_LIMITS[cause]}; {share}."
