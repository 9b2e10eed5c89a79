"""The steps task keeps its promises: split by image, golds that programs give, faults that rules catch."""

import base64
import io
import json
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from listed.recipe_scripts import TINY, scripts_loaded
from PIL import Image
from typer.testing import CliRunner

from distill import cli
from distill.answers.consistency import compare_conclusion
from distill.data import reader
from distill.grounding.arithmetic_slips import find_slips
from distill.grounding.transcript import is_misread
from distill.rationale import split
from distill.recipe import loading

FOLDER = TINY.parent / "tiny-steps"
FILES = ("questions", "instruct", "captions", "test")
PLUS = {"red": 1, "blue": 2, "green": 3, "yellow": 4}


@pytest.fixture(scope="module")
def steps() -> Iterator[ModuleType]:
    with scripts_loaded(TINY, "world", "steps") as modules:
        yield modules["steps"]


@pytest.fixture(scope="module")
def served(steps: ModuleType) -> dict[str, Any]:
    """What the program of the teachers defines."""
    return runpy.run_path(str(FOLDER / "teacher.py"))


def rows(name: str) -> list[dict[str, Any]]:
    return [
        {**row, "meta": json.loads(row["meta"])}
        for row in pq.read_table(FOLDER / "data" / f"{name}.parquet").to_pylist()
    ]


def results_of(cells: list[str], start: int) -> list[int]:
    """The results of a program, written apart from the code that made the golds."""
    results = [start]
    for cell in cells:
        if cell == "empty":
            continue
        colour, shape = cell.split()
        value = results[-1]
        results.append({"circle": value + PLUS[colour], "square": value - PLUS[colour], "triangle": 2 * value}[shape])
    return results


@pytest.mark.parametrize("name", ["questions", "test"])
def test_gold_answers_are_the_results_of_the_programs(name: str) -> None:
    steps = Counter()
    for row in rows(name):
        results = results_of(row["meta"]["cells"], row["meta"]["start"])
        assert row["answer"] == str(results[-1])
        assert min(results) >= 0 and max(results) <= 30
        assert f"Start at {results[0]}:" in row["question"]
        assert row["difficulty"] == str(len(results) - 1)
        steps[len(results) - 1] += 1
    assert sorted(steps) == [4, 5, 6, 7, 8]
    assert len(set(steps.values())) == 1


def test_no_two_rows_share_a_image() -> None:
    seen = [json.dumps(row["meta"]["cells"]) for name in FILES for row in rows(name)]
    assert len(seen) == len(set(seen))


def test_guessing_the_commonest_answer_is_weak() -> None:
    answers = Counter(row["answer"] for row in rows("test"))
    assert max(answers.values()) < 0.12 * answers.total()


def test_the_toolkit_reads_every_file_without_a_bad_row() -> None:
    recipe = loading.load("tiny-steps")
    for name in FILES:
        assert len(list(reader.samples(recipe, name))) == len(rows(name)[: recipe.data[name].limit])
    assert {sample.meta["difficulty"] for sample in reader.samples(recipe, "test")} == {"4", "5", "6", "7", "8"}


def test_what_is_shipped_stays_below_five_megabytes() -> None:
    files = [file for file in FOLDER.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert sum(file.stat().st_size for file in files) < 5_000_000
    assert {file.suffix for file in files} <= {".parquet", ".md", ".py"}


def test_the_recipe_asks_every_teacher_by_its_name(steps: ModuleType) -> None:
    teachers = loading.load("tiny-steps").teachers
    assert [teacher.name for teacher in teachers] == [teacher.model for teacher in teachers] == list(steps.FAULTS)


def test_the_teachers_read_every_cell_of_the_test_images_from_the_pixels(served: dict[str, Any]) -> None:
    for row in rows("test"):
        image = Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")
        assert served["read_cells"](np.asarray(image)) == row["meta"]["cells"]


def test_the_program_of_the_teachers_needs_nothing_of_the_development_set_up() -> None:
    code = f"import runpy, sys; sys.modules['sklearn'] = None; runpy.run_path({str(FOLDER / 'teacher.py')!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_teacher_answers_a_request_the_same_with_the_same_seed(served: dict[str, Any]) -> None:
    row = rows("test")[0]
    url = f"data:image/png;base64,{base64.b64encode(row['image']['bytes']).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": row["question"]}]
    request = {"messages": [{"role": "user", "content": content}], "seed": 3}
    assert split(served["answer"]("careful", request), "think").answer.strip() == row["answer"]
    several = [served["answer"]("slips", request | {"seed": seed}) for seed in (*range(20), *range(20))]
    assert several[:20] == several[20:]
    assert len(set(several)) > 3


def caught(text: str, gold: str) -> set[str]:
    """The rules of the recipe that drop such a reply, by the functions that its signals call."""
    parts = split(text, "think")
    answer = parts.answer.strip()
    found = {
        "bad_format": not parts.well_formed or not answer,
        "wrong_answer": answer != gold,
        "arithmetic_slip": bool(find_slips(parts.rationale).slips),
        "contradicted": compare_conclusion(parts.rationale, answer, "number", ()) == "contradicts",
    }
    return {name for name, value in found.items() if value}


