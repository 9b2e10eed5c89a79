"""`filter` of a run in an object store, by this process and any others that join it.

    filter/signals/<fingerprint>/*   attempts and commits: the signals of each partition, by what measures them
    run/filter/*                     the finished stage

Each process is an agent: it claims a partition of the run, measures its traces and commits their signals. When all
are measured, one agent collects traces and signals in its scratch folder, where the filter of a run in a folder takes
the signals over and does the rest. So a run in a store has the decisions and the dataset of a run in a folder.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.artifacts.layout import PLAN, RECIPE, SAMPLE_PARTS, SAMPLES, SIGNALS
from distill.artifacts.manifest import MANIFEST, Manifest, differences, fingerprint
from distill.data import sample_files
from distill.data.images import stored_images
from distill.errors import StaleError
from distill.machine.child_process import available_cores
from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import open_run_store
from distill.recipe.recipe import Recipe
from distill.types import Progress, ProgressCallback, unwatched
from distill.units import image_shards
from distill.units.agent_record import AgentRecord, joined
from distill.units.commits import Attempt, Unit, committed_units, read_file
from distill.units.run_state import SIGNAL_UNITS, traces_of
from distill.units.stored_run import (
    collect_units,
    finished_commit,
    finished_plan,
    generate_units,
    pull_generate,
    pull_manifest,
    samples_key,
    write_bytes,
)
from distill.units.stored_stage import pull_file, push_stage, stage_files
from distill.units.unit_queue import UnitQueue, remove_all_leftovers
from filters.apply import REMEDY, FilterInputs, apply, check, corpus_scheme, only_inputs_differ, read_inputs
from filters.signals.base import Extractor
from filters.tables import measure
from filters.tables.fork_server import count_planned
from filters.tables.run_signal_tables import ModelSignal
from filters.tables.trace_index import index, partition_count
from filters.tables.workers import Workers

_TABLE = "signals.parquet"
_LOOK_S = 0.5
_LOOKING = frozenset({"contamination", "ocr"})
"""Families of signals that look at images."""


def filter_in_store(
    recipe: Recipe,
    address: str,
    scratch: Path,
    *,
    fresh: bool = False,
    measurers: Mapping[str, ModelSignal] | None = None,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Filter a run that lies in a store. Joins or resumes; a finished stage of the same settings is returned.

    `scratch` is a folder that this process holds; `scratch / "run"` becomes the run directory of `measurers`. `fresh`
    replaces a result of other settings. Raises what `apply` raises, and StorageError for a store that cannot hold a
    run.
    """
    measurers = measurers or {}
    check(recipe, measurers)
    store, run = open_run_store(recipe, address), scratch / "run"
    plan = finished_plan(store)
    pull_manifest(store, run)
    inputs = read_inputs(recipe, run, measurers)
    work = f"{SIGNAL_UNITS}/{measure.measured_by(inputs.extractors, corpus_scheme(recipe))[:16]}"
    units = [Unit(round=0, partition=name, work=work) for name in sorted(plan["partitions"])]

    def find() -> Manifest | None:
        return _read_finished(store, inputs, scratch / "finished", fresh=fresh)

    def make() -> Manifest:
        pull_generate(store, run)
        planned = sample_files.read_samples(run / "generate" / SAMPLES)
        image_shards.fetch_shards(store, plan["attempt"], set(image_shards.stored_refs(planned)))
        folder = run / "filter"
        (folder / MANIFEST).unlink(missing_ok=True)
        partitions = partition_count(count_planned(run / "generate"), recipe.filter.partition_rows)
        commits = {unit: finished_commit(store, unit) for unit in units}
        tables = (
            pq.read_table(pa.BufferReader(read_file(store, unit, commit, _TABLE))) for unit, commit in commits.items()
        )
        measure.take_over(tables, partitions, inputs.extractors, folder / SIGNALS, corpus_scheme(recipe))
        manifest = apply(recipe, run, measurers=measurers, on_progress=on_progress)
        store.put(f"run/{RECIPE}", recipe.to_toml().encode())
        push_stage(store, "filter", folder)
        remove_all_leftovers(store, commits, work)
        return manifest

    with joined(store, scratch, lease_s=recipe.engine.lease_s) as agent:
        if (finished := find()) is not None:
            return finished
        _measure_units(recipe, agent, plan, units, inputs.extractors, scratch, on_progress)
        return agent.make_once("filter", find, make)


