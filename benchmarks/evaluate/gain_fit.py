"""Fits the model of `distill plan --gain` (distill/stats/gain_model.py) to known pairs of teachers and students.

Coefficients are those of non-negative least squares; a small ridge pulls each towards 0. The interval of a prediction
is that of a student of which no pair is known: its width comes from leaving out one student at a time, and counts
students, because errors of one student go together. benchmarks/evaluate/gain_pairs.py measures the pairs.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from distill.errors import DataError
from distill.stats.gain_model import MEASURES, TERMS, GainModel, point, terms

RIDGE = 0.01
FEWEST_STUDENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GainPair:
    """What was measured of a teacher and a student before training, and what training gained, from -1 to 1."""

    world: str
    student: str
    teacher: str
    measures: Mapping[str, float]
    gain: float
    ci95: tuple[float, float]
    pass_rate: float
    """Share of the teacher's traces that are right."""

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the gain leaves one sign."""
        return self.ci95[0] > 0 or self.ci95[1] < 0


def coefficients(pairs: Sequence[GainPair]) -> dict[str, float]:
    """Non-negative least squares with a small ridge towards 0."""
    rows = np.array([terms(pair.measures) for pair in pairs])
    gains = np.array([pair.gain for pair in pairs])
    ridge = math.sqrt(RIDGE) * np.eye(len(TERMS))
    values, _ = nnls(np.vstack([rows, ridge]), np.concatenate([gains, np.zeros(len(TERMS))]))
    return dict(zip(TERMS, map(float, values), strict=True))


def left_out(pairs: Sequence[GainPair], group: Callable[[GainPair], object]) -> list[float]:
    """The prediction of each pair by coefficients of the pairs of the other groups."""
    predictions = []
    for pair in pairs:
        others = [other for other in pairs if group(other) != group(pair)]
        if not others:
            raise DataError("gain: nothing is left out, because all pairs are of one group")
        predictions.append(point(coefficients(others), pair.measures))
    return predictions


def student_of(pair: GainPair) -> object:
    return pair.world, pair.student


def pair_of(pair: GainPair) -> object:
    return pair.world, pair.student, pair.teacher


def fit_model(pairs: Sequence[GainPair]) -> GainModel:
    """Raises DataError below FEWEST_STUDENTS students: the spread between fewer says nothing."""
    students = len({student_of(pair) for pair in pairs})
    if students < FEWEST_STUDENTS:
        raise DataError(f"gain: pairs of {students} students; {FEWEST_STUDENTS} at least")
    errors = [pair.gain - predicted for pair, predicted in zip(pairs, left_out(pairs, student_of), strict=True)]
    measured = {name: [pair.measures[name] for pair in pairs] for name in MEASURES}
    return GainModel(
        coefficients=coefficients(pairs),
        spread=math.sqrt(statistics.fmean(error * error for error in errors)),
        ranges={name: (min(values), max(values)) for name, values in measured.items()},
        pairs=len(pairs),
        students=students,
    )
