"""The log of a run: `<run>/log.jsonl`, one JSON object a line, for the time after the terminal is closed.

Commands and verbs write their start and end (exit code, seconds) and the error that the user saw. Messages of
`logging` and `warnings`, from the project and from libraries, go to the log, too. Several processes append to one
file; at 4 MiB it becomes `log.1.jsonl`, over an older one. No result depends on the log and no fingerprint covers it:
a line that cannot be written is left out, and the run continues. The log holds no text of models and no progress
(`progress.json`).
"""

import logging
import os
import platform
import shutil
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Final, TextIO

import orjson

from distill import packages, redact
from distill.errors import DistillError
from distill.machine import interrupts
from distill.machine.file_locks import HIDES_LOCKED_BYTES, try_lock

LOG: Final = "log.jsonl"
OLDER: Final = "log.1.jsonl"
MOST_BYTES: Final = 4 << 20
"""Largest size in bytes of each of the two files."""
MOST_CHARACTERS: Final = 8_000
"""Longest message in characters; the middle of a longer one is left out."""
_LAST_BYTES = 1 << 16
_HELD = 1_000
_OWN = ("distill", "filters", "student", "teacher")
_VERSIONS = ("cot-distill", "torch", "transformers", "trl", "duckdb", "pyarrow")

log = logging.getLogger(__name__)
_active: "_RunHandler | None" = None


@contextmanager
def recording(run: Path, verb: str, *, quiet: bool = False) -> Iterator[None]:
    """Log to a run until the block ends: the begin and the end of `verb`, and all messages between them.

    Inside another block the file and `command` of the outer block stay, and `verb` is the `stage` of the lines; a
    verb inside itself counts once. `quiet`: a process that works beside the one that logs begin and end.
    """
    if _active is None:
        interrupts.forget()  # of an earlier command in this process
        with joined(run, verb), _begin_and_end(verb, quiet=quiet):
            yield
    elif _active.stage == verb:
        yield
    else:
        outer, _active.stage = _active.stage, verb
        try:
            with _begin_and_end(verb, quiet=quiet):
                yield
        finally:
            _active.stage = outer


