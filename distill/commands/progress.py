"""What reaches the terminal: data on stdout, messages and progress on stderr.

The one edge where text of a model, a server or a file meets a terminal. No secret passes it, and no control
character: a trace could otherwise set the window's title, hide a line or turn its reading direction. Also every use
of rich: live progress on a terminal, one line now and then anywhere else.
"""

import codecs
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import orjson

from distill import redact
from distill.errors import StorageError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from distill.types import Progress, ProgressCallback

LINE_INTERVAL_S, NOTE_INTERVAL_S = 10.0, 5.0
_BAR_FITS = 60
"""Columns of a terminal that has room for name, bar and facts side by side."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1: escape sequences begin with these
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # reading direction, separators, invisible marks
    "\ud800-\udfff\U000e0000-\U000e007f]"  # halves of characters, which cannot be written; invisible tags
)


def visible(text: str) -> str:
    """A text as a terminal may get it: control characters and marks of reading direction as escapes (`\\u001b`).

    JSON stays JSON of the same value.
    """
    return _UNSEEN.sub(lambda match: _escaped(match[0]), text.replace("\r\n", "\n"))


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _escape_lacking(error: UnicodeError) -> tuple[str, int]:
    """Characters that the encoding of a terminal lacks, as escapes that keep JSON valid."""
    assert isinstance(error, UnicodeEncodeError)
    return _escaped(error.object[error.start : error.end]), error.end


def show(text: object) -> None:
    """Print a command's result to stdout. Raises StorageError when it cannot be written there."""
    sys.stdout.write(f"{visible(redact.exact(str(text)))}\n")
    sys.stdout.flush()


def show_json(value: Any) -> None:
    """Print a command's result to stdout as one JSON object."""
    show(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())


@contextmanager
def result_alone() -> Iterator[None]:
    """Output of user code until the end of the block goes to stderr, because stdout has only the command's result."""
    with redirect_stdout(sys.stderr):
        yield


def show_result(work: Callable[[], object]) -> None:
    """Do the work of a command, and print its result as the only text on stdout."""
    with result_alone():
        result = work()
    show(result)


def say(text: object) -> None:
    """Print a message to stderr."""
    sys.stderr.write(f"{visible(redact.message(str(text)))}\n")
    sys.stderr.flush()


def open_closed_streams() -> None:
    """Open stdin, stdout and stderr that a caller has closed (`2>&-`), to nowhere, and let them take all characters.

    The next files to be opened would get their numbers otherwise, and a journal what is written to stderr.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))
    codecs.register_error("distill.escape", _escape_lacking)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="distill.escape")


def hide_secrets() -> None:
    """From now on nothing that this process prints, libraries' logs and tracebacks included, holds a known secret."""
    redact.know_environment()
    sys.stdout = cast(TextIO, _Masked(sys.stdout))
    sys.stderr = cast(TextIO, _Masked(sys.stderr, may_be_lost=True))


class _Masked:
    """A text stream that masks known secrets in what is written to it.

    What `may_be_lost` is dropped when the stream fails: no run ends because its log's disk is full or its terminal is
    gone. Any other stream that failed refuses all later text with the same error: a library may drop the first one.
    """

    def __init__(self, stream: TextIO, *, may_be_lost: bool = False) -> None:
        self._stream = stream
        self._may_be_lost = may_be_lost
        self._failure: OSError | None = None

    def write(self, text: str) -> int:
        if self._failure is not None:
            raise self._failure
        with self._guarded():
            self._stream.write(redact.exact(text))
        return len(text)

    def flush(self) -> None:
        if self._failure is None:
            with self._guarded():
                self._stream.flush()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            if not self._may_be_lost:
                self._failure = error  # its reader has seen enough, as `head` has
                raise
        except OSError as error:
            if not self._may_be_lost:
                self._failure = StorageError(
                    f"stdout cannot be written ({error.strerror}); all files of the run are written: run the same "
                    "command again to see its result"
                )
                raise self._failure from None

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def watch(note: Path | None = None) -> "Iterator[ProgressCallback]":
    """A callback that shows the progress of stages until the block ends; `note`: a file that gets the last one."""
    from distill.artifacts.files import write_json

    watcher = _Live() if sys.stderr.isatty() else _Lines()
    clocks: dict[str, _Clock] = {}
    noted_s = 0.0

    def show_and_note(progress: "Progress") -> None:
        nonlocal noted_s
        if progress.total and progress.stage not in clocks:
            clocks[progress.stage] = _Clock(progress)
        line = partial(_line, progress, clocks.get(progress.stage))
        watcher(progress, line)
        if note is not None and time.monotonic() - noted_s > NOTE_INTERVAL_S:
            noted_s = time.monotonic()
            write_json(note, {**asdict(progress), "line": line(), "pid": os.getpid()}, durable=False)

    try:
        yield show_and_note
    finally:
        watcher.close()
        if note is not None:
            note.unlink(missing_ok=True)


