"""How much a teacher's rationales gain a student over answers alone: a few non-negative terms.

    gain = taught * (sight * use of the image + fit * student fit) - left * (1 - taught) - cost

The gain of a pair is an accuracy difference: a student trained on one teacher's traces minus the same student trained
as long on answers alone. Every coefficient is at least 0. So the prediction never falls if a teacher answers more
questions correctly, if the student uses the image more, or if the traces fit the student better. `left` is what a
student loses on questions that its teacher leaves out, `cost` what learning to reason costs in any case. The interval
is for a student without a known pair. benchmarks/evaluate/gain_fit.py fits the coefficients to known pairs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TERMS = ("cost", "left", "sight", "fit")
MEASURES = ("taught", "blind_gap", "rank_surprisal")
"""What a prediction needs of a pair: share of questions, nats a token, ratio (student/inference/likelihood.py)."""
_MARGIN = 0.1
"""Share of the seen range by which a measure may lie outside of it."""


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

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> "GainModel":
        ranges = {name: (float(low), float(high)) for name, (low, high) in fields["ranges"].items()}
        return cls(**{**fields, "ranges": ranges})


def terms(measures: Mapping[str, float]) -> list[float]:
    """What each coefficient of TERMS is multiplied with.

    The use of the image is the blind gap, clipped to -1 to 1 nat per token and scaled to 0 to 1: a student that the
    image misleads has 0. The fit is 1 over the rank-surprisal ratio, which is low where traces fit.
    """
    taught = measures["taught"]
    sight = (1 + max(-1.0, min(1.0, measures["blind_gap"]))) / 2
    return [-1.0, taught - 1, taught * sight, taught / max(measures["rank_surprisal"], 1.0)]


def point(coefficients: Mapping[str, float], measures: Mapping[str, float]) -> float:
    return math.fsum(coefficients[name] * value for name, value in zip(TERMS, terms(measures), strict=True))


def _within(value: float, low: float, high: float) -> bool:
    margin = _MARGIN * (high - low)
    return low - margin <= value <= high + margin
