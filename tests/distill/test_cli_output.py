"""What commands print: status, progress, JSON, colours, version and help."""

import re
import sys
from importlib.metadata import version
from pathlib import Path

import orjson
import pytest
from processes.command_line import RECIPE, documented_keys
from typer.testing import CliRunner
from worlds import student_worlds

from distill import cli
from distill.commands import progress
from distill.commands.progress import watch
from distill.types import Progress
from student.train import train


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


def test_status_of_a_directory_without_a_run_exits_2(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["status", str(tmp_path)])
    assert done.exit_code == 2
    assert "not a run directory" in done.output


def test_status_shows_every_stage_and_the_arms(tmp_path: Path, recipe: Path) -> None:
    run = tmp_path / "run"
    (run / "eval").mkdir(parents=True)
    (run / "recipe.toml").write_text(recipe.read_text())
    arm = {"n": 600, "accuracy": 0.71, "ci95": [0.672, 0.745], "domains": {"charts": {"n": 200, "accuracy": 0.7}}}
    delta = {"delta": 0.25, "ci95": [0.2, 0.3], "p": 1e-9}
    metrics = {"arms": {"distilled": arm}, "deltas": {"distilled-instruct": delta}, "seed": 0}
    (run / "eval" / "metrics.json").write_bytes(orjson.dumps(metrics))
    shown = CliRunner().invoke(cli.app, ["status", str(run)]).stdout
    assert "not started" in shown
    assert "71.0 [67.2, 74.5]" in shown
    assert "+25.0 [+20.0, +30.0]" in shown


def test_progress_is_one_plain_line_a_stage_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with watch() as on_progress:
        for done in (0, 50, 100):
            on_progress(Progress(stage="generate", done=done, total=100, unit="traces", facts={"complete": done}))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("generate: 0/100 traces")
    assert lines[-1] == "generate: 100/100 traces, complete 100"
    assert len(lines) == 2


def test_a_resumed_generate_says_that_its_cost_is_that_of_this_command(capsys: pytest.CaptureFixture[str]) -> None:
    with watch() as on_progress:
        for resumed in (0, 60):
            facts = {"complete": 100, "cost": 1.5}
            stage = f"after {resumed}"
            on_progress(Progress(stage=stage, done=100, total=100, unit="traces", facts=facts, resumed=resumed))
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("complete 100, cost 1.5") and second.endswith("complete 100, cost of this command 1.5")


def test_version_short_help_and_completion_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    assert runner.invoke(cli.app, ["--version"]).stdout == f"distill {version('cot-distill')}\n"
    for command in ([], ["filter"], ["recipes", "copy"], ["plan"], ["view"]):
        short, long = (runner.invoke(cli.app, [*command, option]).stdout for option in ("-h", "--help"))
        assert short == long and "Usage:" in short and "[[" not in short
    # Typer shows the completion of the shell that started this process, and make or cron may have started it from sh.
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    assert "_distill_completion" in runner.invoke(cli.app, ["--show-completion"], prog_name="distill").stdout


TALKING_METRIC = """
from student.evaluation.user_metrics import UserMetric

print("loaded")


def short(sample, prediction):
    print("scored")
    return True


own_short = UserMetric(name="own_short", label="short", kind="share", value=short)
"""


@pytest.mark.parametrize("verb", ["status", "plan", "plan --diff", "eval", "check"])
def test_json_prints_one_object_and_nothing_else(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student_worlds.parts(tmp_path)
    student_worlds.data(tmp_path, questions=8)
    stage = student_worlds.stage("one", steps=1)
    (tmp_path / "mine.py").write_text(TALKING_METRIC)
    more = '[eval]\nmax_new_tokens = 2\nmetrics = ["mine.py:own_short"]\n'
    recipe, run = student_worlds.recipe(tmp_path, stage, more=more), tmp_path / "run"
    (run / "recipe.toml").write_text(recipe.to_toml())
    if verb == "eval":
        train(recipe, run)
    place = [str(run)] if verb == "status" else [str(recipe.path), "--run", str(run)]
    if verb == "plan --diff":
        place = [str(run), "--set", "stages.one.max_steps=3"]
    done = CliRunner().invoke(cli.app, [*verb.split(), *place, "--json"])
    assert done.exit_code == (2 if verb == "check" else 0), done.output
    found = orjson.loads(done.stdout)
    assert set(found) <= documented_keys(verb)
    if verb == "status":
        assert [stage["state"] for stage in found["stages"]] == [
            "not started",
            "finished",
            "not started",
            "not started",
        ]
        assert found["evaluation"] is None and found["damaged_lines"] == {}
    elif verb == "plan":
        (stage,) = found["stages"]
        assert stage["rows"] == 8 and stage["memory_bytes"] > stage["memory_bytes_checkpointed"] > 0
        assert found["student"]["parameters"] == sum(found["student"]["parts"].values())
        assert {card["stages"][0]["fits"] for card in found["cards"]} == {True}
    elif verb == "plan --diff":
        (key,) = found["keys"]
        assert (key["key"], key["before"], key["now"]) == ("stages.one.max_steps", 1, 3)
        assert key["makes_stale"] == ["train:one"] and {*key} <= documented_keys(verb)
        assert {row["stage"]: row["then"] for row in found["stages"]}["train one"] == "runs"
    elif verb == "eval":
        assert found["metrics"] == orjson.loads((run / "eval" / "metrics.json").read_bytes())
        assert Path(found["report"]).is_file()
        assert "loaded" in done.stderr and "scored" in done.stderr
    else:
        assert not found["ok"]


def test_json_of_a_command_that_fails_is_nothing_but_a_message_on_stderr(tmp_path: Path) -> None:
    for arguments in (
        ["status", str(tmp_path)],
        ["plan", "gone.toml"],
        ["eval", "gone.toml"],
        ["check", "gone.toml"],
        ["ablate", "gone.toml"],
        ["plan", "--diff", "gone.toml"],
    ):
        done = CliRunner().invoke(cli.app, [*arguments, "--json"])
        assert done.exit_code == 2 and not done.stdout and done.stderr.startswith("distill: ")


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    live = progress._Live()
    live.close()
    assert live._bars.console.no_color


def test_live_progress_shows_brackets_and_control_characters_of_a_fact_as_text(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    with progress.watch() as on_progress:
        on_progress(
            Progress(stage="train", done=1, total=2, unit="steps", facts={"now": "a[/b] [red]c \x1b]0;t\x07\u202e"})
        )
    shown = capsys.readouterr().err
    assert r"a[/b] [red]c \u001b]0;t\u0007\u202e" in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("width", [20, 40])
def test_live_progress_on_a_narrow_terminal_breaks_a_line_at_its_full_width(capsys, monkeypatch, width: int):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    with progress.watch() as on_progress:
        on_progress(Progress(stage="read answers_only", done=200, total=400, unit="rows", facts={"complete": 200}))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert "".join(lines).replace(" ", "").startswith("readanswers_only:200/400rows")
    assert all(len(line) > width // 4 for line in lines), lines


def test_the_list_of_commands_cuts_no_sentence() -> None:
    listed = CliRunner().invoke(cli.app, ["--help"], terminal_width=80).stdout
    assert "distill" in listed and "..." not in listed.partition("Commands:")[2]
