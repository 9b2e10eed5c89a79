"""The four verbs for programs: `import distill`, then `distill.generate(recipe, run)` and so on.

Each verb does the work of its command, without the output. It refuses training data that is in the evaluation data,
and passes in the models and servers that the stage needs. The functions of `teacher`, `filters` and `student` do the
work of one stage, independent of each other.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from distill.artifacts.manifest import Manifest
from distill.errors import DistillError
from distill.extensions import load_again
from distill.planning.compared_sources import evaluation_sources, training_sources
from distill.python_api.arguments import require_count, require_function, require_recipe, run_folder
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.refused_runs import recipe_left
from distill.run_log import recording
from distill.trackers import tracked
from distill.types import ProgressCallback, unwatched

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from distill.planning.leakage import Leakage
    from distill.recipe.sections.eval import AnyStudent
    from distill.recipe.sections.stages import Stage
    from student.export.check_report import Serve
    from teacher.engines.http.remote_student import RemoteStudent

_Arguments = ParamSpec("_Arguments")
_turn = threading.RLock()


def _in_turn(verb: Callable[_Arguments, Manifest]) -> Callable[_Arguments, Manifest]:
    """The verb, which waits where another thread is in a verb.

    Libraries load models with settings of the whole process (the type and the place of new tensors), and the code of
    users is loaded once in it.
    """

    @wraps(verb)
    def waiting(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> Manifest:
        with _turn:
            return verb(*arguments, **named)

    return waiting


@_in_turn
def generate(
    recipe: Recipe,
    run: Path | str,
    *,
    limit: int | None = None,
    fresh: bool = False,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Let the teachers answer. Raises the errors of `teacher.generate.generate`, and DataError if data leaks."""
    run = _checked(recipe, run, on_progress)
    require_count("limit", limit)
    load_again()
    with recording(run, "generate"), recipe_left(recipe, run):
        compare_asked(recipe, run)
        return generate_compared(recipe, run, limit=limit, fresh=fresh, on_progress=on_progress)


@_in_turn
def filter(
    recipe: Recipe, run: Path | str, *, fresh: bool = False, on_progress: ProgressCallback = unwatched
) -> Manifest:
    """Filter the traces, with the signals that a model measures. Raises the errors of `filters.apply.apply`."""
    from filters.tables import fork_server

    run = _checked(recipe, run, on_progress)
    load_again()
    fork_server.start_early(run, recipe.filter.workers)  # before this process loads the same modules
    from distill.wiring.model_signals import measurers
    from filters.apply import apply

    with recording(run, "filter"), recipe_left(recipe, run), tracked(recipe, run, "filter", on_progress) as report:
        return apply(recipe, run, fresh=fresh, measurers=measurers(recipe, run), on_progress=report)


