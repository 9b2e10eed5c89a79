"""What an arm costs: steps, tokens and seconds of its training and of the further work that its method needs.

Seconds are wall-clock time from the stages and journals of the arm. They begin after the dataset that all arms have.
An arm that scores traces, answers questions or asks teachers again has these seconds too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from distill.ablation.drafts import Arm
from distill.artifacts.layout import rollouts_folder
from distill.artifacts.manifest import Manifest
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, lineage
from distill.rounds.round_recipes import attempt_folder, round_folder, run_of_round
from distill.trace_records import scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Where the time of an arm went."""

    before: float
    """Stages before the one under study."""
    method: float
    """Scores, replies of the student and new traces; they depend little on the length of the training."""
    training: float
    """The stage under study and all after it."""

    @property
    def total(self) -> float:
        return self.before + self.method + self.training


def measured_folder(planned: Arm, folder: Path) -> Path:
    """The run directory with the evaluation of the arm: its own directory, or its last round."""
    return run_of_round(folder, planned.rounds)


def training_costs(planned: Arm, folder: Path) -> dict[str, float]:
    """Steps, tokens and seconds of all stages and rounds of a finished arm, and its seconds as a whole."""
    manifests = [manifest for _, where in _stages(planned, folder) if (manifest := Manifest.read(where)) is not None]
    spent = seconds(planned, folder, planned.stage)
    return {
        "train_steps": sum(manifest.counts["steps"] for manifest in manifests),
        "train_tokens": sum(manifest.tokens["trained"] for manifest in manifests),
        "train_seconds": spent.before + spent.training,
        "all_seconds": spent.total,
    }


def seconds(planned: Arm, folder: Path, studied: str) -> Seconds:
    """The seconds of a finished arm in its run directory; `studied`: the stage under study."""
    stages = planned.recipe.stages
    earlier = {each.name for each in lineage(stages, studied)[:-1]} if stages else set[str]()
    trained = list(_stages(planned, folder))
    return Seconds(
        before=sum(_noted(where) for stage, where in trained if stage in earlier),
        method=sum(_of_stages(planned.recipe, folder)) + sum(_of_rounds(planned, folder)),
        training=sum(_noted(where) for stage, where in trained if stage not in earlier),
    )


def _stages(planned: Arm, folder: Path) -> Iterator[tuple[str, Path]]:
    """The name and folder of every trained stage of an arm, also of its rounds."""
    yield from ((stage.name, folder / "train" / stage.name) for stage in planned.recipe.stages)
    for number in range(1, planned.rounds + 1):
        yield planned.stage, run_of_round(folder, number) / "train" / planned.stage


def _of_stages(recipe: Recipe, folder: Path) -> Iterator[float]:
    """The student's replies and the teachers' scores that stages learn from."""
    for stage in recipe.stages:
        if stage.rollouts is not None:
            replies = rollouts_folder(folder, stage.name) / "replies"
            yield from (_noted(path.parent) for path in replies.glob("*/eval/manifest.json"))
        if stage.rollouts is not None or stage.visual is not None:
            yield scores.seconds(folder, stage.name, learned_ids(folder, stage))


def learned_ids(folder: Path, stage: Stage) -> set[str]:
    """The ids of what a stage learns from: other arms may have scored more in the same journals."""
    from student.data.rows import data_folder

    return {
        trace
        for file in sorted(data_folder(folder, stage).glob("*.parquet"))
        for trace in pq.read_table(file, columns=["trace_id"])["trace_id"].to_pylist()
    }


def _of_rounds(planned: Arm, folder: Path) -> Iterator[float]:
    for number in range(1, planned.rounds + 1):
        for attempt in range(planned.recipe.rounds.attempts):
            yield _noted(attempt_folder(folder, number, attempt) / "eval")
        yield from (_noted(round_folder(folder, number) / stage) for stage in ("generate", "filter"))
        yield scores.seconds(round_folder(folder, number), planned.stage, None)


def _noted(stage: Path) -> float:
    manifest = Manifest.read(stage)
    return manifest.seconds if manifest is not None else 0.0
