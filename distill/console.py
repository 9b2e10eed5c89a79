"""Every use of rich: live progress on a terminal, one line now and then anywhere else. Writes to stderr only."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distill.types import Progress, ProgressCallback

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_INTERVAL_S = 10.0


@contextmanager
def watch() -> Iterator[ProgressCallback]:
    """A callback that shows the progress of stages until the block ends."""
    watcher = _Live() if sys.stderr.isatty() else _Lines()
    try:
        yield watcher
    finally:
        watcher.close()


class _Clock:
    """Rate and time left of one stage, counted from the first report of it (resumed work does not count)."""

    def __init__(self, progress: Progress) -> None:
        self._started = time.monotonic()
        self._first = progress.done

    def rate(self, progress: Progress) -> float:
        """Units a second since the first report."""
        seconds = time.monotonic() - self._started
        return (progress.done - self._first) / seconds if seconds > 0 else 0.0

    def eta(self, progress: Progress) -> str:
        rate = self.rate(progress)
        return _duration((progress.total - progress.done) / rate) if rate > 0 else "-"


class _Lines:
    """One plain line a stage every few seconds, for logs and pipes."""

    def __init__(self) -> None:
        self._clocks: dict[str, _Clock] = {}
        self._shown: dict[str, float] = {}

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        clock = self._clocks.setdefault(progress.stage, _Clock(progress))
        last = progress.done >= progress.total
        if not last and now - self._shown.get(progress.stage, float("-inf")) < LINE_INTERVAL_S:
            return
        self._shown[progress.stage] = now
        sys.stderr.write(f"{_line(progress, clock)}\n")
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

        self._bars = Bars(
            TextColumn("[bold]{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=24),
            # On a narrow terminal the facts go on in a second line.
            TextColumn("{task.fields[line]}", table_column=Column(ratio=1, no_wrap=False, overflow="fold")),
            console=Console(stderr=True),
            expand=True,
        )
        self._tasks: dict[str, tuple[_Clock, TaskID]] = {}
        self._bars.start()

    def __call__(self, progress: Progress) -> None:
        if progress.stage not in self._tasks:
            task = self._bars.add_task(progress.stage, total=progress.total, line="")
            self._tasks[progress.stage] = (_Clock(progress), task)
        clock, task = self._tasks[progress.stage]
        line = _line(progress, clock).removeprefix(f"{progress.stage}: ")
        self._bars.update(task, completed=progress.done, total=progress.total, line=line)

    def close(self) -> None:
        self._bars.stop()


def _line(progress: Progress, clock: _Clock) -> str:
    parts = [f"{progress.stage}: {progress.done:,}/{progress.total:,} {progress.unit}"]
    if progress.done < progress.total:
        parts.append(f"{clock.rate(progress):.1f}/s")
        parts.append(f"ETA {clock.eta(progress)}")
    if progress.facts:
        parts.append(_facts(progress.facts))
    return ", ".join(parts)


def _facts(facts: Mapping[str, str | int | float]) -> str:
    return ", ".join(
        f"{name.replace('_per_s', '/s').replace('_', ' ')} {_shown(fact)}" for name, fact in facts.items()
    )


def _shown(fact: str | int | float) -> str:
    if isinstance(fact, str):
        return fact
    if isinstance(fact, float):
        return f"{fact:,.0f}" if abs(fact) >= 1000 else f"{fact:.4g}"
    return f"{fact:,}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
