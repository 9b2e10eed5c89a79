"""What follows from the measurements of a stage: lines, a page, the best weights, the end.

The state lies in every checkpoint, and weights are written under the step that they are of, so a killed and resumed
run decides as an unbroken one. Does not measure (student/quality.py) or train (student/trainer.py).
"""

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from distill.artifacts import canonical, read_jsonl, write_bytes, write_json
from distill.validation import Validation
from student import quality
from student.quality import Figures, HeldOut, Questions
from student.samples_page import SamplesPage

if TYPE_CHECKING:
    from torch import nn

VALIDATION, SAMPLES = "validation.jsonl", "samples.html"
_STATE = "watch.json"
_BEST = "best-"


class Watch:
    """The measurements of one stage: when, what they said, and what follows from them.

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
        on_look: Callable[[Figures], None] = lambda figures: None,
    ) -> None:
        self._settings = settings
        self._folder, self._checkpoints = folder, checkpoints
        self._questions, self._held = questions, held
        self._on_look = on_look
        self._page = SamplesPage(
            title,
            questions.samples if questions else (),
            gallery=settings.gallery,
            max_pixels=questions.max_pixels if questions else 1,
        )
        self._lines: list[dict[str, Any]] = []
        self._best_step: int | None = None
        self._best_value = math.nan
        self._without_better = 0
        self._seconds = 0.0
        self._elapsed_before = 0.0
        self._begun = time.perf_counter()

    @property
    def stopped(self) -> bool:
        """Whether the stage is over because nothing has become better for long enough."""
        return self._settings.patience is not None and self._without_better >= self._settings.patience

    @property
    def best(self) -> Path | None:
        """The folder of the weights that the stage is to leave; None: those that it ended with."""
        if self._settings.keep == "last" or self._best_step is None:
            return None
        return self._weights(self._best_step)

    def due(self, step: int, steps: int) -> bool:
        return step % self._settings.every_steps == 0 or step == steps

    def look(self, model: "nn.Module", step: int, save_weights: Callable[[Path], None]) -> Figures:
        """Measure, note, and keep the weights if they are to be kept; `save_weights` writes them into a folder."""
        begun = time.perf_counter()
        figures, predictions = quality.measure(model, self._questions, self._held, step=step)
        value: float | None = getattr(figures, self._settings.metric)
        better = value is not None and not math.isnan(value) and self._improves(value)
        if better:
            assert value is not None
            self._best_step, self._best_value, self._without_better = step, value, 0
            if self._settings.keep == "best":
                save_weights(self._weights(step))
        else:
            self._without_better += 1
        elapsed = self._elapsed()
        share = min(1.0, (self._seconds + time.perf_counter() - begun) / elapsed)
        figures = replace(figures, best=better, time_share=share)
        # As they will be read back after a kill: a loss that is no number is null.
        self._lines.append(orjson.loads(canonical(asdict(figures))))
        write_bytes(self._folder / VALIDATION, b"".join(canonical(line) + b"\n" for line in self._lines))
        self._page.write(self._folder / SAMPLES, self._lines, predictions)
        self._seconds += time.perf_counter() - begun
        self._on_look(figures)
        return figures

    def save(self, checkpoint: Path) -> None:
        """Note the state in a checkpoint that is being written."""
        state = {
            "best_step": self._best_step,
            "best_value": None if self._best_step is None else self._best_value,
            "without_better": self._without_better,
            "seconds": self._seconds,
            "elapsed": self._elapsed(),
        }
        write_json(checkpoint / _STATE, state)

    def start(self, checkpoint: Path | None, step: int) -> None:
        """Go on from a checkpoint at `step`, or from the beginning: what was measured later is forgotten."""
        if checkpoint is not None:
            state = orjson.loads((checkpoint / _STATE).read_bytes())
            self._best_step, self._without_better = state["best_step"], state["without_better"]
            self._best_value = math.nan if state["best_value"] is None else state["best_value"]
            self._seconds, self._elapsed_before = state["seconds"], state["elapsed"]
        self._begun = time.perf_counter()
        self._lines = [line for line in read_jsonl(self._folder / VALIDATION) if line["step"] <= step]
        write_bytes(self._folder / VALIDATION, b"".join(canonical(line) + b"\n" for line in self._lines))
        self.prune()

    def prune(self) -> None:
        """Remove weights that are no longer the best; to be called when a checkpoint is complete, not before."""
        kept = self._weights(self._best_step) if self._best_step is not None else None
        for folder in self._checkpoints.glob(f"{_BEST}*"):
            if folder != kept:
                shutil.rmtree(folder)

    def _improves(self, value: float) -> bool:
        if self._best_step is None:
            return True
        return value < self._best_value if self._settings.metric == "loss" else value > self._best_value

    def _weights(self, step: int) -> Path:
        return self._checkpoints / f"{_BEST}{step}"

    def _elapsed(self) -> float:
        return self._elapsed_before + time.perf_counter() - self._begun
