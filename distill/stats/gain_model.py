"""How much a teacher's rationales gain a student over answers alone: a few non-negative terms, fitted to known pairs.

    gain = taught * (sight * use of the picture + fit * student fit) - left * (1 - taught) - cost

The gain of a pair is the accuracy of a student trained on one teacher's traces minus that of the same student trained
as long on answers alone. Every coefficient is at least 0, so the prediction never falls where a teacher answers more
questions rightly, where the student uses the picture more, or where the traces fit it better. `left` is what a
student loses on questions that its teacher leaves out, `cost` what learning to reason costs in any case. A small
ridge pulls each coefficient towards 0. The interval is that of a student of which no pair is known: its width comes
from leaving out one student at a time, and counts students, because errors of one student go together.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distill.errors import DataError

TERMS = ("cost", "left", "sight", "fit")
MEASURES = ("taught", "blind_gap", "rank_surprisal")
"""What a prediction needs of a pair: share of questions, nats a token, ratio (student/inference/likelihood.py)."""
RIDGE = 0.01
FEWEST_STUDENTS = 3
_MARGIN = 0.1
"""Share of the seen range by which a measure may lie outside of it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    gain: float
    ci95: tuple[float, float]
    chance: float
    """Probability that the gain is above 0."""
    outside: tuple[str, ...]
    """Measures that lie outside of what the known pairs have."""

    @property
    def verdict(self) -> str:
        """`helps`, `hurts`, or `cannot be told`."""
        if self.outside or self.ci95[0] <= 0 <= self.ci95[1]:
            return "cannot be told"
        return "helps" if self.gain > 0 else "hurts"


@dataclass(frozen=True, slots=True, kw_only=True)
class GainModel:
    """`spread` is the standard error of a prediction for a new student, with `students` - 1 degrees of freedom.
    `ranges` are the least and largest value of each measure.
    """

    coefficients: Mapping[str, float]
    spread: float
    ranges: Mapping[str, tuple[float, float]]
    pairs: int
    students: int

    def predict(self, measures: Mapping[str, float]) -> Prediction:
        from scipy.stats import t

        gain, error = point(self.coefficients, measures), t(self.students - 1, scale=self.spread)
        outside = tuple(name for name, (low, high) in self.ranges.items() if not _within(measures[name], low, high))
        half = float(error.ppf(0.975))
        return Prediction(
            gain=max(-1.0, min(1.0, gain)),
            ci95=(max(-1.0, gain - half), min(1.0, gain + half)),
            chance=float(error.cdf(gain)),
            outside=outside,
        )

    def as_fields(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> "GainModel":
        ranges = {name: (float(low), float(high)) for name, (low, high) in fields["ranges"].items()}
        return cls(**{**fields, "ranges": ranges})


def terms(measures: Mapping[str, float]) -> list[float]:
    """What each coefficient of TERMS is multiplied with.

    The use of the picture is the blind gap, cut at one nat a token to either side and moved to 0 to 1: a student that
    the picture misleads stands at 0. The fit is 1 over the rank-surprisal ratio, which is low where traces fit.
    """
    taught = measures["taught"]
    sight = (1 + max(-1.0, min(1.0, measures["blind_gap"]))) / 2
    return [-1.0, taught - 1, taught * sight, taught / max(measures["rank_surprisal"], 1.0)]


def point(coefficients: Mapping[str, float], measures: Mapping[str, float]) -> float:
    return math.fsum(coefficients[name] * value for name, value in zip(TERMS, terms(measures), strict=True))


def coefficients(pairs: Sequence[GainPair]) -> dict[str, float]:
    """Non-negative least squares with a small ridge towards 0."""
    import numpy as np
    from scipy.optimize import nnls

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


def _within(value: float, low: float, high: float) -> bool:
    margin = _MARGIN * (high - low)
    return low - margin <= value <= high + margin
