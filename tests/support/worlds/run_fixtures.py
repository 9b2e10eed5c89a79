"""A finished generate folder, written by hand: what the tests of the filter stage start from."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from distill.artifacts.files import describe
from distill.artifacts.manifest import Manifest, fingerprint
from distill.data.images.image_files import sha256
from distill.data.reader import sample_id
from distill.data.sample_files import samples_content, write_samples
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Sample, Trace, Usage

RECIPE = """
[data.questions]
source = "questions.jsonl"
[[teachers]]
name = "structured"
model = "teachers/structured"
backend = "embedded"
samples = 3
[[teachers]]
name = "brief"
model = "teachers/brief"
backend = "embedded"
"""


def make_image(folder: Path, number: int, size: int = 24) -> ImageRef:
    """A small image of its own, as a file."""
    pixels = np.random.default_rng(number).integers(0, 255, (size, size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    path = folder / f"{number:05d}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
    return ImageRef(sha256=sha256(buffer.getvalue()), path=str(path))


def sample(
    question: str = "How many apples?",
    *answers: str,
    images: Sequence[ImageRef] = (),
    answer_type: str | None = None,
    domain: str = "scenes",
    **meta: object,
) -> Sample:
    return Sample(
        id=sample_id(question, [ref.sha256 for ref in images]),
        images=tuple(images),
        question=question,
        answers=answers,
        answer_type=answer_type,
        domain=domain,
        meta=meta,
    )


def trace(
    of: Sample | None = None,
    answer: str = "4",
    reasoning: str = "There are two red apples and two green ones, so four in all.",
    *,
    teacher: str = "structured",
    k: int = 0,
    outcome: str = "complete",
    finish_reason: str = "stop",
    id: str | None = None,
) -> Trace:
    sample_id = of.id if of else "s0"
    return Trace(
        id=id or fingerprint({"sample": sample_id, "teacher": teacher, "k": k})[:32],
        sample_id=sample_id,
        teacher=teacher,
        k=k,
        seed=k,
        reasoning=reasoning,
        answer=answer,
        text=f"<think>{reasoning}</think>{answer}",
        outcome=outcome,
        finish_reason=finish_reason,
        usage=Usage(prompt=10, image=4, reasoning=12, answer=1),
        params={"temperature": 0.8},
        model=f"teachers/{teacher}",
        revision="r1",
        engine={"name": "transformers", "version": "5.0"},
        prompt_sha="p",
        latency_s=0.1,
        created="2026-01-01T00:00:00+00:00",
    )


def recipe(folder: Path, text: str = "") -> Recipe:
    path = folder / "recipe.toml"
    path.write_text(RECIPE + text, encoding="utf-8")
    return load(path)


def default(family: Any, **parameters: Any) -> Any:
    """A family of signals as an empty recipe sets it, but for these parameters."""
    return replace(family.from_recipe(Recipe()), **parameters)


def generate_folder(
    run: Path, samples: Iterable[Sample], traces: Iterable[Trace], *, extra: Iterable[Trace] = ()
) -> Path:
    """Write `<run>/generate` as the generate stage leaves it; `extra` traces are journaled but not planned."""
    folder = run / "generate"
    traces = list(traces)
    written: dict[str, list[bytes]] = {}
    for item in [*traces, *extra]:
        written.setdefault(item.teacher, []).append(orjson.dumps(asdict(item), option=orjson.OPT_APPEND_NEWLINE))
    for teacher, lines in written.items():
        (folder / teacher).mkdir(parents=True, exist_ok=True)
        half = len(lines) // 2
        (folder / teacher / "part-00000.jsonl").write_bytes(b"".join(lines[:half]))
        (folder / teacher / "part-00001.jsonl").write_bytes(b"".join(lines[half:]))
    folder.mkdir(parents=True, exist_ok=True)
    write_samples(folder / "samples.parquet", samples)
    plan = {name: [getattr(item, name) for item in traces] for name in ("id", "sample_id", "teacher", "k")}
    pq.write_table(pa.table(plan), folder / "plan.parquet")
    fields = {"teachers": sorted(written)}
    Manifest(
        stage="generate",
        fingerprint=fingerprint(fields),
        fields=fields,
        inputs={"samples.parquet": samples_content(folder / "samples.parquet")},
        counts={"traces": len(traces)},
        tokens={
            f"{name}.output": sum(each.usage.reasoning + each.usage.answer for each in traces if each.teacher == name)
            for name in written
        },
        outputs={str(path.relative_to(folder)): describe(path) for path in sorted(folder.glob("*/*.jsonl"))},
    ).write(folder)
    return folder


def small_world(images: Path, questions: int = 6) -> tuple[list[Sample], list[Trace]]:
    """Questions with a gold answer in two domains; of each teacher some traces right, wrong, doubled and cut."""
    samples, traces = [], []
    for number in range(questions):
        domain = ("scenes", "charts")[number % 2]
        asked = sample(
            f"Question {number}: how many dots?", str(number), images=[make_image(images, number)], domain=domain
        )
        samples.append(asked)
        steps = [f"row {row} holds {number * row + row} dots of {number * row}" for row in range(1, 6)]
        good = f"I look at each row in turn: {'; '.join(steps)}; so there are {number}."
        traces += [
            trace(asked, str(number), good, k=0),
            trace(
                asked, str(number + 1), f"I guess that question {number} has {number + 1} of them, more or less.", k=1
            ),
            trace(asked, str(number), good, k=2),
            replace(
                trace(asked, "", "so again " * 40, teacher="brief"),
                outcome="truncated_thinking",
                finish_reason="length",
            ),
        ]
    return samples, traces


def short_report(*arguments: Any) -> None:
    """In the place of `filters.report.page.write`: a line."""
    next(argument for argument in arguments if isinstance(argument, Path)).write_text("a report\n")
