"""Predicts from the traces of a run how much a distillation will gain, before anything is trained.

Measured of each teacher: the questions that it answers rightly, and how a student that has not learned from its
traces takes them (distill/teacher_fits.py). A model fitted to known pairs of teachers and students
(distill/stats/gain_model.py) makes a gain over answers alone of that. benchmarks/evaluate/gain_pairs.py writes the
model's file. Loads a student, trains nothing, and changes no stage of the run.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import orjson

from distill.artifacts.integrity import require_finished
from distill.artifacts.layout import DECISIONS, GAIN, model_folder, part_paths
from distill.artifacts.manifest import Manifest
from distill.errors import DataError, RecipeError, StaleError
from distill.local_paths import run_command
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, learns_rationales, lineage
from distill.stats.gain_model import GainModel, Prediction
from distill.teacher_fits import TOKENS, fit_values
from distill.types import ProgressCallback, unwatched
from distill.word_tables import counted

MODEL_FILE = Path(__file__).with_name("gain_model.json")
FEWEST_TRACES = 100
"""Fewer traces of a teacher tell too little: its share of right answers is then uncertain by ten points and more."""
MEASURED = 200
"""Kept traces of a teacher that the student reads at most."""
ENOUGH = 0.25
"""With a quarter of the traces of a domain, a student of the tiny world lost 2 of 30 points (docs/results.md)."""
ALL = "all teachers"
"""No teacher can have a name with a space."""
_FITS = ("blind_gap", "rank_surprisal", "nll")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherMeasures:
    """What a run says of one teacher, or of all together. Shares are 0 to 1, None is not known."""

    teacher: str
    traces: int
    pass_rate: float | None
    """Share of the complete traces with a verdict that are right, as in the report of the filter."""
    coverage: float
    """Share of all asked questions of which a trace was kept that is not wrong."""
    sayable: float
    """Share of the kept traces that are no longer than a reply of the evaluation may be."""
    taught: float
    """`coverage`, where a domain counts as taught in whole from ENOUGH of its questions on, times `sayable`."""
    truncated: float
    """Share of the traces that end before their answer does."""
    rationale_tokens: float | None
    """Mean over kept traces."""
    blind_gap: float | None
    """Nats a token that the image takes off the student's surprisal; median over questions, as the next two. Of all
    teachers, the mean of their medians by their traces in the dataset."""
    rank_surprisal: float | None
    nll: float | None

    def measures(self) -> dict[str, float] | None:
        """What the model reads; None where the student could read no trace."""
        if self.blind_gap is None or self.rank_surprisal is None:
            return None
        return {"taught": self.taught, "blind_gap": self.blind_gap, "rank_surprisal": self.rank_surprisal}


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherGain:
    """`prediction` is None where the run has too few traces of the teacher, or none that the student can read."""

    measured: TeacherMeasures
    prediction: Prediction | None

    @property
    def verdict(self) -> str:
        return self.prediction.verdict if self.prediction is not None else "cannot be told"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGain:
    recipe: str
    run: Path
    stage: str
    student: str
    teachers: tuple[TeacherGain, ...]
    """The best prediction first, `all` together last where there are several."""
    model: GainModel
    pair_error: float
    """Typical error of the difference of two teachers of one student: a share of the questions."""


def expected_gain(recipe: Recipe, run: Path, *, on_progress: ProgressCallback = unwatched) -> ExpectedGain:
    """Measure the teachers of a filtered run and predict what each one gains the student.

    Raises StaleError if the run is not filtered, and DataError if no teacher has FEWEST_TRACES traces. Raises
    RecipeError if no stage learns rationales, or if the student was never trained on images.
    """
    stage = _stage(recipe)
    _require_traces(recipe, run)
    checkpoint = _student(recipe, run, stage)
    model, pair_error = load_model()
    measured = measured_teachers(recipe, run, checkpoint, on_progress=on_progress)
    gains = sorted((predicted_gain(of_teacher, model) for of_teacher in measured), key=_order)
    return ExpectedGain(
        recipe=recipe.name,
        run=run,
        stage=stage.name,
        student=checkpoint,
        teachers=tuple(gains),
        model=model,
        pair_error=pair_error,
    )


def measured_teachers(
    recipe: Recipe, run: Path, checkpoint: str | Path, *, on_progress: ProgressCallback = unwatched
) -> list[TeacherMeasures]:
    """What a filtered run says of each teacher to a student, by name, and of all where there are several."""
    asked, counted = counted_teachers(recipe, run)
    fits = fit_values(recipe, run, checkpoint, MEASURED, folder=run / GAIN, on_progress=on_progress)
    read = {name: student_reads(of, recipe.eval.max_new_tokens) for name, of in fits.items()}
    selected = {name: sum(of["selected"] for of in counts.values()) for name, counts in counted.items()}
    read[ALL] = _mixed(read, selected)
    return [teacher_measures(name, asked, counts, read.get(name, {})) for name, counts in counted.items()]


def student_reads(fits: Mapping[str, Sequence[float]], max_new_tokens: int) -> dict[str, float]:
    """Medians of a teacher's signals, and the share of its traces that the student may say in whole."""
    medians = {signal: statistics.median(fits[signal]) for signal in _FITS if fits.get(signal)}
    lengths = fits.get(TOKENS)
    return medians | ({"sayable": sum(each <= max_new_tokens for each in lengths) / len(lengths)} if lengths else {})


