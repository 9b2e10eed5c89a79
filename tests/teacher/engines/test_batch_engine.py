"""Teachers that are asked by batch files: kills, restarts and faults cost no trace and no request is paid twice."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers import batch_server
from worlds.generate_world import World

from distill import redact
from distill.errors import CircuitOpen, StorageError, TeacherError
from teacher.engines.http import batch_api, batch_engine
from teacher.engines.http.batch_api import BatchApi, line_failure
from teacher.engines.http.batch_records import FolderRecords, SubmittedBatch
from teacher.replay import replay

ROWS = 12


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    with batch_server.serve(tmp_path / "api") as server:
        yield server


@pytest.fixture
def world(tmp_path: Path, server: Any) -> World:
    (tmp_path / "world").mkdir()
    world = World(tmp_path / "world")
    world.add_rows(ROWS)
    world.add_teacher(server.url, backend="batch", samples=2, **{"batch.poll_s": 0.02})
    return world


def states(world: World) -> list[dict[str, Any]]:
    return [orjson.loads(path.read_bytes()) for path in sorted(world.run.glob("generate/stub/batches/*.json"))]


def texts(world: World) -> dict[str, str]:
    return {record["id"]: record["text"] for record in world.records()}


def test_a_run_is_one_file_whose_images_are_inside_and_is_finished_afterwards(world: World, server: Any) -> None:
    manifest = world.generate()
    assert manifest.counts["complete"] == 2 * ROWS and server.sizes == [2 * ROWS]
    assert set(server.paid.values()) == {1} and sorted(server.paid) == world.ids() == world.planned()
    (line, *_) = (server.folder / "file-0").read_bytes().splitlines()
    request = orjson.loads(line)
    assert (request["method"], request["url"]) == ("POST", "/v1/chat/completions")
    assert request["body"]["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert list((world.run / "generate" / "stub" / "batches").glob("*.jsonl")) == []
    assert world.generate().counts == manifest.counts and server.sizes == [2 * ROWS]


def test_the_traces_are_those_of_single_requests_with_the_same_ids_and_seeds(world: World, tmp_path: Path) -> None:
    from servers import stub_server

    world.generate()
    by_batch = {record["id"]: (record["seed"], record["text"], record["answer"]) for record in world.records()}
    with stub_server.serve() as url:
        world.run = tmp_path / "single"
        del world.teachers[0]["batch.poll_s"]
        world.teachers[0] |= {"backend": "openai", "base_url": url}
        world.generate()
    assert by_batch == {
        record["id"]: (record["seed"], record["text"], record["answer"]) for record in world.records()
    }


def test_files_are_split_by_requests_and_by_size(world: World, server: Any) -> None:
    world.teachers[0]["batch.max_requests"] = 7
    world.generate()
    assert sorted(server.sizes) == [3, 7, 7, 7]
    size = (server.folder / "file-0").stat().st_size / 7
    world.teachers[0] |= {"batch.max_requests": 50_000, "batch.max_mb": 5.5 * size / 1e6}
    world.run = world.folder / "other"
    server.sizes.clear()
    world.generate()
    assert len(server.sizes) >= 5 and max(server.sizes) <= 6 and sum(server.sizes) == 2 * ROWS


def test_half_of_an_expired_batch_is_kept_and_the_rest_asked_again(world: World, server: Any) -> None:
    server.faults.expired = 2
    assert world.generate().counts["complete"] == 2 * ROWS
    assert server.sizes == [24, 12, 6] and set(server.paid.values()) == {1}


def test_a_batch_that_failed_as_a_whole_is_submitted_again(world: World, server: Any) -> None:
    server.faults.failed = 2
    assert world.generate().counts["complete"] == 2 * ROWS
    assert server.sizes == [24] and len(server.batches) == 3


def test_batches_that_fail_while_another_one_is_worked_on_are_no_outage(world: World, server: Any) -> None:
    world.head = "[generate]\npatience_s = 0.1"
    world.teachers[0]["batch.max_requests"] = ROWS
    server.faults.failed, server.faults.spared = 12, frozenset({0})
    server.looks[0] = 60
    assert world.generate().counts["complete"] == 2 * ROWS
    assert server.faults.failed == 0 and set(server.paid.values()) == {1}


def test_doubled_torn_and_shuffled_lines_give_every_request_one_answer(world: World, server: Any) -> None:
    world.generate()
    expected = texts(world)
    server.faults.lines = batch_server.doubled_and_shuffled
    world.run = world.folder / "other"
    world.generate()
    assert texts(world) == expected and len(world.records()) == 2 * ROWS


def test_lines_that_are_missing_are_asked_again_and_no_others(world: World, server: Any) -> None:
    def first_without_two(lines: list[bytes]) -> list[bytes]:
        server.faults.lines = list
        return lines[2:]

    server.faults.lines = first_without_two
    world.generate()
    assert server.sizes == [24, 2] and sorted(server.paid.values()) == [1] * 22 + [2] * 2


def test_a_mark_at_the_start_of_a_file_costs_no_answer(world: World, server: Any) -> None:
    server.faults.lines = lambda lines: [b"\xef\xbb\xbf", *lines]
    assert world.generate().counts["complete"] == 2 * ROWS
    assert server.sizes == [24]


def test_a_batch_that_another_model_has_answered_stops_the_run_and_is_paid_once_if_that_is_allowed(
    world: World, server: Any
) -> None:
    server.faults.lines = lambda lines: [*map(_of_another_model, lines)]
    for _ in range(2):
        with pytest.raises(TeacherError, match=r"model 'another' has answered.*allow_other_model = true"):
            world.generate()
    world.teachers[0]["allow_other_model"] = True
    assert world.generate().counts["complete"] == 2 * ROWS
    assert server.sizes == [24] and set(server.paid.values()) == {1}


def _of_another_model(line: bytes) -> bytes:
    answer = orjson.loads(line)
    answer["response"]["body"]["model"] = "another"
    return orjson.dumps(answer) + b"\n"


def test_a_file_that_is_too_large_for_the_server_names_the_key(world: World, server: Any) -> None:
    server.faults.statuses = {"POST /v1/files": [413] * 1000}
    with pytest.raises(CircuitOpen, match=r"HTTP 413.*MB; lower teachers.stub.batch.max_mb"):
        world.generate()


def test_a_row_that_alone_fails_gets_its_error_and_costs_no_other_row(world: World, server: Any) -> None:
    world.rows[3]["question"] += " fault=400"
    manifest = world.generate()
    assert manifest.counts["error"] == 2
    assert manifest.counts["complete"] == 2 * ROWS - 2
    errors = {record["error"] for record in world.records() if record["error"]}
    assert errors == {"refused_request: HTTP 400: of no use (2 batches, others passed)"}
    assert server.sizes == [24, 3] and server.paid["control"] == 1  # both rows again, with one that passes


def test_rows_of_which_none_passes_are_no_errors_and_the_run_stops(world: World) -> None:
    for row in world.rows:
        row["question"] += " fault=400"
    with pytest.raises(CircuitOpen, match=r"no request has succeeded.*of no use"):
        world.generate()
    assert world.records() == []


def test_busy_and_broken_servers_are_waited_for(world: World, server: Any) -> None:
    server.faults.statuses = {
        "POST /v1/files": [429, 500],
        "POST /v1/batches": [429, 503],
        "GET /v1/batches/": [502, 429],
        "GET /v1/files": [500],
    }
    assert world.generate().counts["complete"] == 2 * ROWS
    assert server.sizes == [24] and len(server.batches) == 1


@pytest.mark.parametrize("wish", ["86400", "1e300", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_a_server_that_asks_for_a_pause_of_days_is_asked_again_within_the_patience(
    world: World, server: Any, wish: str
) -> None:
    world.head = "[generate]\npatience_s = 0.2"
    server.faults.retry_after = wish
    server.faults.statuses = {"POST /v1/files": [429], "GET /v1/batches/": [503]}
    assert world.generate().counts["complete"] == 2 * ROWS


def test_a_pause_that_a_server_asks_for_is_cut_so_that_its_return_is_noticed(
    world: World, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_engine, "_RETRY_S", (0.01, 0.05))
    world.head = "[generate]\npatience_s = 30"
    server.faults.retry_after = "86400"
    server.faults.statuses = {"POST /v1/files": [429, 429], "GET /v1/batches/": [503, 503]}
    started = time.monotonic()
    assert world.generate().counts["complete"] == 2 * ROWS
    assert time.monotonic() - started < 25  # a single pause of the whole patience takes longer


def shouted(batch: dict[str, Any]) -> dict[str, Any]:
    return batch | {"status": batch["status"].upper(), "errors": None}


@pytest.mark.parametrize(
    "bodies",
    [
        {"GET /v1/batches/": shouted},
        {"GET /v1/batches": lambda page: page | {"data": None} if "data" in page else page},
        {"GET /v1/batches": lambda page: page | {"data": [None, {}, {"id": 1, "metadata": "text"}]}},
    ],
)
def test_answers_in_a_shape_of_their_own_are_read(world: World, server: Any, bodies: dict[str, Any]) -> None:
    server.faults.bodies = bodies
    server.faults.statuses = {"POST /v1/batches": [500]}  # so that the list of batches is looked at
    assert world.generate().counts["complete"] == 2 * ROWS
    assert set(server.paid.values()) == {1}


@pytest.mark.parametrize("where", ["POST /v1/files", "GET /v1/batches/"])
def test_answers_without_what_was_asked_for_are_an_outage(world: World, server: Any, where: str) -> None:
    server.faults.bodies = {where: lambda _: {"data": []}}
    with pytest.raises(CircuitOpen, match="garbled_response"):
        world.generate()


def test_a_creation_whose_answer_says_nothing_is_found_and_not_repeated(world: World, server: Any) -> None:
    server.faults.bodies = {"POST /v1/batches": lambda _: {"data": []}}
    assert world.generate().counts["complete"] == 2 * ROWS
    assert len(server.batches) == 1 and set(server.paid.values()) == {1}


@pytest.mark.parametrize(
    "errors",
    [[{"message": "too much enqueued"}], ["too much enqueued"], {"data": [{"message": "too much enqueued"}]}],
)
def test_why_a_batch_has_failed_is_said_however_the_server_writes_it(world: World, server: Any, errors: Any) -> None:
    server.faults.failed = 100
    server.faults.bodies = {"GET /v1/batches/": lambda batch: batch | {"errors": errors}}
    with pytest.raises(CircuitOpen, match="has failed: too much enqueued"):
        world.generate()


def test_what_a_failed_batch_has_answered_is_kept(world: World, server: Any) -> None:
    server.faults.expired = 1
    server.faults.bodies = {"GET /v1/batches/": failed_in_place_of_expired}
    assert world.generate().counts["complete"] == 2 * ROWS
    assert server.sizes == [24, 12] and set(server.paid.values()) == {1}


def failed_in_place_of_expired(batch: dict[str, Any]) -> dict[str, Any]:
    return batch | {"status": batch["status"].replace("expired", "failed")}


class CountedId(str):
    """An id that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return str.__eq__(self, other)


