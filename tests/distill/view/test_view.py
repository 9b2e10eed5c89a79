"""`distill view`: the traces of a run as a table, labels that are never lost, and a server for this machine only."""

import json
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_fixtures import generate_folder, recipe, small_world
from view_servers import Visitor, make_read_only, viewed

from distill.artifacts.journal import Journal
from distill.artifacts.layout import rollouts_folder
from distill.artifacts.manifest import Manifest
from distill.errors import BusyError, DataError, RecipeError, StorageError
from distill.recipe.loading import load
from distill.trace_records import scores
from distill.trace_records.human_labels import LabelJournal, TraceLabel, compare_with_judge, read_labels
from distill.view.policy import compare_policy, policy, write_policy
from distill.view.server import view_run
from distill.view.trace_facts import marks, trace_facts
from distill.view.trace_table import Query, TraceTable
from filters.apply import apply


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filtered run."""
    folder = tmp_path_factory.mktemp("view")
    generate_folder(folder / "run", *small_world(folder / "pictures", questions=8))
    settings = recipe(folder)
    apply(settings, folder / "run")
    (folder / "run" / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    return folder / "run"


@pytest.fixture
def visitor(run: Path) -> Iterator[Visitor]:
    with viewed(run) as (visitor, _):
        yield visitor
    shutil.rmtree(run / "labels", ignore_errors=True)


def unfiltered(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("filter", "labels"))
    return folder / "run"


# --- the table ------------------------------------------------------------------------------------------------------


def test_facets_add_up_to_all_traces_and_a_chosen_value_narrows_them(run: Path) -> None:
    table = TraceTable(run)
    everything = table.search(Query())
    fates = dict(everything["facets"]["fate"])
    assert sum(fates.values()) == everything["total"] == len(table.search(Query(limit=1000))["rows"])
    dropped = table.search(Query(chosen={"fate": ["dropped"]}, limit=1000))
    assert dropped["total"] == fates["dropped"] == len(dropped["rows"])
    assert {row["fate"] for row in dropped["rows"]} == {"dropped"}
    rule, count = dropped["facets"]["rule"][0]
    of_rule = table.search(Query(chosen={"rule": [rule]}, limit=1000))
    assert of_rule["total"] == count and all(rule in row["rules"] for row in of_rule["rows"])


def test_values_of_one_heading_are_joined_by_or_and_each_shows_what_it_would_add(run: Path) -> None:
    table = TraceTable(run)
    fates = dict(table.search(Query())["facets"]["fate"])
    found = table.search(Query(chosen={"fate": ["dropped"], "teacher": ["brief"]}))
    assert found["total"] == table.search(Query(where="fate = 'dropped' AND teacher = 'brief'"))["total"] > 0
    of_brief = dict(table.search(Query(where="teacher = 'brief'"))["facets"]["fate"])
    of_dropped = dict(table.search(Query(where="fate = 'dropped'"))["facets"]["teacher"])
    assert (dict(found["facets"]["fate"]), dict(found["facets"]["teacher"])) == (of_brief, of_dropped)
    both = table.search(Query(chosen={"fate": list(fates)}))
    assert both["total"] == sum(fates.values()) and dict(both["facets"]["fate"]) == fates


def test_conditions_words_and_orders_are_those_of_sql(run: Path) -> None:
    table = TraceTable(run)
    wrong = table.search(Query(where="answer_verdict = 'wrong' -- as rules say", limit=1000))
    assert wrong["total"] == dict(table.search(Query())["facets"]["answer_verdict"])["wrong"]
    ordered = table.search(Query(order="-rationale_tokens", limit=1000))["rows"]
    tokens = [row["rationale_tokens"] for row in ordered if row["rationale_tokens"] is not None]
    assert tokens == sorted(tokens, reverse=True)
    question = ordered[0]["question"]
    word = max(question.split(), key=len)
    found = table.search(Query(words=word.upper(), limit=1000))["rows"]
    assert found and all(word.lower() in row["question"].lower() for row in found)
    first, second = (table.search(Query(limit=5, offset=offset))["rows"] for offset in (0, 5))
    assert not {row["id"] for row in first} & {row["id"] for row in second}


@pytest.mark.parametrize(
    "where",
    [
        "answer_verdict",
        "true) UNION SELECT 1 --",
        "(SELECT count(*) FROM traces) > 0",
        "read_text('/etc/passwd') <> ''",
        "no_such_column = 1",
        "steps >",
    ],
)
def test_what_is_no_condition_on_one_trace_is_refused(run: Path, where: str) -> None:
    with pytest.raises(RecipeError, match="condition = "):
        TraceTable(run).search(Query(where=where))


def test_an_unknown_column_to_order_by_names_the_columns(run: Path) -> None:
    with pytest.raises(DataError, match=r"no column of this run.*rationale_tokens"):
        TraceTable(run).search(Query(order='id" DESC; DROP TABLE labels; --'))


def test_a_run_that_is_being_generated_grows_and_gets_its_decisions(run: Path, tmp_path: Path) -> None:
    here = unfiltered(run, tmp_path)
    journal = sorted((here / "generate").glob("*/part-*.jsonl"))[0]
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + lines[2][:40])  # the third record is not whole yet
    table = TraceTable(here)
    table.refresh()
    before = table.search(Query())["total"]
    journal.write_bytes(b"".join(lines))
    table.refresh()
    after = table.search(Query(where="outcome = 'complete'", limit=1000))
    assert table.search(Query())["total"] == before + len(lines) - 2
    assert {row["fate"] for row in after["rows"]} == {"not filtered"} and after["rows"][0]["question"]
    shutil.copytree(run / "filter", here / "filter")
    table.set_label(after["rows"][0]["id"], "wrong")
    table.refresh()
    assert table.filtered and table.search(Query(chosen={"label": ["wrong"]}))["total"] == 1


def test_a_finished_record_replaces_an_error_and_never_the_other_way_round(run: Path, tmp_path: Path) -> None:
    here = unfiltered(run, tmp_path)
    journal = sorted((here / "generate").glob("*/part-*.jsonl"))[0]
    record = orjson.loads(journal.read_bytes().splitlines()[0])
    failed = {name: value for name, value in record.items() if name != "crc"} | {"outcome": "error", "error": "503"}
    new = failed | {"id": "ab" * 10}
    with Journal(journal) as open_journal:
        for each in (failed, new):
            open_journal.append(each)
    table = TraceTable(here)
    table.refresh()
    assert table.search(Query(where=f"id = '{record['id']}'"))["facets"]["outcome"] == [(record["outcome"], 1)]
    with Journal(journal) as open_journal:
        open_journal.append(new | {"outcome": "complete"})
    table.refresh()
    assert table.search(Query(where=f"id = '{new['id']}'"))["facets"]["outcome"] == [("complete", 1)]


@pytest.mark.parametrize("filtered", [True, False])
def test_a_trace_brings_the_texts_of_the_other_traces_of_its_question(
    run: Path, tmp_path: Path, filtered: bool
) -> None:
    table = TraceTable(run if filtered else unfiltered(run, tmp_path))
    table.refresh()
    facts = trace_facts(table, table.search(Query(limit=1))["rows"][0]["id"])
    others = [trace_facts(table, one["id"]) for one in facts["siblings"]]
    assert len(others) == 3 and {one["sample_id"] for one in others} == {facts["sample_id"]}
    assert [(one["text"], one["answer"]) for one in facts["siblings"]] == [
        (one["reasoning"] or one["text"], one["answer"]) for one in others
    ]


def test_a_folder_without_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run directory with traces"):
        TraceTable(tmp_path)


def test_a_run_that_is_gone_is_told_and_has_not_0_traces(run: Path, visitor: Visitor) -> None:
    assert visitor.ask("/api/state")[0] == 200
    run.rename(run.with_name("elsewhere"))
    status, body, _ = visitor.ask("/api/state")
    assert (status, body["error"]) == (
        400,
        f"{run}: no run directory with traces; it was moved or deleted while this page was open",
    )
    run.with_name("elsewhere").rename(run)
    assert visitor.ask("/api/state")[0] == 200


def test_marks_stand_where_the_signals_say() -> None:
    text = "Blue is 42, red 4: 4 + 3 = 8."
    values = {
        "arithmetic_slip": json.dumps([{"written": "4 + 3 = 8", "expected": 7.0}]),
        "unsupported": json.dumps([{"value": "4", "expected": [5.0]}, {"value": "99", "expected": []}]),
    }
    assert [(text[mark["start"] : mark["end"]], mark["kind"], mark["note"]) for mark in marks(text, values)] == [
        ("4", "unsupported", "the table says 5"),
        ("4 + 3 = 8", "slip", "comes out as 7"),
    ]
    right, wrong = marks("Blue is 4, red 4.", {"unsupported": json.dumps([{"value": "4", "expected": []}])}, [(8, 9)])
    assert (right["start"], right["kind"], wrong["start"], wrong["kind"]) == (8, "supported", 15, "unsupported")


# --- labels -------------------------------------------------------------------------------------------------------


def test_the_last_label_of_a_trace_counts_and_a_second_writer_is_refused(tmp_path: Path) -> None:
    journal = LabelJournal(tmp_path)
    journal.add({"trace": "aa", "label": "wrong", "note": "reads 3"})
    journal.add({"trace": "aa", "label": "correct"})
    with pytest.raises(BusyError):
        LabelJournal(tmp_path)
    assert {trace: label.label for trace, label in read_labels(tmp_path).items()} == {"aa": "correct"}
    for wrong in ({"trace": "", "label": "wrong"}, {"trace": "a", "label": "maybe"}, {"label": "wrong"}):
        with pytest.raises(DataError):
            journal.add(wrong)
    journal.close()


def test_a_run_that_is_deleted_under_view_is_no_error_unless_labels_are_lost(tmp_path: Path) -> None:
    for labels in (0, 1):
        journal = LabelJournal(tmp_path / "run")
        for _ in range(labels):
            journal.add({"trace": "aa", "label": "wrong"})
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(StorageError, match="was deleted") if labels else nullcontext():
            journal.close()


def test_rates_against_the_judge_count_decided_labels_of_judged_traces() -> None:
    given = ["wrong"] * 4 + ["correct"] * 5 + ["unsure", "wrong"]
    labels = {f"t{place}": TraceLabel(trace=f"t{place}", label=label) for place, label in enumerate(given)}  # type: ignore[arg-type]
    verdicts = [
        "correct",
        "wrong",
        "wrong",
        "wrong",
        "correct",
        "correct",
        "wrong",
        "undecided",
        "correct",
        "correct",
    ]
    found = compare_with_judge(labels, {f"t{place}": verdict for place, verdict in enumerate(verdicts)})
    assert (found["false_accept"]["n"], found["false_accept"]["of"]) == (1, 4)
    assert (found["false_reject"]["n"], found["undecided"]["n"], found["undecided"]["of"]) == (1, 1, 5)
    assert found["labels"] == 11 and found["unsure"] == 1
    assert compare_with_judge({}, {})["false_accept"] == {"n": 0, "of": 0}


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


# --- the server ---------------------------------------------------------------------------------------------------


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


def test_no_picture_is_sent_but_an_image_of_the_run(run: Path, tmp_path: Path) -> None:
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


def test_a_trace_comes_with_its_picture_rules_and_label(visitor: Visitor) -> None:
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


def test_bad_requests_are_told_in_a_sentence(visitor: Visitor) -> None:
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
    (run / "filter/manifest.json").write_bytes(orjson.dumps(orjson.loads(manifest) | {"created": "2031-01-01"}))
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


def test_a_port_in_use_is_told_with_the_next_step(run: Path) -> None:
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


# --- the policy bench -----------------------------------------------------------------------------------------------


def test_the_policy_of_the_run_changes_nothing_and_another_one_is_compared_with_it(run: Path) -> None:
    table = TraceTable(run)
    own = policy(table)
    same = compare_policy(table, own)
    assert same["total"]["kept"] == same["total"]["now_kept"] > 0
    assert {name: one["count"] for name, one in same["moved"].items()} == dict.fromkeys(same["moved"], 0)
    wider = [rule for rule in own["rules"] if rule["name"] != "wrong_answer"]
    found = compare_policy(table, {"rules": wider, "per_question": 2})
    assert found["total"]["now_kept"] > found["total"]["kept"]
    assert found["reasons"]["wrong_answer"][0] > 0 == found["reasons"]["wrong_answer"][1]
    lines = tomllib.loads(found["recipe"])["filter"]
    assert lines["select"] == {"per_question": 2}
    assert [rule["name"] for rule in lines["rules"]] == [rule["name"] for rule in wider]


def test_a_threshold_comes_with_the_range_of_its_column(run: Path) -> None:
    (rule,) = [rule for rule in policy(TraceTable(run))["rules"] if rule["name"] == "repetition"]
    threshold = rule["threshold"]
    assert threshold["column"] == "repetition_ngram" and 0 <= threshold["low"] <= threshold["high"] <= 1


def test_a_policy_that_cannot_be_right_names_the_rule(visitor: Visitor, tmp_path: Path, run: Path) -> None:
    told = visitor.ask("/api/policy", {"rules": [{"name": "long", "drop": "no_column > 3"}], "per_question": None})
    assert told[0] == 400 and "filter.rules.long" in told[1]["error"] and "no_column" in told[1]["error"]
    assert "a list of rules" in visitor.ask("/api/policy", {"rules": "all"})[1]["error"]
    with pytest.raises(DataError, match="not filtered yet"):
        policy(TraceTable(unfiltered(run, tmp_path)))


def test_the_policy_is_written_to_a_recipe_only_if_it_is_named_and_other_lines_stay(
    run: Path, visitor: Visitor, tmp_path: Path
) -> None:
    rules = visitor.ask("/api/policy")[1]["rules"]
    asked = {"rules": [{"name": rule["name"], "drop": rule["drop"]} for rule in rules], "per_question": 3}
    assert visitor.ask("/api/policy/write", asked)[0] == 409
    head, _, _ = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")
    kept = asked["rules"][0]
    mine = tmp_path / "mine.toml"
    mine.write_text(
        f"# my recipe\n{head}\n[[filter.rules]] # first\nname = {kept['name']!r}\n"
        f"drop = '''{kept['drop']}'''  # kept\n\n"
        '[[filter.rules]]\nname = "gone"\ndrop = "steps > 90"\n# about the selection\n'
        "[filter.select]  # mine\nlimit = 30\n",
        encoding="utf-8",
    )
    table = TraceTable(run)
    write_policy(table, asked, mine)
    written = mine.read_text(encoding="utf-8")
    assert "# my recipe" in written and "# first" in written and "# kept" in written
    assert "# about the selection\n[filter.select]  # mine" in written and "gone" not in written
    after = load(mine).filter
    assert [(rule.name, rule.drop) for rule in after.rules] == [(one["name"], one["drop"]) for one in asked["rules"]]
    assert (after.select.per_question, after.select.limit) == (3, 30)
    write_policy(table, asked, mine)
    assert mine.read_text(encoding="utf-8") == written


def test_a_recipe_of_another_form_is_not_written(run: Path, tmp_path: Path) -> None:
    table, mine = TraceTable(run), tmp_path / "mine.toml"
    text = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")[0]
    inline = f'{text}\n[filter]\nrules = [{{ name = "long", drop = "steps > 90" }}]\n'
    mine.write_text(inline, encoding="utf-8")
    rules = [{"name": "short", "drop": "steps < 1"}]
    with pytest.raises(DataError, match="by hand"):
        write_policy(table, {"rules": rules, "per_question": None}, mine)
    with pytest.raises(RecipeError, match="no_column"):
        write_policy(table, {"rules": [{"name": "short", "drop": "no_column < 1"}], "per_question": None}, mine)
    assert mine.read_text(encoding="utf-8") == inline
    mine.write_text(text, encoding="utf-8")
    write_policy(table, {"rules": rules, "per_question": 1}, mine)
    assert [rule.name for rule in load(mine).filter.rules] == ["short"]
    assert load(mine).filter.select.per_question == 1


def test_a_limit_of_the_run_can_be_taken_away_on_the_page(run: Path, tmp_path: Path) -> None:
    here = tmp_path / "run"
    shutil.copytree(run, here, ignore=shutil.ignore_patterns("labels"))
    text = (here / "recipe.toml").read_text(encoding="utf-8")
    limited = text.replace("[filter.select]\n", "[filter.select]\nper_question = 1\n")
    (here / "recipe.toml").write_text(limited, encoding="utf-8")
    table = TraceTable(here)
    asked = {"rules": policy(table)["rules"][:1], "per_question": None}
    found = compare_policy(table, asked)
    assert found["total"]["now_selected"] == found["total"]["now_kept"]
    assert "per_question = " not in found["recipe"] and "remove per_question" in found["recipe"]
    write_policy(table, asked, here / "recipe.toml")
    assert load(here / "recipe.toml").filter.select.per_question is None


def test_the_lines_for_the_recipe_fit_into_one_that_has_a_section_of_the_filter(run: Path) -> None:
    found = compare_policy(TraceTable(run), {"rules": [{"name": "long", "drop": "steps > 9"}], "per_question": 2})
    assert tomllib.loads('[filter]\nrationale = "think"\n' + found["recipe"])["filter"]["select"]["per_question"] == 2


RULE = '[[filter.rules]]\n# why\ndrop = "steps > 90"  # ninety\nname = "long"\n'


@pytest.mark.parametrize("drop", ["steps > 90", "steps > 80"])
def test_a_written_recipe_keeps_comments_line_endings_mark_mode_and_secrets(
    run: Path, tmp_path: Path, drop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "open-sesame-1")
    mine = tmp_path / "mine.toml"
    head = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")[0]
    text = f"# a comment with open-sesame-1\n{head}{RULE}"
    mine.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    mine.chmod(0o600)
    write_policy(TraceTable(run), {"rules": [{"name": "long", "drop": drop}], "per_question": None}, mine)
    expected = text.replace("steps > 90", drop).rstrip() + "\n"
    assert mine.read_bytes() == b"\xef\xbb\xbf" + expected.replace("\n", "\r\n").encode()
    assert mine.stat().st_mode & 0o777 == 0o600


def test_a_recipe_that_cannot_be_written_stays_and_says_so(run: Path, tmp_path: Path) -> None:
    table, mine = TraceTable(run), tmp_path / "mine.toml"
    head = (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")[0]
    text = f'{head}[[filter.rules]]\nname = "lists"\ndrop = """\n[1] = [2]\n"""\n'
    mine.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="by hand"):
        write_policy(table, {"rules": [{"name": "short", "drop": "steps < 1"}], "per_question": None}, mine)
    assert mine.read_text(encoding="utf-8") == text
    with pytest.raises(DataError, match="a shipped recipe is not written to"):
        view_run(run, recipe=Path("tiny"), port=0, on_start=lambda address: None)


# --- what became of a trace in the student --------------------------------------------------------------------------


def test_a_trace_tells_what_became_of_it_in_the_student(tmp_path: Path) -> None:
    run = tmp_path / "run"
    generate_folder(run, *small_world(tmp_path / "pictures", questions=4))
    stage = '[[stages]]\nname = "{}"\ndata = "traces"\ntrain = ["language"]\n'
    settings = recipe(tmp_path, stage.format("first") + stage.format("second"))
    apply(settings, run)
    (run / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    table = TraceTable(run)
    rows = table.search(Query(limit=1000))["rows"]
    selected, dropped = (next(row for row in rows if row["fate"] == fate) for fate in ("selected", "dropped"))
    assert trace_facts(table, selected["id"])["student"] == []  # no stage has learned yet
    (run / "train" / "first").mkdir(parents=True)
    weighed = {"stage.visual.strength": 1.0, "stage.visual.least": 0.25, "stage.visual.most": 4.0}
    fields = weighed | {"scores.structured": "structured.jsonl"}
    Manifest(stage="train", fingerprint="x", fields=fields).write(run / "train" / "first")
    (run / scores.FOLDER).mkdir()
    with (run / scores.FOLDER / "structured.jsonl").open("wb") as journal:
        for view, values in ((scores.PICTURE, [-0.1, -0.1]), (scores.BLIND, [-3.0, -0.1])):
            scored = scores.ScoredText(
                "two dots", np.array([[1], [2]], "i4"), np.array(values, "f4")[:, None], np.array([3, 8], "i4")
            )
            journal.write(orjson.dumps(scores.record_of("x", selected["id"], view, scored)) + b"\n")
    pair = {
        "sample_id": selected["sample_id"],
        "reason": None,
        "chosen": selected["id"],
        "rejected": dropped["id"],
        "chosen_tokens": 9,
        "rejected_tokens": 7,
    }
    (run / "filter" / "arms" / "pairs").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([pair]), run / "filter" / "arms" / "pairs" / "pairs.parquet")
    replies = rollouts_folder(run, "second") / "train"
    replies.mkdir(parents=True)
    reply = {
        "sample_id": selected["sample_id"],
        "trace_id": "reply",
        "messages": [{"role": "assistant", "content": "<b>two</b>\n dots"}],
    }
    pq.write_table(pa.Table.from_pylist([reply]), replies / "part-00000.parquet")
    facts = trace_facts(table, selected["id"])
    assert facts["student"] == [
        "learned in stage first",
        f"pair: chosen, with {dropped['id']} rejected (9 and 7 tokens)",
    ]
    (title, weights), replied = facts["lines"]
    seen, unseen = (float(word) for word in re.findall(r"\[([\d.]+)\]", weights))
    assert title == "Weights of its tokens by the picture, first" and seen > 1 > unseen
    assert replied == ["Replies of the student, second", "not scored: <b>two</b> dots"]
    assert not any("learned" in line for line in trace_facts(table, dropped["id"])["student"])
