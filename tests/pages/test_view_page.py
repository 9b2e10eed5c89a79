"""The page of `distill view` in a real browser: filter, label by keyboard; nothing fails or is fetched."""

from dataclasses import replace
from pathlib import Path

import pytest
from accessibility import problems
from browser import CHROMIUM, DESKTOP, HOSTILE, PHONE, Tab, browse, press, until
from run_fixtures import generate_folder, recipe, small_world
from view_servers import make_read_only, viewed

from distill.trace_records.human_labels import read_labels
from filters.apply import apply

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    samples, traces = small_world(tmp_path / "pictures", questions=8)
    hostile = [replace(trace, reasoning=HOSTILE + trace.reasoning) for trace in traces]
    asked = [replace(sample, question=sample.question + HOSTILE) for sample in samples]
    generate_folder(tmp_path / "run", asked, hostile)
    settings = recipe(tmp_path)
    apply(settings, tmp_path / "run")
    (tmp_path / "run" / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    return tmp_path / "run"


CHOSEN = "new URLSearchParams(location.hash.slice(1)).get('id')"
LOADED = f"{CHOSEN} !== null && !!document.querySelector('#trace .rationale')"


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


def test_blind_labelling_hides_what_the_judge_says(run: Path) -> None:
    async def look(tab: Tab) -> list[str]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await press(tab, "b")
        texts = [await tab.evaluate("document.getElementById('columns').innerText")]
        await press(tab, "c")
        await until(tab, "document.getElementById('agreement').textContent.includes('1 blind')")
        texts.append(await tab.evaluate("document.getElementById('trace').innerText"))
        return texts

    with viewed(run) as (_, address):
        hidden, open_text = browse(look)
    assert "answer_verdict" not in hidden and "became" not in hidden and "wrong_answer" not in hidden
    assert "became" in open_text


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


def test_the_policy_bench_shows_what_another_rule_would_keep(run: Path) -> None:
    async def look(tab: Tab) -> tuple[str, str, list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await tab.evaluate("document.getElementById('bench').click()")
        await until(tab, "document.querySelector('#effect table') !== null")
        before = await tab.evaluate("document.querySelector('#effect table').innerText")
        await tab.evaluate(
            "[...document.querySelectorAll('#rules .rule')].find((rule) => "
            "rule.querySelector('[name=name]').value === 'wrong_answer').querySelector('button').click()"
        )
        await until(tab, f"document.querySelector('#effect table').innerText !== {before!r}")
        return await tab.evaluate("document.getElementById('lines').textContent"), before, tab.problems

    with viewed(run) as (_, address):
        lines, before, found = browse(look)
    assert found == [] and "kept" in before
    assert "wrong_answer" not in lines and "[[filter.rules]]" in lines


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_everybody_can_read_the_page_and_phones_scroll_one_way(run: Path, size: tuple[int, int]) -> None:
    async def look(tab: Tab) -> tuple[str, bool]:
        await tab.open(address, size)
        await until(tab, LOADED)
        await tab.evaluate("document.getElementById('bench').click()")
        await until(tab, "document.querySelector('#effect table') !== null")
        await tab.evaluate(
            "fetch('/view.css').then((sheet) => sheet.text()).then((text) => {"
            "const style = document.createElement('style'); style.textContent = text;"
            "document.querySelector('link[rel=stylesheet]').replaceWith(style); })"
        )
        wide = await tab.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
        return "<!doctype html>" + await tab.evaluate("document.documentElement.outerHTML"), wide

    with viewed(run) as (_, address):
        page, wide = browse(look)
    assert not wide
    assert problems(page) == []


def test_a_person_asks_the_models_about_the_picture_of_a_trace(run: Path) -> None:
    async def look(tab: Tab) -> tuple[str, str, list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        sample = await tab.evaluate("document.querySelector('.asking textarea').value")
        await tab.evaluate("document.querySelector('.asking').requestSubmit()")
        said = "document.querySelector('#trace .replies').innerText"
        await until(tab, f"{said}.includes('not asked')")
        return sample, await tab.evaluate(said), tab.problems

    with viewed(run) as (_, address):
        question, said, found = browse(look)
    assert HOSTILE in question  # as text, not as markup
    assert "no model could be asked" in said and found == []  # the recipe of this run has no student
