"""The page of `distill view` in a real browser: filter, read, compare policies; nothing fails or is fetched."""

import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pages.accessibility import problems
from pages.browser import CHROMIUM, DESKTOP, HOSTILE, PHONE, Tab, browse, press, until
from pages.view_page import CHOSEN, LOADED
from PIL import Image
from servers.view_servers import unfiltered, viewed
from worlds.run_fixtures import generate_folder, recipe, small_world

from distill.recipe.loading import load
from distill.trace_records.human_labels import read_labels
from distill.view import server
from filters.apply import apply

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


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


def test_a_person_asks_the_models_about_the_image_of_a_trace(run: Path) -> None:
    async def look(tab: Tab) -> tuple[str, str, int, list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        sample = await tab.evaluate("document.querySelector('.asking textarea').value")
        await tab.evaluate("document.querySelector('.asking').requestSubmit()")
        said = "document.getElementById('said').innerText"
        await until(tab, f"{said}.includes('not asked')")
        beside = "document.querySelectorAll('#trace .replies section .rationale').length"
        return sample, await tab.evaluate(said), await tab.evaluate(beside), tab.problems

    with viewed(run) as (_, address):
        question, said, beside, found = browse(look)
    assert beside == 3 + 1, "the other traces stay where they are"
    assert HOSTILE in question  # as text, not as markup
    assert "no model could be asked" in said and found == []  # the recipe of this run has no student


def test_a_trace_stands_beside_the_other_traces_of_its_question_with_every_rule(run: Path) -> None:
    async def look(tab: Tab) -> tuple[str, list[str], list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        texts = "[...document.querySelectorAll('#trace .replies section .rationale')].map((one) => one.textContent)"
        await until(tab, f"{texts}.length === 3 && !{texts}.includes('loading')")
        rules = "[...document.querySelectorAll('#trace h2')].find((head) => head.textContent === 'Rules').nextSibling"
        return await tab.evaluate(f"{rules}.innerText"), await tab.evaluate(texts), tab.problems

    with viewed(run) as (visitor, address):
        rules, texts, found = browse(look)
        names = [rule["name"] for rule in visitor.ask("/api/policy")[1]["rules"]]
    assert found == [] and all(name in rules for name in names) and "passed" in rules
    assert sum(HOSTILE in text for text in texts) == 3


def test_the_address_holds_what_is_chosen(run: Path) -> None:
    async def look(tab: Tab) -> tuple[list[str], list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await tab.evaluate("document.getElementById('where').value = 'rationale_tokens > 3'")
        await tab.evaluate("document.getElementById('order').value = '-rationale_tokens'")
        await tab.evaluate("document.getElementById('ask').requestSubmit()")
        chosen = "[...document.querySelectorAll('#facets button')].find((one) => one.textContent.includes('charts'))"
        await until(tab, f"!!{chosen} && location.hash.includes('order')")
        await tab.evaluate(f"{chosen}.click()")
        await until(tab, "document.getElementById('total').textContent === '16 traces'")
        await press(tab, "j")
        await until(tab, LOADED)
        facts = [
            *("document.getElementById('total').textContent", "document.getElementById('where').value"),
            *("document.getElementById('order').value", CHOSEN),
            "document.querySelector('[aria-current=true]').dataset.id",
            "[...document.querySelectorAll('[aria-pressed=true]')].map((one) => one.textContent).join()",
        ]
        seen = [await tab.evaluate(fact) for fact in facts]
        bookmark = await tab.evaluate("location.href")
        await tab.open("about:blank", DESKTOP)
        await tab.open(bookmark, DESKTOP)
        await until(tab, f"{LOADED} && !!document.querySelector('[aria-current=true]')")
        return seen, [await tab.evaluate(fact) for fact in facts]

    with viewed(run) as (_, address):
        before, after = browse(look)
    assert before == after and before[1:3] == ["rationale_tokens > 3", "-rationale_tokens"]
    assert before[3] == before[4] and before[5].startswith("charts")


def test_values_beyond_the_first_are_found_by_their_text_with_keys_alone_on_a_phone(tmp_path: Path) -> None:
    asked, traces = small_world(tmp_path / "pictures", questions=40)
    asked = [replace(sample, domain=f"Field {number}") for number, sample in enumerate(asked)]
    generate_folder(tmp_path / "run", asked, traces)
    find, active = "document.querySelector('#facets .find input')", "document.activeElement"

    async def key(tab: Tab, **facts: Any) -> None:
        for kind in ("keyDown", "keyUp"):
            await tab.call("Input.dispatchKeyEvent", type=kind, **facts)

    async def look(tab: Tab) -> list[str]:
        await tab.open(address, PHONE)
        await until(tab, LOADED)
        assert await tab.evaluate("document.querySelector('#facets .find').textContent") == "10 more"
        shown = "[...document.querySelectorAll('[data-facet=domain]')].map((one) => one.dataset.value)"
        assert "Field 39" not in await tab.evaluate(shown)
        await tab.evaluate(f"{find}.focus()")
        await tab.call("Input.insertText", text="field 39")
        await until(tab, f"{shown}.join() === 'Field 39'")
        assert await tab.evaluate(f"{active} === {find}")
        await key(tab, key="Tab", windowsVirtualKeyCode=9, modifiers=8)  # back, with the shift key
        await key(tab, key="Enter", windowsVirtualKeyCode=13, text="\r")
        await until(tab, "document.getElementById('total').textContent === '4 traces'")
        assert await tab.evaluate(f"{active}.dataset.value") == "Field 39"
        assert await tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
        return tab.problems

    with viewed(tmp_path / "run") as (_, address):
        assert browse(look) == []


def test_the_rules_of_the_page_go_into_the_recipe_that_was_named(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("# mine\n" + (run / "recipe.toml").read_text(encoding="utf-8").partition("[filter")[0])

    async def look(tab: Tab) -> tuple[str, list[str]]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await tab.evaluate("document.getElementById('bench').click()")
        await until(tab, "document.querySelector('#effect table') !== null")
        await tab.evaluate("document.querySelector('#rules .rule button').click()")
        await tab.evaluate("document.getElementById('write').click()")
        await until(tab, "document.getElementById('written').textContent.startsWith('Written')")
        return await tab.evaluate("document.getElementById('written').textContent"), tab.problems

    with viewed(run, recipe=mine) as (visitor, address):
        line, found = browse(look)
        names = [rule["name"] for rule in visitor.ask("/api/policy")[1]["rules"]]
    assert found == [] and f"distill filter {mine} --run {run} --fresh" in line
    assert mine.read_text().startswith("# mine\n") and [rule.name for rule in load(mine).filter.rules] == names[1:]


def test_a_run_that_grows_shows_its_new_traces_on_the_open_page(run: Path) -> None:
    shutil.rmtree(run / "filter")
    journal = sorted((run / "generate").glob("*/part-*.jsonl"))[0]
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0])

    async def look(tab: Tab) -> list[str]:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        before = await tab.evaluate("document.getElementById('total').textContent")
        with journal.open("ab") as file:
            file.writelines(lines[1:])
        await until(tab, f"document.getElementById('total').textContent !== {before!r}")
        return [before, await tab.evaluate("document.getElementById('total').textContent")]

    with viewed(run) as (_, address):
        before, after = browse(look)
    assert int(after.split()[0]) == int(before.split()[0]) + len(lines) - 1


def test_an_open_image_changes_its_size_in_steps_and_is_moved_by_dragging(tmp_path: Path) -> None:
    asked, traces = small_world(tmp_path / "pictures", questions=2)
    for sample in asked:
        (ref,) = sample.images
        Image.open(ref.path).resize((1600, 1200)).save(ref.path)
    asked = [
        replace(
            one, images=(replace(one.images[0], sha256=sha256(Path(one.images[0].path).read_bytes()).hexdigest()),)
        )
        for one in asked
    ]
    generate_folder(tmp_path / "run", asked, traces)
    width = "Math.round(document.querySelector('#trace .pictures img').getBoundingClientRect().width)"
    size, place = (
        "document.querySelector('.picture output').textContent",
        "document.querySelector('.picture > button')",
    )
    scrolled = f"[{place}.scrollLeft, {place}.scrollTop].map(Math.round)"

    async def mouse(tab: Tab, kind: str, x: float, y: float) -> None:
        held = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {"buttons": 1}
        await tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    async def look(tab: Tab) -> tuple[str, list[int], list[int]]:
        await tab.open(address, DESKTOP)
        await until(tab, f"{LOADED} && {width} > 100")
        await press(tab, "+")
        assert await tab.evaluate(f"{place}.getAttribute('aria-expanded')") == "false"  # of open images only
        x, y = await tab.evaluate(f"(({{x, y}}) => [x + 200, y + 150])({place}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            await mouse(tab, kind, x, y)
        await until(tab, f"{width} === 1600 && {size} === '100 %'")
        await press(tab, "+")
        await until(tab, f"{width} === 2400 && {size} === '150 %'")
        before = await tab.evaluate(scrolled)
        await mouse(tab, "mousePressed", x, y)
        await mouse(tab, "mouseMoved", x - 60, y - 40)
        await mouse(tab, "mouseReleased", x - 60, y - 40)
        after = await tab.evaluate(scrolled)
        await tab.evaluate("document.querySelector('.zoom button').click()")
        await press(tab, "-")
        await until(tab, f"{width} === 1200 && {size} === '75 %'")
        named = "[...document.querySelectorAll('.zoom button, .zoom output')].map((one) => one.ariaLabel).join()"
        names = await tab.evaluate(named)
        await press(tab, "Escape")
        await until(tab, f"{width} < 1000 && {place}.getAttribute('aria-expanded') === 'false'")
        assert tab.problems == []
        return names, before, after

    with viewed(tmp_path / "run") as (_, address):
        names, before, after = browse(look)
    assert names == "Image 1: smaller, key -,Image 1: larger, key +,Image 1: size"
    assert after == [before[0] + 60, before[1] + 40], "dragging moves the picture and does not close it"


def test_hostile_names_stay_text_and_enter_shows_a_image_at_full_size(tmp_path: Path) -> None:
    hostile = "'\"><script>document.title='owned'<\u202e\n"
    place = tmp_path / f"{hostile} run"
    asked, traces = small_world(tmp_path / "pictures", questions=2)
    named = []
    for number, sample in enumerate(asked):
        (ref,) = sample.images
        file = tmp_path / "pictures" / f"{number}{hostile}.png"
        Image.open(ref.path).resize((2000, 1500)).save(file)
        ref = replace(ref, path=str(file), sha256=sha256(file.read_bytes()).hexdigest())
        named.append(replace(sample, images=(ref,), domain=HOSTILE + hostile if number else ""))
    generate_folder(place, named, traces)
    settings = recipe(tmp_path)
    apply(settings, place)
    (place / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    width = "document.querySelector('#trace .pictures img').getBoundingClientRect().width"

    async def enter(tab: Tab) -> None:
        for kind in ("keyDown", "keyUp"):
            await tab.call("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", windowsVirtualKeyCode=13)

    async def look(tab: Tab) -> None:
        await tab.open(address, DESKTOP)
        await until(tab, f"{LOADED} && {width} > 100")
        assert "run · distill view" in await tab.evaluate("document.title")
        assert "onerror" in await tab.evaluate("document.getElementById('facets').textContent")
        assert "(none)" in await tab.evaluate(
            "document.getElementById('facets').textContent"
        )  # a domain without a name
        assert await tab.evaluate("document.querySelectorAll('main script, #facets img').length") == 0
        assert await tab.evaluate(width) < 1000
        await tab.evaluate("document.querySelector('#trace .pictures button').focus()")
        await enter(tab)
        await until(tab, f"{width} === 2000")
        await enter(tab)
        await until(tab, f"{width} < 1000")
        assert tab.problems == []

    with viewed(place) as (_, address):
        browse(look)


def test_the_page_shows_what_its_address_asks_for_and_nothing_of_an_earlier_one(run: Path) -> None:
    total, rows = "document.getElementById('total').textContent", "document.querySelectorAll('#rows li').length"

    async def look(tab: Tab) -> None:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await tab.evaluate("location.hash = 'where=no_column+%3E+1'")
        await until(tab, "document.getElementById('problem').textContent.includes('no_column')")
        assert await tab.evaluate("document.getElementById('where').value") == "no_column > 1"
        assert (await tab.evaluate(total), await tab.evaluate(rows)) == ("", 0)
        await press(tab, "c")  # no trace is shown, so none is labelled
        await tab.evaluate("location.hash = 'fate=dropped&fate=no+such'")
        await until(tab, f"{total} === '24 traces' && {LOADED}")
        assert await tab.evaluate("document.getElementById('problem').textContent") == ""
        pressed = "[...document.querySelectorAll('#facets [aria-pressed=true]')].map((one) => one.textContent).join()"
        assert await tab.evaluate(pressed) == "dropped24,no such0"
        kept = (
            "[...document.querySelectorAll('#facets button')].find((one) => one.textContent.startsWith('selected'))"
        )
        await tab.evaluate(f"{kept}.click()")
        await until(tab, f"{total} === '32 traces'")  # values under one heading are joined by or
        await tab.evaluate("location.hash = 'offset=5000'")
        await until(tab, f"{rows} === 32 && {LOADED}")
        assert await tab.evaluate("document.getElementById('range').textContent") == "1 to 32"
        await tab.evaluate("location.hash = 'words=no+such+word'")
        await until(tab, f"{total} === '0 traces' && !document.querySelector('#trace .rationale')")
        await press(tab, "c")

    with viewed(run) as (_, address):
        browse(look)
    assert read_labels(run) == {}


def test_the_policy_bench_shows_nothing_of_an_earlier_policy(run: Path) -> None:
    rule = (
        "[...document.querySelectorAll('#rules .rule')]"
        ".find((one) => one.querySelector('[name=name]').value === 'repetition')"
    )
    change = (
        "{{ const field = {0}.querySelector('{1}'); field.value = '{2}'; field.dispatchEvent(new Event('input')); }}"
    )

    async def look(tab: Tab) -> None:
        await tab.open(address, DESKTOP)
        await until(tab, LOADED)
        await tab.evaluate("document.getElementById('bench').click()")
        await until(tab, "document.getElementById('lines').textContent !== ''")
        await tab.evaluate(change.format(rule, "[type=range]", "0.3"))
        condition = await tab.evaluate(f"{rule}.querySelector('[name=drop]').value")
        slider = await tab.evaluate(f"{rule}.querySelector('[type=range]').value")
        assert condition.startswith("repetition_ngram > 0.") and slider.startswith(
            condition.removeprefix("repetition_ngram > ")
        )
        await tab.evaluate("document.querySelector('#rules .rule button').click()")
        assert await tab.evaluate(f"{rule}.querySelector('[type=range]').value") == slider
        await tab.evaluate(change.format(rule, "[name=drop]", "no_column > 3"))
        assert await tab.evaluate(f"{rule}.querySelector('[type=range]').hidden")
        await until(tab, "document.querySelector('#effect .bad') !== null")
        assert await tab.evaluate("document.getElementById('lines').textContent") == ""
        for _ in range(2):
            await tab.evaluate("document.getElementById('add').click()")
        names = await tab.evaluate("[...document.querySelectorAll('#rules [name=name]')].map((one) => one.value)")
        assert len(set(names)) == len(names)

    with viewed(run) as (_, address):
        browse(look)


def test_a_page_shows_what_is_read_while_many_journals_are_being_read(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = unfiltered(run, tmp_path / "copy")
    traces = sum(len(part.read_bytes().splitlines()) for part in here.glob("generate/*/part-*"))
    monkeypatch.setattr(server, "_READ_AT_ONCE", 3)
    total = "document.getElementById('total').textContent"

    async def look(tab: Tab) -> tuple[str, list[str]]:
        await tab.call("Page.enable")
        await tab.call(
            "Page.addScriptToEvaluateOnNewDocument",
            source="window.totals = []; new MutationObserver(() => { const now = document.getElementById('total');"
            "if (now) totals.push(now.textContent); }).observe(document, {childList: true, subtree: true});",
        )
        await tab.open(address, DESKTOP)
        await until(tab, f"{total} === '{traces} traces'")
        return await tab.evaluate("totals.join('|')"), tab.problems

    with viewed(here) as (_, address):
        totals, found = browse(look)
    assert "|3 traces so far; more are being read|" in totals and found == []
