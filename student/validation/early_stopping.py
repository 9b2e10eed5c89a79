"""Uses the measurements of a stage: writes log lines and a page, keeps the best weights, stops early.

Every checkpoint holds the state, and weights are named after their step, so a resumed run makes the same decisions.
Does not measure (student/validation/measure.py) or train (student/training/loop/trainer.py).
"""

import math
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from distill.artifacts import layout
from distill.artifacts.damaged_lines import recovered
from distill.artifacts.files import write_json
from distill.artifacts.journal import write_jsonl
from distill.artifacts.json_lines import requiring
from distill.artifacts.manifest import canonical
from distill.data import reader
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage
from distill.recipe.sections.validation import Validation
from distill.types import Progress, ProgressCallback
from student.data import rows
from student.data.collate import collate
from student.data.encode import Encoder, Examples
from student.data.images import ImageStore
from student.distributed import fsdp
from student.inference.generation import Prompter
from student.inference.reply_metrics import Prediction
from student.validation import measure
from student.validation.measure import HeldOut, Questions, ValidationMetrics
from student.validation.page import SamplesPage

if TYPE_CHECKING:
    from peft import PeftModel
    from torch import nn
    from transformers import PreTrainedModel

Measured = tuple[ValidationMetrics, list[Prediction]]
_STATE = "watch.json"
_BEST = "best-"


def early_stopping_of(
    recipe: Recipe,
    stage: Stage,
    folder: Path,
    student: "PreTrainedModel | PeftModel",
    encoder: Encoder,
    store: ImageStore,
    kept_out: Examples,
    on_progress: ProgressCallback,
) -> "EarlyStopping | None":
    """The measurements that a recipe asks for; `kept_out` are the rows that `split_held_out` has taken out."""
    settings = stage.validation
    if settings is None:
        return None
    questions = None
    if settings.data is not None:
        questions = measure.choose_questions(
            reader.samples(recipe, settings.data),
            settings,
            Prompter(encoder, store, recipe.data[settings.data].max_pixels, recipe.filter.rationale),
            max_length=stage.max_length,
            plain=recipe.filter.rationale == "plain",
            relative_tolerance=recipe.filter.answer.relative_tolerance,
        )
    held = None
    if len(kept_out):
        collator = collate(student, kept_out, store, stage, encoder, max_pixels=rows.max_pixels(recipe, stage))
        held = HeldOut(batches=measure.batch_rows(kept_out, stage), collate=collator)

    def on_measured(metrics: ValidationMetrics) -> None:
        facts = {"accuracy": metrics.accuracy, "loss": metrics.loss, "time_share": metrics.time_share}
        on_progress(
            Progress(
                stage=f"validate {stage.name}",
                done=metrics.step,
                total=metrics.steps,
                unit="steps",
                facts={name: value for name, value in facts.items() if value is not None},
            )
        )

    title = f"{recipe.name}: {stage.name}"
    checkpoints = folder / layout.CHECKPOINTS
    return EarlyStopping(
        settings, folder, checkpoints, title=title, questions=questions, held=held, on_measured=on_measured
    )


def output_files(folder: Path) -> list[Path]:
    """The files that validation leaves in the folder of its stage."""
    return [folder / layout.VALIDATION, folder / layout.VALIDATION_PAGE]


def kept_step(settings: Validation | None, folder: Path, last: int) -> int | None:
    """The step whose weights a finished stage of `last` steps has saved; None for the last step."""
    if settings is None or settings.keep == "last":
        return None
    lines = recovered(folder / layout.VALIDATION, requiring("step"))
    return next((line["step"] for line in reversed(list(lines)) if line["best"] and line["step"] != last), None)


