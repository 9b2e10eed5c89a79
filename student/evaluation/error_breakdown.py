"""Replies of an arm that are not correct by their cause, and one sentence about what limits the student.

Undecided replies are among them: whether they are wrong is not known. The cause of one reply is found in
student/inference/error_causes.py.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from distill.reports.metric_table import interval
from distill.reports.plots import percent
from distill.stats import intervals
from distill.stats.paired_effects import ratio_of_seeds
from distill.word_tables import counted
from student.inference.error_causes import CAUSES

MIN_WRONG: Final = 20
"""With fewer replies that are not correct than this, no cause is called the limit."""

_LIMITS: Final[Mapping[str, str]] = {
    "format": "Replies that are cut off or have no closed think block are",
    "undecided": "Answers that the judge cannot decide are",
    "perception": "Misread images cause",
    "arithmetic": "Wrong arithmetic on values that were read correctly causes",
    "conclusion": "Answers that contradict their own rationale are",
    "approach": "Rationales with right values and right arithmetic that do not answer the question are",
    "perception_or_approach": "Unknown causes (rationales without a value that the table of the image can check) are",
}


def error_breakdown(*trainings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The predictions of one student, or of several trainings of it that answered the same questions in one order.

    `error_causes`: for each cause that occurs, its count `n`, its share of the replies that are not correct with its
    interval `ci95`; in the order of CAUSES. `limited_by`: one sentence, None for too few of them.
    """
    causes = [[prediction.get("error_cause") for prediction in predictions] for predictions in trainings]
    counts = Counter(cause for of_training in causes for cause in of_training if cause is not None)
    total = sum(counts.values())
    return {
        "error_causes": {
            cause: {"n": counts[cause], "share": counts[cause] / total, "ci95": _interval(causes, cause, counts)}
            for cause in CAUSES
            if counts[cause]
        },
        "limited_by": _limit(causes, counts),
    }


_Causes = Sequence[Sequence[str | None]]
"""Of each training, the cause of each question's reply; None of one that is correct."""


def _interval(causes: _Causes, cause: str, among: Collection[str]) -> intervals.Interval:
    """The interval of the share of a cause in the replies with one of the causes `among`."""
    return ratio_of_seeds(
        [[float(each == cause) for each in of_training] for of_training in causes],
        [[float(each in among) for each in of_training] for of_training in causes],
    )


def _limit(causes: _Causes, counts: Counter[str]) -> str | None:
    """What limits the student in one sentence: the most frequent cause, if it surely is the most frequent one."""
    total = sum(counts.values())
    if total < MIN_WRONG:
        return None
    ranked = counts.most_common(2)
    cause, first = ranked[0]
    share = f"{100 * (first / total):.0f} % of its replies that are not correct ({first:,} of {total:,})"
    if _interval(causes, cause, [name for name, _ in ranked])[0] <= 0.5:
        together = intervals.wilson(first, sum(count for _, count in ranked))
        differ = f"The {len(causes)} trainings of this student differ too much to name one cause"
        limit = differ if together[0] > 0.5 else "No single cause limits this student"
        return (
            f"{limit}: {cause} has {first:,} of {counted(total, 'reply', 'replies')} that "
            f"are not correct ({100 * (first / total):.0f} %), {ranked[1][0]} {ranked[1][1]:,}."
        )
    if cause not in _LIMITS:
        return (
            f"{first:,} of its {counted(total, 'reply', 'replies')} that are not correct have no rationale: their "
            "cause cannot be told."
        )
    return f"{_LIMITS[cause]} {share}."


def breakdown_table(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """The causes of replies that are not correct by arm, of arms in metrics.json or results.json.

    `columns` with their meanings, `rows` with (count, share and interval) for each column, and `limits`, one sentence
    an arm. None without causes.
    """
    causes = {name: arm.get("error_causes") or {} for name, arm in arms.items()}
    columns = [cause for cause in CAUSES if any(cause in parts for parts in causes.values())]
    if not columns:
        return None
    return {
        "columns": {cause: CAUSES[cause] for cause in columns},
        "rows": {name: [_cell(parts.get(cause)) for cause in columns] for name, parts in causes.items()},
        "limits": {name: arm["limited_by"] for name, arm in arms.items() if arm.get("limited_by")},
    }


def _cell(part: Mapping[str, Any] | None) -> tuple[int, str] | None:
    return (part["n"], f"{percent(part['share'])} {interval(part['ci95'])}") if part else None
