"""The verb: let the teachers write reasoning traces.

Computes the missing traces from the recipe, the samples and the traces on disk. Asks for these traces, appends each
finished trace at once, and writes the manifest last. After a kill the same command continues.

Programs call `distill.generate`: it also compares the questions with the test data, which needs the filters.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distill.artifacts.files import locked
from distill.artifacts.integrity import changed
from distill.artifacts.manifest import MANIFEST, Manifest, finished
from distill.data import sources
from distill.errors import DistillError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.types import ProgressCallback, unwatched
from teacher.agent import Agent, NoMorePlans
from teacher.engines.outage import Dependency, Failure, Say
from teacher.engines.provenance import require_same_options
from teacher.generation import Generation, Offline, no_server_error
from teacher.messages.request import Model
from teacher.progress import announce
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.store import plan_images, question_plan

_SHORTEST_CHECK_S = 0.2
_IMAGE_CHECK_S = (0.5, 15.0)
"""Between two looks at a folder of images that is away: at first, and later."""
REMEDY = (
    "`distill generate --fresh` plans again (traces with the same id are kept and not asked again); or choose "
    "another --run"
)


def generate(
    recipe: Recipe,
    run: Path | str,
    *,
    limit: int | None = None,
    fresh: bool = False,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Let the teachers of a recipe answer [data.questions]; traces go to `<run>/generate/<teacher>/`.

    `limit` asks about that many samples only, spread over the domains by content. `fresh` plans again after a change
    of settings, and asks again for traces that ended in an error. Traces that are still wanted are kept; the others
    stay unused in the journals. A finished stage with the same settings, source and limit is returned as it is, after
    asking again what failed for a passing reason if its server is there.

    Raises RecipeError, DataError, ModelError and StaleError for faults that the user must correct; TeacherError for a
    server that does not answer; CircuitOpen if too many requests fail; StorageError for a full disk; BusyError if
    another process works on the run.
    """
    folder = Path(run) / "generate"
    sources.require_there(recipe, ASKED)
    models = question_plan.check_teachers(recipe)
    fields = question_plan.result_settings(recipe, models)
    started = time.monotonic()
    with locked(Path(run)):
        for teacher in recipe.teachers:
            require_same_options(folder / teacher.name, teacher, recipe.path.parent)
        earlier = None if fresh else finished(folder, fields, remedy=REMEDY)
        inputs = question_plan.plan_inputs(recipe, folder, fields, limit)
        if fresh or not question_plan.is_current(folder, inputs):
            inputs = _wait_for_images(recipe, folder, fields, limit, inputs, lambda what: announce(on_progress, what))
            pending = question_plan.write_pending_plan(
                recipe,
                folder,
                limit=limit,
                inputs=None if fresh else inputs,
                on_read=lambda images: announce(on_progress, f"reads the text of images: {images:,} read"),
            )
            (folder / MANIFEST).unlink(missing_ok=True)
            question_plan.install_plan(pending, folder, inputs)
            earlier = None
        elif earlier and changed(folder, earlier.outputs.items()):
            (folder / MANIFEST).unlink()
            earlier = None
        elif earlier and not earlier.counts["errors_to_ask_again"]:
            return earlier
        stage = Generation(recipe, models, question_plan.read_plan(folder), on_progress)
        if fresh:
            stage.ask_failed_again()
        if earlier is not None:  # requests that are only tried again, because they may pass now, are not worth a wait
            stage.start_patience_s = 0.0
        offline = _answer(stage)
        if offline and earlier and (folder / MANIFEST).exists():
            return earlier
        return stage.finish(offline, fields, inputs, started)


def _wait_for_images(
    recipe: Recipe, folder: Path, fields: Mapping[str, Any], limit: int | None, inputs: dict[str, Any], say: Say
) -> dict[str, Any]:
    """The state of the plan once the folders of its images are there. Raises CircuitOpen when they stay away."""
    images = Dependency("the images of this run")
    while missing := plan_images.unreadable_folders(folder, inputs):
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3:,} more folders" if len(missing) > 3 else "")
        images.failed(
            "images",
            Failure("image", f"{shown} cannot be read; if they were deleted, remove their rows from the source"),
        )
        images.wait(recipe.generate.patience_s, say, idle=True)
        time.sleep(min(images.pause_s(*_IMAGE_CHECK_S), max(_SHORTEST_CHECK_S, recipe.generate.patience_s / 4)))
        inputs = question_plan.plan_inputs(recipe, folder, fields, limit)
    return inputs


def ask(
    recipe: Recipe, models: Mapping[str, Model], plan: question_plan.QuestionPlan, on_progress: ProgressCallback
) -> None:
    """Ask for the samples of a plan, and leave the stage unfinished; the caller holds the lock of the run.

    Raises what `generate` raises for teachers that are not there or fail.
    """
    offline = _answer(Generation(recipe, models, plan, on_progress))
    if offline:
        raise no_server_error(offline)


def _answer(stage: Generation) -> Offline:
    """Ask for everything that is open. Returns the teachers whose server is not available.

    Servers may be up one after the other: those that are there are used, the others are reported at the end.
    """
    offline: dict[str, DistillError] = {}
    for group in group_teachers(stage.recipe.teachers):
        jobs = stage.jobs(group)
        if jobs:
            offline |= Agent(group, stage.progress, NoMorePlans(), jobs).run()
    return offline
