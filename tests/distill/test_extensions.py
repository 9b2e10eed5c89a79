"""Code from outside the project: what is checked before it runs, and how its errors are written."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from processes import installed_package

from distill import extensions
from distill.answers.user_types import UserAnswerType
from distill.data import formats, source_answer_types
from distill.data.sources import locate
from distill.errors import DataError, RecipeError
from distill.extensions import FAILURES, PROMPTS, call_fault, describe, field_fault
from distill.extensions import load as load_part
from distill.recipe.loading import load
from filters.dataset.export_formats import ExportFormat, chosen_formats
from student.evaluation.user_metrics import UserMetric, user_metrics
from teacher.messages.prompts import prompt_key

PARTS = """
from distill.answers.user_types import UserAnswerType
from filters.dataset.export_formats import ExportFormat
from student.evaluation.user_metrics import UserMetric

def one(first):
    return first

def two(first, second):
    return second

grade = UserAnswerType(name="own_grade", same=one)
chat = ExportFormat(file="chat.jsonl", record=one)
short = UserMetric(name="own_short", label="short", kind="share", value=one)
index = ExportFormat(file="dataset_info.json", record=two)
capitals = ExportFormat(file="LLAVA.json", record=two)
"""
RECIPE = """
[data.questions]
source = "rows.jsonl"
answer_type = "mine.py:grade"
format = "mine.py:one"
[[teachers]]
name = "t"
model = "m"
backend = "vllm"
prompt = "mine.py:two"
[eval]
metrics = ["mine.py:short"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PARTS)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path


def test_functions_that_take_other_values_are_refused_by_their_key_before_any_row(folder: Path) -> None:
    recipe = load(folder / "recipe.toml")
    (source,), (teacher,) = recipe.data.values(), recipe.teachers
    message = r"^{} = '.*': it takes \(first.*\), and is called with \({}\): .*docs/extending.md"
    with pytest.raises(RecipeError, match=message.format("data.questions.answer_type", "prediction, gold")):
        source_answer_types.answer_type_of(source)
    with pytest.raises(RecipeError, match=message.format("data.questions.format", "values, source")):
        formats.outside_format(source)
    with pytest.raises(RecipeError, match=message.format("teachers.t.prompt", "sample")):
        prompt_key(teacher)
    with pytest.raises(RecipeError, match=message.format("eval.metrics", "sample, prediction")):
        user_metrics(recipe)
    with pytest.raises(RecipeError, match=message.format("filter.exports", "example, paths")):
        chosen_formats(["mine.py:chat"], folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [("index", "is a file of the export llama-factory"), ("capitals", "another export writes LLAVA.json")],
)
def test_an_export_takes_no_name_of_another_file(folder: Path, name: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        chosen_formats(["llava", f"mine.py:{name}"], folder)


def record(example: Any, paths: Any) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (ExportFormat(file=3, record=record), "its file is 3: "),  # type: ignore[arg-type]
        (ExportFormat(file="a.json", record=record, tags="<image>"), "its tags is '<image>': "),  # type: ignore[arg-type]
        (ExportFormat(file="a.json", record=record, guide=None), "its guide is None: "),  # type: ignore[arg-type]
        (UserMetric(name="own_a", label=None, kind="share"), "its label is None: "),  # type: ignore[arg-type]
        (UserMetric(name="own_a", label="a", kind="sum"), "its kind is 'sum': Input should be 'share' or 'mean'"),  # type: ignore[arg-type]
        (UserAnswerType(name="own_a", same="no"), "its same is 'no': "),  # type: ignore[arg-type]
        (ExportFormat(file="a.json", record=record, tags=["<a>"]), ""),  # type: ignore[arg-type]
        (UserMetric(name="own_a", label="a", kind="share", value=lambda *_: True), ""),
    ],
)
def test_a_field_of_another_type_is_named(made: Any, fault: str) -> None:
    found = field_fault(made)
    assert found.startswith(fault) and bool(found) == bool(fault)


def test_a_function_whose_parameters_cannot_be_told_is_left_to_its_call() -> None:
    assert call_fault(max, "a") == call_fault(lambda *values: 0, "a", "b") == ""
    assert (
        call_fault(lambda a, *, b: 0, "a")
        == "it takes (a, *, b), and is called with (a): missing a required argument: 'b'"
    )


