"""`train`, `eval` and `run` on a run in an object store.

A stage is made in the scratch folder of one machine, by the command of a run in a folder; the store has a copy
of this folder (distill/units/kept_stage.py). What it reads of earlier stages is brought there first.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distill.artifacts.layout import RECIPE
from distill.artifacts.manifest import MANIFEST, STAGES
from distill.commands.stages import evaluate_students, train_stage
from distill.commands.status import evaluation_fields
from distill.commands.store_runs import filter_stage_in_store, generate_stage_in_store
from distill.commands.whole_run import not_evaluated, require_fit
from distill.errors import RecipeError
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.recipe import Recipe
from distill.recipe.stages import is_traces
from distill.units.agent_record import joined
from distill.units.kept_stage import kept_stage, pull_newest
from distill.units.stored_run import own_scratch, pull_generate, pull_manifest
from distill.units.stored_stage import pull_file, pull_stage, stage_files
from student.distributed import processes


def train_stage_in_store(recipe: Recipe, address: str, *, stage: str | None, jobs: int, fresh: bool) -> str:
    """Train here, as `distill train` does. Checkpoints go to the store as they are written, students at the end."""
    _require_no_scores(recipe, address)
    with processes.together(), _run_of_stage(recipe, address, "train") as run:
        text = train_stage(recipe, run, stage=stage, jobs=jobs, fresh=fresh)
    return f"{text}\nstudents: {address}; distill pull {address} DIR"


def eval_stage_in_store(recipe: Recipe, address: str, *, fresh: bool) -> tuple[str, dict[str, Any]]:
    """Evaluate here, as `distill eval` does; a text, and the same as plain values. Replies go to the store."""
    with _run_of_stage(recipe, address, "eval") as run:
        text = evaluate_students(recipe, run, fresh=fresh)
        fields = evaluation_fields(run) | {"run": address, "report": f"{address}; distill pull {address} DIR"}
    return f"{text}\nreport:  {fields['report']}", fields


def all_stages_in_store(recipe: Recipe, address: str, overrides: Sequence[str], *, jobs: int) -> str:
    """Every stage in order. `generate` and `filter` by the engine of the recipe, `train` and `eval` here."""
    _require_no_scores(recipe, address)
    if recipe.engine.kind == "slurm":
        raise RecipeError(
            "--engine slurm: `distill run` cannot wait for jobs; submit `distill generate`, then `distill filter`, "
            "and train in a job of your own: distill train RECIPE --run ADDRESS"
        )
    if recipe.rounds.count:
        raise RecipeError(
            f"{address}: rounds.count = {recipe.rounds.count}: rounds work on a run directory; set it to 0, or give "
            "--run a directory"
        )
    with own_scratch(recipe, address) as scratch:
        run = scratch / "run"
        if not _pull_manifests(open_store(address, config=recipe.store.client_options()), run):
            require_fit(recipe, run)
    generate_stage_in_store(recipe, address, overrides, limit=None)
    filtered = filter_stage_in_store(recipe, address, overrides, fresh=False)
    trained = train_stage_in_store(recipe, address, stage=None, jobs=jobs, fresh=False)
    if not recipe.evaluates:
        return f"{filtered}\n\n{trained}\n\n{not_evaluated(recipe)}"
    return f"{filtered}\n\n{trained}\n\n{eval_stage_in_store(recipe, address, fresh=False)[0]}"


def _require_no_scores(recipe: Recipe, address: str) -> None:
    """Raise RecipeError for stages whose traces are scored first: scores are kept in a run directory only."""
    for stage in recipe.stages:
        kind = "visual" if stage.visual is not None else "rollouts"
        if getattr(stage, kind) is not None:
            raise RecipeError(
                f"stages.{stage.name}.{kind}: texts are scored in a run directory; bring the run there "
                f"(distill pull {address} DIR), then run distill train {recipe.path} --run DIR"
            )


@contextmanager
def _run_of_stage(recipe: Recipe, address: str, stage: str) -> Iterator[Path]:
    """The run directory in which this process makes a stage, with what the stage reads of earlier ones.

    Of several processes of a launcher the main one makes it; they share a disk.
    """
    if not processes.is_main():
        yield Path(processes.share(None))
        return
    store = open_store(address, config=recipe.store.client_options())
    with (
        own_scratch(recipe, address) as scratch,
        joined(store, scratch, lease_s=recipe.engine.lease_s) as agent,
        kept_stage(agent, stage, scratch / "run" / stage, every_s=recipe.engine.seal_s),
    ):
        run = scratch / "run"
        agent.live = lambda: {"units": [stage]}
        _pull_inputs(store, recipe, run, stage)
        yield Path(processes.share(str(run)))
        store.put(f"run/{RECIPE}", recipe.to_toml().encode())


def _pull_inputs(store: ObjectStore, recipe: Recipe, run: Path, stage: str) -> None:
    """Bring what a stage reads of earlier stages. What is missing the stage itself tells, with the next step."""
    if any(map(is_traces, recipe.stages)):
        pull_stage(store, "filter", run / "filter")
    if stage == "eval":
        pull_newest(store, "train", run / "train")
    elif any(each.distill is not None or ":" in each.data for each in recipe.stages):
        # Log-probabilities, and the datasets of arms, come from the traces themselves.
        pull_generate(store, run)


def _pull_manifests(store: ObjectStore, run: Path) -> bool:
    """Bring the manifests of finished stages, for a look at what is left to do. Returns whether the last is there."""
    pull_manifest(store, run)
    for stage in STAGES[1:]:
        (run / stage / MANIFEST).unlink(missing_ok=True)
        if (output := stage_files(store, stage).get(MANIFEST)) is not None:
            pull_file(store, stage, output, run / stage / MANIFEST)
    return (run / STAGES[-1] / MANIFEST).is_file()
