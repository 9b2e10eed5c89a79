"""Makes runs that are broken on purpose and healthy ones, and counts for how many the diagnosis names the cause.

    python benchmarks/evaluate/broken_runs.py FOLDER [NAME ...] [--set blind-1]

Every run takes questions of the tiny world and traces that are written by its own rules (recipes/tiny/questions.py),
so no teacher is asked. The student is a shipped teacher that has been taught to answer without a rationale: it sees,
and learns to reason in some 60 steps. A broken run differs from the first healthy one in one thing. Sets:

    half-1    the runs that the first rules of the diagnosis were written with, and healthy ones
    half-2    runs of the same list that were kept apart meanwhile
    blind-*   runs of writers who did not know the rules; their figure is the one of the first time (docs/log.md)

The warnings about the dataset that `distill filter` prints count beside the diagnosis. A finished run is scored again
from its files; remove the folder of a run to make it again.
Takes some 60 minutes for all on one CPU core.
"""

import argparse
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes" / "tiny"))

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from broken_cases import blind_1, blind_2, blind_3, blind_4, blind_5, blind_6, blind_7, blind_8, first
from broken_cases.case import TEACHERS, TINY, Case, Row, table_rows
from broken_cases.first import QUESTIONS
from questions import rationale
from world import Picture, Question
from worlds.run_fixtures import generate_folder, trace

import distill
from distill.data import reader
from distill.errors import DistillError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.reports.findings import read_findings
from distill.types import Sample, Trace, Usage

SETS: Final = {
    "half-1": first.HEALTHY | first.HALF_1,
    "half-2": first.HALF_2,
    "blind-1": blind_1.CASES,
    "blind-2": blind_2.CASES,
    "blind-3": blind_3.CASES,
    "blind-4": blind_4.CASES,
    "blind-5": blind_5.CASES,
    "blind-6": blind_6.CASES,
    "blind-7": blind_7.CASES,
    "blind-8": blind_8.CASES,
}
TEST, READINGS, SAMPLES = 60, 90, 2

RECIPE: Final = """
seed = 0
[data.questions]
source = "questions.parquet"
[data.instruct]
source = "{tiny}/data/instruct.parquet"
[data.readings]
source = "{tiny}/data/readings.parquet"
limit = {readings}
[data.test]
source = "test.parquet"
{teachers}
[student]
{student}
dtype = "float32"
[[stages]]
name = "reason"
data = "traces"
replay = {{ readings = 0.15 }}
train = ["projector", "language"]
learning_rate = 1e-3
max_steps = 60
batch_size = 16
log_every_steps = 2
[eval]
data = "test"
max_new_tokens = 128
batch_size = 50
arms = {{ distilled = "reason" }}
"""


def _written(sample: Sample, row: Row, k: int) -> Trace:
    """A trace as the teacher of the domain would write it, about what the image shows (`meta` of the image's row)."""
    meta = json.loads(row["meta"])
    content = {key: value for key, value in meta.items() if key not in ("kind", "terms")}
    question = Question(kind=meta["kind"], terms=tuple(meta["terms"]), text=sample.question, answer=row["answer"])
    rng = np.random.default_rng([k, *sample.id.encode()[:8]])
    reasoning = rationale(Picture(domain=row["domain"], content=content), question, rng)
    made = trace(sample, row["answer"], reasoning, teacher=TEACHERS[row["domain"]], k=k)
    return replace(made, usage=Usage(prompt=50, image=36, reasoning=len(reasoning.split()), answer=1))


def _recipe(folder: Path, case: Case, student: Path) -> Recipe:
    teachers = "".join(
        f'[[teachers]]\nname = "{name}"\nbackend = "embedded"\nmodel = "{TINY}/teachers/{name}"\n'
        f'domains = ["{domain}"]\nsamples = {SAMPLES}\n[teachers.sampling]\nmax_tokens = 128\n'
        for domain, name in TEACHERS.items()
    )
    own = folder / "student"
    model = f'model = "{own if own.is_dir() else student}"' if case.student is None else case.student
    path = folder / "recipe.in.toml"
    path.write_text(
        RECIPE.format(tiny=TINY, readings=READINGS, teachers=teachers, student=model) + case.text, encoding="utf-8"
    )
    return load(path, {key: json.dumps(value) for key, value in case.set.items()})


