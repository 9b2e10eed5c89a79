"""The copy of the recipe in a run; removes the new run folder of a verb that refuses its input before it begins."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from distill import run_log
from distill.artifacts.files import write_text
from distill.artifacts.layout import LEAKAGE, RECIPE, SETTINGS
from distill.errors import InputError
from distill.recipe.recipe import Recipe

_MARKS: Final = (RECIPE, ".lock", SETTINGS, run_log.LOG)
"""Files of a run in which no stage has done anything."""


@contextmanager
def left_no_run(run: Path) -> Iterator[None]:
    """Remove a run that this block made if it ends with InputError and no stage wrote anything there.

    Of several processes the main one does.
    """
    from student.distributed import processes

    existed, had_parent = run.exists(), run.parent.exists()
    try:
        yield
    except InputError:
        made = (file.relative_to(run) for file in run.rglob("*") if file.is_file())
        undone = all(file.name in _MARKS or file.parts[0] == LEAKAGE for file in made)
        if undone and not existed and processes.is_main():
            shutil.rmtree(run, ignore_errors=True)
            if not had_parent:
                with suppress(OSError):  # another run is there by now
                    run.parent.rmdir()
        raise


@contextmanager
def recipe_left(recipe: Recipe, run: Path) -> Iterator[None]:
    """Leave the resolved recipe (defaults, overrides, absolute paths) in the run directory.

    A stage that refuses its input leaves the recipe of the run as it was: the finished stages are of that one. A
    stage that refuses its input before it writes anything leaves no run. Of several processes the main one writes.
    """
    from student.distributed import processes

    if not processes.is_main():
        yield
        return
    path = run / RECIPE
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    with left_no_run(run):
        write_text(path, recipe.to_toml())
        try:
            yield
        except InputError:
            if before is not None:
                write_text(path, before)
            raise
