"""Brings a run from its store to a folder of this machine; holds the folder in which a process works on a run.

plan/plan.json                     created once, last: settings, digest of the source, samples of each partition
plan/samples/<partition>.parquet   the samples of a partition
run/recipe.toml, run/generate/*    the run directory without its journals, which commits hold
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from distill.artifacts.files import atomic_path, locked, write_json
from distill.artifacts.layout import ENGINES, PLAN, PLAN_STATE, QUARANTINE, RECIPE, SAMPLES, part_path, part_paths
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.data import sample_files
from distill.errors import BusyError, DataError, StaleError
from distill.local_paths import leads_outside
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import files_in, scratch_root
from distill.recipe.recipe import Recipe
from distill.units.commits import Commit, Unit, decompress, read_commit, read_file
from distill.units.run_state import PLAN_KEY

PLAN_FILES = (SAMPLES, QUARANTINE, PLAN_STATE)
"""Files of `generate/` that are there before the first trace."""

_JOURNALS_AT_ONCE = 4
"""Units whose traces are read at the same time; those of one are in memory."""


def samples_key(partition: str) -> str:
    """The object with the samples of a partition."""
    return f"plan/samples/{partition}.parquet"


def engines_key(teacher: str) -> str:
    """The object with the engines that gave the traces of a teacher which were pushed from a folder."""
    return f"plan/engines/{teacher}.json"


def pull_samples(store: ObjectStore, partition: str, path: Path) -> int:
    """Write the samples of a partition to a file; their number. DataError where the object is missing or damaged."""
    key = samples_key(partition)
    try:
        write_object(path, store.read(key))
        return sample_files.count_samples(path)
    except (FileNotFoundError, pa.ArrowException) as error:
        raise DataError(
            f"{store.address}/{key}: the samples of this partition cannot be read ({error}); put the object back, or "
            "choose another --run"
        ) from None


def traces_file(teacher: str) -> str:
    """The file of a unit with the traces of a teacher."""
    return f"{teacher}/traces.jsonl.zst"


def generate_units(plan: Mapping[str, Any], partitions: Iterable[str] | None = None) -> list[Unit]:
    """The units in which the traces of some partitions are, or of the whole run: one for each round."""
    names = sorted(plan["partitions"] if partitions is None else partitions)
    return [Unit(round=number, partition=name) for number in range(len(plan["rounds"])) for name in names]


def finished_plan(store: ObjectStore) -> dict[str, Any]:
    """The plan of a run whose generate stage is finished. StaleError for any other."""
    try:
        store.read(f"run/generate/{MANIFEST}")
        plan: dict[str, Any] = orjson.loads(store.read(PLAN_KEY))
    except FileNotFoundError:
        raise StaleError(f"{store.address}: no finished run; run `distill generate` first") from None
    return plan


def pull_generate(store: ObjectStore, run: Path) -> Manifest:
    """Write the finished generate stage of a store to a run directory, in the place of any that is there.

    Raises StaleError where it is not finished.
    """
    plan = finished_plan(store)
    manifest = pull_finished_plan(store, run)
    collect_units(store, plan, run)
    return manifest


def pull_finished_plan(store: ObjectStore, run: Path) -> Manifest:
    """`pull_generate` without the traces."""
    write_object(run / RECIPE, store.read(f"run/{RECIPE}"))
    pull_plan(store, run)
    write_object(run / "generate" / PLAN, store.read(f"run/generate/{PLAN}"))
    manifest = pull_manifest(store, run)
    assert manifest is not None
    return manifest


def pull_manifest(store: ObjectStore, run: Path) -> Manifest | None:
    """The manifest of a generate stage, in a folder too; None while it is unfinished."""
    try:
        write_object(run / "generate" / MANIFEST, store.read(f"run/generate/{MANIFEST}"))
    except FileNotFoundError:
        return None
    return Manifest.read(run / "generate")


def pull_plan(store: ObjectStore, run: Path) -> None:
    """The list of questions of a run, in a folder without traces."""
    shutil.rmtree(run / "generate", ignore_errors=True)
    for name in PLAN_FILES:
        write_object(run / "generate" / name, store.read(f"run/generate/{name}"))


def collect_units(
    store: ObjectStore, plan: Mapping[str, Any], run: Path, units: Iterable[Unit] | None = None
) -> dict[Unit, Commit]:
    """Write the traces of committed units to a new run directory, one part a unit. Returns their commits.

    Without `units`, all units of the plan are collected. Raises StaleError for a unit that is open, and for a
    directory that holds traces.
    """
    engines: dict[str, dict[str, Any]] = {name: {} for each in plan["rounds"] for name in each["teachers"]}
    for name in engines:
        if part_paths(folder := run / "generate" / name, ".jsonl"):
            raise StaleError(f"{folder}: holds traces; collect the units of a store in a new run directory")
    journals = journals_of(plan, units)

    def collect(unit: Unit) -> tuple[Commit, dict[str, dict[str, Any]]]:
        commit, known = finished_commit(store, unit), {}
        for journal in journals[unit]:
            write_object(run / "generate" / journal.name, read_traces(store, unit, commit, journal.teacher))
            if (key := f"{journal.teacher}/{ENGINES}") in commit.files:
                known[journal.teacher] = orjson.loads(read_file(store, unit, commit, key))
        return commit, known

    commits: dict[Unit, Commit] = {}
    for unit, (commit, known) in zip(journals, thread_map(collect, journals, _JOURNALS_AT_ONCE), strict=True):
        commits[unit] = commit
        for name in known:
            engines[name] |= known[name]
    for name, known in engines.items():
        with suppress(FileNotFoundError):
            known |= orjson.loads(store.read(engines_key(name)))
        if known:
            write_json(run / "generate" / name / ENGINES, known)
    return commits


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJournal:
    """The traces of a teacher in a unit, and the journal that holds them in a folder."""

    unit: Unit
    teacher: str
    name: str
    """Below `generate/`."""


def journals_of(plan: Mapping[str, Any], units: Iterable[Unit] | None = None) -> dict[Unit, list[StoredJournal]]:
    """The journals that `collect_units` writes. DataError for a name of a teacher that leads out of the folder."""
    rounds = [each["teachers"] for each in plan["rounds"]]
    if outside := [name for teachers in rounds for name in teachers if leads_outside(name)]:
        raise DataError(f"{PLAN_KEY} names a teacher {outside[0]!r}, which is no name of a teacher")
    return {
        unit: [
            StoredJournal(unit=unit, teacher=name, name=part_path(Path(name), number, ".jsonl").as_posix())
            for name in rounds[unit.round]
        ]
        for number, unit in enumerate(generate_units(plan) if units is None else units)
    }


def pull_journals(store: ObjectStore, journals: Iterable[StoredJournal], run: Path) -> None:
    """Write journals from the store to a run directory."""

    def pull(journal: StoredJournal) -> None:
        commit = finished_commit(store, journal.unit)
        write_object(run / "generate" / journal.name, read_traces(store, journal.unit, commit, journal.teacher))

    list(thread_map(pull, journals, _JOURNALS_AT_ONCE))


def collected_journals(plan: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """For each partition the journals of `collect_units`, by their names when it collects this partition alone."""
    names: dict[str, dict[str, str]] = {partition: {} for partition in plan["partitions"]}
    for unit, journals in journals_of(plan).items():
        for journal in journals:
            alone = part_path(Path(journal.teacher), unit.round, ".jsonl")
            names[unit.partition][alone.as_posix()] = journal.name
    return names


def finished_commit(store: ObjectStore, unit: Unit) -> Commit:
    """The commit of a unit. StaleError while it is open."""
    commit = read_commit(store, unit)
    if commit is None:
        raise StaleError(f"{store.address}: unit {unit.name} is not finished; run `distill {unit.work}` again")
    return commit


def read_traces(store: ObjectStore, unit: Unit, commit: Commit, teacher: str) -> bytes:
    """The lines of a teacher's journal in a committed unit."""
    return decompress(read_file(store, unit, commit, traces_file(teacher)))


@contextmanager
def own_scratch(recipe: Recipe, address: str) -> Iterator[Path]:
    """A folder that one process of this machine holds while it works on a run in a store; nothing in it counts."""
    root = scratch_root(recipe)
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    for number in count():
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(root / f"{name}-{number}"))
            except BusyError:  # another process of this machine works on the same run
                continue
            stack.enter_context(files_in(root / f"{name}-{number}", recipe))
            yield root / f"{name}-{number}"
            return


def write_object(path: Path, data: bytes) -> None:
    """Write what an object holds to a file, atomically and with its folder."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
