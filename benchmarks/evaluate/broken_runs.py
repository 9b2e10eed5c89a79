"""Makes runs that are broken on purpose and healthy ones, and counts for how many the diagnosis names the cause.

    python benchmarks/evaluate/broken_runs.py FOLDER [NAME ...] [--half 1]

Every run takes questions of the tiny world and traces that are written by its own rules (recipes/tiny/questions.py),
so no teacher is asked. The student is a shipped teacher that has been taught to answer without a rationale: it sees,
and learns to reason in some 60 steps. A broken run differs from the first healthy one in one thing. `--half 2` are
the runs that were kept apart while the rules of the diagnosis were written. A finished run is scored again from its
files; remove the folder of a run to make it again.
Takes about 30 minutes for all on one CPU core.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes" / "tiny"))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from questions import rationale
from run_fixtures import generate_folder, trace
from world import Picture, Question

import distill
from distill.data import reader
from distill.errors import DistillError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.reports.findings import read_findings
from distill.types import Sample, Trace, Usage

TINY: Final = Path(__file__).resolve().parents[2] / "recipes" / "tiny"
TEACHERS: Final = {"scenes": "structured", "charts": "analyst", "digits": "reader"}
QUESTIONS, TEST, READINGS, SAMPLES = 360, 60, 90, 2

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

Row = dict[str, Any]
EditRows = Callable[[list[Row]], list[Row]]
EditTrace = Callable[[Sample, Trace], Trace]
EditFiles = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: how it differs from the first healthy one."""

    half: int = 1
    names: tuple[str, ...] = ()
    """The diagnosis is right if it has one of these findings; empty for a healthy run."""
    refused: str = ""
    """Words of the expected error, for a run that a verb refuses."""
    set: Mapping[str, Any] = field(default_factory=dict)
    student: str | None = None
    """The [student] section of this run; None: that of all runs."""
    text: str = ""
    questions: EditRows = list
    test: EditRows = list
    trace: EditTrace = lambda sample, written: written
    before: EditFiles = lambda folder: None
    train: bool = True


