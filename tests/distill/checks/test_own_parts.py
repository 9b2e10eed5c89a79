"""`distill check` tries each part of the user's own on rows of the recipe, before anything is asked or trained."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import installed_package
from worlds import check_world

from distill.checks import evaluation, ideal_traces, own_parts, recipe_checks
from distill.checks.recipe_checks import check_recipe
from distill.checks.results import CheckResult
from distill.extensions import DATA_FORMATS, EXPORT_FORMATS, SIGNALS, load_again
from distill.recipe.loading import load

HEAD = """
import time
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Literal

import pyarrow as pa

from distill.answers.user_types import UserAnswerType
from filters.dataset.export_formats import ExportFormat
from filters.signals.base import OK, family
from student.evaluation.user_metrics import UserMetric

calls = count()

def boom(*values):
    raise ValueError("boom")
"""
SIGNAL = """
@dataclass(frozen=True)
class part:
    name: ClassVar[str] = "luck"
    version: ClassVar[str] = "1"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family("luck", luck_value=("count", "a number"))

    @classmethod
    def from_recipe(cls, recipe):
        return cls()

    def measure(self, sample, traces):
        return [{"luck_state": OK, "luck_value": BODY} for trace in traces]
"""
KINDS = {
    "prompt": ("teachers.structured.prompt", "def part(sample):\n    return BODY\n"),
    "answer_type": (
        "data.questions.answer_type",
        'part = UserAnswerType(name="own_type", same=lambda prediction, gold: BODY)\n',
    ),
    "signal": ("filter.signals", SIGNAL),
    "export": ("filter.exports", 'part = ExportFormat(file="own.jsonl", record=lambda example, paths: BODY)\n'),
    "metric": (
        "eval.metrics",
        'part = UserMetric(name="own_m", label="m", kind="mean", value=lambda sample, prediction: BODY)\n',
    ),
}
FORMAT = """
from distill.data.formats import ImageCell, ParsedRow, RowQuestion

def part(values, source):
    image = ImageCell(column="image", index=0, value=values["image"])
    return ParsedRow(images=(image,), questions=(RowQuestion(text=BODY, answers=("7",)),))
