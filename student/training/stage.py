"""One training stage, from its start model to the saved student, as a list of steps.

The steps themselves are methods of StageRun (student/training/stage_run.py). Does not decide which stages run
(student/train.py).
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.artifacts.layout import CHECKPOINTS, DISTRIBUTIONS, REFERENCE, ROWS, SETTINGS, model_folder
from distill.artifacts.manifest import Manifest
from distill.errors import InputError, RecipeError, input_errors
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, start_of
from distill.types import ProgressCallback
from student.distributed import own_disks, processes
from student.models.start_model import StartModels

if TYPE_CHECKING:
    from student.data.images import ImageStore


@dataclass(slots=True)
class Session:
    """What the stages of one command share: resized images, and the model that several start from."""

    start_models: StartModels = field(default_factory=StartModels)
    store: "ImageStore | None" = None


def run(
    recipe: Recipe,
    run_folder: Path,
    stage: Stage,
    fields: Mapping[str, Any],
    *,
    again: bool,
    session: Session,
    on_progress: ProgressCallback,
) -> Manifest | None:
    """Train one stage from the model of the stage before, and leave its own; resumes from its checkpoints.

    `again`: a later stage of this command starts from the same.
    Every process of a run takes part. The main one writes all files and gives back the manifest, the others None.
    """
    from student.training.stage_manifest import write_manifest
    from student.training.stage_run import StageRun

    before = start_of(recipe.stages, stage)
    start = None if before is None else model_folder(run_folder, before)
    if start is not None:
        own_disks.bring(start)  # it is in the run of the main process
    work = StageRun(
        recipe=recipe,
        run=run_folder,
        stage=stage,
        fields=fields,
        start=start,
        session=session,
        on_progress=on_progress,
    )
    for problem in requirement_problems(recipe, stage):
        raise problem
    work.note_settings()
    work.load_model(again=again)
    work.read_rows()
    work.prepare_model()
    work.plan_memory()
    work.read_distributions()
    work.encode_images()
    work.build_steps()
    work.choose_kernels()
    work.note_parts()
    work.train()
    work.save_model()
    manifest = write_manifest(work) if processes.is_main() else None
    if own_disks.writes():
        clean(work.folder)
    return manifest


def requirement_problems(recipe: Recipe, stage: Stage) -> Iterator[InputError]:
    """Everything that a stage asks for and that is not here: RecipeError, ModelError, MissingExtra."""
    from student.models import attention, kernels, lora
    from student.training.loop import sft_config

    assert recipe.student is not None
    if recipe.student.dtype == "float16":
        yield RecipeError("student.dtype = 'float16': gradients overflow there; train in bfloat16 or float32")
    yield from input_errors(
        partial(lora.require, stage.lora),
        partial(kernels.require, stage),
        partial(attention.require, recipe.student.attention),
        partial(sft_config.require, stage),
    )


def clean(folder: Path) -> None:
    """Remove what only an unfinished stage needs."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    shutil.rmtree(folder / DISTRIBUTIONS, ignore_errors=True)
    (folder / SETTINGS).unlink(missing_ok=True)
    (folder / ROWS).unlink(missing_ok=True)
    (folder / REFERENCE).unlink(missing_ok=True)
