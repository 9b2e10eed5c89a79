"""The funnel: how many traces reach each step, in all, by teacher and by domain, and what held back the others."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.recipe.sections.filter import Filter, Rule
from filters.decisions.decide import database, decide
from filters.decisions.funnel import Funnel, measure
from filters.decisions.rules import check
from filters.signals.base import ERROR, TIMED_OUT
from filters.signals.registry import LOCAL
from filters.tables.signal_database import Tables

CUT = Rule(name="cut", drop="outcome <> 'complete'")
WRONG = Rule(name="wrong", drop="answer_verdict = 'wrong'")
ROWS = [
    # sample, teacher, domain, outcome, verdict
    ("s1", "x", "charts", "complete", "correct"),
    ("s1", "x", "charts", "complete", "wrong"),
    ("s1", "y", "charts", "truncated", "wrong"),
    ("s2", "x", "scenes", "complete", "correct"),
    ("s2", "y", "scenes", "truncated", "correct"),  # which is not correct: it is not complete
    ("s3", "y", "scenes", "complete", "correct"),
]


@pytest.fixture
def decided(tmp_path: Path) -> duckdb.DuckDBPyConnection:
    """A database with the rows above, the rules, and one trace for each question."""
    names = ("sample_id", "teacher", "domain", "outcome", "answer_verdict")
    rows = [{"id": f"t{number}", "k": 0, **dict(zip(names, row, strict=True))} for number, row in enumerate(ROWS)]
    rows[0] |= {"answer_state": ERROR, "language_state": ERROR}
    rows[1] |= {"answer_state": ERROR, "language_state": TIMED_OUT}
    pq.write_table(pa.Table.from_pylist(rows, schema=LOCAL), tmp_path / "part-00000.parquet")
    tables = Tables(signals=(tmp_path / "part-00000.parquet",))
    settings = Filter(rules=(CUT, WRONG))
    decide(check(settings), settings.select, tables, tmp_path / "decisions.parquet")
    return database(tables, tmp_path / "decisions.parquet")


@pytest.fixture
def counted(decided: duckdb.DuckDBPyConnection) -> Funnel:
    return measure(decided)


def test_every_step_counts_the_traces_that_reach_it(counted: Funnel) -> None:
    assert counted.total == {"asked": 6, "complete": 4, "correct": 3, "kept": 3, "selected": 3}
    assert counted.dropped == 3


def test_the_counts_of_the_teachers_and_those_of_the_domains_each_add_up_to_all(counted: Funnel) -> None:
    assert counted.by_teacher == {
        "x": {"asked": 3, "complete": 3, "correct": 2, "kept": 2, "selected": 2},
        "y": {"asked": 3, "complete": 1, "correct": 1, "kept": 1, "selected": 1},
    }
    assert counted.by_domain == {
        "charts": {"asked": 3, "complete": 2, "correct": 1, "kept": 1, "selected": 1},
        "scenes": {"asked": 3, "complete": 2, "correct": 2, "kept": 2, "selected": 2},
    }


def test_a_rule_counts_every_trace_it_fails_and_apart_those_that_it_alone_drops(counted: Funnel) -> None:
    assert counted.rules == {"cut": 2, "wrong": 2}
    assert counted.only == {"cut": 1, "wrong": 1}


def test_a_question_reaches_a_step_with_any_of_its_traces(counted: Funnel) -> None:
    assert counted.questions == {"asked": 3, "complete": 3, "correct": 3, "kept": 3, "selected": 3}


def test_only_families_that_failed_or_were_given_up_are_counted_as_such(counted: Funnel) -> None:
    assert counted.errors == {"answer": 2, "language": 1}
    assert counted.timed_out == {"language": 1}