def make_run(folder: Path, case: Case) -> str:
    """Make the run of a case. Returns the text of the error that ended it, or an empty text."""
    folder.mkdir(parents=True)
    case.before(folder)
    shown = case.questions(table_rows("questions", QUESTIONS))
    pq.write_table(pa.Table.from_pylist(shown), folder / "questions.parquet")
    pq.write_table(pa.Table.from_pylist(case.test(table_rows("test", TEST))), folder / "test.parquet")
    recipe = _recipe(folder, case, folder.parent / "student")
    # The row that an image comes from describes it, also after a wrong join; a changed image has its own row.
    every = pq.read_table(TINY / "data" / "questions.parquet").to_pylist()
    seen = {row["image"]["bytes"]: row for row in every}
    try:
        samples = {
            sample.id: (sample, row) for sample, row in zip(reader.samples(recipe, "questions"), shown, strict=True)
        }
        traces = [
            case.trace(sample, _written(sample, seen.get(row["image"]["bytes"], row), k))
            for sample, row in samples.values()
            for k in range(recipe.teachers[0].samples)
        ]
        generate_folder(folder, [sample for sample, _ in samples.values()], traces)
        (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
        distill.filter(recipe, folder)
        if case.train:
            distill.train(recipe, folder)
            distill.evaluate(recipe, folder)
    except DistillError as error:
        return str(error)
    return ""


def ground(folder: Path) -> None:
    """Train the student of all runs: a shipped teacher that learns to answer without a rationale."""
    text = RECIPE.format(tiny=TINY, readings=READINGS, teachers="", student=f'model = "{TINY}/teachers/generalist"')
    (folder / "ground").mkdir(parents=True)
    path = folder / "ground" / "recipe.in.toml"
    path.write_text(text.replace('data = "traces"', 'data = "instruct"'), encoding="utf-8")
    for name, count in (("questions", QUESTIONS), ("test", TEST)):
        pq.write_table(pa.Table.from_pylist(table_rows(name, count)), path.parent / f"{name}.parquet")
    distill.train(load(path), path.parent)
    shutil.copytree(path.parent / "train" / "reason" / "model", folder / "student")


def read_names(folder: Path) -> tuple[set[str], set[str]]:
    """The names of all findings and warnings of a run, and those of its faults."""
    findings = read_findings(folder)
    faults = {finding["name"] for finding in findings if finding["kind"] == "fault"}
    names = {finding["name"] for finding in findings}
    health = folder / "filter" / "health.json"
    if health.is_file():
        told = orjson.loads(health.read_bytes())
        names |= {check["name"] for check in told["checks"] if check["warning"]}
        names |= {"mix" for warning in told["warnings"] if warning.startswith("filter.select: the mix")}
    return names, faults


def printed_findings(folder: Path) -> list[str]:
    """What a run prints of faults and open questions, and its warnings about the dataset."""
    health = folder / "filter" / "health.json"
    warnings = orjson.loads(health.read_bytes())["warnings"] if health.is_file() else []
    return [finding["text"] for finding in read_findings(folder) if finding["kind"] != "good"] + warnings


def score(case: Case, folder: Path, error: str) -> bool:
    """Whether the cause is named; for a healthy run whether no fault is found."""
    names, faults = read_names(folder)
    if not case.names and not case.refused and not case.words:
        return not faults and not error
    if any(re.search(pattern, text, re.IGNORECASE) for pattern in case.words for text in printed_findings(folder)):
        return True
    return bool(names & set(case.names)) or bool(error and case.refused and case.refused in error)


def main() -> None:
    every = {name: case for cases in SETS.values() for name, case in cases.items()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*every, []], default=[])
    parser.add_argument("--set", choices=SETS, action="append", help="run these sets; default: all")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not (folder / "student").is_dir():
        ground(folder)
    counted: dict[str, list[bool]] = {}
    for group in arguments.set or SETS:
        for name, case in SETS[group].items():
            if arguments.names and name not in arguments.names:
                continue
            note = folder / name / "error.txt"
            if not note.is_file():
                shutil.rmtree(folder / name, ignore_errors=True)
                note.write_text(make_run(folder / name, case), encoding="utf-8")
            error = note.read_text(encoding="utf-8")
            named = score(case, folder / name, error)
            kind = "healthy" if name.startswith("healthy") else "broken"
            counted.setdefault(f"{group}, {kind}", []).append(named)
            texts = " | ".join(each["text"] for each in read_findings(folder / name)) or error[:200]
            print(f"{'yes' if named else 'NO ':3} {name}: {texts}", flush=True)
    for kind, results in counted.items():
        print(f"{kind}: {sum(results)} of {len(results)}")


if __name__ == "__main__":
    main()
