"""Agents, and processes that train together, as tasks of a Ray cluster.

Ray only places them: what is done is in the store alone.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from distill.errors import DistillError, first_line
from distill.machine.process_pool import ProcessLost
from distill.placement.node_processes import Ranks, first_cause, free_port, run_processes
from distill.word_tables import counted

STOP_S = 60.0
"""Seconds that agents have to seal and end their claims when the command is stopped."""
_LOOK_S = 1.0
_TELL_AFTER_S = 10.0


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

    Raises DistillError: the error of the last task, when no task is left.
    """
    with _cluster(), _stopped_at_last() as running:
        task = _task(_work, resources, scheduling_strategy="SPREAD")
        running += [task.remote(work) for _ in range(agents)]
        while True:
            ended, _ = ray.wait(running, timeout=_LOOK_S)
            follow()
            for reference in ended:
                running.remove(reference)
                error = _error_of(reference)
                if error is None:
                    return
                if isinstance(error, RayError) and restarts > 0:
                    restarts -= 1
                    _say(
                        f"an agent is lost and starts again, {counted(restarts, 'restart')} left: {first_line(error)}"
                    )
                    running.append(task.remote(work))
                elif running:
                    _say(f"an agent ended, {len(running)} are left: {first_line(error)}")
                else:
                    raise _last_error(error, "no agent is left") from None


def train_together(
    make_work: Callable[[], Callable[[], None]],
    *,
    nodes: int,
    restarts: int,
    resources: Mapping[str, float],
    follow: Callable[[], None],
) -> None:
    """Run the same work in processes on `nodes` nodes at once; the processes find their ranks as under torchrun.

    A node has as many processes as `resources` name GPUs (num_gpus), and one without GPUs. A lost node or process
    ends all. They start again, `restarts` times in all, on the nodes that are there, `nodes` at most; `make_work` is
    called for every start. Raises the DistillError of the processes, or a DistillError about the last loss.
    """
    processes = max(1, int(resources.get("num_gpus", 0)))
    wait_for_all = True
    with _cluster():
        while True:
            with _reserved(resources, nodes, wait_for_all, follow) as group:
                count = group.bundle_count
                tasks = [
                    _task(
                        run_processes,
                        resources,
                        scheduling_strategy=PlacementGroupSchedulingStrategy(
                            group, placement_group_bundle_index=each
                        ),
                    )
                    for each in range(count)
                ]
                meet = ray.remote(num_cpus=0, scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0))
                work = make_work()
                try:
                    address, port = ray.get(meet(_meeting_point).remote())
                    ranks = [Ranks(each, count, processes, address, port) for each in range(count)]
                    error = _run_to_end(
                        [task.remote(work, each) for task, each in zip(tasks, ranks, strict=True)], follow
                    )
                except RayError as lost:
                    error = lost
            if error is None:
                return
            if not isinstance(error, RayError | ProcessLost) or not restarts:
                raise _last_error(error, "a node or a process of the training is lost") from None
            restarts, wait_for_all = restarts - 1, False
            _say(
                f"a node is lost and training starts again, {counted(restarts, 'restart')} left: {first_line(error)}"
            )


def _meeting_point() -> tuple[str, int]:
    return ray.util.get_node_ip_address(), free_port()


def _run_to_end(tasks: list[Any], follow: Callable[[], None]) -> BaseException | None:
    """The error of tasks that work together. Of several errors, a loss comes before a DistillError."""
    errors: list[BaseException] = []
    deadline_s = float("inf")
    with _stopped_at_last() as running:
        running += tasks
        while running and time.monotonic() < deadline_s:
            ended, _ = ray.wait(running, timeout=_LOOK_S)
            follow()
            for reference in ended:
                running.remove(reference)
                if (error := _error_of(reference)) is not None:
                    errors.append(error)
                    deadline_s = min(deadline_s, time.monotonic() + STOP_S)
    return first_cause(errors, RayError, ProcessLost)


@contextmanager
def _reserved(
    resources: Mapping[str, float], nodes: int, wait_for_all: bool, follow: Callable[[], None]
) -> Iterator[PlacementGroup]:
    """Resources on each of `nodes` nodes; with `wait_for_all` false on fewer, if no more are there."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    bundle = {"CPU": 1.0} | {names.get(name, name): amount for name, amount in resources.items()}
    begun, told, group = time.monotonic(), False, None
    try:
        while group is None or not ray.wait([group.ready()], timeout=_LOOK_S)[0]:
            follow()
            nodes_there = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            there = sum(all(node.get(name, 0.0) >= bundle[name] for name in bundle) for node in nodes_there)
            count = nodes if wait_for_all else max(1, min(nodes, there))
            if group is not None and group.bundle_count != count:
                remove_placement_group(group)
                group = None
            group = group or placement_group([bundle] * count, strategy="STRICT_SPREAD")
            if not told and time.monotonic() - begun > _TELL_AFTER_S:
                _say(f"waiting for {count} nodes that have {bundle}; the cluster has {there}")
                told = True
        yield group
    finally:
        if group is not None:
            remove_placement_group(group)


def _task(function: Callable[..., None], resources: Mapping[str, float], **options: Any) -> Any:
    """A function as a task of the cluster. A lost one is started again by us, with our limit."""
    known = {name: resources[name] for name in resources if name in ("num_cpus", "num_gpus", "memory")}
    own = {name: resources[name] for name in resources if name not in known}
    return ray.remote(max_retries=0, resources=own, **known, **options)(function)


@contextmanager
def _cluster() -> Iterator[None]:
    is_ours = not ray.is_initialized()
    if is_ours:
        _join_cluster()
    try:
        yield
    finally:
        if is_ours:
            ray.shutdown()


@contextmanager
def _stopped_at_last() -> Iterator[list[Any]]:
    """Tasks that run. Those that are left when the block ends are stopped as by Ctrl-C, so that they seal their work
    and end their claims; those that do not end are killed."""
    running: list[Any] = []
    try:
        yield running
    finally:
        for reference in running:
            ray.cancel(reference, force=False)
        deadline_s = time.monotonic() + STOP_S
        while running and time.monotonic() < deadline_s:
            _, running = ray.wait(running, timeout=_LOOK_S)
        for reference in running:
            ray.cancel(reference, force=True)


def _join_cluster() -> None:
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        # Agents report to the store; Ray's copy of their output would only repeat it.
        ray.init(log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise DistillError(f"Ray: {first_line(error)}; check RAY_ADDRESS, or `ray status` on the cluster") from None
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


def _last_error(error: BaseException, loss: str) -> BaseException:
    """What the command ends with: an error of the work as it is, or a loss that is not made good any more."""
    if isinstance(error, RayError | ProcessLost):
        return DistillError(
            f"{loss} and engine.restarts are used up: {first_line(error)}; what is in the store stays: run the same "
            "command again"
        )
    return error


def _say(text: str) -> None:
    logging.getLogger(__name__).warning(text)
