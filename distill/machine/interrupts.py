"""Informs waiting threads that this process was interrupted, because a signal reaches only the main thread.

A command that owns threads notes an interrupt before it waits for them. The note holds for a minute, so that a later
command in the same process waits as usual.

Also keeps which signal ended the process, for its exit code, and sends a signal again that Python has dropped.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from typing import Any

NOTED_S = 60.0
LAST_S = 10.0
"""So long after an interrupt the threads of a command may go on: a request to a store gets its answer."""
_AGAIN_S = 0.2
_changed = threading.Condition()
_noted_until_s = 0.0
_signal = int(signal.SIGINT)


def heard(number: int) -> None:
    """Keep a signal that ends this process."""
    global _signal
    _signal = number


def heed_all() -> None:
    """Lose no KeyboardInterrupt in a destructor, in a callback, or while a module in C is loaded.

    Python only prints an error of a destructor or of a callback (for example after each import) and continues, so the
    signal is sent again. A C module may turn the signal into an ImportError, and libraries then continue without the
    module.
    """
    shown = sys.unraisablehook

    def show_or_repeat(dropped: "sys.UnraisableHookArgs") -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            shown(dropped)
            return
        ended = threading.Event()
        threading.Thread(target=_send_again, args=(ended,), daemon=True).start()
        ended.set()

    def _send_again(ended: threading.Event) -> None:
        ended.wait()  # an exception inside the hook would be dropped, too
        time.sleep(_AGAIN_S)
        os.kill(os.getpid(), _signal)

    sys.unraisablehook = show_or_repeat
    for step in ("create_module", "exec_module"):
        setattr(ExtensionFileLoader, step, _interruptible(getattr(ExtensionFileLoader, step)))


def _interruptible(load: Callable[[ExtensionFileLoader, Any], Any]) -> Callable[[ExtensionFileLoader, Any], Any]:
    def load_or_interrupt(loader: ExtensionFileLoader, module: Any) -> Any:
        with unmasked():
            return load(loader, module)

    return load_or_interrupt


def exit_code() -> int:
    """The exit code of a command that a signal ended, as shells count it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + _signal


def reason() -> str:
    """What ended this process, for its message."""
    is_limit = _signal == getattr(signal, "SIGXCPU", None)
    return "the limit of processor time (ulimit -t) is reached" if is_limit else "interrupted"


def note() -> None:
    """Wake every thread that pauses, and let none wait long for the next minute."""
    global _noted_until_s
    with _changed:
        _noted_until_s = time.monotonic() + NOTED_S
        _changed.notify_all()


def forget() -> None:
    """Begin a new command: forget what interrupted an earlier one, and its signal."""
    global _noted_until_s, _signal
    _noted_until_s, _signal = 0.0, int(signal.SIGINT)


def is_noted() -> bool:
    return time.monotonic() < _noted_until_s


def left_s() -> float:
    """The rest of `LAST_S` since an interrupt was noted."""
    return max(0.0, _noted_until_s - NOTED_S + LAST_S - time.monotonic())


@contextmanager
def noted() -> Iterator[None]:
    """Note a signal that ends the block."""
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        note()
        raise


@contextmanager
def unmasked() -> Iterator[None]:
    """Raise KeyboardInterrupt where a library replaced it by another error.

    DuckDB does so when it ends a query, and pybind11 when it loads a module.
    """
    try:
        yield
    except (RuntimeError, ImportError) as error:
        if str(error) != "Query interrupted" and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from None


def pause(seconds: float) -> None:
    """Sleep, until an interrupt is noted at the latest; in the minute after it for all of the time."""
    if is_noted():
        time.sleep(seconds)
        return
    with _changed:
        _changed.wait(seconds)
