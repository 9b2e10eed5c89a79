"""What a user types, for a random student of every class, on a CPU: one line a class, one column a command.

    python benchmarks/train/student_commands.py [CLASS ...]

Commands: plan, train (align: projector; instruct: projector and language model; reason: language model, then
adapters, behind a frozen tower and projector), train again after the last stage lost its result, eval, export; then
plain transformers loads the export. `ok`, or the last lines of the message; `trained`: the parts of each stage.
Takes 20 CPU seconds a class.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import torch
import transformers
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.cli import app
from distill.reports.text_table import table
from student.models.processors import load_processor

LORA = "[stages.lora]\nrank = 4\nalpha = 8\n"
PARTS = 'vision = "vision"\nlanguage = "language"\npixel_shuffle = 2\n'


def outcomes(kind: str, folder: Path) -> list[str]:
    """What each command says about a student of a class."""
    worlds.data(folder)
    worlds.published(kind, folder / "student")
    stages = (
        worlds.stage("align", train='["projector"]', steps=2),
        worlds.stage("instruct", train='["projector", "language"]', steps=2),
        worlds.stage("reason", steps=3, save=2),
        worlds.stage("adapt", steps=3, more=LORA),
    )
    recipe = worlds.recipe(folder, *stages, more='[eval]\ndata = "test"\nmax_new_tokens = 8\n').path
    recipe.write_text(recipe.read_text(encoding="utf-8").replace(PARTS, 'model = "student"\n'), encoding="utf-8")
    run, out = folder / "run", folder / "out"
    of_run = (str(recipe), "--run", str(run))
    said = [_said("plan", *of_run), _said("train", *of_run)]
    if (run / "train" / "adapt").is_dir():
        shutil.rmtree(run / "train" / "adapt" / "model", ignore_errors=True)
        (run / "train" / "adapt" / "manifest.json").unlink(missing_ok=True)
    said += [_said("train", *of_run), _said("eval", *of_run), _said("export", str(run), "--out", str(out), "--plain")]
    return [*said, _plain(out), _frozen(run)]


def _said(*command: str) -> str:
    done = CliRunner().invoke(app, list(command))
    if done.exit_code == 0:
        return "ok"
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"TRACEBACK {type(done.exception).__name__}: {done.exception}"[:200]
    return f"exit {done.exit_code}: {' / '.join(done.output.strip().splitlines()[-2:])}"[:200]


def _plain(out: Path) -> str:
    """Whether transformers alone loads the export with no weight missing."""
    if not out.is_dir():
        return "-"
    _, result = transformers.AutoModelForImageTextToText.from_pretrained(out, output_loading_info=True)
    load_processor(str(out))
    missing = sorted((*result["missing_keys"], *result["unexpected_keys"]))
    return f"other weights: {missing[:2]}" if missing else "ok"


def _frozen(run: Path) -> str:
    """Which parts each stage trained."""
    rows = []
    for stage in ("align", "instruct", "reason", "adapt"):
        path = run / "train" / stage / "parts.json"
        if path.is_file():
            parts = json.loads(path.read_text(encoding="utf-8"))["parts"]
            rows.append("+".join(part["part"] for part in parts if part["trainable"]))
    return ", ".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", choices=[[], *worlds.ALL_CLASSES[1:]], help="default: all but siq-vl")
    chosen = parser.parse_args().classes or worlds.ALL_CLASSES[1:]
    torch.set_num_threads(1)
    head = ("class", "plan", "train", "train again", "eval", "export", "transformers", "trained")
    lines = []
    for kind in chosen:
        with tempfile.TemporaryDirectory() as folder:
            lines.append((kind, *outcomes(kind, Path(folder))))
        print(lines[-1], file=sys.stderr, flush=True)
    print(table(head, lines))


if __name__ == "__main__":
    main()
