"""What `distill filter` finds in a run of 60 questions and two teachers that a test has changed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
from worlds.run_fixtures import generate_folder, recipe, sample, trace

from distill.types import Sample, Trace
from filters.apply import apply

SETTINGS = """[filter]
signals = ["answer", "format", "agreement", "question", "duplicates", "refusal", "language"]
"""
Edit = Callable[[Sample, Trace], Trace]
Asked = Callable[[list[Sample]], list[Sample]]


def diagnosed(
    folder: Path,
    edit: Edit = lambda _, trace: trace,
    more: str = "",
    answers: int = 7,
    each: int = 2,
    *,
    asked: Asked = list,
    settings: str = SETTINGS,
) -> list[dict]:
    """The findings of 60 questions, which `asked` may change, with so many traces each, of two teachers."""
    asked = asked(
        [sample(f"How many dots has number {n}?", str(n % answers), answer_type="number") for n in range(60)]
    )
    traces = [
        edit(one, trace(one, one.answers[0], f"Row {k + 1} of number {n} shows them all.", teacher=teacher, k=k))
        for n, one in enumerate(asked)
        for k in range(each)
        for teacher in [("structured", "brief")[n % 2]]
    ]
    generate_folder(folder / "run", asked, traces)
    apply(recipe(folder, settings + more), folder / "run")
    found: list[dict] = orjson.loads((folder / "run/filter/health.json").read_bytes())["diagnosis"]
    return found


def wrong(written: Trace, answer: str) -> Trace:
    return replace(written, answer=answer, text=f"<think>{written.reasoning}</think>{answer}")