def _mixed(read: Mapping[str, Mapping[str, float]], selected: Mapping[str, int]) -> dict[str, float]:
    """The measures of a dataset of all teachers: each teacher counts by its traces in it."""
    weights = {name: selected[name] for name in read if selected[name]}
    measured = set.intersection(*(set(read[name]) for name in weights)) if weights else set()
    return {
        key: math.fsum(count * read[name][key] for name, count in weights.items()) / sum(weights.values())
        for key in sorted(measured)
    }


@cache
def load_model() -> tuple[GainModel, float]:
    """The model that ships with the project, and the error of a difference of two teachers of one student."""
    fields = orjson.loads(MODEL_FILE.read_bytes())
    return GainModel.of_fields(fields["model"]), float(fields["pair_error"])


def predicted_gain(measured: TeacherMeasures, model: GainModel) -> TeacherGain:
    """Nothing is predicted of a teacher with few traces, or with none that the student can read."""
    values = measured.measures()
    enough = measured.traces >= FEWEST_TRACES and values is not None
    return TeacherGain(measured=measured, prediction=model.predict(values) if enough and values else None)


def _order(gain: TeacherGain) -> tuple[bool, bool, float, str]:
    """All together last; of single teachers the best prediction first, those without one at the end."""
    predicted = gain.prediction
    name = gain.measured.teacher
    return name == ALL, predicted is None, -predicted.gain if predicted is not None else 0.0, name


def _stage(recipe: Recipe) -> Stage:
    stages = [stage for stage in recipe.stages if learns_rationales(stage)]
    if not stages:
        raise RecipeError(f"{recipe.path}: no [[stages]] block learns rationales, so there is no gain to predict")
    return stages[-1]


def _student(recipe: Recipe, run: Path, stage: Stage) -> str:
    """The checkpoint that reads the traces: the student when it meets them. Raises RecipeError, StaleError."""
    if recipe.filter.student.checkpoint is not None:
        return recipe.local_or_hub(recipe.filter.student.checkpoint)
    before = lineage(recipe.stages, stage.name)[:-1]
    if before:
        name = before[-1].name
        if Manifest.read(run / "train" / name) is None:
            raise StaleError(
                f"{run}: the prediction needs the student of stage {name!r}, which is not trained; run "
                f"{run_command(f'train --stage {name}', recipe.path, run)} first, or name another "
                "checkpoint with --set filter.student.checkpoint=DIR"
            )
        return str(model_folder(run, name))
    if recipe.student is None or recipe.student.model is None:
        raise RecipeError(
            f"{recipe.path}: stage {stage.name!r} starts from parts that were never trained on images together, so "
            "their likelihoods have no meaning. Name a student that was trained on images: --set "
            "filter.student.checkpoint=DIR"
        )
    return recipe.local_or_hub(recipe.student.model)


