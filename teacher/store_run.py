"""`generate` of a run in an object store, by this process and any others that join it.

    plan/plan.json                     created once, last: settings, digest of the source, samples of each partition
    plan/samples/<partition>.parquet   the samples of a partition
    run/recipe.toml, run/generate/*    the run directory without its journals, which commits hold

One process reads the source when the run begins. Each process is an agent: it claims open units and works on them.
What is sealed and committed is in the store, so the same command joins or goes on from any machine that sees the
images at the same paths. At the end one agent collects the journals in its scratch folder, and the stage is finished
there as a run in a folder is.
"""

import logging
import random
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import orjson

from distill.artifacts.layout import PLAN, RECIPE, SAMPLES
from distill.artifacts.manifest import MANIFEST, Manifest, canonical, differences, fingerprint
from distill.data import sample_files, sources
from distill.errors import CircuitOpen, RecipeError, StaleError, StorageError, TeacherError
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.types import ProgressCallback, Sample, unwatched
from distill.units.agent_record import AgentRecord, joined
from distill.units.commits import Attempt, Unit, committed_units
from distill.units.partitions import key_histogram, plan_partitions
from distill.units.run_state import PLAN_KEY, traces_of
from distill.units.stored_run import (
    PLAN_FILES,
    collect_units,
    generate_units,
    pull_manifest,
    pull_plan,
    samples_key,
    write_bytes,
)
from distill.units.unit_queue import UNDRAWN, UnitQueue, remove_all_leftovers
from teacher.agent import Agent
from teacher.engines.provenance import server_settings
from teacher.generation import Generation
from teacher.messages.request import Model
from teacher.progress import GenerateProgress, announce
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.scheduling.routing import route
from teacher.store import question_plan
from teacher.store.question_plan import QuestionPlan
from teacher.unit_exchange import UnitExchange
from teacher.unit_journals import Sealer, put_journals, write_sealed

_SHARED_PART = 64
"""An agent without a unit joins one of which more than this part of the samples of a unit is not drawn."""
_HELD_SAMPLES = 200_000
"""Samples in memory while a source is cut into partitions; a larger one is read several times."""


