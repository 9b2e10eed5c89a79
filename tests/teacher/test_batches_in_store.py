"""Teachers that are asked by batch files in a run in a store: whatever agent is killed, no request is paid twice."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from processes import forked
from servers import batch_server, store_servers, stub_server
from servers.store_in_memory import MemoryStore
from worlds.generate_world import World
from worlds.store_worlds import dataset, lines_of

from distill.artifacts.files import file_sha256
from distill.errors import TeacherError
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store
from distill.units.agent_record import AgentRecord
from distill.units.stored_run import pull_generate
from filters.apply import apply
from teacher.engines.http.batch_records import SubmittedBatch
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.store_run import generate_in_store
from teacher.stored_batches import StoredBatches

ROWS = 12
HEAD = '[engine]\nscratch = "scratch"\nunit_rows = 4\nseal_s = 0.05\nlease_s = 2.0\n'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    with batch_server.serve(tmp_path / "api") as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and images of all tests, and the run in a folder that theirs must equal: the first one makes it."""
    return tmp_path_factory.mktemp("world")


@pytest.fixture
def world(folder: Path, server: Any) -> World:
    world = World(folder)
    world.head = f"{HEAD}[generate]\npatience_s = 2.0"
    world.add_rows(ROWS, images=9)
    world.rows = [row | {"answer": None} for row in world.rows]
    world.add_teacher(server.url, backend="batch", samples=3, **{"until.agree": 2, "batch.poll_s": 0.02})
    return world


def require_equal(world: World, store: Any, pulled: Path, server: Any) -> None:
    """A pulled run is that of a folder, and each of its requests was paid once."""
    paid = server.paid.copy()
    there = pull_generate(store, pulled)
    plain = world.generate()
    assert there.counts == plain.counts and there.tokens == plain.tokens
    for name in ("plan.parquet", "samples.parquet"):
        assert file_sha256(pulled / "generate" / name) == file_sha256(world.run / "generate" / name)
    records, here = lines_of(world, pulled), lines_of(world, world.run)
    for record in (*records, *here):
        del record["engine"]["facts"]  # a digest of the server's facts, with its port
    assert records == here
    asked = sorted(record["id"] for record in records if record["teacher"] == "stub")
    assert sorted(paid) == asked and set(paid.values()) == {1}


KILLED = """
import os, signal, sys
from pathlib import Path
from distill.object_store.local_store import LocalStore
from distill.object_store.remote_store import RemoteStore
from distill.recipe.loading import load
from teacher.store_run import generate_in_store

path, address, scratch, end = sys.argv[1:]

def killing(write):
    def then_die(self, key, data):
        written = write(self, key, data)
        if end in key:
            os.kill(os.getpid(), signal.SIGKILL)
        return written
    return then_die

for store in (LocalStore, RemoteStore):
    store.create, store.put = killing(store.create), killing(store.put)
generate_in_store(load(Path(path)), address, Path(scratch))
"""


def killed(world: World, address: str, scratch: Path, key: str = "never") -> "subprocess.Popen[bytes]":
    """An agent that is killed right after it has written an object whose name contains `key`."""
    command = [forked.interpreter(), "-c", KILLED, str(world.recipe().path), address, str(scratch), key]
    return subprocess.Popen(command, cwd=Path(__file__).resolve().parents[2], stderr=subprocess.PIPE)


