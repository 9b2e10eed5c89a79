"""`generate` of a run in an object store, by this process and any others that join it.

    plan/plan.json                     created once, last: settings, digest of the source, samples of each partition
    plan/samples/<partition>.parquet   the samples of a partition
    plan/images/<attempt>/*            its images, where they lie in a store
    run/recipe.toml, run/generate/*    the run directory without its journals, which commits hold

One process reads the source when the run begins. Each process is an agent: it claims open units and works on them.
Sealed and committed work is in the store, so the same command joins or continues the run from any machine. Images
that are in no store must be at the same paths on all machines. Teachers that take turns are asked in rounds: a round
begins when all units of the round before are committed, so a process starts the server of a teacher once. At the end
one agent collects the journals in its scratch folder, and the stage is finished there as a run in a folder is.
"""

import secrets
import shutil
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.layout import PLAN, RECIPE, SAMPLES
from distill.artifacts.manifest import MANIFEST, Manifest, canonical, differences, fingerprint
from distill.data import sample_files, sources
from distill.data.images import stored_images
from distill.errors import CircuitOpen, StaleError, TeacherError
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import open_run_store
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.teachers import Teacher
from distill.types import ProgressCallback, Sample, unwatched
from distill.units import image_shards
from distill.units.agent_record import CLAIMS, AgentRecord, joined
from distill.units.commits import COMMITS, GENERATE, Unit, committed_units
from distill.units.partitions import key_histogram, plan_partitions
from distill.units.run_state import PLAN_KEY, traces_of
from distill.units.stored_run import PLAN_FILES, collect_units, generate_units, pull_manifest, pull_plan, samples_key
from distill.units.unit_queue import UNDRAWN, UnitQueue, remove_all_leftovers
from teacher.agent import Agent
from teacher.engines.provenance import server_settings
from teacher.generation import Generation
from teacher.messages.request import Model
from teacher.progress import GenerateProgress, announce
from teacher.scheduling.concurrent_teachers import fit_together, group_teachers
from teacher.store import question_plan
from teacher.stored_batches import BATCHES
from teacher.unit_plans import UnitPlans

_PACKED_AT_ONCE = 4
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
    store = open_run_store(recipe, address)
    folder = scratch / "run" / "generate"
    fields = question_plan.result_settings(recipe, models)

    retry = (
        f"delete the objects below {store.address}/{GENERATE}/{COMMITS} (finished units keep their errors) and run "
        "the same command again; another recipe needs another --run"
    )

    def finish(plan: Mapping[str, Any]) -> Manifest:
        pull_plan(store, scratch / "run")
        commits = collect_units(store, plan, scratch / "run")
        progress = GenerateProgress(on_progress, done=plan["traces"], total=plan["traces"], outcomes={})
        finished = Generation(recipe, models, question_plan.read_plan(folder), progress).finish(
            {}, fields, plan, started, retry=retry
        )
        manifest = replace(finished, inputs={**finished.inputs, "store": store.address}).write(folder)
        store.put(f"run/{RECIPE}", recipe.to_toml().encode())
        for name in (PLAN, MANIFEST):
            store.put(f"run/generate/{name}", (folder / name).read_bytes())
        remove_all_leftovers(store, commits)
        store.delete([stored.key for stored in store.list_objects(f"{CLAIMS}/{BATCHES}")])
        image_shards.remove_shards(store, but=plan["attempt"])
        return manifest

    with joined(store, scratch, lease_s=recipe.engine.lease_s) as agent:
        plan = make_plan(recipe, agent, folder, fields, limit, on_progress)
        _ask_units(recipe, models, agent, plan, scratch, on_progress)
        return agent.make_once("finish", lambda: pull_manifest(store, scratch / "run"), lambda: finish(plan))


def make_plan(
    recipe: Recipe,
    agent: AgentRecord,
    folder: Path,
    fields: Mapping[str, Any],
    limit: int | None,
    on_progress: ProgressCallback,
) -> dict[str, Any]:
    """The plan of a run in a store; the first agent reads the source and writes it. `folder` gets its files then.

    Raises StaleError where the run was begun with other settings.
    """

    def begin() -> dict[str, Any]:
        announce(on_progress, "reading the source")
        return _write_plan(recipe, agent.store, folder, fields, limit)

    return agent.make_once("plan", lambda: _read_plan(recipe, agent.store, fields, limit), begin)


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
    for names, teachers in zip((each["teachers"] for each in plan["rounds"]), _rounds(recipe, plan), strict=True):
        if not fit_together(teachers):
            raise StaleError(
                f"{store.address} was begun with teachers {', '.join(names)} at the same time, but with this recipe "
                "they use the same GPUs or are loaded into one process; undo the change, or choose another --run"
            )
    return plan


def _rounds(recipe: Recipe, plan: Mapping[str, Any]) -> list[list[Teacher]]:
    """The teachers of each round of a plan."""
    named = {teacher.name: teacher for teacher in recipe.teachers}
    return [[named[name] for name in each["teachers"]] for each in plan["rounds"]]