@pytest.mark.parametrize(
    ("teacher", "rule"),
    [
        ("slips", "arithmetic_slip"),
        ("order", "wrong_answer"),
        ("misreader", "wrong_answer"),
        ("contradicts", "wrong_answer"),
        ("contradicts", "arithmetic_slip"),
        ("format", "bad_format"),
    ],
)
def test_a_rule_catches_the_fault_of_each_teacher_and_drops_no_faultless_reply(
    steps: ModuleType, teacher: str, rule: str
) -> None:
    rng = np.random.default_rng(5)
    counts: Counter[str] = Counter()
    for _ in range(150):
        image, start = steps.imagine_program(int(rng.choice(steps.STEPS)), rng)
        cells = image.content["cells"]
        gold = str(steps.run_cells(cells, start)[-1])
        text = steps.reply(teacher, cells, start, rng)
        right = text == steps.reply("careful", cells, start, rng)
        rules = caught(text, gold)
        assert not (right and rules), (text, rules)
        counts["faulty"] += not right
        counts["caught"] += bool(rules)
        counts[rule] += rule in rules
        if teacher == "misreader":
            assert is_misread(split(text, "think").rationale, image.content) is not right
    assert 0.3 * 150 < counts["faulty"] < 0.65 * 150
    assert counts["caught"] >= 0.9 * counts["faulty"]
    assert counts[rule] > 0.3 * counts["faulty"]


def test_teachers_without_a_fault_are_right(steps: ModuleType) -> None:
    rng = np.random.default_rng(6)
    for _ in range(100):
        image, start = steps.imagine_program(int(rng.choice(steps.STEPS)), rng)
        cells = image.content["cells"]
        for teacher in ("careful", "terse"):
            assert not caught(steps.reply(teacher, cells, start, rng), str(steps.run_cells(cells, start)[-1]))


def test_the_share_of_cells_read_counts_those_in_their_place(steps: ModuleType) -> None:
    metric = runpy.run_path(str(FOLDER / "metrics.py"))["own_cells_read"]
    sample = next(iter(reader.samples(loading.load("tiny-steps"), "test")))
    solution = steps.solve(sample.meta["cells"], sample.meta["start"])
    text = steps.cell_by_cell(solution)
    assert metric.value(sample, {"reasoning": text}) == 1.0
    first = sample.meta["cells"][0]
    assert metric.value(sample, {"reasoning": text.replace(f"Row 1: {first}", "Row 1: pink star")}) == 15 / 16
    assert metric.value(sample, {"reasoning": "3 + 4 = 7."}) is None


def test_the_data_are_drawn_the_same_from_the_same_seed(tmp_path: Path) -> None:
    with scripts_loaded(TINY, "world", "questions", "pretrain", "teach", "build", "steps", "build_steps") as modules:
        small = {name: (5, make) for name, (_, make) in modules["build_steps"].FILES.items()}
        modules["build_steps"].FILES.update(small)
        for folder in ("a", "b"):
            modules["build_steps"].build_data(tmp_path / folder)
    for name in FILES:
        assert (tmp_path / "a" / f"{name}.parquet").read_bytes() == (tmp_path / "b" / f"{name}.parquet").read_bytes()


@pytest.mark.slow
def test_the_recipe_runs_from_end_to_end(tmp_path: Path) -> None:
    """Eight questions to two of the teachers, one step a stage; the arms are scored by number of steps."""
    asked = ("careful", "slips")
    script = '{ command = ["tiny-steps/teacher.py"] }'
    teachers = ", ".join(f'{{ name = "{name}", model = "{name}", server = {script} }}' for name in asked)
    small = {
        "teachers": f"[{teachers}]",
        "data.questions.limit": "8",
        "data.captions.limit": "20",
        "data.instruct.limit": "20",
        "data.test.limit": "10",
        "stages.reason.max_steps": "1",
        "stages.answers_only.max_steps": "1",
        "eval.max_new_tokens": "8",
        "eval.without_image": "false",
    }
    changes = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
    result = CliRunner().invoke(cli.app, ["run", "tiny-steps", "--run", str(tmp_path / "run"), *changes])
    assert result.exit_code == 0, result.output
    arms = json.loads((tmp_path / "run" / "eval" / "metrics.json").read_bytes())["arms"]
    assert list(arms) == ["untouched", "answers_only", "distilled"]
    assert set(arms["distilled"]["difficulty"]) == {"4", "5", "6", "7", "8"}
    assert "own_cells_read" in arms["distilled"]
    parts = sorted((tmp_path / "run" / "generate").glob("*/part-*.jsonl"))
    assert {part.parent.name for part in parts} == set(asked)

    # One command makes every stale stage again, and asks no teacher again.
    written = [part.read_bytes() for part in parts]
    changes += ["--set", "filter.repetition.ngram=2", "--set", "stages.reason.learning_rate=1e-3"]
    again = ["run", "tiny-steps", "--run", str(tmp_path / "run"), *changes]
    refused = CliRunner().invoke(cli.app, again)
    assert refused.exit_code == 2 and "--redo-stale" in refused.output
    redone = CliRunner().invoke(cli.app, [*again, "--redo-stale"])
    assert redone.exit_code == 0, redone.output
    assert [part.read_bytes() for part in parts] == written
    assert (tmp_path / "run" / "filter.previous").is_dir() and (
        tmp_path / "run" / "train.previous" / "reason"
    ).is_dir()
    (tmp_path / "run" / "eval" / "manifest.json").unlink()
    assert CliRunner().invoke(cli.app, again).exit_code == 0
