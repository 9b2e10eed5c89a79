"""The train verb: the stages of a recipe in order, each from the model of the stage that it starts from.

A finished stage is recognised by its manifest without importing torch. Does not train itself
(student/training/stage.py). Programs call `distill.train`: it also compares what is learned with the test data.
"""

import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.artifacts.files import describe, directory_sha256, locked, storage_errors
from distill.artifacts.layout import CACHE, CHECKPOINTS
from distill.artifacts.manifest import MANIFEST, Manifest, fingerprint, finished, flatten, set_aside, versions
from distill.data import reader
from distill.data.source_images import require_same_images
from distill.errors import RecipeError, StaleError
from distill.jobs import JobPool
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.eval import BASE
from distill.recipe.sections.stages import Stage, lineage, start_of
from distill.types import ProgressCallback, unwatched
from student.data import rows
from student.distributed import processes
from student.training import stage as stages
from student.training.checkpoints import saved_model
from student.training.noted_fields import as_noted, rename_stages, settings_of_stage
from student.training.stage import Session

Beside = Callable[[Collection[str]], Mapping[str, Callable[..., Any]]]
"""Other work, by name, that can be done once these stages are finished, beside the others: functions for other
processes, which take `on_progress`."""
BeforeStage = Callable[[Stage], None]
"""Called in the main process for each stage before it is trained; the stage that it starts from is finished."""


def nothing_beside(finished: Collection[str]) -> Mapping[str, Callable[..., Any]]:
    """No other work, independent of the finished stages."""
    return {}


