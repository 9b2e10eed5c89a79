"""What `distill generate` costs where (almost) everything is answered already.

    python benchmarks/generate/finished_runs.py [--rows 1000000] [--words 100] [--keep FOLDER] [--tree OTHER]

Makes a finished run of so many questions about eight images without a server, and then measures whole processes: with
nothing to do, without the manifest, with one row appended to the source, and without what a run keeps for the next
one (`.index`, `.finals`), as a run directory of an older version is. CPU seconds, and the peak of resident memory.
Each `--tree` is another checkout of this project; it is measured after this one, on the same run directory.
Takes 9 s with `--rows 2000` (two shared cores).
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import measure
from servers import stub_server
from students import tiny_models

import teacher.agent
import teacher.generate
from distill.recipe.loading import load
from teacher.engines.connect import Done, EngineSettings, Get
from teacher.messages.completion import Completion, EngineInfo

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 8


@dataclass(slots=True)
class InstantEngine:
    """Answers at once, in this process."""

    text: str
    info: EngineInfo
    in_flight: int = 0

    async def answer(self, get: Get, done: Done) -> None:
        while (request := await get()) is not None:
            text = self.text.replace("IMAGE", request.sample.id)
            done(request, Completion(text=text, finish_reason="stop", prompt_tokens=300, completion_tokens=130))


def write_rows(folder: Path, start: int, end: int) -> None:
    with (folder / "rows.jsonl").open("ab") as file:
        for number in range(start, end):
            row = {
                "image": f"{number % IMAGES}.png",
                "question": f"How many circles are there? {number}",
                "answer": "7",
            }
            file.write(orjson.dumps(row) + b"\n")


def write_recipe(folder: Path, url: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(
        '[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "stub"\nmodel = "stub"\n'
        f'backend = "vllm"\nbase_url = "{url}"\n'
    )
    return path


def make_run(recipe: Path, run: Path, words: int) -> None:
    """A finished run."""
    text = f"<think>\n{'IMAGE ' + 'circle ' * words}\n</think>\n\n7"

    @asynccontextmanager
    async def connect(_: EngineSettings) -> AsyncIterator[InstantEngine]:
        yield InstantEngine(text, EngineInfo(model="stub", engine={"name": "vllm", "version": "0.0-stub"}))

    teacher.agent.connect = connect
    teacher.generate.generate(load(recipe), run)


def measured(recipe: Path, run: Path, tree: Path, log: Path) -> str:
    """What one process of `distill generate` takes."""
    command = [sys.executable, "-c", CHILD, *measure.command_of_ours(recipe, run)[1:]]
    used = measure.timed(command, log, {"PYTHONPATH": str(tree)})
    if used.code:
        raise SystemExit(log.read_text()[-2000:])
    peak = log.read_text().rsplit("PEAK ", 1)[1]
    return f"{used.cpu_s:7.2f} CPU s {used.wall_s:7.1f} s by the clock {int(peak) / 1024:6.0f} MB"


CHILD = """
import sys
start, sys.argv = sys.argv[2], ["distill", *sys.argv[3:]]
try:
    exec(start)
finally:
    lines = open("/proc/self/status").read().splitlines()
    print("PEAK", next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


def nothing(_: Path, __: Path) -> None:
    """Nothing to do."""


def without_manifest(_: Path, run: Path) -> None:
    """No manifest."""
    (run / "generate" / "manifest.json").unlink()


def one_row(folder: Path, _: Path) -> None:
    """One row appended."""
    with (folder / "rows.jsonl").open("ab") as file:
        row = {"image": "0.png", "question": f"How many circles are there at {time.time_ns()}?", "answer": "7"}
        file.write(orjson.dumps(row) + b"\n")


def without_snapshots(_: Path, run: Path) -> None:
    """Neither manifest nor snapshots."""
    for path in (
        run / "generate" / "manifest.json",
        run / "generate" / ".finals",
        run / "generate" / "stub" / ".index",
    ):
        path.unlink(missing_ok=True)


CASES: tuple[Callable[[Path, Path], None], ...] = (nothing, without_manifest, one_row, without_snapshots)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=100, help="length of an answer")
    parser.add_argument("--keep", type=Path, help="work in this folder, take the run that is there, and leave it")
    parser.add_argument("--tree", type=Path, action="append", default=[], help="another checkout")
    options = parser.parse_args()
    trees = [ROOT, *(tree.resolve() for tree in options.tree)]
    with tempfile.TemporaryDirectory() as name, stub_server.serve(words=options.words) as url:
        folder = (options.keep or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        run, recipe = folder / "run", write_recipe(folder, url)
        if not (run / "generate" / "manifest.json").exists():
            for number in range(IMAGES):
                tiny_models.make_image(folder / f"{number}.png", number, size=64)
            write_rows(folder, 0, options.rows)
            started = time.process_time()
            make_run(recipe, run, options.words)
            print(f"made in {time.process_time() - started:.0f} CPU s", flush=True)
        os.chdir(name)  # Python would import from here before it looks at PYTHONPATH
        for tree in trees:
            for case in CASES:
                case(folder, run)
                print(
                    f"{tree.name:<14} {case.__doc__:<32} {measured(recipe, run, tree, Path(name) / 'log')}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
