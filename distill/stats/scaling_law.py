"""How accuracy grows with the number of traces: a power law with an offset, its interval, and whether it grows.

error(n) = e_inf + a n^-b: the error falls as a power of the amount of training data towards e_inf, the irreducible
error (Hestness et al. 2017, arXiv 1712.00409; Kaplan et al. 2020, arXiv 2001.08361, without the offset). Every
trained student is one observation, weighted by its variance: binomial over the test questions, plus the variance
between training seeds. For a given b the rest is linear, so all b on a grid are fitted outright and no start can
mislead; the best one is refined. Intervals are of a bootstrap over seeds and answers. Reads and writes nothing.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distill.errors import DataError
from distill.stats.intervals import Z95, wilson
from distill.word_tables import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

REPLICATES = 2000
FEWEST_SIZES = 3
LEAST_EXPONENT, MOST_EXPONENT = 0.01, 3.0
_GRID = 240
_CURVE_POINTS = 41
_DECISIVE = 2.0
"""Difference of AICc from which the worse of two models has considerably less support (Burnham and Anderson 2002)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One trained student: `correct` of `n` test questions after training on `x` traces."""

    x: float
    correct: int
    n: int
    arm: str = ""

    @property
    def share(self) -> float:
        return self.correct / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """error(n) = floor + scale * n ** -exponent"""

    floor: float
    scale: float
    exponent: float

    def error(self, x: float) -> float:
        return float(self.floor + self.scale * x**-self.exponent)


def of_results(results: Mapping[str, Any], arms: Sequence[str], *, seed: int = 0) -> dict[str, Any]:
    """`scaling` of arms of an ablation's results.json, over the traces that each was trained on."""
    result = []
    for arm in arms:
        held = results["arms"][arm]
        traces = held.get("cost", {}).get("traces")
        if not traces:
            raise DataError(f"arm {arm}: its results don't say how many traces it was trained on (cost.traces)")
        result += [
            Observation(x=traces, correct=round(seed_result["accuracy"] * held["n"]), n=held["n"], arm=arm)
            for seed_result in held["seeds"].values()
        ]
    return scaling(result, seed=seed)


def scaling(observations: Sequence[Observation], *, seed: int = 0, replicates: int = REPLICATES) -> dict[str, Any]:
    """The measured points, the fitted curve, and a description in words.

    `curve` and `curve_ci95` are [x, accuracy] and [x, low, high] over the measured range; they are empty, and
    `exponent` None, where too little was measured for a law. `text` always says why. Raises DataError for what
    cannot have been measured.
    """
    sizes = _by_size(observations)
    result: dict[str, Any] = {
        "x_name": "traces",
        "points": [_point(x, group, *_between_seeds(list(sizes.values()))) for x, group in sizes.items()],
        "curve": [],
        "curve_ci95": [],
        "formula": None,
        "exponent": None,
        "exponent_ci95": None,
        "doubled": None,
        "aicc": None,
    }
    shares = {observation.share for observation in observations}
    if len(sizes) < FEWEST_SIZES:
        amounts = " and ".join(f"{x:,.0f}" for x in sizes) or "none"
        return result | {
            "text": f"A curve needs {FEWEST_SIZES} different numbers of traces; there are {len(sizes)} ({amounts})."
        }
    if len(shares) == 1:
        return result | {
            "text": f"Accuracy is {100 * shares.pop():.1f} % at every number of traces: there is no growth to fit."
        }
    return result | _fitted(list(sizes.values()), seed, replicates)


def _by_size(observations: Sequence[Observation]) -> dict[float, list[Observation]]:
    for observation in observations:
        if not (math.isfinite(observation.x) and observation.x > 0):
            raise DataError(
                f"arm {observation.arm or '(none)'}: {observation.x} is no amount of data; leave this arm out"
            )
        if observation.n < 1 or not 0 <= observation.correct <= observation.n:
            raise DataError(
                f"arm {observation.arm or '(none)'}: {observation.correct} of "
                f"{counted(observation.n, 'question')} cannot be correct"
            )
    sizes: dict[float, list[Observation]] = {}
    for observation in sorted(observations, key=lambda observation: observation.x):
        sizes.setdefault(float(observation.x), []).append(observation)
    return sizes


def _between_seeds(groups: Sequence[Sequence[Observation]]) -> tuple[float, int]:
    """The variance of accuracy between seeds, the same at all sizes, and its degrees of freedom."""
    free = sum(len(group) - 1 for group in groups)
    squares = [
        statistics.variance([observation.share for observation in group]) * (len(group) - 1)
        for group in groups
        if len(group) > 1
    ]
    return (math.fsum(squares) / free if free else 0.0), free