def generate_in_store(
    recipe: Recipe,
    address: str,
    scratch: Path,
    *,
    limit: int | None = None,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Let the teachers answer the questions of a run that lies in a store. Joins or resumes; asks nothing of a
    finished run.

    `scratch` is a folder that this process holds (distill.units.stored_run.own_scratch). Raises what `generate`
    raises, and StorageError for a store that cannot hold a run.
    """
    started, models = time.monotonic(), question_plan.check_teachers(recipe)
    _require_one_round(recipe)
    store = open_store(address, config=recipe.store.client_options())
    folder = scratch / "run" / "generate"
    fields = question_plan.result_settings(recipe, models)

    def begin() -> dict[str, Any]:
        announce(on_progress, "reading the source")
        return _write_plan(recipe, store, folder, fields, limit)

    def finish(plan: Mapping[str, Any]) -> Manifest:
        pull_plan(store, scratch / "run")
        teachers = [teacher.name for teacher in recipe.teachers]
        commits = collect_units(store, generate_units(plan), teachers, scratch / "run")
        finished = Generation(recipe, models, question_plan.read_plan(folder), on_progress).finish(
            {}, fields, plan, started
        )
        manifest = replace(finished, inputs={**finished.inputs, "store": store.address}).write(folder)
        store.put(f"run/{RECIPE}", recipe.to_toml().encode())
        for name in (PLAN, MANIFEST):
            store.put(f"run/generate/{name}", (folder / name).read_bytes())
        remove_all_leftovers(store, commits)
        return manifest

    with joined(store, scratch, lease_s=recipe.engine.lease_s) as agent:
        plan = agent.make_once("plan", lambda: _read_plan(recipe, store, fields, limit), begin)
        _ask_units(recipe, models, agent, plan, scratch, on_progress)
        return agent.make_once("finish", lambda: pull_manifest(store, scratch / "run"), lambda: finish(plan))


def _require_one_round(recipe: Recipe) -> None:
    if len(group_teachers(recipe.teachers)) > 1:
        raise RecipeError(
            f"{recipe.path}: teachers that take turns on the same GPUs cannot share a run in a store yet; name "
            "different gpus in [teachers.server], or write to a run directory"
        )
    if batch := [teacher.name for teacher in recipe.teachers if teacher.backend == "batch"]:
        raise RecipeError(
            f"{recipe.path}: teachers {', '.join(batch)}: batch files are noted in a run directory and would be paid "
            "twice over a store; write to a run directory"
        )


def _read_plan(
    recipe: Recipe, store: ObjectStore, fields: Mapping[str, Any], limit: int | None
) -> dict[str, Any] | None:
    """The plan of a run that has begun. Raises StaleError where it was begun with other settings."""
    try:
        plan: dict[str, Any] = orjson.loads(store.read(PLAN_KEY))
    except FileNotFoundError:
        return None
    there = sources.is_there(recipe, ASKED)
    # Trace ids do not cover how a server is started.
    servers = server_settings(recipe)
    now = {
        **fields,
        "servers": servers,
        "limit": limit or 0,
        "source": question_plan.source_digest(recipe) if there else plan["content"],
    }
    before = {**plan["fields"], "servers": plan["servers"], "limit": plan["limit"], "source": plan["content"]}
    if fingerprint(before) != fingerprint(now):
        raise StaleError(
            f"{store.address} was begun with other settings:\n{differences(before, now)}\n"
            "undo the change, or choose another --run"
        )
    return plan


def _write_plan(
    recipe: Recipe, store: ObjectStore, folder: Path, fields: Mapping[str, Any], limit: int | None
) -> dict[str, Any]:
    """Read the source, write its samples to the store by partition, and begin the run."""
    shutil.rmtree(folder, ignore_errors=True)
    pending, routed = question_plan.write_pending_plan(recipe, folder, limit=limit)
    inputs = question_plan.plan_inputs(recipe, folder, fields, limit)
    question_plan.install_plan(pending, folder, inputs, routed)
    samples = folder / SAMPLES
    partitions = plan_partitions(key_histogram(sample_files.read_samples(samples)), rows=recipe.engine.unit_rows)
    counts = Counter(map(partitions.partition_of, sample_files.read_samples(samples)))
    waiting = sorted(counts)
    while waiting:
        held: dict[str, list[Sample]] = {}
        while waiting and (not held or sum(counts[name] for name in (*held, waiting[0])) <= _HELD_SAMPLES):
            held[waiting.pop(0)] = []
        for sample in sample_files.read_samples(samples):
            if (name := partitions.partition_of(sample)) in held:
                held[name].append(sample)
        for name, group in held.items():
            part = folder / "partition.parquet"
            sample_files.write_samples(part, group)
            store.put(samples_key(name), part.read_bytes())
    for name in PLAN_FILES:
        store.put(f"run/generate/{name}", (folder / name).read_bytes())
    plan: dict[str, Any] = {
        "attempt": secrets.token_hex(8),
        "fields": dict(fields),
        "partitions": counts,
        "routed": routed,
    }
    plan["traces"] = sum(routed[each.name] * each.samples for each in recipe.teachers if each.after is None)
    plan |= {"content": inputs["content"], "limit": inputs["limit"], "servers": server_settings(recipe)}
    store.create(PLAN_KEY, canonical(plan))
    # Another agent may have come first.
    begun = _read_plan(recipe, store, fields, limit)
    assert begun is not None
    return begun


def _ask_units(
    recipe: Recipe,
    models: Mapping[str, Model],
    agent: AgentRecord,
    plan: Mapping[str, Any],
    scratch: Path,
    on_progress: ProgressCallback,
) -> None:
    """Let this process work until every unit is committed."""
    store, committed = agent.store, committed_units(agent.store)
    done = traces_of(plan, (unit.partition for unit in committed))
    progress = GenerateProgress(on_progress, done=done, total=plan["traces"], outcomes={})
    queue = UnitQueue(
        agent,
        set(generate_units(plan)).difference(committed),
        lambda unit: progress.found({}, elsewhere=traces_of(plan, [unit.partition])),
        retries=recipe.engine.retries,
    )
    if not queue.ended:
        # It was made of other commits.
        store.delete([f"run/generate/{MANIFEST}"])
    source = UnitPlans(recipe, models, agent, queue, scratch, progress)
    agent.live = lambda: {**progress.facts(agent.away_s), "units": queue.at_work, UNDRAWN: source.undrawn()}
    engines = Agent(recipe.teachers, progress, source)
    try:
        with source:
            engines.run()
    except (TeacherError, CircuitOpen) as error:
        if isinstance(error, CircuitOpen) or not engines.served:  # the teacher is away; no unit is at fault
            agent.give_back()
        raise
    queue.require_all()


class UnitPlans:
    """The units of a run as plans of an agent: opened with what earlier attempts sealed, committed at the end."""

    def __init__(
        self,
        recipe: Recipe,
        models: Mapping[str, Model],
        agent: AgentRecord,
        queue: UnitQueue,
        scratch: Path,
        progress: GenerateProgress,
    ) -> None:
        self._recipe, self._models, self._agent, self._queue = recipe, models, agent, queue
        self._store, self._scratch, self._progress = agent.store, scratch, progress
        self._least = max(1, recipe.engine.unit_rows // _SHARED_PART)
        self._open: dict[int, tuple[Generation, Attempt, Sealer]] = {}

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
        write_bytes(folder / SAMPLES, self._store.read(samples_key(unit.partition)))
        if joined_as:
            # The first one begins at the far end, the others anywhere, so that few samples are drawn twice.
            backwards = [*sample_files.read_samples(folder / SAMPLES)][::-1]
            start = random.randrange(len(backwards)) if joined_as > 1 else 0
            sample_files.write_samples(folder / SAMPLES, backwards[start:] + backwards[:start])
        samples = sample_files.count_samples(folder / SAMPLES)
        routed = Counter(
            teacher.name
            for sample in sample_files.read_samples(folder / SAMPLES)
            for teacher in route(self._recipe.teachers, sample)
        )
        for teacher in self._recipe.teachers:
            write_sealed(attempt, folder / teacher.name)
            (self._scratch / "engines" / teacher.name).mkdir(parents=True, exist_ok=True)
        plan = QuestionPlan(folder=folder, samples=samples, quarantined=Counter(), routed=routed)
        generation = Generation(self._recipe, self._models, plan, self._progress, engines=self._scratch / "engines")
        names = [teacher.name for teacher in self._recipe.teachers]
        exchange = UnitExchange(
            attempt=attempt, agent=self._agent, jobs=lambda: generation.open_jobs, shared=joined_as > 0
        )
        sealer = Sealer(attempt, folder, names, self._recipe.engine.seal_s, exchange)
        sealer.__enter__()
        self._open[id(generation)] = generation, attempt, sealer
        return generation

    def take_news(self) -> None:
        for _, _, sealer in [*self._open.values()]:
            sealer.exchange.take_news()

    def finish(self, generation: Generation) -> None:
        _, attempt, sealer = self._open[id(generation)]
        sealer.__exit__(None)
        lines = put_journals(attempt, generation.plan.folder, self._recipe)
        attempt.commit({"samples": generation.plan.samples} | lines)
        del self._open[id(generation)]
        self._queue.done(attempt.unit)
        shutil.rmtree(generation.plan.folder)

    def __enter__(self) -> Self:
        shutil.rmtree(self._scratch / "units", ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        for generation, attempt, sealer in self._open.values():
            try:
                sealer.__exit__(BaseException)
            except StorageError as error:  # the run ends with an error already
                logging.getLogger(__name__).warning(
                    f"unit {attempt.unit.partition}: last traces are only in {generation.plan.folder}: {error}"
                )
