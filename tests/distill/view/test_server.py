"""The server of `distill view`: for this machine and its page only; bad requests; labels that are never lost."""

import random
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from servers.view_servers import Visitor, make_read_only, unfiltered, viewed

from distill.artifacts.manifest import Manifest
from distill.errors import BusyError
from distill.trace_records.human_labels import LabelJournal, read_labels
from distill.view.server import view_run
from distill.view.trace_table import Query, TraceTable


def test_a_deleted_run_is_an_error_and_not_0_traces(run: Path, visitor: Visitor) -> None:
    assert visitor.ask("/api/state")[0] == 200
    trace = visitor.ask("/api/traces?limit=1")[1]["rows"][0]["id"]
    run.rename(run.with_name("elsewhere"))
    for path in ("state", "traces?limit=1", "agreement", "students", "replies", "policy"):
        status, body, _ = visitor.ask(f"/api/{path}")
        gone = f"{run}: no run directory with traces; it was moved or deleted while this page was open"
        assert (status, body["error"]) == (400, gone)
    assert visitor.ask("/api/labels", {"trace": trace, "label": "wrong"})[0] == 400
    assert visitor.ask("/")[0] == 200  # the page tells it
    run.with_name("elsewhere").rename(run)
    assert visitor.ask("/api/state")[0] == 200


@pytest.mark.slow
def test_a_confirmed_label_survives_a_killed_server(run: Path, tmp_path: Path) -> None:
    here, chance, confirmed = Path(shutil.copytree(run, tmp_path / "run")), random.Random(0), {}
    traces = [row["id"] for row in TraceTable(here).search(Query())["rows"]]
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-m", "distill", "view", str(here)], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            visitor = Visitor(server.stdout.readline().strip())
            for number in range(chance.randrange(3, 9)):
                trace, label = traces[number], chance.choice(("correct", "wrong", "unsure"))
                assert visitor.ask("/api/labels", {"trace": trace, "label": label})[0] == 200
                confirmed[trace] = label
            server.send_signal(signal.SIGKILL)
        assert {trace: label.label for trace, label in read_labels(here).items()} == confirmed


def test_the_address_with_the_token_sets_a_cookie_and_shows_no_token_afterwards(run: Path) -> None:
    with viewed(run) as (visitor, address):
        status, _, headers = visitor.ask(address.partition(str(visitor.port))[2], Cookie=None)
        assert (status, headers["Location"]) == (303, "/")
        assert "HttpOnly" in headers["Set-Cookie"] and "SameSite=Strict" in headers["Set-Cookie"]
        status, page, headers = visitor.ask("/")
        assert status == 200 and b"view.js" in page and "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_requests_without_the_token_of_other_hosts_and_of_other_pages_get_nothing(visitor: Visitor) -> None:
    paths = ("/", "/view.js", "/api/state", "/api/traces", "/api/traces/aa", "/api/agreement", "/picture/a/0")
    for path in (*paths, "/?token=guess"):
        assert visitor.ask(path, Cookie=None)[0] == 403
        assert visitor.ask(path, Cookie=f"distill_view_{visitor.port}=guess")[0] == 403
        assert visitor.ask(path, Host=f"evil.example:{visitor.port}")[0] == 403
    label = {"trace": "aa", "label": "wrong"}
    for origin in (None, "null", "http://evil.example", f"https://127.0.0.1:{visitor.port}"):
        assert visitor.ask("/api/labels", label, Origin=origin)[0] == 403
    assert visitor.ask("/api/agreement")[1]["labels"] == 0


