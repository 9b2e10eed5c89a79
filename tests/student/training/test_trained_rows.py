"""A finished stage writes down which rows its steps have trained, by group."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from worlds.run_fixtures import sample

from distill.data.sample_files import write_samples
from distill.recipe.sections.stages import Stage
from student.data.rows import TrainingRow
from student.training.trained_rows import read_trained_rows

QUESTIONS = [sample(f"How many dots has number {n}?", "1", domain=("charts", "scenes")[n % 2]) for n in range(40)]
FIELDS: dict[str, Any] = {"name": "reason", "data": "traces", "train": ("language",)}


def finished(run: Path, steps: int, **settings: Any) -> Any:
    """A stage of 40 traces, four each step; those about charts weigh nothing; the last ten rows are replayed."""
    (run / "generate").mkdir(parents=True, exist_ok=True)
    write_samples(run / "generate" / "samples.parquet", QUESTIONS)
    rows = [
        TrainingRow(
            id=str(n),
            images=(),
            question=asked.question,
            response="1",
            sample_id=asked.id,
            source="traces" if n < 30 else "readings",
            teacher="brief",
            weight=float(n % 2),
        )
        for n, asked in enumerate(QUESTIONS)
    ]
    return SimpleNamespace(
        run=run,
        stage=Stage(**(FIELDS | settings)),
        examples=SimpleNamespace(rows=[SimpleNamespace(row=row) for row in rows]),
        steps=SimpleNamespace(rows_of=lambda numbers: [4 * step + place for step in numbers for place in range(4)]),
        last=SimpleNamespace(step=steps),
    )


def test_rows_of_the_steps_that_were_made_are_counted_but_those_without_weight_and_replayed_ones(
    tmp_path: Path,
) -> None:
    (rows,) = read_trained_rows(finished(tmp_path, 10))
    assert (rows.step, rows.rows, rows.groups["domain"]) == ("the stage reason", 15, {"scenes": 15})
    assert rows.groups["teacher"] == {"brief": 15}
    (few,) = read_trained_rows(finished(tmp_path, 2, max_steps=2))
    assert few.rows == 4 and few.change == "stages.reason.max_steps, now 2"
    (every,) = read_trained_rows(finished(tmp_path, 10, loss={"sample_weights": False}))
    assert every.groups["domain"] == {"scenes": 15, "charts": 15}


def test_a_stage_without_traces_or_questions_has_no_such_rows(tmp_path: Path) -> None:
    assert read_trained_rows(finished(tmp_path, 10, data="instruct")) == []
    work = finished(tmp_path, 10)
    (tmp_path / "generate" / "samples.parquet").unlink()
    assert read_trained_rows(work) == []
