"""What the filter says of its traces: faults are named with the line of the recipe, a sound run has none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import run_fixtures
from run_fixtures import generate_folder, recipe, sample, trace

from distill.commands.status import warnings
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.apply import apply
from filters.decisions.diagnosis import TraceFacts, diagnose
from filters.decisions.funnel import Funnel

SETTINGS = '[filter]\nsignals = ["answer", "format", "agreement", "question", "duplicates"]\n'
Edit = Callable[[Sample, Trace], Trace]


def diagnosed(folder: Path, edit: Edit = lambda _, trace: trace, more: str = "", answers: int = 7) -> list[dict]:
    """The findings of 60 questions with two traces each, of two teachers."""
    asked = [sample(f"How many dots has number {n}?", str(n % answers), answer_type="number") for n in range(60)]
    traces = [
        edit(one, trace(one, one.answers[0], f"Row {k + 1} of number {n} shows them all.", teacher=teacher, k=k))
        for n, one in enumerate(asked)
        for k in range(2)
        for teacher in [("structured", "brief")[n % 2]]
    ]
    generate_folder(folder / "run", asked, traces)
    settings: Recipe = recipe(folder, SETTINGS + more)
    apply(settings, folder / "run")
    found: list[dict] = orjson.loads((folder / "run/filter/health.json").read_bytes())["diagnosis"]
    return found


def wrong(written: Trace, answer: str) -> Trace:
    return replace(written, answer=answer, text=f"<think>{written.reasoning}</think>{answer}")


def test_a_sound_run_is_told_its_size_and_no_fault(tmp_path: Path) -> None:
    (finding,) = diagnosed(tmp_path)
    assert (finding["kind"], finding["certainty"]) == ("good", "certain")
    assert finding["text"].startswith("The dataset holds 120 traces; the rules keep 100 % (120 of 120), and 100 %")
    assert f"diagnosis: {finding['text']}" in warnings(tmp_path / "run").splitlines()
    assert "100 % (120 of 120)" in (tmp_path / "run/filter/report.html").read_text()


def cut(_: Sample, written: Trace) -> Trace:
    if written.teacher != "brief" or written.k:
        return written
    return replace(written, answer="", text=written.reasoning, outcome="truncated_thinking", finish_reason="length")


def untagged(_: Sample, written: Trace) -> Trace:
    if written.teacher != "brief":
        return written
    text = f"{written.reasoning} {written.answer}"
    return replace(written, reasoning="", answer=text, text=text)


def agreed(one: Sample, written: Trace) -> Trace:
    return written if one.question.endswith("number 3?") else wrong(written, str(int(written.answer) + 20))


def split_votes(_: Sample, written: Trace) -> Trace:
    return wrong(written, str(int(written.answer) + 20)) if written.k else written


@pytest.mark.parametrize(
    ("name", "edit", "key"),
    [
        ("traces_cut", cut, "teachers.brief.sampling.max_tokens"),
        ("teacher_format", untagged, "teachers.brief.reasoning"),
        ("teacher_wrong", lambda one, t: wrong(t, "99") if t.teacher == "brief" else t, 'name = "brief"'),
    ],
)
def test_a_teacher_with_a_fault_is_named_with_its_line(tmp_path: Path, name: str, edit: Edit, key: str) -> None:
    finding = diagnosed(tmp_path, edit)[0]
    assert finding["name"] == name and key in finding["change"] and finding["certainty"] == "certain"


def test_teachers_that_agree_on_other_answers_than_gold_point_at_images_or_gold(tmp_path: Path) -> None:
    assert [each["name"] for each in diagnosed(tmp_path, agreed)] == ["gold_or_images"]


def test_a_rule_that_drops_correct_traces_is_named_with_its_condition(tmp_path: Path) -> None:
    rules = """
    [[filter.rules]]
    name = "wrong_answer"
    drop = "answer_verdict = 'wrong'"
    [[filter.rules]]
    name = "consensus"
    drop = "self_consistency < 1 AND id >= '2'"
    """
    (finding,) = diagnosed(tmp_path, split_votes, rules)
    assert finding["name"] == "rule_drops" and "self_consistency < 1" in finding["change"]


def test_a_filter_that_keeps_nothing_says_why_in_its_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"diagnosis: 100 % \(120 of 120\) complete traces of brief, structured have"):
        diagnosed(tmp_path, lambda one, t: replace(t, reasoning="", answer="so", text="so"))


def test_an_evaluation_of_what_is_learned_is_named(tmp_path: Path) -> None:
    (finding,) = diagnosed(tmp_path, more='[eval]\ndata = "questions"\n')
    assert finding["name"] == "leaked" and 'eval.data, now "questions"' in finding["change"]


def test_one_answer_in_most_traces_is_found(tmp_path: Path) -> None:
    assert [each["name"] for each in diagnosed(tmp_path, answers=1)] == ["one_answer"]


def test_questions_that_more_traces_would_give_a_correct_one_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mostly_wrong(one: Sample, written: Trace) -> Trace:
        number = int(one.question.split()[-1].strip("?"))
        return written if number % 5 < 2 else wrong(written, str(50 + written.k))

    monkeypatch.setattr(run_fixtures, "RECIPE", run_fixtures.RECIPE.replace("samples = 3", "samples = 2"))
    (finding,) = diagnosed(tmp_path, mostly_wrong)
    assert finding["name"] == "few_traces" and "40 % (24 of 60)" in finding["problem"]
    assert finding["change"].startswith("teachers.structured.samples, now 2: with 4, about 87% of the questions")


def facts(folder: Path, *, correct: int = 54, **counts: int) -> TraceFacts:
    """Two teachers with 60 judged traces each: `brief` has these counts, `structured` has 54 correct answers."""
    sound = {
        "asked": 60,
        "complete": 60,
        "cut": 0,
        "unformed": 0,
        "untold": 0,
        "judged": 60,
        "correct": 54,
        "agreed": 0,
    }
    total = {"asked": 120, "complete": 120, "correct": 54 + correct, "kept": 54 + correct, "selected": 54 + correct}
    return TraceFacts(
        recipe=recipe(folder, SETTINGS),
        funnel=Funnel(
            total=total, by_teacher={}, by_domain={}, rules={}, only={}, errors={}, timed_out={}, questions={}
        ),
        teachers={"brief": sound | counts | {"correct": correct}, "structured": sound},
        same_text=(0, 0),
        correct_alone={},
        questions={"asked": 60, "kept": 60, "leaked": 0, "doubled": 0},
        answers=("", 0, 0),
    )


def test_a_teacher_with_a_wrong_form_is_not_called_wrong_as_well(tmp_path: Path) -> None:
    assert [each.name for each in diagnose(facts(tmp_path, correct=6))] == ["teacher_wrong"]
    assert [each.name for each in diagnose(facts(tmp_path, correct=6, unformed=50))] == ["teacher_format"]


@pytest.mark.parametrize(("agreed", "name"), [(31, "gold_or_images"), (30, "teachers_weak"), (25, "teachers_weak")])
def test_gold_answers_are_doubted_where_most_refused_answers_agree(tmp_path: Path, agreed: int, name: str) -> None:
    of_both = facts(tmp_path, correct=0)
    one = of_both.teachers["brief"] | {"agreed": agreed}
    assert [each.name for each in diagnose(replace(of_both, teachers={"brief": one}))] == [name]


@pytest.mark.parametrize(("judged", "names"), [(19, ["dataset"]), (20, ["gold_or_images"])])
def test_twenty_traces_are_enough_for_a_finding(tmp_path: Path, judged: int, names: list[str]) -> None:
    few = facts(tmp_path, correct=0, judged=judged, agreed=judged)
    assert [each.name for each in diagnose(replace(few, teachers={"brief": few.teachers["brief"]}))] == names


def test_where_most_answers_are_correct_more_traces_are_no_advice(tmp_path: Path) -> None:
    right = facts(tmp_path)
    teachers = tuple(teacher.model_copy(update={"samples": 2}) for teacher in right.recipe.teachers)
    few = replace(
        right,
        recipe=right.recipe.model_copy(update={"teachers": teachers}),
        questions={"asked": 60, "kept": 12, "leaked": 0, "doubled": 0},
    )
    assert [each.name for each in diagnose(few)] == ["dataset"]
    rarer = {name: {**count, "correct": 30} for name, count in few.teachers.items()}
    assert [each.name for each in diagnose(replace(few, teachers=rarer))] == ["few_traces"]
