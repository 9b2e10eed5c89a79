"""What the filter says of its traces: faults are named with the line of the recipe, a sound run has none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from faults.diagnosed_runs import SETTINGS, Edit, diagnosed, wrong
from worlds import run_fixtures
from worlds.run_fixtures import recipe

from distill.commands.status import warnings
from distill.errors import DataError
from distill.stats.intervals import wilson
from distill.types import Sample, Trace
from filters.decisions.diagnosis import diagnose
from filters.decisions.diagnosis_facts import FailedPart, TraceFacts, UnseenValues
from filters.decisions.funnel import Funnel


def test_a_run_without_faults_reports_only_its_size(tmp_path: Path) -> None:
    (finding,) = diagnosed(tmp_path)
    assert (finding["kind"], finding["certainty"]) == ("good", "certain")
    assert finding["text"].startswith("The dataset holds 120 traces; the rules keep 120 of 120 (100 %), and ")
    assert f"diagnosis: {finding['text']}" in warnings(tmp_path / "run").splitlines()
    assert "120 of 120 (100 %)" in (tmp_path / "run/filter/report.html").read_text()


def cut(_: Sample, written: Trace) -> Trace:
    if written.teacher != "brief" or written.k:
        return written
    return replace(written, answer="", text=written.reasoning, outcome="truncated_thinking", finish_reason="length")


def untagged(_: Sample, written: Trace) -> Trace:
    if written.teacher != "brief":
        return written
    text = f"{written.reasoning} {written.answer}"
    return replace(written, reasoning="", answer=text, text=text)


def declined(_: Sample, written: Trace) -> Trace:
    text = "I'm sorry, but I can't help with identifying what is shown in this image."
    return wrong(written, text) if written.teacher == "brief" else written


def chinese(_: Sample, written: Trace) -> Trace:
    if written.teacher != "brief":
        return written
    reasoning = f"我们先仔细看一下这张图片，然后一步一步地计算图片里面所有的点，每一行都看得清楚。{written.id}"
    return replace(written, reasoning=reasoning, text=f"<think>{reasoning}</think>{written.answer}")


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
        ("teacher_declines", declined, "teachers.brief.prompt"),
        ("teacher_language", chinese, "teachers.brief.system"),
    ],
)
def test_a_teacher_with_a_fault_is_named_with_its_line(tmp_path: Path, name: str, edit: Edit, key: str) -> None:
    finding = diagnosed(tmp_path, edit)[0]
    certainty = "likely" if name == "teacher_language" else "certain"  # the user may wish it
    assert finding["name"] == name and key in finding["change"] and finding["certainty"] == certainty


def test_teachers_that_agree_on_other_answers_than_gold_point_at_images_or_gold(tmp_path: Path) -> None:
    relation, agreement, *_ = diagnosed(tmp_path, agreed)
    assert agreement["name"] == "gold_or_images"
    assert relation["name"] == "answer_relation" and "the gold answer is -20 away" in relation["problem"]


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
    with pytest.raises(DataError, match=r"diagnosis: 120 of 120 complete traces of brief, structured \(100 %\) have"):
        diagnosed(tmp_path, lambda one, t: replace(t, reasoning="", answer="so", text="so"))


def test_an_evaluation_of_what_is_learned_is_named(tmp_path: Path) -> None:
    (finding,) = diagnosed(tmp_path, more='[eval]\ndata = "questions"\n')
    assert finding["name"] == "leaked" and 'eval.data, now "questions"' in finding["change"]


def test_correct_traces_of_wrong_arithmetic_are_a_fault_of_the_teacher(tmp_path: Path) -> None:
    right = facts(tmp_path)
    (finding,) = diagnose(replace(right, correct_alone={"arithmetic_slip": 90}))
    assert finding.name == "arithmetic_slips" and finding.change.startswith("[[teachers]]")


def test_one_answer_in_most_traces_is_found(tmp_path: Path) -> None:
    assert [each["name"] for each in diagnosed(tmp_path, answers=1)] == ["one_answer"]


def test_the_answer_of_most_questions_is_not_that_of_selected_traces_that_gave_another_one(tmp_path: Path) -> None:
    rules = """rules = [{ name = "wrong", drop = "answer_verdict = 'wrong'" }]\n"""
    outvoted = diagnosed(tmp_path, lambda _, t: wrong(t, "99") if t.k else t, rules, each=3)
    assert "one_answer" not in [finding["name"] for finding in outvoted]


def test_a_recipe_without_teachers_gets_no_advice_about_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_fixtures, "RECIPE", '[data.questions]\nsource = "questions.jsonl"\n')
    rules = """rules = [{ name = "wrong", drop = "answer_verdict = 'wrong'" }]\n"""
    found = diagnosed(tmp_path, lambda one, t: wrong(t, "99") if one.answers[0] in "3456" else t, rules)
    assert "few_traces" not in [finding["name"] for finding in found]


def test_a_leak_names_the_test_set_that_holds_the_questions(tmp_path: Path) -> None:
    right = questions(leaked=3)(facts(tmp_path))
    (finding,) = diagnose(replace(right, leaked_from=("hard", "old")))
    assert finding.change.startswith("data.hard, data.old.source: split by image")


def test_advice_of_more_traces_names_the_teacher_that_has_so_many(tmp_path: Path) -> None:
    asked = questions(kept=20)(twice_asked(facts(tmp_path)))
    one, two = asked.recipe.teachers
    teachers = (one.model_copy(update={"samples": 1}), two)
    (finding,) = diagnose(replace(asked, recipe=asked.recipe.model_copy(update={"teachers": teachers})))
    assert finding.change.startswith(f"teachers.{two.name}.samples, now 2: ")


def test_questions_that_more_traces_would_give_a_correct_one_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mostly_wrong(one: Sample, written: Trace) -> Trace:
        number = int(one.question.split()[-1].strip("?"))
        return written if number % 5 < 2 else wrong(written, str(50 + written.k))

    monkeypatch.setattr(run_fixtures, "RECIPE", run_fixtures.RECIPE.replace("samples = 3", "samples = 2"))
    finding, *_ = diagnosed(tmp_path, mostly_wrong)
    assert finding["name"] == "few_traces" and "24 of 60 questions (40 %)" in finding["problem"]
    assert finding["change"].startswith(
        "teachers.structured.samples, now 2: with 4, at most about 87 % of the questions"
    )


SOUND = {
    "asked": 60,
    "complete": 60,
    "cut": 0,
    "declined": 0,
    "spoken": 60,
    "foreign_language": 0,
    "unformed": 0,
    "untold": 0,
    "judged": 60,
    "correct": 54,
    "agreed": 0,
}


def facts(folder: Path, *, correct: int = 54, **counts: int) -> TraceFacts:
    """Two teachers with 60 judged traces each: `brief` has these counts, `structured` has 54 correct answers."""
    total = {"asked": 120, "complete": 120, "correct": 54 + correct, "kept": 54 + correct, "selected": 54 + correct}
    return TraceFacts(
        recipe=recipe(folder, SETTINGS),
        funnel=Funnel(
            total=total, by_teacher={}, by_domain={}, rules={}, only={}, errors={}, timed_out={}, questions={}
        ),
        teachers={"brief": SOUND | counts | {"correct": correct}, "structured": SOUND},
        same_text=(0, 0),
        correct_alone={},
        questions={"asked": 60, "kept": 60, "leaked": 0, "doubled": 0},
        answers=("", 0, 0),
    )


def test_a_signal_that_fails_on_many_traces_is_a_finding(tmp_path: Path) -> None:
    made = facts(tmp_path)
    parts = [
        FailedPart(what=f"The signal {name!r}", count=count, of=120, effect="so rules miss it", change="the signal")
        for name, count in (("hedging", 120), ("length", 3))
    ]
    (found,) = diagnose(replace(made, failed=parts))
    assert found.name == "part_failed" and found.change == "the signal"
    assert found.problem == "The signal 'hedging' failed on 120 of 120 traces (100 %), so rules miss it"


def test_a_teacher_with_a_wrong_form_is_not_called_wrong_as_well(tmp_path: Path) -> None:
    assert [each.name for each in diagnose(facts(tmp_path, correct=6))] == ["teacher_wrong"]
    assert [each.name for each in diagnose(facts(tmp_path, correct=6, unformed=50))] == ["teacher_format"]


def test_a_single_trace_without_a_rationale_does_not_hide_the_fault_of_many(tmp_path: Path) -> None:
    (found,) = diagnose(facts(tmp_path, correct=6, unformed=50, untold=1))
    assert "50 of 60 complete traces of brief" in found.problem and "have a wrong form" in found.problem


def test_one_trace_a_question_does_not_tell_whether_teachers_agree(tmp_path: Path) -> None:
    known = facts(tmp_path, correct=3)
    known = replace(known, teachers={"brief": known.teachers["brief"]})
    teachers = tuple(teacher.model_copy(update={"samples": 1}) for teacher in known.recipe.teachers)
    single = replace(known, recipe=known.recipe.model_copy(update={"teachers": teachers}))
    for each, said in ((single, "does not tell whether teachers agree"), (known, "the teachers do not agree")):
        (found,) = diagnose(each)
        assert found.name == "teachers_weak" and found.problem.endswith(said)


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


def brief(**counts: int) -> Callable[[TraceFacts], TraceFacts]:
    """The facts with these counts of the teacher `brief`."""
    return lambda facts: replace(facts, teachers={**facts.teachers, "brief": {**facts.teachers["brief"], **counts}})


def alone(**counts: int) -> Callable[[TraceFacts], TraceFacts]:
    """The facts with no other teacher than `brief`, with these counts."""
    return lambda facts: replace(facts, teachers={"brief": {**facts.teachers["brief"], **counts}})


def questions(**counts: int) -> Callable[[TraceFacts], TraceFacts]:
    return lambda facts: replace(facts, questions={**facts.questions, **counts})


def twice_asked(facts: TraceFacts) -> TraceFacts:
    teachers = tuple(each.model_copy(update={"samples": 2}) for each in facts.recipe.teachers)
    half_right = {name: {**count, "correct": 30} for name, count in facts.teachers.items()}
    return replace(facts, teachers=half_right, recipe=facts.recipe.model_copy(update={"teachers": teachers}))


RULE = 'rules = [{ name = "strict", drop = "rationale_tokens < 9" }]\n'


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("traces_cut", lambda n: brief(cut=n), lambda low, high: low > 0.2),
        ("teacher_format", lambda n: brief(unformed=n), lambda low, high: low > 0.2),
        ("teacher_format", lambda n: brief(untold=n, unformed=3), lambda low, high: low > 0.2),
        ("teacher_wrong", lambda n: brief(correct=n), lambda low, high: high < 0.3),
        ("duplicates", lambda n: questions(doubled=n), lambda low, high: low > 0.2),
        ("leaked", lambda n: questions(leaked=n), lambda low, high: low > 0),
        ("one_answer", lambda n: lambda facts: replace(facts, answers=("4", n, 60)), lambda low, high: low > 0.8),
        (
            "rule_drops",
            lambda n: lambda facts: replace(facts, correct_alone={"strict": n}),
            lambda low, high: low > 0.4,
        ),
        ("few_traces", lambda n: lambda facts: questions(kept=n)(twice_asked(facts)), lambda low, high: high < 0.6),
        ("teachers_weak", lambda n: alone(correct=n), lambda low, high: high < 0.15),
        ("gold_or_images", lambda n: alone(correct=n, agreed=60), lambda low, high: high < 0.3),
    ],
)
def test_a_fault_is_reported_if_the_interval_of_its_share_is_beyond_its_limit(
    tmp_path: Path,
    name: str,
    change: Callable[[int], Callable[[TraceFacts], TraceFacts]],
    said: Callable[[float, float], bool],
) -> None:
    # 60 correct traces in all, so that every share is of 60.
    base = facts(tmp_path, correct=6)
    base = replace(base, recipe=recipe(tmp_path, SETTINGS + RULE))
    found = {n for n in range(61) if name in [each.name for each in diagnose(change(n)(base))]}
    assert found == {n for n in range(61) if said(*wilson(n, 60))} != set()


def test_a_teacher_is_called_wrong_beside_one_that_is_surely_right_in_half(tmp_path: Path) -> None:
    base = facts(tmp_path, correct=6)

    def beside(correct: int) -> set[str]:
        teachers = {**base.teachers, "structured": {**base.teachers["structured"], "correct": correct}}
        return {each.name for each in diagnose(replace(base, teachers=teachers))}

    right = [n for n in range(61) if "teacher_wrong" in beside(n)]
    assert right == [n for n in range(61) if wilson(n, 60)[0] > 0.5]


def test_a_judge_that_refuses_the_gold_text_is_the_fault_and_not_its_teacher(tmp_path: Path) -> None:
    base = facts(tmp_path, correct=6)
    names = {n: [each.name for each in diagnose(replace(base, same_text=(n, 60)))] for n in range(61)}
    refused = {n for n in range(61) if wilson(n, 60)[0] > 0.2}
    assert {n for n, each in names.items() if each == ["answer_type"]} == refused
    assert {n for n, each in names.items() if each == ["teacher_wrong"]} == set(range(61)) - refused


def test_counts_of_several_teachers_are_added_up(tmp_path: Path) -> None:
    both = facts(tmp_path, cut=30)
    (finding,) = diagnose(
        replace(both, teachers={name: {**count, "cut": 30} for name, count in both.teachers.items()})
    )
    assert finding.problem.startswith("60 of 120 traces of brief, structured (50 %) reach the token limit")
    (finding,) = diagnose(facts(tmp_path, untold=20, unformed=40))
    assert finding.problem == "20 of 60 complete traces of brief (33 %) have no rationale apart from the answer"
    (finding,) = diagnose(facts(tmp_path, unformed=40))
    assert finding.problem == "40 of 60 complete traces of brief (67 %) have a wrong form"


def test_an_empty_dataset_without_a_fault_is_not_praised(tmp_path: Path) -> None:
    sound = facts(tmp_path)
    empty = replace(sound, funnel=replace(sound.funnel, total={**sound.funnel.total, "selected": 0}))
    assert diagnose(empty) == []


def test_gold_answers_of_a_weak_teachers_domains_are_doubted_too(tmp_path: Path) -> None:
    base = facts(tmp_path, correct=6)
    (plain,) = diagnose(base)
    assert plain.change.endswith("another model, or other domains")
    teachers = tuple(each.model_copy(update={"domains": (f"of {each.name}",)}) for each in base.recipe.teachers)
    named = replace(base, recipe=base.recipe.model_copy(update={"teachers": teachers}))
    both = replace(named, teachers={**named.teachers, "structured": named.teachers["brief"], "third": SOUND})
    for each in (named, both):
        (finding,) = diagnose(each)
        assert 'name = "brief"' in finding.change
        assert finding.change.endswith("or, if it is right, the gold answers of of brief")


def test_the_source_of_the_questions_is_named_where_their_gold_answers_are_doubted(tmp_path: Path) -> None:
    base = facts(tmp_path, correct=6)
    assert diagnose(replace(base, same_text=(60, 60)))[0].change.startswith("data.questions: the answer_type")
    assert diagnose(alone(correct=0, agreed=60)(base))[0].change.startswith("data.questions: its columns")


def unseen(count: int, checked: int = 60, *teachers: str) -> UnseenValues:
    return UnseenValues(teachers=teachers or ("structured", "brief"), checked=checked, unseen=count)


def test_teachers_that_see_the_gold_answer_are_compared_with_a_fifth_where_no_others_are_known(
    tmp_path: Path,
) -> None:
    base = facts(tmp_path)
    found = {n: diagnose(replace(base, unseen={True: unseen(n)})) for n in range(61)}
    guessing = {n for n, findings in found.items() if findings[0].name == "hints_guess"}
    assert guessing == {n for n in range(61) if wilson(n, 60)[0] > 0.2}
    assert found[60][0].change.startswith("teachers.structured.hinted, now true: ")
    assert found[60][0].problem == (
        "60 of 60 traces of structured, brief (100 %), shown the gold answer, state values that are not in the "
        "image: a student learns to guess"
    )
    assert all(diagnose(replace(base, unseen={False: unseen(n)}))[0].name == "dataset" for n in range(61))


@pytest.mark.parametrize(("checked", "known"), [(0, False), (19, False), (20, True), (60, True)])
def test_teachers_that_see_the_gold_answer_are_compared_with_twenty_traces_of_others(
    tmp_path: Path, checked: int, known: bool
) -> None:
    base, others = facts(tmp_path), unseen(checked // 4, checked, "plain")
    limit = wilson(others.unseen, checked)[1] if known else 0.2
    found = {n: diagnose(replace(base, unseen={True: unseen(n), False: others}))[0] for n in range(61)}
    guessing = {n for n, finding in found.items() if finding.name == "hints_guess"}
    assert guessing == {n for n in range(61) if wilson(n, 60)[0] > limit}
    assert ("; without it, " in found[60].problem) is known


def test_more_traces_are_advised_between_three_and_seven_tenths_correct_and_to_teachers_of_one_or_two(
    tmp_path: Path,
) -> None:
    base = questions(kept=20)(twice_asked(facts(tmp_path)))

    def advised(correct: int = 60, samples: int = 2, changed: TraceFacts = base) -> bool:
        teachers = tuple(each.model_copy(update={"samples": samples}) for each in changed.recipe.teachers)
        counts = [correct // 2, correct - correct // 2]
        of = {name: {**SOUND, "correct": count} for name, count in zip(("brief", "structured"), counts, strict=True)}
        asked = replace(changed, teachers=of, recipe=changed.recipe.model_copy(update={"teachers": teachers}))
        return "few_traces" in [each.name for each in diagnose(asked)]

    assert [correct for correct in range(121) if advised(correct)] == list(range(37, 84))  # of 120
    assert [samples for samples in range(1, 6) if advised(samples=samples)] == [1, 2]
    assert not advised(changed=questions(leaked=1)(base))


def test_a_teacher_that_is_cut_is_named_with_its_limit_and_one_that_the_recipe_lacks_without(tmp_path: Path) -> None:
    (finding,) = diagnose(brief(cut=60)(facts(tmp_path)))
    limit = next(each.sampling.max_tokens for each in facts(tmp_path).recipe.teachers if each.name == "brief")
    assert finding.change.startswith(f"teachers.brief.sampling.max_tokens, now {limit}: raise it")
    renamed = replace(facts(tmp_path), teachers={"former": SOUND | {"cut": 60}})
    assert diagnose(renamed)[0].change.startswith("teachers.former.sampling.max_tokens: raise it")
