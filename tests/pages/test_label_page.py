"""Labels on the page of `distill view` in a real browser: by keyboard, beside other pages, on a slow or full disk."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pages.browser import CHROMIUM, DESKTOP, Tab, browse, press, until
from pages.view_page import CHOSEN, LOADED
from servers.view_servers import make_read_only, viewed

from distill.errors import StorageError
from distill.trace_records.human_labels import LabelJournal, TraceLabel, read_labels
from distill.view import server
from distill.view.trace_table import TraceTable

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def test_a_person_filters_reads_and_labels_with_the_keyboard(run: Path) -> None:
    async def look(tab: Tab) -> tuple[list[str], list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await tab.evaluate("document.getElementById('where').value = \"answer_verdict = 'wrong'\"")
        await tab.evaluate("document.getElementById('ask').requestSubmit()")
        await until(tab, "document.getElementById('total').textContent.startsWith('8 ')")
        await until(tab, f"{LOADED} && document.querySelector('#trace code').textContent.includes('wrong')")
        labelled = []
        for key in ("w", "w", "c"):  # each labels the trace that is shown, and goes on to the next
            shown = await tab.evaluate(CHOSEN)
            labelled.append(shown)
            await press(tab, key)
            drawn = "document.querySelector('#trace').textContent.includes(" + CHOSEN + ")"
            await until(tab, f"{CHOSEN} !== null && {CHOSEN} !== {shown!r} && {drawn}")
        assert len(set(labelled)) == 3
        await until(tab, "document.getElementById('agreement').textContent.includes('3 labels')")
        assert await tab.evaluate("document.title") == "run · distill view"  # texts of the run are never markup
        assert "owned" in await tab.evaluate("document.querySelector('#trace .rationale').textContent")
        return tab.problems, tab.requests

    with viewed(run) as (_, address):
        found, requests = browse(look)
        base = address.partition("/?")[0]
    assert found == [] and all(url.startswith((base, "data:")) for url in requests)
    assert sorted(label.label for label in read_labels(run).values()) == ["correct", "wrong", "wrong"]


def test_a_label_costs_two_requests_and_the_next_trace_does_not_wait_for_the_disk(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, may_write = LabelJournal.add, threading.Event()

    def slowly(self: LabelJournal, values: Mapping[str, Any]) -> TraceLabel:
        may_write.wait(60)
        return add(self, values)

    monkeypatch.setattr(LabelJournal, "add", slowly)
    drawn = f"document.querySelector('#trace').textContent.includes({CHOSEN})"

    async def look(tab: Tab) -> tuple[list[str], list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        labelled = []
        for key in "wcwc":
            shown = await tab.evaluate(CHOSEN)
            labelled.append(shown)
            await press(tab, key)
            await until(tab, f"{CHOSEN} !== null && {CHOSEN} !== {shown!r} && {drawn}")
        assert await tab.evaluate("document.querySelectorAll('#rows button').length") > 4
        assert "you:" not in await tab.evaluate("document.getElementById('rows').textContent")  # not on the disk yet
        assert read_labels(run) == {}
        may_write.set()
        await until(tab, "document.getElementById('agreement').textContent.includes('4 labels')")
        assert (await tab.evaluate("document.getElementById('rows').textContent")).count("you:") == 4
        return labelled, [url.partition("/api/")[2] for url in tab.requests]

    with viewed(run) as (_, address):
        labelled, asked = browse(look)
    assert [(trace, label.label) for trace, label in read_labels(run).items()] == [
        (trace, {"w": "wrong", "c": "correct"}[key]) for trace, key in zip(labelled, "wcwc", strict=True)
    ]
    traces = [path for path in asked if path.startswith("traces/")]
    assert asked.count("labels") == 4
    assert len(traces) == len(set(traces)) == 4 + 2, "those that were shown, and the next one"


def test_a_trace_whose_label_was_not_stored_comes_back(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, tried = LabelJournal.add, list[str]()

    def fail_once(self: LabelJournal, values: Mapping[str, Any]) -> TraceLabel:
        tried.append(values["trace"])
        if len(tried) == 1:
            raise StorageError("the disk is full")
        return add(self, values)

    monkeypatch.setattr(LabelJournal, "add", fail_once)
    problem = "document.getElementById('problem').textContent"

    async def look(tab: Tab) -> tuple[str, str]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        first = await tab.evaluate(CHOSEN)
        await press(tab, "w")
        await until(tab, f"{problem}.includes('not stored') && {CHOSEN} === {first!r}")
        said = await tab.evaluate(problem)
        await until(tab, f"document.querySelector('#trace').textContent.includes({first!r})")
        await press(tab, "c")
        await until(tab, "document.getElementById('agreement').textContent.includes('1 label ')")
        return first, said

    with viewed(run) as (_, address):
        first, said = browse(look)
    assert said == "1 label not stored, the first of this trace: the disk is full"
    assert {trace: label.label for trace, label in read_labels(run).items()} == {first: "correct"}


def test_blind_labelling_hides_what_the_judge_says(run: Path) -> None:
    async def look(tab: Tab) -> list[str]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await press(tab, "b")
        texts = [await tab.evaluate("document.getElementById('columns').innerText")]
        await press(tab, "c")  # its verdict was open before
        await until(tab, "document.getElementById('agreement').textContent.includes('0 blind')")
        first = await tab.evaluate(CHOSEN)
        await press(tab, "j")
        drawn = f"document.querySelector('#trace').textContent.includes({CHOSEN})"
        await until(tab, f"{CHOSEN} !== {first!r} && {drawn}")
        await press(tab, "c")
        await until(tab, "document.getElementById('agreement').textContent.includes('1 blind')")
        texts.append(await tab.evaluate("document.getElementById('trace').innerText"))
        return texts

    with viewed(run) as (_, address):
        hidden, open_text = browse(look)
    assert (
        "answer_verdict" not in hidden
        and "passed" not in hidden
        and "dropped" not in hidden
        and "wrong_answer" not in hidden
    )
    assert "passed" in open_text and "Other traces of the question" in open_text


def test_the_page_of_a_read_only_run_says_that_labelling_is_off(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(tab: Tab) -> tuple[str, bool, list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await press(tab, "w")
        off = "[...document.querySelectorAll('.labels button, .labels textarea')].every((one) => one.disabled)"
        line = await tab.evaluate("document.getElementById('problem').textContent")
        return line, await tab.evaluate(off), tab.problems

    make_read_only(run, monkeypatch)
    with viewed(run) as (_, told):
        address, printed = told.splitlines()
        line, off, found = browse(look)
    assert line == printed and line.startswith("labelling is off: ") and off and found == []


def test_a_label_of_another_page_is_shown_on_this_one(run: Path) -> None:
    async def look(tab: Tab) -> str:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        trace = visitor.ask("/api/traces")[1]["rows"][1]["id"]
        assert visitor.ask("/api/labels", {"trace": trace, "label": "wrong"})[0] == 200
        row = f"document.querySelector('#rows [data-id=\"{trace}\"]').textContent"
        await until(tab, f"{row}.includes('you: wrong')")
        await until(tab, "document.getElementById('agreement').textContent.startsWith('Your 1 label against')")
        return await tab.evaluate(CHOSEN)

    with viewed(run) as (visitor, address):
        chosen = browse(look)
        assert chosen == visitor.ask("/api/traces")[1]["rows"][0]["id"]  # a person's place is kept


def test_a_key_that_is_held_down_labels_one_trace(run: Path) -> None:
    held = "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'c', bubbles: true, repeat: true}))"

    async def look(tab: Tab) -> None:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        first = await tab.evaluate(CHOSEN)
        await press(tab, "c")
        await until(tab, f"{CHOSEN} !== {first!r} && document.querySelector('#trace').textContent.includes({CHOSEN})")
        await tab.evaluate(held)
        await until(tab, "document.getElementById('agreement').textContent.includes('1 label ')")
        assert tab.problems == []

    with viewed(run) as (_, address):
        browse(look)
    assert len(read_labels(run)) == 1


def test_a_key_before_the_trace_is_shown_labels_nothing_and_the_page_says_so(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, may_read = server.trace_facts, threading.Event()
    may_read.set()

    def slowly(table: TraceTable, trace: str) -> dict[str, Any]:
        may_read.wait(60)
        return read(table, trace)

    monkeypatch.setattr(server, "trace_facts", slowly)
    problem = "document.getElementById('problem').textContent"

    async def look(tab: Tab) -> list[str]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        may_read.clear()
        await tab.evaluate("ahead = { id: null }")
        first = await tab.evaluate(CHOSEN)
        await press(tab, "c")
        await until(tab, f"{CHOSEN} !== {first!r}")
        second = await tab.evaluate(CHOSEN)
        await press(tab, "w")
        may_read.set()
        await until(tab, f"{problem}.includes('before this trace was shown')")
        await press(tab, "u")
        await until(tab, f"{problem} === ''")
        await until(tab, "document.getElementById('agreement').textContent.includes('2 labels ')")
        return [first, second]

    try:
        with viewed(run) as (_, address):
            traces = browse(look)
    finally:
        may_read.set()
    assert [read_labels(run)[trace].label for trace in traces] == ["correct", "unsure"]


def test_a_note_that_is_written_stays_while_labels_of_another_page_come(run: Path) -> None:
    async def look(tab: Tab) -> str:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        own, other = (row["id"] for row in visitor.ask("/api/traces")[1]["rows"][:2])
        row = f"document.querySelector('#rows [data-id=\"{other}\"]').textContent"
        await press(tab, "n")
        await tab.call("Input.insertText", text='it\'s "odd" \U0001f600')
        visitor.ask("/api/labels", {"trace": own, "label": "wrong", "note": "of another page"})
        for label in ("wrong", "correct"):  # the second changes no number of labels
            visitor.ask("/api/labels", {"trace": other, "label": label})
            await until(tab, f"{row}.includes('you: {label}')")
        await until(tab, "document.querySelector('[data-label=wrong]').getAttribute('aria-pressed') === 'true'")
        await tab.call("Input.insertText", text="!")
        assert await tab.evaluate("document.activeElement.id") == "note"
        assert tab.problems == []
        return await tab.evaluate("document.getElementById('note').value")

    with viewed(run) as (visitor, address):
        assert browse(look) == 'it\'s "odd" \U0001f600!'
