"""Counts read as sentences also where there is one of a thing."""

from distill.artifacts.manifest import Manifest
from distill.checks.results import CheckReport, problem, warning
from distill.planning.redo import Redo
from distill.planning.redo_text import _evaluated, _measured
from distill.word_tables import counted


def test_one_thing_has_its_singular() -> None:
    assert [counted(n, "reply", "replies") for n in (0, 1, 2_000)] == ["0 replies", "1 reply", "2,000 replies"]
    assert [counted(n, "row is", "rows are") for n in (1, 2)] == ["1 row is", "2 rows are"]
    results = [problem("a", "b", "c"), warning("a", "b", "c")]
    assert CheckReport(recipe="r", run="x", results=results, seconds=1.0).summary == (
        "r: 1 problem, 1 warning, 0 not checked, 0 ok (1.0 s)"
    )


def test_a_plan_about_one_trace_and_one_reply() -> None:
    filtered = Manifest(stage="filter", fingerprint="", fields={}, counts={"input": 1})
    assert _measured(Redo(()), filtered) == "decides 1 trace again"
    evaluated = Manifest(stage="eval", fingerprint="", fields={}, counts={"predictions": 1})
    assert _evaluated(Redo((), {"eval": ["filter.answer"]}), evaluated) == "judges 1 reply again, asks none"
