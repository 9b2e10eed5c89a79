"""Commands on runs in an object store."""

from pathlib import Path

from distill import verbs
from distill.commands.progress import watch
from distill.commands.status import damage, funnel
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe


def generate_stage_in_store(recipe: Recipe, address: str, *, limit: int | None) -> str:
    """Let the teachers answer; plan, traces and manifest go to the store."""
    from teacher.store_run import generate_in_store, scratch_folder

    run = scratch_folder(recipe, address) / "run"
    compared = verbs.compare_asked(recipe, run)
    with watch() as on_progress:
        generate_in_store(recipe, address, limit=limit, on_progress=on_progress)
    blocks = [funnel(run), damage(run), compared.summary() if compared is not None else ""]
    return "\n\n".join(block for block in blocks if block) + f"\ntraces: {address}"


def pull_run(address: str, folder: Path, recipe: str | None) -> str:
    """Bring a finished run to a new folder."""
    from teacher.store_run import pull

    options = load(recipe).store.client_options() if recipe else None
    manifest = pull(open_store(address, config=options), folder)
    return f"{folder}: {manifest.counts['traces']:,} traces; distill filter RECIPE --run {folder}"
