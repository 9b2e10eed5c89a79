"""What two groups of rows differ in: every feature by itself, the largest difference first.

The measure for a number is the area under the ROC curve (how often a row of one group has the larger value). For a
category it is the difference of the shares; for a category that the first group lacks, its share in the second group.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from distill.diagnosis.row_features import Features, words
from distill.reports.findings import FEWEST
from distill.stats.intervals import wilson

LARGE: Final = 0.8
"""Least strength of a difference that is reported: an area of 0.9, or 80 points between two shares."""
NEW: Final = 0.15
"""Share of the second group with a category that the first does not have."""
PHRASE: Final = 0.5
"""Points between the shares of texts that have a phrase: texts of one kind come from one draw, so few differ so."""
_LONGEST: Final = 3
"""Words of a phrase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    feature: str
    strength: float
    """0: the groups are equal in it; 1: it separates each row of one group from each row of the other."""
    first: str
    second: str

    @property
    def text(self) -> str:
        return f"{self.feature}: {self.second} against {self.first}"


def differences(first: Sequence[Features], second: Sequence[Features]) -> list[Difference]:
    """The features in which the second group differs from the first, the largest difference first."""
    names = dict.fromkeys(name for row in (*first[:1], *second[:1]) for name in row)
    found = [_difference(name, [row.get(name) for row in first], [row.get(name) for row in second]) for name in names]
    return sorted(filter(None, found), key=lambda each: -each.strength)


def of_phrases(feature: str, first: Sequence[str], second: Sequence[str]) -> Difference | None:
    """The phrase that far more texts of one group have; of equally frequent ones the longest."""
    if min(len(first), len(second)) < FEWEST:
        return None
    before, after = (_phrases(texts) for texts in (first, second))
    shares = {
        phrase: (before[phrase] / len(first), after[phrase] / len(second)) for phrase in before.keys() | after.keys()
    }
    points = {phrase: abs(usual - share) for phrase, (usual, share) in shares.items()}
    phrase = max(points, key=lambda each: (round(points[each], 2), each.count(" "), each), default="")
    if points.get(phrase, 0.0) < PHRASE:
        return None
    told = [f"{100 * share:.0f} %" for share in shares[phrase]]
    return Difference(feature=f"{feature} {phrase!r}", strength=points[phrase], first=told[0], second=told[1])


def _phrases(texts: Sequence[str]) -> Counter[str]:
    """In how many texts each phrase is."""
    counted: Counter[str] = Counter()
    for text in texts:
        spoken = words(text)
        counted.update(
            {
                " ".join(spoken[start : start + length])
                for length in range(1, _LONGEST + 1)
                for start in range(len(spoken) - length + 1)
            }
        )
    return counted


def _difference(name: str, first: Sequence[Any], second: Sequence[Any]) -> Difference | None:
    if min(len(first), len(second)) < FEWEST:
        return None
    numbers = [[value for value in values if isinstance(value, float)] for values in (first, second)]
    if min(map(len, numbers)) >= FEWEST:
        return _of_numbers(name, *numbers)
    if any(isinstance(value, float) for value in (*first, *second)):
        return None  # a number in one group alone: the form of the values says more
    return _of_categories(name, Counter(map(str, first)), Counter(map(str, second)))


def _of_numbers(name: str, first: Sequence[float], second: Sequence[float]) -> Difference | None:
    strength = abs(2 * _area(first, second) - 1)
    if strength < LARGE:
        return None
    told = [f"{median(values):.3g} in the median" for values in (first, second)]
    return Difference(feature=name, strength=strength, first=told[0], second=told[1])


def _area(first: Sequence[float], second: Sequence[float]) -> float:
    """How often a value of the second group is the larger one; equal ones count half."""
    of_first, of_second = Counter(first), Counter(second)
    below, ahead = 0, 0.0
    for value in sorted(of_first.keys() | of_second.keys()):
        ahead += of_second[value] * (below + of_first[value] / 2)
        below += of_first[value]
    return ahead / (len(first) * len(second))


def _of_categories(name: str, first: Counter[str], second: Counter[str]) -> Difference | None:
    before, after = first.total(), second.total()
    value = max(second, key=lambda each: second[each] / after - first[each] / before)
    share, usual = second[value] / after, first[value] / before
    is_new = not first[value] and wilson(second[value], after)[0] > NEW
    if share - usual < LARGE and not is_new:
        return None
    most = first.most_common(1)[0][0]
    other = f"{most!r} in {100 * first[most] / before:.0f} %" if share > 0.5 else f"{100 * usual:.0f} %"
    strength = max(share - usual, LARGE if is_new else 0.0)
    return Difference(feature=name, strength=strength, first=other, second=f"{value!r} in {100 * share:.0f} %")
