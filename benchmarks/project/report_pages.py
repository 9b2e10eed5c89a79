"""Report pages weighed, checked and photographed.

    python benchmarks/project/report_pages.py --out /tmp/pages [--questions 600] [--axe axe.min.js] [PAGE ...]

Without PAGE: an invented evaluation and ablation of four arms, 600 questions about as many different photographs
(crops of the two that scikit-learn ships) with rationales of 100 words, and one with rationales of 3,000. Says how
long each takes to write, how many bytes it has, what was made smaller, and what the rules of
tests/support/pages/accessibility.py say. With Chromium also: axe-core's findings (its axe.min.js from the npm package
axe-core, MPL-2.0, is read from the path given and used here only), the time to load and to filter, and screenshots in
--out of a phone and a desktop, light and dark.
Takes 90 s with `--questions 20` (two shared cores). Screenshots need Chromium.
"""

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from pages.accessibility import problems
from pages.browser import CHROMIUM, DESKTOP, PHONE, Tab, browse
from worlds import report_worlds as worlds

from distill.ablation import report as ablate_report

NOTES = re.compile(r'<p class="note">((?:Images were|Rationales are cut|[\d,]+ of [\d,]+ questions)[^<]*)</p>')
AXE = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map((each) =>
    [each.id, each.impact, each.nodes.length, each.nodes[0].html.slice(0, 160), each.nodes[0].failureSummary]))"""
FILTER = """(() => { const select = document.querySelector("#filters [name=verdict]"); if (!select) return null;
    const begun = performance.now(); select.value = "wrong";
    select.dispatchEvent(new Event("input", {bubbles: true})); document.body.offsetHeight;
    return performance.now() - begun; })()"""


def write(folder: Path, questions: int, words: int) -> list[Path]:
    """An evaluation's and an ablation's page of invented figures."""
    from worlds.student_worlds import recipe

    from student.evaluation import report

    asked = worlds.samples(worlds.photographs(folder / "photographs", questions), questions)
    lines = worlds.predictions(asked, words=words)
    made = []
    begun = time.perf_counter()
    settings = recipe(folder, more=f"[eval]\ngallery = {questions}\n")
    report.write_report(settings, folder / f"eval-{words}.html", worlds.metrics(lines), lines, asked)
    made.append(folder / f"eval-{words}.html")
    print(f"{made[-1].name}: written in {time.perf_counter() - begun:.1f} s")
    begun = time.perf_counter()
    by_arm = {arm: [line for line in lines if line["arm"] == arm] for arm in worlds.ARMS}
    cards = ablate_report.cards(by_arm, asked, questions, reference="distilled")
    ablate_report.write(folder / f"ablate-{words}.html", worlds.results(), cards)
    made.append(folder / f"ablate-{words}.html")
    print(f"{made[-1].name}: written in {time.perf_counter() - begun:.1f} s")
    return made


def weigh(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    cards, images = text.count('<article class="card entry"'), text.count("base64,")
    print(f"{page.name}: {page.stat().st_size:,} bytes, {cards} questions, {images} pictures")
    for note in NOTES.findall(text):
        print(f"  {note}")
    for problem in problems(text):
        print(f"  problem: {problem}")


def look(page: Path, out: Path, axe: Path | None) -> None:
    """Load the page in a browser as four screens would."""

    async def run(tab: Tab) -> None:
        tab.patience_s = 900  # axe-core looks at every pair of colours of 600 cards
        for size, screen in ((PHONE, "phone"), (DESKTOP, "desktop")):
            for dark in (False, True):
                begun = time.perf_counter()
                await tab.open(page, size, dark=dark)
                loaded = time.perf_counter() - begun
                name = f"{page.stem}-{screen}-{'dark' if dark else 'light'}"
                width = await tab.evaluate("document.documentElement.scrollWidth")
                found: list[Any] = []
                if axe is not None:
                    await tab.evaluate(axe.read_text(encoding="utf-8") + "\n;0")
                    # What lies off the screen is drawn only when scrolled to, and axe looks at what is drawn.
                    await tab.evaluate(
                        "document.querySelectorAll('.entry').forEach(e => e.style.contentVisibility = 'visible')"
                    )
                    found = await tab.evaluate(AXE)
                filtered = await tab.evaluate(FILTER)
                told = "" if filtered is None else f", filtered in {filtered:.0f} ms"
                print(f"{name}: loaded in {loaded:.2f} s{told}, {width} pixels wide, {len(tab.problems)} errors")
                for problem in tab.problems:
                    print(f"  error: {problem}")
                for rule, impact, count, html, summary in found:
                    print(f"  axe: {rule} ({impact}), {count} times, such as {html}\n    {summary}")
                await tab.screenshot(out / f"{name}.png", height=6000)

    browse(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=600)
    parser.add_argument("--axe", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    pages = arguments.pages or [
        page for words in (100, 3000) for page in write(arguments.out, arguments.questions, words)
    ]
    for page in pages:
        weigh(page)
        if CHROMIUM is not None:
            look(page, arguments.out, arguments.axe)


if __name__ == "__main__":
    main()
