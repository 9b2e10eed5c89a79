"""A command as a process that is watched until it ends: time, CPU, and the memory of it and all its children."""

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 0.1
MEMORY_EVERY = 5
"""Looks; the kernel walks through all pages for one."""
TICKS = os.sysconf("SC_CLK_TCK")
MEMORY = "Pss:"
"""The kernel's line for memory in which pages of several processes are divided among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    wall_s: float
    cpu_s: float
    step_s: float
    step_cpu_s: float
    """Means over the steps after the first one, until the last one is in the command's own log."""
    peak_mb: float
    """The largest sum over all processes of the command; what they share counts once."""


def watch(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], steps: Callable[[], int]
) -> Watched:
    """Run a command to its end in the folder of `log`, which gets what it prints.

    `steps`: how many steps are in the command's own log by now. Stops the script if the command fails.
    """
    peak, ended = 0.0, threading.Event()
    seen: dict[int, tuple[float, float]] = {}

    def look() -> None:
        nonlocal peak
        for number in itertools.count():
            if ended.wait(EVERY_S):
                return
            family, count = _family(process.pid), steps()
            if count and count not in seen:
                seen[count] = (time.perf_counter(), sum(map(_cpu_s, family)))
            if number % MEMORY_EVERY == 0:
                peak = max(peak, sum(map(_megabytes, family)))

    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(environment),
            cwd=log.parent,
        )
        looking = threading.Thread(target=look)
        looking.start()
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        ended.set()
        looking.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or len(seen) < 2:
        told = log.read_text(errors="replace").splitlines()[-30:]
        head = f"exit code {process.returncode}, {len(seen)} times a step was seen: {' '.join(map(str, command))}"
        raise SystemExit("\n".join([head, *told]))
    first, last = min(seen), max(seen)
    step_s, step_cpu_s = ((seen[last][one] - seen[first][one]) / (last - first) for one in (0, 1))
    return Watched(
        wall_s=wall_s,
        cpu_s=used.ru_utime + used.ru_stime,
        step_s=step_s,
        step_cpu_s=step_cpu_s,
        peak_mb=peak,
    )


def _family(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for one in found:
        found.extend(children.get(one, ()))
    return found


def _megabytes(process: int) -> float:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith(MEMORY))


def _cpu_s(process: int) -> float:
    """CPU time of a process and of its children that have ended."""
    try:
        values = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, values[11:15])) / TICKS
