"""Agreement of two rankings of teachers: by the fit of their traces, and by the students trained on them.

Spearman's and Kendall's correlation, a permutation test, and intervals. There are few teachers, so the p-value is
exact and the interval is wide; the text says what so few teachers can show. Reads and writes nothing.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from distill.errors import DataError
from distill.stats.intervals import Z95
from distill.word_tables import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

LOW_FITS = {"rank_surprisal": True, "nll": True, "ifd": True, "answer_nll": True, "blind_gap": False}
"""The signals that may rank teachers, and whether a low value is a good fit. `blind_gap` is the use of the image."""
NAMES = {
    "rank_surprisal": "rank over surprisal",
    "nll": "surprisal",
    "ifd": "IFD",
    "answer_nll": "surprisal of the answer",
    "blind_gap": "what the image tells",
}
FEWEST = 3
REPLICATES = 4000
_ALL_ORDERS_UP_TO = 8
_RANDOM_ORDERS = 20_000

Answers = Sequence[tuple[int, int]]
"""(correct, questions) of the student of each training seed."""


def rank_correlation(
    signal: str, fits: Mapping[str, Sequence[float]], answers: Mapping[str, Answers], *, seed: int = 0
) -> dict[str, Any]:
    """Spearman correlation of two rankings of teachers: by a signal, and by the accuracy of a student trained on each
    teacher alone.

    `fits`: each teacher's values by question, of which the median counts. Correlations are positive when teachers
    that fit better make better students. `p` is two-sided, by all orders of up to 8 teachers. `ci95` of Spearman's is
    for other teachers of the same kind (`over_teachers`); `ci95_measured` holds the teachers fixed, and is a
    bootstrap over questions, seeds and answers. Raises DataError if the two rankings have different teachers.
    """
    import numpy as np
    from scipy.stats import rankdata

    if set(fits) != set(answers):
        raise DataError(
            f"fit is known of {', '.join(fits) or 'no teacher'}, students of {', '.join(answers) or 'none'}"
        )
    for teacher in fits:
        if not fits[teacher] or not answers[teacher]:
            raise DataError(f"teacher {teacher}: there is no value of its fit, or no student trained on it")
    teachers = sorted(fits)
    fit = np.array([float(np.median(fits[name])) for name in teachers])
    accuracy = np.array([fmean(correct / n for correct, n in answers[name]) for name in teachers])
    sign = -1 if LOW_FITS[signal] else 1
    goodness = sign * fit
    ranks = [rankdata(-goodness), rankdata(-accuracy)]
    rows = [
        {
            "teacher": name,
            "fit": float(fit[index]),
            "fit_rank": _plain(ranks[0][index]),
            "accuracy": float(accuracy[index]),
            "student_rank": _plain(ranks[1][index]),
        }
        for index, name in enumerate(teachers)
    ]
    result: dict[str, Any] = {"signal": signal, "rows": sorted(rows, key=lambda row: row["student_rank"])}
    rho = spearman(goodness, accuracy)
    if len(teachers) < FEWEST or rho is None:
        why = (
            f"A rank correlation needs {FEWEST} teachers; there are {len(teachers)}."
            if len(teachers) < FEWEST
            else "All teachers are tied in one of the two rankings, so there is nothing to correlate."
        )
        empty = dict.fromkeys(("spearman", "kendall", "p", "ci95", "ci95_measured"))
        return result | empty | {"text": why}
    rng = np.random.default_rng(seed)
    medians = sign * np.stack([_resampled_medians(fits[name], rng) for name in teachers], axis=1)
    shares = np.stack([_resampled_accuracy(answers[name], rng) for name in teachers], axis=1)
    result |= {
        "spearman": rho,
        "kendall": kendall(goodness, accuracy),
        "p": permutation_p(goodness, accuracy),
        "ci95": over_teachers(rho, len(teachers)),
        "ci95_measured": _interval(medians, shares),
    }
    return result | {"text": _text(result, len(teachers))}


def spearman(first: "Values", second: "Values") -> float | None:
    """Pearson's correlation of mid-ranks; None where one side is all ties."""
    (rho,) = _spearmans(first[None], second[None])
    return None if math.isnan(rho) else float(rho)