def train(
    recipe: Recipe,
    run: Path,
    *,
    stage: str | None = None,
    fresh: bool = False,
    jobs: int = 1,
    before: BeforeStage = lambda stage: None,
    beside: Beside = nothing_beside,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Train every stage that is not finished, or `stage` alone; the manifest of all stages, or of that one.

    `jobs` stages are trained at a time, each in a new process with its share of the cores, and its own card if there
    are several. A script that calls this needs `if __name__ == "__main__"`. A stage waits for the stage that it
    starts from. A process that no stage needs does the work of `beside`.

    `fresh` moves earlier work aside: of all stages, or with `stage` of this stage and of the stages that start from
    it. Raises StaleError when something finished was made from other settings, and when `stage` starts from an
    unfinished one; DataError when a finished student is damaged.
    """
    if recipe.student is None or not recipe.stages:
        raise RecipeError(f"{recipe.path}: training needs a [student] section and at least one [[stages]] block")
    names = [planned.name for planned in recipe.stages]
    if stage is not None and stage not in names:
        raise RecipeError(f"--stage {stage}: the recipe has no such stage; its stages: {', '.join(names)}")
    if jobs > 1:
        processes.require_one()
    with processes.together():
        if not processes.is_main():
            return _follow_main_process(recipe, run)
        with locked(run):
            again = _made_again(recipe, run, stage) if fresh else set()
            fields = stage_fields(recipe, run, only=stage, again=again)
            rename_stages(run, {name: fields[name] for name in fields if name not in again}, names, on_progress)
            if stage is not None:
                _require_start(recipe, run, stage, fields)
            if fresh:
                _set_aside(run, again, stage)
            training = _Training(recipe, run, fields, before, beside, on_progress)
            manifests, seconds = training.stages(stage, jobs)
            manifest = _write_summary(run, fields, manifests, seconds) if stage is None else manifests[stage]
        processes.share(manifest)
        return manifest


def _follow_main_process(recipe: Recipe, run: Path) -> Manifest:
    """Train the stages that the main process names, until it gives the manifest; it alone decides and writes."""
    session = Session()
    while not isinstance(order := processes.share(None), Manifest):
        stages.run(recipe, run, **order, session=session, on_progress=unwatched)
    return order


def stage_fields(
    recipe: Recipe, run: Path, only: str | None = None, again: Collection[str] = ()
) -> dict[str, Mapping[str, Any]]:
    """The flattened settings that the fingerprint of each stage covers: they include all earlier stages.

    A stage that the run has made so, but for settings that decide nothing, has those that the run notes; not a stage
    that is made `again`. With `only`, that stage and those it descends from: the data of the others need not be there
    yet.
    """
    student = student_fields(recipe)
    names = [stage.name for stage in recipe.stages]
    needed = {stage.name for stage in (recipe.stages if only is None else lineage(recipe.stages, only))}
    fields: dict[str, Mapping[str, Any]] = {}
    for stage in recipe.stages:
        if stage.name not in needed:
            continue
        start = start_of(recipe.stages, stage)
        own = {
            **settings_of_stage(stage),
            **student,
            **rows.fields(recipe, run, stage),
            **_validation_fields(recipe, stage),
            "start": BASE if start is None else start,
            "start_fingerprint": None if start is None else fingerprint(fields[start]),
            "seed": recipe.seed,
        }
        fields[stage.name] = own if stage.name in again else as_noted(run, stage, names, own)
    return fields


def _validation_fields(recipe: Recipe, stage: Stage) -> dict[str, Any]:
    """What a validation that decides by accuracy asks, and how it judges."""
    settings = stage.validation
    if settings is None or settings.decides != "accuracy" or settings.data is None:
        return {}
    return {
        **flatten(reader.source_fields(recipe, settings.data), f"data.{settings.data}"),
        **flatten(affecting(recipe.filter, "train"), "filter"),
    }


def student_fields(recipe: Recipe) -> dict[str, Any]:
    """The student section, local checkpoints by content instead of path."""
    assert recipe.student is not None
    values = affecting(recipe.student, "train")
    for part in ("model", "vision", "language"):
        name = getattr(recipe.student, part)
        local = name is not None and recipe.local(name).is_dir()
        values[part] = f"sha256:{directory_sha256(recipe.local(name))}" if local else name
    return flatten({name: value for name, value in values.items() if value is not None}, "student")


@dataclass(frozen=True, slots=True)
class _Training:
    """One call of `train` in the main process."""

    recipe: Recipe
    run: Path
    fields: Mapping[str, Mapping[str, Any]]
    before: BeforeStage
    beside: Beside
    on_progress: ProgressCallback

    def stages(self, only: str | None, jobs: int) -> tuple[dict[str, Manifest], float]:
        """The manifests of all stages, and the seconds that they took: those trained side by side count once."""
        manifests: dict[str, Manifest] = {}
        unfinished: list[Stage] = []
        for stage in self.recipe.stages:
            if only is not None and stage.name != only:
                continue
            folder = self.run / "train" / stage.name
            manifest = finished(folder, self.fields[stage.name], remedy=_remedy(stage.name))
            if manifest is None:
                unfinished.append(stage)
            else:
                require_same_images(self.recipe, folder)
                saved_model.require_saved(self.run, stage.name)
                stages.clean(folder)
                manifests[stage.name] = manifest
        waiting_for = {stage.name for stage in unfinished}
        for stage in unfinished:
            start = self._start(stage)
            if start is not None and start not in waiting_for:
                saved_model.require_saved(self.run, start, digests=True)
        seconds, begun = sum(each.seconds for each in manifests.values()), time.perf_counter()
        if unfinished:  # until all are, there is no manifest of all stages
            from student.training.loop.metrics_log import seconds_before

            with storage_errors(self.run / "train"):
                (self.run / "train" / MANIFEST).unlink(missing_ok=True)
            seconds += sum(seconds_before(self.run / "train" / stage.name / CHECKPOINTS) for stage in unfinished)
        if jobs == 1 or len(unfinished) < 2:
            manifests |= self._one_by_one(unfinished)
            ended = time.perf_counter()
        else:
            trained, ended = self._side_by_side(unfinished, jobs)
            manifests |= trained
        in_order = {stage.name: manifests[stage.name] for stage in self.recipe.stages if stage.name in manifests}
        return in_order, seconds + ended - begun

    def _start(self, stage: Stage) -> str | None:
        return start_of(self.recipe.stages, stage)

    def _one_by_one(self, unfinished: Sequence[Stage]) -> dict[str, Manifest]:
        manifests: dict[str, Manifest] = {}
        session = Session()
        for number, stage in enumerate(unfinished):
            following = unfinished[number + 1 : number + 2]
            self.before(stage)
            again = any(self._start(each) == self._start(stage) for each in following)
            order = processes.share({"stage": stage, "fields": self.fields[stage.name], "again": again})
            manifest = stages.run(self.recipe, self.run, **order, session=session, on_progress=self.on_progress)
            assert manifest is not None
            manifests[stage.name] = manifest
        return manifests

    def _side_by_side(self, unfinished: Sequence[Stage], jobs: int) -> tuple[dict[str, Manifest], float]:
        """Train each stage as soon as the one that it starts from is finished, `jobs` at a time.

        Returns the manifests, and when the last stage was finished; the work beside them may take longer.
        """
        manifests: dict[str, Manifest] = {}
        waiting = {stage.name: stage for stage in unfinished}
        unfinished_names = {*waiting}
        begun_beside: set[str] = set()
        with JobPool(jobs, self.on_progress) as pool:

            def submit_ready() -> None:
                for stage in [*waiting.values()]:
                    start = self._start(stage)
                    if start in manifests or start not in unfinished_names:
                        del waiting[stage.name]
                        self.before(stage)
                        pool.submit(stage.name, train_alone, self.recipe, self.run, stage, self.fields[stage.name])
                if waiting:
                    return  # a stage that becomes ready must find a process free
                done = {stage.name for stage in self.recipe.stages} - unfinished_names | {*manifests}
                for name, work in self.beside(done).items():
                    if name not in begun_beside:
                        begun_beside.add(name)
                        pool.submit(("beside", name), work)

            submit_ready()
            ended, failed = 0.0, None
            for name, future in pool.results():
                if name in unfinished_names:
                    manifests[str(name)] = future.result()
                    ended = time.perf_counter()
                    submit_ready()
                else:
                    failed = failed or future.exception()
            if failed is not None:
                raise failed
        return manifests, ended


def train_alone(
    recipe: Recipe, run: Path, stage: Stage, fields: Mapping[str, Any], on_progress: ProgressCallback = unwatched
) -> Manifest:
    """One stage, in a process of its own beside others of the same run; the start model is there."""
    # A killed command leaves this process a moment to write a checkpoint: a new command must not meet it.
    with locked(run / "train" / CACHE / stage.name):
        manifest = stages.run(recipe, run, stage, fields, again=False, session=Session(), on_progress=on_progress)
    assert manifest is not None
    return manifest


def _require_start(recipe: Recipe, run: Path, stage: str, fields: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise StaleError where a stage starts from one that is not finished."""
    start = next(start_of(recipe.stages, each) for each in recipe.stages if each.name == stage)
    if start is not None and finished(run / "train" / start, fields[start], remedy=_remedy(start)) is None:
        raise StaleError(
            f"{run / 'train' / start}: the stage to start from is unfinished; "
            f"run `distill train --stage {start}` first"
        )
    if start is not None:
        require_same_images(recipe, run / "train" / start)


def _remedy(stage: str) -> str:
    return (
        "set these values back (another version may have other defaults), or make this stage and those that start "
        f"from it again: `distill train --stage {stage} --fresh`"
    )


def _made_again(recipe: Recipe, run: Path, stage: str | None) -> set[str]:
    """The stages that --fresh makes again: all, those of other recipes too, or one stage and its descendants."""
    if stage is None:
        folders = {each.name for each in (run / "train").glob("*/")}
        return folders - {CACHE} | {each.name for each in recipe.stages}
    again = {stage}
    for later in recipe.stages:
        if start_of(recipe.stages, later) in again:
            again.add(later.name)
    return again


def _set_aside(run: Path, names: Collection[str], stage: str | None) -> None:
    """Move finished work to train.previous; without a `stage`, what all stages share goes."""
    folder, previous = run / "train", run / "train.previous"
    if stage is None:
        shutil.rmtree(folder / CACHE, ignore_errors=True)
        (folder / MANIFEST).unlink(missing_ok=True)
    for name in names:
        set_aside(folder / name, previous / name)


def _write_summary(
    run: Path, fields: Mapping[str, Mapping[str, Any]], manifests: Mapping[str, Manifest], seconds: float
) -> Manifest:
    shutil.rmtree(run / "train" / CACHE, ignore_errors=True)
    settings = {f"stages.{name}": fingerprint(of_stage) for name, of_stage in fields.items()}
    outputs = {f"{name}/{MANIFEST}": describe(run / "train" / name / MANIFEST) for name in manifests}
    before = Manifest.read(run / "train")
    if before is not None and before.fingerprint == fingerprint(settings) and before.outputs == outputs:
        return before
    return Manifest(
        stage="train",
        fingerprint=fingerprint(settings),
        fields=settings,
        outputs=outputs,
        counts={"stages": len(manifests), "steps": sum(each.counts["steps"] for each in manifests.values())},
        tokens={"trained": sum(each.tokens["trained"] for each in manifests.values())},
        versions=versions("torch", "transformers", "trl", "peft"),
        seconds=round(seconds, 3),
    ).write(run / "train")
