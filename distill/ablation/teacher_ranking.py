"""Does the filter rank teachers as the students trained on each of them turn out?

The filter's ranking is by student fit: how natural each teacher's kept traces are to a student that has not seen them
(filters/report/teachers.py shows it). The other ranking is by the accuracy of students trained on one teacher each.
Both are compared by rank correlation. There are few teachers, so the p-value is exact, the interval is wide, and the
text says what so few can show at most.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.types import ProgressCallback, unwatched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from filters.tables.trace_index import PlannedTraces

    Values = NDArray[np.float64]

LOW_FITS = {"rank_surprisal": True, "nll": True, "ifd": True, "answer_nll": True, "blind_gap": False}
"""The signals that may rank teachers, and whether a low value is a good fit. `blind_gap` is the use of the image."""
SHOWN = "rank_surprisal"
"""The signal that the filter's report ranks by."""
NAMES = {
    "rank_surprisal": "rank over surprisal",
    "nll": "surprisal",
    "ifd": "IFD",
    "answer_nll": "surprisal of the answer",
    "blind_gap": "what the image tells",
}
ARM = "teacher_"
"""An arm of one teacher alone is named so, followed by the teacher."""
FEWEST = 3
REPLICATES = 4000
_ALL_ORDERS_UP_TO = 8
_RANDOM_ORDERS = 20_000
_SUMMARY = ("rows", "spearman", "kendall", "p", "ci95")

Answers = Sequence[tuple[int, int]]
"""(correct, questions) of the student of each training seed."""
Fits = Mapping[str, Mapping[str, Sequence[float]]]
"""Teacher to signal to the teacher's value on each question."""


# --- comparing two rankings ----------------------------------------------------------------------------------------


def of_results(results: Mapping[str, Any], fits: Fits, *, seed: int = 0) -> dict[str, Any]:
    """`rank_correlation` by the report's signal, for the arms `teacher_NAME` of an ablation's results.json.

    `fits` comes from `fit_values`. Under "signals" the correlations by every signal.
    """
    arms = results["arms"]
    answers = {
        teacher: [(round(one["accuracy"] * held["n"]), held["n"]) for one in held["seeds"].values()]
        for teacher in fits
        if (held := arms.get(f"{ARM}{teacher}")) is not None
    }
    known = {teacher: fits[teacher] for teacher in answers}
    by_signal = {
        signal: rank_correlation(signal, {name: values[signal] for name, values in known.items()}, answers, seed=seed)
        for signal in LOW_FITS
        if all(values.get(signal) for values in known.values())
    }
    if SHOWN not in by_signal:
        missing = sorted(name for name, values in known.items() if not values.get(SHOWN))
        raise DataError(f"{SHOWN} was measured on no trace of {', '.join(missing) or 'any teacher'}")
    return by_signal[SHOWN] | {
        "signals": {signal: {key: found[key] for key in _SUMMARY} for signal, found in by_signal.items()}
    }


def rank_correlation(
    signal: str, fits: Mapping[str, Sequence[float]], answers: Mapping[str, Answers], *, seed: int = 0
) -> dict[str, Any]:
    """How far the ranking of teachers by a signal is that of the students trained on each alone.

    `fits`: each teacher's values by question, of which the median counts. Correlations are positive when teachers
    that fit better make better students. `p` is two-sided, by all orders of up to 8 teachers. `ci95`, of
    Spearman's, is a bootstrap over teachers, questions, seeds and answers; `ci95_measured` holds the teachers fixed.
    Raises DataError where the two do not speak of the same teachers.
    """
    import numpy as np

    if set(fits) != set(answers):
        raise DataError(
            f"fit is known of {', '.join(fits) or 'no teacher'}, students of {', '.join(answers) or 'none'}"
        )
    for teacher in fits:
        if not fits[teacher] or not answers[teacher]:
            raise DataError(f"teacher {teacher}: there is no value of its fit, or no student trained on it")
    teachers = sorted(fits)
    fit = np.array([float(np.median(fits[name])) for name in teachers])
    accuracy = np.array([_accuracy(answers[name]) for name in teachers])
    goodness = -fit if LOW_FITS[signal] else fit
    ranks = [_ranked(-goodness), _ranked(-accuracy)]
    rows = [
        {
            "teacher": name,
            "fit": float(fit[place]),
            "fit_rank": _plain(ranks[0][place]),
            "accuracy": float(accuracy[place]),
            "student_rank": _plain(ranks[1][place]),
        }
        for place, name in enumerate(teachers)
    ]
    found: dict[str, Any] = {"signal": signal, "rows": sorted(rows, key=lambda row: row["student_rank"])}
    rho = spearman(goodness, accuracy)
    if len(teachers) < FEWEST or rho is None:
        why = (
            f"A rank correlation needs {FEWEST} teachers; there are {len(teachers)}."
            if len(teachers) < FEWEST
            else "All teachers are tied in one of the two rankings, so there is nothing to correlate."
        )
        empty = dict.fromkeys(("spearman", "kendall", "p", "ci95", "ci95_measured"))
        return found | empty | {"text": why}
    rng = np.random.default_rng(seed)
    sign = -1 if LOW_FITS[signal] else 1
    medians = sign * np.stack([_resampled_medians(fits[name], rng) for name in teachers], axis=1)
    shares = np.stack([_resampled_accuracy(answers[name], rng) for name in teachers], axis=1)
    found |= {
        "spearman": rho,
        "kendall": kendall(goodness, accuracy),
        "p": exact_p(goodness, accuracy),
        "ci95": _interval(medians, shares, rng.integers(len(teachers), size=medians.shape)),
        "ci95_measured": _interval(medians, shares, None),
    }
    return found | {"text": _text(found, len(teachers))}


