"""The dataset of a run in a store is written by all of its agents, and is that of a run in a folder."""

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson
import pytest
from servers import stub_server
from typer.testing import CliRunner
from worlds.generate_world import World
from worlds.store_worlds import address, assert_filtered_as_in_a_folder, copied, small_world

from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.data.images import image_files
from distill.errors import DataError, ImageError
from distill.object_store.local_store import LocalStore
from distill.types import ImageRef, Sample
from distill.units import stored_stage
from distill.units.agent_record import AgentRecord, joined
from distill.units.commits import Attempt
from distill.units.run_state import read_run_state
from distill.units.stored_run import finished_plan, pull_manifest
from filters import dataset_units, placed_rows, store_run, stored_dataset
from filters.apply import read_inputs
from filters.dataset import writer
from filters.dataset_units import DatasetUnits
from filters.matching import image_match
from filters.signal_units import SignalUnits
from filters.store_run import filter_in_store
from filters.unit_traces import UnitTraces
from teacher.store_run import generate_in_store


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.0) as url:
        yield url


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory, url: str) -> World:
    """A finished run of several partitions in a store, never written to."""
    return generated_world(tmp_path_factory.mktemp("generated"), url)


def generated_world(folder: Path, url: str) -> World:
    world = small_world(folder, url)
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 8\nlease_s = 2.0\n[generate]\npatience_s = 2.0'
    generate_in_store(world.recipe(), address(world), folder / "generated")
    return world


@pytest.fixture
def world(generated: World, tmp_path: Path) -> World:
    """The finished run, for one test."""
    return copied(generated, tmp_path)


def store_of(world: World) -> LocalStore:
    return LocalStore(world.folder / "store")


def assert_as_in_a_folder(world: World) -> Manifest:
    """The stage in the store has the files of a run in a folder, and nothing is left of the work on them."""
    store, found = store_of(world), assert_filtered_as_in_a_folder(world)
    assert not store.list_objects("filter/dataset") and not store.list_objects("claims")
    return found


def committed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The units of a dataset that attempts commit from now on, each with its round and its thread."""
    units: list[tuple[str, str]] = []
    commit = Attempt.commit

    def noted(attempt: Attempt, counts: dict[str, int]) -> object:
        if attempt.unit.work.startswith("filter/dataset"):
            units.append((attempt.unit.name, threading.current_thread().name))
        return commit(attempt, counts)

    monkeypatch.setattr(Attempt, "commit", noted)
    return units


def test_rows_of_many_partitions_come_into_files_of_several_row_groups(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_GROUP_ROWS", 7)
    for module in (writer, placed_rows, dataset_units):
        monkeypatch.setattr(module, "dataset_file_rows", lambda rows: 20)
    monkeypatch.setattr(dataset_units, "_BATCH", 2)
    units = committed(monkeypatch)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    found = assert_as_in_a_folder(world)
    names = [name for name, _ in units]
    assert len([name for name in names if name.startswith("0/")]) > 2, "partitions"
    files = [name for name in names if name.startswith("1/")]
    assert len(files) == len([name for name in found.outputs if name.startswith("dataset/train/")]) > 3


def test_files_that_are_very_large_are_cut_as_in_a_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_GROUP_BYTES", 2000)
    monkeypatch.setattr(writer, "_FILE_BYTES", 8000)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    found = assert_as_in_a_folder(world)
    assert len([name for name in found.outputs if name.startswith("dataset/train/")]) > 1


def test_an_agent_that_waits_helps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent that leads makes no row as long as the other one has not made some."""
    units = committed(monkeypatch)
    start, work = stored_dataset.StoredDataset.start, DatasetUnits.work

    def leads(self: object, *arguments: object) -> object:
        threading.current_thread().name = "leader"
        return start(self, *arguments)  # type: ignore[arg-type]

    def waits(self: DatasetUnits, *arguments: object) -> None:
        deadline = time.monotonic() + 60
        while threading.current_thread().name == "leader" and not units and time.monotonic() < deadline:
            time.sleep(0.01)
        work(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stored_dataset.StoredDataset, "start", leads)
    monkeypatch.setattr(DatasetUnits, "work", waits)
    agents = [
        threading.Thread(target=filter_in_store, args=(world.recipe(), address(world), world.folder / name))
        for name in ("first", "second")
    ]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join(120)
    threads = {thread for _, thread in units}
    assert threads - {"leader"}, "the other one has made rows"
    assert len(units) == len({name for name, _ in units}), "each unit is made once"
    assert_as_in_a_folder(world)


class Killed(Exception):
    pass