def _point(x: float, group: Sequence[Observation], variance: float, free: int) -> dict[str, Any]:
    """The mean over seeds with Wilson's interval over the questions, widened by what seeds differ.

    Two or three seeds of one size know little of that, so `variance` is of all sizes, with `free` degrees of freedom.
    """
    from scipy.special import stdtrit

    shares = [observation.share for observation in group]
    accuracy = math.fsum(shares) / len(group)
    questions = min(observation.n for observation in group)
    spread = float(stdtrit(free, 0.975)) * math.sqrt(variance / len(group)) if free else 0.0
    # All seeds answer the same questions, so more seeds are not more questions.
    low, high = wilson(accuracy * questions, questions)
    centre, half = (low + high) / 2, math.hypot((high - low) / 2, spread)
    ci95 = [min(accuracy, max(0.0, centre - half)), max(accuracy, min(1.0, centre + half))]
    arms = sorted({observation.arm for observation in group})
    return {"x": x, "accuracy": accuracy, "ci95": ci95, "arm": ", ".join(arms), "seeds": len(group)}


def _fitted(groups: Sequence[Sequence[Observation]], seed: int, replicates: int) -> dict[str, Any]:
    import numpy as np

    every = [member for group in groups for member in group]
    x = np.array([member.x for member in every])
    error = np.array([1 - member.share for member in every])
    variance = _variances(groups)
    law = _polished(x, error, variance, _grid_fit(x, error[:, None], variance)[0])
    laws = _grid_fit(x, _resampled(groups, np.random.default_rng(seed), replicates), variance)
    exponents = np.quantile([member.exponent for member in laws], [0.025, 0.975])
    aicc = {"power_law": _aicc(x, error, variance, law), "constant": _aicc(x, error, variance, None)}
    smallest, largest = float(x.min()), float(x.max())
    at = np.geomspace(smallest, largest, _CURVE_POINTS)
    drawn = 1 - np.array([[member.error(value) for value in at] for member in laws])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    twice = np.quantile([1 - member.error(2 * largest) for member in laws], [0.025, 0.975])
    gain = np.quantile([member.error(smallest) - member.error(largest) for member in laws], [0.025, 0.975])
    doubled = {"x": 2 * largest, "accuracy": 1 - law.error(2 * largest), "ci95": [float(end) for end in twice]}
    return {
        "curve": [[float(value), 1 - law.error(float(value))] for value in at],
        "curve_ci95": [[float(value), float(a), float(b)] for value, a, b in zip(at, low, high, strict=True)],
        "formula": f"error(n) = {law.floor:.4g} + {law.scale:.4g} n^-{law.exponent:.3g}",
        "law": {"floor": law.floor, "scale": law.scale, "exponent": law.exponent},
        "exponent": law.exponent,
        "exponent_ci95": [float(end) for end in exponents],
        "gain_ci95": [float(end) for end in gain],
        "doubled": doubled,
        "aicc": aicc,
        "trend": (trend := _trend(x, error, variance)),
        "text": _text(law, exponents.tolist(), gain.tolist(), doubled, aicc, trend, (smallest, largest)),
    }


def _variances(groups: Sequence[Sequence[Observation]]) -> "Values":
    """The variance of every observation's error: binomial, plus a variance between seeds, equal at all sizes."""
    import numpy as np

    # If no or all answers of a size are correct, the plain estimate would be 0.
    shares = [
        (sum(observation.correct for observation in group) + 0.5) / (sum(observation.n for observation in group) + 1)
        for group in groups
    ]
    binomial = [
        [share * (1 - share) / observation.n for observation in group]
        for share, group in zip(shares, groups, strict=True)
    ]
    free = sum(len(group) - 1 for group in groups)
    beyond = 0.0
    if free:
        squares = [np.var([observation.share for observation in group]) * len(group) for group in groups]
        expected = [(len(group) - 1) * own[0] for group, own in zip(groups, binomial, strict=True)]
        beyond = max(0.0, float(sum(squares) - sum(expected)) / free)
    return np.array([value + beyond for own in binomial for value in own])


def _resampled(groups: Sequence[Sequence[Observation]], rng: "np.random.Generator", replicates: int) -> "Values":
    """Errors of all observations in each replicate: seeds resampled, then their answers. Shape (observations, R)."""
    import numpy as np

    rows = []
    for group in groups:
        shares = np.array([observation.share for observation in group])
        for observation in group:
            drawn = rng.choice(shares, size=replicates)
            rows.append(1 - rng.binomial(observation.n, drawn) / observation.n)
    return np.array(rows)


def _grid_fit(x: "Values", errors: "Values", variance: "Values") -> list[Law]:
    """Weighted least squares for each column of `errors`, over a grid of exponents; floor in [0, 1], scale >= 0."""
    import numpy as np

    weight = 1 / variance
    best = np.full(errors.shape[1], np.inf)
    floors, scales, exponents = (np.zeros(errors.shape[1]) for _ in range(3))
    middle = math.exp(float(np.log(x).mean()))
    for exponent in np.geomspace(LEAST_EXPONENT, MOST_EXPONENT, _GRID):
        fall = (x / middle) ** -exponent
        design = np.stack([np.ones_like(fall), fall], axis=1)
        floor, scale = np.linalg.solve((design.T * weight) @ design, (design.T * weight) @ errors)
        # Where one bound is violated the best point of a quadratic in two unknowns lies on it.
        alone = np.clip((weight * fall) @ errors / (weight @ fall**2), 0, None)
        scale, floor = np.where(floor < 0, alone, scale), np.where(floor < 0, 0, floor)
        mean = np.clip(weight @ errors / weight.sum(), 0, 1)
        floor, scale = np.where(scale < 0, mean, floor), np.where(scale < 0, 0, scale)
        squares = weight @ (errors - floor - fall[:, None] * scale) ** 2
        better = squares < best
        best = np.where(better, squares, best)
        floors, scales = np.where(better, floor, floors), np.where(better, scale * middle**exponent, scales)
        exponents = np.where(better, exponent, exponents)
    return [
        Law(floor=float(floor), scale=float(scale), exponent=float(exponent))
        for floor, scale, exponent in zip(floors, scales, exponents, strict=True)
    ]


