"""Groups of the test that a student has not trained are named with the step that lost them."""

from typing import Any

from distill.diagnosis.row_groups import StepRows
from distill.types import Sample
from student.evaluation.untrained_groups import RunRows, find

ASKED = [
    Sample(
        id=str(n),
        images=(),
        question="How many?",
        answers=("1",),
        domain=("charts", "digits", "scenes")[n % 3],
        meta={"kind": "sum" if n % 2 else "count"},
    )
    for n in range(120)
]


def replies(*wrong: str) -> list[dict[str, Any]]:
    return [
        {"sample_id": each.id, "verdict": "wrong" if {each.domain, each.meta["kind"]} & {*wrong} else "correct"}
        for each in ASKED
    ]


def after(step: str, **shares: int) -> StepRows:
    """Rows after a step, by domain."""
    rows = [{"domain": domain} for domain, count in shares.items() for _ in range(count)]
    return StepRows.of(rows, step, f"the key of {step}")


def of_kind(step: str, **counts: int) -> StepRows:
    return StepRows.of(({"meta.kind": kind} for kind, count in counts.items() for _ in range(count)), step, "a key")


ALL = {"charts": 100, "digits": 100, "scenes": 100}
TWO = {"digits": 100, "scenes": 100}


def found(left: list[StepRows], *trained: StepRows, wrong: tuple[str, ...] = (), is_bad: bool = False) -> list:
    return [*find("distilled", replies(*wrong), ASKED, RunRows.of(left, trained), is_bad=is_bad)]


def test_a_domain_that_was_not_trained_is_named_with_the_first_step_that_lacks_it() -> None:
    left = [after("the source", **ALL), after("the rule misread", **TWO), after("the selection", **TWO)]
    (finding,) = found(left, after("the stage reason", **TWO), wrong=("charts",))
    assert finding.name == "test_group_untrained" and finding.certainty == "certain"
    assert "no rows of the domain 'charts': they are 40 of 120 rows (33 %) of the test" in finding.problem
    assert "the step that loses them is the rule misread" in finding.problem
    assert "right in 0 of 40 such questions (0 %), and in 80 of 80 others (100 %)" in finding.problem
    assert finding.change == "the key of the rule misread, or test without them"


def test_a_stage_that_leaves_a_domain_out_is_named() -> None:
    (finding,) = found([after("the selection", **ALL)], after("the stage reason", **TWO))
    assert "the step that loses them is the stage reason" in finding.problem and finding.change.startswith(
        "the key of the stage reason"
    )
    left = [after("the selection", **ALL)]
    assert found(left, after("the stage reason", **TWO), after("the stage polish", charts=60)) == []


def test_a_loss_in_training_is_named_where_the_test_does_not_ask_for_it() -> None:
    (finding,) = found([after("the selection", **ALL, photos=90)], after("the stage reason", **ALL))
    assert finding.name == "rows_lost" and finding.problem.startswith("The stage reason loses rows")


def test_another_group_is_named_only_of_a_bad_result_or_where_it_is_worse() -> None:
    trained = of_kind("the stage reason", count=200, sum=3)
    assert found([], trained) == []
    assert [each.name for each in found([], trained, is_bad=True)] == ["test_group_untrained"]
    (finding,) = found([], trained, wrong=("sum",))
    assert "hardly any rows of the meta.kind 'sum'" in finding.problem and finding.certainty == "likely"


def test_a_student_that_trained_what_it_is_asked_has_no_finding() -> None:
    assert (
        found([after("the selection", **ALL)], after("the stage reason", **ALL), wrong=("charts",), is_bad=True) == []
    )