def stopped(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("number", [0, 1])
def test_an_agent_that_takes_over_makes_no_committed_unit_again(
    world: World, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    units = committed(monkeypatch)

    with monkeypatch.context() as patch:
        patch.setattr(*((DatasetUnits, "_make_files") if number == 0 else (store_run, "push_stage")), stopped)
        with pytest.raises(Killed):
            filter_in_store(world.recipe(), address(world), world.folder / "first")
    before = {name for name, _ in units}
    assert before and store_of(world).list_objects("filter/dataset")
    assert read_run_state(store_of(world)).written == (number, 1), "files that are committed, and all"
    told = CliRunner().invoke(app, ["status", address(world), "--recipe", str(world.recipe().path)]).output
    assert f"filter: dataset, {number} of 1 unit" in told
    units.clear()
    filter_in_store(world.recipe(), address(world), world.folder / "second")
    assert not before & {name for name, _ in units}
    assert_as_in_a_folder(world)


def test_questions_whose_images_cannot_be_read_are_dropped_and_the_rest_is_selected_again(
    tmp_path: Path, url: str
) -> None:
    world = generated_world(tmp_path, url)  # a copy of a run has its images where they were
    (world.folder / "1.png").write_bytes(b"no image")
    done = filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert done.counts["rule.unreadable_image"] > 0 < done.counts["selected"]
    assert_as_in_a_folder(world)


def test_a_machine_without_the_images_ends_and_drops_no_question(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the one that leads can read them."""
    world.head += "\n[filter]\nworkers = 1"
    units, found = committed(monkeypatch), list[BaseException]()
    start, read = stored_dataset.StoredDataset.start, image_files.read_bytes

    def leads(self: stored_dataset.StoredDataset, task: writer.DatasetTask) -> object:
        writing = start(self, task)
        helper = threading.Thread(target=helps)
        helper.start()
        helper.join(60)
        threading.current_thread().name = "leader"
        return writing

    def helps() -> None:
        try:
            filter_in_store(world.recipe(), address(world), world.folder / "helper")
        except DataError as error:
            found.append(error)

    def read_here(ref: ImageRef) -> bytes:
        if threading.current_thread().name != "leader":
            raise ImageError("missing_image", ref.path)
        return read(ref)

    monkeypatch.setattr(stored_dataset.StoredDataset, "start", leads)
    monkeypatch.setattr(image_files, "read_bytes", read_here)
    done = filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert ["on this machine" in str(error) for error in found] == [True]
    assert "rule.unreadable_image" not in done.counts and {thread for _, thread in units} == {"leader"}
    monkeypatch.undo()
    assert_as_in_a_folder(world)


def test_exports_are_made_from_the_rows_of_all_agents(world: World) -> None:
    world.head += '\n[filter]\nexports = ["llava"]'
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    found = assert_as_in_a_folder(world)
    assert [name for name in found.outputs if name.startswith("exports/")]


def test_images_are_hashed_by_all_agents_and_only_those_that_look_alike_are_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.head += '\n[filter]\nsignals = ["answer", "question"]'
    with monkeypatch.context() as patch:
        patch.setattr(store_run, "push_stage", stopped)
        with pytest.raises(Killed):
            filter_in_store(world.recipe(), address(world), world.folder / "first")
    brought: list[int] = []
    bring = stored_dataset.StoredDataset.bring_images

    def noted(self: stored_dataset.StoredDataset, samples: list[Sample]) -> None:
        brought.append(len(samples))
        bring(self, samples)

    monkeypatch.setattr(stored_dataset.StoredDataset, "bring_images", noted)
    monkeypatch.setattr(image_match, "hash_image", stopped)
    done = filter_in_store(world.recipe(), address(world), world.folder / "second")
    assert done.counts["selected"] and brought
    monkeypatch.undo()
    found = assert_as_in_a_folder(world)
    assert "question/part-00000.parquet" in found.outputs


def agent_of(world: World, agent: AgentRecord) -> DatasetUnits:
    store = store_of(world)
    recipe, scratch = world.recipe(), world.folder / "helper"
    pull_manifest(store, scratch / "run")
    traces = UnitTraces(recipe=recipe, store=store, plan=finished_plan(store), scratch=scratch)
    inputs = read_inputs(recipe, scratch / "run", {})
    return DatasetUnits(agent=agent, signals=SignalUnits(traces=traces, inputs=inputs))


def test_an_agent_whose_step_is_over_goes_on_without_a_word(world: World) -> None:
    store = store_of(world)
    step = {"work": "filter/dataset/aa", "round": 0, "names": ["00"]}
    with joined(store, world.folder / "helper") as agent:
        agent_of(world, agent).help()  # there is none
        store.put("filter/dataset/step.json", orjson.dumps(step))
        with pytest.raises(FileNotFoundError):  # its table is missing although the step is not over
            agent_of(world, agent).help()
        read = LocalStore.read

        def ended(self: LocalStore, key: str, *range_: int) -> bytes:
            if key.endswith("rows/00"):
                store.delete(["filter/dataset/step.json"])
            return read(self, key, *range_)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalStore, "read", ended)
            agent_of(world, agent).help()
    assert not store.list_objects("claims")


def test_the_step_is_over_before_another_object_is_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store, delete, steps = store_of(world), LocalStore.delete, list[bool]()

    def noted(self: LocalStore, keys: Iterable[str]) -> None:
        keys = list(keys)
        if any("/rows/" in key for key in keys):
            steps.append(any(stored.key.endswith("step.json") for stored in store.list_objects("filter/dataset")))
        delete(self, keys)

    monkeypatch.setattr(LocalStore, "delete", noted)
    filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert steps == [False]


def test_rows_that_were_changed_in_the_store_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store, put = store_of(world), LocalStore.put

    def changed(self: LocalStore, key: str, data: bytes | Path) -> None:
        put(self, key, data)
        if "/files/" in key and key.endswith(".json"):
            rows = orjson.loads(store.read(key))["pieces"][0][0]
            put(self, rows, bytes(len(store.read(rows))))

    monkeypatch.setattr(LocalStore, "put", changed)
    with pytest.raises(DataError, match="changed since it was committed"):
        filter_in_store(world.recipe(), address(world), world.folder / "first")
    assert not stored_stage.stage_files(store, "filter")