def _polished(x: "Values", error: "Values", variance: "Values", start: Law) -> Law:
    """The grid's best law refined: scipy's bounded least squares from there."""
    import numpy as np
    from scipy.optimize import least_squares

    if not start.scale:
        return start
    middle = math.exp(float(np.log(x).mean()))

    def residuals(values: "Values") -> "Values":
        made: Values = (values[0] + values[1] * (x / middle) ** -values[2] - error) / np.sqrt(variance)
        return made

    first = [start.floor, start.scale * middle**-start.exponent, start.exponent]
    bounds = ([0, 0, LEAST_EXPONENT], [1, np.inf, MOST_EXPONENT])
    done = least_squares(residuals, np.clip(first, *bounds), bounds=bounds, x_scale=[0.1, 0.1, 0.1])
    floor, scale, exponent = (float(value) for value in done.x)
    return Law(floor=floor, scale=scale * middle**exponent, exponent=exponent)


def _aicc(x: "Values", error: "Values", variance: "Values", law: Law | None) -> float | None:
    """AICc of the law, or of one error at all sizes, with known variances; None where it is undefined.

    It is Akaike's criterion with the correction of Hurvich and Tsai (1989) for few observations.
    """
    import numpy as np

    weight = 1 / variance
    free = 1 if law is None else 3
    if len(x) - free - 1 <= 0:
        return None
    made = weight @ error / weight.sum() if law is None else law.floor + law.scale * x**-law.exponent
    return float(weight @ np.square(error - made)) + 2 * free + 2 * free * (free + 1) / (len(x) - free - 1)


def _trend(x: "Values", error: "Values", variance: "Values") -> list[float]:
    """What doubling x adds to accuracy on a straight line over log x, with its 95 % interval.

    The variance between seeds is known by as many degrees of freedom as there are seeds beyond the first of a size.
    With one seed of each size the interval is over the choice of questions alone.
    """
    import numpy as np
    from scipy.special import stdtrit

    weight = 1 / variance
    doublings = np.log2(x)
    centred = doublings - weight @ doublings / weight.sum()
    slope = -float(weight * centred @ error / (weight @ centred**2))
    free = len(x) - len(np.unique(x))
    half = (float(stdtrit(free, 0.975)) if free else Z95) / math.sqrt(float(weight @ centred**2))
    return [slope, slope - half, slope + half]


def _text(
    law: Law,
    exponents: Sequence[float],
    gain: Sequence[float],
    doubled: Mapping[str, Any],
    aicc: Mapping[str, float | None],
    trend: Sequence[float],
    ends: tuple[float, float],
) -> str:
    first, last = (100 * (1 - law.error(end)) for end in ends)
    span = f"from {first:.1f} % at {counted(round(ends[0]), 'trace')} to {last:.1f} % at {ends[1]:,.0f}"
    points = f"{100 * gain[0]:+.1f} to {100 * gain[1]:+.1f} points"
    power, constant = aicc["power_law"], aicc["constant"]
    if power is None or constant is None:
        support = "too few students were trained to compare the curve with no growth"
        grows = gain[0] > 0 and trend[1] > 0
    else:
        gap = constant - power
        grows = gap > _DECISIVE and trend[1] > 0
        support = (
            f"AICc {'prefers the curve to' if gap > 0 else 'does not prefer the curve to'} no growth ({gap:+.1f})"
        )
    if trend[2] < 0:
        return (
            f"Accuracy does not grow but falls with the number of traces: each doubling costs {-100 * trend[0]:.1f} "
            f"points ({-100 * trend[2]:.1f} to {-100 * trend[1]:.1f}); {support}."
        )
    if not grows:
        return (
            f"It is not sure that accuracy grows with the number of traces: the curve goes {span} ({points}); "
            f"{support}."
        )
    low, high = exponents
    pinned = high - low < 0.5 and low > 1.01 * LEAST_EXPONENT and high < 0.99 * MOST_EXPONENT
    ci_low, ci_high = (100 * end for end in doubled["ci95"])
    return (
        f"Accuracy grows with the number of traces: {span} ({points}); {support}. Error falls as the power "
        f"-{law.exponent:.2f} ({low:.2f} to {high:.2f}) towards {100 * law.floor:.0f} "
        f"%{'' if pinned else ', which so few sizes do not pin down'}. If this law continues, {doubled['x']:,.0f} "
        f"traces give {100 * doubled['accuracy']:.1f} % ({ci_low:.1f} to {ci_high:.1f})."
    )
