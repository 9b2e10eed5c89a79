"""The rows that the steps of a stage have trained, by group: what is left after its limits, weights and order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from distill.artifacts.layout import SAMPLES
from distill.data.sample_files import read_samples
from distill.diagnosis.row_groups import MOST_ROWS, StepRows, groups_of, settings_text
from distill.recipe.sections.stages import Stage, is_traces

if TYPE_CHECKING:
    from student.training.stage_run import StageRun

_STEPS: Final = 200
"""Steps that are looked at, spread over the stage."""
_OF_ROWS: Final = ("teachers", "limit", "max_length", "order", "epochs", "max_steps", "max_tokens")


def read_trained_rows(work: "StageRun") -> list[StepRows]:
    """The traces that a finished stage has trained; none where it learns none or lacks the questions."""
    file = work.run / "generate" / SAMPLES
    if not is_traces(work.stage) or not file.is_file():
        return []
    examples = work.examples.rows
    steps = range(work.last.step)
    drawn = work.steps.rows_of(_some(steps, _STEPS))
    rows = [examples[number].row for number in _some(drawn, MOST_ROWS)]
    own = [
        row
        for row in rows
        if row.source == work.stage.data
        and not row.rejected
        and (row.weight > 0 or not work.stage.loss.sample_weights)
    ]
    samples = {sample.id: sample for sample in read_samples(file, {row.sample_id for row in own})}
    groups = (groups_of(samples[row.sample_id], row.teacher) for row in own if row.sample_id in samples)
    return [StepRows.of(groups, f"the stage {work.stage.name}", _keys_of_rows(work.stage))]


def _some(numbers: Sequence[int], most: int) -> list[int]:
    """At most this number of these items, spread evenly."""
    return list(numbers[:: -(-len(numbers) // most)]) if numbers else []


def _keys_of_rows(stage: Stage) -> str:
    """The keys of a stage that decide which rows it trains."""
    path = f"stages.{stage.name}"
    return settings_text(path, stage, _OF_ROWS) or f"{path}: its data and limits"
