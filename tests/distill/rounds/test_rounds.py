"""The parts of rounds: the split by image, the verdicts with their guards, the questions that go back."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from torch.nn import Parameter
from worlds import student_worlds as worlds
from worlds.run_fixtures import generate_folder, trace

from distill.ablation.arms import arm
from distill.artifacts.files import describe
from distill.artifacts.journal import write_jsonl
from distill.artifacts.manifest import Manifest
from distill.checks.context import CheckContext
from distill.checks.rounds import check_rounds
from distill.commands.whole_run import finish_stage
from distill.data import reader
from distill.errors import DataError, DistillError, RecipeError, StaleError, TooFewRows
from distill.planning.compared_sources import training_sources
from distill.planning.plan import training_plan
from distill.planning.redo import compare_recipes
from distill.planning.redo_text import redo_text
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.rounds import HELD_OUT, Rounds
from distill.rounds.make_round import RoundSteps, make_round
from distill.rounds.returned_questions import write_returned
from distill.rounds.round_recipes import evaluation_recipe
from distill.rounds.verdicts import (
    ACCURACY_LOST,
    BETTER,
    COMMON_ANSWER,
    LONGER_REPLIES,
    NOT_BETTER,
    SMALL_GAIN,
    judge_round,
    measure,
)
from distill.types import Sample
from filters.apply import apply
from student.inference.scoring import score_reply
from student.training.loop.finite_checks import require_finite_weights
from teacher.messages.prompts import prompt

QUESTIONS = 40


def replies(right: int, *, length: int = 20, answer: str = "") -> list[dict[str, Any]]:
    """Judged replies to 40 questions whose gold answers are 0 to 9 in turn; `answer`: what all the wrong ones say."""
    result = []
    for number in range(QUESTIONS):
        gold = str(number % 10)
        said = gold if number < right else (answer or f"{number + 100}")
        sample = Sample(id=f"{number:03d}", images=(), question="How many?", answers=(gold,), answer_type="number")
        text = f"<think>\n{'one ' * length}\n</think>\n\n{said}"
        reply = {"text": text, "tokens": length + 4, "rationale_tokens": length, "truncated": False}
        result.append(dict(score_reply(sample, reply, plain=False, relative_tolerance=0.0)))
    return result


def verdict(first: list[Any], now: list[Any], best: list[Any] | None = None, **settings: Any) -> Any:
    return judge_round(Rounds(count=1, **settings), first, best or first, now)


def test_a_round_that_gains_is_better_and_one_that_gains_too_little_is_not() -> None:
    assert verdict(replies(10), replies(20)).kind == BETTER
    assert verdict(replies(10), replies(10)).kind == SMALL_GAIN
    told = verdict(replies(10), replies(20), min_gain_points=25.0)
    assert told.kind == SMALL_GAIN and "+25.0 points" in told.text and told.text.endswith("asks for more than 25")


def test_a_round_that_gains_nothing_is_not_better_whatever_the_recipe_allows() -> None:
    for now in (replies(10), replies(9)):
        assert verdict(replies(10), now, min_gain_points=-100.0).kind == NOT_BETTER
    assert verdict(replies(10), replies(11), min_gain_points=-100.0).kind == BETTER


def test_a_round_is_compared_with_the_best_one_before_it_and_not_with_the_first() -> None:
    assert verdict(replies(10), replies(20), best=replies(24)).kind == SMALL_GAIN


def test_a_round_that_loses_accuracy_ends_the_rounds() -> None:
    told = verdict(replies(30), replies(10))
    assert told.kind == ACCURACY_LOST and "-50.0 points" in told.text


def test_replies_that_grow_end_the_rounds_even_where_accuracy_rises() -> None:
    longer = replies(30, length=40)
    told = verdict(replies(10), longer)
    assert told.kind == LONGER_REPLIES and "44 tokens, and 24 in round 0" in told.text
    assert verdict(replies(10), longer, max_length_growth=1.0).kind == BETTER
    # Growth is counted from round 0: rounds that each grow a little are found, too.
    assert verdict(replies(10), longer, best=replies(20, length=34)).kind == LONGER_REPLIES


def test_a_student_that_says_one_answer_to_most_questions_ends_the_rounds() -> None:
    told = verdict(replies(4), replies(12, answer="7"))
    assert told.kind == COMMON_ANSWER and "'7'" in told.text and "10 % of the gold answers" in told.text
    # Where most gold answers are the same, so may the replies be.
    same = [{**reply, "gold": ["7"]} for reply in replies(12, answer="7")]
    assert verdict(replies(4), same).kind == BETTER


def test_replies_without_an_answer_are_no_common_answer() -> None:
    unanswered = [{**reply, "answer": ""} if reply["verdict"] == "wrong" else reply for reply in replies(12)]
    assert (measure(unanswered).common_answer, measure(unanswered).common_share) == ("0", 2 / QUESTIONS)
    assert verdict(replies(4), unanswered).kind == BETTER
    # They hide no common answer of a later round either.
    assert verdict(unanswered, replies(12, answer="7")).kind == COMMON_ANSWER
    assert measure([{**reply, "answer": " "} for reply in replies(4)]).common_share == 0


def test_a_student_whose_server_counts_no_tokens_is_judged_without_them() -> None:
    uncounted = [{**reply, "tokens": None} for reply in replies(20)]
    assert measure(uncounted).median_tokens is None
    assert verdict(replies(10), uncounted).kind == BETTER


def test_replies_to_other_questions_are_not_compared() -> None:
    with pytest.raises(ValueError, match="other validation questions"):
        verdict(replies(10), replies(10)[1:])


# --- the recipe -------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    worlds.data(tmp_path, 30)
    return tmp_path


def recipe(place: Path, more: str) -> Recipe:
    return worlds.recipe(place, worlds.stage("reason"), more=more)


def test_rounds_split_their_validation_questions_off_by_image(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\nhold_out = 0.4\n")
    assert made.rounds.validation == HELD_OUT
    assert made.data["questions"].part == (0.0, 0.6) and made.data[HELD_OUT].part == (0.6, 1.0)
    parts = [{sample.id for sample in reader.samples(made, name)} for name in ("questions", HELD_OUT)]
    whole = {sample.id for sample in reader.samples(recipe(place, ""))}
    assert parts[0] | parts[1] == whole and not parts[0] & parts[1] and 4 < len(parts[1]) < 20
    # The resolved recipe in the run directory says the same.
    (place / "resolved.toml").write_text(made.to_toml())
    resolved = load(place / "resolved.toml")
    assert {name: source.part for name, source in resolved.data.items()} == {
        name: source.part for name, source in made.data.items()
    }
    assert resolved.rounds == made.rounds


def test_questions_about_one_image_are_in_one_part(place: Path) -> None:
    rows = [{"image": f"{number % 5}.png", "question": f"Number {number}?", "answer": "1"} for number in range(30)]
    (place / "questions.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    made = recipe(place, "[rounds]\ncount = 1\nhold_out = 0.5\n")
    parts = [{sample.images[0].sha256 for sample in reader.samples(made, name)} for name in ("questions", HELD_OUT)]
    assert not parts[0] & parts[1] and len(parts[0] | parts[1]) == 5


def test_without_rounds_a_recipe_stays_as_it_is(place: Path) -> None:
    made = recipe(place, "")
    assert made.rounds.count == 0 and made.data["questions"].part == (0.0, 1.0) and HELD_OUT not in made.data


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('validation = "test"', r"rounds.validation = 'test' is the test set"),
        ('validation = "questions"', "another source than"),
        ('questions = "elsewhere"', "rounds.questions"),
        ('questions = "test"', r"rounds.questions = 'test' is the test set"),
        ('questions = "more"\nvalidation = "more"\n[data.more]\nsource = "questions.jsonl"', "name two sources"),
        ('stage = "other"', "rounds.stage.*a round trains a stage that learns rationales"),
        ('teachers = ["nobody"]', "rounds.teachers"),
        (
            'samples = 2\n[[teachers]]\nname = "b"\nmodel = "owner/b"\nsamples = 4\nuntil = { correct = 3 }',
            "teachers.b: until.correct = 3 is more than rounds.samples = 2",
        ),
        (
            'samples = 3\n[[teachers]]\nname = "b"\nmodel = "owner/b"\nsamples = 4\nchoices = 2',
            "teachers.b: choices = 2 must divide rounds.samples = 3",
        ),
        ('prompt = "Look again."', "prompt must contain"),
    ],
)
def test_rounds_that_cannot_be_made_are_refused_with_the_key(place: Path, more: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(place, f"[rounds]\ncount = 1\n{more}\n")


@pytest.mark.parametrize(
    ("more", "message"), [('stage = "other"', "rounds.stage"), ('teachers = ["x"]', "rounds.teachers")]
)
def test_names_of_rounds_are_checked_before_there_are_any(place: Path, more: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(place, f"[rounds]\n{more}\n")


def test_rounds_need_a_stage_that_learns_rationales(place: Path) -> None:
    with pytest.raises(RecipeError, match="trains a stage again that learns rationales"):
        worlds.recipe(place, worlds.stage("plain", "questions"), more="[rounds]\ncount = 1\n")


def test_an_ablation_of_a_recipe_with_rounds_makes_none(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 2\n")
    for name in ("distilled", "untouched"):
        assert arm(made, name, seed=1).recipe.rounds.count == 0


def test_a_part_without_any_image_is_named(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\nhold_out = 0.0001\n")
    with pytest.raises(DataError, match="no rows whose image falls into part"):
        list(reader.samples(made, HELD_OUT))


# --- the questions that go back ---------------------------------------------------------------------------------


def answered(place: Path, made: Recipe, verdicts: str, name: str = "answers", *, source: str = "questions") -> Path:
    """A finished evaluation in which the questions of a source got these verdicts in turn."""
    samples = list(reader.samples(made, source))
    kinds = [
        ("correct", "wrong", "undecided")["cwu".index(verdicts[at % len(verdicts)])] for at in range(len(samples))
    ]
    lines = [
        {"sample_id": sample.id, "verdict": kind, "text": f"no {{answer}} {at}"}
        for at, (sample, kind) in enumerate(zip(samples, kinds, strict=True))
    ]
    folder = place / name / "eval"
    write_jsonl(folder / "predictions.jsonl", lines)
    outputs = {"predictions.jsonl": describe(folder / "predictions.jsonl", len(lines))}
    Manifest(stage="eval", fingerprint=f"answered {verdicts}", fields={}, outputs=outputs).write(folder)
    return place / name


def test_questions_go_back_with_the_same_ids_and_the_wrong_reply_and_undecided_ones_stay(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\n")
    manifest = write_returned(made, [answered(place, made, "cwu")], place / "back")
    assert manifest.counts["returned"] == manifest.counts["wrong"] > 5
    assert manifest.counts["undecided"] > 5
    path = place / "back.toml"
    path.write_text(f'[data.questions]\nsource = "{place}/back/questions.parquet"\nformat = "returned"\n')
    back = list(reader.samples(load(path)))
    originals = {sample.id: sample for sample in reader.samples(made)}
    for sample in back:
        original = originals[sample.id]
        assert (sample.question, sample.answers, sample.domain) == (
            original.question,
            original.answers,
            original.domain,
        )
        assert sample.meta["reply"].startswith("no {answer} ")
    assert len(back) == manifest.counts["returned"]


def test_a_round_whose_few_traces_cannot_train_a_stage_is_the_end_of_the_rounds(place: Path) -> None:
    run = place / "run"
    made = recipe(place, "[rounds]\ncount = 1\n")
    answered(place, made, "w", "run/rounds/1/answers")
    Manifest(stage="train reason", fingerprint="t", fields={}, counts={"steps": 6}).write(run / "train" / "reason")

    def select(_: Recipe, folder: Path) -> None:
        Manifest(stage="filter", fingerprint="f", fields={}, counts={"selected": 3}).write(folder / "filter")

    def train(_: Recipe, folder: Path) -> None:
        raise TooFewRows("validation.hold_out = 64 keeps out all 3 rows")

    select(made, run)
    steps = RoundSteps(ask=lambda *_: None, generate=lambda *_: None, filter_traces=select, train=train)
    ended = make_round(made, run, 1, steps)
    assert ended.traces == 3 and ended.returned > 5
    assert ended.ended == "there is no round 1: validation.hold_out = 64 keeps out all 3 rows"


@pytest.mark.parametrize("kind", [DistillError, StaleError])
def test_the_error_of_a_stage_in_a_round_names_no_command_of_the_first_pass(
    place: Path, kind: type[DistillError]
) -> None:
    run = place / "run"
    made = recipe(place, "[rounds]\ncount = 2\n")
    answered(place, made, "w", "run/rounds/1/answers")
    Manifest(stage="train reason", fingerprint="t", fields={}, counts={"steps": 6}).write(run / "train" / "reason")

    def select(_: Recipe, folder: Path) -> None:
        Manifest(stage="filter", fingerprint="f", fields={}, counts={"selected": 3}).write(folder / "filter")

    def train(recipe: Recipe, _: Path) -> None:
        if kind is DistillError:
            require_finite_weights([("head", Parameter(torch.tensor(math.nan)))], 3, recipe.stages[0])
        raise StaleError("made with other settings", "make it again: `distill train --stage reason --fresh`")

    def finish(recipe: Recipe, folder: Path) -> None:
        finish_stage(train, recipe, folder, redo_stale=False)

    select(made, run)
    steps = RoundSteps(ask=lambda *_: None, generate=lambda *_: None, filter_traces=select, train=finish)
    with pytest.raises(kind) as caught:
        make_round(made, run, 1, steps)
    said = str(caught.value)
    assert ("the weights head contain" in said) == (kind is DistillError) and "distill train" not in said
    assert f"round 1 in {run}/rounds/1" in said and "`distill run --redo-stale`" in said
    assert "rounds.count = 0" in said


def test_a_round_of_which_the_filter_keeps_nothing_is_the_end_of_the_rounds(place: Path) -> None:
    run = place / "run"
    made = recipe(place, "[rounds]\ncount = 1\n")
    answered(place, made, "w", "run/rounds/1/answers")
    Manifest(stage="train reason", fingerprint="t", fields={}, counts={"steps": 6}).write(run / "train" / "reason")
    Manifest(stage="filter", fingerprint="f", fields={}, counts={"selected": 3}).write(run / "filter")

    def ask(planned: Recipe, folder: Path) -> None:
        asked = list(reader.samples(planned))
        cut = [replace(trace(one, "", "I look at"), outcome="truncated_answer") for one in asked]
        generate_folder(folder, asked, cut)

    def filter_traces(planned: Recipe, folder: Path) -> None:
        settings = planned.filter.model_copy(update={"signals": ("answer",)})
        apply(planned.model_copy(update={"filter": settings}), folder)

    steps = RoundSteps(ask=lambda *_: None, generate=ask, filter_traces=filter_traces, train=lambda *_: None)
    for _ in range(2):  # the same command finds the same
        made_round = make_round(made, run, 1, steps)
        assert made_round.traces == 0 and made_round.returned > 5
        assert made_round.ended.startswith(
            f"there is no round 1: the filter kept no new trace for {made_round.returned} questions; `distill filter "
        )


def test_failures_are_sought_among_the_questions_of_another_source(place: Path) -> None:
    source = '"questions.jsonl"\nimages_root = "images"'
    made = recipe(
        place, f'[rounds]\ncount = 1\nquestions = "more"\n[data.more]\nsource = {source}\npart = [0.0, 0.4]\n'
    )
    asked = {sample.id for sample in reader.samples(made, "more")}
    assert evaluation_recipe(made, place, 1, made.rounds.questions).eval.data == "more"
    assert 0 < len(asked) < len(list(reader.samples(made, "questions")))
    write_returned(made, [answered(place, made, "w", source="more")], place / "back")
    path = place / "back.toml"
    path.write_text(f'[data.questions]\nsource = "{place}/back/questions.parquet"\nformat = "returned"\n')
    assert {sample.id for sample in reader.samples(load(path))} == asked
    assert "more" in training_sources(made)


def test_questions_whose_source_was_corrected_are_written_again(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\nreturned = 4\n")
    first = write_returned(made, [answered(place, made, "cw")], place / "back")
    source = place / "questions.jsonl"
    rows = [orjson.loads(line) | {"meta": {"table": {"a": 1}}} for line in source.read_bytes().splitlines()]
    source.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    run = answered(place, made, "cw")
    evaluated = Manifest.read(run / "eval")
    assert evaluated is not None
    replace(evaluated, fingerprint="of the corrected source").write(run / "eval")
    again = write_returned(made, [run], place / "back")
    assert again.counts == first.counts and again.outputs != first.outputs


def test_the_same_replies_give_the_same_bytes_and_new_replies_new_questions(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\nreturned = 4\n")
    first = write_returned(made, [answered(place, made, "cw")], place / "back")
    assert first.counts["returned"] == 4
    assert write_returned(made, [place / "answers"], place / "back") == first
    again = write_returned(made, [place / "answers"], place / "other")
    assert again.outputs == first.outputs
    (place / "back" / "questions.parquet").write_bytes(b"damaged")
    assert write_returned(made, [place / "answers"], place / "back").outputs == first.outputs
    assert write_returned(made, [answered(place, made, "wc")], place / "back").outputs != first.outputs
    none = write_returned(made, [answered(place, made, "c")], place / "back")
    assert none.counts["returned"] == 0 and not (place / "back" / "questions.parquet").exists()


def test_with_several_attempts_a_question_goes_back_by_the_share_of_right_ones_the_worst_first(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\nattempts = 3\n")
    attempts = [
        answered(place, made, said, f"answers-{number}") for number, said in enumerate(("wwcu", "wwcu", "wcwu"))
    ]

    def returned(**settings: float) -> Manifest:
        rounds = made.rounds.model_copy(update=settings)
        return write_returned(made.model_copy(update={"rounds": rounds}), attempts, place / "back")

    count = len(list(reader.samples(made)))
    by_kind = [len(range(kind, count, 4)) for kind in range(4)]  # right of three: none, one, two; undecided
    assert returned(most_right=0.0).counts["returned"] == by_kind[0]
    assert returned(most_right=0.34).counts["returned"] == by_kind[0] + by_kind[1]
    assert returned(most_right=0.67).counts["returned"] == sum(by_kind[:3])
    few = returned(most_right=0.67, returned=by_kind[0])
    never_right = [sample.id for sample in list(reader.samples(made))[::4]]
    assert few.counts["replies"] == 3 * count
    back = place / "back.toml"
    back.write_text(f'[data.questions]\nsource = "{place}/back/questions.parquet"\nformat = "returned"\n')
    assert sorted(sample.id for sample in reader.samples(load(back))) == sorted(never_right)


def test_a_share_of_right_replies_that_is_just_allowed_goes_back_whatever_its_float(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\nattempts = 50\nmost_right = 0.58\n")
    attempts = [answered(place, made, "c" if number < 29 else "w", f"answers-{number}") for number in range(50)]
    assert 0.58 * 50 < 29
    assert write_returned(made, attempts, place / "back").counts["returned"] > 5


def test_questions_without_an_image_go_back_beside_those_with_one(place: Path) -> None:
    said = [{"from": "human", "value": "How many days has a week?"}, {"from": "gpt", "value": "7"}]
    seen = [{"from": "human", "value": "<image>\nHow many squares?"}, {"from": "gpt", "value": "4"}]
    rows = [{"conversations": said}, {"conversations": seen, "image": "1.png"}]
    (place / "questions.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    path = place / "mixed.toml"
    path.write_text('[data.questions]\nsource = "questions.jsonl"\nimages_root = "images"\nformat = "llava"\n')
    made = load(path)
    write_returned(made, [answered(place, made, "w")], place / "back")
    path.write_text(f'[data.questions]\nsource = "{place}/back/questions.parquet"\nformat = "returned"\n')
    assert [len(sample.images) for sample in reader.samples(load(path))] == [0, 1]


def test_a_teacher_of_a_round_is_shown_the_reply_as_it_is(place: Path) -> None:
    made = recipe(place, '[[teachers]]\nname = "t"\nmodel = "owner/t"\nprompt = "{question} Not: {reply}"\n')
    asked = Sample(id="a", images=(), question="How many?", meta={"reply": "{answer} 3"})
    assert prompt(made.teachers[0], asked).text == "How many? Not: {answer} 3"
    assert prompt(made.teachers[0], Sample(id="b", images=(), question="How many?")).text == "How many? Not: "


# --- before a run -----------------------------------------------------------------------------------------------

TEACHERS = """
[[teachers]]
name = "small"
model = "owner/small"
[[teachers]]
name = "large"
model = "owner/large"
after = "small"
sampling.temperature = 0.0
"""


def checked(place: Path, rounds: str, teachers: str = TEACHERS) -> list[tuple[str, str]]:
    count = "" if "count = " in rounds else "count = 1\n"
    made = recipe(place, f"{teachers}\n[rounds]\n{count}{rounds}\n")
    return [
        (result.state, result.message)
        for result in check_rounds(CheckContext(made, place / "run", gpu_name=None, seconds=60.0))
    ]


def test_a_check_finds_rounds_whose_teachers_cannot_be_asked(place: Path) -> None:
    ((state, message),) = checked(place, 'teachers = ["large"]')
    assert state == "problem" and "teachers.large.after" in message
    assert checked(place, "", teachers="") == [("problem", "the recipe has no [[teachers]], and rounds ask them")]


def test_a_check_warns_of_teachers_that_would_write_the_same_again(place: Path) -> None:
    states = checked(place, "")
    assert [state for state, _ in states] == ["warning", "ok"] and states[0][1].startswith(
        "large with temperature = 0"
    )
    assert [state for state, _ in checked(place, 'prompt = "{question} Not: {reply}"')] == ["ok"]
    other = 'questions = "more"\n[data.more]\nsource = "questions.jsonl"'
    assert [state for state, _ in checked(place, other)] == ["ok"]
    assert "in the round before" in checked(place, f"count = 2\n{other}")[0][1]


def test_a_plan_says_what_rounds_add(place: Path) -> None:
    worlds.parts(place)
    made = recipe(place, "[rounds]\ncount = 3\nsteps_share = 0.5\nreturned = 7\n")
    text = training_plan(made, place / "run")
    assert "rounds: up to 3 after round 0, each 3 steps" in text and "at most 7 questions go back" in text


def test_a_change_of_a_round_says_that_rounds_are_made_again_and_a_recipe_without_rounds_has_none(
    place: Path,
) -> None:
    plain, one = (
        recipe(place, ""),
        recipe(place, '[data.own]\nsource = "test.jsonl"\n[rounds]\ncount = 1\nvalidation = "own"\n'),
    )
    changed = recipe(
        place, '[data.own]\nsource = "test.jsonl"\n[rounds]\ncount = 1\nvalidation = "own"\nnew_share = 0.3\n'
    )
    assert compare_recipes(one, changed).causes == {"rounds": ["rounds.new_share"]}
    assert "rounds" not in compare_recipes(plain, recipe(place, "[rounds]\nnew_share = 0.3\n")).causes


def test_a_plan_names_the_command_that_makes_rounds_again_where_there_are_some(place: Path) -> None:
    made = recipe(place, "[rounds]\ncount = 1\n")
    changed = recipe(place, "[rounds]\ncount = 1\nnew_share = 0.3\n")
    command = f"distill run {changed.path} --run {place / 'run'} --set rounds.new_share=0.3 --redo-stale"
    assert command not in redo_text(made, changed, place / "run", ["rounds.new_share=0.3"])
    (place / "run" / "rounds").mkdir(parents=True)
    assert command in redo_text(made, changed, place / "run", ["rounds.new_share=0.3"])
