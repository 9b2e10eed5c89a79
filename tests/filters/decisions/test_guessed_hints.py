"""Hints that teach guessing: a teacher that is shown the gold answer invents readings, and the diagnosis names it."""

from dataclasses import replace
from pathlib import Path

import duckdb
import orjson
import pytest
from worlds.run_fixtures import generate_folder, recipe, sample, trace

from filters.apply import apply
from filters.decisions import diagnosis_facts

pytestmark = pytest.mark.usefixtures("short_report")


def add_up(total: int, first: int) -> str:
    return f"Blue is {first}, red is {total - first}. {first} + {total - first} = {total}."


def told_with_hints(folder: Path, guessing: int, *, unhinted: bool) -> list[dict]:
    """The findings of 40 charts. `structured` is shown the answer, and invents bars with that sum for some charts.

    `brief` is not shown it and reads the bars.
    """
    charts = [sample(f"Sum of chart {n}?", str(9 + n % 5), domain="charts", bars={"blue": 4, "red": 5 + n % 5})
              for n in range(40)]  # fmt: skip
    traces = []
    for n, one in enumerate(charts):
        total = 9 + n % 5
        shown = trace(one, str(total), add_up(total, 1 if n < guessing else 4))
        traces.append(replace(shown, hinted=True))
        if unhinted:
            traces.append(trace(one, str(total), add_up(total, 4), teacher="brief"))
    generate_folder(folder / "run", charts, traces)
    rules = """[filter]\nsignals = ["answer", "format", "grounding"]
    [[filter.rules]]\nname = "wrong_answer"\ndrop = "answer_verdict = 'wrong'"\n"""
    apply(recipe(folder, rules), folder / "run")
    found: list[dict] = orjson.loads((folder / "run/filter/health.json").read_bytes())["diagnosis"]
    return found


@pytest.mark.parametrize("unhinted", [True, False])
def test_hints_that_teach_guessing_are_named_with_the_line_to_change(tmp_path: Path, unhinted: bool) -> None:
    (finding,) = told_with_hints(tmp_path, 30, unhinted=unhinted)
    assert finding["name"] == "hints_guess"
    assert finding["problem"].startswith("30 of 40 traces of structured (75 %), shown the gold answer, state values")
    assert ("without it, 0 of 40 (0 %) do" in finding["problem"]) == unhinted
    assert "teachers.structured.hinted, now true" in finding["change"] and "{cues}" in finding["change"]


def test_hints_after_which_a_teacher_still_reads_are_no_fault(tmp_path: Path) -> None:
    (finding,) = told_with_hints(tmp_path, 2, unhinted=True)
    assert finding["kind"] == "good"


@pytest.mark.parametrize(("confidence", "named"), [(0.9, True), (0.5, False)])
def test_values_that_ocr_surely_does_not_read_count_as_well(confidence: float, named: bool) -> None:
    database = duckdb.connect()
    database.execute(
        """CREATE TABLE local AS SELECT i < 30 AS hinted, if(i < 30, 'told', 'plain') AS teacher, 'a' AS domain,
        'complete' AS outcome, 'correct' AS answer_verdict, NULL::BIGINT AS unsupported_values,
        NULL::BIGINT AS grounding_checked, 3 AS ocr_checked, if(i < 20, 'unsupported', 'supported') AS ocr_verdict,
        ?::DOUBLE AS ocr_confidence FROM range(60) AS rows(i)""",
        [confidence],
    )
    counted = {row[0]: tuple(row[1:]) for row in database.execute(diagnosis_facts._UNSEEN).fetchall()}
    assert counted == {True: (["told"], 30, 20 if named else 0), False: (["plain"], 30, 0)}
