"""Traces of arms that change what teachers do: one run directory for all arms and seeds that want the same traces."""

from pathlib import Path

from distill.artifacts.manifest import fingerprint
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED

_SECTIONS = {"data": True, "teachers": True, "generate": True}


def traces_run(recipe: Recipe, changed: Recipe, run: Path, shared: Path) -> Path:
    """The run directory that holds the traces of `changed`: `run`, or a folder of `shared`.

    The name of the folder is a digest of what decides the traces, so a key that decides nothing leads to the same
    folder. Raises what `teacher.checks` raises for teachers that cannot be asked.
    """
    before, now = (each.model_dump(mode="json", include=_SECTIONS) for each in (recipe, changed))
    if before == now or (key := traces_key(changed)) == traces_key(recipe):
        return run
    return shared / f"run-{key[:16]}"


def traces_key(recipe: Recipe) -> str:
    """A digest of everything that decides the traces of a recipe, apart from the rows of its source."""
    from teacher.engines.vllm.vllm_options import server_answer_options
    from teacher.store.question_plan import check_teachers, result_settings

    source = recipe.data[ASKED]
    return fingerprint(
        {
            "settings": result_settings(recipe, check_teachers(recipe)),
            "source": [source.source, source.images_root],
            "servers": {
                teacher.name: server_answer_options(teacher.server) for teacher in recipe.teachers if teacher.managed
            },
        }
    )
