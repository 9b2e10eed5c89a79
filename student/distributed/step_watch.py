"""Ends training of several processes when one of them hangs, with a message that says how far each one is.

A process that dies is noticed by its launcher. If a process hangs (a disk that does not answer, a stopped process),
the others wait for its gradients. On a GPU they fail after ten minutes with an error about a collective. Here every
process records its last step in torch's key-value store; a thread checks the time since the last step. Does not watch
reading, measuring and saving, which may take hours.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Self

from student.distributed import processes

LIMIT_S = 300.0
"""Below the ten minutes after which NCCL ends a process."""
_FIRST = 6
"""Factor on the limit of the first step, which may compile kernels."""
_TIMES = 20
"""Limit of a step, as a multiple of the longest step before it."""
_ANSWER_S = 5.0
_KEY = "distill/step_watch"
_REPORTED = "reported"


class StepWatch:
    """Inside the block steps must go on; with one process it does nothing."""

    def __init__(self) -> None:
        self._store: Any = None
        self._ended = threading.Event()
        self._at: float | None = None
        self._longest_s = 0.0
        self._started = self._paused = False

    def __enter__(self) -> Self:
        if processes.count() > 1:
            from torch.distributed import distributed_c10d

            self._store = distributed_c10d._get_default_store()
            self._note("before its first step")
            self._at = time.monotonic()
            threading.Thread(target=self._look, name="step watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def begin_step(self, step: int) -> None:
        """A step begins here, so the one before it has ended in all processes."""
        if self._store is not None:
            now = time.monotonic()
            if self._started and self._at is not None:
                self._longest_s = max(self._longest_s, now - self._at)
            self._at, self._started = now, True
            self._note(f"in the passes of step {step}")

    def begin_exchange(self, step: int) -> None:
        """This process starts the pass after which gradients are exchanged."""
        if self._store is not None:
            self._note(f"at the exchange of step {step}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """In this block processes may wait for each other without a limit."""
        self._paused, before = True, self._paused
        try:
            yield
        finally:
            self._at, self._paused = time.monotonic(), before

    def _note(self, text: str) -> None:
        self._store.set(f"{_KEY}/{processes.rank()}", text)

    def _limit_s(self) -> float:
        return max(LIMIT_S, _TIMES * self._longest_s) if self._longest_s else _FIRST * LIMIT_S

    def _look(self) -> None:
        while not self._ended.wait(min(1.0, LIMIT_S / 10)):
            limit_s = self._limit_s()
            if self._at is None or self._paused or time.monotonic() - self._at < limit_s:
                continue
            known: list[str] = []
            # The store may be with the process that hangs.
            asking = threading.Thread(target=self._ask, args=(known,), daemon=True)
            asking.start()
            asking.join(_ANSWER_S)
            if known != [_REPORTED]:
                text = "".join(known) or "the process that keeps the store does not answer"
                sys.stderr.write(
                    f"distill: no training step has ended for {limit_s:.0f} s: {text}; a process hangs, and the "
                    "others wait for it. All are ended; run the same command again to resume\n"
                )
                sys.stderr.flush()
                if known:
                    with suppress(RuntimeError):
                        self._store.set(f"{_KEY}/{_REPORTED}", "")
            os._exit(1)

    def _ask(self, known: list[str]) -> None:
        """How far every process is, or that another process reports it or has ended."""
        try:
            if self._store.add(f"{_KEY}/reporters", 1) > 1:
                known.append(_REPORTED)
                # This process may keep the store that the reporter reads.
                self._store.wait([f"{_KEY}/{_REPORTED}"], timedelta(seconds=_ANSWER_S))
                return
            texts = [self._store.get(f"{_KEY}/{rank}").decode() for rank in range(processes.count())]
            known.append(", ".join(f"process {rank} is {text}" for rank, text in enumerate(texts)))
        except RuntimeError:
            # The process that keeps the store has ended: it reported, or the launcher reports that it died.
            known[:] = [_REPORTED]
