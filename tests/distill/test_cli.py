"""The command line from outside: text in, text and exit code out."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import typer
from processes.command_line import RECIPE, distill
from typer.testing import CliRunner

from distill import __main__, cli
from distill.artifacts.files import locked
from distill.commands import stages, whole_run
from distill.errors import BusyError, InputError, RecipeError, StaleError
from distill.machine.child_process import interrupt
from distill.python_api import verbs
from distill.recipe.loading import load


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


def test_a_wrong_key_exits_2_with_one_message_naming_file_key_and_nearest_key(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace('backend = "embedded"', 'backand = "embedded"'))
    done = distill("generate", recipe)
    assert done.returncode == 2
    assert str(recipe) in done.stderr
    assert "teachers.only.backand" in done.stderr
    assert "did you mean 'backend'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "mine.toml", "--run", "hdfs://me:canary@bucket/run"],
        ["train", "mine.toml", "--run", "hf://me:canary@bucket/run"],
        ["run", "mine.toml", "--run", "hdfs://bucket/run"],
        ["explain", "hf://owner/name", "abc"],
        ["export", "run", "--out", "s3://bucket/out"],
        ["recipes", "copy", "tiny", "s3://bucket"],
        ["generate", "hf://owner/recipe.toml"],
        ["generate", "mine.toml", "--set", "data.questions.source=hf://datasets/a/b"],
        ["generate", "mine.toml", "--set", "data.questions.images_root=hf://datasets/a/b"],
        ["train", "mine.toml", "--set", "student.model=s3://bucket/model"],
        ["eval", "mine.toml", "--student", "one=file:///tmp/student"],
    ],
)
def test_an_address_where_a_path_belongs_exits_2_says_what_to_do_and_creates_nothing(
    recipe: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recipe.parent)
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert "an address (" in done.stderr and "nothing was created. " in done.stderr
    assert "path" in done.stderr or "hub name" in done.stderr
    assert "canary" not in done.stderr
    assert [path.name for path in recipe.parent.iterdir()] == ["mine.toml"]


def test_an_address_as_the_folder_of_a_run_is_refused_from_python_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="an address"), locked(Path("s3://bucket/run")):
        pass
    assert not (tmp_path / "s3:").exists()


def test_an_unknown_recipe_exits_2_and_lists_the_shipped_ones() -> None:
    done = distill("run", "tinny")
    assert done.returncode == 2
    assert "did you mean 'tiny'?" in done.stderr


def test_a_source_that_does_not_exist_exits_2_and_names_the_path(recipe: Path) -> None:
    done = distill("generate", recipe, "--run", recipe.parent / "run")
    assert done.returncode == 2
    assert "questions.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_data_set_exits_2(recipe: Path) -> None:
    (recipe.parent / "questions.jsonl").write_text("")
    done = distill("generate", recipe, "--run", recipe.parent / "run")
    assert done.returncode == 2
    assert "questions.jsonl" in done.stderr


def test_a_checkpoint_that_cannot_be_read_exits_2_and_keeps_the_plan(recipe: Path) -> None:
    (recipe.parent / "questions.jsonl").write_bytes(orjson.dumps({"question": "1 + 1?", "answer": "2"}) + b"\n")
    broken = recipe.parent / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    recipe.write_text(RECIPE.replace("nobody/nothing", "broken"))
    done = distill("generate", recipe, "--run", recipe.parent / "run")
    assert done.returncode == 2
    assert str(broken) in done.stderr
    assert "Traceback" not in done.stderr


def test_an_override_without_a_value_is_refused(recipe: Path) -> None:
    done = distill("filter", recipe, "--set", "filter.select.per_question")
    assert done.returncode == 2
    assert "KEY=VALUE" in done.stderr


def test_an_override_is_recorded_in_the_run_directory(recipe: Path) -> None:
    run = recipe.parent / "run"
    run.mkdir()
    distill("generate", recipe, "--run", run, "--set", "teachers.only.samples=3")
    assert "samples = 3" in (run / "recipe.toml").read_text()


REFUSED = """
[[stages]]
name = "one"
data = "questions"
train = ["language"]
[student]
model = "nobody"
"""


@pytest.mark.parametrize(
    "arguments",
    [
        *(["generate"], ["generate", "--check"], ["generate", "--check", "--probe", "2"], ["filter"], ["train"]),
        *(["eval"], ["run"], ["ablate"], ["ablate", "--plan"], ["plan"], ["check"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("has_data", [True, False])
def test_a_command_that_refuses_what_it_was_given_leaves_no_run_behind(
    recipe: Path, arguments: list[str], has_data: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(recipe.parent)
    recipe.write_text(RECIPE.replace("nobody/nothing", "not-there") + REFUSED)
    if has_data:
        (recipe.parent / "questions.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}')
    before = sorted(recipe.parent.rglob("*"))
    verb, *more = arguments
    done = CliRunner().invoke(cli.app, [verb, "mine.toml", *more])
    assert done.exit_code == 2, done.output
    left = sorted(recipe.parent.rglob("*"))
    # Questions that were read are kept: reading them may have taken hours.
    assert left == before or (
        has_data and arguments == ["generate"] and any(path.name == "plan.json" for path in left)
    )


def test_a_training_that_is_refused_after_the_comparison_of_data_leaves_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = '{"question": "How many?", "answer": "2"}\n'
    (tmp_path / "questions.jsonl").write_text(row)
    (tmp_path / "test.jsonl").write_text(row.replace("How", "So how"))
    data = '[data.test]\nsource = "test.jsonl"\ncolumns = {image = ""}\n'
    (tmp_path / "mine.toml").write_text(RECIPE.replace("nobody/nothing", "not-there") + REFUSED + data)
    before = sorted(tmp_path.rglob("*"))
    for stage in (None, "no-such-stage"):
        more = ["--stage", stage] if stage else []
        done = CliRunner().invoke(cli.app, ["train", "mine.toml", "--run", "runs/mine", *more])
        assert done.exit_code == 2 and sorted(tmp_path.rglob("*")) == before, done.output
        with pytest.raises(InputError):
            verbs.train(load(tmp_path / "mine.toml"), tmp_path / "runs/mine", stage=stage)
        assert not (tmp_path / "runs/mine").exists()
    # A folder that was there keeps what is in it.
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/notes.txt").write_text("mine")
    CliRunner().invoke(cli.app, ["train", "mine.toml", "--run", "runs/mine"])
    assert (tmp_path / "runs/mine/notes.txt").read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_is_named_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").touch()
    (tmp_path / "generate/manifest.json").mkdir(parents=True)
    done = CliRunner().invoke(cli.app, ["status", str(tmp_path)])
    assert done.exit_code == 1
    assert f"{tmp_path}/generate/manifest.json: a file is in the place of a folder" in done.output


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["repair"], ["explain", "abc"], ["view"], ["export", "--out", "out"], ["ask", "a.png", "What?"]],
    ids=" ".join,
)
def test_a_command_about_a_run_that_is_not_there_makes_none(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verb, *more = arguments
    done = CliRunner().invoke(cli.app, [verb, "run", *more])
    assert done.exit_code == 2, done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [["generate", "tiny", "--run", ""], ["check", "tiny", "--run", ""], ["status", ""],
     ["export", "run", "--out", ""], ["split", "rows.csv", "--out", ""], ["init", "photos", "--out", ""]],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_path_as_an_unset_variable_of_a_shell_leaves_it_is_refused(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2 and "the path is empty" in done.output, done.output
    assert not list(tmp_path.iterdir())


def test_a_refused_change_is_not_recorded(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StaleError("made with other settings")

    monkeypatch.setattr("filters.apply.apply", refuse)
    (recipe.parent / "run").mkdir()
    (recipe.parent / "run" / "recipe.toml").write_text("as it was")
    with pytest.raises(StaleError):
        stages.filter_stage(load(recipe), recipe.parent / "run")
    assert (recipe.parent / "run" / "recipe.toml").read_text() == "as it was"


def test_filter_before_generate_says_what_to_run_first(recipe: Path) -> None:
    done = distill("filter", recipe, "--run", recipe.parent / "run")
    assert done.returncode == 2
    assert "distill generate" in done.stderr


def test_a_second_process_on_the_same_run_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "run"), pytest.raises(BusyError), locked(tmp_path / "run"):
        pass


def test_a_recipe_is_copied_into_the_current_folder_where_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    copied = CliRunner().invoke(cli.app, ["recipes", "copy", "qwen3-vl"])
    assert (copied.exit_code, (tmp_path / "qwen3-vl.toml").is_file()) == (0, True), copied.output


def test_the_shipped_recipes_are_listed_and_copied_with_their_assets(tmp_path: Path) -> None:
    listed = CliRunner().invoke(cli.app, ["recipes"])
    assert "tiny" in listed.stdout
    lines = listed.stdout.splitlines()[2:]
    assert [line for line in lines if not line.rstrip().endswith(".")] == [], "each ends at the end of a sentence"
    assert CliRunner().invoke(cli.app, ["recipes", "list"]).stdout == listed.stdout
    copied = CliRunner().invoke(cli.app, ["recipes", "copy", "tiny", str(tmp_path)])
    assert copied.exit_code == 0
    assert (tmp_path / "tiny.toml").is_file()
    assert (tmp_path / "tiny" / "README.md").is_file()
    again = CliRunner().invoke(cli.app, ["recipes", "copy", "tiny", str(tmp_path)])
    assert again.exit_code == 2
    assert "already there" in again.output


def test_the_schema_is_json_that_knows_the_recipe_sections() -> None:
    printed = CliRunner().invoke(cli.app, ["recipes", "schema"])
    assert {"data", "teachers", "filter", "student", "stages", "eval", "seed"} <= orjson.loads(printed.stdout)[
        "properties"
    ].keys()


def test_what_the_operating_system_refuses_is_one_message_with_its_place() -> None:
    app = typer.Typer(cls=cli.Commands)
    app.callback()(lambda: None)

    @app.command()
    def read() -> None:
        Path("/nowhere/samples.parquet").read_bytes()

    done = CliRunner().invoke(app, ["read"])
    assert done.exit_code == 1
    assert re.search(r"distill: .*No such file.*samples.parquet.*\(FileNotFoundError, .*:\d+\)", done.output)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--public",), "--public needs --push"),
        (("--prompts", "3"), "--prompts needs --verify"),
        (("--dataset", "llava", "--verify", "--plain"), "--plain, --verify: for an export of the student only"),
        (("--lmms-eval", "test", "--stage", "reason"), "--stage: for an export of the student only"),
        ((), "not a run directory (it has no recipe.toml)"),
    ],
)
def test_an_export_of_no_run_or_with_half_an_option_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = CliRunner().invoke(cli.app, ["export", str(tmp_path), "--out", str(tmp_path / "new"), *arguments])
    assert done.exit_code == 2 and message in done.stderr and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "tiny", "--replay", "abc", "--check"), "leave --check, --fresh and --limit out"),
        (("filter", "tiny", "--what-if", "tiny", "--fresh"), "leave --fresh out"),
        (("ablate", "tiny-studies", "--arm", "short", "--study", "fit"), "--arm and --study both choose arms"),
    ],
)
def test_an_option_that_another_one_leaves_without_effect_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = CliRunner().invoke(cli.app, [*arguments, "--run", str(tmp_path / "run")])
    assert done.exit_code == 2 and message in done.stderr and not (tmp_path / "run").exists()


def test_the_end_of_a_command_that_used_duckdb_says_nothing_of_its_objects() -> None:
    """DuckDB lists on stderr what the end of Python did not clear away."""
    script = (
        "import sys, duckdb; held = [duckdb.connect()]; held.append(held); sys.argv = ['distill', '--version'];"
        "from distill.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [("ask", "run", "image.png", b"what\xff"), ("explain", "run", b"\xff"), ("init", ".", "--question", b"\xff"),
     ("generate", "tiny", "--run", b"runs/\xff"), ("check", "tiny", "--set", b"teachers.reader.system=\xff")],
)  # fmt: skip
def test_an_argument_that_is_no_text_exits_2_with_one_message(
    tmp_path: Path, arguments: tuple[str | bytes, ...]
) -> None:
    done = subprocess.run([sys.executable, "-m", "distill", *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"distill: the argument '.*\\udcff' is not valid UTF-8; .*\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_modules_are_loaded_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as caught:
        __main__.main()
    assert caught.value.code == 130


def test_a_package_that_is_not_installed_is_named_with_the_python_that_lacks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacking() -> None:
        raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")

    monkeypatch.setattr(cli, "app", lacking)
    with pytest.raises(SystemExit, match=f"duckdb is not installed for {sys.executable}; .* pip install cot-distill"):
        __main__.main()


def test_a_file_that_hides_a_package_of_the_project_is_named(tmp_path: Path) -> None:
    (tmp_path / "filters.py").touch()
    command = [sys.executable, "-m", "distill", "filter", "tiny", "--run", "run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert re.fullmatch(rf"distill: {tmp_path}/filters\.py hides a package of cot-distill; .*\n", done.stderr)


@pytest.mark.parametrize(("command", "is_resumed"), [("generate", True), ("check", False)])
def test_only_a_command_that_keeps_its_work_is_said_to_resume(
    command: str, is_resumed: bool, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distill.recipe.loading.load", interrupted)
    done = CliRunner().invoke(cli.app, [command, str(recipe)])
    assert done.exit_code == 130 and "interrupted" in done.stderr
    assert ("to resume" in done.stderr) == is_resumed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("command", ["generate", "check"])
def test_the_exit_code_names_the_signal_that_ended_the_command(
    command: str, number: int, code: int, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signalled(*_: object, **__: object) -> None:
        interrupt(number, None)

    monkeypatch.setattr("distill.recipe.loading.load", signalled)
    assert CliRunner().invoke(cli.app, [command, str(recipe)]).exit_code == code
    monkeypatch.setattr("distill.recipe.loading.load", lambda *_, **__: signal.default_int_handler(2, None))
    assert CliRunner().invoke(cli.app, [command, str(recipe)]).exit_code == 130, "of a later command in this process"


@pytest.mark.parametrize("made_from", ["other settings", "other images of [data.questions]"])
def test_run_names_the_flag_that_makes_stale_stages_again(tmp_path: Path, made_from: str) -> None:
    def stale(recipe: object, run: Path) -> str:
        raise StaleError(f"{run} was made from {made_from}; undo the change, or start over with --fresh")

    with pytest.raises(StaleError, match="distill run --redo-stale"):
        whole_run.finish_stage(stale, load("tiny"), tmp_path, redo_stale=False)


@pytest.mark.parametrize("encoding", ["ascii:strict", "latin-1:strict", "utf-8"])
def test_a_terminal_without_utf_8_gets_escapes_and_json_of_the_same_value(tmp_path: Path, encoding: str) -> None:
    """A recipe or a file of any name is no reason for a traceback once the work is done."""
    script = (
        "from distill.commands.progress import open_closed_streams, show, show_json; open_closed_streams(); "
        "show('Größe → \U0001f600'); show_json({'Größe': '→ \U0001f600'})"
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=environment)
    first, _, values = done.stdout.decode(encoding.partition(":")[0]).partition("\n")
    assert json.loads(values) == {"Größe": "→ \U0001f600"}
    assert json.loads(f'"{first}"') == "Größe → \U0001f600"


def test_a_table_of_train_and_eval_is_shown_once_by_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(whole_run, "train_stage", lambda *_, **__: "trained\n\nleaks\n-----\n1\n\nleaks of stage x")
    monkeypatch.setattr(whole_run, "eval_stage", lambda *_, **__: "scores\n\nleaks\n-----\n1\nreport: r")
    monkeypatch.setattr(whole_run, "generate_stage", lambda *_, **__: "")
    monkeypatch.setattr(whole_run, "filter_stage", lambda *_, **__: "filtered")
    monkeypatch.setattr(whole_run, "require_fit", lambda *_, **__: None)
    shown = whole_run.all_stages(load("tiny"), tmp_path)
    assert shown == "filtered\n\ntrained\n\nleaks of stage x\n\nscores\n\nleaks\n-----\n1\nreport: r"