def test_no_path_leads_out_of_the_run(visitor: Visitor) -> None:
    for path in ("../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "picture/..%2f..%2f/0"):
        assert visitor.ask(f"/{path}")[0] in (400, 404)
    for path in ("/picture/unknown/0", "/picture/unknown/-1", f"/picture/{'9' * 40}/{'9' * 40}"):
        assert visitor.ask(path)[0] in (400, 404)


def test_no_image_is_sent_but_an_image_of_the_run(run: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(run, tmp_path / "run"))
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    script = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script></svg>"
    with viewed(here) as (visitor, _):
        sample = visitor.ask("/api/traces")[1]["rows"][0]["sample_id"]
        path = Path(TraceTable(here).samples([sample])[sample]["images"][0]["path"])
        whole = path.read_bytes()
        try:
            assert visitor.ask(f"/picture/{sample}/0")[2]["X-Content-Type-Options"] == "nosniff"
            for content in (script, b"<html><script>alert(1)</script>", whole + script, b"GIF89a" + script, None):
                path.unlink()
                path.symlink_to(secret) if content is None else path.write_bytes(content)
                status, body, headers = visitor.ask(f"/picture/{sample}/0")
                assert status == 404 and headers["Content-Type"].startswith("application/json"), content
                assert "hunter2" not in str(body)
        finally:
            path.unlink()
            path.write_bytes(whole)


@pytest.mark.slow
def test_ten_thousand_requests_leave_the_server_as_it_was(visitor: Visitor) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    own = f"Host: 127.0.0.1:{visitor.port}\r\nCookie: {visitor.cookie}"
    requests = [  # with their statuses
        (f"GET /api/agreement HTTP/1.1\r\n{own}\r\n\r\n", b"200"),
        (f"GET /api/agreement HTTP/1.1\r\nHost: 127.0.0.1:{visitor.port}\r\n\r\n", b"403"),
        (f"GET /../../etc/passwd HTTP/1.1\r\n{own}\r\n\r\n", b"404"),
        ("GET /?token=guess HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
        (
            f"POST /api/labels HTTP/1.1\r\n{own}\r\nOrigin: http://evil.example\r\nContent-Length: 2\r\n\r\n{{}}",
            b"403",
        ),
    ]
    visitor.ask("/api/state")
    before = open_files()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", visitor.port), timeout=30) as connection:
            answers = connection.makefile("rb")
            for _ in range(100):
                connection.sendall("".join(text for text, _ in requests).encode())
                for _, status in requests:
                    assert answers.readline().split()[1] == status
                    length = 0
                    while (line := answers.readline().strip()) != b"":
                        length = int(line.split()[1]) if line.lower().startswith(b"content-length") else length
                    answers.read(length)
            answers.close()
    assert visitor.ask("/api/traces")[1]["total"] > 0 and visitor.ask("/api/agreement")[1]["labels"] == 0
    assert open_files() <= before + 2


def test_a_trace_comes_with_its_image_rules_and_label(visitor: Visitor) -> None:
    dropped = visitor.ask("/api/traces?fate=dropped&rule=wrong_answer&limit=3")[1]["rows"]
    trace = visitor.ask(f"/api/traces/{dropped[0]['id']}")[1]
    assert trace["question"] and trace["gold"] and trace["label"] is None
    drops = {rule["rule"]: rule["drops"] for rule in trace["rules"]}
    own = visitor.ask("/api/policy")[1]["rules"]
    assert drops["wrong_answer"] and not drops["repetition"] and drops.keys() >= {rule["name"] for rule in own}
    (passed,) = [rule for rule in trace["rules"] if rule["rule"] == "repetition"]
    assert passed["condition"].startswith("repetition_ngram >") and 0 <= passed["values"]["repetition_ngram"] < 1
    assert {"answer", "steps"} <= {family["name"] for family in trace["families"]}
    status, data, headers = visitor.ask(f"/picture/{trace['sample_id']}/0")
    assert status == 200 and headers["Content-Type"] == "image/png" and data.startswith(b"\x89PNG")
    assert visitor.ask("/api/labels", {"trace": trace["id"], "label": "wrong", "note": "<b>no</b>"})[0] == 200
    assert visitor.ask(f"/api/traces/{trace['id']}")[1]["label"]["note"] == "<b>no</b>"
    rates = visitor.ask("/api/agreement")[1]
    assert (rates["labels"], rates["false_accept"]["of"]) == (1, 1)


def test_a_label_for_a_trace_that_the_run_does_not_have_is_refused(
    run: Path, visitor: Visitor, tmp_path: Path
) -> None:
    for place in (run, unfiltered(run, tmp_path)):
        with viewed(place) if place != run else nullcontext((visitor, "")) as (asking, _):
            assert asking.ask("/api/labels", {"trace": "aa", "label": "wrong"})[0] == 404  # also before any search
            real = asking.ask("/api/traces")[1]["rows"][0]["id"]
            for trace in ("aa", "", None, 3, real[:8], real + "0", "' OR true --", "x" * 9_000):
                status, told, _ = asking.ask("/api/labels", {"trace": trace, "label": "wrong"})
                assert status == 404 and told["error"].startswith("no trace ") and len(told["error"]) < 300
            assert asking.ask("/api/labels", {"label": "wrong"})[0] == 404
            assert read_labels(place) == {} and asking.ask("/api/state")[1]["labelled"] == 0
            assert asking.ask("/api/labels", {"trace": real, "label": "wrong"})[0] == 200
            assert list(read_labels(place)) == [real]


def test_bad_requests_get_an_error_sentence(visitor: Visitor) -> None:
    trace = visitor.ask("/api/traces")[1]["rows"][0]["id"]
    assert "not an SQL condition" in visitor.ask(f"/api/traces?where={quote('steps >')}")[1]["error"]
    assert "whole number" in visitor.ask("/api/traces?offset=-1")[1]["error"]
    assert (
        "choose one of correct, wrong, unsure" in visitor.ask("/api/labels", {"trace": trace, "label": 3})[1]["error"]
    )
    assert visitor.ask("/api/labels", b"no json")[0] == 400
    assert visitor.ask("/api/labels", b"x" * 100_000)[0] == 413
    assert visitor.ask("/api/traces/ffff")[0] == 400


def test_the_state_has_a_version_that_every_label_and_new_decisions_change(run: Path, visitor: Visitor) -> None:
    trace = visitor.ask("/api/traces")[1]["rows"][0]["id"]
    versions = [visitor.ask("/api/state")[1]["version"]]
    for label in ("wrong", "correct"):  # the second changes no number of labels
        visitor.ask("/api/labels", {"trace": trace, "label": label})
        versions.append(visitor.ask("/api/state")[1]["version"])
    manifest = (run / "filter/manifest.json").read_bytes()
    finished = Manifest.read(run / "filter")
    assert finished is not None
    replace(finished, created="2031-01-01").write(run / "filter")
    try:
        versions.append(visitor.ask("/api/state")[1]["version"])
    finally:
        (run / "filter/manifest.json").write_bytes(manifest)
    assert len({str(version) for version in versions}) == 4


def test_a_second_view_of_a_run_shows_and_does_not_label(run: Path, visitor: Visitor) -> None:
    with viewed(run) as (second, _):
        assert second.ask("/api/traces")[1]["total"] > 0
        status, told, _ = second.ask("/api/labels", {"trace": "aa", "label": "wrong"})
        assert status == 409 and "labels.jsonl" in told["error"]


@pytest.mark.parametrize("labelled", [False, True])
def test_a_read_only_run_is_shown_without_labelling(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labelled: bool
) -> None:
    here = Path(shutil.copytree(run, tmp_path / "run"))
    trace = TraceTable(here).search(Query(limit=1))["rows"][0]["id"]
    if labelled:
        journal = LabelJournal(here)
        journal.add({"trace": trace, "label": "wrong"})
        journal.close()
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    make_read_only(here, monkeypatch)
    with viewed(here) as (visitor, told):
        line = visitor.ask("/api/state")[1]["labelling_off"]
        assert line.startswith("labelling is off: ") and "Read-only file system" in line
        assert told.splitlines()[1:] == [line]
        assert bool(visitor.ask(f"/api/traces/{trace}")[1]["label"]) is labelled
        status, refusal, _ = visitor.ask("/api/labels", {"trace": trace, "label": "correct"})
        assert (status, refusal["error"]) == (409, line)
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


def test_a_port_in_use_is_an_error_with_the_next_step(run: Path) -> None:
    with viewed(run) as (visitor, _), pytest.raises(BusyError, match=rf"port {visitor.port} .* --port"):
        view_run(run, port=visitor.port, on_start=lambda address: None)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_person_ends_the_view_without_an_error(run: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "distill", "view", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        assert "token=" in server.stdout.readline()
        server.send_signal(how)
        assert server.wait(20) == 0 and server.stderr.read() == ""
