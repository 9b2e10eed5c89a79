"""The log of a run says why its page's server refused a request; a page that goes away costs the others nothing."""

import errno
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers.view_servers import Visitor, viewed
from worlds.run_fixtures import generate_folder, recipe, small_world

from distill.artifacts.layout import DECISIONS
from distill.artifacts.manifest import MANIFEST
from distill.errors import DataError
from distill.run_log import LOG, recording
from distill.trace_records.human_labels import read_labels
from distill.view import server, trace_table
from distill.view.trace_table import Query, TraceTable
from filters.apply import apply


@pytest.fixture
def run(tmp_path: Path) -> Path:
    generate_folder(tmp_path / "run", *small_world(tmp_path / "pictures", questions=3))
    apply(recipe(tmp_path), tmp_path / "run")
    shutil.copy(tmp_path / "recipe.toml", tmp_path / "run")
    return tmp_path / "run"


def logged(run: Path) -> list[str]:
    return [
        line["message"]
        for line in map(orjson.loads, (run / LOG).read_bytes().splitlines())
        if line["module"] == "distill.view.refusals" and line["level"] == "warning"
    ]


def raw(visitor: Visitor, path: str, *more: str, method: str = "GET") -> bytes:
    heads = [f"{method} {path} HTTP/1.1", f"Host: {server.HOST}:{visitor.port}", f"Cookie: {visitor.cookie}", *more]
    return ("\r\n".join(heads) + "\r\n\r\n").encode()


def send(visitor: Visitor, data: bytes) -> socket.socket:
    connection = socket.create_connection((server.HOST, visitor.port), timeout=10)
    connection.sendall(data)
    return connection


def until(is_so: Any) -> None:
    for _ in range(200):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_the_log_says_why_a_request_was_refused(run: Path) -> None:
    with recording(run, "view"), viewed(run) as (visitor, _):
        assert visitor.ask("/api/traces?where=nothing")[0] == 400
        assert visitor.ask("/nowhere")[0] == 404
        assert visitor.ask("/api/labels", b"{")[0] == 400
        assert visitor.ask("/api/labels", {"trace": "x", "label": "wrong"})[0] == 404
        assert visitor.ask("/?token=wrong", Cookie=None)[0] == 403
        assert visitor.ask("/api/traces?words=" + "many%20" * 2_000)[0] == 200
        for _ in range(5):
            visitor.ask("/api/traces?offset=-1")
    lines = logged(run)
    assert any(line.startswith("GET /api/traces: 400, condition = 'nothing': no column") for line in lines)
    assert "GET /nowhere: 404, Not Found" in lines
    assert "POST /api/labels: 400, the body is no JSON object" in lines
    assert any(line.startswith("POST /api/labels: 404, no trace 'x'") for line in lines)
    assert any(line.startswith("GET /: 403, open the address") for line in lines)
    assert [line for line in lines if "not a whole number" in line] == [
        f"GET /api/traces: 400, not a whole number{again}" for again in ("", " (time 2)", " (time 4)")
    ]
    assert "wrong" not in "".join(line for line in lines if "403" in line)  # no token


def test_what_is_no_request_and_a_request_that_is_cut_are_one_line_each(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with recording(run, "view"), viewed(run) as (visitor, _):
        address = f"Origin: http://{server.HOST}:{visitor.port}"
        with send(visitor, b"\x16\x03\x01 no HTTP\r\n\r\n") as connection:
            assert b" 400 " in connection.recv(100)
        with send(visitor, raw(visitor, "/api/traces?words=" + "x" * 200_000)) as connection:
            assert b" 400 " in connection.recv(100)
        send(visitor, raw(visitor, "/api/labels", address, "Content-Length: 70", method="POST") + b'{"trace"').close()
        until(lambda: visitor.ask("/api/state")[0] == 200)
    lines = [line for line in logged(run) if "cannot be read" in line]
    assert len(lines) == 2, logged(run)
    assert "Traceback" not in capfd.readouterr().err


def test_requests_of_pages_that_went_away_do_not_wait_for_their_turn(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def slow(_: TraceTable, name: str) -> dict[str, Any]:
        asked.append(name)
        time.sleep(0.2)
        raise DataError(name)

    monkeypatch.setattr(server, "trace_facts", slow)
    with viewed(run) as (visitor, _):
        opened = [send(visitor, raw(visitor, f"/api/traces/{number}")) for number in range(120)]
        until(lambda: asked)
        for connection in opened:
            connection.close()
        begin = time.monotonic()
        assert visitor.ask("/api/state")[0] == 200
        assert len(asked) < 100 and time.monotonic() - begin < 10


def test_a_label_of_a_page_that_goes_away_is_kept_as_a_whole_or_not_at_all(run: Path) -> None:
    with viewed(run) as (visitor, _):
        trace = visitor.ask("/api/traces")[1]["rows"][0]["id"]
        body = orjson.dumps({"trace": trace, "label": "correct"})
        address = f"Origin: http://{server.HOST}:{visitor.port}"
        for _ in range(10):
            data = raw(visitor, "/api/labels", address, f"Content-Length: {len(body)}", method="POST") + body
            send(visitor, data).close()
        until(lambda: trace in read_labels(run))
        until(lambda: visitor.ask(f"/api/traces/{trace}")[1]["label"])
        assert dict(visitor.ask("/api/traces?label=correct")[1]["facets"])["label"] == [["correct", 1]]


def test_a_search_during_another_filter_stage_is_made_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TraceTable(run)
    page, changed = TraceTable._page, threading.Event()

    def refiltered(self: TraceTable, *arguments: Any) -> list[dict[str, Any]]:
        if not changed.is_set():
            changed.set()
            (run / "filter" / MANIFEST).unlink()
            (run / "filter" / DECISIONS).unlink()
            self.refresh()
        return page(self, *arguments)

    monkeypatch.setattr(TraceTable, "_page", refiltered)
    found = table.search(Query())
    assert changed.is_set() and not table.filtered and found["total"] == len(found["rows"]) == 12
    assert "answer_verdict" not in found["facets"]


def test_a_run_that_is_filtered_at_this_moment_is_a_conflict(run: Path) -> None:
    with viewed(run) as (visitor, _):
        rules = visitor.ask("/api/policy")[1]["rules"]
        (run / "filter" / MANIFEST).unlink()
        status, told, _ = visitor.ask("/api/policy", {"rules": rules, "per_question": None})
        assert status == 409 and "run `distill filter` first" in told["error"]


def test_a_label_that_the_disk_refuses_has_a_next_step_for_the_page(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with viewed(run) as (visitor, _):
        trace = visitor.ask("/api/traces")[1]["rows"][0]["id"]
        label = {"trace": trace, "label": "wrong"}
        with monkeypatch.context() as patched:
            patched.setattr("distill.artifacts.journal.os.fsync", full)
            status, told, _ = visitor.ask("/api/labels", label)
        assert status == 400 and "free space" in told["error"] and "command" not in told["error"]
        assert told["error"].endswith("and then do it again on this page")
        assert visitor.ask("/api/labels", label)[0] == 200


def test_only_what_a_person_wrote_has_a_limit_of_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_table, "LIMIT_S", 0.0)
    table = TraceTable(run)
    for offset in range(20):
        table.search(Query(offset=offset, chosen={"fate": [f"{offset}"]}, order="-rationale_tokens"))
