"""What makes `generate` read the questions again although no key of the recipe differs.

The images lie elsewhere or were written again, or the last command had a limit. Reads what `generate` noted of its
plan, and sizes and times of images on this machine, but no image.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distill.artifacts.layout import PLAN_STATE, SAMPLES
from distill.local_paths import is_store_address
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.word_tables import counted


def _made_from(run: Path) -> Mapping[str, Any] | None:
    """What the plan of a run was made from; None without a whole one."""
    if not (run / "generate" / PLAN_STATE).is_file():
        return None
    from teacher.store.plan_images import read_state

    state = read_state(run / "generate")
    return None if state is None else state["made_from"]


def are_images_elsewhere(recipe: Recipe, run: Path) -> bool:
    """Whether the folder of the questions' images has another path than when `generate` noted each of them.

    Later stages read images at the paths that it noted.
    """
    if (made_from := _made_from(run)) is None:
        return False
    from distill.data.source_images import images_root

    return bool(made_from["root"] != images_root(recipe, ASKED))


def read_again(recipe: Recipe, run: Path) -> Iterator[str]:
    """A line for each other reason why `generate` reads the questions again."""
    if (made_from := _made_from(run)) is None:
        return
    from teacher.store.plan_images import images_state

    if limit := made_from["limit"]:
        yield (
            f"warning: generate was limited to {counted(limit, 'question')} (--limit): without it `distill generate` "
            "and `distill run` ask the other ones, and the stages after it are stale"
        )
    is_comparable = not is_store_address(made_from["root"]) and not are_images_elsewhere(recipe, run)
    if is_comparable and made_from["images"] != images_state(run / "generate" / SAMPLES):
        yield (
            "warning: images of the questions were written again or deleted: `distill generate` reads them again and "
            "asks about those with other content; then the stages after it are stale"
        )
