"""Everybody can read every page of the project: rules checked without a browser, in both colour schemes."""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from pages.accessibility import problems
from pages.stylesheet import Colour, Styles, contrast, linear, parse
from worlds import report_worlds as worlds
from worlds.run_fixtures import generate_folder, recipe, small_world
from worlds.student_worlds import recipe as student_recipe

from distill.ablation import report as ablate_report
from filters.apply import apply
from student.evaluation import report
from student.validation.page import SamplesPage

LINE = {
    "n": 12,
    "ci95": [0.1, 0.3],
    "undecided_rate": 0.1,
    "format_rate": 1.0,
    "truncation_rate": 0.0,
    "mean_rationale_tokens": 20.0,
    "token_accuracy": 0.5,
    "response_tokens": 100,
    "seconds": 1.0,
    "time_share": 0.02,
    "best": True,
}


def asked(folder: Path):
    found = worlds.samples([worlds.drawing(folder / "pictures", number) for number in range(5)], 12)
    return found, worlds.predictions(found)


def filter_page(folder: Path) -> Path:
    found, traces = small_world(folder / "pictures")
    generate_folder(folder / "run", found, traces)
    apply(recipe(folder), folder / "run")
    return folder / "run/filter/report.html"


def eval_page(folder: Path) -> Path:
    found, lines = asked(folder)
    (folder / "train/reason").mkdir(parents=True)
    (folder / "train/reason/metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n{"step": 9, "loss": 1.0}\n')
    report.write_report(
        student_recipe(folder, more="[eval]\ngallery = 9\n"),
        folder / "eval" / "report.html",
        worlds.metrics(lines) | {"diagnosis": [FINDING]},
        lines,
        found,
    )
    return folder / "eval" / "report.html"


def ablate_page(folder: Path) -> Path:
    found, lines = asked(folder)
    by_arm = {arm: [line for line in lines if line["arm"] == arm] for arm in worlds.ARMS}
    cards = ablate_report.cards(by_arm, found, 9, reference="distilled", arm_teachers={"distilled": ("a", "b")})
    ablate_report.write(folder / "ablate.html", worlds.results(), cards)
    return folder / "ablate.html"


def samples_page(folder: Path) -> Path:
    found, lines = asked(folder)
    measured = [{**LINE, "step": step, "accuracy": 0.2, "loss": 1 / step} for step in (1, 2, 3)]
    page = SamplesPage("reason", found, metric="loss", gallery=8, max_pixels=10**7)
    page.write(folder / "samples.html", measured, [line for line in lines if line["arm"] == "distilled"])
    return folder / "samples.html"


FINDING = {"kind": "fault", "certainty": "sure", "problem": "replies are cut off", "change": "eval.max_tokens"}

PAGES = (filter_page, eval_page, ablate_page, samples_page)


@pytest.mark.parametrize("make", PAGES)
def test_the_conclusion_stands_before_the_figures(make: Callable[[Path], Path], tmp_path: Path):
    text = make(tmp_path).read_text()
    conclusion = 'id="claims"' if make is ablate_page else 'class="finding"'
    assert 0 < text.find(conclusion) < text.index('class="tile"')


@pytest.mark.parametrize("make", PAGES)
def test_everybody_can_read_the_page(make: Callable[[Path], Path], tmp_path: Path):
    assert problems(make(tmp_path).read_text()) == []


SOUND = """<!doctype html><html lang="en"><head><title>t</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root { --ink: #111111; } body { color: var(--ink); background: #ffffff; } .pale { color: #777777; }
@media (prefers-color-scheme: dark) { :root { --ink: #eeeeee; } body { background: #000000; } }</style></head>
<body><main><h1>one</h1><h2 id="two">two</h2>REST</main></body></html>"""


def test_a_sound_page_has_no_problems():
    assert problems(SOUND.replace("REST", '<p>text</p><a href="#two">there</a><img src="x" alt="a cat">')) == []


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("<h4>deep</h4>", "level 2"),
        ("<h1>again</h1>", "one h1"),
        ('<img src="x">', "alt text"),
        ("<svg></svg>", "drawing"),
        ('<a href="#none">x</a>', "not there"),
        ('<a href="#two"></a>', "no name"),
        ('<p id="two">x</p>', "used 2 times"),
        ('<p tabindex="3">x</p>', "tabindex"),
        ("<input>", "without a label"),
        ("<table><tr><td>1</td></tr></table>", "no headers"),
        ("<table><tr><th>1</th></tr></table>", "without scope"),
        ('<table><tr><th scope="col"></th><th scope="col">1</th></tr></table>', "an empty header"),
        ('<section aria-label="a">1</section><section aria-label="a">2</section>', "is there 2 times"),
        ('<p class="pale">light grey on white</p>', "light: "),
        ('<p style="color: #222222">dark grey on black</p>', "dark: "),
        ('<div class="scroll" tabindex="0">x</div>', "keyboard"),
        ('<div aria-hidden="true"><a href="#two">x</a></div>', "reached by keyboard"),
    ],
)
def test_accessibility_faults_are_found(broken: str, told: str):
    found = problems(SOUND.replace("REST", broken))
    assert len(found) == 1 and told in found[0]


def test_contrast_is_the_standards():
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((0x76, 0x76, 0x76), (255, 255, 255)) == pytest.approx(4.54, abs=0.01)


# Machado, Oliveira and Fernandes 2009, at full severity; rows give red, green and blue of linear light.
SIGHT = {
    "all colours": np.eye(3),
    "no red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
LIGHT = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def lab(colour: Colour, sight: object) -> np.ndarray:
    """CIE L*a*b* of a colour as somebody sees it."""
    seen = np.clip(np.asarray(sight) @ [linear(part / 255) for part in colour], 0, 1)
    scaled = LIGHT @ seen / WHITE
    root = np.where(scaled > 216 / 24389, np.cbrt(scaled), (24389 / 27 * scaled + 16) / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", SIGHT)
def test_series_differ_for_every_kind_of_sight(sight: str, dark: bool, tmp_path: Path):
    root = parse(ablate_page(tmp_path).read_text())
    styles = Styles(root, dark=dark)
    html = next(element for element in root.walk() if element.tag == "html")
    colours = [styles.resolve(html, f"var(--c{number})") for number in range(6)]
    # 2.3 is a just noticeable difference of two patches side by side; thin lines apart need much more.
    for first, second in combinations(range(6), 2):
        apart = np.linalg.norm(lab(colours[first], SIGHT[sight]) - lab(colours[second], SIGHT[sight]))
        assert apart > 20, f"{first} and {second}: {apart:.1f}"
