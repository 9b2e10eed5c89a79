"""Does the filter rank teachers as the students trained on each of them turn out?

The filter's ranking is by student fit: how natural each teacher's kept traces are to a student that has not seen them
(filters/report/teachers.py shows it). The other ranking is by the accuracy of students trained on one teacher each.
Both are compared by rank correlation. There are few teachers, so the p-value is exact, the interval is wide, and the
text says what so few can show at most.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from distill.artifacts.layout import DECISIONS
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.stats.rank_correlation import LOW_FITS, rank_correlation
from distill.types import ProgressCallback, unwatched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from filters.tables.trace_index import PlannedTraces

    Values = NDArray[np.float64]

SHOWN = "rank_surprisal"
"""The signal that the filter's report ranks by."""
ARM = "teacher_"
"""An arm of one teacher alone is named so, followed by the teacher."""
_SUMMARY = ("rows", "spearman", "kendall", "p", "ci95")

Fits = Mapping[str, Mapping[str, Sequence[float]]]
"""Teacher to signal to the teacher's value on each question."""


# --- comparing two rankings ----------------------------------------------------------------------------------------


def of_results(results: Mapping[str, Any], fits: Fits, *, seed: int = 0) -> dict[str, Any]:
    """`rank_correlation` by the report's signal, for the arms `teacher_NAME` of an ablation's results.json.

    `fits` comes from `fit_values`. Under "signals" the correlations by every signal.
    """
    arms = results["arms"]
    answers = {
        teacher: [(round(seed_result["accuracy"] * held["n"]), held["n"]) for seed_result in held["seeds"].values()]
        for teacher in fits
        if (held := arms.get(f"{ARM}{teacher}")) is not None
    }
    fits_of_answered = {teacher: fits[teacher] for teacher in answers}
    by_signal = {
        signal: rank_correlation(
            signal, {name: values[signal] for name, values in fits_of_answered.items()}, answers, seed=seed
        )
        for signal in LOW_FITS
        if all(values.get(signal) for values in fits_of_answered.values())
    }
    if SHOWN not in by_signal:
        missing = sorted(name for name, values in fits_of_answered.items() if not values.get(SHOWN))
        raise DataError(f"{SHOWN} was measured on no trace of {', '.join(missing) or 'any teacher'}")
    return by_signal[SHOWN] | {
        "signals": {signal: {key: result[key] for key in _SUMMARY} for signal, result in by_signal.items()}
    }


# --- measuring the fit ---------------------------------------------------------------------------------------------


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
        path = folder or Path(temporary)
        path.mkdir(parents=True, exist_ok=True)
        return _by_question(recipe, run, checkpoint, per_teacher, path, on_progress)


def _by_question(
    recipe: Recipe, run: Path, checkpoint: str | Path, per_teacher: int, folder: Path, on_progress: ProgressCallback
) -> dict[str, dict[str, list[float]]]:
    from distill.model_signals import student_fit
    from distill.types import Progress
    from filters.tables import run_signal_tables

    settings = recipe.filter.student.model_copy(
        update={"checkpoint": str(Path(checkpoint).resolve() if Path(checkpoint).exists() else checkpoint)}
    )
    limited = settings.model_copy(update={"per_teacher": per_teacher})
    asked = recipe.model_copy(update={"filter": recipe.filter.model_copy(update={"student": limited})})
    owners = _kept(run)
    index = _index(recipe, run, folder / "samples")
    teachers = Counter(teacher for teacher, _ in owners.values())
    total, done = sum(min(per_teacher, count) for count in teachers.values()), 0

    def heard(rows: int, reused: bool) -> None:
        nonlocal done
        done += rows
        on_progress(Progress(stage="student fit", done=done, total=total, unit="traces"))

    paths = student_fit(asked, folder / "student")((item for item in index.items() if item[0] in owners), heard)
    result: dict[str, dict[str, dict[str, list[float]]]] = {
        teacher: {signal: {} for signal in LOW_FITS} for teacher in sorted(teachers)
    }
    for row in (row for path in paths for row in run_signal_tables.read(path)):
        teacher, question = owners[row["id"]]
        for signal in LOW_FITS:
            value = row[f"student_{signal}"]
            if value is not None and math.isfinite(value):
                result[teacher][signal].setdefault(question, []).append(value)
    return {
        teacher: {
            signal: [math.fsum(values) / len(values) for _, values in sorted(by_question.items())]
            for signal, by_question in signals.items()
        }
        for teacher, signals in result.items()
    }


def _kept(run: Path) -> dict[str, tuple[str, str]]:
    """Teacher and sample of every trace that the filter kept, by its id."""
    import pyarrow.parquet as pq

    from distill.artifacts.manifest import require

    require(run, "filter", next_step="run `distill filter` first; then its teachers can be measured")
    table = pq.read_table(run / "filter" / DECISIONS, columns=["id", "teacher", "sample_id", "kept"])
    kept = {name: (teacher, of) for name, teacher, of, held in zip(*table.to_pydict().values(), strict=True) if held}
    if not kept:
        raise DataError(f"{run}: the filter kept no trace, so no teacher can be measured")
    return kept


def _index(recipe: Recipe, run: Path, samples: Path) -> "PlannedTraces":
    from filters.tables.trace_index import index

    return index(run / "generate", samples, recipe.filter.partition_rows)
