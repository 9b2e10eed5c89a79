"""A view of a run that other commands and other views change at the same moment."""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from servers.view_servers import viewed
from worlds.run_fixtures import generate_folder, recipe, small_world

from distill.artifacts.journal import Journal, read_jsonl, write_jsonl
from distill.errors import DataError
from distill.trace_records import human_labels
from distill.trace_records.human_labels import LabelJournal
from distill.view import server, trace_table
from distill.view.trace_facts import trace_facts
from distill.view.trace_journals import TraceJournals
from distill.view.trace_table import Query, TraceTable
from filters.apply import apply


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that is not filtered."""
    generate_folder(tmp_path / "run", *small_world(tmp_path / "pictures", questions=3))
    return tmp_path / "run"


def journal_of(run: Path) -> Path:
    return sorted((run / "generate").glob("*/part-*.jsonl"))[0]


def test_traces_are_all_there_when_generate_has_written_a_journal_without_its_errors(run: Path) -> None:
    """Records move to the front, so what is new may begin before the last place that was read."""
    path = journal_of(run)
    records = list(read_jsonl(path))
    errors = [records[0] | {"id": f"{number:020x}", "outcome": "error", "error": "503 " * 200} for number in range(5)]
    write_jsonl(path, [*errors, *records[:-1]])
    table = TraceTable(run)
    table.refresh()
    before = table.search(Query())["total"]
    write_jsonl(path, records[:-1])
    with Journal(path) as journal:
        journal.append(records[-1])
    table.refresh()
    assert table.search(Query())["total"] == before - len(errors) + 1
    assert [trace_facts(table, record["id"])["id"] for record in records] == [record["id"] for record in records]


def test_traces_whose_insertion_failed_once_are_there_the_next_time(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TraceTable(run)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(TraceJournals, "_insert", fail)
        table.refresh()
    table.refresh()
    assert table.search(Query())["total"] == sum(
        1 for part in run.glob("generate/*/part-*") for _ in read_jsonl(part)
    )


def test_a_filter_stage_that_could_not_be_read_once_is_read_the_next_time(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TraceTable(run)
    apply(recipe(tmp_path), run)

    def moved(*_: object, **__: object) -> None:
        raise DataError("filter is made again at this moment")

    with monkeypatch.context() as patched, pytest.raises(DataError, match="again"):
        patched.setattr(trace_table, "require_finished", moved)
        table.refresh()
    table.refresh()
    assert table.filtered and table.search(Query())["total"]


def test_a_label_that_another_view_gave_last_is_known(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(path: Path) -> Journal:
        monkeypatch.undo()
        other = LabelJournal(run)
        other.add({"trace": "aa", "label": "wrong"})
        other.close()
        return Journal(path)

    monkeypatch.setattr(human_labels, "Journal", late)
    labels = LabelJournal(run)
    assert labels.labels.keys() == {"aa"}
    labels.close()


def test_no_request_waits_for_a_query_of_another_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the table does not do so in the thread that answers all requests."""
    samples, loops = TraceTable.samples, set[threading.Thread]()

    def watched(table: TraceTable, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        callers.append(threading.current_thread())
        return samples(table, ids)

    callers: list[threading.Thread] = []
    monkeypatch.setattr(TraceTable, "samples", watched)
    monkeypatch.setattr(TraceTable, "prepare", lambda _: None)
    with viewed(run) as (visitor, _):
        loops |= {each for each in threading.enumerate() if "asyncio" not in each.name}
        assert visitor.ask("/picture/unknown/0")[0] == 404
        assert visitor.ask("/api/ask", {"sample_id": "unknown"})[0] == 400
    assert len(callers) == 2 and not loops & {*callers}
    shutil.rmtree(run / "labels")


def test_the_first_counts_are_made_before_a_browser_asks(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, count = threading.Event(), TraceTable._counted

    def watched(table: TraceTable, *arguments: Any) -> list[dict[str, Any]]:
        found = count(table, *arguments)
        counted.set()
        return found

    monkeypatch.setattr(TraceTable, "_counted", watched)
    with viewed(run):
        assert counted.wait(20)
    shutil.rmtree(run / "labels")


def test_a_view_that_ends_while_it_counts_ends_the_query(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), list[str]()

    def slow(table: TraceTable) -> None:
        begun.set()
        try:
            table._rows("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b")
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    monkeypatch.setattr(TraceTable, "prepare", slow)
    with viewed(run):
        assert begun.wait(20)
    assert ended == ["DataError"]
    shutil.rmtree(run / "labels")


def test_a_query_that_begins_after_an_interrupt_of_the_end_is_interrupted_too(run: Path) -> None:
    table, interrupts = TraceTable(run), list[bool]()
    table.close()
    table._lock.acquire()  # by the thread of a query that has not begun

    def interrupt() -> None:
        interrupts.append(table._lock.locked())
        if len(interrupts) == 2:
            table._lock.release()

    table._database = SimpleNamespace(interrupt=interrupt, close=lambda: None)
    closing = threading.Thread(target=table.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive() and interrupts[:2] == [True, True]


def test_many_journals_are_read_bit_by_bit(run: Path) -> None:
    """The page shows what is read while the rest is being read, and nothing is read twice or left out."""
    records = sorted(record["id"] for part in run.glob("generate/*/part-*") for record in read_jsonl(part))
    table, sizes = TraceTable(run), list[int]()
    while not sizes or table.unread:
        table.refresh(5)
        sizes.append(table.search(Query())["total"])
    assert sizes == [*range(5, len(records), 5), *([len(records)] * (2 - bool(len(records) % 5)))]
    assert sorted(row["id"] for row in table.search(Query(limit=1000))["rows"]) == records


def test_a_trace_that_is_not_read_yet_can_be_labelled(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = [record["id"] for part in sorted(run.glob("generate/*/part-*")) for record in read_jsonl(part)][-1]
    monkeypatch.setattr(server, "_READ_AT_ONCE", 1)
    with viewed(run) as (visitor, _):
        assert visitor.ask("/api/state")[1]["unread"]
        assert visitor.ask("/api/labels", {"trace": last, "label": "wrong"})[0] == 200
    shutil.rmtree(run / "labels")
