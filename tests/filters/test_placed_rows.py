"""Numbers name the rows of a dataset in a store; the rows are those of a run in a folder, in any order."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from servers import stub_server
from worlds.generate_world import World
from worlds.store_worlds import address, assert_filtered_as_in_a_folder, small_world

from filters import placed_rows, signal_units, unit_traces
from filters.dataset import writer
from filters.store_run import filter_in_store
from filters.tables.id_columns import order_of
from filters.unit_traces import UnitTraces
from teacher.store_run import generate_in_store

pytestmark = pytest.mark.usefixtures("short_report")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.0) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    """A finished run of several partitions in a store."""
    world = small_world(tmp_path, url)
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 8\nlease_s = 2.0\n[generate]\npatience_s = 2.0\n'
    generate_in_store(world.recipe(), address(world), tmp_path / "generated")
    return world


@pytest.mark.parametrize(
    "settings",
    [
        '[filter.select]\ncurriculum = ["-rationale_tokens", "k"]\nweight = "k + 0.5"\n',
        '[filter.select]\nweight = "k + 0.5"\nper_question = 2\n',
        '[filter]\nsignals = ["answer", "length", "question", "corpus"]\n',
    ],
    ids=["an order and weights", "weights", "signals of questions"],
)
def test_rows_have_the_order_the_weights_and_the_signals_of_a_run_in_a_folder(
    world: World, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.head += settings
    for module in (writer, placed_rows):
        monkeypatch.setattr(module, "dataset_file_rows", lambda rows: 13)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert_filtered_as_in_a_folder(world)


def test_the_agent_that_decides_fetches_no_journal_for_checks_and_pages(world: World) -> None:
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert not list((world.folder / "first/run/generate").rglob("part-*.jsonl"))
    assert_filtered_as_in_a_folder(world)


def test_journals_of_traces_that_were_not_copied_are_fetched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_units, "_FIRST_TRACES", 20)
    monkeypatch.setattr(signal_units, "_FIRST_SAMPLES", 3)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert list((world.folder / "first/run/generate").rglob("part-*.jsonl"))
    assert_filtered_as_in_a_folder(world)


def test_the_plan_of_the_run_is_read_once_for_all_partitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    sort = UnitTraces._sort_plan

    def noted(self: UnitTraces) -> None:
        read.append(self.scratch)
        sort(self)

    monkeypatch.setattr(unit_traces.UnitTraces, "_sort_plan", noted)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert read == [world.folder / "first"]
    filter_in_store(world.recipe(), address(world), world.folder / "first", fresh=True)


def test_ids_are_in_the_order_of_their_texts_and_equal_ones_stay_in_their_order() -> None:
    chosen = np.random.default_rng(1)
    some = chosen.integers(0, 256, (300, 16), np.uint8)
    some[100:200, :8] = some[7, :8]  # the same head
    some[200:250] = some[:50]
    for ids in (some.view("S16").ravel(), some[:0].view("S16").ravel(), np.array([b"b", b"a"])):
        assert order_of(ids).tolist() == np.argsort(ids, kind="stable").tolist()
