"""Begins a run in an object store with the traces that a run in a folder has, so that none is paid for twice.

The traces that the plan of the store asks for are sealed in its units, like the traces of a killed agent. So each
agent that opens a unit begins with them. Errors are left out, so they are asked again. Nothing is asked here.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import orjson

from distill.artifacts.files import locked
from distill.artifacts.layout import ENGINES, SAMPLES
from distill.artifacts.manifest import canonical
from distill.data import sample_files
from distill.errors import StaleError
from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import open_run_store
from distill.recipe.recipe import Recipe
from distill.types import ProgressCallback, unwatched
from distill.units.agent_record import joined
from distill.units.commits import Attempt, Unit, committed_units
from distill.units.stored_run import engines_key, pull_manifest, pull_plan, pull_samples
from teacher.engines.provenance import read_engines
from teacher.progress import announce
from teacher.store import question_plan
from teacher.store.renamed_teachers import copy_traces_of_renamed_teachers
from teacher.store.trace_journal import read_index, trace_parts
from teacher.store_run import make_plan
from teacher.unit_journals import seal_missing


def push_traces(
    recipe: Recipe, run: Path, address: str, scratch: Path, *, on_progress: ProgressCallback = unwatched
) -> dict[str, int]:
    """Seal the finished traces of `run` in the units of the run at `address`; how many there are of each teacher.

    A new run is begun with all questions of the recipe. The caller holds the lock of `scratch`. Raises StaleError for
    a run without traces, and for one in the store that is finished or was begun with other settings.
    """
    if not (run / "generate" / SAMPLES).is_file():
        raise StaleError(f"{run}: no traces; distill generate writes them")
    models = question_plan.check_teachers(recipe)
    store = open_run_store(recipe, address)
    copied = scratch / "run"
    if pull_manifest(store, copied) is not None:
        raise StaleError(f"{store.address}: its traces are finished; push into another ADDRESS")
    fields = question_plan.result_settings(recipe, models)
    with locked(run), joined(store, scratch, lease_s=recipe.engine.lease_s) as agent:
        stored = make_plan(recipe, agent, copied / "generate", fields, None, on_progress)
        announce(on_progress, "copying traces")
        pull_plan(store, copied)
        plan = question_plan.read_plan(copied / "generate")
        indexes = {each.name: read_index(plan.folder / each.name, each) for each in recipe.teachers}
        list(copy_traces_of_renamed_teachers(recipe, models, plan, run / "generate", indexes, checked=None))
        counts = {}
        for number, names in enumerate(each["teachers"] for each in stored["rounds"]):
            for name in names:
                units = [Unit(round=number, partition=partition) for partition in stored["partitions"]]
                counts[name] = _seal(store, plan.folder / name, units, scratch)
                _put_engines(store, run / "generate" / name, name)
    return counts


def _seal(store: ObjectStore, folder: Path, units: list[Unit], scratch: Path) -> int:
    """Seal the lines of a teacher's folder in the units that hold their samples; how many lines there are."""
    lines_of: Mapping[str, list[bytes]] = defaultdict(list)
    for part in trace_parts(folder):
        for line in part.read_bytes().splitlines(keepends=True):
            lines_of[orjson.loads(line)["sample_id"]].append(line)
    done = set(committed_units(store))
    for unit in units if lines_of else ():
        if unit in done:
            continue
        pull_samples(store, unit.partition, scratch / SAMPLES)
        samples = sample_files.read_samples(scratch / SAMPLES)
        lines = (line for sample in samples for line in lines_of.get(sample.id, ()))
        seal_missing(Attempt(store=store, unit=unit), folder.name, lines)
    return sum(map(len, lines_of.values()))


def _put_engines(store: ObjectStore, folder: Path, teacher: str) -> None:
    """Keep what is known of the engines that gave these traces."""
    if not (folder / ENGINES).is_file():
        return
    known = read_engines(folder)
    with suppress(FileNotFoundError):
        known = orjson.loads(store.read(engines_key(teacher))) | known
    store.put(engines_key(teacher), canonical(known))
