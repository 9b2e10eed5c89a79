"""The smallest recipe with a teacher, a student of three stages, an evaluation, a round and arms, and what its runs
hold. The teacher is the stub server of the tests; the student has some 60,000 weights."""

import hashlib
import random
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import orjson
from typer.testing import CliRunner

from distill.artifacts.files import locked
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import RESULTS
from distill.cli import app
from distill.errors import BusyError
from distill.rounds.results import read_results

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from processes import forked
from servers.stub_server import serve
from worlds import student_worlds
from worlds.generate_world import World

HEAD = """
seed = 1
[generate]
patience_s = 0.5
[filter]
workers = 1
signals = ["format", "length", "agreement"]
rules = [{ name = "incomplete", drop = "outcome <> 'complete'" }]
[data.captions]
source = "captions.jsonl"
[data.more]
source = "more.jsonl"
[data.test]
source = "test.jsonl"
[student]
vision = "vision"
language = "language"
pixel_shuffle = 2
dtype = "float32"
[[stages]]
name = "align"
data = "captions"
train = ["projector"]
batch_size = 4
max_steps = 3
learning_rate = 5e-3
save_every_steps = 1
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
batch_size = 4
epochs = 1.5
learning_rate = 5e-3
log_every_steps = 1
save_every_steps = 2
[stages.lora]
rank = 2
alpha = 4
dropout = 0.1
[stages.validation]
every_steps = 3
data = "more"
questions = 2
max_new_tokens = 3
[[stages]]
name = "answers"
data = "traces"
target = "answer"
train = ["language"]
start = "align"
batch_size = 4
max_steps = 3
learning_rate = 5e-3
[eval]
allow_overlap = true
max_new_tokens = 4
batch_size = 2
gallery = 2
arms = { untouched = "base", distilled = "reason", answers = "answers" }
[rounds]
stage = "reason"
validation = "more"
attempts = 2
returned = 4
steps_share = 0.5
min_gain_points = -100
max_length_growth = 1000
max_common_answer_growth = 1
[ablate]
seeds = [0]
arms = ["answers_only", "slow"]
gallery = 2
[ablate.own.slow]
about = "a smaller learning rate"
set = { "stages.reason.learning_rate" = 1e-3 }
"""
STAGES = ("align", "reason", "answers")
_TIMED = ("cost", "power", "run", "student", "latency_s")


class Broken(Exception):
    """A promise that a command broke."""


def make_world(folder: Path, url: str) -> Path:
    """Write the recipe, its data and its student to `folder`; the path of the recipe."""
    world = World(folder)
    folder.mkdir(parents=True)
    world.add_rows(12, images=6)
    for number, name in enumerate(("captions", "more", "test"), start=1):
        rows = []
        for row in range(9):
            image = student_worlds.make_image(folder / f"{name}{row}.png", 100 * number + row)
            question, kinds = f"What is in picture {row} of {name}?", "ab"
            rows.append(
                {
                    **{"image": image.name, "question": question, "answer": str(row % 3), "hard": "0.5"},
                    **{"domain": kinds[row % 2], "kind": kinds[::-1][row % 2]},
                }
            )
        write_rows(folder / f"{name}.jsonl", rows)
    world.add_teacher(url, "small", samples=2)
    world.head, world.sampling = HEAD, {"max_tokens": 16}
    student_worlds.parts(folder)
    world.recipe()
    return folder / "recipe.toml"


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def distill(*arguments: object) -> tuple[int, str]:
    """Exit code and output of a command in this process."""
    said = CliRunner().invoke(app, [*map(str, arguments)])
    if said.exception is not None and not isinstance(said.exception, SystemExit):
        raise Broken(f"{shlex.join(map(str, arguments))}: {said.exception!r}")
    return said.exit_code, said.output


def demand(*arguments: object) -> str:
    """The output of a command that must end well."""
    code, said = distill(*arguments)
    if code:
        raise Broken(f"{shlex.join(map(str, arguments))}: exit code {code}\n{said}")
    return said


def results(run: Path) -> dict[str, Any]:
    """What must be equal in two runs of one recipe: bytes of students, replies, figures of rounds and of arms."""
    students = [*run.glob("train/*/model/*.safetensors"), *run.glob("rounds/*/train/*/model/*.safetensors")]
    found: dict[str, Any] = {str(path.relative_to(run)): digest(path) for path in students}
    replies = [*run.glob("eval/predictions*.jsonl"), *run.glob("rounds/*/*/eval/predictions.jsonl")]
    found |= {str(path.relative_to(run)): untimed(list(read_jsonl(path))) for path in replies}
    found |= {"rounds": untimed(rounds)} if (rounds := read_results(run)) else {}
    if (table := run / "ablate" / RESULTS).is_file():
        found["ablate"] = untimed(orjson.loads(table.read_bytes()))
    return found


def untimed(value: Any) -> Any:
    """Values without what depends on the clock or on the place of the run."""
    if isinstance(value, dict):
        return {key: untimed(each) for key, each in value.items() if key not in _TIMED and "seconds" not in key}
    return [untimed(each) for each in value] if isinstance(value, list) else value


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def copied(run: Path, new: Path) -> Path:
    shutil.rmtree(new, ignore_errors=True)
    return Path(shutil.copytree(run, new, symlinks=True))


class Life:
    """A recipe with its runs: filtered, trained, evaluated; each is made when it is asked for."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.only = ""
        """What the name of a command begins with that is killed."""
        self._server = ExitStack()

    def __enter__(self) -> Self:
        self.recipe = make_world(self.folder / "project", self._server.enter_context(serve()))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        forked.end()

    @cached_property
    def filtered(self) -> Path:
        run = self.recipe.parent / "run"
        for stage in ("generate", "filter"):
            demand(stage, self.recipe, "--run", run)
        return run

    @cached_property
    def trained(self) -> Path:
        return self._next(self.filtered, "train")

    @cached_property
    def evaluated(self) -> Path:
        return self._next(self.trained, "eval")

    def _next(self, before: Path, stage: str) -> Path:
        run = copied(before, self.recipe.parent / stage)
        demand(stage, self.recipe, "--run", run)
        return run


def started(log: Path, *command: object) -> "subprocess.Popen[bytes]":
    """The command in a process of its own, which is forked from one that has loaded the libraries."""
    with log.open("ab") as file:
        words = [str(forked.interpreter()), "-m", "distill", *map(str, command)]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def wait_for_locks(run: Path) -> None:
    """Until what a killed process held is free: the fork ends a moment after its program."""
    for folder in (run, run / "ablate", *run.glob("rounds/*")):
        while folder.is_dir():
            try:
                with locked(folder):
                    break
            except BusyError:
                time.sleep(0.1)
