"""Report pages in a real browser that reaches no network: filters filter, nothing fails, phones scroll one way."""

import asyncio
from pathlib import Path

import pytest
from pages.browser import CHROMIUM, DESKTOP, PHONE, Tab, browse
from worlds import report_worlds as worlds

from distill.ablation import report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")

SHOWN = "[...document.querySelectorAll('article.entry')].filter((card) => card.checkVisibility()).length"
COLUMNS = "document.querySelector('article.entry:not([hidden])').querySelectorAll('.arm:not([hidden])').length"


def choose(name: str, value: str) -> str:
    """Set a control as a person does, which tells its form."""
    return f"""(() => {{
        const control = document.querySelector("#filters [name={name}]");
        control.value = [...control.options || []].find((option) => option.text === {value!r})?.value ?? {value!r};
        control.dispatchEvent(new Event("input", {{bubbles: true}}));
    }})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    asked = worlds.samples([worlds.drawing(folder / "pictures", number) for number in range(8)], 30)
    lines = worlds.predictions(asked)
    by_arm = {arm: [line for line in lines if line["arm"] == arm] for arm in worlds.ARMS}
    teachers = {"distilled": ("reader", "analyst"), "unfiltered": ("reader",)}
    cards = report.cards(by_arm, asked, 30, reference="distilled", arm_teachers=teachers)
    report.write(folder / "report.html", worlds.results(), cards)
    return folder / "report.html"


def test_the_page_needs_no_network_and_nothing_fails(page: Path):
    async def look(tab: Tab) -> tuple[list[str], list[str]]:
        await tab.open(page)
        await asyncio.sleep(0.2)
        return tab.problems, [url for url in tab.requests if not url.startswith("data:")]

    assert browse(look) == ([], [page.resolve().as_uri()])


def test_filters_show_the_questions_that_fit_and_the_arms_that_are_wanted(page: Path):
    async def look(tab: Tab) -> None:
        await tab.open(page)
        assert await tab.evaluate(SHOWN) == 30
        assert await tab.evaluate(COLUMNS) == 4
        wrong = await tab.evaluate(
            "[...document.querySelectorAll('.arm[data-verdict=wrong] .who')]"
            ".filter((name) => name.textContent === 'instruct').length"
        )
        assert 0 < wrong < 30
        await tab.evaluate(choose("verdict", "wrong"))
        await tab.evaluate(choose("of", "instruct"))
        assert await tab.evaluate(SHOWN) == wrong
        assert f"{wrong} of 30" in await tab.evaluate("document.getElementById('found').textContent")
        await tab.evaluate("document.querySelector('#filters button').click()")
        await asyncio.sleep(0.1)
        assert await tab.evaluate(SHOWN) == 30
        await tab.evaluate(choose("domain", "charts"))
        assert await tab.evaluate(SHOWN) == 10
        await tab.evaluate(choose("words", "question 3:"))
        assert await tab.evaluate(SHOWN) == 1
        await tab.evaluate(choose("words", "nobody says this"))
        assert await tab.evaluate("document.getElementById('nothing').checkVisibility()")
        await tab.evaluate("document.querySelector('#filters button').click()")
        await asyncio.sleep(0.1)
        # Arms of whose teachers nothing is known stay; of the others only those that learned from this one.
        await tab.evaluate(choose("teacher", "analyst"))
        assert await tab.evaluate(COLUMNS) == 3
        await tab.evaluate("document.querySelector('#filters input[type=checkbox]').click()")
        assert await tab.evaluate(COLUMNS) == 2
        assert tab.problems == []

    browse(look)


def test_without_scripts_everything_is_there_and_no_control_that_does_nothing(page: Path):
    async def look(tab: Tab) -> tuple[int, bool]:
        await tab.open(page, scripts=False)
        return await tab.evaluate(SHOWN), await tab.evaluate("document.getElementById('filters').checkVisibility()")

    assert browse(look) == (30, False)


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_no_screen_has_to_scroll_the_page_sideways(page: Path, size: tuple[int, int]):
    async def look(tab: Tab) -> int:
        await tab.open(page, size)
        return int(await tab.evaluate("document.documentElement.scrollWidth"))

    assert browse(look) == size[0]


def test_rationales_stand_side_by_side_on_a_desktop_and_below_each_other_on_a_phone(page: Path):
    lefts = "new Set([...document.querySelectorAll('#q1 .arm')].map((arm) => arm.getBoundingClientRect().left)).size"

    async def look(tab: Tab) -> tuple[int, int]:
        await tab.open(page)
        wide = await tab.evaluate(lefts)
        await tab.open(page, PHONE)
        return wide, await tab.evaluate(lefts)

    assert browse(look) == (4, 1)


def test_a_key_opens_a_image_at_full_size_and_closes_it_without_a_script(tmp_path: Path):
    shared, single = worlds.photographs(tmp_path / "pictures", 2, side=480)
    asked = worlds.samples([shared, single, shared], 3)
    lines = worlds.predictions(asked)
    by_arm = {arm: [line for line in lines if line["arm"] == arm] for arm in worlds.ARMS}
    report.write(tmp_path / "report.html", worlds.results(), report.cards(by_arm, asked, 3, reference="distilled"))
    opened = "[...document.querySelectorAll('.zoom')].map((one) => one.open)"
    width = "document.querySelectorAll('.zoom :is(img, svg)')[{}].getBoundingClientRect().width"

    async def enter(tab: Tab) -> None:
        for kind in ("keyDown", "keyUp"):
            await tab.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
            )

    async def look(tab: Tab) -> None:
        await tab.open(tmp_path / "report.html", scripts=False)
        assert await tab.evaluate(opened) == [False] * 3
        for number in range(3):
            assert await tab.evaluate(width.format(number)) <= 224
            await tab.evaluate(f"document.querySelectorAll('.zoom summary')[{number}].focus()")
            await enter(tab)
            assert await tab.evaluate(width.format(number)) == 480
            box = await tab.evaluate(
                f"document.querySelectorAll('.zoom summary')[{number}].getBoundingClientRect().toJSON()"
            )
            assert (box["x"], box["y"]) == (0, 0) and (box["width"], box["height"]) == DESKTOP
            await enter(tab)
        assert await tab.evaluate(opened) == [False] * 3 and tab.problems == []

    browse(look)


CUT = """[...document.querySelectorAll('.scroll')]
    .filter((box) => box.scrollWidth > box.clientWidth + 1 && box.checkVisibility())
    .map((box) => box.getAttribute('aria-label'))"""


def test_no_table_is_cut_on_a_desktop(page: Path):
    async def look(tab: Tab) -> list[str]:
        await tab.open(page)
        return await tab.evaluate(CUT)

    assert browse(look) == []


def test_no_table_is_cut_on_paper(page: Path):
    async def look(tab: Tab) -> list[str]:
        await tab.open(page, (718, 1000))  # A4 between its margins
        await tab.call("Emulation.setEmulatedMedia", media="print")
        return await tab.evaluate(CUT)

    assert browse(look) == []
