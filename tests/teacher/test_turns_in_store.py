"""Teachers that take turns in a run in a store give what they give in a folder; each server starts once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from servers import counted_server, stub_server
from worlds.generate_world import World
from worlds.store_worlds import dataset, lines_of

from distill.artifacts.files import file_sha256
from distill.artifacts.layout import DECISIONS
from distill.errors import DataError, DistillError, StaleError
from distill.object_store.local_store import LocalStore
from distill.types import Progress
from distill.units.commits import Unit, committed_units
from distill.units.run_state import read_run_state
from distill.units.stored_run import pull_generate, samples_key
from distill.units.unit_queue import UnitQueue
from filters.apply import apply
from filters.store_run import filter_in_store
from teacher.generation import Generation
from teacher.progress import GenerateProgress
from teacher.store_run import generate_in_store
from teacher.unit_plans import UnitPlans

HEAD = '[engine]\nscratch = "scratch"\nunit_rows = 8\nseal_s = 0.05\nlease_s = 4.0\nretries = 1\n'
ROWS = 30


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.02) as url:
        yield url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and images of all tests, and the run in a folder that theirs must equal: the first one makes it."""
    return tmp_path_factory.mktemp("world")


@pytest.fixture
def world(folder: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two teachers of one round, one of them by a server that the run starts; two further servers that follow it."""
    monkeypatch.setenv("COUNTED_STARTS", str(starts_of(tmp_path / "here")))
    world = World(folder)
    world.head = f"{HEAD}[generate]\npatience_s = 5.0"
    world.add_rows(ROWS - 4, images=9)
    world.add_rows(2, text="fault=400 What?", images=9)
    world.add_rows(2, text="fault=empty What?", images=9)
    world.rows = [row | {"answer": None} for row in world.rows]
    server = {"server.command": [sys.executable, counted_server.__file__], "server.extra": ["--latency-s=0.02"]}
    world.add_teacher(None, "small", model="small", samples=4, **{"until.agree": 2}, **server)
    world.add_teacher(url, "beside", samples=1)
    world.add_teacher(None, "large", model="large", samples=2, after="small", when="unsure", **server)
    draft = "{question} Correct this: {draft}"
    world.add_teacher(None, "editor", model="editor", after="large", prompt=draft, **server)
    return world


def starts_of(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "starts").touch()
    return folder


def started(folder: Path) -> list[str]:
    return (folder / "starts").read_text().splitlines()


def require_equal(world: World, store: LocalStore, pulled: Path) -> None:
    """A pulled run and a run in a folder are equal but for times, ports and tries."""
    there = pull_generate(store, pulled)
    plain = world.generate()
    assert there.counts == plain.counts and there.tokens == plain.tokens and there.fingerprint == plain.fingerprint
    for name in ("plan.parquet", "samples.parquet"):
        assert file_sha256(pulled / "generate" / name) == file_sha256(world.run / "generate" / name)
    records, here = lines_of(world, pulled), lines_of(world, world.run)
    for record in (*records, *here):
        del record["engine"]["facts"]  # a digest of the server's command line, with its port
        record["error"] = record["error"].partition(" (")[0]  # without the number of tries
    assert records == here and len({record["id"] for record in records}) == len(records)
    assert {record["teacher"] for record in records} == {"small", "beside", "large", "editor"}
    assert Counter(record["outcome"] for record in records)["error"] > 0


class Stopped(Exception):
    pass


def begin(world: World, store: LocalStore) -> None:
    """Make the plan and no more."""

    def stop(_: Progress) -> None:
        if store.list_objects("plan/samples"):
            raise Stopped

    with pytest.raises(Stopped):
        generate_in_store(world.recipe(), store.address, store.folder.with_name("scratch"), on_progress=stop)


@pytest.mark.usefixtures("short_report")
def test_a_run_goes_on_elsewhere_in_the_round_where_it_stopped_and_each_server_starts_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"

    commit = UnitPlans.finish

    def commit_one_of_the_second_round(plans: UnitPlans, generation: Generation) -> None:
        commit(plans, generation)
        if any(unit.round == 1 for unit in committed_units(store)):
            raise Stopped

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(UnitPlans, "finish", commit_one_of_the_second_round)
        generate_in_store(world.recipe(), address, tmp_path / "first")
    state = read_run_state(store)
    assert state.units == 3 * state.partitions > state.done > state.partitions > 2
    assert started(tmp_path / "here") == ["small", "large"], "one after the other"
    monkeypatch.setenv("COUNTED_STARTS", str(starts_of(tmp_path / "there")))
    manifest = generate_in_store(world.recipe(), address, tmp_path / "second")
    there = started(tmp_path / "there")
    # Sealed traces may be all of the second round.
    assert there in (["large", "editor"], ["editor"]), "not that of a round that is finished"
    assert generate_in_store(world.recipe(), address, tmp_path / "third").counts == manifest.counts
    assert started(tmp_path / "there") == there and not store.list_objects("claims")
    done = read_run_state(store)
    assert done.done == done.units and 0.9 * done.total_traces <= done.traces <= done.total_traces
    require_equal(world, store, tmp_path / "pulled")
    for run in (tmp_path / "pulled", world.run):
        apply(world.recipe(), run)
    assert dataset(tmp_path / "pulled") == dataset(world.run) != {}
    filtered = filter_in_store(world.recipe(), address, tmp_path / "second")
    assert filtered.outputs[DECISIONS].sha256 == file_sha256(world.run / "filter" / DECISIONS)


@pytest.mark.parametrize(("round_", "agents"), [(0, 2), (1, 3), (2, 2)])
def test_agents_share_the_rounds_and_outlive_one_that_is_killed(
    world: World, tmp_path: Path, round_: int, agents: int
) -> None:
    path = str(world.recipe().path)
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    processes = []
    for number in range(agents):
        folder = tmp_path / f"machine-{number}"
        command = [sys.executable, "-m", "distill", "generate", path, "--run", address]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        environment |= {"COUNTED_STARTS": str(starts_of(folder))}
        command += ["--set", f"engine.scratch={folder / 'scratch'}"]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment))
    deadline = time.monotonic() + 200
    while not any(unit.round == round_ for unit in committed_units(store)) and time.monotonic() < deadline:
        time.sleep(0.01)
    processes[0].send_signal(signal.SIGKILL)
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes].count(0) >= agents - 1, outputs
    for number in range(agents):
        starts = started(tmp_path / f"machine-{number}")
        assert starts == sorted(set(starts), key=["small", "large", "editor"].index), "each once, none beside another"
    require_equal(world, store, tmp_path / "pulled")


def test_a_unit_that_is_set_aside_holds_up_only_its_own_later_rounds(world: World, tmp_path: Path) -> None:
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"

    begin(world, store)
    names = orjson.loads(store.read("plan/plan.json"))["partitions"].keys()
    bad = max(names)
    samples = store.read(samples_key(bad))
    store.put(samples_key(bad), b"damaged")
    for _ in range(2):
        with pytest.raises(DataError, match="samples of this partition"):
            generate_in_store(world.recipe(), address, tmp_path / "scratch")
    with pytest.raises(DistillError, match=rf"set aside.*0/{bad} \(2 agents\)"):
        generate_in_store(world.recipe(), address, tmp_path / "scratch")
    assert len(committed_units(store)) == 3 * (len(names) - 1)
    store.put(samples_key(bad), samples)
    generate_in_store(world.recipe(), address, tmp_path / "scratch")
    require_equal(world, store, tmp_path / "pulled")


def test_teachers_that_were_begun_together_and_no_longer_fit_together_are_refused(
    world: World, tmp_path: Path
) -> None:
    small, _, large, _ = world.teachers
    world.teachers = [small | {"server.gpus": ["0"]}, large | {"server.gpus": ["1"]}]
    begin(world, LocalStore(tmp_path / "store"))
    world.teachers[1]["server.gpus"] = ["0"]
    with pytest.raises(StaleError, match="begun with teachers small, large at the same time"):
        begin(world, LocalStore(tmp_path / "store"))


def test_a_queue_takes_the_units_of_the_next_round_on_and_keeps_those_that_are_set_aside(tmp_path: Path) -> None:
    from distill.units.agent_record import AgentRecord

    store = LocalStore(tmp_path)
    first, second = (Unit(round=number, partition="00") for number in range(2))
    queue = UnitQueue(AgentRecord(store=store), [first], retries=0)
    for number in (1, 2):
        store.create(f"claims/generate/0/00/{number:06d}", b"lost")
    assert queue.draw() is None and queue.ended and queue.set_aside == {first}
    queue.add([second])
    assert not queue.ended and queue.draw() == second
    queue.done(second)
    assert queue.ended
    with pytest.raises(DistillError, match="0/00"):
        queue.require_all()


def test_the_rate_that_an_agent_tells_is_that_of_its_round() -> None:
    progress = GenerateProgress(lambda _: None, done=0, total=10, outcomes={})
    progress.found({"complete": 3})
    progress._done += 4
    assert progress.facts()["traces"] == 4
    progress.begin_round()
    assert progress.facts()["traces"] == 0
    progress._done += 2
    assert progress.facts()["traces"] == 2
