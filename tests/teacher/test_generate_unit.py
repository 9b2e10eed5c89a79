"""A run in partitions over a store gives what a plain run on one machine gives."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import stub_server
from generate_world import World, asked_of
from store_worlds import dataset, lines_of, small_world

from distill.artifacts.files import file_sha256
from distill.data import reader
from distill.errors import StaleError
from distill.object_store.local_store import LocalStore
from distill.types import Progress, Sample
from distill.units.commits import Unit, committed_units, decompress
from distill.units.partitions import key_histogram, plan_partitions
from filters.apply import apply
from teacher.generate import generate
from teacher.generate_unit import collect_units, generate_unit


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.03) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    return small_world(tmp_path, url)


def partitions_of(world: World) -> dict[str, list[Sample]]:
    samples = list(reader.samples(world.recipe(), "questions", on_bad=lambda _: None))
    partitions = plan_partitions(key_histogram(samples), rows=8)
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(partitions.partition_of(sample), []).append(sample)
    assert len(found) > 2
    return found


def test_partitions_over_a_store_give_the_run_that_one_machine_gives(world: World, url: str, tmp_path: Path) -> None:
    recipe, store, shared = world.recipe(), LocalStore(tmp_path / "store"), tmp_path / "collected"
    for name, samples in partitions_of(world).items():
        generate_unit(recipe, samples, store, Unit(round=0, partition=name), tmp_path / name)
    asked = asked_of(url)
    assert asked == 90
    collect_units(store, committed_units(store), recipe, shared)
    manifest = generate(recipe, shared)
    assert asked_of(url) == asked, "everything is there: nothing is asked again"

    plain = world.generate()
    assert asked_of(url) == 2 * asked
    assert manifest.counts == plain.counts and manifest.tokens == plain.tokens
    assert manifest.fingerprint == plain.fingerprint
    plan, samples_file = "generate/plan.parquet", "generate/samples.parquet"
    assert file_sha256(shared / plan) == file_sha256(world.run / plan)
    assert file_sha256(shared / samples_file) == file_sha256(world.run / samples_file)
    assert lines_of(world, shared) == lines_of(world, world.run)
    for run in (shared, world.run):
        apply(recipe, run)
    assert dataset(shared) == dataset(world.run) != {}


class Killed(Exception):
    pass


def test_a_later_attempt_asks_only_for_what_an_interrupted_one_has_not_sealed(
    world: World, url: str, tmp_path: Path
) -> None:
    recipe, store, unit = world.recipe(), LocalStore(tmp_path / "store"), Unit(round=0, partition="00")
    samples = [sample for group in partitions_of(world).values() for sample in group]

    def interrupt(progress: Progress) -> None:
        if progress.done >= 10:
            raise Killed

    with pytest.raises(Killed):
        generate_unit(recipe, samples, store, unit, tmp_path / "first", on_progress=interrupt)
    segments = [found.key for found in store.list_objects(unit.folder) if "/segment-" in found.key]
    sealed = sum(decompress(store.read(key)).count(b"\n") for key in segments)
    assert sealed >= 10 and committed_units(store) == []
    with pytest.raises(StaleError, match="unit 0/00 is not finished"):
        collect_units(store, [unit], recipe, tmp_path / "run")

    before = asked_of(url)
    seen: list[int] = []
    commit = generate_unit(
        recipe, samples, store, unit, tmp_path / "second", on_progress=lambda progress: seen.append(progress.done)
    )
    assert seen[0] == sealed and asked_of(url) - before == 90 - sealed
    assert commit.counts == {"samples": 30, "stub": 90}
    assert [found.key for found in store.list_objects(unit.folder)] == [
        f"{unit.folder}/{commit.attempt}/stub/engine.json",
        f"{unit.folder}/{commit.attempt}/stub/traces.jsonl.zst",
    ]
    collect_units(store, [unit], recipe, tmp_path / "run")
    assert generate(recipe, tmp_path / "run").counts["traces"] == 90
    with pytest.raises(StaleError, match="holds traces"):
        collect_units(store, [unit], recipe, tmp_path / "run")


def test_finished_lines_are_sealed_while_a_unit_is_at_work(world: World, tmp_path: Path) -> None:
    recipe, store, unit = world.recipe(), LocalStore(tmp_path / "store"), Unit(round=0, partition="00")
    samples = [sample for group in partitions_of(world).values() for sample in group]
    sealed: list[int] = []
    put = store.put

    def watched_put(key: str, data: bytes) -> None:
        sealed.append("/segment-" in key)
        put(key, data)

    store.put = watched_put  # type: ignore[method-assign]
    generate_unit(recipe, samples, store, unit, tmp_path / "first", seal_s=0.001)
    assert sum(sealed) >= 1 and not sealed[-1]
    assert not [found for found in store.list_objects() if "/segment-" in found.key], "a finished unit needs none"
