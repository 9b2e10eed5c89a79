"""Every command in README.md and docs/ is executed by a test, or says what it needs; the cheap ones run here."""

import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import orjson
import pytest
import typer
from listed import documented_commands as table
from servers import stub_server
from students import tiny_models
from typer.testing import CliRunner

from distill import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECORDS = {"log.md", "results.md"}
"""Records of what was run, at their time."""
PROGRAM = re.compile(
    r"(?:distill [a-z]|make |pip |python[\d.]* |docker |grep |torchrun |accelerate |vllm |llama-\w+ |lmms-eval )"
)
RECIPE = """
[data.questions]
source = "questions.jsonl"
[[teachers]]
name = "stub"
model = "stub"
base_url = "{url}"
"""


def fenced(page: Path) -> list[str]:
    """The commands in the fenced blocks of a page, each on one line and without its comment."""
    blocks = re.findall(
        r"^ *```[\w-]*\n(.*?)^ *```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    lines = [line.strip() for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    return [re.sub(r"\s{2,}#.*$", "", line) for line in lines if PROGRAM.match(line)]


COMMANDS = {command for page in PAGES if page.name not in RECORDS for command in fenced(page)}


def test_every_command_of_the_documents_is_executed_or_says_what_it_needs() -> None:
    known = {*table.RUN, *table.TESTED, *table.NEEDS, *table.FORMS}
    assert len(known) == len(table.RUN + table.FORMS) + len(table.TESTED) + len(table.NEEDS), (
        "a command has one place"
    )
    assert COMMANDS - known == set(), "put them into tests/support/listed/documented_commands.py"
    assert known - COMMANDS == set(), "the documents do not have these any more"


def test_files_said_to_test_a_command_name_it_with_its_options() -> None:
    for command, name in table.TESTED.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        words = [command.split()[1], *re.findall(r"--[\w-]+", command)]
        assert all(re.search(rf"[\"' ]{re.escape(word)}[\"' =]", text) for word in words), (command, name)


def test_every_option_that_the_documents_give_a_command_is_one_of_its_own() -> None:
    group = typer.main.get_command(cli.app)
    spans = {
        span
        for page in PAGES
        if page.name not in RECORDS
        for span in re.findall(r"`(distill [a-z]+ [^`\n]*)`", page.read_text(encoding="utf-8"))
    }
    wrong = []
    for command in COMMANDS | spans:
        words = command.replace("[", "").replace("]", "").split()
        if words[:1] != ["distill"] or words[1] not in group.commands:  # type: ignore[attr-defined]
            wrong += [command] if words[:1] == ["distill"] else []
            continue
        parameters = group.commands[words[1]].params  # type: ignore[attr-defined]
        known = {option for each in parameters for option in each.opts} | {"--help", "-h"}
        wrong += [command for word in words if word.startswith("--") and word.split("=")[0] not in known]
    assert len(spans) > 20 and wrong == []


@pytest.mark.slow
def test_the_cheap_commands_work_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with stub_server.serve() as url:
        _lay_out(folder, url)
        for command in table.RUN:
            for left in ("photos-distill", "questions-distill", "shards-distill", "parts"):
                shutil.rmtree(left, ignore_errors=True)
            _execute(command)
    assert (folder / "runs" / "mine" / "filter" / "manifest.json").is_file()


def _lay_out(folder: Path, url: str) -> None:
    """Pictures, tables, recipes and the log that the commands name."""
    for name in ("photos", "images", "shards", "runs/tiny"):
        (folder / name).mkdir(parents=True)
    rows = []
    for number in range(12):
        for place in ("photos", "images"):
            tiny_models.make_image(folder / place / f"{number}.png", number, size=32)
        rows.append({"image": f"photos/{number}.png", "question": f"How many in {number}?"})
    with tarfile.open(folder / "shards/00000.tar", "w") as shard:
        for number in range(12):
            shard.add(folder / f"photos/{number}.png", f"{number}.png")
            (folder / "row.json").write_bytes(orjson.dumps({"question": f"How many in {number}?"}))
            shard.add(folder / "row.json", f"{number}.json")
    for name in ("questions.jsonl", "all.jsonl"):
        (folder / name).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    asked = "".join(f"photos/{number}.png,How many?,7\n" for number in range(12))
    (folder / "questions.csv").write_text(f"image,question,answer\n{asked}")
    (folder / "all.csv").write_text("photo,ask,answer\n" + asked.replace("photos/", ""))
    for name in ("recipe.toml", "other.toml"):
        (folder / name).write_text(RECIPE.format(url=url))
    (folder / "runs/tiny/log.jsonl").write_bytes(orjson.dumps({"level": "warning"}) + b"\n")


def _execute(command: str) -> None:
    if command.startswith("grep "):
        assert subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
        return
    bare = re.sub(r" && cd .*", "", command).replace("RECIPE", "recipe.toml")
    done = CliRunner().invoke(cli.app, shlex.split(bare)[1:])
    assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception}"


_SHOWN = re.compile(r"distill [a-z]+[^`\"\n]*\{(?:[a-z_]+\.)?(?:run|folder|address|path)(?: / [A-Z]+)?\}")


def test_commands_that_are_shown_quote_their_paths() -> None:
    """A run may lie in a folder whose name holds spaces; `as_argument` quotes it."""
    found = [
        f"{path.relative_to(ROOT)}: {shown[0]}"
        for package in ("distill", "filters", "student", "teacher")
        for path in sorted((ROOT / package).rglob("*.py"))
        for shown in _SHOWN.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)
