"""`train`, `eval` and `run` on a run in an object store.

A stage is made in the scratch folder of one machine, by the command of a run in a folder; the store has a copy of
this folder (distill/units/unfinished_stage.py). The required files of earlier stages are copied there first.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from distill import packages, redact
from distill.artifacts.layout import PROGRESS, RECIPE
from distill.artifacts.manifest import MANIFEST, STAGES
from distill.commands.progress import watch
from distill.commands.stages import evaluate_students, train_stage
from distill.commands.status import evaluation_fields
from distill.commands.store_runs import (
    filter_stage_in_store,
    generate_stage_in_store,
    local_command,
    slurm_folder,
    store_command,
)
from distill.commands.whole_run import not_evaluated, require_fit
from distill.errors import RecipeError
from distill.local_paths import as_argument
from distill.machine.child_process import interrupt
from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import open_run_store
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import is_traces
from distill.types import Progress, ProgressCallback
from distill.units.agent_record import joined, named_by_address
from distill.units.run_state import read_agents
from distill.units.stored_run import own_scratch, pull_generate, pull_manifest
from distill.units.stored_stage import pull_file, pull_stage, stage_files
from distill.units.unfinished_stage import attempts, copied_to_store, pull_newest
from distill.word_tables import counted
from student.distributed import own_disks, processes


def train_stage_in_store(
    recipe: Recipe, address: str, overrides: Sequence[str], *, stage: str | None, jobs: int, fresh: bool
) -> str:
    """Train, here or on several machines together. Checkpoints go to the store as they are written."""
    _require_no_scores(recipe, address)
    together = recipe.engine.nodes is not None and recipe.engine.kind != "local"
    if together and jobs > 1:
        raise RecipeError(f"--jobs {jobs}: machines that train together train one stage at a time; leave --jobs out")
    if together and recipe.engine.kind == "slurm":
        return _submit_training(recipe, address, overrides, stage=stage, fresh=fresh)
    if together:
        return _train_on_cluster(recipe, address, stage=stage, fresh=fresh)
    return _train_here(recipe, address, stage=stage, jobs=jobs, fresh=fresh)


def _train_here(recipe: Recipe, address: str, *, stage: str | None, jobs: int, fresh: bool) -> str:
    """Train as `distill train` does, in this process and in those that a launcher started with it."""
    with processes.together(), own_disks.own_disks(), _run_of_stage(recipe, address, "train") as run:
        text = train_stage(recipe, run, stage=stage, jobs=jobs, fresh=fresh)
    return f"{text}\n{_students(recipe, address)}"


def _students(recipe: Recipe, address: str) -> str:
    return f"students: {address}; {store_command('pull', recipe, address, 'DIR')}"


def _submit_training(
    recipe: Recipe, address: str, overrides: Sequence[str], *, stage: str | None, fresh: bool
) -> str:
    """Submit a Slurm job in which the processes of all machines run this command with the local engine."""
    from distill.placement.slurm_jobs import submit_training

    command = local_command(recipe, "train", address, overrides) + (["--stage", stage] if stage else [])
    nodes, folder, options = recipe.engine.nodes or 1, slurm_folder(recipe), recipe.engine.slurm
    job = submit_training(command, folder, name=f"distill-{recipe.name}", nodes=nodes, options=options, fresh=fresh)
    return f"job {job}: {counted(nodes, 'node')}; logs: {folder}\nstate: {store_command('status', recipe, address)}"


def _train_on_cluster(recipe: Recipe, address: str, *, stage: str | None, fresh: bool) -> str:
    """Let nodes of a Ray cluster train together, and show their progress, until the stages are finished."""
    packages.require('engine.kind = "ray"', "ray")
    from distill.placement.ray_cluster import train_together

    store, engine = open_run_store(recipe, address), recipe.engine
    earlier = attempts(store, "train")

    def make_work() -> Callable[[], None]:
        # What a new attempt has copied is not started over after a loss.
        again = fresh and attempts(store, "train") == earlier
        return partial(_train_as_rank, recipe, address, stage, again)

    with watch() as on_progress:
        train_together(
            make_work,
            nodes=engine.nodes or 1,
            restarts=engine.restarts,
            resources=engine.ray,
            follow=lambda: _follow_training(store, on_progress),
        )
    return f"train: finished\n{_students(recipe, address)}"


def _train_as_rank(recipe: Recipe, address: str, stage: str | None, fresh: bool) -> None:
    """What a process of another machine does; the students are in the store."""
    redact.know_environment()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in distill/cli.py
    signal.signal(signal.SIGTERM, interrupt)
    processes.end_on_signals("distill: interrupted")
    _train_here(recipe, address, stage=stage, jobs=1, fresh=fresh)


def _follow_training(store: ObjectStore, on_progress: ProgressCallback) -> None:
    for agent in read_agents(store):
        if agent["works"] and (progress := agent.get("progress")) is not None:
            on_progress(Progress(**progress))


def eval_stage_in_store(recipe: Recipe, address: str, *, fresh: bool, jobs: int = 1) -> tuple[str, dict[str, Any]]:
    """Evaluate here, as `distill eval` does; a text, and the same as plain values. Replies go to the store."""
    with _run_of_stage(recipe, address, "eval") as run:
        text = evaluate_students(recipe, run, fresh=fresh, jobs=jobs)
        fields = evaluation_fields(run) | {
            "run": address,
            "report": f"{address}; {store_command('pull', recipe, address, 'DIR')}",
        }
    return f"{text}\nreport:  {fields['report']}", fields


def all_stages_in_store(recipe: Recipe, address: str, overrides: Sequence[str], *, jobs: int) -> str:
    """Every stage in order. `generate`, `filter` and `train` by the engine of the recipe, `eval` here."""
    _require_no_scores(recipe, address)
    if recipe.engine.kind == "slurm":
        raise RecipeError(
            "--engine slurm: `distill run` cannot wait for jobs; submit `distill generate`, then `distill filter`, "
            "and then `distill train`"
        )
    if recipe.rounds.count:
        raise RecipeError(
            f"{address}: rounds.count = {recipe.rounds.count}: rounds work on a run directory; set it to 0, or give "
            "--run a directory"
        )
    with own_scratch(recipe, address) as scratch:
        run = scratch / "run"
        if not _pull_manifests(open_run_store(recipe, address), run):
            require_fit(recipe, run)
    generate_stage_in_store(recipe, address, overrides, limit=None)
    filtered = filter_stage_in_store(recipe, address, overrides, fresh=False)
    trained = train_stage_in_store(recipe, address, overrides, stage=None, jobs=jobs, fresh=False)
    if not recipe.evaluates:
        return f"{filtered}\n\n{trained}\n\n{not_evaluated(recipe)}"
    return f"{filtered}\n\n{trained}\n\n{eval_stage_in_store(recipe, address, fresh=False, jobs=jobs)[0]}"


def _require_no_scores(recipe: Recipe, address: str) -> None:
    """Raise RecipeError for stages whose traces are scored first: scores are kept in a run directory only."""
    for stage in recipe.stages:
        kind = "visual" if stage.visual is not None else "rollouts"
        if getattr(stage, kind) is not None:
            raise RecipeError(
                f"stages.{stage.name}.{kind}: texts are scored in a run directory; bring the run there "
                f"({store_command('pull', recipe, address, 'DIR')}), "
                f"then run distill train {as_argument(recipe.path)} --run DIR"
            )


@contextmanager
def _run_of_stage(recipe: Recipe, address: str, stage: str) -> Iterator[Path]:
    """The run directory in which this process makes a stage, with what the stage reads of earlier ones.

    Of the processes of a launcher the first one of every machine brings what its machine reads. The main one is an
    agent of the run and makes the stage.
    """
    with ExitStack() as stack:
        run = None
        if own_disks.writes():
            store = open_run_store(recipe, address)
            scratch = stack.enter_context(own_scratch(recipe, address))
            run = scratch / "run"
            if processes.is_main():
                agent = stack.enter_context(joined(store, scratch, lease_s=recipe.engine.lease_s))
            stack.enter_context(named_by_address(run, address))
            if processes.is_main():
                stack.enter_context(copied_to_store(agent, stage, run / stage, every_s=recipe.engine.seal_s))
                agent.live = partial(_live, run, stage)
            _pull_inputs(store, recipe, run, stage)
        yield own_disks.share_on_disk(run)
        if processes.is_main():
            store.put(f"run/{RECIPE}", recipe.to_toml().encode())


def _live(run: Path, stage: str) -> dict[str, Any]:
    """The facts that the agent of a stage reports: the progress of the stage."""
    try:
        note = orjson.loads((run / PROGRESS).read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):  # it has not begun, or a power cut ended another one
        return {"units": [stage]}
    return {"units": [stage], "progress": {each.name: note[each.name] for each in fields(Progress)}}


def _pull_inputs(store: ObjectStore, recipe: Recipe, run: Path, stage: str) -> None:
    """Bring what a stage reads of earlier stages. The stage itself reports missing files, with the next step."""
    if any(map(is_traces, recipe.stages)):
        pull_stage(store, "filter", run / "filter")
    if stage == "eval":
        from student.evaluation.learned_rows import diagnosed_arm

        pull_newest(store, "train", run / "train")
        asked = diagnosed_arm(recipe)[1]  # the student is asked rows that it learned in this stage
        needs_traces = asked is not None and ":" in asked.data
    else:
        needs_traces = any(each.distill is not None or ":" in each.data for each in recipe.stages)
    if needs_traces and processes.is_main():
        # Log-probabilities, and the datasets of arms, come from the traces themselves; the main process makes them.
        pull_generate(store, run)


def _pull_manifests(store: ObjectStore, run: Path) -> bool:
    """Bring the manifests of finished stages, for a look at what is left to do. Returns whether the last is there."""
    pull_manifest(store, run)
    for stage in STAGES[1:]:
        (run / stage / MANIFEST).unlink(missing_ok=True)
        if (output := stage_files(store, stage).get(MANIFEST)) is not None:
            pull_file(store, stage, output, run / stage / MANIFEST)
    return (run / STAGES[-1] / MANIFEST).is_file()
