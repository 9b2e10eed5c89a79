"""The signal of written arithmetic, and what is given up rather than let a trace hold the run."""

import re
import signal
import threading
import time
from dataclasses import replace

import orjson
import pytest
from worlds.run_fixtures import default

from distill.machine.processor_time import OutOfTime, processor_time
from distill.recipe.sections.filter import DEFAULT_RULES, DEFAULT_SIGNALS
from distill.types import Sample, Trace, Usage
from filters.signals import registry, time_limits
from filters.signals.families.arithmetic import Arithmetic
from filters.signals.families.repetition import Repetition
from filters.signals.registry import FAMILIES
from filters.signals.time_limits import MOST_CHARACTERS
from teacher.messages.parse import parse

SAMPLE = Sample(id="s", images=(), question="How many are there?", answers=("15",))


def trace(reasoning: str, answer: str = "15", name: str = "a") -> Trace:
    return Trace(
        id=name, sample_id="s", teacher="t", k=0, seed=0, reasoning=reasoning, answer=answer, text=reasoning + answer,
        outcome="complete", finish_reason="stop", usage=Usage(), params={}, model="m", revision="", engine={},
        prompt_sha="", latency_s=0.0, created="",
    )  # fmt: skip


def measured(*traces: Trace) -> list[dict]:
    return registry.rows((Arithmetic(),), SAMPLE, list(traces))


def test_a_slip_is_measured_without_a_table_and_dropped_by_default() -> None:
    (row,) = measured(trace("There are 8 red and 6 blue ones: 8 + 6 = 15."))
    assert (row["arithmetic_state"], row["arithmetic"], row["arithmetic_slips"]) == ("ok", "slip", 1)
    assert orjson.loads(row["arithmetic_slip"])[0]["expected"] == 14
    assert "arithmetic" in DEFAULT_SIGNALS
    assert {rule.name: rule.drop for rule in DEFAULT_RULES}["arithmetic_slip"] == "arithmetic = 'slip'"


def test_what_states_no_arithmetic_is_not_called_right() -> None:
    rows = measured(trace("There are fifteen.", name="a"), trace("8 + 7 = 15", name="b"), trace("", "", name="c"))
    assert [row.get("arithmetic") for row in rows] == ["none_stated", "right", None]
    assert rows[2]["arithmetic_state"] == "not_applicable"


def test_more_numbers_than_are_read_are_a_state_that_rules_see() -> None:
    (row,) = measured(trace("3, " * 5000))
    assert (row["arithmetic_state"], row.get("arithmetic")) == ("timed_out", None)
    assert "more numbers" in orjson.loads(row["signal_errors"])["arithmetic"]
    assert {rule.name: rule.drop for rule in DEFAULT_RULES}["not_measured"] == "signal_errors IS NOT NULL"


def test_a_text_beyond_every_limit_is_looked_at_by_no_family_and_the_others_are_measured() -> None:
    long = trace("3 + 4 = 8. " * (MOST_CHARACTERS // 8), name="a")
    rows = registry.rows(
        (Arithmetic(), default(Repetition)), SAMPLE, [long, trace("8 + 7 = 15 ones in all", name="b")]
    )
    assert [row["arithmetic_state"] for row in rows] == ["timed_out", "ok"]
    assert [row["repetition_state"] for row in rows] == ["timed_out", "ok"]


def test_a_regular_expression_that_does_not_end_is_stopped_and_costs_its_own_trace_only(monkeypatch) -> None:
    slow = re.compile(r"(?:a+)+b")
    real = Arithmetic.row

    def row(self: Arithmetic, sample: Sample, trace: Trace) -> dict:
        slow.match("a" * 60 if "slow" in trace.reasoning else "b")
        return real(self, sample, trace)

    monkeypatch.setattr(Arithmetic, "row", row)
    monkeypatch.setattr(registry, "MOST_SECONDS", 0.2)
    rows = measured(trace("slow", name="a"), trace("8 + 7 = 15", name="b"), replace(trace("8 + 7 = 15"), id="c"))
    assert [row["arithmetic_state"] for row in rows] == ["timed_out", "ok", "ok"]


def test_a_family_that_waits_for_ever_is_stopped_and_costs_its_own_trace_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Arithmetic.row

    def row(self: Arithmetic, sample: Sample, trace: Trace) -> dict:
        if "slow" in trace.reasoning:
            time.sleep(3600)
        return real(self, sample, trace)

    monkeypatch.setattr(Arithmetic, "row", row)
    monkeypatch.setattr(registry, "MOST_WAITING_SECONDS", 0.2)
    rows = measured(trace("slow", name="a"), trace("8 + 7 = 15", name="b"), replace(trace("8 + 7 = 15"), id="c"))
    assert [row["arithmetic_state"] for row in rows] == ["timed_out", "ok", "ok"]


def test_time_on_a_processor_and_time_without_one_is_no_waiting() -> None:
    with processor_time(60, waiting=0.3):
        started = time.thread_time()
        while time.thread_time() - started < 0.6:
            pass
    with pytest.raises(OutOfTime), processor_time(60, waiting=0.05):
        threading.Event().wait()
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_the_clock_is_gone_once_a_block_ends() -> None:
    with processor_time(0.05):
        pass
    started = time.process_time()
    while time.process_time() - started < 0.2:
        pass
    with pytest.raises(OutOfTime), processor_time(0.05):
        while True:
            pass
    assert time_limits.MOST_SECONDS >= 10


def test_the_clock_is_gone_where_its_signal_comes_as_a_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    before, set_timer = signal.getsignal(signal.SIGVTALRM), signal.setitimer

    def late(timer: int, *seconds: float) -> object:
        if not seconds[0]:
            monkeypatch.setattr(signal, "setitimer", set_timer)
            signal.raise_signal(signal.SIGVTALRM)
        return set_timer(timer, *seconds)

    monkeypatch.setattr(signal, "setitimer", late)
    with pytest.raises(OutOfTime), processor_time(60):
        pass
    assert signal.getsignal(signal.SIGVTALRM) == before and signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


@pytest.mark.parametrize(
    "odd", ["\ud800", "\udfff 8 + 6 = 15", "\U0001f600", "\u0301" * 50, "\x00", "9" * 5000, "(" * 3000]
)
def test_odd_characters_pass_through_the_parser_and_the_families(odd: str) -> None:
    text = f"The red bar \ud83d is 7. {odd} So 8 + 6 = 15."
    parsed = parse(f"<think>{text}</think>{odd}")
    charted = replace(SAMPLE, meta={"table": {"red": 8, "blue": 6}})
    families = tuple(
        default(FAMILIES[name]) for name in ("arithmetic", "grounding", "steps", "refusal", "format", "repetition")
    )
    (row,) = registry.rows(families, charted, [trace(parsed.reasoning or text, "7")])
    assert row["signal_errors"] is None
