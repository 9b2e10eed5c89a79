"""What an agent takes over from the attempts of others, and what it asks itself."""

from types import SimpleNamespace
from typing import Any

import pytest
from servers.store_in_memory import MemoryStore

from distill.artifacts.json_lines import seal
from distill.units.agent_record import AgentRecord
from distill.units.commits import Attempt, Unit
from teacher import unit_exchange
from teacher.unit_exchange import UnitExchange

UNIT = Unit(round=0, partition="00")
ERROR = {"id": "ab" * 16, "sample_id": "cd" * 16, "outcome": "error"}


def agent(store: MemoryStore) -> AgentRecord:
    record = AgentRecord(store=store)
    record.beat()
    return record


def job(taken: list[dict[str, Any]], teacher: str = "stub") -> Any:
    queue = SimpleNamespace(waits=False, under_way=[], finished=False)
    return SimpleNamespace(
        teacher=SimpleNamespace(name=teacher), queue=queue, writer=SimpleNamespace(take_over=taken.append)
    )


@pytest.mark.parametrize("lives", [True, False])
def test_an_error_of_a_lost_agent_is_asked_again_and_one_of_an_agent_that_lives_is_not(
    lives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace that was asked again was paid, and lost against the error of the killed process."""
    monkeypatch.setattr(unit_exchange, "trace_fault", lambda _: "")
    store, taken = MemoryStore(), list[dict[str, Any]]()
    earlier, other = Attempt(store=store, unit=UNIT), agent(store)
    UnitExchange(attempt=earlier, agent=other, jobs=list)
    earlier.seal("stub", seal(ERROR))
    if not lives:
        other.end()
    attempt = Attempt(store=store, unit=UNIT)
    assert list(attempt.sealed("stub")) == [seal(ERROR)], "the journal begins with it"
    exchange = UnitExchange(attempt=attempt, agent=agent(store), jobs=lambda: [job(taken)])
    requests = store.requests
    exchange.look()
    exchange.take_news()
    assert taken == ([ERROR] if lives else []) and exchange.shared == lives
    if not lives:
        assert store.requests - requests < 6, "it is not read again"
    earlier.seal("stub", seal(ERROR | {"id": "ef" * 16}))
    exchange.look()
    exchange.take_news()
    assert taken[-1]["id"] == "ef" * 16, "what came after the beginning of this attempt counts"


def test_a_teacher_may_have_a_name_like_the_object_that_names_an_agent() -> None:
    store = MemoryStore()
    earlier = Attempt(store=store, unit=UNIT)
    UnitExchange(attempt=earlier, agent=agent(store), jobs=list)
    earlier.seal("agent-~", b"")
    exchange = UnitExchange(attempt=Attempt(store=store, unit=UNIT), agent=agent(store), jobs=list)
    exchange.look()
    assert exchange.shared
