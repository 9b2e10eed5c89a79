"""`generate` of a run in an object store, by this process and any others that join it.

    plan/plan.json                     created once, last: settings, digest of the source, samples of each partition
    plan/samples/<partition>.parquet   the samples of a partition
    run/recipe.toml, run/generate/*    the run directory without its journals, which commits hold

One process reads the source when the run begins. Each process is an agent: it claims open units and works on them.
What is sealed and committed is in the store, so the same command joins or goes on from any machine that sees the
images at the same paths. At the end one agent collects the journals in its scratch folder, and the stage is finished
there as a run in a folder is.
"""

import hashlib
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import orjson

from distill.artifacts.files import atomic_path, locked, write_text
from distill.artifacts.layout import PLAN, PLAN_STATE, QUARANTINE, RECIPE, SAMPLES
from distill.artifacts.manifest import MANIFEST, Manifest, canonical, differences, fingerprint
from distill.data import sample_files
from distill.errors import BusyError, RecipeError, StaleError, StorageError
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import ProgressCallback, Sample, unwatched
from distill.units.agent_record import AgentRecord, joined
from distill.units.commits import Attempt, Unit, committed_units
from distill.units.partitions import key_histogram, plan_partitions
from distill.units.run_state import PLAN_KEY, traces_of
from distill.units.unit_queue import UnitQueue
from teacher.agent import Agent
from teacher.engines.provenance import server_settings
from teacher.generation import Generation
from teacher.messages.request import Model
from teacher.progress import GenerateProgress, announce
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.scheduling.routing import route
from teacher.store import question_plan
from teacher.store.question_plan import QuestionPlan
from teacher.unit_journals import Sealer, collect_units, put_journals, write_sealed

_PLAN_FILES = (SAMPLES, QUARANTINE, PLAN_STATE)
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

    `scratch` is a folder that this process holds, see `own_scratch`. Raises what `generate` raises, and StorageError
    for a store that cannot hold a run.
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
        collect_units(store, _units(plan), recipe, scratch / "run")
        finished = Generation(recipe, models, question_plan.read_plan(folder), on_progress).finish(
            {}, fields, plan, started
        )
        manifest = replace(finished, inputs={**finished.inputs, "store": store.address}).write(folder)
        store.put(f"run/{RECIPE}", recipe.to_toml().encode())
        for name in (PLAN, MANIFEST):
            store.put(f"run/generate/{name}", (folder / name).read_bytes())
        return manifest

    with joined(store, scratch, lease_s=recipe.engine.lease_s) as agent:
        plan = agent.make_once("plan", lambda: _read_plan(recipe, store, fields, limit), begin)
        _ask_units(recipe, models, agent, plan, scratch, on_progress)
        return agent.make_once("finish", lambda: _pull_manifest(store, scratch / "run"), lambda: finish(plan))


def pull(store: ObjectStore, run: Path) -> Manifest:
    """Write a finished run of a store to a new run directory. Raises StaleError for one that is not finished."""
    try:
        recipe_text, plan = store.read(f"run/{RECIPE}"), orjson.loads(store.read(PLAN_KEY))
        store.read(f"run/generate/{MANIFEST}")
    except FileNotFoundError:
        raise StaleError(f"{store.address}: no finished run; run `distill generate` first") from None
    if run.exists() and any(run.iterdir()):
        raise StaleError(f"{run}: not empty; give a new folder")
    with locked(run):
        write_text(run / RECIPE, recipe_text.decode())
        pull_plan(store, run)
        collect_units(store, _units(plan), load(run / RECIPE), run)
        _write(run / "generate" / PLAN, store.read(f"run/generate/{PLAN}"))
        manifest = _pull_manifest(store, run)
    assert manifest is not None
    return manifest


def _pull_manifest(store: ObjectStore, run: Path) -> Manifest | None:
    """The manifest of a run, in a folder too; None while the run is unfinished."""
    try:
        _write(run / "generate" / MANIFEST, store.read(f"run/generate/{MANIFEST}"))
    except FileNotFoundError:
        return None
    return Manifest.read(run / "generate")


def pull_plan(store: ObjectStore, run: Path) -> None:
    """The list of questions of a run, in a folder without traces."""
    shutil.rmtree(run / "generate", ignore_errors=True)
    for name in _PLAN_FILES:
        _write(run / "generate" / name, store.read(f"run/generate/{name}"))


@contextmanager
def own_scratch(recipe: Recipe, address: str) -> Iterator[Path]:
    """A folder that one process of this machine holds while it works on a run in a store; nothing in it counts."""
    root = recipe.local(recipe.engine.scratch) if recipe.engine.scratch else None
    root = root or Path(tempfile.gettempdir()) / f"distill-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise RecipeError(f"{root}: belongs to another user; set engine.scratch to a folder of your own")
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    for number in count():
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(root / f"{name}-{number}"))
            except BusyError:  # another process of this machine works on the same run
                continue
            yield root / f"{name}-{number}"
            return


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


def _units(plan: Mapping[str, Any]) -> list[Unit]:
    return [Unit(round=0, partition=name) for name in sorted(plan["partitions"])]


def _read_plan(
    recipe: Recipe, store: ObjectStore, fields: Mapping[str, Any], limit: int | None
) -> dict[str, Any] | None:
    """The plan of a run that has begun. Raises StaleError where it was begun with other settings."""
    try:
        plan: dict[str, Any] = orjson.loads(store.read(PLAN_KEY))
    except FileNotFoundError:
        return None
    there = recipe.local(recipe.data[question_plan.SOURCE].source).exists()
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
            "take the change back, or choose another --run"
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
            store.put(_samples_key(name), part.read_bytes())
    for name in _PLAN_FILES:
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
        set(_units(plan)).difference(committed),
        lambda unit: progress.found({}, elsewhere=traces_of(plan, [unit.partition])),
    )
    agent.live = lambda: {**progress.facts(), "units": queue.at_work}
    if not queue.ended:
        # It was made of other commits.
        store.delete([f"run/generate/{MANIFEST}"])
    with UnitPlans(recipe, models, store, queue, scratch, progress) as source:
        Agent(recipe.teachers, progress, source).run()


class UnitPlans:
    """The units of a run as plans of an agent: opened with what earlier attempts sealed, committed at the end."""

    def __init__(
        self,
        recipe: Recipe,
        models: Mapping[str, Model],
        store: ObjectStore,
        queue: UnitQueue,
        scratch: Path,
        progress: GenerateProgress,
    ) -> None:
        self._recipe, self._models, self._store, self._queue = recipe, models, store, queue
        self._scratch, self._progress = scratch, progress
        self._open: dict[int, tuple[Generation, Attempt, Sealer]] = {}

    @property
    def ended(self) -> bool:
        return self._queue.ended

    def draw(self) -> Generation | None:
        unit = self._queue.draw()
        if unit is None:
            return None
        attempt = Attempt(store=self._store, unit=unit)
        folder = self._scratch / "units" / attempt.name
        _write(folder / SAMPLES, self._store.read(_samples_key(unit.partition)))
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
        sealer = Sealer(attempt, folder, names, self._recipe.engine.seal_s)
        sealer.__enter__()
        self._open[id(generation)] = generation, attempt, sealer
        return generation

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


def _samples_key(partition: str) -> str:
    return f"plan/samples/{partition}.parquet"


def _write(path: Path, data: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
