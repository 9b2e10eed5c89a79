"""What the checks of one recipe share: its sources, each read once, the outline of its student, the time left."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from distill import packages
from distill.artifacts.manifest import MANIFEST, finished
from distill.checks.hub import HubNames
from distill.checks.survey import Survey, survey
from distill.data import sources
from distill.errors import DistillError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import is_traces
from distill.recipe.sections.teachers import OCR_CUES, Teacher
from distill.rounds.results import read_results
from distill.types import Sample
from teacher.messages.prompts import cues
from teacher.scheduling.routing import route
from teacher.store import question_plan
from teacher.store.teacher_coverage import TeacherCoverage

if TYPE_CHECKING:
    from distill.machine.hardware import Gpu
    from distill.planning.stage_plans import StagePlanner

TEACHERS, TEST_SETS = "teachers", "filter.contamination.sources"
"""Users of sources that need no gold answers."""
_LEAST_SECONDS = 1.0


class CheckContext:
    """One check of one recipe. Errors of what is shared are raised again for each check that needs it."""

    def __init__(
        self, recipe: Recipe, run: Path, *, gpu_name: str | None, seconds: float, redo_stale: bool = False
    ) -> None:
        self.recipe = recipe
        self.run = run
        self._gpu_name = gpu_name
        self.redo_stale = redo_stale
        """Whether what other settings made is made again, and so is no problem."""
        self.hub = HubNames(recipe)
        self.coverage = TeacherCoverage()
        self.unasked: Counter[str] = Counter()
        """The number of questions without a teacher, by domain."""
        self.routed: Counter[str] = Counter()
        """Questions by teacher, once these are surveyed."""
        self.cued: Counter[str] = Counter()
        """Questions by teacher for which its {cues} are not empty."""
        self.slow_parts: set[str] = set()
        """Parts of the user's own that one row takes too long."""
        self._deadline = time.monotonic() + seconds
        self._surveys: dict[str, Survey | DistillError] = {}

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    @cached_property
    def gpu(self) -> "Gpu | None":
        """The named card, or the card of this machine."""
        from distill.machine import hardware
        from distill.planning.stage_plans import local_gpu

        if self._gpu_name is not None:
            return hardware.find_gpu(self._gpu_name)
        return None if packages.missing("torch") else local_gpu()

    @cached_property
    def uses(self) -> Mapping[str, Sequence[str]]:
        """For each source of the recipe the keys that will still read it."""
        keys_by_source: dict[str, list[str]] = {}
        for source, key in self._sources_and_keys():
            if source is not None:
                keys_by_source.setdefault(source, []).append(key)
        return keys_by_source

    def _sources_and_keys(self) -> Iterator[tuple[str | None, str]]:
        recipe, rounds = self.recipe, self.recipe.rounds
        if not self.is_done("generate") and (recipe.teachers or any(map(is_traces, recipe.stages))):
            yield ASKED, TEACHERS
        for stage in recipe.stages:
            if self.is_done(f"train/{stage.name}"):
                continue
            where = f"stages.{stage.name}"
            yield None if is_traces(stage) else stage.data, f"{where}.data"
            yield from ((source, f"{where}.replay") for source in stage.replay)
            yield stage.validation.data if stage.validation else None, f"{where}.validation.data"
        if recipe.evaluates:
            yield recipe.eval.data, "eval.data"
        if rounds.count:
            yield rounds.questions if rounds.questions != ASKED else None, "rounds.questions"
            yield rounds.validation, "rounds.validation"
        if "contamination" in recipe.filter.signals and not self.is_done("filter"):
            yield from ((source, TEST_SETS) for source in recipe.filter.contamination.sources or ())

    def is_done(self, stage: str) -> bool:
        """Whether a stage is finished in the run directory, so that its inputs need no check.

        Where what is stale is made again, a stage after generate counts as not finished: it may be stale.
        """
        if not (self.run / stage / MANIFEST).is_file():
            return False
        return not self.redo_stale or (stage == "generate" and not self._asks_again)

    @cached_property
    def _asks_again(self) -> bool:
        """Whether other settings made the finished generate stage."""
        try:
            fields = question_plan.result_settings(self.recipe, question_plan.check_teachers(self.recipe))
            finished(self.run / "generate", fields, remedy="")
        except DistillError:
            return True
        return False

    @cached_property
    def has_rounds_left(self) -> bool:
        """Whether `distill run` will ask teachers in rounds."""
        results = read_results(self.run)
        return bool(self.recipe.rounds.count) and not (results and results["ended"])

    def is_here(self, name: str) -> bool:
        """Whether a source can be read without the hub: on this disk, or in a store."""
        return name in self.recipe.data and sources.is_there(self.recipe, name)

    def survey(self, name: str) -> Survey:
        """What a source holds that is here. Raises DataError as reading it in a stage would."""
        if name not in self._surveys:
            waiting = [source for source in self.uses if source not in self._surveys and self.is_here(source)]
            # Half of the time is for data; the rest loads libraries and outlines models.
            seconds = max(_LEAST_SECONDS, self.seconds_left / 2 / max(1, len(waiting)))
            visit = self._route if name == ASKED else lambda sample: None
            try:
                self._surveys[name] = survey(self.recipe, name, seconds=seconds, visit=visit)
            except DistillError as error:
                self._surveys[name] = error
        result = self._surveys[name]
        if isinstance(result, DistillError):
            raise result
        return result

    def surveyed(self, name: str) -> Survey | None:
        """The survey of a source that was made already."""
        result = self._surveys.get(name)
        return result if isinstance(result, Survey) else None

    def readable(self, name: str) -> Survey | None:
        """The survey of a source; None where the source is not here or cannot be read, which other checks report."""
        try:
            return self.survey(name) if self.is_here(name) else None
        except DistillError:
            return None

    def _route(self, sample: Sample) -> None:
        if not self.coverage.add(self.recipe, sample):
            self.unasked[sample.domain] += 1
        self.routed.update(teacher.name for teacher in route(self.recipe.teachers, sample))
        self.cued.update(teacher.name for teacher in self.recipe.teachers if _has_cues(teacher, sample))

    @cached_property
    def planner(self) -> "StagePlanner":
        """The student without weights. Raises what outlining it raises."""
        from distill.planning.stage_plans import StagePlanner

        return StagePlanner(self.recipe, self.run)

    @cached_property
    def student_is_here(self) -> bool:
        """Whether the student can be outlined: its parts lie here, or the hub has them within reach."""
        student = self.recipe.student
        if student is None:
            return False
        names = [name for name in (student.model, student.vision, student.language) if name is not None]
        return all(self.recipe.local(name).is_dir() or name in self.hub.cached for name in names)


def _has_cues(teacher: Teacher, sample: Sample) -> bool:
    return teacher.cues is not None and bool(cues(teacher, sample) or (teacher.cues == OCR_CUES and sample.images))
