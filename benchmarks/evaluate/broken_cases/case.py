"""One broken or healthy run of `broken_runs.py`, and what several of them share."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from questions import rationale
from world import Picture, Question

from distill.types import Sample, Trace

TINY: Final = Path(__file__).resolve().parents[3] / "recipes" / "tiny"
TEACHERS: Final = {"scenes": "structured", "charts": "analyst", "digits": "reader"}
STAGE: Final = "stages.reason."
MORE_TRAINING: Final = """
[[stages]]
name = "{name}"
data = "{data}"
train = ["projector", "language"]
learning_rate = {rate}
max_steps = {steps}
batch_size = 16
log_every_steps = 2
"""
RULE: Final = '\n[[filter.rules]]\nname = "{name}"\ndrop = "{drop}"\n'

Row = dict[str, Any]
EditRows = Callable[[list[Row]], list[Row]]
EditTrace = Callable[[Sample, Trace], Trace]
EditFiles = Callable[[Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: how it differs from the first healthy one."""

    names: tuple[str, ...] = ()
    """The diagnosis is right if it has one of these findings, or the dataset one of these warnings."""
    cause: str = ""
    """What a helpful person would say; of runs that were written without knowledge of the diagnosis."""
    source: str = ""
    """The public thread that reports it."""
    words: tuple[str, ...] = ()
    """Patterns of a finding or a warning that names the cause, written before the first run; in place of `names`."""
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


def table_rows(name: str, count: int) -> list[Row]:
    """The first rows of each domain, the same number of each."""
    rows = pq.read_table(TINY / "data" / f"{name}.parquet").to_pylist()
    return [row for domain in TEACHERS for row in [row for row in rows if row["domain"] == domain][: count // 3]]


def often_wrong(sample: Sample, written: Trace) -> Trace:
    """Make three of five traces wrong, spread over all questions."""
    if int(written.id[:4], 16) % 5 < 2:
        return written
    answer = str(int(written.answer) + 1 + written.k)
    return replace(written, answer=answer, text=f"<think>{written.reasoning}</think>{answer}")


def student_copy(folder: Path) -> Path:
    """Copy the student, to change its files."""
    return Path(shutil.copytree(folder.parent / "student", folder / "student", dirs_exist_ok=True))


def draw(written: Trace) -> int:
    """A number from 0 to 9 that belongs to the trace."""
    return int(written.id[:6], 16) % 10


def retold(written: Trace, reasoning: str, answer: str | None = None, **changes: Any) -> Trace:
    """The trace with another rationale, and perhaps another answer."""
    said = written.answer if answer is None else answer
    usage = replace(written.usage, reasoning=len(reasoning.split()))
    text = f"<think>{reasoning}</think>{said}"
    return replace(written, **({"reasoning": reasoning, "answer": said, "text": text, "usage": usage} | changes))


def result_of(content: dict[str, Any], kind: str, terms: tuple[str, ...]) -> int:
    """The answer to a question about an image."""
    if "bars" in content:
        bars = content["bars"]
        if kind == "sum":
            return bars[terms[0]] + bars[terms[1]]
        if kind == "difference":
            return bars[terms[0]] - bars[terms[1]]
        return sum(bars.values()) if kind == "total" else max(bars.values()) - min(bars.values())
    if "digits" in content:
        digits = content["digits"]
        if kind == "row":
            return sum(digits[:3] if terms[0] == "top" else digits[3:])
        return max(digits) - min(digits) if kind == "range" else max(digits[:3]) + max(digits[3:])
    first, second = (sum(term in cell.split() for cell in content["cells"]) for term in terms)
    return first + second if kind == "total" else first - second


def of_all_teachers(key: str, value: Any) -> dict[str, Any]:
    """The same setting for all teachers."""
    return {f"teachers.{name}.{key}": value for name in TEACHERS.values()}


def misread(sample: Sample, written: Trace, of_ten: int) -> Trace:
    """In so many of ten traces one thing in the image is read wrongly; the steps from there are right."""
    if draw(written) >= of_ten:
        return written
    rng = np.random.default_rng(int(written.id[:12], 16))
    content = {key: value for key, value in sample.meta.items() if key not in ("kind", "terms")}
    kind, terms = sample.meta["kind"], tuple(sample.meta["terms"])
    for _ in range(200):
        seen = _one_thing_else(content, rng)
        answer = result_of(seen, kind, terms)
        if answer >= 0 and str(answer) != written.answer:
            asked = Question(kind=kind, terms=terms, text=sample.question, answer=str(answer))
            return retold(written, rationale(Picture(domain=sample.domain, content=seen), asked, rng), str(answer))
    return written


def _one_thing_else(content: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    if "bars" in content:
        bars = dict(content["bars"])
        colour = str(rng.choice(list(bars)))
        return {**content, "bars": {**bars, colour: int(rng.integers(1, 10))}}
    name, other = ("digits", int(rng.integers(10))) if "digits" in content else ("cells", None)
    things = list(content[name])
    place = int(rng.integers(len(things)))
    things[place] = str(rng.choice(content["cells"])) if other is None else other
    return {**content, name: things}
