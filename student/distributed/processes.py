"""The rank of this process in a run, and how the processes of a run wait for each other.

A launcher (torchrun, accelerate launch) starts the same command several times and gives each process its rank. Rank 0
is the main process: only this process locks the run, writes files and prints messages. The others compute with it and
wait for it. With one process everything here does nothing. torch and accelerate exchange data during training;
student/distributed/own_disks.py copies files to machines without a shared disk.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from distill.errors import DataError, DistillError, InputError
from distill.machine import interrupts
from distill.word_tables import counted

# Reading data or measuring may take the main process hours, and torch gives up after minutes by itself.
_PATIENCE = timedelta(days=7)
_GRACE_S = 5.0
_LOOK_S = 0.1
_AGAIN_S = 1.0
_waiting: Any = None
_patience: Callable[[], float] | None = None


def count() -> int:
    """How many processes the launcher started."""
    return int(os.environ["WORLD_SIZE"]) if "RANK" in os.environ and "WORLD_SIZE" in os.environ else 1


def rank() -> int:
    return int(os.environ["RANK"]) if count() > 1 else 0


def is_main() -> bool:
    return rank() == 0


def local_rank() -> int:
    """The number of this process among the processes of its machine."""
    return int(os.environ.get("LOCAL_RANK", 0)) if count() > 1 else 0


def speaks() -> bool:
    """Whether this process reports for all processes of its machine."""
    return local_rank() == 0


def require_one() -> None:
    """Raise InputError when a launcher started several processes (RANK, WORLD_SIZE)."""
    if count() > 1:
        raise InputError(
            f"a launcher started {counted(count(), 'process', 'processes')}, but this command needs a single "
            "process; run it without the launcher: only `distill train` runs in several processes, and not with "
            "--jobs"
        )


def local_count() -> int:
    """How many processes of the run share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if count() > 1 else 1


def launcher_shards() -> bool:
    """Whether `accelerate launch` is set to use FSDP, of which accelerate itself then hears no more.

    Its own wrapping puts every weight into float32 and does nothing on a CPU. Raises InputError for DeepSpeed.
    """
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        raise InputError("the launcher asks for DeepSpeed; use DDP, or FSDP2 (stages.sharding = 'fsdp2')")
    return os.environ.pop("ACCELERATE_USE_FSDP", "").lower() == "true"


@contextmanager
def together() -> Iterator[None]:
    """Connect the processes of this run until the block ends; inside another such block it does nothing."""
    global _waiting
    if count() == 1 or _waiting is not None:
        yield
        return
    import torch
    from torch import distributed

    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank())
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    _waiting = distributed.new_group(backend="gloo", timeout=_PATIENCE)
    try:
        yield
    except DistillError:
        raise
    except Exception:
        # That another process is gone shows as an error of torch, and that process has said why.
        hold_back()
        raise
    # Not after an error: the others may be in the middle of an exchange that will never be finished.
    distributed.destroy_process_group()
    _waiting = None


def wait() -> None:
    """Go on when every process has come here."""
    if _waiting is not None:
        from torch import distributed

        distributed.barrier(group=_waiting)


def share(value: Any) -> Any:
    """What the main process gave, in every process; a small object that can be pickled."""
    if _waiting is None:
        return value
    from torch import distributed

    values = [value]
    distributed.broadcast_object_list(values, src=0, group=_waiting)
    return values[0]


def gather(value: Any) -> list[Any]:
    """The value of every process, by rank, in every process; small objects that can be pickled."""
    if _waiting is None:
        return [value]
    from torch import distributed

    values: list[Any] = [None] * count()
    distributed.all_gather_object(values, value, group=_waiting)
    return values


def require_same(value: Any, problem: str) -> None:
    """Raise DataError in every process where one of them gave another value."""
    values = gather(value)
    if any(each != values[0] for each in values):
        raise DataError(problem)


def any_of(flag: bool) -> bool:
    """Whether the flag is set in any process of the run."""
    if _waiting is None:
        return flag
    import torch
    from torch import distributed

    value = torch.tensor(int(flag))
    distributed.all_reduce(value, distributed.ReduceOp.MAX, group=_waiting)
    return bool(value)


def hold_back() -> None:
    """Before an error is reported: let a process that knows it better do so, and the launcher end this one."""
    try:
        time.sleep(_GRACE_S)
    except KeyboardInterrupt:
        os._exit(interrupts.exit_code())


def be_patient(patience_s: Callable[[], float] | None) -> None:
    """After a signal, let the running work finish for as many seconds as this returns; None: it is finished."""
    global _patience
    _patience = patience_s


def end_on_signals(message: str) -> None:
    """End this process some seconds after SIGINT, SIGTERM or SIGHUP, even where torch waits for another process.

    Python's handlers run only when torch returns, which may be never once another process is gone. A second SIGINT,
    a second after the first signal or later, ends it at once.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while (number := os.read(reading, 1)[0]) not in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            pass
        started = calm_since = time.monotonic()
        os.set_blocking(reading, False)
        while (now := time.monotonic()) - calm_since < _GRACE_S:
            if _patience is not None and now - started < _patience():
                calm_since = now
            time.sleep(_LOOK_S)
            with suppress(BlockingIOError):
                if signal.SIGINT in os.read(reading, 64) and now - started > _AGAIN_S:
                    break
        if speaks():
            sys.stderr.write(f"{message}\n")
            sys.stderr.flush()
        os._exit(128 + number)

    threading.Thread(target=watch, daemon=True).start()
