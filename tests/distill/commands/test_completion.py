"""Completion in a shell: recipes, and names that the recipe or the run of the command line holds."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distill import cli

RECIPE = """
[data.questions]
source = "questions.jsonl"
[data.exam]
source = "exam.jsonl"
[[teachers]]
name = "reader"
model = "owner/reader"
[[teachers]]
name = "writer"
model = "owner/writer"
[student]
model = "owner/student"
[[stages]]
name = "align"
data = "questions"
train = ["language"]
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
[ablate.own.hot]
set = { "stages.reason.learning_rate" = 1.0 }
[ablate.studies.heat]
question = "Does heat help?"
arms = ["distilled", "hot"]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    for path in (tmp_path / "mine.toml", run / "recipe.toml"):
        path.write_text(RECIPE)
    (tmp_path / "broken.toml").write_text("[[stages]\n")


def completed(line: str, shell: str = "bash") -> list[str]:
    """What a shell gets for `distill LINE` with the cursor at its end."""
    words = ["distill", *line.split(" ")]
    bash = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    other = {"_TYPER_COMPLETE_ARGS": f"distill {line}"}
    environment = {"_DISTILL_COMPLETE": f"complete_{shell}", **(bash if shell == "bash" else other)}
    result = CliRunner().invoke(cli.app, env=environment, prog_name="distill")
    assert not result.stderr, result.stderr
    return result.stdout.split()


def test_a_recipe_is_a_shipped_name_or_a_file_of_this_folder() -> None:
    assert {"tiny", "pocket", "mine.toml"} <= set(completed("run "))
    assert completed("eval mi") == ["mine.toml"]
    assert completed("filter mine.toml --what-if po") == ["pocket"]
    assert completed("recipes copy mi") == [], "a shipped recipe is copied"
    assert completed("run ./mi") == [], "paths are the shell's own"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("train mine.toml --stage ", ["align", "reason"]),
        ("train --fresh mine.toml --jobs 2 --stage r", ["reason"]),
        ("export runs/mine --stage ", ["align", "reason"]),
        ("export runs/mine --lmms-eval e", ["exam"]),
        ("ablate mine.toml --arm te", ["teacher_reader", "teacher_writer"]),
        ("ablate mine.toml --arm h", ["hot"]),
        ("ablate mine.toml --study ", ["heat"]),
        ("eval mine.toml --set stages.reason.learning", ["stages.reason.learning_rate="]),
        ("generate mine.toml --engine s", ["slurm"]),
        ("plan mine.toml --gpu L40", ["L40S"]),
        ("export runs/mine --dataset ll", ["llava", "llama-factory"]),
        ("ask runs/mine a.jpg What --model ", ["before", "after", "teacher"]),
    ],
)
def test_names_of_options_come_from_the_recipe_or_the_run(line: str, names: list[str]) -> None:
    assert sorted(completed(line)) == sorted(names)


@pytest.mark.parametrize("line", ["train --stage ", "train none.toml --stage ", "train broken.toml --stage "])
def test_without_a_recipe_that_can_be_read_there_is_nothing_to_complete(line: str) -> None:
    assert completed(line) == []


def test_zsh_gets_the_same_names_and_files_for_paths() -> None:
    assert '"reason"' in " ".join(completed("train mine.toml --stage ", "zsh"))
    assert completed("status runs/", "zsh") == ["_files"]