def kill_agent(store: Any) -> None:
    """Kill the only agent by its record: the process that was started is not the one that works, and ends later."""
    (record,) = store.list_objects("agents")
    os.kill(json.loads(store.read(record.key))["pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    "moment",
    [
        "/requests.json",
        "000001/file",
        "000001/batch",
        "/stub/segment-",
        "/commits/",
    ],
)
def test_an_agent_that_is_killed_after_a_write_costs_nothing(
    world: World, server: Any, tmp_path: Path, moment: str
) -> None:
    address = f"file://{tmp_path / 'store'}"
    process = killed(world, address, tmp_path / "first", moment)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL, errors.decode()
    generate_in_store(world.recipe(), address, tmp_path / "second")
    store = LocalStore(tmp_path / "store")
    assert not store.list_objects("claims")
    require_equal(world, store, tmp_path / "pulled", server)


@pytest.mark.parametrize(
    "moment",
    [
        "POST /v1/files",
        "POST /v1/batches",
        "GET /v1/batches/batch_0",
        "GET /v1/files/file-out-batch_0/content",
    ],
)
def test_an_agent_that_is_killed_at_a_call_of_the_api_costs_nothing(
    world: World, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with store_servers.s3_server() as endpoint:
        store_servers.set_keys(monkeypatch)
        world.head += "\n" + store_servers.recipe_section(endpoint)
        address = f"s3://{store_servers.BUCKET}/run"
        store = open_store(address, config=world.recipe().store.client_options())
        process = killed(world, address, tmp_path / "first")
        server.faults.on = {moment: lambda: kill_agent(store)}
        _, errors = process.communicate(timeout=100)
        assert process.returncode == -signal.SIGKILL, errors.decode()
        server.faults.on.clear()
        generate_in_store(world.recipe(), address, tmp_path / "second")
        require_equal(world, store, tmp_path / "pulled", server)


@pytest.mark.usefixtures("short_report")
def test_agents_that_work_at_the_same_time_pay_nothing_twice(world: World, server: Any, tmp_path: Path) -> None:
    recipe, address = world.recipe(), f"file://{tmp_path / 'store'}"
    server.looks_until_done = 10
    threads = [
        threading.Thread(target=generate_in_store, args=(recipe, address, tmp_path / f"{number}"), daemon=True)
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not any(thread.is_alive() for thread in threads)
    require_equal(world, LocalStore(tmp_path / "store"), tmp_path / "pulled", server)
    for run in (tmp_path / "pulled", world.run):
        apply(world.recipe(), run)
    assert dataset(tmp_path / "pulled") == dataset(world.run) != {}


def test_an_uploaded_file_that_the_server_no_longer_has_is_uploaded_again(
    world: World, server: Any, tmp_path: Path
) -> None:
    world.head = world.head.replace("unit_rows = 4", "unit_rows = 64")
    address = f"file://{tmp_path / 'store'}"
    process = killed(world, address, tmp_path / "first", "000001/file")
    _, errors = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL, errors.decode()
    server.faults.statuses = {"POST /v1/batches": [400]}
    generate_in_store(world.recipe(), address, tmp_path / "first")
    store = LocalStore(tmp_path / "store")
    assert store.read("batches/stub/000001/batch") == b"" and store.read("batches/stub/000002/batch")
    require_equal(world, store, tmp_path / "pulled", server)


def test_a_batch_that_cannot_be_looked_for_is_not_paid_again_unasked(
    world: World, server: Any, tmp_path: Path
) -> None:
    address, store = f"file://{tmp_path / 'store'}", LocalStore(tmp_path / "store")
    world.head = world.head.replace("unit_rows = 4", "unit_rows = 64")
    process = killed(world, address, tmp_path / "first")
    server.faults.on = {"POST /v1/batches": lambda: kill_agent(store)}
    _, errors = process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL, errors.decode()
    server.faults.on.clear()
    # The list alone: where this agent puts other rows in a batch of its own, it looks at that one.
    server.faults.statuses = {"GET /v1/batches$": [405] * 1000}
    with pytest.raises(TeacherError, match=r"batches/stub/000001: a batch may have been submitted.*as the object"):
        generate_in_store(world.recipe(), address, tmp_path / "first")
    server.faults.statuses.clear()
    store.put("batches/stub/000001/batch", b"batch_0\n")
    generate_in_store(world.recipe(), address, tmp_path / "first")
    require_equal(world, store, tmp_path / "pulled", server)


def test_batches_are_asked_in_a_round_of_their_own(world: World, server: Any, tmp_path: Path) -> None:
    with stub_server.serve(model="small") as url:
        world.run = tmp_path / "run"
        world.add_teacher(url, "small", model="small")
        world.teachers.reverse()
        world.teachers[1] |= {"after": "small", "when": "always"}
        recipe = world.recipe()
        assert len(group_teachers(recipe.teachers)) == 1
        address = f"file://{tmp_path / 'store'}"
        generate_in_store(recipe, address, tmp_path / "scratch")
        store = LocalStore(tmp_path / "store")
        assert {key.split("/")[2] for key in (each.key for each in store.list_objects("generate/commits"))} == {
            "0",
            "1",
        }
        require_equal(world, store, tmp_path / "pulled", server)
        assert lines_of(world, tmp_path / "pulled") == lines_of(world, world.run), "facts of the server too"


def agents() -> tuple[MemoryStore, StoredBatches, StoredBatches]:
    store = MemoryStore()
    first, second = (StoredBatches(agent=AgentRecord(store=store, name=name), teacher="t") for name in ("a", "b"))
    for each in (first, second):
        each.agent.beat()
    return store, first, second


def begun(batches: StoredBatches, ids: list[str], seen: int) -> SubmittedBatch:
    found = batches.begin(ids, seen)
    assert found is not None
    return found[0]


def test_of_two_agents_that_submit_the_same_request_one_does() -> None:
    _, first, second = agents()
    assert first.find(["x", "y"]) == second.find(["x", "y"]) == ({}, 0)
    batch = begun(first, ["x", "y"], 0)
    assert second.begin(["y", "z"], 0) is None
    known, seen = second.find(["y", "z"])
    assert known == {"y": batch} and seen == 1
    other = begun(second, ["z"], 0)
    assert first.find(["z"])[0] == {"z": other} and begun(first, ["q"], 1).name.startswith("000003")
    again = begun(second, ["y"], 1)
    assert first.find(["y"])[0] == {"y": again}, "the last batch of a request counts"


def test_the_batch_of_a_lost_agent_is_made_by_one_other_and_not_by_the_lost_one() -> None:
    store, first, second = agents()
    third = StoredBatches(agent=AgentRecord(store=store, name="c"), teacher="t")
    batch = begun(first, ["x"], 0)
    noted = first.note(SubmittedBatch(**(asdict(batch) | {"file": "file-1"})))
    assert noted is not None and first.may_submit(noted) and not second.may_submit(noted)
    first.agent.end()
    (seen, _) = second.find(["x"])
    assert seen["x"].file == "file-1" and second.may_submit(seen["x"])
    assert not third.may_submit(seen["x"]), "it was claimed"
    first.agent.beat()
    assert not first.may_submit(noted), "it comes back too late"
    settled = second.note(SubmittedBatch(**(asdict(seen["x"]) | {"batch": "batch-1"})))
    assert settled is not None and settled.batch == "batch-1"
    late = first.note(SubmittedBatch(**(asdict(noted) | {"batch": "batch-2"})))
    assert late is not None and late.batch == "batch-1", "the first note counts"
    assert first.drop(noted) == late and not store.list_objects("claims")


def test_the_requests_of_a_dropped_record_are_free() -> None:
    _, first, second = agents()
    batch = begun(first, ["x"], 0)
    first.agent.end()
    assert second.find(["x"])[0] == {"x": batch} and second.may_submit(batch)
    assert second.drop(batch) is None and second.find(["x"]) == ({}, 1)
    assert begun(second, ["x"], 1).name.startswith("000002")
    assert first.note(SubmittedBatch(**(asdict(batch) | {"file": "file-1"}))) is None
    assert first.find(["x"])[0]["x"].name.startswith("000002")
