"""What the filter says of faulty data and settings: gold answers, questions, hints, copies, weights."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from faults.diagnosed_runs import SETTINGS, Asked, diagnosed, wrong
from worlds import run_fixtures
from worlds.run_fixtures import make_image, sample

from distill.data.sample_files import write_samples
from distill.types import ImageRef, Sample, Trace
from filters.apply import apply
from filters.decisions.diagnosis_facts import _REPEATED
from filters.tables.signal_database import Tables, connect


def typed(answer_type: str) -> Asked:
    return lambda asked: [replace(one, answer_type=answer_type) for one in asked]


def test_gold_answers_that_are_not_of_the_type_of_their_rows_are_found(tmp_path: Path) -> None:
    (finding,) = diagnosed(tmp_path, asked=typed("date"))
    assert (
        finding["name"] == "answer_type" and "60 of 60 gold answers of the type 'date' (100 %)" in finding["problem"]
    )


@pytest.mark.parametrize(
    ("outcome", "change"), [("error", "`distill explain` shows the errors"), ("empty_answer", "brief.sampling.stop")]
)
def test_requests_that_gave_no_answer_are_named_by_their_outcome(tmp_path: Path, outcome: str, change: str) -> None:
    def failed(_: Sample, written: Trace) -> Trace:
        return replace(written, answer="", text="", outcome=outcome) if written.teacher == "brief" else written

    (finding,) = diagnosed(tmp_path, failed)
    assert finding["name"] == "no_answer" and finding["problem"].startswith(
        "60 of 60 traces of brief (100 %) have no"
    )
    assert change in finding["change"]


def test_copies_of_a_teacher_that_does_not_draw_its_tokens_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(_: Sample, written: Trace) -> Trace:
        reasoning = "The rows show them all."
        return replace(written, reasoning=reasoning, text=f"<think>{reasoning}</think>{written.answer}")

    assert "copies" not in [finding["name"] for finding in diagnosed(tmp_path / "drawn", same)]
    greedy = run_fixtures.RECIPE.replace("samples = 3", "samples = 3\nsampling = { temperature = 0 }")
    monkeypatch.setattr(run_fixtures, "RECIPE", greedy)
    assert greedy.count("temperature = 0") and diagnosed(tmp_path / "greedy", same)[0]["name"] == "copies"


def test_a_tolerance_that_takes_other_numbers_for_right_is_named(tmp_path: Path) -> None:
    assert (
        diagnosed(tmp_path, more="[filter.answer]\nrelative_tolerance = 1.0\n")[0]["name"]
        == "unusual filter.answer.relative_tolerance"
    )


def test_weights_of_zero_are_named(tmp_path: Path) -> None:
    (finding,) = diagnosed(tmp_path, more='[filter.select]\nweight = "1 - pass_rate"\n')
    assert finding["name"] == "weightless" and finding["problem"].startswith("120 of 120 selected traces (100 %)")
    assert 'filter.select.weight, now "1 - pass_rate"' in finding["change"]


def test_rationales_that_speak_of_the_shown_answer_are_named(tmp_path: Path) -> None:
    def told(_: Sample, written: Trace) -> Trace:
        reasoning = f"The correct answer is given as {written.answer}, and picture {written.id} agrees with it."
        return replace(written, reasoning=reasoning, hinted=True)

    assert diagnosed(tmp_path / "told", told)[0]["name"] == "hints_told"
    hinted = diagnosed(tmp_path / "hinted", lambda _, written: replace(written, hinted=True))
    assert "hints_told" not in [finding["name"] for finding in hinted]


def test_gold_answers_that_stand_in_their_questions_are_found(tmp_path: Path) -> None:
    def told(asked: list[Sample]) -> list[Sample]:
        return [sample(f"{one.question} (answer: {one.answers[0]})", *one.answers) for one in asked]

    (finding,) = diagnosed(tmp_path, asked=told)
    assert finding["name"] == "answer_in_question" and "60 of 60 questions (100 %) contain" in finding["problem"]


@pytest.mark.parametrize("question", ["Is it a tree or a house?", "A: tree, B: house?"])
def test_questions_whose_words_or_options_hold_some_answers_are_no_fault(tmp_path: Path, question: str) -> None:
    def asked(plain: list[Sample]) -> list[Sample]:
        golds, options = ("tree", "house", "both", "none"), ([], ["tree", "house"])
        return [sample(f"{question} {n}", golds[n % 4], options=options[n % 2]) for n in range(len(plain))]

    assert "answer_in_question" not in [each["name"] for each in diagnosed(tmp_path, asked=asked)]


def spelt(asked: list[Sample]) -> list[Sample]:
    """Every third question in three spellings."""
    spellings = (lambda text: text, str.upper, lambda text: f"  {text.rstrip('?')}  ...")
    return [sample(spell(one.question), *one.answers) for one in asked[::3] for spell in spellings]


@pytest.mark.parametrize("signals", ['"answer"', '"answer", "question"'])
def test_questions_in_several_spellings_are_found_with_and_without_their_signal(tmp_path: Path, signals: str) -> None:
    settings = f"[filter]\nsignals = [{signals}]\n"
    finding = diagnosed(tmp_path, asked=spelt, settings=settings)[0]
    assert finding["name"] == "duplicates" and "40 of 60 questions (67 %) repeat another one" in finding["problem"]


def test_a_question_about_other_images_or_options_is_no_repetition(tmp_path: Path) -> None:
    images = [ImageRef(sha256=f"{number:064x}", path=f"{number}.png") for number in range(3)]
    samples = [sample("What is it?", images=[image]) for image in images]
    samples += [sample("What is it?", images=images[:2]), sample("What is it?"), sample("What is it", options=["a"])]
    for again, count in (([], 0), ([sample("what IS it??", images=images[1:2])], 1)):
        write_samples(tmp_path / "samples.parquet", [*samples, *again])
        database = connect(Tables(signals=()), more={"samples": tmp_path / "samples.parquet"})
        assert database.execute(_REPEATED).fetchall() == [(count,)]


def test_a_rule_that_takes_a_whole_domain_is_named_and_more_traces_are_not_asked_for(tmp_path: Path) -> None:
    def half_are_charts(asked: list[Sample]) -> list[Sample]:
        return [replace(one, domain="charts" if n % 2 else "scenes") for n, one in enumerate(asked)]

    rule = '[[filter.rules]]\nname = "strict"\ndrop = "{}"\n'
    found = diagnosed(tmp_path / "rule", more=rule.format("domain = 'charts'"), asked=half_are_charts)
    assert [finding["name"] for finding in found] == ["rows_lost"]
    assert "The rule strict loses rows of the domain 'charts' (teacher 'brief') far more often" in found[0]["problem"]
    assert found[0]["change"].startswith('filter.rules, name = "strict"')
    left = orjson.loads((tmp_path / "rule/run/filter/health.json").read_bytes())["rows_left"]
    counts = {step["step"]: step["groups"]["domain"] for step in left}
    assert counts["generate"] == {"charts": 30, "scenes": 30} and counts["the rule strict"] == {"scenes": 60}
    (good,) = diagnosed(tmp_path / "none", more=rule.format("domain = 'digits'"), asked=half_are_charts)
    assert good["name"] == "dataset"


def test_a_rule_on_verdicts_that_takes_a_domain_points_to_what_comes_before_it(tmp_path: Path) -> None:
    asked = [
        sample(f"How many dots has number {n}?", str(n % 7), domain=("charts", "scenes")[n % 2]) for n in range(60)
    ]
    traces = [
        run_fixtures.trace(
            one, "no" if one.domain == "charts" else one.answers[0], f"Row {n} is it.", teacher="brief"
        )
        for n, one in enumerate(asked)
    ]
    run_fixtures.generate_folder(tmp_path / "run", asked, traces)
    apply(run_fixtures.recipe(tmp_path, SETTINGS), tmp_path / "run")
    found = orjson.loads((tmp_path / "run/filter/health.json").read_bytes())["diagnosis"]
    (lost,) = (finding for finding in found if finding["name"] == "rows_lost")
    assert "The rule wrong_answer loses rows of the domain 'charts'" in lost["problem"]
    assert lost["change"].startswith("the gold answers, the images or the teacher's prompt of these rows")


def test_questions_of_one_domain_that_have_no_trace_are_named(tmp_path: Path) -> None:
    asked = [
        sample(f"How many dots has number {n}?", str(n % 7), domain=("charts", "scenes")[n % 2]) for n in range(60)
    ]
    traces = [
        run_fixtures.trace(one, one.answers[0], f"Row {n} shows them all.", teacher="brief")
        for n, one in enumerate(asked)
        if one.domain == "scenes"
    ]
    run_fixtures.generate_folder(tmp_path / "run", asked, traces)
    apply(run_fixtures.recipe(tmp_path, SETTINGS), tmp_path / "run")
    (finding,) = orjson.loads((tmp_path / "run/filter/health.json").read_bytes())["diagnosis"]
    assert finding["name"] == "rows_lost" and "Generate loses rows of the domain 'charts'" in finding["problem"]


def test_replies_that_go_on_after_their_answer_need_a_stop_and_no_larger_limit(tmp_path: Path) -> None:
    def on(_: Sample, written: Trace) -> Trace:
        answer = written.answer + "<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\nI am.<|im"
        return (
            replace(written, answer=answer, outcome="truncated_answer", finish_reason="length")
            if written.k
            else written
        )

    def long(_: Sample, written: Trace) -> Trace:
        answer = f"The picture shows rows of dots, which are counted one after the other: {written.answer}, and the"
        return replace(written, answer=answer, outcome="truncated_answer") if written.k else written

    (found,) = diagnosed(tmp_path / "on", on)
    assert found["name"] == "replies_go_on" and "60 of 120 traces of brief, structured (50 %)" in found["problem"]
    assert found["change"].startswith("teachers.") and ".sampling.stop" in found["change"]
    assert diagnosed(tmp_path / "long", long)[0]["name"] == "traces_cut"


@pytest.mark.parametrize(("tokens", "name"), [(1, "images_coarse"), (0, "images_unseen"), (64, "")])
def test_prompts_with_few_image_tokens_explain_wrong_answers(tmp_path: Path, tokens: int, name: str) -> None:
    def shown(asked: list[Sample]) -> list[Sample]:
        return [replace(one, images=(make_image(tmp_path, n),)) for n, one in enumerate(asked)]

    def often_wrong(_: Sample, written: Trace) -> Trace:
        told = replace(written, usage=replace(written.usage, image=tokens))
        return wrong(told, str(int(written.answer) + 1 + written.k)) if int(written.id[:2], 16) % 3 else told

    found = {each["name"]: each for each in diagnosed(tmp_path, often_wrong, asked=shown)}
    assert (name in found) if name else not {"images_coarse", "images_unseen"} & found.keys()
    assert name != "images_coarse" or found[name]["certainty"] == "likely"