def spearman(first: "Values", second: "Values") -> float | None:
    """Pearson's correlation of mid-ranks; None where one side is all ties."""
    (found,) = _spearmans(first[None], second[None])
    return None if math.isnan(found) else float(found)


def _spearmans(first: "Values", second: "Values") -> "Values":
    """Spearman's correlation of each pair of rows; NaN where one side is all ties."""
    import numpy as np

    one, other = (_ranked(values) - (first.shape[1] + 1) / 2 for values in (first, second))
    spread = np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1))
    rho: Values = np.divide((one * other).sum(axis=1), spread, out=np.full(len(one), np.nan), where=spread > 0)
    return np.clip(rho, -1, 1)


def kendall(first: "Values", second: "Values") -> float | None:
    """Kendall's tau-b: pairs in the same order less pairs in the other one, corrected for ties."""
    import numpy as np

    one, other = (np.sign(values[:, None] - values[None, :]) for values in (first, second))
    spread = math.sqrt(float((one**2).sum()) * float((other**2).sum()))
    return float((one * other).sum() / spread) if spread else None


def exact_p(first: "Values", second: "Values", seed: int = 0) -> float:
    """Share of orders whose Spearman correlation is at least as far from 0: of all, or of many random ones."""
    import numpy as np

    one, other = (_ranked(values) - (len(first) + 1) / 2 for values in (first, second))
    held = abs(float(one @ other)) - 1e-9
    count = len(first)
    if count <= _ALL_ORDERS_UP_TO:
        orders = np.array(list(permutations(range(count))))
        return float(np.mean(np.abs(one[orders] @ other) >= held))
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(count), (_RANDOM_ORDERS, 1)), axis=1)
    return float((1 + np.sum(np.abs(one[orders] @ other) >= held)) / (1 + _RANDOM_ORDERS))


def _ranked(values: "Values") -> "Values":
    """Ranks from 1 along the last axis, ties share their mean."""
    import numpy as np

    below = (values[..., None, :] < values[..., :, None]).sum(axis=-1)
    alike = (values[..., None, :] == values[..., :, None]).sum(axis=-1)
    ranks: Values = np.asarray(below + (alike + 1) / 2, dtype=np.float64)
    return ranks


def _plain(rank: float) -> int | float:
    return int(rank) if rank == int(rank) else float(rank)


def _accuracy(answers: Answers) -> float:
    return math.fsum(correct / n for correct, n in answers) / len(answers)


def _resampled_medians(values: Sequence[float], rng: "np.random.Generator") -> "Values":
    import numpy as np

    held = np.asarray(values, dtype=np.float64)
    drawn: Values = np.array([np.median(rng.choice(held, size=len(held))) for _ in range(REPLICATES)])
    return drawn


def _resampled_accuracy(answers: Answers, rng: "np.random.Generator") -> "Values":
    """Seeds drawn anew, then their answers; the mean of the seeds."""
    import numpy as np

    chosen = rng.integers(len(answers), size=(REPLICATES, len(answers)))
    correct, n = (np.array(column)[chosen] for column in zip(*answers, strict=True))
    drawn: Values = (rng.binomial(n, correct / n) / n).mean(axis=1)
    return drawn


def _interval(medians: "Values", shares: "Values", teachers: "NDArray[np.int64] | None") -> list[float]:
    """Between the 2.5 and 97.5 % quantiles of Spearman's correlation, over replicates that have one."""
    import numpy as np

    if teachers is not None:
        medians, shares = (np.take_along_axis(values, teachers, axis=1) for values in (medians, shares))
    found = _spearmans(medians, shares)
    found = found[~np.isnan(found)]
    return [float(end) for end in np.quantile(found, [0.025, 0.975])] if len(found) else [-1.0, 1.0]


