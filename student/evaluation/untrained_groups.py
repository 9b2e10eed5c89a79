"""Groups of test questions of which the student has trained (nearly) no rows, and the step that lost them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from distill.diagnosis.lost_groups import LostGroup, findings_of, is_lost, lost_groups
from distill.diagnosis.row_groups import DOMAIN, SELECTION, StepRows, groups_of
from distill.reports.findings import Finding, share
from distill.stats.intervals import Z95, wilson
from distill.types import Sample
from student.inference.reply_metrics import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """The rows of a run at each step, by group."""

    left: Sequence[StepRows]
    """After each step of the filter, in order."""
    trained: StepRows
    """The traces that the stages of the student have trained."""

    @classmethod
    def of(cls, left: Sequence[StepRows], trained: Sequence[StepRows]) -> "RunRows":
        return cls(left=left, trained=trained[0] if len(trained) == 1 else _together(trained))

    @property
    def lost_in_training(self) -> list[LostGroup]:
        """What the dataset has and the stages have not trained."""
        dataset = [rows for rows in self.left if rows.step == SELECTION]
        return lost_groups([(rows, self.trained) for rows in dataset])

    def losing_step(self, lost: LostGroup) -> StepRows:
        """The first step after which a group of the test is missing."""
        return next((step for step in self.left if _is_missing(lost, step)), self.trained)


def _together(parts: Sequence[StepRows]) -> StepRows:
    """The rows of several stages."""
    groups: dict[str, Counter[str]] = {}
    for part in parts:
        for grouping, values in part.groups.items():
            groups.setdefault(grouping, Counter()).update(values)
    return StepRows(
        step=" and ".join(part.step for part in parts),
        change="; ".join(part.change for part in parts),
        rows=sum(part.rows for part in parts),
        groups=groups,
    )


def _is_missing(lost: LostGroup, step: StepRows) -> bool:
    known = step.groups.get(lost.grouping)
    if known is None:
        return False
    there = sum(known.get(value, 0) for value in lost.values)
    return is_lost((lost.count, there), (lost.before.rows - lost.count, step.rows - there), Z95)


def find(
    arm: str, replies: Sequence[Prediction], asked: Sequence[Sample], rows: RunRows, *, is_bad: bool
) -> Iterator[Finding]:
    """A finding for groups of the test that were not trained; without one, for those that training alone lost.

    A domain is always named; another group where the result `is_bad`, or surely worse in it than in the others.
    """
    groups = {sample.id: groups_of(sample) for sample in asked}
    test = StepRows.of(groups.values(), step="the test")
    found = [
        finding
        for lost in lost_groups([(test, rows.trained)])
        if (finding := _untrained(arm, lost, rows, replies, groups, is_bad=is_bad)) is not None
    ]
    if found:
        yield from found
    else:
        losses = findings_of(rows.lost_in_training)
        yield from (each for each in losses if is_bad or each.certainty != "possible")


def _untrained(
    arm: str,
    lost: LostGroup,
    rows: RunRows,
    replies: Sequence[Prediction],
    groups: Mapping[str, Mapping[str, str]],
    *,
    is_bad: bool,
) -> Finding | None:
    inside, outside = (
        [
            reply["verdict"] == "correct"
            for reply in replies
            if (groups.get(reply["sample_id"], {}).get(lost.grouping) in lost.values) is wanted
        ]
        for wanted in (True, False)
    )
    is_worse = wilson(sum(inside), len(inside))[1] < wilson(sum(outside), len(outside))[0]
    if not (lost.grouping == DOMAIN or is_bad or is_worse):
        return None
    step = rows.losing_step(lost)
    before, after = lost.shares
    return Finding(
        name="test_group_untrained",
        problem=f"{arm} has trained {'no' if not lost.left else 'hardly any'} rows of {lost.name}: they are {before} "
        f"of the test and {after} that {rows.trained.step} trained; the step that loses them is {step.step}. "
        f"{arm} is right in {share(sum(inside), len(inside), 'such questions')}, and in "
        f"{share(sum(outside), len(outside), 'others')}",
        certainty="certain" if lost.grouping == DOMAIN and not lost.left else "likely",
        change=f"{step.change}, or test without them",
    )


def weakest_group(arm: str, replies: Sequence[Prediction], asked: Sequence[Sample]) -> Iterator[Finding]:
    """A group of the test that is answered right far less often than the others, if there is one."""
    groups = {sample.id: groups_of(sample) for sample in asked}
    rows = [(groups.get(reply["sample_id"], {}), reply["verdict"] == "correct") for reply in replies]
    test = StepRows.of([of_row for of_row, _ in rows], step="the test")
    right = StepRows.of([of_row for of_row, is_right in rows if is_right], step="the right replies")
    for lost in lost_groups([(test, right)])[:1]:
        rest = share(right.rows - lost.left, test.rows - lost.count, "other rows")
        yield Finding(
            name="group_wrong",
            kind="open",
            problem=f"{arm} is right in {share(lost.left, lost.count, f'rows of {lost.name}')}, and in {rest}: "
            "they are harder, or their gold answers, images or traces are faulty. Look at some with "
            "`distill view`, Students",
        )