"""
RIGHT = {
    "prompt": "sample.question",
    "answer_type": "prediction == gold",
    "signal": "len(trace.reasoning) + len(trace.params)",
    "export": '{"id": example.id, "size": len(example.pictures[0].data), "first": paths[0]}',
    "metric": 'prediction["tokens"] / len(prediction["text"])',
}
CHECKS = [each for each in recipe_checks.WHOLE if each[1].__module__ == own_parts.__name__]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return check_world.build(tmp_path_factory.mktemp("world"))


def checked(world: Path, kind: str, body: str, checks: Sequence[Any] = CHECKS) -> list[CheckResult]:
    """What the checks find of one part whose value is `body`."""
    key, code = KINDS[kind]
    (world / "mine.py").write_text(HEAD + code.replace("BODY", body))
    values = check_world.values()
    if kind == "prompt":
        values["teachers"][0]["prompt"] = "mine.py:part"
    elif kind == "answer_type":
        values["data"]["questions"]["answer_type"] = "mine.py:part"
    else:
        section, name = key.split(".")
        values[section][name] = ["mine.py:part"]
    check_world.save(world, values)
    load_again()
    report = check_recipe(load(world / "recipe.toml"), world / "run", checks=checks)
    assert {result.key for result in report.results} <= {key}
    return [result for result in report.results if result.state != "ok"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_works_is_no_problem(world: Path, kind: str) -> None:
    assert checked(world, kind, RIGHT[kind]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_fails_on_every_row_is_a_problem_with_its_error(world: Path, kind: str) -> None:
    (found,) = checked(world, kind, "boom()")
    assert found.state == "problem" and "ValueError: boom" in found.message and found.mend.startswith("correct ")


@pytest.mark.parametrize("kind", ["prompt", "signal", "export", "metric"])
def test_a_part_that_fails_on_some_rows_is_a_warning_with_their_number(world: Path, kind: str) -> None:
    question = 'example.messages[0]["content"]' if kind == "export" else "sample.question"
    (found,) = checked(world, kind, f'boom() if "3:" in {question} else {RIGHT[kind]}')
    assert found.state == "warning" and " fails on " in found.message and "boom" in found.message


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("prompt", 'f"{sample.question} {next(calls)}"'),
        ("signal", "next(calls)"),
        ("export", '{"n": next(calls)}'),
        ("metric", "next(calls)"),
    ],
)
def test_a_part_with_another_value_at_each_call_is_a_warning(world: Path, kind: str, body: str) -> None:
    (found,) = checked(world, kind, body)
    assert found.state == "warning" and "another value at the second call" in found.message


@pytest.mark.parametrize(
    ("body", "count"),
    [('f"Again {next(calls)}?"', 1), ('values["question"]', 0), ('"Which?" if len(values) else boom()', 0)],
)
def test_a_data_format_with_other_questions_at_each_reading_is_a_warning(world: Path, body: str, count: int) -> None:
    (world / "mine.py").write_text(HEAD + FORMAT.replace("BODY", body))
    values = check_world.values()
    values["data"]["questions"]["format"] = "mine.py:part"
    check_world.save(world, values)
    load_again()
    found = check_recipe(load(world / "recipe.toml"), world / "run", checks=CHECKS).results
    assert [result.state for result in found] == ["warning"] * count
    assert all("another value at the second call for" in result.message for result in found)


def test_a_signal_that_waits_is_a_warning_and_no_other_check_waits_for_it(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_parts, "_LONGEST", 0.2)
    rules = ("filter.rules", ideal_traces.check_rules_keep_something)
    (found,) = checked(world, "signal", "time.sleep(60)", [*CHECKS, rules])
    assert found.state == "warning" and "'luck' takes more than 0.1 s for one of the made-up traces" in found.message


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_comes_after_its_stage_is_finished_is_tried(world: Path, kind: str) -> None:
    """A signal is added to a run whose filter is finished; the next command uses it."""
    manifests = [world / "run" / stage / "manifest.json" for stage in ("generate", "filter", "eval")]
    try:
        for path in manifests:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
        (found,) = checked(world, kind, "boom()")
        assert found.state == "problem" and "ValueError: boom" in found.message
    finally:
        shutil.rmtree(world / "run")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_cannot_be_loaded_is_one_problem(world: Path, kind: str) -> None:
    """Several checks need it."""
    checked(world, kind, RIGHT[kind], [])
    (world / "mine.py").write_text("def part(:\n")
    load_again()
    report = check_recipe(load(world / "recipe.toml"), world / "run")
    (found,) = [result for result in report.problems if "mine.py" in result.message]
    assert found.key in KINDS[kind][0] and "SyntaxError: " in found.message
    assert report.as_text().count(f"{KINDS[kind][0]} = ") == 1


def test_a_name_of_the_project_that_a_package_takes_too_is_a_warning(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {
        SIGNALS: {"length": "own:part"},
        EXPORT_FORMATS: {"llava": "own:part"},
        DATA_FORMATS: {"plain": "own:a"},
    }
    installed_package.install(tmp_path / "site", monkeypatch, {}, points)
    values = check_world.values()
    values["filter"] |= {"signals": ["answer", "length"], "exports": ["ms-swift"]}
    check_world.save(world, values)
    found = check_recipe(load(world / "recipe.toml"), world / "run", checks=[("data", own_parts.check_names)]).results
    assert {result.key for result in found} == {"filter.signals", *(f"data.{name}.format" for name in values["data"])}
    assert all("in the package own-parts is not used" in result.message for result in found)


@pytest.mark.parametrize(
    ("body", "state", "words"),
    [
        ("put(values, 'stages.reason.learning_rate', 0.5)", "ok", "2 arms can be made"),
        ("values", "warning", "it changes no value, so it is trained as the arm distilled is"),
        (
            "put(values, 'stages.reason.learning_rate', next(calls) + 0.5)",
            "warning",
            "other values at the second call",
        ),
        ("put(values, 'stages.no.learning_rate', 1)", "problem", "ablate.own.odd.change = 'mine.py:part': stages.no"),
        ("boom()", "problem", "ValueError: boom (mine.py, line "),
    ],
)
def test_an_arm_that_is_no_other_recipe_is_named(world: Path, body: str, state: str, words: str) -> None:
    code = f"from distill.recipe.loading import put\ndef part(values, recipe):\n    {body}\n    return 'x'\n"
    (world / "mine.py").write_text(HEAD + code)
    values = check_world.values()
    values["ablate"] = {"arms": ["distilled", "odd"], "seeds": [0], "own": {"odd": {"change": "mine.py:part"}}}
    check_world.save(world, values)
    load_again()
    report = check_recipe(load(world / "recipe.toml"), world / "run", checks=[("ablate", evaluation.check_ablation)])
    assert report.results[0].state == state and words in report.results[0].message


def test_an_answer_type_that_refuses_the_gold_answer_itself_is_a_problem(world: Path) -> None:
    (found,) = checked(world, "answer_type", "False")
    assert found.state == "problem" and "is wrong where a teacher gives this very answer" in found.message
    (found,) = checked(world, "answer_type", "None")
    assert found.state == "warning" and "is undecided about each of 40 gold answers" in found.message
    (found,) = checked(world, "answer_type", "'yes'")
    assert "it returned 'yes'; a verdict is True, False or None" in found.message


def test_an_answer_type_is_tried_on_the_rows_that_state_no_other_type(world: Path) -> None:
    rows = check_world.rows(world / "questions.jsonl")
    try:
        check_world.write(world / "questions.jsonl", [row | {"answer_type": "number"} for row in rows])
        (found,) = checked(world, "answer_type", "boom()")
        assert found.state == "warning" and "is used for no row" in found.message
        assert "such as in the column 'answer_type'" in found.message
        stated = [row | ({"answer_type": "number"} if number else {}) for number, row in enumerate(rows)]
        check_world.write(world / "questions.jsonl", stated)
        (found,) = checked(world, "answer_type", "None")
        assert "is undecided about each of 1 gold answers" in found.message
    finally:
        check_world.write(world / "questions.jsonl", rows)