def test_which_requests_a_batch_has_is_not_searched_once_for_each_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = FolderRecords.begin

    def begin_counted(self: FolderRecords, ids: Any, seen: int) -> tuple[SubmittedBatch, int] | None:
        return begin(self, [CountedId(each) for each in ids], seen)

    monkeypatch.setattr(FolderRecords, "begin", begin_counted)
    monkeypatch.setattr(CountedId, "compared", 0)
    world.generate()
    assert 0 < CountedId.compared < 6 * 2 * ROWS


def test_a_full_disk_is_no_outage_of_the_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk:
        def write(self, data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    download = BatchApi.download
    monkeypatch.setattr(BatchApi, "download", lambda self, file, into: download(self, file, FullDisk()))  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=r"batches: cannot write.*free"):
        world.generate()


def test_a_list_of_batches_that_would_fill_the_memory_is_an_outage(
    world: World, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_api, "MAX_ANSWER_BYTES", 1 << 20)
    server.faults.bodies = {"GET /v1/batches/": lambda batch: batch | {"more": "x" * (1 << 20)}}
    with pytest.raises(CircuitOpen, match="oversized_response: more than 1 MiB"):
        world.generate()


def test_no_part_of_a_secret_is_left_where_an_error_is_cut() -> None:
    redact.know("not-to-be-seen-by-anyone")
    for start in range(270, 300):
        failure = line_failure({"code": "x", "message": "." * start + "not-to-be-seen-by-anyone"})
        assert failure is not None and "not" not in redact.exact(str(failure))


