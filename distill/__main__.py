"""The start of the `distill` command, which refuses what a system cannot do."""

import gc
import os
import sys
from pathlib import Path
from typing import Final

ON_WINDOWS: Final = ("filter", "view", "status", "explain")
"""Commands that need no signals and process groups of POSIX."""
_COLLECT_AFTER: Final = (20_000, 50, 100)
"""The default, after every 700 new objects, takes a tenth of the CPU time of a start and of generate, for nothing."""
_OBJECTS_OF_START: Final = 150_000
"""Modules and classes make so many objects, which stay to the end: no search for cycles looks at them."""

_INSTALL: Final = "run the Python that has cot-distill, or install it there: pip install cot-distill"


def main() -> None:
    """Run the command line, or say why it cannot run here."""
    if sys.platform == "win32" and not {*sys.argv[1:2]} <= {*ON_WINDOWS, "-h", "--help", "--version"}:
        sys.exit(
            f"distill: on Windows there are the commands {', '.join(ON_WINDOWS)}; for {sys.argv[1]} use WSL 2, "
            "or the Docker images (docs/docker.md)"
        )
    gc.set_threshold(_OBJECTS_OF_START, *_COLLECT_AFTER[1:])
    gc.callbacks.append(_begin_to_collect)
    try:
        from distill.machine import interrupts

        interrupts.heed_all()
        from distill.cli import main as run

        run()
    except KeyboardInterrupt:  # while modules are loaded; later the commands say more
        sys.exit(130)
    except (EOFError, ValueError, TypeError) as error:  # while modules are loaded
        from distill.machine.bytecode import REMOVED, remove_cut_module

        if (path := remove_cut_module(error)) is None:
            raise
        if os.name == "nt":
            sys.exit(f"distill: {REMOVED.format(path=path)}")
        # Nothing is done yet. Others may be cut too; without writing any, each new start has one less.
        os.execve(
            sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        )
    except ImportError as error:
        if not (fault := _fault_of_install(error)):
            raise
        sys.exit(f"distill: {fault}")


def _begin_to_collect(_phase: str, _info: dict[str, int]) -> None:
    """At the first search for cycles: leave out the objects of the start, and search more often."""
    gc.callbacks.remove(_begin_to_collect)
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def _fault_of_install(error: ImportError) -> str:
    """The fault of the environment that a failed import shows; empty if it may be a mistake in the code."""
    name = (error.name or "").partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    if name in ("distill", "teacher", "filters", "student"):
        is_own = file is None or Path(file).resolve().parents[1] == Path(__file__).resolve().parents[1]
        return "" if is_own else f"{file} hides a package of cot-distill; rename it, or work in another folder"
    is_missing = isinstance(error, ModuleNotFoundError)
    return f"{name} is not installed for {sys.executable}; {_INSTALL}" if is_missing else ""


if __name__ == "__main__":
    main()
