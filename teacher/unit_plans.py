"""The units of a run in a store as plans that the engines of a process answer.

A unit is opened with the traces that earlier rounds have committed and those that earlier attempts have sealed. Its
new traces are sealed while it is worked on, and committed at its end.
"""

import logging
import random
import shutil
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import orjson

from distill.artifacts.files import write_json
from distill.artifacts.layout import SAMPLES, part_path
from distill.data import sample_files
from distill.data.images import stored_images
from distill.recipe.recipe import Recipe
from distill.units import image_shards
from distill.units.commits import Attempt, Unit, read_commit
from distill.units.stored_run import finished_commit, pull_samples, read_traces, write_object
from distill.units.unit_queue import UnitQueue
from teacher.generation import Generation, UnitWork
from teacher.messages.request import Model
from teacher.progress import GenerateProgress
from teacher.scheduling.routing import route
from teacher.store.question_plan import QuestionPlan
from teacher.stored_batches import StoredBatches
from teacher.unit_exchange import UnitExchange
from teacher.unit_journals import Sealer, put_journals, seal_left_over, write_sealed

_NOTE = "unit.json"
"""In the folder of an open unit: the name of the unit."""
_SHARED_PART = 64
"""An agent without a unit joins one of which more than this part of the samples of a unit is not drawn."""


class UnitPlans:
    """The units of a run as plans of an agent: opened with what earlier attempts sealed, committed at the end."""

    def __init__(
        self,
        recipe: Recipe,
        models: Mapping[str, Model],
        plan: Mapping[str, Any],
        *,
        queue: UnitQueue,
        scratch: Path,
        progress: GenerateProgress,
    ) -> None:
        """`plan`: the plan of the run (`distill.units.run_state.PLAN_KEY`)."""
        self._recipe, self._models, self._queue, self._agent = recipe, models, queue, queue.agent
        self._rounds: list[list[str]] = [each["teachers"] for each in plan["rounds"]]
        self._planned_by: str = plan["attempt"]
        self._store, self._scratch, self._progress = queue.agent.store, scratch, progress
        self._least = max(1, recipe.engine.unit_rows // _SHARED_PART)
        self._batches = {
            teacher.name: StoredBatches(agent=queue.agent, teacher=teacher.name)
            for teacher in recipe.teachers
            if teacher.capabilities.direct
        }
        self._open: dict[int, tuple[Generation, Attempt, Sealer]] = {}
        self._images: dict[str, set[str]] = {}
        """Those in a store, of each open unit by its attempt: they are on this machine while the unit is open."""
        self._changing_images = threading.Lock()

    @property
    def ended(self) -> bool:
        return self._queue.ended

    def undrawn(self) -> dict[str, int]:
        """Samples of each open unit that are not drawn, about."""
        return {
            attempt.unit.name: max((job.queue.undrawn for job in generation.open_jobs), default=0)
            for generation, attempt, _ in [*self._open.values()]
        }

    def draw(self) -> Generation | None:
        unit = self._queue.draw()
        if unit is not None:
            return self._open_unit(unit)
        joined = self._queue.join(self._least, 2 * self._recipe.engine.seal_s)
        return None if joined is None else self._open_unit(*joined)

    def _open_unit(self, unit: Unit, joined_as: int = 0) -> Generation:
        """Open a unit of this agent, or one of others, as the first, second, ... that joins it."""
        attempt = Attempt(store=self._store, unit=unit)
        folder = self._scratch / "units" / attempt.name
        write_json(folder / _NOTE, self._note_of(unit))
        samples = pull_samples(self._store, unit.partition, folder / SAMPLES)
        if joined_as:
            # The first one begins at the far end, the others anywhere, so that few samples are drawn twice.
            backwards = [*sample_files.read_samples(folder / SAMPLES)][::-1]
            start = random.randrange(len(backwards)) if joined_as > 1 else 0
            sample_files.write_samples(folder / SAMPLES, backwards[start:] + backwards[:start])
        routed = Counter(
            teacher.name
            for sample in sample_files.read_samples(folder / SAMPLES)
            for teacher in route(self._recipe.teachers, sample)
        )
        images = set(image_shards.stored_refs(sample_files.read_samples(folder / SAMPLES)))
        with (
            self._changing_images
        ):  # named before the files are listed, because the end of another unit may remove files
            self._images[attempt.name] = images
        image_shards.fetch_shards(self._store, self._planned_by, images, unit.partition)
        before, names = self._rounds[: unit.round], self._rounds[unit.round]
        for number, teachers in enumerate(before):
            self._write_committed(replace(unit, round=number), teachers, folder)
        for name in names:
            write_sealed(attempt, folder / name)
            (self._scratch / "engines" / name).mkdir(parents=True, exist_ok=True)
        plan = QuestionPlan(folder=folder, samples=samples, quarantined=Counter(), routed=routed)
        generation = Generation(
            self._recipe,
            self._models,
            plan,
            self._progress,
            UnitWork(
                engines=self._scratch / "engines",
                batches=self._batches,
                settled=[name for teachers in before for name in teachers],
            ),
        )
        exchange = UnitExchange(
            attempt=attempt, agent=self._agent, jobs=lambda: generation.open_jobs, shared=joined_as > 0
        )
        sealer = Sealer(attempt, folder, names, self._recipe.engine.seal_s, exchange)
        sealer.start()
        self._open[id(generation)] = generation, attempt, sealer
        return generation

    def _write_committed(self, unit: Unit, teachers: Sequence[str], folder: Path) -> None:
        """The journals of an earlier round, by which the policies of this one go."""
        commit = finished_commit(self._store, unit)
        for name in teachers:
            write_object(part_path(folder / name, 0, ".jsonl"), read_traces(self._store, unit, commit, name))

    def take_news(self) -> None:
        for _, _, sealer in [*self._open.values()]:
            sealer.require_sealing()
            sealer.exchange.take_news()

    def finish(self, generation: Generation) -> None:
        _, attempt, sealer = self._open[id(generation)]
        sealer.close()
        lines = put_journals(attempt, generation.plan.folder, self._rounds[attempt.unit.round])
        attempt.commit({"samples": generation.plan.samples} | lines)
        del self._open[id(generation)]
        with self._changing_images:
            images = self._images.pop(attempt.name)
            stored_images.forget(images.difference(*self._images.values()))
        self._queue.done(attempt.unit)
        shutil.rmtree(generation.plan.folder)

    def _note_of(self, unit: Unit) -> dict[str, Any]:
        return {"planned_by": self._planned_by, "round": unit.round, "partition": unit.partition}

    def __enter__(self) -> Self:
        for note in sorted((self._scratch / "units").glob(f"*/{_NOTE}")):
            self._seal_left_over(note)
        shutil.rmtree(self._scratch / "units", ignore_errors=True)
        return self

    def _seal_left_over(self, note: Path) -> None:
        """Seal what a process that has ended in this scratch folder has not sealed of a unit that is still open."""
        left = orjson.loads(note.read_bytes())
        unit = Unit(round=left["round"], partition=left["partition"])
        if left == self._note_of(unit) and read_commit(self._store, unit) is None:
            seal_left_over(Attempt(store=self._store, unit=unit), note.parent, self._rounds[unit.round])

    def __exit__(self, *_: object) -> None:
        for generation, attempt, sealer in self._open.values():
            try:
                sealer.give_up()
            except Exception as error:  # the run ends with an error already, and the other units have traces, too
                logging.getLogger(__name__).warning(
                    f"unit {attempt.unit.partition}: last traces are only in {generation.plan.folder}: {error}"
                )