def _read_finished(store: ObjectStore, inputs: FilterInputs, folder: Path, *, fresh: bool) -> Manifest | None:
    """The result of these settings, or None. StaleError for one of other settings, unless it may be replaced."""
    files = stage_files(store, "filter")
    if MANIFEST not in files:
        return None
    pull_file(store, "filter", files[MANIFEST], folder / MANIFEST)
    done = Manifest.read(folder)
    assert done is not None
    if done.fingerprint == fingerprint(inputs.fields):
        return done if inputs.packed(done) else None
    if fresh or only_inputs_differ(done, inputs.fields):
        return None
    changes = differences(done.fields, inputs.fields)
    raise StaleError(f"{store.address}: filter was made from other settings:\n{changes}\n{REMEDY}")


def _measure_units(
    recipe: Recipe,
    agent: AgentRecord,
    plan: Mapping[str, Any],
    units: Sequence[Unit],
    extractors: tuple[Extractor, ...],
    scratch: Path,
    on_progress: ProgressCallback,
) -> None:
    """Let this process measure until the signals of every unit are committed."""
    store, started, work = agent.store, time.monotonic(), units[0].work if units else SIGNAL_UNITS
    done, own = set(committed_units(store, work)), 0

    def tell(unit: Unit) -> None:
        done.add(unit)
        count = traces_of(plan, generate_units(plan, (each.partition for each in done)))
        on_progress(Progress(stage="filter: signals", done=count, total=plan["traces"], unit="traces"))

    queue = UnitQueue(agent, set(units) - done, tell, work, retries=recipe.engine.retries)
    agent.live = lambda: {"traces": own, "seconds": time.monotonic() - started, "units": queue.at_work}
    shutil.rmtree(scratch / "units", ignore_errors=True)
    if not queue.ended:
        write_bytes(scratch / PLAN, store.read(f"run/generate/{PLAN}"))
    with Workers(recipe.filter.workers or available_cores()) as workers:
        while not queue.ended:
            unit = queue.draw()
            if unit is None:
                time.sleep(_LOOK_S)
                continue
            own += _measure_unit(recipe, Attempt(store=store, unit=unit), plan, extractors, scratch, workers)
            queue.done(unit)
            tell(unit)
    queue.require_all()


def _measure_unit(
    recipe: Recipe,
    attempt: Attempt,
    plan: Mapping[str, Any],
    extractors: tuple[Extractor, ...],
    scratch: Path,
    workers: Workers,
) -> int:
    """Measure the traces of a unit, and commit. Returns their number."""
    store, folder = attempt.store, scratch / "units" / attempt.name
    partition = attempt.unit.partition
    collect_units(store, plan, folder, generate_units(plan, [partition]))
    write_bytes(folder / "generate" / SAMPLES, store.read(samples_key(partition)))
    _write_plan(scratch / PLAN, folder / "generate")
    images: set[str] = set()
    if _LOOKING & {extractor.name for extractor in extractors}:
        images |= image_shards.stored_refs(sample_files.read_samples(folder / "generate" / SAMPLES)).keys()
        image_shards.fetch_shards(store, plan["attempt"], images, partition)
    traces = index(folder / "generate", folder / SAMPLE_PARTS, recipe.filter.partition_rows, workers)
    files = measure.measure(
        traces,
        extractors,
        folder / SIGNALS,
        scheme=corpus_scheme(recipe),
        workers=workers,
        readers=recipe.filter.workers or available_cores(),
    )
    table = pa.concat_tables([pq.read_table(file).replace_schema_metadata(None) for file in files])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    attempt.put_file(_TABLE, bytes(sink.getvalue()), count=len(table))
    attempt.commit({"traces": len(table)})
    stored_images.forget(images)
    shutil.rmtree(folder)
    return len(table)


def _write_plan(plan: Path, generate: Path) -> None:
    """The plan of a unit: the rows of the run's plan for its samples."""
    samples = pq.read_table(generate / SAMPLES, columns=["id"])["id"]
    pq.write_table(pq.read_table(plan, filters=pc.field("sample_id").isin(samples)), generate / PLAN)