@_in_turn
def train(
    recipe: Recipe,
    run: Path | str,
    *,
    stage: str | None = None,
    fresh: bool = False,
    jobs: int = 1,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Train all stages, `jobs` at a time, or one stage. Raises the errors of `student.train.train`, and DataError if
    data leaks."""
    from student.distributed import processes

    run = _checked(recipe, run, on_progress)
    require_count("jobs", jobs)
    recipe = as_launched(recipe)
    load_again()
    with recording(run, "train", quiet=not processes.is_main()), recipe_left(recipe, run), processes.together():
        if processes.is_main():
            prepare_training(recipe, run, stage)
        return train_compared(recipe, run, stage=stage, fresh=fresh, jobs=jobs, on_progress=on_progress)


@_in_turn
def evaluate(
    recipe: Recipe,
    run: Path | str,
    *,
    fresh: bool = False,
    jobs: int = 1,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Ask and compare students, `jobs` at a time. Raises the errors of `student.evaluate.evaluate`, and DataError if
    data leaks."""
    run = _checked(recipe, run, on_progress)
    require_count("jobs", jobs)
    load_again()
    with recording(run, "eval"), recipe_left(recipe, run):
        compare_evaluated(recipe, run)
        return evaluate_compared(recipe, run, fresh=fresh, jobs=jobs, on_progress=on_progress)


def _checked(recipe: Recipe, run: Path | str, on_progress: ProgressCallback) -> Path:
    """The folder of a run, once all arguments are of their kind."""
    require_recipe(recipe)
    require_function("on_progress", on_progress)
    return run_folder(run)


def prepare_training(recipe: Recipe, run: Path, stage: str | None) -> "Leakage | None":
    """The work before all stages, or before one stage: compare training and evaluation data, and write the data sets
    of arms."""
    from filters.dataset.ablation_sets import materialise_stages

    compared = compare_trained(recipe, run, stage)
    materialise_stages(recipe, run, stage)
    return compared


def as_launched(recipe: Recipe) -> Recipe:
    """The recipe with the sharding that the launcher of the processes requests. Raises InputError for DeepSpeed."""
    from student.distributed import processes

    if not processes.launcher_shards():
        return recipe
    stages = tuple(stage.model_copy(update={"sharding": "fsdp2"}) for stage in recipe.stages)
    return recipe.model_copy(update={"stages": stages})


def train_compared(
    recipe: Recipe,
    run: Path,
    *,
    stage: str | None,
    fresh: bool,
    jobs: int,
    asks: bool = False,
    on_progress: ProgressCallback,
) -> Manifest:
    """`train` after the comparison of data; teachers first score the traces of the stages that ask for it.

    `asks`: a process that no stage needs asks students that are trained the questions of the evaluation.
    """
    from student.distributed import processes
    from student.evaluation.side_by_side import asks_after
    from student.train import nothing_beside
    from student.train import train as train_student

    if processes.is_main() and any(each.visual or each.rollouts for each in recipe.stages):
        from distill.wiring.scored_traces import note_scorers, score_stages

        note_scorers(recipe, run)
        score_stages(recipe, run, stage, fresh=fresh, on_progress=on_progress)
    before = partial(_prepare_stage, recipe, run, on_progress)
    beside = partial(asks_after, recipe, run) if asks else nothing_beside
    return train_student(
        recipe, run, stage=stage, fresh=fresh, jobs=jobs, before=before, beside=beside, on_progress=on_progress
    )


def _prepare_stage(recipe: Recipe, run: Path, on_progress: ProgressCallback, stage: "Stage") -> None:
    """Makes what a stage needs from its start student once that is trained: replies with their scores."""
    if stage.rollouts is not None:
        from distill.wiring.rollouts import prepare_rollouts

        evaluate = partial(evaluate_compared, fresh=False, on_progress=on_progress)
        prepare_rollouts(recipe, run, stage, evaluate, on_progress)


def generate_compared(
    recipe: Recipe, run: Path, *, limit: int | None, fresh: bool, on_progress: ProgressCallback
) -> Manifest:
    """`generate` after the comparison of data, with the trackers of the recipe."""
    from teacher.generate import generate as ask_teachers

    with tracked(recipe, run, "generate", on_progress) as report:
        return ask_teachers(recipe, run, limit=limit, fresh=fresh, on_progress=report)


def evaluate_compared(
    recipe: Recipe, run: Path, *, fresh: bool, jobs: int = 1, on_progress: ProgressCallback
) -> Manifest:
    """`evaluate_served` with the trackers of the recipe."""
    with tracked(recipe, run, "eval", on_progress) as report:
        return evaluate_served(recipe, run, fresh=fresh, jobs=jobs, on_progress=report)


def evaluate_served(
    recipe: Recipe, run: Path, *, fresh: bool = False, jobs: int = 1, on_progress: ProgressCallback
) -> Manifest:
    """`evaluate` after the comparison of data, with engines that serve students."""
    from student.evaluate import evaluate as evaluate_students

    _write_learned_rows(recipe, run)
    serve = partial(_serve, recipe)
    return evaluate_students(
        recipe, run, fresh=fresh, jobs=jobs, on_progress=on_progress, vllm=serve, connect=connect
    )


def _write_learned_rows(recipe: Recipe, run: Path) -> None:
    """Write the dataset that the diagnosed student learned from where it is missing: a store keeps none of an arm."""
    from filters.dataset.ablation_sets import materialise_stages
    from student.evaluation.learned_rows import diagnosed_arm

    if Manifest.read(run / "generate") is None:
        return
    _, stage = diagnosed_arm(recipe)
    if stage is not None:
        with suppress(DistillError):  # rows that cannot be made any more are not asked
            materialise_stages(recipe, run, stage.name)


def _serve(recipe: Recipe) -> "Serve":
    from teacher.engines.vllm.export_server import find_server, serve_export

    return partial(serve_export, server=find_server(recipe))


def connect(name: str, student: "AnyStudent", **limits: int) -> "AbstractContextManager[RemoteStudent]":
    """A student on a server; the engine is loaded when the first student is asked."""
    from teacher.engines.http.remote_student import connect_student

    return connect_student(name, student, **limits)


def compare_asked(recipe: Recipe, run: Path) -> "Leakage | None":
    """Compare the teachers' questions with the evaluation sources; None if there is nothing to compare."""
    return _compare(recipe, run, (ASKED,) if ASKED in recipe.data else ())


def compare_trained(recipe: Recipe, run: Path, stage: str | None = None) -> "Leakage | None":
    """Compare the training data of all stages, or of one stage, with the evaluation sources."""
    stages = [each for each in recipe.stages if stage in (None, each.name)]
    return _compare(recipe, run, training_sources(recipe, stages))


def compare_evaluated(recipe: Recipe, run: Path) -> "Leakage | None":
    """Compare the training data of the trained stages with the evaluation sources."""
    return _compare(recipe, run, training_sources(recipe, recipe.stages), is_trained=True)


def _compare(recipe: Recipe, run: Path, training: tuple[str, ...], *, is_trained: bool = False) -> "Leakage | None":
    if not evaluation_sources(recipe):
        return None  # before anything heavy is loaded
    from distill.planning.leakage import refuse_leakage

    return refuse_leakage(recipe, run, training, is_trained=is_trained)