_COUNTS = """
    SELECT {who} AS teacher, coalesce(decisions.domain, '') AS domain,
        count(*) AS traces,
        count(answer_verdict) FILTER (outcome = 'complete') AS judged,
        count(*) FILTER (outcome = 'complete' AND answer_verdict = 'correct') AS "right",
        count(DISTINCT decisions.sample_id) FILTER (kept AND answer_verdict IS DISTINCT FROM 'wrong') AS covered,
        count(*) FILTER (starts_with(outcome, 'truncated')) AS truncated,
        count(*) FILTER (kept) AS kept,
        count(*) FILTER (selected) AS selected,
        coalesce(sum(rationale_tokens) FILTER (kept), 0) AS tokens
    FROM decisions LEFT JOIN signals ON decisions.id = signals.id GROUP BY 1, 2 ORDER BY 1, 2
"""
_ASKED = "SELECT coalesce(domain, ''), count(DISTINCT sample_id) FROM decisions GROUP BY 1"

Counts = dict[str, dict[str, int]]
"""The counts of one teacher by domain."""


def counted_teachers(recipe: Recipe, run: Path) -> tuple[dict[str, int], dict[str, Counts]]:
    """The asked questions of a filtered run by domain, and the counts of each teacher and of several together.

    Raises DataError where no teacher has FEWEST_TRACES traces.
    """
    from filters.tables.signal_database import Tables, connect

    folder = run / "filter"
    database = connect(Tables.of(folder), more={"decisions": folder / DECISIONS})
    try:
        asked = dict(database.execute(_ASKED).fetchall())
        rows = database.execute(_COUNTS.format(who="decisions.teacher")).fetchall()
        if len({row[0] for row in rows}) > 1:
            rows += database.execute(_COUNTS.format(who=f"'{ALL}'")).fetchall()
        names = [column[0] for column in database.description][2:]
    finally:
        database.close()
    counts: dict[str, Counts] = {}
    for teacher, domain, *values in rows:
        counts.setdefault(teacher, {})[domain] = dict(zip(names, values, strict=True))
    traces = {name: sum(of["traces"] for of in domains.values()) for name, domains in counts.items() if name != ALL}
    if all(count < FEWEST_TRACES for count in traces.values()):
        has = ", ".join(f"{count:,} of {name}" for name, count in traces.items())
        raise DataError(_more_traces(recipe, run, f"has few traces: {has or 'none'}"))
    return asked, counts


def _require_traces(recipe: Recipe, run: Path) -> None:
    if Manifest.read(run / "generate") is None:
        written = sum(part.read_bytes().count(b"\n") for part in part_paths(run / "generate", ".jsonl", below="*"))
        has = f"has {counted(written, 'trace')} of an unfinished stage" if written else "has no traces"
        raise StaleError(_more_traces(recipe, run, has))
    require_finished(
        run,
        "filter",
        next_step=f"run {run_command('filter', recipe.path, run)} first; it judges the traces",
    )


def _more_traces(recipe: Recipe, run: Path, has: str) -> str:
    return (
        f"{run} {has}; a prediction needs {FEWEST_TRACES} of a teacher, better {MEASURED}. Make them with "
        f"{run_command(f'generate --limit {MEASURED}', recipe.path, run)} (more where a teacher is asked about some "
        f"domains only), then {run_command('filter', recipe.path, run)}"
    )


def teacher_measures(
    name: str, asked: Mapping[str, int], counts: Counts, read: Mapping[str, float]
) -> TeacherMeasures:
    """One teacher, or ALL: questions asked by domain, what was counted, and what `student_reads`."""
    total = {key: sum(of[key] for of in counts.values()) for key in next(iter(counts.values()))}
    questions = sum(asked.values())
    sayable = read.get("sayable", 1.0)
    taught = sayable * math.fsum(min(asked[domain], of["covered"] / ENOUGH) for domain, of in counts.items())
    return TeacherMeasures(
        teacher=name,
        traces=total["traces"],
        pass_rate=total["right"] / total["judged"] if total["judged"] else None,
        coverage=total["covered"] / questions,
        sayable=sayable,
        taught=taught / questions,
        truncated=total["truncated"] / total["traces"],
        rationale_tokens=total["tokens"] / total["kept"] if total["kept"] else None,
        **{signal: read.get(signal) for signal in _FITS},
    )
