"""A round of work of all agents on the units of a filter in a store; one of them commits each unit."""

import time
from collections.abc import Callable, Collection

from distill.machine.thread_map import thread_map
from distill.units.agent_record import AgentRecord
from distill.units.commits import Unit, committed_units
from distill.units.unit_queue import UnitQueue

_LOOK_S = 0.5


def work_together(
    agent: AgentRecord, units: Collection[Unit], make: Callable[[Unit], None], *, threads: int, retries: int
) -> None:
    """Let this process make units of some work, several at a time, until all are committed.

    `make` commits its unit. Raises DistillError where units are set aside.
    """
    if not units:
        return
    work = next(iter(units)).work
    queue = UnitQueue(agent, set(units).difference(committed_units(agent.store, work)), work=work, retries=retries)
    agent.live = lambda: {"units": queue.at_work}

    def commit(unit: Unit) -> Unit:
        make(unit)
        return unit

    while not queue.ended:
        drawn: list[Unit] = []
        while len(drawn) < threads and (unit := queue.draw()) is not None:
            drawn.append(unit)
        if not drawn:
            time.sleep(_LOOK_S)
        for unit in thread_map(commit, drawn, threads):
            queue.done(unit)
    queue.require_all()