def _write_plan(
    recipe: Recipe, store: ObjectStore, folder: Path, fields: Mapping[str, Any], limit: int | None
) -> dict[str, Any]:
    """Read the source, write its samples to the store by partition, and begin the run."""
    shutil.rmtree(folder, ignore_errors=True)
    pending = question_plan.write_pending_plan(recipe, folder, limit=limit)
    inputs = question_plan.plan_inputs(recipe, folder, fields, limit)
    question_plan.install_plan(pending, folder, inputs)
    routed = question_plan.read_plan(folder).routed
    samples = folder / SAMPLES
    partitions = plan_partitions(key_histogram(sample_files.read_samples(samples)), rows=recipe.engine.unit_rows)
    counts = Counter(map(partitions.partition_of, sample_files.read_samples(samples)))
    attempt, packed = secrets.token_hex(8), set[str]()
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
        packed |= _pack_images(store, attempt, held)
    stored_images.forget(packed)
    for name in PLAN_FILES:
        store.put(f"run/generate/{name}", (folder / name).read_bytes())
    plan: dict[str, Any] = {"attempt": attempt, "fields": dict(fields), "partitions": counts, "routed": routed}
    plan["rounds"] = [
        {
            "teachers": [each.name for each in teachers],
            "traces": sum(routed[each.name] * each.samples for each in teachers if each.after is None),
        }
        for teachers in group_teachers(recipe.teachers, batches_apart=True)
    ]
    plan["traces"] = sum(each["traces"] for each in plan["rounds"])
    plan |= {"content": inputs["content"], "limit": inputs["limit"], "servers": server_settings(recipe)}
    store.create(PLAN_KEY, canonical(plan))
    # Another agent may have come first.
    begun = _read_plan(recipe, store, fields, limit)
    assert begun is not None
    if begun["attempt"] != attempt:
        image_shards.remove_shards(store, of=attempt)
    return begun


def _pack_images(store: ObjectStore, attempt: str, groups: Mapping[str, Sequence[Sample]]) -> set[str]:
    """Pack the images of partitions that lie in a store, some partitions at a time. Returns their sha256."""
    refs = {name: image_shards.stored_refs(group) for name, group in groups.items()}
    packed = thread_map(
        lambda name: image_shards.put_shards(store, attempt, name, refs[name].values()), refs, _PACKED_AT_ONCE
    )
    list(packed)
    return {digest for each in refs.values() for digest in each}


def _ask_units(
    recipe: Recipe,
    models: Mapping[str, Model],
    agent: AgentRecord,
    plan: Mapping[str, Any],
    scratch: Path,
    on_progress: ProgressCallback,
) -> None:
    """Let this process work until every unit is committed, or set aside."""
    committed = set(committed_units(agent.store))
    progress = GenerateProgress(on_progress, done=traces_of(plan, committed), total=plan["traces"], outcomes={})
    queue = UnitQueue(
        agent,
        on_elsewhere=lambda unit: progress.found({}, elsewhere=traces_of(plan, [unit])),
        retries=recipe.engine.retries,
    )
    if not committed.issuperset(generate_units(plan)):
        # It was made of other commits.
        agent.store.delete([f"run/generate/{MANIFEST}"])
    rounds = _rounds(recipe, plan)
    with UnitPlans(recipe, models, plan, queue=queue, scratch=scratch, progress=progress) as source:
        while units := _open_units(plan, set(committed_units(agent.store)), queue.set_aside):
            queue.add(units)
            _work_round(rounds[units[0].round], progress, source, queue)
    queue.require_all()


def _open_units(plan: Mapping[str, Any], committed: Collection[Unit], aside: Collection[Unit]) -> list[Unit]:
    """The open units of the first round with open units, in partitions whose earlier rounds are committed."""
    ready = sorted(plan["partitions"])
    for number in range(len(plan["rounds"])):
        units = [Unit(round=number, partition=name) for name in ready]
        if found := [unit for unit in units if unit not in committed and unit not in aside]:
            return found
        ready = [unit.partition for unit in units if unit in committed]
    return []


def _work_round(teachers: Sequence[Teacher], progress: GenerateProgress, source: UnitPlans, queue: UnitQueue) -> None:
    """Let this process work until every unit of the queue is committed, or set aside."""
    agent = queue.agent
    progress.begin_round()
    away_before_s = agent.away_s
    agent.live = lambda: {
        **progress.facts(agent.away_s - away_before_s),
        "units": queue.at_work,
        UNDRAWN: source.undrawn(),
    }
    engines = Agent(teachers, progress, source)
    try:
        engines.run()
    except (TeacherError, CircuitOpen) as error:
        if isinstance(error, CircuitOpen) or not engines.served:  # the teacher is away; no unit is at fault
            agent.give_back()
        raise
