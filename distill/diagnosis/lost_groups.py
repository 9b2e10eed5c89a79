"""Groups of rows that are lost, or nearly lost, at a step that others pass.

Compares two populations of rows (before and after a rule, or trained rows and test rows) by the odds of each group:
its number of rows over the number of all other rows. A group is lost if its odds fall to a fifth or less, and if the
interval of the log odds ratio is below 0 (Woolf's interval with Haldane's correction, 5 % for all groups and steps
together by Bonferroni).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

from distill.diagnosis.row_groups import TEACHER, StepRows
from distill.reports.findings import FEWEST, Finding, share

NEARLY: Final = 0.2
"""Ratio of odds from which a group is nearly lost."""
_ERROR: Final = 0.05
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LostGroup:
    """Values of one grouping of which a step leaves (nearly) nothing."""

    before: StepRows
    after: StepRows
    grouping: str
    values: tuple[str, ...]
    same_as: tuple[str, tuple[str, ...]] | None = None
    """Values of another grouping that have the same rows, as far as counts tell."""

    @property
    def count(self) -> int:
        """Rows before the step."""
        return _count(self.before, self.grouping, self.values)

    @property
    def left(self) -> int:
        return _count(self.after, self.grouping, self.values)

    @property
    def name(self) -> str:
        """Such as `the domain 'charts' (teacher 'analyst')`."""
        others = f" ({_named(*self.same_as)})" if self.same_as is not None else ""
        return f"the {_named(self.grouping, self.values)}{others}"

    @property
    def shares(self) -> tuple[str, str]:
        """The rows of the group among those before and after, with their share."""
        return share(self.count, self.before.rows, "rows"), share(self.left, self.after.rows, "rows")


def _named(grouping: str, values: Sequence[str]) -> str:
    shown = [repr(value) for value in values[:_SHOWN]]
    shown += [f"{len(values) - _SHOWN} more"] if len(values) > _SHOWN else []
    if len(shown) == 1:
        return f"{grouping} {shown[0]}"
    return f"{grouping}s {', '.join(shown[:-1])} and {shown[-1]}"


def _count(rows: StepRows, grouping: str, values: Sequence[str]) -> int:
    return sum(rows.groups.get(grouping, {}).get(value, 0) for value in values)


def lost_groups(steps: Sequence[tuple[StepRows, StepRows]]) -> list[LostGroup]:
    """What is lost at the steps, each given by the rows before and after it; the largest loss first.

    Of each step the grouping is named whose lost rows are the most, and each group at the step that takes most of it.
    """
    tests = sum(len(values) for before, after in steps for values in _comparable(before, after).values())
    if not tests:
        return []
    quantile = NormalDist().inv_cdf(1 - _ERROR / 2 / tests)
    found = [lost for before, after in steps if (lost := _at_step(before, after, quantile)) is not None]
    result: list[LostGroup] = []
    named = set[tuple[str, str]]()
    for lost in sorted(found, key=lambda each: each.left - each.count):
        groups = {(lost.grouping, value) for value in lost.values}
        if not groups <= named:
            named |= groups
            result.append(lost)
    return result


def findings_of(lost: Iterable[LostGroup]) -> Iterator[Finding]:
    """A finding for each loss."""
    for each in lost:
        (before, after), step = each.shares, each.after.step
        yield Finding(
            name="rows_lost",
            problem=f"{step[0].upper()}{step[1:]} loses rows of {each.name} far more often than others: they are "
            f"{before} before it and {after} after it",
            # Others may have answered the questions of a teacher.
            certainty="possible" if each.grouping == TEACHER and each.same_as is None else "likely",
            change=each.after.change,
        )


def is_lost(group: tuple[int, int], rest: tuple[int, int], quantile: float) -> bool:
    """Whether a step loses the rows of a group significantly more often than the other rows."""
    if min(group[0], *rest) < FEWEST:
        return False
    if group[1] * rest[0] > NEARLY * group[0] * rest[1]:
        return False
    corrected = [count + 0.5 for count in (*group, *rest)]
    ratio = math.log(corrected[1] * corrected[2] / (corrected[0] * corrected[3]))
    return ratio < -quantile * math.sqrt(sum(1 / count for count in corrected))


def _comparable(before: StepRows, after: StepRows) -> Mapping[str, Sequence[str]]:
    """The values of each grouping that have enough rows; empty if both populations have no common value."""
    return {
        grouping: [value for value, count in values.items() if FEWEST <= count <= before.rows - FEWEST]
        for grouping, values in before.groups.items()
        if values.keys() & after.groups.get(grouping, {}).keys()
    }


def _at_step(before: StepRows, after: StepRows, quantile: float) -> LostGroup | None:
    found = [*_candidates(before, after, quantile)]
    if not found:
        return None
    largest = max(found, key=lambda each: each.count - each.left)  # the first of equal ones
    others = (each for each in found if each is not largest)
    same = next((each for each in others if (each.count, each.left) == (largest.count, largest.left)), None)
    return largest if same is None else replace(largest, same_as=(same.grouping, same.values))


def _candidates(before: StepRows, after: StepRows, quantile: float) -> Iterator[LostGroup]:
    for grouping, values in _comparable(before, after).items():
        lost: list[str] = []
        # Groups that are lost with it are no part of what a group is compared with, so most may be lost.
        for _ in values:
            gone = [_count(rows, grouping, lost) for rows in (before, after)]
            new = [
                value
                for value in values
                if value not in lost
                and is_lost(
                    (n := _count(before, grouping, (value,)), m := _count(after, grouping, (value,))),
                    (before.rows - gone[0] - n, after.rows - gone[1] - m),
                    quantile,
                )
            ]
            if not new:
                break
            lost += new
        if lost:
            yield LostGroup(before=before, after=after, grouping=grouping, values=tuple(sorted(lost)))
