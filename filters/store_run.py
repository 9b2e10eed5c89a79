"""`filter` of a run in an object store, by this process and any others that join it.

    filter/signals/<fingerprint>/*   the signals of each partition (filters/signal_units.py)
    filter/tables/<fingerprint>/*    the files of signals (filters/signal_tables.py)
    filter/keys/<fingerprint>/*      texts that may be near duplicates (filters/key_units.py)
    filter/decisions/<fingerprint>/* what is selected of each file of signals (filters/decision_units.py)
    filter/dataset/*                 the rows of the dataset, while agents write them (filters/stored_dataset.py)
    run/filter/*                     the finished stage

Each process is an agent: it claims a partition of the run, measures its traces and commits their signals. When all
are measured, all agents write the files of signals, decide on each where the policy allows it, and look for texts
that may be near duplicates. Then one agent collects these in its scratch folder, where the filter of a run in a
folder decides, and all agents write the dataset. So a run in a store has the decisions and the dataset of a run in a
folder.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from distill.artifacts.layout import RECIPE, SAMPLE_PARTS, SAMPLES, SIGNALS
from distill.artifacts.manifest import MANIFEST, Manifest, differences, fingerprint
from distill.data import sample_files
from distill.errors import StaleError
from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import open_run_store
from distill.recipe.recipe import Recipe
from distill.types import ProgressCallback, unwatched
from distill.units import image_shards
from distill.units.agent_record import joined, named_by_address
from distill.units.stored_run import finished_plan, pull_finished_plan, pull_manifest, write_object
from distill.units.stored_stage import pull_file, push_stage, stage_files
from filters.apply import REMEDY, FilterInputs, MeasuredElsewhere, apply, check, only_inputs_differ, read_inputs
from filters.dataset_units import DatasetUnits
from filters.decision_units import DecisionUnits
from filters.key_units import KeyUnits
from filters.placed_rows import TracePartitions
from filters.run_signals import question_duplicates
from filters.signal_tables import SignalTables
from filters.signal_units import SignalUnits
from filters.stored_dataset import StoredDataset
from filters.tables.run_signal_tables import ModelSignal
from filters.tables.unit_index import index_of_units
from filters.unit_rounds import remove_leftovers_of
from filters.unit_traces import UnitTraces


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
    rules = check(recipe, measurers)
    store, run = open_run_store(recipe, address), scratch / "run"
    plan = finished_plan(store)
    pull_manifest(store, run)
    inputs = read_inputs(recipe, run, measurers)
    traces = UnitTraces(recipe=recipe, store=store, plan=plan, scratch=scratch)
    signals = SignalUnits(traces=traces, inputs=inputs)
    tables = SignalTables(signals=signals)
    keys, decisions = KeyUnits(tables=tables), DecisionUnits(tables=tables, rules=rules)

    def find() -> Manifest | None:
        return _read_finished(store, inputs, scratch / "finished", fresh=fresh)

    def make(rows: DatasetUnits) -> Manifest:
        begun = rows.begin(inputs.fields, decisions.read())
        pull_finished_plan(store, run)
        if measurers:
            planned = sample_files.read_samples(run / "generate" / SAMPLES)
            image_shards.fetch_shards(store, plan["attempt"], set(image_shards.stored_refs(planned)))
        folder, units = run / "filter", signals.units
        (folder / MANIFEST).unlink(missing_ok=True)
        if signals.have_hashes:
            hashes = question_duplicates.hashes_path(folder / "question", recipe.max_pixels)
            write_object(hashes, signals.read_hashes())
        shutil.rmtree(folder / SIGNALS, ignore_errors=True)
        outputs, contents = tables.pull(folder / SIGNALS)
        index, numbers = index_of_units(
            run / "generate", folder / SAMPLE_PARTS, signals.journals, signals.read_indexes(), contents
        )
        index.bring_journals = partial(signals.bring_journals, run / "generate")
        signals.bring_copies(index, numbers, scratch / "copies.jsonl")
        partitions = TracePartitions([unit.partition for unit in units], index, numbers)
        manifest = apply(
            recipe,
            run,
            measurers=measurers,
            dataset=StoredDataset(units=rows, fields=inputs.fields, partitions=partitions, begun=begun),
            measured=MeasuredElsewhere(
                index=index,
                signals=outputs,
                shared=keys.read(),
                write_decisions=decisions.write_decisions if decisions.units else None,
            ),
            on_progress=on_progress,
        )
        store.put(f"run/{RECIPE}", recipe.to_toml().encode())
        push_stage(store, "filter", folder, manifest.outputs)
        rows.remove()
        for each in (signals, tables, keys, decisions):
            remove_leftovers_of(store, each.units)
        return manifest

    with joined(store, scratch, lease_s=recipe.engine.lease_s) as agent, named_by_address(run, store.address):
        if (finished := find()) is not None:
            return finished
        traces.forget()
        signals.measure(agent, on_progress)
        tables.write(agent)
        decisions.decide(agent)
        keys.find(agent)
        rows = DatasetUnits(agent=agent, signals=signals)
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
    raise StaleError(f"{store.address}: filter was made from other settings:\n{changes}", REMEDY)