def _rows(name: str, count: int) -> list[Row]:
    """The first rows of each domain, the same number of each."""
    rows = pq.read_table(TINY / "data" / f"{name}.parquet").to_pylist()
    return [row for domain in TEACHERS for row in [row for row in rows if row["domain"] == domain][: count // 3]]


def _shift_images(rows: list[Row]) -> list[Row]:
    """Give every question the image of another question of its domain, as a wrong join does."""
    images = [row["image"] for row in rows]
    return [row | {"image": image} for row, image in zip(rows, images[7:] + images[:7], strict=True)]


def _typed(answer_type: str) -> EditRows:
    return lambda rows: [row | {"answer_type": answer_type} for row in rows]


def _one_answer(rows: list[Row]) -> list[Row]:
    """Select questions so that nine of ten have the answer 3. Only scenes have enough of them."""
    every = pq.read_table(TINY / "data" / "questions.parquet").to_pylist()
    threes = [row for row in every if row["answer"] == "3"]
    return threes + [row for row in rows if row["answer"] != "3"][: len(threes) // 9]


def _again(rows: list[Row]) -> list[Row]:
    """Repeat 90 questions in four spellings."""
    spellings = (str, str.upper, str.lower, str.title)
    return [row | {"question": spell(row["question"])} for spell in spellings for row in rows[::4]]


def _wrong_answers(sample: Sample, written: Trace) -> Trace:
    """Make every trace of the teacher of digits wrong, with its rationale."""
    if written.teacher != "reader":
        return written
    answer = str(int(written.answer) + 1 + written.k)
    reasoning = written.reasoning.replace(written.answer, answer)
    return replace(written, answer=answer, reasoning=reasoning, text=f"<think>{reasoning}</think>{answer}")


def _untagged(sample: Sample, written: Trace) -> Trace:
    """Write the reasoning into the answer, without think tags."""
    text = f"{written.reasoning} The answer is {written.answer}."
    return replace(written, reasoning="", answer=text, text=text)


def _cut(sample: Sample, written: Trace) -> Trace:
    """Cut four of five traces within the rationale, as a token limit does."""
    if int(written.id[:4], 16) % 5 == 0:
        return written
    text = written.reasoning[:40]
    return replace(
        written, reasoning=text, answer="", text=text, outcome="truncated_thinking", finish_reason="length"
    )


def _long(sample: Sample, written: Trace) -> Trace:
    """Repeat the rationale of every trace four times."""
    reasoning = " Let me check again. ".join([written.reasoning] * 4)
    usage = replace(written.usage, reasoning=4 * written.usage.reasoning)
    return replace(written, reasoning=reasoning, usage=usage, text=f"<think>{reasoning}</think>{written.answer}")


def _half_agree(sample: Sample, written: Trace) -> Trace:
    """Make the second trace of a question wrong in nine of ten cases, so that its two traces disagree."""
    if written.k == 0 or int(written.id[:4], 16) % 10 == 0:
        return written
    answer = str(int(written.answer) + 1)
    return replace(written, answer=answer, text=f"<think>{written.reasoning}</think>{answer}")


def _often_wrong(sample: Sample, written: Trace) -> Trace:
    """Make three of five traces wrong, spread over all questions."""
    if int(written.id[:4], 16) % 5 < 2:
        return written
    answer = str(int(written.answer) + 1 + written.k)
    return replace(written, answer=answer, text=f"<think>{written.reasoning}</think>{answer}")


def _student_copy(folder: Path) -> Path:
    """Copy the student, to change its files."""
    return Path(shutil.copytree(folder.parent / "student", folder / "student", dirs_exist_ok=True))


def _blind(folder: Path) -> None:
    """Set the weights of the vision tower to zero, as a faulty conversion does."""
    from safetensors.numpy import load_file, save_file

    path = _student_copy(folder) / "model.safetensors"
    weights = load_file(path)
    tower = [name for name in weights if "vision" in name]
    assert tower, sorted(weights)[:5]
    save_file({name: value * (0 if name in tower else 1) for name, value in weights.items()}, path, {"format": "pt"})


def _foreign_template(folder: Path) -> None:
    """Use the chat template of another model family. This tokenizer reads its marks as text, so no turn ends."""
    path = _student_copy(folder) / "chat_template.jinja"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("<|im_start|>", "[INST] ").replace("<|im_end|>", " [/INST]"), encoding="utf-8")


_PARTS = f'vision = "{TINY}/tower"\nlanguage = "{TINY}/decoder"\npixel_shuffle = 2'
_STAGE = "stages.reason."
_RULE = '\n[[filter.rules]]\nname = "{name}"\ndrop = "{drop}"\n'


def _leaked(rows: list[Row]) -> list[Row]:
    return rows[:30] + _rows("questions", QUESTIONS)[::4]


CASES: Final[dict[str, Case]] = {
    "healthy": Case(),
    "healthy_lora": Case(set={f"{_STAGE}lora.rank": 32, f"{_STAGE}lora.alpha": 64, f"{_STAGE}learning_rate": 4e-3}),
    "healthy_charts": Case(
        questions=lambda rows: [row for row in rows if row["domain"] == "charts"],
        test=lambda rows: [row for row in rows if row["domain"] == "charts"],
    ),
    "healthy_seed": Case(set={"seed": 3, f"{_STAGE}schedule": "linear", f"{_STAGE}learning_rate": 7e-4}),
    "healthy_tiny": Case(
        student=_PARTS,
        set={f"{_STAGE}max_steps": 150, f"{_STAGE}batch_size": 32, f"{_STAGE}learning_rate": 1.5e-3},
        questions=lambda rows: _rows("questions", 3000),
    ),
    # --- the half that the rules were written with ---
    "few_steps": Case(names=("few_steps",), set={f"{_STAGE}max_steps": 4}),
    "cut_replies": Case(names=("replies_cut",), set={"eval.max_new_tokens": 16}),
    "leaked_test": Case(names=("leaked",), test=_leaked, set={"eval.allow_overlap": True}, train=False),
    "wrong_split": Case(names=("leaked",), set={"eval.allow_overlap": True, "eval.data": "questions"}, train=False),
    "lr_x30": Case(names=("learning_rate_high",), set={f"{_STAGE}learning_rate": 3e-2}),
    "no_think_tags": Case(names=("teacher_format",), trace=_untagged, refused="bad_format", train=False),
    "cut_thinking": Case(names=("traces_cut",), trace=_cut, train=False),
    "teacher_wrong": Case(names=("teacher_wrong",), trace=_wrong_answers, train=False),
    "rule_drops_all": Case(
        names=("rule_drops",),
        refused="every_long",
        text=_RULE.format(name="every_long", drop="rationale_tokens > 3"),
        train=False,
    ),
    "collapse": Case(names=("one_answer",), questions=_one_answer),
    "mismatched_images": Case(names=("gold_or_images",), questions=_shift_images, train=False),
    # --- the half kept apart ---
    "blind_student": Case(half=2, names=("blind",), before=_blind),
    "lr_100th": Case(half=2, names=("learning_rate_low",), set={f"{_STAGE}learning_rate": 1e-5}),
    "foreign_template": Case(half=2, names=("chat_template",), before=_foreign_template),
    "answer_type": Case(half=2, names=("answer_type",), questions=_typed("date"), refused="answer_type", train=False),
    "long_rationales": Case(half=2, names=("long_rationales",), trace=_long, refused="repetition"),
    "frozen_projector": Case(
        half=2, names=("projector_frozen",), student=_PARTS, set={f"{_STAGE}train": ["language"]}
    ),
    "no_answer_loss": Case(
        half=2, names=("loss_weights",), set={f"{_STAGE}loss.answer": 0.0, f"{_STAGE}loss.format": 0.0}
    ),
    "duplicates": Case(half=2, names=("duplicates",), questions=_again, train=False),
    "strict_consensus": Case(
        half=2,
        names=("rule_drops",),
        trace=_half_agree,
        text=_RULE.format(name="wrong", drop="answer_verdict = 'wrong'")
        + _RULE.format(name="consensus", drop="self_consistency < 1"),
        train=False,
    ),
    "few_traces": Case(
        half=2,
        names=("few_traces",),
        trace=_often_wrong,
        set={f"teachers.{name}.samples": 1 for name in TEACHERS.values()},
        train=False,
    ),
    "eval_type": Case(half=2, names=("answer_type",), test=_typed("date")),
    "overflow": Case(half=2, names=("learning_rate_high",), refused="loss is", set={f"{_STAGE}learning_rate": 1e9}),
}


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
    shown = case.questions(_rows("questions", QUESTIONS))
    pq.write_table(pa.Table.from_pylist(shown), folder / "questions.parquet")
    pq.write_table(pa.Table.from_pylist(case.test(_rows("test", TEST))), folder / "test.parquet")
    recipe = _recipe(folder, case, folder.parent / "student")
    # The row that an image comes from describes it, also after a wrong join.
    every = pq.read_table(TINY / "data" / "questions.parquet").to_pylist()
    seen = {row["image"]["bytes"]: row for row in every}
    samples = {
        sample.id: (sample, row) for sample, row in zip(reader.samples(recipe, "questions"), shown, strict=True)
    }
    traces = [
        case.trace(sample, _written(sample, seen[row["image"]["bytes"]], k))
        for sample, row in samples.values()
        for k in range(recipe.teachers[0].samples)
    ]
    generate_folder(folder, [sample for sample, _ in samples.values()], traces)
    (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
    try:
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
        pq.write_table(pa.Table.from_pylist(_rows(name, count)), path.parent / f"{name}.parquet")
    distill.train(load(path), path.parent)
    shutil.copytree(path.parent / "train" / "reason" / "model", folder / "student")


def score(case: Case, findings: list[dict[str, Any]], error: str) -> bool:
    """Whether the diagnosis names the cause; for a healthy run whether it finds no fault."""
    faults = [finding["name"] for finding in findings if finding["kind"] == "fault"]
    if not case.names and not case.refused:
        return not faults and not error
    return bool(set(faults) & set(case.names)) or bool(error and case.refused and case.refused in error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], default=[])
    parser.add_argument("--half", type=int, choices=(1, 2))
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if not (folder / "student").is_dir():
        ground(folder)
    counted: dict[str, list[bool]] = {}
    for name in arguments.names or CASES:
        case = CASES[name]
        if arguments.half not in (None, case.half):
            continue
        note = folder / name / "error.txt"
        if not note.is_file():
            shutil.rmtree(folder / name, ignore_errors=True)
            note.write_text(make_run(folder / name, case), encoding="utf-8")
        error = note.read_text(encoding="utf-8")
        findings = read_findings(folder / name)
        named = score(case, findings, error)
        kind = "healthy" if name.startswith("healthy") else f"broken, half {case.half}"
        counted.setdefault(kind, []).append(named)
        print(f"{'yes' if named else 'NO ':3} {name}: {' | '.join(each['text'] for each in findings) or error[:200]}")
    for kind, results in counted.items():
        print(f"{kind}: {sum(results)} of {len(results)}")


if __name__ == "__main__":
    main()
