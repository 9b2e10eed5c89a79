"""The students' page of `distill view` in a real browser: arms side by side, filters, curves; nothing fails."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from pages.accessibility import problems
from pages.browser import CHROMIUM, DESKTOP, HOSTILE, PHONE, Tab, browse, press, until
from servers.view_servers import viewed
from worlds.run_fixtures import generate_folder, make_image, recipe, small_world

from distill.artifacts.manifest import Manifest
from distill.data import reader
from distill.errors import DataError
from distill.view.server import view_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Thirty questions; `plain` is right on every second one, `distilled` on all but every third."""
    rows = [
        {
            "image": make_image(tmp_path / "pictures", n).path,
            "question": f"How many in {n}? {HOSTILE}",
            "answer": str(n),
            "answer_type": "number",
        }
        for n in range(30)
    ]
    write_lines(tmp_path / "questions.jsonl", rows)
    settings = recipe(tmp_path, '[eval]\ndata = "questions"\n')
    folder = tmp_path / "run"
    generate_folder(folder, *small_world(tmp_path / "asked"))
    right = {"plain": lambda n: n % 2 == 0, "distilled": lambda n: n % 3 > 0}
    samples = list(reader.samples(settings, "questions"))
    replies = [
        {
            "arm": arm,
            "sample_id": sample.id,
            "question": sample.question,
            "gold": list(sample.answers),
            "domain": HOSTILE if n % 5 else "scenes",
            "verdict": "correct" if is_right(n) else "wrong",
            "answer": f"{n} {HOSTILE}",
            "reasoning": f"I look. {HOSTILE}",
            "error_cause": None if is_right(n) else "perception",
            "truncated": False,
            "well_formed": True,
        }
        for arm, is_right in right.items()
        for n, sample in enumerate(samples)
    ]
    write_lines(folder / "eval/predictions.jsonl", replies)
    arms = {name: {"n": 30, "accuracy": 0.5, "ci95": [0.3, 0.7], "limited_by": HOSTILE} for name in right}
    finding = {"name": "x", "kind": "fault", "text": f"Replies are cut off (certain). {HOSTILE}"}
    (folder / "eval/metrics.json").write_text(json.dumps({"arms": arms, "diagnosis": [finding]}))
    losses = [{"step": step, "loss": 3.0 / step} for step in range(1, 900)]
    write_lines(folder / "train/reason/metrics.jsonl", losses)
    Manifest(stage="train", fingerprint="t", fields={}).write(folder / "train")
    write_lines(folder / "train/reason/validation.jsonl", [{"step": s, "accuracy": s / 900} for s in (300, 600, 899)])
    (folder / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    return folder


READY = "document.querySelectorAll('article').length > 0 && document.querySelectorAll('svg').length === 2"


async def arrive(tab: Tab, address: str, size: tuple[int, int]) -> None:
    await tab.open(address, size)
    await until(tab, "document.querySelector('a[href=\"/students\"]') !== null")
    await tab.evaluate("document.querySelector('a[href=\"/students\"]').click()")
    await until(tab, READY)


def test_a_person_finds_where_one_student_is_right_and_another_is_wrong(run: Path) -> None:
    async def look(tab: Tab) -> dict[str, Any]:
        await arrive(tab, address, DESKTOP)
        seen = {"all": await tab.evaluate("document.getElementById('total').textContent")}
        await tab.evaluate("document.getElementById('right').value = 'distilled'")
        await tab.evaluate("document.getElementById('wrong').value = 'plain'")
        await tab.evaluate("document.getElementById('ask').requestSubmit()")
        await until(tab, "document.getElementById('total').textContent.startsWith('10 ')")
        verdicts = "[...document.querySelectorAll('article .replies b')].map((b) => b.textContent)"
        seen["verdicts"] = await tab.evaluate(f"{verdicts}.filter((t) => t === 'correct' || t === 'wrong').join(' ')")
        await until(
            tab, "[...document.images].length === 10 && [...document.images].every((i) => i.naturalWidth > 0)"
        )
        for _ in range(2):
            await press(tab, "j")
        seen["focus"] = await tab.evaluate(
            "[...document.querySelectorAll('article')].indexOf(document.activeElement)"
        )
        seen["title"] = await tab.evaluate("document.title")
        seen["findings"] = await tab.evaluate("document.getElementById('findings').innerText")
        seen["curve"] = await tab.evaluate("document.querySelector('svg').getAttribute('aria-label')")
        seen["problems"], seen["requests"] = tab.problems, tab.requests
        return seen

    with viewed(run) as (_, address):
        seen = browse(look)
        base = address.partition("/?")[0]
    assert seen["all"] == "30 questions" and seen["verdicts"] == " ".join(["wrong correct"] * 10)
    assert seen["title"] == "run · students · distill view" and seen["focus"] == 1
    assert "eval Replies are cut off (certain)." in seen["findings"]
    assert seen["curve"] == "reason: loss: 3.000 at step 1, 0.003 at step 899"
    assert seen["problems"] == [] and all(url.startswith((base, "data:")) for url in seen["requests"])


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_everybody_can_read_the_students_page_and_phones_scroll_one_way(run: Path, size: tuple[int, int]) -> None:
    async def look(tab: Tab) -> tuple[str, bool, list[str]]:
        await arrive(tab, address, size)
        await tab.evaluate(
            "fetch('/view.css').then((sheet) => sheet.text()).then((text) => {"
            "const style = document.createElement('style'); style.textContent = text;"
            "document.querySelector('link[rel=stylesheet]').replaceWith(style); })"
        )
        wide = await tab.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
        return "<!doctype html>" + await tab.evaluate("document.documentElement.outerHTML"), wide, tab.problems

    with viewed(run) as (_, address):
        page, wide, found = browse(look)
    assert not wide and problems(page) == []
    assert [text for text in found if "Content Security Policy" not in text] == []


def test_a_run_without_students_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    generate_folder(run, *small_world(tmp_path / "asked"))
    (run / "recipe.toml").write_text(recipe(tmp_path).to_toml(), encoding="utf-8")
    with viewed(run) as (visitor, _):
        status, facts, _ = visitor.ask("/api/students")
        assert (status, facts["arms"], facts["findings"], facts["curves"]) == (200, {}, [], [])
        assert visitor.ask("/api/replies?right=x")[1] == {"total": 0, "rows": []}
        assert visitor.ask("/api/replies?offset=-1")[0] == 400
        assert visitor.ask("/api/students", Cookie=None)[0] == 403


@pytest.fixture
def other(run: Path, tmp_path: Path) -> Path:
    """An earlier run: `plain` was asked 24 of the questions, and was right on every fourth one and on question 1."""
    folder = tmp_path / f"earlier {HOSTILE}".replace("/", "-")[:60]
    lines = [json.loads(line) for line in (run / "eval/predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [line for line in lines if line["arm"] == "plain"][:24]
    for n, line in enumerate(kept):
        line["verdict"] = "correct" if n % 4 == 0 or n == 1 else "wrong"
    write_lines(folder / "eval/predictions.jsonl", kept)
    (folder / "eval/metrics.json").write_text(
        json.dumps({"arms": {"plain": {"n": 24, "accuracy": 7 / 24, "ci95": [0.1, 0.5]}}})
    )
    (folder / "recipe.toml").write_text((run / "recipe.toml").read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def test_a_run_against_another_one_shows_what_got_better_and_worse(run: Path, other: Path) -> None:
    with viewed(run, other) as (visitor, _):
        facts = visitor.ask("/api/students")[1]
        (change,) = facts["changes"]
        before = f"{other.name}: plain"
        assert list(facts["arms"]) == ["plain", "distilled", before] and change["before"] == before
        assert (change["arm"], change["n"], change["only_first"], change["only_second"]) == ("plain", 24, 6, 1)
        assert change["delta"] == 5 / 24 and change["ci95"][0] < 5 / 24 < change["ci95"][1]
        query = urlencode({"right": "plain", "wrong": before})
        better = visitor.ask(f"/api/replies?{query}")[1]
        assert better["total"] == 6 and set(better["rows"][0]["replies"]) == {"plain", "distilled", before}
        query = urlencode({"right": before, "wrong": "plain"})
        assert visitor.ask(f"/api/replies?{query}")[1]["total"] == 1
    with pytest.raises(DataError, match="not a run directory"):
        view_run(run, run / "nowhere", port=0, on_start=lambda _: None)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_the_page_with_another_run_is_readable_and_its_buttons_choose_the_questions(
    run: Path, other: Path, size: tuple[int, int]
) -> None:
    async def look(tab: Tab) -> tuple[str, bool, list[str]]:
        await arrive(tab, address, size)
        await until(tab, "document.querySelectorAll('#changes button').length === 2")
        await tab.evaluate("document.querySelectorAll('#changes button')[1].click()")
        await until(tab, "document.getElementById('total').textContent === '1 question'")
        wide = await tab.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1")
        return await tab.evaluate("document.getElementById('changes').textContent"), wide, tab.problems

    with viewed(run, other) as (_, address):
        text, wide, found = browse(look)
    assert not wide and found == []
    assert "6 better" in text and "1 worse" in text and "+20.8 [" in text


def test_the_students_page_follows_its_address_and_an_error_does_not_stay(run: Path) -> None:
    total, problem = (f"document.getElementById('{name}').textContent" for name in ("total", "problem"))

    async def look(tab: Tab) -> list[str]:
        await arrive(tab, address, DESKTOP)
        before = await tab.evaluate(total)
        await tab.evaluate("location.hash = 'offset=x&words=zebra'")
        await until(tab, f"{problem} !== ''")
        assert (
            await tab.evaluate(total) == "" and await tab.evaluate("document.querySelectorAll('article').length") == 0
        )
        assert await tab.evaluate("document.getElementById('words').value") == "zebra"
        await tab.evaluate("location.hash = 'offset=100000'")
        await until(tab, f"{total} === {before!r} && {problem} === ''")
        await until(tab, "document.querySelectorAll('article').length > 0")
        return [await tab.evaluate("document.getElementById('range').textContent"), before]

    with viewed(run) as (_, address):
        shown, before = browse(look)
    assert shown.split()[-1] == before.split()[0]