def test_answers_that_the_server_no_longer_has_are_for_the_user_to_pay_again(world: World, server: Any) -> None:
    server.faults.statuses = {"GET /v1/files/": [404] * 1000}
    with pytest.raises(CircuitOpen, match=r"HTTP 404.*remove .*/batches/\w+.json: its requests"):
        world.generate()


def test_a_request_that_is_larger_than_a_file_may_be_fails_alone(world: World, server: Any) -> None:
    world.rows[0]["question"] += " and" * 20_000
    world.teachers[0] |= {"batch.max_mb": 0.05}
    world.generate()
    errors = [record["error"] for record in world.records() if record["error"]]
    assert len(errors) == 2
    assert errors[0].startswith("oversized_request: a request of 0.08 MB is larger than batch.max_mb = 0.05")


def test_a_password_in_the_address_and_a_key_may_be_set_together(
    world: World, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCH_KEY", "sk-very-secret-1234")
    world.teachers[0] |= {"api_key_env": "BATCH_KEY", "base_url": server.url.replace("://", "://me:password-1@")}
    world.generate()
    assert {headers.get("Authorization") for headers in server.headers} == {"Bearer sk-very-secret-1234"}


def test_a_server_that_stays_away_stops_the_run_and_the_next_one_pays_nothing_again(
    world: World, server: Any
) -> None:
    server.faults.statuses = {"GET /v1/batches/": [503] * 1000}
    with pytest.raises(CircuitOpen, match="HTTP 503"):
        world.generate()
    server.faults.statuses.clear()
    world.generate()
    assert server.sizes == [24] and set(server.paid.values()) == {1}


def test_a_creation_whose_answer_is_lost_is_found_and_not_repeated(world: World, server: Any) -> None:
    world.generate(limit=1)  # so that it is not the only batch
    server.faults.lost_creations = 1
    world.generate()
    assert len(server.batches) == 2 and set(server.paid.values()) == {1}
    assert {state["batch"] for state in states(world)} == {"batch_0", "batch_1"}


KILLED = """
import sys
from distill.recipe.loading import load
from teacher.generate import generate
generate(load(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize(
    "moment",
    ["POST /v1/files", "POST /v1/batches", "GET /v1/batches/batch_0", "GET /v1/files/file-out-batch_0/content"],
)
def test_a_run_that_is_killed_at_a_moment_goes_on_and_pays_nothing_twice(
    world: World, server: Any, moment: str, tmp_path: Path
) -> None:
    world.recipe()
    command = [sys.executable, "-c", KILLED, world.folder / "recipe.toml", world.run]
    process = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[3])
    server.faults.on = {moment: lambda: os.kill(process.pid, signal.SIGKILL)}
    assert process.wait(60) == -signal.SIGKILL
    server.faults.on.clear()
    assert world.generate().counts["complete"] == 2 * ROWS
    assert set(server.paid.values()) == {1} and len(server.batches) == 1


def test_the_api_is_restarted_in_between(world: World, server: Any, tmp_path: Path) -> None:
    server.looks_until_done = 10**9
    world.head = "[generate]\npatience_s = 0.5"
    server.faults.on = {"GET /v1/batches/batch_0": lambda: server.faults.statuses.update({"GET": [503] * 10**4})}
    with pytest.raises(CircuitOpen):
        world.generate()
    with batch_server.serve(server.folder) as other:
        world.teachers[0]["base_url"] = other.url
        assert world.generate().counts["complete"] == 2 * ROWS
        assert other.sizes == [24] and server.sizes == []


def test_a_batch_of_which_nothing_is_known_is_not_paid_again_unasked(world: World, server: Any) -> None:
    world.generate()
    (path,) = world.run.glob("generate/stub/batches/*.json")
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {"batch": ""}))
    (world.run / "generate" / "stub" / "part-00000.jsonl").unlink()
    server.faults.statuses = {"GET /v1/batches": [405] * 1000}  # more than are tried before patience ends
    with pytest.raises(TeacherError, match=r"a batch may have been submitted.*cannot list its batches"):
        world.generate(fresh=True)
    server.faults.statuses.clear()
    world.generate(fresh=True)
    assert len(world.records()) == 2 * ROWS and len(server.batches) == 1


def test_a_file_that_was_uploaded_before_a_kill_is_not_uploaded_again(world: World, server: Any) -> None:
    world.generate()
    (path,) = world.run.glob("generate/stub/batches/*.json")
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {"batch": ""}))
    (world.run / "generate" / "stub" / "part-00000.jsonl").unlink()
    (server.folder / "batch_0.json").unlink()
    (server.folder / "file-out-batch_0").unlink()
    world.generate(fresh=True)
    assert len(world.records()) == 2 * ROWS and len(server.batches) == 1
    assert [each.name for each in server.folder.glob("file-[0-9]*")] == ["file-0"]
    assert {state["file"] for state in states(world)} == {"file-0"}


def test_a_batch_that_the_server_no_longer_has_is_for_the_user_to_pay_again(world: World, server: Any) -> None:
    world.generate()
    (path,) = world.run.glob("generate/stub/batches/*.json")
    (world.run / "generate" / "stub" / "part-00000.jsonl").unlink()
    (server.folder / "batch_0.json").unlink()
    with pytest.raises(CircuitOpen, match=rf"HTTP 404.*remove {path}"):
        world.generate(fresh=True)
    path.unlink()
    world.generate(fresh=True)
    assert set(server.paid.values()) == {2}


def test_what_follows_from_answers_goes_into_one_further_batch(world: World, server: Any) -> None:
    world.teachers[0] |= {"samples": 4, "until.correct": 1}
    manifest = world.generate()
    assert len(server.sizes) == 4 and server.sizes[0] == ROWS
    assert manifest.counts["traces"] == sum(server.sizes)


def test_a_resend_is_a_single_request(world: World, tmp_path: Path) -> None:
    from servers import stub_server

    world.generate()
    record = world.records()[0]
    with stub_server.serve() as url:
        world.teachers[0]["base_url"] = url
        assert replay(world.recipe(), world.run, record["id"], resend=True)["equal"]


def test_tokens_of_a_batch_cost_their_share(world: World) -> None:
    world.teachers[0] |= {"price.input": 4.0, "price.output": 8.0}
    (who,) = world.recipe().teachers
    assert who.token_cost(1e6, 1e6) == 6.0 and who.direct.token_cost(1e6, 1e6) == 12.0
    world.teachers[0]["batch.price_share"] = 0.25
    (who,) = world.recipe().teachers
    assert who.token_cost(1e6, 0) == 1.0


def test_a_key_is_sent_with_every_call_and_shown_nowhere(
    world: World, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCH_KEY", "sk-very-secret-1234")
    world.teachers[0]["api_key_env"] = "BATCH_KEY"
    world.generate()
    assert {headers.get("Authorization") for headers in server.headers} == {"Bearer sk-very-secret-1234"}
    written = [path for path in world.run.rglob("*") if path.is_file()]
    assert written and not [path for path in written if b"sk-very-secret-1234" in path.read_bytes()]


def test_the_last_batch_of_a_request_counts_where_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now in (2000.0, 1000.0, 1000.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        begun, _ = FolderRecords(tmp_path).begin(["row"], 0) or (None, 0)
    assert FolderRecords(tmp_path).find(["row"])[0]["row"] == begun
