"""How well each teacher's kept traces fit a student that has not learned from them.

The values are the filter's signal `student` (student/inference/likelihood.py), measured with any checkpoint. The
run's filter stage does not change.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from distill.artifacts.integrity import require_finished
from distill.artifacts.layout import DECISIONS, SAMPLE_PARTS
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.stats.rank_correlation import LOW_FITS
from distill.types import Progress, ProgressCallback, unwatched

TOKENS = "tokens"
"""Beside the signals: the length of the responses in the student's tokens."""

Fits = Mapping[str, Mapping[str, Sequence[float]]]
"""Teacher to signal to the teacher's value on each question."""


def fit_values(
    recipe: Recipe,
    run: Path,
    checkpoint: str | Path,
    per_teacher: int = 200,
    *,
    folder: Path | None = None,
    on_progress: ProgressCallback = unwatched,
) -> dict[str, dict[str, list[float]]]:
    """How well each teacher's kept traces fit a student: teacher to signal, or TOKENS, to the mean of each question.

    `checkpoint`: a student that has not learned from these traces, such as the student of the stage before. At most
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
    from distill.wiring.model_signals import student_fit
    from filters.tables import run_signal_tables
    from filters.tables.trace_index import index

    settings = recipe.filter.student.model_copy(
        update={"checkpoint": str(Path(checkpoint).resolve() if Path(checkpoint).exists() else checkpoint)}
    )
    limited = settings.model_copy(update={"per_teacher": per_teacher})
    asked = recipe.model_copy(update={"filter": recipe.filter.model_copy(update={"student": limited})})
    owners = _kept(run)
    planned = index(run / "generate", folder / SAMPLE_PARTS, recipe.filter.partition_rows)
    teachers = Counter(teacher for teacher, _ in owners.values())
    total, done = sum(min(per_teacher, count) for count in teachers.values()), 0

    def heard(rows: int, reused: bool) -> None:
        nonlocal done
        done += rows
        on_progress(Progress(stage="student fit", done=done, total=total, unit="traces"))

    paths = student_fit(asked, folder / "student")((item for item in planned.items() if item[0] in owners), heard)
    result: dict[str, dict[str, dict[str, list[float]]]] = {
        teacher: {signal: {} for signal in (*LOW_FITS, TOKENS)} for teacher in sorted(teachers)
    }
    for row in (row for path in paths for row in run_signal_tables.read(path)):
        teacher, question = owners[row["id"]]
        for signal in result[teacher]:
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

    require_finished(run, "filter", next_step="run `distill filter` first; then its teachers can be measured")
    table = pq.read_table(run / "filter" / DECISIONS, columns=["id", "teacher", "sample_id", "kept"])
    kept = {name: (teacher, of) for name, teacher, of, held in zip(*table.to_pydict().values(), strict=True) if held}
    if not kept:
        raise DataError(f"{run}: the filter kept no trace, so no teacher can be measured")
    return kept