def _text(found: Mapping[str, Any], count: int) -> str:
    name, rho, p = NAMES[found["signal"]], found["spearman"], found["p"]
    low, high = found["ci95"]
    least, most = found["ci95_measured"]
    agreement = "agrees with" if rho > 0 else "runs against" if rho < 0 else "has nothing to do with"
    chance = "" if p <= 0.05 else ", no more than chance often has it"
    at_best = 2 / math.factorial(count)
    few = (
        f" So few teachers cannot settle it: even two equal rankings of {count} have p = {at_best:.2g}, and the "
        "interval over teachers is wide."
        if at_best > 0.01
        else ""
    )
    return (
        f"The ranking of {count} teachers by {name} {agreement} that of their students{chance}: Spearman {rho:+.2f} "
        f"(95 % interval over teachers {low:+.2f} to {high:+.2f}; these teachers measured again {least:+.2f} to "
        f"{most:+.2f}), Kendall {found['kendall']:+.2f}, exact p = {p:.2g}.{few}"
    )


# --- measuring the fit ---------------------------------------------------------------------------------------------


def measure(recipe: Recipe, run: Path, checkpoint: str | Path, per_teacher: int = 200) -> dict[str, dict[str, float]]:
    """The median of every signal over the questions of each teacher, as `fit_values` measures them."""
    from statistics import median

    found = fit_values(recipe, run, checkpoint, per_teacher)
    return {
        teacher: {signal: median(values) for signal, values in signals.items() if values}
        for teacher, signals in found.items()
    }


def fit_values(
    recipe: Recipe,
    run: Path,
    checkpoint: str | Path,
    per_teacher: int = 200,
    *,
    folder: Path | None = None,
    on_progress: ProgressCallback = unwatched,
) -> dict[str, dict[str, list[float]]]:
    """How well each teacher's kept traces fit a student: teacher to signal to the mean value of each question.

    `checkpoint`: a student that has not learned from these traces, such as that of the stage before them. At most
    `per_teacher` traces of each are measured. What is measured is kept in `folder`, if one is given; the run's own
    filter stage stays as it is. Raises StaleError when the run was not filtered, DataError when nothing was kept.
    """
    with TemporaryDirectory(prefix="distill-fit-") as temporary:
        place = folder or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        return _by_question(recipe, run, checkpoint, per_teacher, place, on_progress)


def _by_question(
    recipe: Recipe, run: Path, checkpoint: str | Path, per_teacher: int, place: Path, on_progress: ProgressCallback
) -> dict[str, dict[str, list[float]]]:
    from distill.types import Progress
    from distill.wiring import student_fit
    from filters.tables import side_tables

    settings = recipe.filter.student.model_copy(
        update={"checkpoint": str(Path(checkpoint).resolve() if Path(checkpoint).exists() else checkpoint)}
    )
    limited = settings.model_copy(update={"per_teacher": per_teacher})
    asked = recipe.model_copy(update={"filter": recipe.filter.model_copy(update={"student": limited})})
    owners = _kept(run)
    index = _index(recipe, run, place / "samples")
    teachers = Counter(teacher for teacher, _ in owners.values())
    total, done = sum(min(per_teacher, count) for count in teachers.values()), 0

    def heard(rows: int, reused: bool) -> None:
        nonlocal done
        done += rows
        on_progress(Progress(stage="student fit", done=done, total=total, unit="traces"))

    paths = student_fit(asked, place / "student")((item for item in index.items() if item[0] in owners), heard)
    found: dict[str, dict[str, dict[str, list[float]]]] = {
        teacher: {signal: {} for signal in LOW_FITS} for teacher in sorted(teachers)
    }
    for row in (row for path in paths for row in side_tables.read(path)):
        teacher, question = owners[row["id"]]
        for signal in LOW_FITS:
            value = row[f"student_{signal}"]
            if value is not None and math.isfinite(value):
                found[teacher][signal].setdefault(question, []).append(value)
    return {
        teacher: {
            signal: [math.fsum(values) / len(values) for _, values in sorted(by_question.items())]
            for signal, by_question in signals.items()
        }
        for teacher, signals in found.items()
    }


def _kept(run: Path) -> dict[str, tuple[str, str]]:
    """Teacher and sample of every trace that the filter kept, by its id."""
    import pyarrow.parquet as pq

    from distill.artifacts.manifest import require

    require(run, "filter", next_step="run `distill filter` first; then its teachers can be measured")
    table = pq.read_table(run / "filter" / "decisions.parquet", columns=["id", "teacher", "sample_id", "kept"])
    kept = {name: (teacher, of) for name, teacher, of, held in zip(*table.to_pydict().values(), strict=True) if held}
    if not kept:
        raise DataError(f"{run}: the filter kept no trace, so no teacher can be measured")
    return kept


def _index(recipe: Recipe, run: Path, samples: Path) -> "PlannedTraces":
    from filters.tables.trace_index import index

    return index(run / "generate", samples, recipe.filter.partition_rows)