def _spearmans(first: "Values", second: "Values") -> "Values":
    """Spearman's correlation of each pair of rows; NaN where one side is all ties."""
    from scipy.stats import ConstantInputWarning, pearsonr, rankdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        rho: Values = pearsonr(rankdata(first, axis=1), rankdata(second, axis=1), axis=1).statistic
    return rho


def kendall(first: "Values", second: "Values") -> float | None:
    """Kendall's tau-b, which corrects for ties; None where one side is all ties."""
    from scipy.stats import kendalltau

    tau = float(kendalltau(first, second).statistic)
    return None if math.isnan(tau) else tau


def permutation_p(first: "Values", second: "Values") -> float:
    """Share of orders whose Spearman correlation is at least as far from 0: of all, or of many random ones."""
    import numpy as np
    from scipy.stats import permutation_test, rankdata

    ranks, second_ranks = (rankdata(values) - (len(values) + 1) / 2 for values in (first, second))
    test = permutation_test(
        (ranks,),
        lambda orders, axis: np.abs((orders * second_ranks).sum(axis=axis)),
        permutation_type="pairings",
        alternative="greater",
        vectorized=True,
        n_resamples=math.factorial(len(ranks)) if len(ranks) <= _ALL_ORDERS_UP_TO else _RANDOM_ORDERS,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def _plain(rank: float) -> int | float:
    return int(rank) if rank == int(rank) else float(rank)


def _resampled_medians(values: Sequence[float], rng: "np.random.Generator") -> "Values":
    import numpy as np

    held = np.asarray(values, dtype=np.float64)
    drawn: Values = np.array([np.median(rng.choice(held, size=len(held))) for _ in range(REPLICATES)])
    return drawn


def _resampled_accuracy(answers: Answers, rng: "np.random.Generator") -> "Values":
    """Seeds drawn again, then their answers; the mean of the seeds."""
    import numpy as np

    chosen = rng.integers(len(answers), size=(REPLICATES, len(answers)))
    correct, n = (np.array(column)[chosen] for column in zip(*answers, strict=True))
    drawn: Values = (rng.binomial(n, correct / n) / n).mean(axis=1)
    return drawn


def over_teachers(rho: float, count: int) -> list[float]:
    """The interval of Spearman's correlation by Fisher's transformation, variance by Bonett and Wright (2000).

    A bootstrap over so few teachers has intervals without width: each replicate of two equal rankings is one. For
    equal rankings the interval comes from the nearest other rankings, up to the correlation itself.
    """
    if count < 4:
        return [-1.0, 1.0]
    nearest = 1 - 12 / (count * (count**2 - 1))  # two neighbours exchanged
    within = max(-nearest, min(nearest, rho))
    half = Z95 * math.sqrt((1 + within**2 / 2) / (count - 3))
    centre = math.atanh(within)
    return [min(rho, math.tanh(centre - half)), max(rho, math.tanh(centre + half))]


def _interval(medians: "Values", shares: "Values") -> list[float]:
    """Between the 2.5 and 97.5 % quantiles of Spearman's correlation, over replicates that have one."""
    import numpy as np

    result = _spearmans(medians, shares)
    result = result[~np.isnan(result)]
    return [float(end) for end in np.quantile(result, [0.025, 0.975])] if len(result) else [-1.0, 1.0]


def _text(result: Mapping[str, Any], count: int) -> str:
    name, rho, p = NAMES[result["signal"]], result["spearman"], result["p"]
    low, high = result["ci95"]
    ci_low, ci_high = result["ci95_measured"]
    agreement = "agrees with" if rho > 0 else "runs against" if rho < 0 else "is not related to"
    rng = "" if p <= 0.05 else " (chance often gives such a result)"
    at_best = 2 / math.factorial(count)
    few = (
        f" {count} teachers are too few to decide this: even two equal rankings of {count} have p = {at_best:.2g}, "
        "and the interval over teachers is wide."
        if at_best > 0.01
        else ""
    )
    exact = "exact p" if count <= _ALL_ORDERS_UP_TO else "p"
    return (
        f"The ranking of {counted(count, 'teacher')} by {name} {agreement} that of their students{rng}: "
        f"Spearman {rho:+.2f} "
        f"(95 % interval over teachers {low:+.2f} to {high:+.2f}; these teachers measured again {ci_low:+.2f} to "
        f"{ci_high:+.2f}), Kendall {result['kendall']:+.2f}, {exact} = {p:.2g}.{few}"
    )
