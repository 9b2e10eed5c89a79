"""`filter` of a run in an object store, by this process and any others that join it.

    filter/signals/<fingerprint>/*   attempts and commits: the signals of each partition, by what measures them
    filter/dataset/*                 the rows of the dataset, while agents write them (filters/stored_dataset.py)
    run/filter/*                     the finished stage

Each process is an agent: it claims a partition of the run, measures its traces and commits their signals. When all
are measured, one agent collects traces and signals in its scratch folder, where the filter of a run in a folder takes
the signals over and decides. Then all agents write the dataset. So a run in a store has the decisions and the dataset
of a run in a folder.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.integrity import traces_digest
from distill.artifacts.layout import PLACES, PLAN, RECIPE, SAMPLE_PARTS, SAMPLES, SIGNALS
from distill.artifacts.manifest import MANIFEST, Manifest, canonical, differences, fingerprint
from distill.data import sample_files
from distill.errors import StaleError
from distill.machine.child_process import available_cores
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import open_run_store
from distill.recipe.recipe import Recipe
from distill.types import Progress, ProgressCallback, unwatched
from distill.units import image_shards
from distill.units.agent_record import AgentRecord, joined
from distill.units.commits import Attempt, Commit, Unit, committed_units, read_file
from distill.units.run_state import SIGNAL_UNITS, traces_of
from distill.units.stored_run import (
    collected_journals,
    finished_commit,
    finished_plan,
    generate_units,
    pull_generate,
    pull_manifest,
    write_bytes,
)
from distill.units.stored_stage import pull_file, push_stage, stage_files
from distill.units.unit_queue import UnitQueue, remove_all_leftovers
from filters.apply import REMEDY, FilterInputs, apply, check, corpus_scheme, only_inputs_differ, read_inputs
from filters.run_signals import question_duplicates
from filters.signals.base import Extractor
from filters.stored_dataset import DatasetUnits, StoredDataset
from filters.tables import measure
from filters.tables.fork_server import count_planned
from filters.tables.id_columns import Ids, ids_of
from filters.tables.journal_pieces import Maker
from filters.tables.run_signal_tables import ModelSignal
from filters.tables.trace_index import PlannedTraces, UnitIndex, index_of_units, partition_count
from filters.tables.workers import Workers
from filters.unit_traces import SIGNALS_FILE, SamplePartitions, UnitTraces, read_table

_MAKERS, _HASHES = "makers.json", "image_hashes.jsonl"
_LOOK_S = 0.5
_TABLES_AT_ONCE = 4
"""Tables of signals that are read at the same time."""
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
    measured = {
        "by": measure.measured_by(inputs.extractors, corpus_scheme(recipe)),
        "traces": traces_digest(inputs.generated),
        "pictures": question_duplicates.identity(recipe.max_pixels) if _hashes_images(recipe) else None,
    }
    work = f"{SIGNAL_UNITS}/{fingerprint(measured)[:16]}"
    units = [Unit(round=0, partition=name, work=work) for name in sorted(plan["partitions"])]

    def find() -> Manifest | None:
        return _read_finished(store, inputs, scratch / "finished", fresh=fresh)

    def make(rows: DatasetUnits) -> Manifest:
        pull_generate(store, run)
        if measurers:
            planned = sample_files.read_samples(run / "generate" / SAMPLES)
            image_shards.fetch_shards(store, plan["attempt"], set(image_shards.stored_refs(planned)))
        folder = run / "filter"
        (folder / MANIFEST).unlink(missing_ok=True)
        commits = dict(zip(units, thread_map(lambda unit: finished_commit(store, unit), units), strict=True))
        samples_of: dict[str, Ids] = {}

        def tables() -> Iterator[pa.Table]:
            read = thread_map(
                lambda unit: read_table(store, unit, commits[unit], SIGNALS_FILE), units, _TABLES_AT_ONCE
            )
            for unit, table in zip(units, read, strict=True):
                samples_of[unit.partition] = np.unique(ids_of(table["sample_id"]))
                yield table

        if _hashes_images(recipe):
            hashes = question_duplicates.hashes_path(folder / "question", recipe.max_pixels)
            read = thread_map(lambda unit: read_file(store, unit, commits[unit], _HASHES), units)
            write_bytes(hashes, b"".join(read))

        def read_index(generate: Path, samples: Path, partition_rows: int, _: Workers) -> PlannedTraces:
            journals = collected_journals(plan)
            of_units = thread_map(
                lambda unit: _read_index(store, unit, commits[unit], journals[unit.partition]), units
            )
            return index_of_units(generate, samples, partition_rows, of_units, digests)

        partitions = partition_count(count_planned(run / "generate"), recipe.filter.partition_rows)
        scheme = corpus_scheme(recipe)
        digests = measure.write_measured(tables(), partitions, inputs.extractors, folder / SIGNALS, scheme)
        dataset = StoredDataset(units=rows, fields=inputs.fields, partitions=SamplePartitions(samples_of))
        manifest = apply(
            recipe, run, measurers=measurers, dataset=dataset, read_index=read_index, on_progress=on_progress
        )
        store.put(f"run/{RECIPE}", recipe.to_toml().encode())
        push_stage(store, "filter", folder, manifest.outputs)
        dataset.remove()
        remove_all_leftovers(store, commits, work)
        return manifest

    with joined(store, scratch, lease_s=recipe.engine.lease_s) as agent:
        if (finished := find()) is not None:
            return finished
        shutil.rmtree(scratch / "units", ignore_errors=True)
        (scratch / PLAN).unlink(missing_ok=True)
        traces = UnitTraces(recipe=recipe, store=store, plan=plan, scratch=scratch, signal_work=work)
        _measure_units(agent, traces, units, inputs.extractors, on_progress)
        rows = DatasetUnits(agent=agent, traces=traces)
        return agent.make_once("filter", find, lambda: make(replace(rows, leads=True)), rows.help)


def _read_finished(store: ObjectStore, inputs: FilterInputs, folder: Path, *, fresh: bool) -> Manifest | None:
    """The result of these settings, or None. StaleError for a stage of other settings, unless it may be replaced."""
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
    agent: AgentRecord,
    traces: UnitTraces,
    units: Sequence[Unit],
    extractors: tuple[Extractor, ...],
    on_progress: ProgressCallback,
) -> None:
    """Let this process measure until the signals of every unit are committed."""
    store, recipe, plan, started = agent.store, traces.recipe, traces.plan, time.monotonic()
    work = units[0].work if units else SIGNAL_UNITS
    done, own = set(committed_units(store, work)), 0

    def tell(unit: Unit) -> None:
        done.add(unit)
        count = traces_of(plan, generate_units(plan, (each.partition for each in done)))
        on_progress(Progress(stage="filter: signals", done=count, total=plan["traces"], unit="traces"))

    queue = UnitQueue(agent, set(units) - done, tell, work, retries=recipe.engine.retries)
    agent.live = lambda: {"traces": own, "seconds": time.monotonic() - started, "units": queue.at_work}
    with Workers(recipe.filter.workers or available_cores()) as workers:
        while not queue.ended:
            unit = queue.draw()
            if unit is None:
                time.sleep(_LOOK_S)
                continue
            own += _measure_unit(traces, Attempt(store=store, unit=unit), extractors, workers)
            queue.done(unit)
            tell(unit)
    queue.require_all()


def _measure_unit(traces: UnitTraces, attempt: Attempt, extractors: tuple[Extractor, ...], workers: Workers) -> int:
    """Measure the traces of a unit, and commit. Returns their number."""
    recipe = traces.recipe
    images = _hashes_images(recipe) or bool(_LOOKING & {extractor.name for extractor in extractors})
    cores = recipe.filter.workers or available_cores()
    with traces.opened(attempt.unit.partition, images=images, workers=workers) as (folder, index):
        files = measure.measure(
            index,
            extractors,
            folder / SIGNALS,
            scheme=corpus_scheme(recipe),
            workers=workers,
            readers=cores,
        )
        if _hashes_images(recipe):
            partitions = range(len(index.digests))
            samples, hashes = folder / SAMPLE_PARTS, folder / "question"
            limits = {"max_pixels": recipe.max_pixels, "workers": cores}
            attempt.put_file(_HASHES, question_duplicates.hash_images(samples, partitions, hashes, **limits))
        table = pa.concat_tables([pq.read_table(file).replace_schema_metadata(None) for file in files])
        attempt.put_file(PLACES, folder / SAMPLE_PARTS / PLACES)
        attempt.put_file(_MAKERS, canonical([[asdict(maker), count] for maker, count in index.makers.items()]))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    attempt.put_file(SIGNALS_FILE, bytes(sink.getvalue()), count=len(table))
    attempt.commit({"traces": len(table)})
    return len(table)


def _hashes_images(recipe: Recipe) -> bool:
    """Whether the images of all questions are compared."""
    return "question" in recipe.filter.signals


def _read_index(store: ObjectStore, unit: Unit, commit: Commit, journals: Mapping[str, str]) -> UnitIndex:
    """The journals of a unit, as the agent that measured it read them."""
    makers = orjson.loads(read_file(store, unit, commit, _MAKERS))
    return UnitIndex(
        places=read_table(store, unit, commit, PLACES),
        journals=journals,
        makers={Maker(**maker): count for maker, count in makers},
    )