class EarlyStopping:
    """The measurements of one stage: when they are due, their results and their consequences.

    Lines are appended to `folder/validation.jsonl`, the newest replies shown on `folder/samples.html`; weights of the
    best measurement lie below `checkpoints` until the stage is finished.
    """

    def __init__(
        self,
        settings: Validation,
        folder: Path,
        checkpoints: Path,
        *,
        title: str,
        questions: Questions | None = None,
        held: HeldOut | None = None,
        on_measured: Callable[[ValidationMetrics], None] = lambda metrics: None,
    ) -> None:
        self._settings = settings
        self._folder, self._checkpoints = folder, checkpoints
        self._questions, self._held = questions, held
        self._on_measured = on_measured
        self._page = SamplesPage(
            title,
            questions.samples if questions else (),
            gallery=settings.gallery,
            max_pixels=questions.prompter.max_pixels if questions else 1,
            metric=settings.metric,
            left_out=questions.dropped if questions else None,
        )
        self._lines: list[dict[str, Any]] = []
        self._best_step: int | None = None
        self._best_value = math.nan
        self._without_better = 0
        self.measurement_pending = False
        """Whether the measurement of the last step was interrupted and has to be repeated."""
        self._seconds = 0.0
        self._elapsed_before = 0.0
        self._begun = time.perf_counter()

    @property
    def stopped(self) -> bool:
        """Whether the stage ends because the metric has not improved for `patience` measurements."""
        return self._settings.patience is not None and self._without_better >= self._settings.patience

    @property
    def best(self) -> Path | None:
        """The folder of the weights that the stage saves; None: the last weights."""
        if self._settings.keep == "last" or self._best_step is None:
            return None
        return self._weights(self._best_step)

    def due(self, step: int, steps: int) -> bool:
        return step % self._settings.every_steps == 0 or step == steps

    def measure(
        self, model: "nn.Module", step: int, steps: int, within: AbstractContextManager[None] | None = None
    ) -> Measured:
        """Measure the student without recording anything. `within` may interrupt it."""
        with fsdp.gathered(model):
            return measure.measure(model, self._questions, self._held, step=step, steps=steps, within=within)

    def record(self, measured: Measured) -> ValidationMetrics:
        """Write a measurement down and decide. Where it is the best, the caller saves the weights to `best`."""
        started = time.perf_counter()
        metrics, predictions = measured
        step, self.measurement_pending = metrics.step, False
        value: float | None = getattr(metrics, self._settings.metric)
        better = value is not None and math.isfinite(value) and self._improves(value)
        if better:
            assert value is not None
            self._best_step, self._best_value, self._without_better = step, value, 0
        else:
            self._without_better += 1
        elapsed = self._elapsed()
        seconds = metrics.seconds + time.perf_counter() - started
        share = min(1.0, (self._seconds + seconds) / elapsed)
        metrics = replace(metrics, best=better, time_share=share)
        # As they will be read back after a kill: a loss that is no number is null.
        self._lines.append(orjson.loads(canonical(asdict(metrics))))
        self._write_lines()
        self._page.write(self._folder / layout.VALIDATION_PAGE, self._lines, predictions)
        self._seconds += metrics.seconds + time.perf_counter() - started
        self._on_measured(metrics)
        return metrics

    def save(self, checkpoint: Path) -> None:
        """Note the state in a checkpoint that is being written."""
        state = {
            "best_step": self._best_step,
            "best_value": None if self._best_step is None else self._best_value,
            "without_better": self._without_better,
            "seconds": self._seconds,
            "elapsed": self._elapsed(),
            "owes": self.measurement_pending,
        }
        write_json(checkpoint / _STATE, state)

    def start(self, checkpoint: Path | None, step: int) -> None:
        """Go on from a checkpoint at `step`, or from the beginning; later measurements are dropped."""
        # Validation that decides nothing may be added to a stage that is under way.
        if checkpoint is not None and (checkpoint / _STATE).is_file():
            state = orjson.loads((checkpoint / _STATE).read_bytes())
            self._best_step, self._without_better = state["best_step"], state["without_better"]
            self._best_value = math.nan if state["best_value"] is None else state["best_value"]
            self._seconds, self._elapsed_before = state["seconds"], state["elapsed"]
            self.measurement_pending = state.get("owes", False)
        self._begun = time.perf_counter()
        kept_until = step - self.measurement_pending
        self._lines = [
            line
            for line in recovered(self._folder / layout.VALIDATION, requiring("step"))
            if line["step"] <= kept_until
        ]
        self._write_lines()
        for folder in self.obsolete():
            shutil.rmtree(folder)

    def obsolete(self) -> list[Path]:
        """Folders of weights that are not the best now and not the best in a checkpoint; remove them only after a
        checkpoint is complete."""
        kept = {self._best_step, *map(_noted_best, self._checkpoints.glob(f"checkpoint-*/{_STATE}"))}
        folders = {self._weights(step) for step in kept if step is not None}
        return [folder for folder in self._checkpoints.glob(f"{_BEST}*") if folder not in folders]

    def _write_lines(self) -> None:
        write_jsonl(self._folder / layout.VALIDATION, self._lines)

    def _improves(self, value: float) -> bool:
        if self._best_step is None:
            return True
        return value < self._best_value if self._settings.metric == "loss" else value > self._best_value

    def _weights(self, step: int) -> Path:
        return self._checkpoints / f"{_BEST}{step}"

    def _elapsed(self) -> float:
        return self._elapsed_before + time.perf_counter() - self._begun


def _noted_best(state: Path) -> int | None:
    """The step of the best weights that a checkpoint refers to; None if there are none, or if the checkpoint is
    damaged."""
    try:
        step: int | None = orjson.loads(state.read_bytes())["best_step"]
    except (OSError, orjson.JSONDecodeError, LookupError, TypeError):
        return None
    return step
