"""Agents as tasks of a Ray cluster. Ray only places them: what is done is in the store alone."""

import logging
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from distill.errors import DistillError

STOP_S = 60.0
"""Seconds that agents have to seal and end their claims when the command is stopped."""
_LOOK_S = 1.0


def keep_agents(
    work: Callable[[], None],
    *,
    agents: int,
    restarts: int,
    resources: Mapping[str, float],
    follow: Callable[[], None],
) -> None:
    """Run the same work in `agents` tasks until one returns: the run is finished then.

    Joins the cluster of RAY_ADDRESS, or a running one, or starts one on this machine. A lost task is started again,
    `restarts` times in all; one that ends with an error is not. `follow` is called every second. `resources` are what
    a task needs, in Ray's words (num_cpus, num_gpus, memory, or a resource of the cluster's own).

    Raises DistillError: that of the last task where none is left.
    """
    known = {name: resources[name] for name in resources if name in ("num_cpus", "num_gpus", "memory")}
    own = {name: resources[name] for name in resources if name not in known}
    is_ours = not ray.is_initialized()
    if is_ours:
        _join_cluster()
    # A lost task is started by us, with our limit.
    task = ray.remote(max_retries=0, scheduling_strategy="SPREAD", resources=own, **known)(_work)
    running: list[Any] = []
    try:
        running += [task.remote(work) for _ in range(agents)]
        while True:
            ended, running = ray.wait(running, timeout=_LOOK_S)
            follow()
            for reference in ended:
                error = _error_of(reference)
                if error is None:
                    return
                if isinstance(error, RayError) and restarts > 0:
                    restarts -= 1
                    _say(f"an agent is lost and starts again, {restarts} restarts left: {_first_line(error)}")
                    running.append(task.remote(work))
                elif running:
                    _say(f"an agent ended, {len(running)} are left: {_first_line(error)}")
                else:
                    raise _as_ours(error) from None
    finally:
        _stop(running)
        if is_ours:
            ray.shutdown()


def _join_cluster() -> None:
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        # Agents report to the store; Ray's copy of their output would only repeat it.
        ray.init(log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise DistillError(f"Ray: {_first_line(error)}; check RAY_ADDRESS, or `ray status` on the cluster") from None
    # Ray's own ends the process without stopping the tasks.
    signal.signal(signal.SIGTERM, on_terminate)


def _work(work: Callable[[], None]) -> None:
    work()


def _error_of(reference: Any) -> BaseException | None:
    """Why a task ended; RayError where it is lost, None where it returned."""
    try:
        ray.get(reference)
    except RayTaskError as error:
        cause: BaseException = error.cause
        return cause
    except RayError as error:
        lost: BaseException = error
        return lost
    return None


def _as_ours(error: BaseException) -> BaseException:
    if isinstance(error, RayError):
        return DistillError(
            f"no agent is left and engine.restarts are used up: {_first_line(error)}; what is sealed stays: run the "
            "same command again"
        )
    return error


def _stop(running: list[Any]) -> None:
    """End tasks as Ctrl-C does, so that they seal their work and end their claims; kill those that do not end."""
    for reference in running:
        ray.cancel(reference, force=False)
    deadline_s = time.monotonic() + STOP_S
    while running and time.monotonic() < deadline_s:
        _, running = ray.wait(running, timeout=_LOOK_S)
    for reference in running:
        ray.cancel(reference, force=True)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _say(text: str) -> None:
    logging.getLogger(__name__).warning(text)