@contextmanager
def joined(run: Path, command: str, stage: str = "") -> Iterator[None]:
    """Write the messages of this block to the log of a run: for a process that a logged command starts."""
    global _active
    handler = _RunHandler(run, command, stage or command)
    own = [logging.getLogger(name) for name in _OWN]
    levels = [logger.level for logger in own]
    shown = warnings.showwarning

    def show_and_log(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        log.info("%s: %s", category.__name__, message, extra={"level": "warning", "where": f"{filename}:{lineno}"})
        shown(message, category, filename, lineno, file, line)

    _active = handler
    logging.getLogger().addHandler(handler)
    warnings.showwarning = show_and_log
    for logger in own:
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        _active = None
        warnings.showwarning = shown
        logging.getLogger().removeHandler(handler)
        for logger, level in zip(own, levels, strict=True):
            logger.setLevel(level)
        handler.close()


def active() -> tuple[Path, str, str] | None:
    """The arguments of `joined` for a process that this one starts; None where nothing is logged."""
    return None if _active is None else (_active.run, _active.command, _active.stage)


def is_open(run: Path) -> bool:
    """Whether a command works on a run: the last line of its log is not the end of a command.

    An open `distill view` does not count.
    """
    try:
        with (run / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = map(orjson.loads, reversed(file.read().splitlines()))
            last = next(line for line in lines if line["command"] != "view")
    except (OSError, StopIteration, orjson.JSONDecodeError):
        return False
    return not ("exit_code" in last and last["command"] == last["stage"])


@contextmanager
def _begin_and_end(verb: str, *, quiet: bool) -> Iterator[None]:
    assert _active is not None
    began, code = time.monotonic(), 0
    if not quiet:
        log.info("%s begins", verb, extra={"versions": _versions(), "arguments": redact.command(sys.argv[1:])})
    try:
        with interrupts.unmasked():
            yield
    except BaseException as error:
        code = _log_error(_active, error, verb)
        raise
    finally:
        if not quiet:
            facts = {"exit_code": code, "seconds": round(time.monotonic() - began, 3)}
            log.info("%s ends with exit code %d after %.1f s", verb, code, facts["seconds"], extra=facts)


def _log_error(handler: "_RunHandler", error: BaseException, verb: str) -> int:
    """Log an error once, as the user sees it; the exit code of the command that it ends."""
    plain = packages.explained(error, f"distill {verb}") if isinstance(error, ImportError) else None
    shown = plain or error
    if isinstance(shown, DistillError):
        code, text = shown.exit_code, str(shown)
    elif isinstance(error, KeyboardInterrupt):
        code, text = interrupts.exit_code(), "interrupted"
    elif isinstance(error, SystemExit | GeneratorExit):
        return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    else:
        code, text = 1, "".join(traceback.format_exception(error))
    if handler.last_error is not error:
        handler.last_error = error
        # By its level in the file only: the command line shows it itself.
        log.info("%s", text, extra={"level": "warning" if isinstance(error, KeyboardInterrupt) else "error"})
    return code


def _versions() -> dict[str, str]:
    installed = {"python": platform.python_version()}
    for name in _VERSIONS:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


class _RunHandler(logging.Handler):
    """Appends records as lines. Lines wait until the run's folder is there: a refused command makes none."""

    def __init__(self, run: Path, command: str, stage: str) -> None:
        super().__init__()
        self.run, self.command, self.stage = run, command, stage
        self.last_error: BaseException | None = None
        self._held: deque[bytes] = deque(maxlen=_HELD)

    def emit(self, record: logging.LogRecord) -> None:
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not _has_other_handler(record.name, self):
            last.handle(record)  # as it is where no handler is set
        try:
            self._held.append(self._line(record))
            if self.run.is_dir():
                _append(self.run / LOG, b"".join(self._held))
                self._held.clear()
        except Exception:
            # A full disk, a folder without write permission, a library's record that cannot be formatted.
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Go on: what the log does not get is not worth a run."""

    def _line(self, record: logging.LogRecord) -> bytes:
        extra = {name: getattr(record, name) for name in _EXTRA if hasattr(record, name)}
        level = extra.pop("level", record.levelname.lower())
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info))
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "command": self.command,
            "stage": self.stage,
            "message": redact.message(_shortened(text)),
            "module": record.name,
            "process": record.process,
            **extra,
        }
        return redact.dumps(event) + b"\n"


_EXTRA: Final[Sequence[str]] = ("level", "where", "versions", "arguments", "exit_code", "seconds", "counts")
"""What a caller may add to a line through `extra`; `level` replaces the one of the record."""


def _has_other_handler(name: str, own: logging.Handler) -> bool:
    """Whether somewhere above a logger there is a handler besides ours."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(handler is not own for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _shortened(text: str) -> str:
    half = MOST_CHARACTERS // 2
    return text if len(text) <= MOST_CHARACTERS else f"{text[:half]} ... {text[-half:]}"


def _append(path: Path, lines: bytes) -> None:
    """Append whole lines by one write, which the system does not mix with the write of another process."""
    with ExitStack() as opened:
        file = opened.enter_context(path.open("ab+", buffering=0))
        if os.fstat(file.fileno()).st_nlink > 1 and not HIDES_LOCKED_BYTES:
            own = path.with_name(f".{path.name}.{os.getpid()}")
            shutil.copy2(path, own)  # a copy of the run by `cp -al` has this file, too
            own.replace(path)
            file = opened.enter_context(path.open("ab+", buffering=0))
        size = file.tell()
        if size and size + len(lines) > MOST_BYTES:
            _set_aside(path, file)
            file = opened.enter_context(path.open("ab+", buffering=0))
            size = file.tell()
        if size and (file.seek(size - 1), file.read(1))[1] != b"\n":
            # A process died or the disk was full in the middle of a line; or it is being written, and one is empty.
            lines = b"\n" + lines
        os.write(file.fileno(), lines)


def _set_aside(path: Path, file: IO[bytes]) -> None:
    """Rename a full log; of several processes one does. Never waits for the lock: its holder may have stopped."""
    if HIDES_LOCKED_BYTES:
        file.close()  # Windows renames no open file; where another process has it open, the next line tries again
        is_full = path.stat().st_size > MOST_BYTES // 2
    else:
        is_full = try_lock(file.fileno()) and os.path.samestat(os.fstat(file.fileno()), path.stat())
    if is_full:  # no other process has renamed it meanwhile
        with suppress(PermissionError):
            path.replace(path.with_name(OLDER))
