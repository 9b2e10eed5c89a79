"""A round of work of all agents on the units of a filter in a store; one of them commits each unit."""

from collections.abc import Callable, Sequence

from distill.machine.child_process import available_cores
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.recipe.recipe import Recipe
from distill.units.agent_record import AgentRecord
from distill.units.commits import Unit, committed_units
from distill.units.stored_run import finished_commit
from distill.units.unit_queue import UnitQueue, remove_all_leftovers


def work_together(agent: AgentRecord, units: Sequence[Unit], make: Callable[[Unit], None], recipe: Recipe) -> None:
    """Let this process make units of some work, several at a time, until all are committed.

    `make` commits its unit; it runs in threads. Raises DistillError where units are set aside.
    """
    if not units:
        return
    work, threads = units[0].work, recipe.filter.workers or available_cores()
    open_units = set(units).difference(committed_units(agent.store, work))
    queue = UnitQueue(agent, open_units, work=work, retries=recipe.engine.retries)
    agent.live = lambda: {"units": queue.at_work}

    def commit(unit: Unit) -> Unit:
        make(unit)
        return unit

    for drawn in queue.batches(threads):
        for unit in thread_map(commit, drawn, threads):
            queue.done(unit)


def remove_leftovers_of(store: ObjectStore, units: Sequence[Unit]) -> None:
    """Delete what killed agents have left of some work whose units are all committed."""
    if units:
        commits = thread_map(lambda unit: (unit, finished_commit(store, unit)), units)
        remove_all_leftovers(store, dict(commits), units[0].work)