class _Clock:
    """The rate of one stage, counted from the first report of it (resumed work does not count)."""

    def __init__(self, progress: "Progress") -> None:
        self._started = time.monotonic()
        self._first = progress.done - progress.resumed

    def rate(self, progress: "Progress") -> float:
        """Units a second since the first report."""
        seconds = time.monotonic() - self._started
        return (progress.done - progress.resumed - self._first) / seconds if seconds > 0 else 0.0


class _Lines:
    """One plain line a stage every few seconds, for logs and pipes."""

    def __init__(self) -> None:
        self._shown: dict[str, float] = {}
        self._now: str | int | float = ""

    def __call__(self, progress: "Progress", line: Callable[[], str]) -> None:
        now = time.monotonic()
        news, self._now = progress.facts.get("now", "") not in ("", self._now), progress.facts.get("now", "")
        last = 0 < progress.total <= progress.done
        if not (last or news) and now - self._shown.get(progress.stage, float("-inf")) < LINE_INTERVAL_S:
            return
        self._shown[progress.stage] = now
        sys.stderr.write(f"{line()}\n")
        sys.stderr.flush()

    def close(self) -> None:
        pass


class _Live:
    """One live bar a stage."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars
        from rich.table import Column

        console = Console(stderr=True)
        self._narrow = console.width < _BAR_FITS
        name = TextColumn("{task.description}", style="bold", markup=False, table_column=Column(no_wrap=True))
        # The facts go on in a second line. A fact may hold brackets, which would be markup.
        facts = TextColumn(
            "{task.fields[line]}", markup=False, table_column=Column(ratio=1, no_wrap=False, overflow="fold")
        )
        columns = [facts] if self._narrow else [name, BarColumn(bar_width=24), facts]
        self._bars = Bars(*columns, console=console, expand=True)
        self._tasks: dict[str, TaskID] = {}
        self._bars.start()

    def __call__(self, progress: "Progress", line: Callable[[], str]) -> None:
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = self._bars.add_task(progress.stage, total=None, line="")
        shown = line() if self._narrow else line().removeprefix(f"{progress.stage}: ")
        self._bars.update(
            self._tasks[progress.stage], completed=progress.done, total=progress.total or None, line=shown
        )

    def close(self) -> None:
        self._bars.stop()


def _line(progress: "Progress", clock: _Clock | None) -> str:
    parts = [f"{progress.done:,}/{progress.total:,} {progress.unit}"] if progress.total else []
    if clock is not None and progress.done < progress.total and (rate := clock.rate(progress)) > 0:
        eta = duration((progress.total - progress.done) / rate)
        parts += [f"{rate:.1f}/s" if rate >= 1 else f"{rate:.2g}/s", f"ETA {eta}"]
    # The work that was there has been paid for by other commands, but its outcomes are among the facts.
    names = {"cost": "cost of this command"} if progress.resumed else {}
    words = [names.get(name, name.replace("_per_s", "/s").replace("_", " ")) for name in progress.facts]
    parts += [f"{word} {_fact(fact)}" for word, fact in zip(words, progress.facts.values(), strict=True)]
    return visible(redact.message(f"{progress.stage}: {', '.join(parts)}"))


def _fact(fact: str | int | float) -> str:
    if isinstance(fact, str):
        return fact
    if isinstance(fact, float):
        return f"{fact:,.0f}" if abs(fact) >= 1000 else f"{fact:.4g}"
    return f"{fact:,}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
