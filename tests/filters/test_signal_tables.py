"""The files of signals of a run in a store are made by all agents, and the one that decides sorts no rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import stub_server
from worlds.generate_world import World
from worlds.store_worlds import address, copied, small_world

from distill.artifacts.files import describe
from distill.artifacts.manifest import Manifest
from distill.object_store.local_store import LocalStore
from distill.units.commits import Attempt
from distill.units.stored_run import pull_generate
from distill.units.stored_stage import pull_stage
from filters import signal_units, store_run
from filters.apply import apply
from filters.store_run import filter_in_store
from filters.tables import measure
from teacher.store_run import generate_in_store

pytestmark = pytest.mark.usefixtures("short_report")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.0) as url:
        yield url


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory, url: str) -> World:
    """A finished run of several partitions in a store; the filter of a folder has four files of signals."""
    world = small_world(tmp_path_factory.mktemp("generated"), url)
    world.head = (
        '[engine]\nscratch = "scratch"\nunit_rows = 8\nlease_s = 2.0\n[generate]\npatience_s = 2.0\n'
        "[filter]\npartition_rows = 24\n"
    )
    generate_in_store(world.recipe(), address(world), world.folder / "generated")
    return world


@pytest.fixture
def world(generated: World, tmp_path: Path) -> World:
    """The finished run, for one test."""
    return copied(generated, tmp_path)


def signals_of(run: Path) -> dict[str, str]:
    """Digests of the files of signals."""
    done = Manifest.read(run / "filter")
    assert done is not None
    names = [name for name in done.outputs if name.startswith("signals/")]
    assert len(names) == 4
    assert all(describe(run / "filter" / name, done.outputs[name].count) == done.outputs[name] for name in names)
    return {name: done.outputs[name].sha256 for name in names}


def assert_as_in_a_folder(world: World) -> None:
    store = LocalStore(world.folder / "store")
    pull_stage(store, "filter", world.folder / "pulled" / "filter")
    pull_generate(store, world.folder / "plain")
    apply(world.recipe(), world.folder / "plain")
    assert signals_of(world.folder / "pulled") == signals_of(world.folder / "plain")
    assert not store.list_objects("claims")


class Killed(Exception):
    pass


def stopped(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("piece_rows", [10, 24, 10_000])
def test_files_are_those_of_a_folder_with_more_pieces_than_files_and_with_fewer(
    world: World, monkeypatch: pytest.MonkeyPatch, piece_rows: int
) -> None:
    monkeypatch.setattr(signal_units, "_PIECE_ROWS", piece_rows)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert_as_in_a_folder(world)


def test_an_agent_that_decides_writes_no_file_of_signals(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store_run, "push_stage", stopped)
        with pytest.raises(Killed):
            filter_in_store(world.recipe(), address(world), world.folder / "first")
    with monkeypatch.context() as patch:
        patch.setattr(measure, "write_measured", stopped)
        patch.setattr(measure, "measure", stopped)
        filter_in_store(world.recipe(), address(world), world.folder / "second")
    assert_as_in_a_folder(world)


def test_files_that_a_killed_agent_has_not_committed_are_made_again_and_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    commit = Attempt.commit

    def noted(attempt: Attempt, counts: dict[str, int]) -> object:
        if attempt.unit.work.startswith("filter/tables"):
            if len(made) == 2:
                made.append("killed")
                raise Killed
            made.append(attempt.unit.partition)
        return commit(attempt, counts)

    monkeypatch.setattr(Attempt, "commit", noted)
    with pytest.raises(Killed):
        filter_in_store(world.recipe(), address(world), world.folder / "first")
    filter_in_store(world.recipe(), address(world), world.folder / "second")
    assert len(made) == 5 and len(set(made)) == 5
    assert_as_in_a_folder(world)


def test_a_result_that_was_deleted_is_made_again_from_the_committed_signals(world: World) -> None:
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    store = LocalStore(world.folder / "store")
    store.delete([stored.key for stored in store.list_objects("run/filter")])
    filter_in_store(world.recipe(), address(world), world.folder / "second")
    assert_as_in_a_folder(world)
