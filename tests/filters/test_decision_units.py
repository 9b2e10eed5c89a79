"""All agents decide file by file where a policy allows it; any policy selects what it selects in a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import stub_server
from worlds.generate_world import World
from worlds.store_worlds import assert_filtered_as_in_a_folder, copied, small_world

from distill.errors import DataError, RecipeError
from distill.object_store.local_store import LocalStore
from distill.units.run_state import DATASET_STEP
from filters import dataset_units, placed_rows, store_run
from filters.dataset import writer
from filters.decision_units import DECISION_UNITS, DecisionUnits
from filters.store_run import filter_in_store
from teacher.store_run import generate_in_store

BY_FILE = (
    "",  # without rules: test_an_agent_that_takes_over_decides_on_no_file_again
    'rules = [{ name = "second", drop = "k = 1" }]\nselect = { per_question = 1, order = ["-k"] }',
    'rules = []\nsignals = ["length", "format"]',
)
ON_ALL = (
    "select = { limit = 20 }",
    'select = { curriculum = ["-k"] }',
    'select = { weight = "1.0 + k" }',
    'select = { per_question = 1, order = ["corpus_duplicate", "k"] }',
    'rules = [{ name = "copied", drop = "corpus_duplicate" }]',
    '[[filter.select.mix]]\nby = "k"\nshares = { 0 = 0.5, 1 = 0.25 }',
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.0) as url:
        yield url


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory, url: str) -> World:
    """A finished run of several partitions in a store, never written to."""
    world = small_world(tmp_path_factory.mktemp("generated"), url)
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 8\nlease_s = 2.0\n[generate]\npatience_s = 2.0'
    generate_in_store(world.recipe(), address(world), world.folder / "generated")
    return world


@pytest.fixture
def world(tmp_path: Path, generated: World) -> World:
    return copied(generated, tmp_path)


def address(world: World) -> str:
    return f"file://{world.folder / 'store'}"


def set_policy(world: World, policy: str) -> None:
    world.head += f"\n[filter]\npartition_rows = 12\n{policy}"


@pytest.mark.usefixtures("short_report")
@pytest.mark.parametrize("policy", [*BY_FILE, *ON_ALL])
def test_any_policy_selects_what_it_selects_in_a_folder(
    world: World, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    for module in (writer, placed_rows, dataset_units):
        monkeypatch.setattr(module, "dataset_file_rows", lambda rows: 7)
    set_policy(world, policy)
    store, begun, index = LocalStore(world.folder / "store"), list[bool](), store_run.index_of_units

    def noted(*arguments: Any) -> Any:
        begun.append(any(stored.key == DATASET_STEP for stored in store.list_objects("filter/dataset")))
        return index(*arguments)

    monkeypatch.setattr(store_run, "index_of_units", noted)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert begun == [policy in BY_FILE], "rows are begun before the traces are known"
    assert bool(store.list_objects(DECISION_UNITS)) == (policy in BY_FILE)
    found = assert_filtered_as_in_a_folder(world)
    assert len([name for name in found.outputs if name.startswith("dataset/train/")]) > 1


@pytest.mark.usefixtures("short_report")
def test_an_agent_that_takes_over_decides_on_no_file_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    set_policy(world, "rules = []")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(dataset_units.DatasetUnits, "begin", stopped)
        filter_in_store(world.recipe(), address(world), world.folder / "first")
    monkeypatch.setattr(DecisionUnits, "_commit", stopped)
    filter_in_store(world.recipe(), address(world), world.folder / "second")
    assert_filtered_as_in_a_folder(world)


def test_nothing_selected_and_a_faulty_rule_end_as_in_a_folder(world: World) -> None:
    head = world.head
    set_policy(world, 'rules = [{ name = "all", drop = "true" }]')
    with pytest.raises(DataError, match="no trace of 90 is kept"):
        filter_in_store(world.recipe(), address(world), world.folder / "first")
    world.head = head
    set_policy(world, 'rules = [{ name = "bad", drop = "CAST(teacher AS INTEGER) > 1" }]')
    with pytest.raises(RecipeError, match="CAST"):
        filter_in_store(world.recipe(), address(world), world.folder / "first")
