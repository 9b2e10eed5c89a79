"""The student that a stage starts from, loaded once for all stages of a command that start from it.

A stage changes its model, so it gets a copy as long as another stage will start from the same model; the last stage
gets the original. Does not know what is trained (student/models/freeze.py).
"""

import copy
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from distill.recipe.recipe import Recipe


class StartModels:
    """Loaded start models of one command. At most one is kept, in the memory of the host."""

    def __init__(self) -> None:
        self._kept: tuple[Path | None, Any, Any] | None = None

    def get(self, recipe: Recipe, start: Path | None, *, again: bool) -> tuple[Any, Any]:
        """Model and processor of the finished stage's folder `start` (None: the recipe's student).

        `again`: another stage will ask for the same.
        """
        # The student and the trainer of the stage before hold each other, and a GPU has no room for two.
        gc.collect()
        if self._kept is None or self._kept[0] != start:
            self._kept = (start, *load(recipe, start))
        _, model, processor = self._kept
        if again:
            return copy.deepcopy(model), processor
        self._kept = None
        return model, processor


def load(recipe: Recipe, start: Path | None) -> tuple[Any, Any]:
    """Model and processor as they lie on disk, or the parts of the recipe's student put together."""
    from student.models import siq_vl

    assert recipe.student is not None
    settings = recipe.student
    if start is not None:
        return siq_vl.load(str(start), dtype=settings.dtype, trust_remote_code=settings.trust_remote_code)
    return _of_recipe(recipe, siq_vl.load, partial(siq_vl.build, seed=recipe.seed))


def outline(recipe: Recipe) -> tuple[Any, Any]:
    """The recipe's student without weights, from its configuration alone, and its processor."""
    from student.models import siq_vl

    return _of_recipe(recipe, siq_vl.outline, siq_vl.outline_build)


def _of_recipe(
    recipe: Recipe, named: Callable[..., tuple[Any, Any]], built: Callable[..., tuple[Any, Any]]
) -> tuple[Any, Any]:
    """The student: by its name, or from its parts, as the recipe says."""
    settings = recipe.student
    assert settings is not None
    if settings.model is not None:
        return named(
            recipe.local_or_hub(settings.model),
            dtype=settings.dtype,
            revision=settings.revision,
            trust_remote_code=settings.trust_remote_code,
        )
    assert settings.vision is not None and settings.language is not None and settings.pixel_shuffle is not None
    return built(
        recipe.local_or_hub(settings.vision),
        recipe.local_or_hub(settings.language),
        settings.pixel_shuffle,
        dtype=settings.dtype,
    )
