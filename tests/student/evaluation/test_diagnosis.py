"""What training and evaluation say of themselves: faults are named with their recipe line, sound runs have none."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from worlds.run_fixtures import sample

from distill.commands.status import evaluation, training
from distill.diagnosis.odd_images import OddImages
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.reports.findings import Finding, chosen, read_findings
from student.evaluation import diagnosis as of_replies
from student.models.checkpoint_faults import CheckpointFault
from student.training import diagnosis as of_stage

STAGE = """
[data.test]
source = "t.jsonl"
[student]
model = "m"
[[stages]]
name = "reason"
data = "traces"
train = ["projector", "language"]
"""
PARTS = STAGE.replace('model = "m"', 'vision = "v"\nlanguage = "l"\npixel_shuffle = 2')


def read(folder: Path, text: str, more: str = "") -> Recipe:
    (folder / "recipe.toml").write_text(text + more, encoding="utf-8")
    return load(folder / "recipe.toml")


def log(*losses: float, epoch: float = 2.0, right: float = 0.9, steps: int = 200) -> list[dict[str, Any]]:
    return [
        {"step": n * steps // len(losses), "steps": steps, "epoch": epoch, "loss": loss, "token_accuracy": right}
        for n, loss in enumerate(losses, 1)
    ]


def of_training(folder: Path, losses: list[dict[str, Any]], text: str = STAGE, more: str = "", **facts: Any) -> list:
    recipe = read(folder, text, more)
    values = {"counts": {"rows": 400}, "measured": []} | facts
    found = of_stage.diagnose(of_stage.StageFacts(recipe=recipe, stage=recipe.stages[0], log=losses, **values))
    return [finding.name for finding in found]


PLAIN = [0.364, 0.366, 0.355, 0.392, 0.354, 0.351]
FALLING = [2.0, 1.5, 1.1, 0.9, 0.7, 0.6, 0.55, 0.5]


def test_settings_under_which_a_stage_learns_little_are_named(tmp_path: Path) -> None:
    adapters = "[stages.lora]\nrank = 64\nalpha = {}\n"
    assert of_training(tmp_path, log(*FALLING), more=adapters.format(1)) == ["unusual stages.*.lora.alpha"]
    assert of_training(tmp_path, log(*FALLING), more=adapters.format(64)) == ["learned"]
    assert of_training(tmp_path, log(*FALLING), more="no_think = 1.0\n") == ["unusual stages.*.no_think"]
    decay = "learning_rate = 1e-3\nweight_decay = {}\n"
    assert of_training(tmp_path, log(*FALLING), more=decay.format(100.0)) == ["unusual stages.*.weight_decay"]
    assert of_training(tmp_path, log(*FALLING), more=decay.format(0.1)) == ["learned"]
    assert of_training(tmp_path, log(*FALLING), more="no_think = 0.3\n") == ["learned"]


def test_teachers_from_whose_traces_no_stage_learns_are_named(tmp_path: Path) -> None:
    taught = '[[teachers]]\nname = "big"\nmodel = "m"\nbackend = "embedded"\n[data.questions]\nsource = "q.jsonl"\n'
    assert of_training(tmp_path, log(*FALLING), taught + STAGE) == ["learned"]
    other = STAGE.replace('data = "traces"', 'data = "test"')
    assert of_training(tmp_path, log(*FALLING), taught + other) == ["no_traces_learned"]
    assert of_training(tmp_path, log(*FALLING), other) == ["learned"]


def test_early_stopping_that_came_too_early_is_named(tmp_path: Path) -> None:
    stopping = 'validation = { data = "test", metric = "accuracy", patience = 2, every_steps = 5 }\n'
    short = [line | {"step": line["step"] // 10} for line in log(*FALLING, epoch=0.1)]
    assert of_training(tmp_path, short, more=stopping) == ["stopped_early"]
    assert "stopped_early" not in of_training(tmp_path, log(*FALLING), more=stopping)
    assert "stopped_early" not in of_training(tmp_path, short)


def test_rows_that_are_seen_too_often_or_hardly_at_all_are_named(tmp_path: Path) -> None:
    assert of_training(tmp_path, log(*FALLING, epoch=19.0)) == ["learned"]
    assert of_training(tmp_path, log(*FALLING, epoch=60.0)) == ["few_rows"]
    recipe = read(tmp_path, STAGE, "limit = 12\nreplay = { test = 0.97 }\n")
    counts = {"rows": 40, "replayed": 28}
    facts = of_stage.StageFacts(
        recipe=recipe, stage=recipe.stages[0], log=log(*FALLING, epoch=60.0), counts=counts, measured=[]
    )
    heavy, rows, few = of_stage.diagnose(facts)
    assert rows.problem.startswith(
        "stages.reason.limit is 12, and 100 or more is usual: use only this number of rows"
    )
    assert "each of its 12 own rows 60 times" in few.problem and few.change.startswith("stages.reason.limit, now 12")
    assert heavy.problem.startswith("stages.reason.replay is 0.97, and 0 to 0.5 is usual")


def test_a_language_model_that_no_stage_trains_is_named(tmp_path: Path) -> None:
    frozen = STAGE.replace('["projector", "language"]', '["projector"]')
    assert of_training(tmp_path, log(*FALLING), frozen)[0] == "language_frozen"
    assert of_training(tmp_path, log(*FALLING), frozen.replace('data = "traces"', 'data = "test"')) == ["learned"]


@pytest.mark.parametrize(
    ("losses", "name"),
    [
        (log(*FALLING), "learned"),
        (log(*FALLING, epoch=0.3), "learned"),
        (log(0.3, 0.29, 0.28, 0.28), "learned"),
        (log(2.0, 1.9, 1.8, 1.7, steps=4, epoch=0.1, right=0.4), "few_steps"),
        (log(*[2.0 - n / 10 for n in range(12)], epoch=0.2, right=0.5), "few_steps"),
        (log(1.5, 4.0, 6.0, 3.0, 2.9, 2.8, 2.8, 2.8), "learning_rate_high"),
        (log(1.5, 1.6, 1.8, 2.0), "learning_rate_high"),
        (log(1.5, 1.49, 1.48, 1.47, 1.46, right=0.6), "learning_rate_low"),
    ],
)
def test_the_loss_tells_what_is_wrong_with_the_steps(tmp_path: Path, losses: list, name: str) -> None:
    assert of_training(tmp_path, losses) == [name]


def test_a_student_that_guesses_at_its_first_step_has_random_weights(tmp_path: Path) -> None:
    guessing = log(6.2, 5.0, 4.0, 3.5, right=0.05)
    assert "random_weights" in of_training(tmp_path, guessing)
    assert "random_weights" not in of_training(tmp_path, log(6.2, 5.0, 4.0, 3.5, right=0.5))


def test_pixels_that_no_tower_is_trained_on_are_named(tmp_path: Path) -> None:
    fault = CheckpointFault(name="pixels_unusual", problem="Pixels reach the tower as they are", change="the size")
    assert "pixels_unusual" in of_training(tmp_path, log(*FALLING), checkpoint=[fault])


def problem(folder: Path, losses: list[dict[str, Any]]) -> str:
    recipe = read(folder, STAGE)
    facts = of_stage.StageFacts(recipe=recipe, stage=recipe.stages[0], log=losses, counts={"rows": 400}, measured=[])
    (finding,) = of_stage.diagnose(facts)
    return str(finding.problem)


def test_a_loss_that_did_not_fall_is_not_said_to_have_fallen(tmp_path: Path) -> None:
    assert "The loss fell from 2.00 to 0.53" in problem(tmp_path, log(*FALLING))
    assert "The loss went from 0.30 to 0.32" in problem(tmp_path, log(0.3, 0.3, 0.31, 0.32))
    assert "The loss did not fall in 200 steps (1.50 to 1.60" in problem(tmp_path, log(1.5, 1.5, 1.5, 1.6, right=0.6))
    lost = log(1.5, 1.4, 1.3, 1.2)
    lost[3]["loss"] = None
    assert problem(tmp_path, lost) == "The loss is not a number at step 200: the weights are destroyed"


@pytest.mark.parametrize(
    ("form", "name"), [((1.7, 0.001), "learned"), ((1.7, 1.5), "learning_rate_low"), ((8.3, 0.9), "chat_template")]
)
def test_think_tags_that_are_not_learned_are_named(tmp_path: Path, form: tuple[float, float], name: str) -> None:
    lines = log(*FALLING)
    for line, loss in zip((lines[0], lines[-1]), form, strict=True):
        line["losses"] = {"format": loss}
    assert of_training(tmp_path, lines) == [name]
    unlearned = "[stages.loss]\nformat = 0.0\n"
    assert of_training(tmp_path, lines, STAGE, unlearned) == ["unusual stages.*.loss.format"]


def test_settings_under_which_no_data_teaches_are_named(tmp_path: Path) -> None:
    assert of_training(tmp_path, log(*FALLING), PARTS) == ["learned"]
    assert of_training(tmp_path, log(*FALLING), PARTS.replace('"projector", ', "")) == ["projector_frozen"]
    assert of_training(tmp_path, log(*FALLING), STAGE, "[stages.loss]\nanswer = 0.0\n") == [
        "unusual stages.*.loss.answer"
    ]
    assert of_training(tmp_path, log(*FALLING), counts={"rows": 36, "dropped_too_long": 5}) == ["rows_left_out"]
    assert of_training(tmp_path, log(*FALLING), counts={"rows": 36, "dropped_too_long": 3}) == ["learned"]
    recipe = read(tmp_path, STAGE)
    counts = {"rows": 36, "dropped_too_long": 1, "dropped_no_image": 20}
    facts = of_stage.StageFacts(recipe=recipe, stage=recipe.stages[0], log=log(*FALLING), counts=counts, measured=[])
    (found,) = of_stage.diagnose(facts)
    assert found.change == ""  # a larger max_length would bring one row of 21


def test_a_loss_of_rows_kept_out_that_rises_again_is_overfitting(tmp_path: Path) -> None:
    measured = [{"step": step, "loss": loss} for step, loss in ((10, 0.9), (20, 0.7), (30, 0.9))]
    assert of_training(tmp_path, log(*FALLING), measured=measured) == ["overfitting"]


def replies(count: int = 60, **fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "sample_id": str(n),
            "verdict": "correct" if n % 4 else "wrong",
            "answer": str(n % 9) if n % 4 else "77",
            "gold": [str(n % 9)],
            "answer_type": "number",
            "domain": "scenes",
            "truncated": False,
            "well_formed": True,
            "reasoning": "I count.",
            "rationale_tokens": 30,
        }
        | {name: value(n) if callable(value) else value for name, value in fields.items()}
        for n in range(count)
    ]


def of_student(folder: Path, said: list[dict[str, Any]], **metrics: Any) -> list[str]:
    return [finding.name for finding in found_of_student(folder, said, **metrics)]


ABOVE = {"answers": {"delta": 0.1, "ci95": [0.05, 0.15]}}


def found_of_student(
    folder: Path,
    said: list[dict[str, Any]],
    deltas: dict[str, Any] = ABOVE,
    seen: dict[str, Any] | None = None,
    **metrics: Any,
) -> list[Finding]:
    facts = of_replies.StudentFacts(
        recipe=read(folder, STAGE, "[eval]\nmax_new_tokens = 64\n"),
        arm="distilled",
        metrics={"accuracy": 0.75, "ci95": [0.63, 0.84], "stage": "reason"} | metrics,
        deltas=deltas,
        replies=said,
        learned_tokens=40.0,
        **(seen or {}),
    )
    return of_replies.diagnose(facts)


CUT = {"truncated": lambda n: n % 2 == 0, "well_formed": lambda n: n % 2 == 1}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "student"),
        (CUT | {"answer": lambda n: "" if n % 2 == 0 else str(n % 9)}, "replies_cut"),
        (CUT, "chat_template"),
        ({"well_formed": lambda n: n % 3 > 0}, "replies_unformed"),
        ({"answer": lambda n: "3" if n % 3 else "4"}, "one_answer"),
        ({"verdict": "undecided", "answer": lambda n: str(n % 9)}, "answer_type"),
        ({"answer_type": "date"}, "answer_type"),
        ({"rationale_tokens": 90}, "long_rationales"),
        ({"verdict": lambda n: "correct" if n % 2 else "undecided"}, "replies_undecided"),
    ],
)
def test_the_replies_tell_what_is_wrong_with_a_student(tmp_path: Path, fields: dict[str, Any], name: str) -> None:
    assert of_student(tmp_path, replies(**fields)) == [name]


def evaluated(
    folder: Path, said: list[dict[str, Any]], more: str = "", test: str = "", stage: str = "reason"
) -> list:
    recipe = read(folder, STAGE, f"{more}[eval]\nmax_new_tokens = 64\n{test}")
    metrics = {"accuracy": 0.75, "ci95": [0.63, 0.84], "stage": stage}
    facts = of_replies.StudentFacts(
        recipe=recipe, arm="distilled", metrics=metrics, deltas=ABOVE, replies=said, learned_tokens=40.0
    )
    return [finding.name for finding in of_replies.diagnose(facts)]


def test_settings_under_which_no_student_can_show_what_it_learned_are_named(tmp_path: Path) -> None:
    assert evaluated(tmp_path, replies()) == ["student"]
    assert evaluated(tmp_path, replies(), stage="base") == ["no_trained_arm"]
    assert evaluated(tmp_path, replies(), test="temperature = 2.0\n") == ["unusual eval.temperature"]


def test_a_good_result_on_few_questions_asks_for_more_questions(tmp_path: Path) -> None:
    (few,), (enough,) = (found_of_student(tmp_path, replies(count)) for count in (19, 20))
    assert (few.name, few.change) == ("few_questions", "data.test: some hundred questions")
    assert (enough.name, enough.change) == ("student", "")


def test_a_last_stage_that_takes_the_rationales_away_is_named(tmp_path: Path) -> None:
    polish = '[[stages]]\nname = "polish"\ndata = "test"\ntrain = ["language"]\n'
    bare = replies(reasoning="")
    assert evaluated(tmp_path, bare, polish, stage="polish") == ["forgotten"]
    assert evaluated(tmp_path, replies(), polish, stage="polish") == ["student"]
    assert evaluated(tmp_path, bare, polish) == ["student"]


def test_test_images_of_one_colour_are_found_before_what_they_bring_about(tmp_path: Path) -> None:
    plain = OddImages(name="images_plain", about="show nothing", change="look", count=50, looked_at=60)
    (found,) = found_of_student(tmp_path, replies(), seen={"odd_images": [plain]})
    assert found.name == "test_images_plain" and found.problem == "50 of 60 test images (83 %) show nothing"


def test_gold_answers_of_one_group_in_other_units_are_named_also_of_a_good_student(tmp_path: Path) -> None:
    asked = [sample(f"Number {n}?", domain="charts" if n % 3 else "scenes") for n in range(90)]
    said = [
        line | {"sample_id": each.id, "gold": [f"{line['answer']}000"], "verdict": "wrong"}
        if each.domain == "scenes"
        else line | {"sample_id": each.id, "verdict": "correct"}
        for line, each in zip(replies(90, verdict="correct", answer=lambda n: str(n + 1)), asked, strict=True)
    ]
    (found,) = found_of_student(tmp_path, said, seen={"asked": asked})
    assert found.name == "answer_relation" and "about the rows of the domain 'scenes'" in found.problem
    assert "the answer is the gold answer times 0.001 in 30 of 30 wrong ones (100 %)" in found.problem


def test_a_group_that_is_answered_far_worse_is_told_beside_the_result(tmp_path: Path) -> None:
    asked = [sample(f"Number {n}?", domain="charts" if n % 3 else "scenes") for n in range(90)]
    said = [
        line | {"sample_id": each.id, "verdict": "wrong" if each.domain == "scenes" else "correct"}
        for line, each in zip(replies(90, answer=lambda n: str(n * n % 7)), asked, strict=True)
    ]
    result, group = found_of_student(tmp_path, said, seen={"asked": asked})
    assert result.name == "student" and (group.name, group.kind) == ("group_wrong", "open")
    assert "0 of 30 rows of the domain 'scenes' (0 %), and in 60 of 60 other rows (100 %)" in group.problem


def test_a_student_that_images_do_not_help_is_blind(tmp_path: Path) -> None:
    def unseen(low: float, high: float) -> dict[str, Any]:
        return {"n": 60, "accuracy": 0.74, "gain": {"delta": (low + high) / 2, "ci95": [low, high]}}

    assert of_student(tmp_path, replies(), without_image=unseen(-0.03, 0.04)) == ["blind"]
    assert of_student(tmp_path, replies(), without_image=unseen(-0.03, 0.14)) == ["student"]
    weak = {"accuracy": 0.12, "ci95": [0.06, 0.22]}
    assert of_student(tmp_path, replies(), without_image=unseen(-0.1, 0.13), **weak) == ["blind"]
    assert of_student(tmp_path, replies(), without_image=unseen(-0.03, 0.16), **weak) == ["student"]


def test_a_student_that_is_hardly_ever_right_does_not_show_whether_it_sees(tmp_path: Path) -> None:
    unseen = {"n": 61, "accuracy": 1 / 61, "gain": {"delta": -1 / 61, "ci95": [-0.07, 0.04]}}
    (found,) = found_of_student(tmp_path, replies(), without_image=unseen, accuracy=0.0, ci95=[0.0, 0.06])
    assert (found.name, found.certainty) == ("blind", "possible")


def test_both_shares_of_a_blind_student_are_of_the_questions_with_images(tmp_path: Path) -> None:
    unseen = {"n": 60, "accuracy": 0.4, "gain": {"delta": 0.02, "ci95": [-0.01, 0.04]}}
    (found,) = found_of_student(tmp_path, replies(), without_image=unseen)  # 0.75 over all questions
    assert "right in 42 % with the images and in 40 % without them" in found.problem


def test_questions_that_need_no_image_call_no_student_blind(tmp_path: Path) -> None:
    unseen = {"n": 60, "accuracy": 0.98, "gain": {"delta": 0.0, "ci95": [-0.03, 0.03]}}
    assert of_student(tmp_path, replies(), without_image=unseen) == ["student"]


def test_a_student_that_is_clearly_worse_than_before_is_not_a_good_result(tmp_path: Path) -> None:
    deltas = {"answers": {"delta": -0.1, "ci95": [-0.15, -0.05]}, "untouched": {"delta": 0.2, "ci95": [0.1, 0.3]}}
    (found,) = found_of_student(tmp_path, replies(), deltas=deltas)
    assert (found.kind, found.certainty) == ("fault", "certain")
    assert found.problem == "distilled is right in 75 % [63, 84], 10 points less than answers"


def test_a_good_result_names_the_student_before(tmp_path: Path) -> None:
    (found,) = found_of_student(tmp_path, replies())
    assert found.problem == "distilled is right in 75 % [63, 84], +10 points over answers"


def test_an_undecided_difference_is_not_reported_as_a_good_result(tmp_path: Path) -> None:
    none, few = {"accuracy": 0.0, "ci95": [0.0, 0.26]}, replies(11)
    deltas = {"untouched": {"delta": 0.0, "ci95": [-0.21, 0.21]}, "answers": {"delta": -0.18, "ci95": [-0.44, 0.14]}}
    (found,) = found_of_student(tmp_path, few, deltas=deltas, **none)
    assert (found.kind, found.name) == ("open", "undecided")
    assert found.text == (
        "distilled is right in 0 % [0, 26]; 11 questions are too few to decide whether it is better than "
        "untouched (+0 points [-21, +21]) and than answers (-18 points [-44, +14]). Change data.test: four times as "
        "many questions halve such an interval."
    )
    narrow = {"untouched": {"delta": 0.2, "ci95": [0.1, 0.3]}, "answers": {"delta": 0.0, "ci95": [-0.02, 0.02]}}
    (found,) = found_of_student(tmp_path, replies(), deltas=narrow)
    assert found.problem.startswith(
        "distilled is right in 75 % [63, 84], +20 points over untouched; 60 questions are"
    )
    assert (found.kind, found.change) == ("open", "")


def test_a_student_with_none_to_compare_with_is_neither_good_nor_bad(tmp_path: Path) -> None:
    (found,) = found_of_student(tmp_path, replies(), deltas={})
    assert (found.kind, found.text) == ("open", "distilled is right in 75 % [63, 84].")


def test_a_stage_that_ended_early_is_said_to_have_made_the_steps_that_it_made(tmp_path: Path) -> None:
    recipe = read(tmp_path, STAGE)
    lines = [line | {"steps": 1000} for line in log(*FALLING, steps=40)]
    facts = of_stage.StageFacts(recipe=recipe, stage=recipe.stages[0], log=lines, counts={"rows": 400}, measured=[])
    (found,) = of_stage.diagnose(facts)
    assert "in 40 steps" in found.problem


def test_a_loss_that_did_not_fall_in_few_steps_is_not_said_to_fall(tmp_path: Path) -> None:
    recipe = read(tmp_path, STAGE)
    lines = log(2.0, 2.05, 2.1, steps=3, epoch=0.1, right=0.4)
    facts = of_stage.StageFacts(recipe=recipe, stage=recipe.stages[0], log=lines, counts={"rows": 400}, measured=[])
    (found,) = of_stage.diagnose(facts)
    assert "its loss has hardly changed (2.00 to 2.10)" in found.problem


def test_steps_of_other_rows_are_not_said_to_be_a_loss_that_falls(tmp_path: Path) -> None:
    """Measured: the losses of 14 steps with a learning rate of 1e-12."""
    recipe = read(tmp_path, STAGE)
    for losses, said in ((PLAIN, "hardly changed (0.36 to 0.35)"), ([2.0, 1.8, 1.1], "still falls (2.00 to 1.10)")):
        lines = log(*losses, steps=14, epoch=1.0)
        facts = of_stage.StageFacts(
            recipe=recipe, stage=recipe.stages[0], log=lines, counts={"rows": 222}, measured=[]
        )
        (found,) = of_stage.diagnose(facts)
        assert said in found.problem


def test_right_replies_that_hardly_became_less_likely_beside_the_margin_are_no_fault(tmp_path: Path) -> None:
    """Measured: 14 steps of 39 pairs, whose last 16 have a mean reward of -0.01 and a margin of 0.61."""
    pairs = STAGE.replace('"traces"', '"traces:pairs"').replace("batch_size = 32", "batch_size = 4")
    for right, found in ((-0.0105, "learned"), (-0.2, "right_replies_less_likely"), (0.1, "learned")):
        extra = {"reward_right": right, "reward_margin": 0.61, "reward_accuracy": 0.94}
        lines = [line | {"extra": extra} for line in log(*FALLING)]
        assert of_training(tmp_path, lines, text=pairs, more="[stages.preference]\n") == [found], right


def test_passes_are_said_of_the_rows_that_they_are_over(tmp_path: Path) -> None:
    recipe = read(tmp_path, STAGE)
    lines, counts = log(2.0, 1.9, 1.8, steps=3, epoch=1.6, right=0.4), {"rows": 12_960, "replayed": 12_900}
    facts = of_stage.StageFacts(recipe=recipe, stage=recipe.stages[0], log=lines, counts=counts, measured=[])
    (found,) = of_stage.diagnose(facts)
    assert "1.60 epochs of its 60 own rows" in found.problem


def test_three_findings_are_shown_the_most_certain_first_and_good_results_only_alone(tmp_path: Path) -> None:
    names = [("a", "possible"), ("b", "likely"), ("c", "certain"), ("d", "likely")]
    faults = [Finding(name=name, problem=name, certainty=sure, change="x") for name, sure in names]  # type: ignore[arg-type]
    good = Finding(name="good", kind="good", problem="good", certainty="certain")
    assert [each["name"] for each in chosen([good, *faults])] == ["c", "b", "d"]
    assert chosen([good])[0]["text"] == "good (certain)."
    folder = tmp_path / "train" / "reason"
    folder.mkdir(parents=True)
    (folder / "diagnosis.json").write_bytes(orjson.dumps({"diagnosis": chosen(faults)}))
    assert [each["stage"] for each in read_findings(tmp_path)] == ["train reason"] * 3
    assert evaluation(tmp_path) == "" and training(tmp_path) == ""


def test_what_is_about_a_result_comes_last_and_is_left_out_where_its_rows_are_named() -> None:
    few, odd = (Finding(name=name, problem="p", certainty="likely") for name in ("few_traces", "answer_relation"))
    assert [each["name"] for each in chosen([few, odd])] == ["answer_relation", "few_traces"]
    for cause in (
        Finding(name="rows_lost", problem="p", certainty="likely"),
        Finding(name="traces_cut", problem="p"),
    ):
        assert [each["name"] for each in chosen([few, cause])] == [cause.name]
    possible = Finding(name="gold_unrelated", problem="p", certainty="possible")
    assert [each["name"] for each in chosen([possible, few])] == ["few_traces", "gold_unrelated"]


def test_a_single_question_is_too_little(tmp_path: Path) -> None:
    deltas = {"untouched": {"delta": 0.0, "ci95": [-0.9, 0.9]}}
    (found,) = found_of_student(tmp_path, replies()[:1], deltas=deltas)
    assert "; one question is too little to decide whether it is better than untouched" in found.text
