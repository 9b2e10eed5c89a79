"""Experiment trackers of generate, filter and eval: trackio, wandb, tensorboard (`report_to` of a recipe).

A tracker gets numbers only: the progress of generate every few seconds, what a finished stage counted, and the
metrics of every student. It gets no trace, no path and no command line; known secrets in names are masked. The
trainer reports for itself (student/training/loop/sft_config.py). A tracker that fails is left out with a warning, and
the run goes on.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from distill import packages, redact
from distill.artifacts.layout import EVAL_METRICS, TRACKERS
from distill.artifacts.manifest import Manifest
from distill.recipe.recipe import Recipe
from distill.types import Progress, ProgressCallback

INTERVAL_S: Final = 5.0
_PROJECT = "huggingface"
"""What trainers call theirs where WANDB_PROJECT or TRACKIO_PROJECT says nothing: one project for a whole run."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tracker:
    """Gets the values of one step at a time, and is closed at the end."""

    log: Callable[[Mapping[str, float], int], None]
    close: Callable[[], None]


def require_trackers(recipe: Recipe) -> None:
    """Raise MissingExtra, before anything is done, unless the trackers of a recipe are installed."""
    if recipe.report_to:
        packages.require(f"report_to = {list(recipe.report_to)}", *recipe.report_to)


@contextmanager
def tracked(recipe: Recipe, run: Path, stage: str, on_progress: ProgressCallback) -> Iterator[ProgressCallback]:
    """`on_progress` of a stage, with reports to the trackers of its recipe; counts and metrics go last."""
    if not recipe.report_to:
        yield on_progress
        return
    require_trackers(recipe)
    reports = _Reports(recipe, run, stage)

    def report(progress: Progress) -> None:
        on_progress(progress)
        reports.add(progress)

    try:
        yield report
        reports.finish(run / stage)
    finally:
        reports.close()


class _Reports:
    """Sends the progress of a stage to its trackers. A tracker that fails is dropped."""

    def __init__(self, recipe: Recipe, run: Path, stage: str) -> None:
        self._stage = stage
        self._step = -1
        self._sent = 0.0
        self._trackers: dict[str, Tracker] = {}
        for name in recipe.report_to:
            with _left_out(name, self._trackers):
                self._trackers[name] = _OPEN[name](recipe, run, stage)

    def add(self, progress: Progress) -> None:
        """Send the facts of a report that are numbers, if it is new and the last one was sent a while ago."""
        now = time.monotonic()
        if progress.stage != self._stage or progress.done <= self._step or now - self._sent < INTERVAL_S:
            return
        self._sent = now
        facts = {name: value for name, value in progress.facts.items() if isinstance(value, int | float)}
        self._send({"done": progress.done, "total": progress.total, **facts}, progress.done)

    def finish(self, folder: Path) -> None:
        """Send what the finished stage of a folder counted and measured."""
        manifest = Manifest.read(folder)
        if manifest is None:
            return
        values: dict[str, float] = {"seconds": manifest.seconds, **manifest.counts}
        values |= {f"tokens/{name}": count for name, count in manifest.tokens.items()}
        values |= _student_metrics(folder)
        self._send(values, max(self._step + 1, manifest.counts.get("traces", 0)))

    def _send(self, values: Mapping[str, float], step: int) -> None:
        self._step = step
        named = redact.tree({f"{self._stage}/{name}": value for name, value in values.items()})
        for name, tracker in list(self._trackers.items()):
            with _left_out(name, self._trackers):
                tracker.log(named, step)

    def close(self) -> None:
        for name, tracker in list(self._trackers.items()):
            with _left_out(name, self._trackers):
                tracker.close()


def _student_metrics(folder: Path) -> dict[str, float]:
    """`arm/metric` of every student that a stage evaluated; none for another stage."""
    path = folder / EVAL_METRICS
    arms = orjson.loads(path.read_bytes())["arms"] if path.is_file() else {}
    return {
        f"{arm}/{name}": value
        for arm, metrics in arms.items()
        for name, value in metrics.items()
        if isinstance(value, int | float)
    }


@contextmanager
def _left_out(name: str, trackers: dict[str, Tracker]) -> Iterator[None]:
    """Drop a tracker that fails in this block, with a warning."""
    try:
        yield
    except Exception as error:
        trackers.pop(name, None)
        _log.warning("%s", redact.message(f"{name}: {error}; the run continues without this tracker"))


def _facts(recipe: Recipe, run: Path, stage: str) -> dict[str, Any]:
    """The name of a stage of a run for wandb and trackio; a continued run has the same name."""
    place = hashlib.sha256(f"{run.resolve()}/{stage}".encode()).hexdigest()[:16]
    teachers = {teacher.name: recipe.public_name(teacher.model) for teacher in recipe.teachers}
    config = redact.tree({"stage": stage, "seed": recipe.seed, "teachers": teachers})
    return {"name": f"{recipe.name} {stage} {place[:4]}", "config": config, "resume": "allow", "id": place}


def _wandb(recipe: Recipe, run: Path, stage: str) -> Tracker:
    import wandb

    # Turn off its own data: the command line, the output, the code, the host.
    settings = wandb.Settings(console="off", disable_git=True, save_code=False, x_disable_meta=True)
    project, folder = os.environ.get("WANDB_PROJECT", _PROJECT), _folder(run, "wandb")
    return _of_run(wandb.init(project=project, dir=folder, settings=settings, **_facts(recipe, run, stage)))


def _trackio(recipe: Recipe, run: Path, stage: str) -> Tracker:
    import trackio

    facts = _facts(recipe, run, stage)
    del facts["id"]  # its runs go on by their names
    return _of_run(trackio.init(project=os.environ.get("TRACKIO_PROJECT", _PROJECT), **facts))


def _of_run(tracked_run: Any) -> Tracker:
    return Tracker(lambda values, step: tracked_run.log(dict(values), step=step), tracked_run.finish)


def _tensorboard(recipe: Recipe, run: Path, stage: str) -> Tracker:
    from tensorboard.summary import Writer

    writer = Writer(_folder(run, "tensorboard", stage))

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return Tracker(log, writer.close)


def _folder(run: Path, *names: str) -> str:
    folder = run.joinpath(TRACKERS, *names)
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


_OPEN: Final[Mapping[str, Callable[[Recipe, Path, str], Tracker]]] = {
    "trackio": _trackio,
    "wandb": _wandb,
    "tensorboard": _tensorboard,
}