@pytest.mark.parametrize(
    "lines", ["import helper", "def part(sample):\n    from helper.words import more\n    return more"]
)
@pytest.mark.parametrize("place", ["helper.py", "helper/__init__.py"])
def test_a_file_beside_that_python_would_find_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, place: str
) -> None:
    """A notebook has its folder on the path; a change of the other file would make nothing stale."""
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("more = 1\n")
    (tmp_path / "mine.py").write_text(f"{lines}\npart = print\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RecipeError, match=rf"mine\.py imports {place.partition('/')[0]} from its folder"):
        load_part(PROMPTS, "mine.py:part", "teachers.t.prompt", tmp_path, lambda _: "")


def test_an_installed_package_with_its_source_beside_the_file_may_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_package.install(tmp_path, monkeypatch, {"helper": "more = 1\n"}, {})
    (tmp_path / "own_parts-1.2.dist-info/top_level.txt").write_text("helper\n")
    (tmp_path / "mine.py").write_text("from helper import more as part\n")
    assert load_part(PROMPTS, "mine.py:part", "teachers.t.prompt", tmp_path, lambda _: "").loaded == 1


def test_a_package_in_development_mode_may_lie_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists no modules."""
    folder = tmp_path / "work"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes/helper.py").write_text("more = 1\n")
    (folder / "recipes/mine.py").write_text("from helper import more as part\n")
    installed_package.install(tmp_path / "site", monkeypatch, {}, {})
    origin = {"url": folder.as_uri(), "dir_info": {"editable": True}}
    (tmp_path / "site/own_parts-1.2.dist-info/direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(folder / "recipes"))
    assert load_part(PROMPTS, "mine.py:part", "teachers.t.prompt", folder / "recipes", lambda _: "").loaded == 1


def test_a_file_in_a_clone_of_this_project_may_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "filters").mkdir()
    (tmp_path / "mine.py").write_text("from filters.signals.base import OK as part\n")
    monkeypatch.setattr(extensions, "_is_found_at", lambda name, place: True)
    monkeypatch.setattr(extensions.metadata, "packages_distributions", dict)
    monkeypatch.setattr(extensions.metadata, "distributions", tuple)
    assert load_part(PROMPTS, "mine.py:part", "teachers.t.prompt", tmp_path, lambda _: "").loaded == "ok"


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_is_described_whatever_its_text_is() -> None:
    assert describe(_Unspeakable()) == "_Unspeakable"
    assert describe(ValueError("half \ud800")) == "ValueError: half \ufffd"
    assert len(describe(ValueError("x" * 1_000_000))) == 500


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def part(sample):\n    return sample.nothing\n",
            "AttributeError: .* has no attribute 'nothing' .mine.py, line 2.$",
        ),
        ("import sys\ndef part(sample):\n    sys.exit('end')\n", r"SystemExit: end \(mine.py, line 3\)$"),
        ("def part(sample):\n    return int(f'x{sample}')\n", r"ValueError: .* \(mine.py, line 2\)$"),
    ],
)
def test_an_error_of_code_from_outside_names_its_line(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    part = load_part(PROMPTS, "mine.py:part", "prompt", tmp_path, lambda _: "").loaded
    with pytest.raises(FAILURES) as failed:
        part(7)
    assert re.search(message, describe(failed.value))


def test_an_error_of_an_installed_package_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"own_zero": "def part(sample):\n    return 1 / 0\n"}
    installed_package.install(tmp_path / "site", monkeypatch, modules, {PROMPTS: {"zero": "own_zero:part"}})
    part = load_part(PROMPTS, "zero", "prompt", tmp_path, lambda _: "").loaded
    with pytest.raises(ZeroDivisionError) as failed:
        part(7)
    assert describe(failed.value) == "ZeroDivisionError: division by zero (own_zero.py, line 2)"


def test_a_file_that_imports_what_is_not_installed_says_where_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json\nimport nosuchpackage\n")
    with pytest.raises(RecipeError) as failed:
        load_part(PROMPTS, "mine.py:part", "prompt", tmp_path, lambda _: "")
    assert "'nosuchpackage' (mine.py, line 2); install the package of nosuchpackage for " in str(failed.value)


def test_an_async_function_is_refused_before_it_is_called() -> None:
    async def part(sample: Any) -> str:
        return str(sample)

    assert "async" in call_fault(part, "sample")


def test_code_that_changes_the_working_folder_moves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine.py").write_text("import os\nos.chdir('elsewhere')\ndef move(place):\n    os.chdir(place)\n")
    monkeypatch.chdir(tmp_path)
    move = load_part(PROMPTS, "mine.py:move", "prompt", tmp_path, lambda _: "").loaded
    assert Path.cwd() == tmp_path
    extensions.call(move, "elsewhere")
    assert Path.cwd() == tmp_path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_instead_of_a_file_is_an_error_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "pipe.py")
    os.mkfifo(folder / "pipe.jsonl")
    with pytest.raises(RecipeError, match=r"pipe\.py cannot be read \(it is no file\)"):
        load_part(PROMPTS, "pipe.py:two", "prompt", folder, lambda _: "")
    with pytest.raises(RecipeError, match="is a pipe or a device; save the recipe as a file"):
        load(folder / "pipe.py")
    recipe = load(folder / "recipe.toml", {"data.questions.source": "pipe.jsonl"})
    with pytest.raises(DataError, match=r"pipe\.jsonl is no file or folder"):
        locate(recipe, "questions")
