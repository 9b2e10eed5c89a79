"""`filter` of a run in a store gives the decisions and the dataset of a run in a folder, from any agents."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from processes import forked
from servers import store_servers, stub_server
from typer.testing import CliRunner
from worlds.generate_world import World
from worlds.store_worlds import small_world

from distill.artifacts.files import describe
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.cli import app
from distill.errors import DataError, NothingKept, StaleError
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store
from distill.units.commits import committed_units
from distill.units.run_state import SIGNAL_UNITS, read_run_state
from distill.units.stored_run import pull_generate
from distill.units.stored_stage import pull_stage, push_stage, stage_files
from filters import store_run
from filters.apply import apply
from filters.store_run import filter_in_store
from filters.tables import measure, trace_index
from filters.tables.trace_index import partition_count
from filters.tables.unit_index import UnitIndex, index_of_units
from teacher.store_run import generate_in_store


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.0) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    return small_world(tmp_path, url)


def sections(world: World, unit_rows: int, store: str = "") -> None:
    world.head = f'[engine]\nscratch = "scratch"\nunit_rows = {unit_rows}\nlease_s = 2.0\n{store}'
    world.head += "[generate]\npatience_s = 2.0"


def outputs(run: Path) -> dict[str, str]:
    """Digests of all that the filter stage says it has written, as the files are."""
    folder = run / "filter"
    manifest = Manifest.read(folder)
    assert manifest is not None
    return {name: describe(folder / name).sha256 for name in manifest.outputs}


def local(world: World, store: LocalStore, folder: Path) -> dict[str, str]:
    """What the filter of a pulled run writes."""
    pull_generate(store, folder)
    apply(world.recipe(), folder)
    return outputs(folder)


@pytest.mark.parametrize("unit_rows", [30, 8, 1])
def test_a_run_in_a_store_is_filtered_as_one_in_a_folder(world: World, tmp_path: Path, unit_rows: int) -> None:
    sections(world, unit_rows)
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    with pytest.raises(StaleError, match="run `distill generate` first"):
        filter_in_store(world.recipe(), address, tmp_path / "first")
    generate_in_store(world.recipe(), address, tmp_path / "first")
    manifest = filter_in_store(world.recipe(), address, tmp_path / "first")
    assert manifest.counts["measured"] == 0 and manifest.counts["reused"] == 90, "agents have measured all"
    assert filter_in_store(world.recipe(), address, tmp_path / "second") == manifest, "it is finished"
    assert pull_stage(store, "filter", tmp_path / "pulled" / "filter") == manifest
    assert outputs(tmp_path / "pulled") == local(world, store, tmp_path / "plain") != {}


@pytest.mark.usefixtures("short_report")
def test_partitions_of_a_folder_and_units_of_a_store_change_no_byte(tmp_path: Path, url: str) -> None:
    world = World(tmp_path)
    world.add_rows(160, images=160)
    world.add_teacher(url, samples=1, max_in_flight=32)
    found: dict[str, dict[str, str]] = {}
    for unit_rows, units in ((160, 1), (4, 64)):
        sections(world, unit_rows)
        store, address = LocalStore(tmp_path / f"store-{unit_rows}"), f"file://{tmp_path / f'store-{unit_rows}'}"
        generate_in_store(world.recipe(), address, tmp_path / f"scratch-{unit_rows}")
        filter_in_store(world.recipe(), address, tmp_path / f"scratch-{unit_rows}")
        assert read_run_state(store).measured == units
        pull_stage(store, "filter", tmp_path / f"pulled-{unit_rows}" / "filter")
        found[f"store {unit_rows}"] = outputs(tmp_path / f"pulled-{unit_rows}")
    for partition_rows, partitions in ((160, 1), (3, 64)):
        assert partition_count(160, partition_rows) == partitions
        sections(world, 160)
        world.head += f"\n[filter]\npartition_rows = {partition_rows}"
        found[f"folder {partition_rows}"] = local(world, store, tmp_path / f"plain-{partition_rows}")
    names = {name for files in found.values() for name in files if name.startswith("dataset/")}
    assert names
    chosen = [{name: files[name] for name in names} for files in found.values()]
    assert all(files == chosen[0] for files in chosen), found


def test_s3_holds_a_filter_stage_that_status_and_pull_know(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_servers.s3_server() as endpoint:
        store_servers.set_keys(monkeypatch)
        sections(world, 8, store_servers.recipe_section(endpoint))
        recipe, address = str(world.recipe().path), f"s3://{store_servers.BUCKET}/run"

        def call(*words: str) -> str:
            done = CliRunner().invoke(app, list(words))
            assert done.exit_code == 0, done.output
            return done.output

        call("generate", recipe, "--run", address)
        assert "dataset: s3://" in call("filter", recipe, "--run", address)
        assert "filter: finished" in call("status", address, "--recipe", recipe)
        assert "distill train" in call("pull", address, str(tmp_path / "pulled"), "--recipe", recipe)
        store = open_store(address, config=world.recipe().store.client_options())
        pull_generate(store, tmp_path / "plain")
    apply(world.recipe(), tmp_path / "plain")
    assert outputs(tmp_path / "pulled") == outputs(tmp_path / "plain")
    explained = call("explain", str(tmp_path / "pulled"), world_id(tmp_path / "pulled"))
    assert "stub" in explained


def world_id(run: Path) -> str:
    other = World(run.parent)
    other.run = run
    return other.planned()[0]


@pytest.mark.usefixtures("short_report")
def test_another_policy_is_refused_replaced_with_fresh_and_measures_nothing(world: World, tmp_path: Path) -> None:
    sections(world, 8)
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    generate_in_store(world.recipe(), address, tmp_path / "first")
    filter_in_store(world.recipe(), address, tmp_path / "first")
    commits = store.list_objects(SIGNAL_UNITS)
    world.head += "\n[filter.select]\nper_question = 1"
    with pytest.raises(StaleError, match="per_question"):
        filter_in_store(world.recipe(), address, tmp_path / "second")
    changed = filter_in_store(world.recipe(), address, tmp_path / "second", fresh=True)
    assert changed.counts["selected"] <= 30 and store.list_objects(SIGNAL_UNITS) == commits
    pull_stage(store, "filter", tmp_path / "pulled" / "filter")
    assert outputs(tmp_path / "pulled") == local(world, store, tmp_path / "plain")


def test_a_policy_that_keeps_nothing_is_told_of_the_run_and_not_of_a_folder_of_the_agent(
    world: World, tmp_path: Path
) -> None:
    """Its error is read on other machines, too."""
    sections(world, 30)
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    generate_in_store(world.recipe(), address, tmp_path / "first")
    world.head += '\n[[filter.rules]]\nname = "all"\ndrop = "outcome = \'complete\'"'
    with pytest.raises(NothingKept, match=f"^{store.address}/filter: no trace of 90 is kept"):
        filter_in_store(world.recipe(), address, tmp_path / "first")
    (failure,) = read_run_state(store).failures
    assert f"{store.address}/filter: no trace" in failure["error"] and "first" not in failure["error"]


def test_agents_share_the_units_and_outlive_a_killed_one(world: World, tmp_path: Path) -> None:
    sections(world, 1)
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    generate_in_store(world.recipe(), address, tmp_path / "first")
    recipe = world.recipe()
    command = [forked.interpreter(), "-m", "distill", "filter", str(recipe.path), "--run", address]
    agents = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    deadline = time.monotonic() + 120
    while not store.list_objects(SIGNAL_UNITS) and time.monotonic() < deadline:
        time.sleep(0.001)
    agents[0].kill()
    agents[0].communicate()
    out, err = agents[1].communicate(timeout=120)
    assert agents[1].returncode == 0 and b"dataset" in out, err.decode()
    commits = [stored for stored in store.list_objects(SIGNAL_UNITS) if "/commits/" in stored.key]
    state = read_run_state(store)
    assert len(commits) == state.measured == state.units > 8 and not store.list_objects("claims")
    pull_stage(store, "filter", tmp_path / "pulled" / "filter")
    assert outputs(tmp_path / "pulled") == local(world, store, tmp_path / "plain")


class Killed(Exception):
    pass


def stopped(*_: object) -> None:
    raise Killed


@pytest.mark.usefixtures("short_report")
def test_an_agent_that_ends_before_the_result_is_there_costs_no_signal(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections(world, 8)
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    generate_in_store(world.recipe(), address, tmp_path / "first")

    with monkeypatch.context() as patch:
        patch.setattr(store_run, "push_stage", stopped)
        with pytest.raises(Killed):
            filter_in_store(world.recipe(), address, tmp_path / "first")
    signals = store.list_objects(SIGNAL_UNITS)
    assert read_run_state(store).measured > 2 and not read_run_state(store).filtered
    work, _, unit = signals[0].key.partition("/commits/")
    store.put(f"claims/{work}/{unit.removesuffix('.json')}/000001", b"of an agent that was killed after its commit")
    filter_in_store(world.recipe(), address, tmp_path / "second")
    assert not store.list_objects("claims")
    assert store.list_objects(SIGNAL_UNITS) == signals and read_run_state(store).filtered["input"] == 90
    pull_stage(store, "filter", tmp_path / "pulled" / "filter")
    assert outputs(tmp_path / "pulled") == local(world, store, tmp_path / "plain")


@pytest.mark.usefixtures("short_report")
def test_traces_that_were_made_again_are_measured_again(world: World, tmp_path: Path) -> None:
    sections(world, 8)
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    generate_in_store(world.recipe(), address, tmp_path / "first")
    filter_in_store(world.recipe(), address, tmp_path / "first")
    works = {stored.key.split("/")[2] for stored in store.list_objects(SIGNAL_UNITS)}
    store.delete([committed_units(store)[0].commit_key, "run/generate/manifest.json"])
    generate_in_store(world.recipe(), address, tmp_path / "second")
    filter_in_store(world.recipe(), address, tmp_path / "second")
    assert {stored.key.split("/")[2] for stored in store.list_objects(SIGNAL_UNITS)} > works
    pull_stage(store, "filter", tmp_path / "pulled" / "filter")
    assert outputs(tmp_path / "pulled") == local(world, store, tmp_path / "plain")


@pytest.mark.usefixtures("short_report")
def test_no_journal_is_read_and_no_signal_checked_again_by_the_agent_that_decides(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections(world, 8)
    address = f"file://{tmp_path / 'store'}"
    generate_in_store(world.recipe(), address, tmp_path / "first")
    with monkeypatch.context() as patch:
        patch.setattr(store_run, "push_stage", stopped)
        with pytest.raises(Killed):
            filter_in_store(world.recipe(), address, tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    monkeypatch.setattr(trace_index, "read_piece", stopped)
    monkeypatch.setattr(measure, "measure_partition", stopped)
    assert filter_in_store(world.recipe(), address, tmp_path / "second").counts["selected"]
    assert not list((tmp_path / "second").rglob("filter/samples/part-*")), "no sample is copied"


@pytest.mark.parametrize("places", [{"id": ["f" * 32]}, {"journal": ["other/part-00000.jsonl"]}])
def test_an_index_of_other_traces_is_refused(world: World, tmp_path: Path, places: dict[str, list[str]]) -> None:
    world.generate()
    run, (first,) = world.run / "generate", ["stub/part-00000.jsonl"]
    table = pa.table({"id": [world.planned()[0]], "journal": [first], "start": [0]} | places)
    unit = UnitIndex(places=table, journals={first: first}, makers={})
    with pytest.raises(DataError, match="do not belong to the run"):
        index_of_units(run, tmp_path / "samples", [first], [unit], [0])


def test_a_damaged_file_of_a_stage_is_not_pulled(world: World, tmp_path: Path) -> None:
    store, folder = LocalStore(tmp_path / "store"), tmp_path / "filter"
    folder.mkdir()
    Manifest(stage="filter", fingerprint="", fields={}, counts={"selected": 3}).write(folder)
    (folder / "part.parquet").write_bytes(b"rows")
    (folder / ".part.parquet.1.tmp").write_bytes(b"of a killed process")
    push_stage(store, "filter", folder)
    assert sorted(stage_files(store, "filter")) == ["manifest.json", "part.parquet"]
    store.put(f"run/filter/files/{describe(folder / 'part.parquet').sha256}", b"")
    with pytest.raises(DataError, match="missing or changed"):
        pull_stage(store, "filter", tmp_path / "pulled")
    assert not (tmp_path / "pulled" / MANIFEST).exists()
