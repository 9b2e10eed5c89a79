"""What a model wrote turns and closes nothing on a page around it."""

import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from worlds import report_worlds as worlds
from worlds.student_worlds import recipe

from distill.reports.bidi import isolated, without_controls
from distill.reports.html import render
from distill.reports.markdown import cell
from student.evaluation import report

RLO, LRE, RLI, PDF, FSI, PDI = "\u202e", "\u202a", "\u2067", "\u202c", "\u2068", "\u2069"
OPENING = {"LRE": "PDF", "RLE": "PDF", "LRO": "PDF", "RLO": "PDF", "LRI": "PDI", "RLI": "PDI", "FSI": "PDI"}


def left_open(line: str) -> list[str]:
    """Marks that are still in force at the end of a line, and ends that belong to nothing."""
    found: list[str] = []
    for character in line:
        kind = unicodedata.bidirectional(character)
        if kind in OPENING:
            found.append(OPENING[kind])
        elif kind == "PDI" and "PDI" in found:
            while found.pop() != "PDI":
                pass
        elif kind in ("PDF", "PDI") and found[-1:] == [kind]:
            found.pop()
        elif kind in ("PDF", "PDI"):
            return [f"{kind} of nothing"]
    return found


@pytest.mark.parametrize(
    "text",
    [
        f"four{RLO}ruof",
        f"a{LRE}b{RLI}c",
        f"{PDI}{PDF}{PDF}out",
        f"{RLI}{RLO}x{PDI}y{PDF}",
        f"one{RLO}\ntwo\n{LRE}three{PDF}",
        f"{FSI}{FSI}{PDI}",
    ],
)
def test_marks_are_closed_within_their_text(text: str) -> None:
    shown = isolated(text)
    for line in shown.split("\n"):
        assert left_open(line) == []
        if any(unicodedata.bidirectional(character) in OPENING for character in line):
            assert line.startswith(FSI) and line.endswith(PDI)
    plain = {RLO, LRE, RLI, PDF, FSI, PDI}
    assert [c for c in shown if c not in plain] == [c for c in text if c not in plain]
    assert isolated("שלום, 4 < 5\u200f") == "שלום, 4 < 5\u200f"


def test_a_page_of_hostile_replies_has_no_open_mark_and_no_element_of_theirs(tmp_path: Path) -> None:
    found = worlds.samples([worlds.drawing(tmp_path / "pictures", number) for number in range(3)], 6)
    hostile = f"</p><script>alert(1)</script>{RLO}evil{RLI} & \"quoted\" 'single'"
    found = [replace(sample, question=f"{sample.question} {hostile}", domain=f"d{RLO}") for sample in found]
    lines = worlds.predictions(found)
    for line in lines:
        line |= {key: f"{value} {hostile}" for key, value in line.items() if key in ("reasoning", "answer", "domain")}
    path = tmp_path / "eval.html"
    report.write_report(recipe(tmp_path, more="[eval]\ngallery = 9\n"), path, worlds.metrics(lines), lines, found)
    page = path.read_text(encoding="utf-8")
    assert RLO in page and "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert [line for line in page.split("\n") if left_open(line)] == []


def test_a_page_and_a_card_hold_no_control_character_and_a_cell_begins_nothing() -> None:
    hostile = "a\x1b[2J\x9b31m\x07\r\nb\x00\x7f\u2028c\td"
    assert without_controls(hostile) == "a␛[2J\ufffd31m␇\nb␀␡\u2028c\td"
    for text in (render("{{ text }}", text=hostile), cell(hostile)):
        assert not re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)
    assert cell("x | y\u2028z\n<script>1</script> ![t](https://e.example) \u202e") == (
        "\u2068x \\| y z \\<script>1\\</script> !\\[t](https://e.example) \u202e\u202c\u2069"
    )
    assert cell("`a < b OR c[1]`") == "`a < b OR c[1]`"
