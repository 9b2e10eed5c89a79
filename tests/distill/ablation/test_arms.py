"""Ready arms change one thing of a recipe, and say so."""

from pathlib import Path
from typing import Any

import pytest

from distill.ablation import arms
from distill.ablation.arms import STUDENT
from distill.ablation.drafts import Budget, Impossible
from distill.commands.stages import copy_shipped
from distill.errors import RecipeError
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import lineage

STUDIES = loading.load("tiny-studies")
BUDGET = Budget(
    steps={"align": 100, "instruct": 250, "reason": 120}, tokens={"align": 400, "instruct": 600, "reason": 1000}
)


def changed(name: str, of: Recipe = STUDIES, budget: Budget | None = BUDGET) -> dict[str, Any]:
    """What an arm changes, the stages that it leaves out aside."""
    return arms.changes(of, arms.arm(of, name, seed=of.seed, budget=budget).recipe)


def with_values(**values: str) -> Recipe:
    return loading.load("tiny-studies", {key.replace("__", "."): value for key, value in values.items()})


def test_the_reference_changes_nothing_but_the_seed() -> None:
    found = arms.arm(STUDIES, "distilled", seed=7)
    assert arms.changes(STUDIES, found.recipe) == {}
    assert found.recipe.seed == 7
    assert [stage.name for stage in found.recipe.stages] == ["align", "instruct", "reason"]
    assert found.recipe.eval.arms == {STUDENT: "reason"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("answers_only", {"stages.reason.target": "answer"}),
        ("unfiltered", {"stages.reason.data": "traces:unfiltered"}),
        ("random", {"stages.reason.data": "traces:random"}),
        ("traces_4", {"filter.select.per_question": 4}),
        ("size_250", {"filter.select.limit": 250}),
        ("short", {"filter.select.order": ["rationale_tokens"]}),
        ("long", {"filter.select.order": ["-rationale_tokens"]}),
        ("mixed", {"filter.select.order": []}),
        ("projector", {"stages.reason.train": ["language"]}),
        ("replay", {"stages.reason.replay": {}}),
        ("without_align", {}),
        ("before", {}),
        ("untouched", {}),
    ],
)
def test_an_arm_changes_one_thing(name: str, expected: dict[str, Any]) -> None:
    assert changed(name) == expected


def test_projector_and_replay_are_added_where_the_recipe_has_neither() -> None:
    usual = with_values(stages__reason__train='["language"]', stages__reason__replay="{}")
    assert changed("projector", usual) == {"stages.reason.train": ["projector", "language"]}
    assert changed("replay", usual) == {"stages.reason.replay.instruct": arms.REPLAYED_SHARE}


def test_the_arm_of_a_teacher_keeps_every_other_rule() -> None:
    found = arms.arm(STUDIES, "teacher_reader", seed=0).recipe.filter.rules
    assert found[:-1] == STUDIES.filter.rules
    assert found[-1].drop == "teacher <> 'reader'"


def test_merged_stages_are_one_stage_with_the_tokens_and_steps_of_all() -> None:
    (stage,) = arms.arm(STUDIES, "merged", seed=0, budget=BUDGET).recipe.stages
    assert stage.train == ("projector", "language")
    assert stage.max_steps == 470
    # captions: all of align, 0.15 of instruct, 0.1 of reason; so the traces keep 0.58 of the tokens of reason.
    assert stage.replay == pytest.approx(
        {
            "captions": 0.2 + 0.15 * 0.3 + 0.1 * 0.5,
            "instruct": 0.5 * 0.3 + 0.18 * 0.5,
            "readings": 0.35 * 0.3 + 0.14 * 0.5,
        }
    )
    assert 1 - sum(stage.replay.values()) == pytest.approx(0.58 * 0.5)
    assert stage.data == "traces"


def test_a_merged_stage_sees_as_many_rows_as_stages_of_other_sizes() -> None:
    large = loading.load("tiny-studies", {"stages.align.batch_size": "64"})
    (stage,) = arms.arm(large, "merged", seed=0, budget=BUDGET).recipe.stages
    assert (stage.batch_size, stage.max_steps) == (32, 570)
    by_tokens = loading.load("tiny-studies", {"stages.reason.batch_tokens": "9000"})
    (stage,) = arms.arm(by_tokens, "merged", seed=0, budget=BUDGET).recipe.stages
    assert stage.max_steps == 1  # 2,000 tokens in all


def test_a_stage_left_out_leaves_the_others_in_order() -> None:
    found = arms.arm(STUDIES, "without_instruct", seed=0).recipe
    assert [stage.name for stage in found.stages] == ["align", "reason"]
    assert [stage.name for stage in lineage(found.stages, "reason")] == ["align", "reason"]


def test_a_control_stage_beside_the_one_under_study_is_left_out() -> None:
    tiny = loading.load("tiny")
    assert [stage.name for stage in tiny.stages] == ["reason", "answers_only"]
    assert [stage.name for stage in arms.arm(tiny, "distilled", seed=0).recipe.stages] == ["reason"]


def test_arms_that_train_nothing_measure_the_student_as_it_was() -> None:
    untouched, before = (arms.arm(STUDIES, name, seed=0) for name in ("untouched", "before"))
    assert (untouched.stage, list(untouched.recipe.stages)) == ("base", [])
    assert (before.stage, [stage.name for stage in before.recipe.stages]) == ("instruct", ["align", "instruct"])


def test_an_arm_with_fewer_rows_trains_as_many_steps_as_the_reference() -> None:
    epochs = with_values(stages__reason__epochs="2", stages__reason__max_steps="120")
    values = epochs.model_dump(mode="json", exclude_unset=True)
    values["stages"][2].pop("max_steps")
    by_epochs = loading.derived_recipe(epochs, values, "test")
    assert changed("size_250", by_epochs)["stages.reason.max_steps"] == 120
    assert "stages.reason.max_steps" not in changed("distilled", by_epochs)
    values["ablate"]["equal_steps"] = False
    assert "stages.reason.max_steps" not in changed("size_250", loading.derived_recipe(epochs, values, "test"))


def test_tokens_weigh_by_the_image_with_the_strength_of_the_arm() -> None:
    found = arms.arm(with_values(), "visual_50", seed=0).recipe.stages[-1].visual
    assert found is not None and found.strength == 0.5 and found.teacher is None
    named = with_values(stages__reason__visual='{ teacher = "reader" }')
    own = arms.arm(named, "visual_200", seed=0).recipe.stages[-1].visual
    assert own is not None and (own.strength, own.teacher) == (2.0, "reader")
    assert arms.arm(named, "answers_only", seed=0).recipe.stages[-1].visual is None
    with pytest.raises(RecipeError, match="must end in a number"):
        changed("visual_much")


@pytest.mark.parametrize("settings", [{"max_tokens": "1000"}, {}, {"epochs": "4.0"}])
@pytest.mark.parametrize(("name", "first", "last"), [("rollouts_20", 0.8, 0.2), ("preference_50", 0.5, 0.5)])
def test_a_method_has_the_last_part_of_the_stage(
    name: str, first: float, last: float, settings: dict[str, str]
) -> None:
    of = with_values(**{f"stages__reason__{key}": value for key, value in settings.items()})
    reason, added = arms.arm(of, name, seed=0, budget=BUDGET).recipe.stages[-2:]
    assert (added.start, added.data.partition(":")[0]) == ("reason", "traces")
    whole = 1000 if settings.get("max_tokens") else of.stages[-1].max_steps
    assert whole is not None
    lengths = [stage.max_tokens or stage.max_steps for stage in (reason, added)]
    assert lengths == [round(first * whole), round(last * whole)]


def test_rounds_share_the_length_with_the_first_pass() -> None:
    of = with_values(stages__reason__max_tokens="1000", rounds__steps_share="0.25")
    found = arms.arm(of, "rounds_4", seed=0, budget=BUDGET)
    assert (found.rounds, found.stage, found.recipe.stages[-1].max_tokens) == (4, "reason", 500)
    assert found.recipe.rounds.steps_share == 0.25 and found.recipe.rounds.count == 0
    with pytest.raises(Impossible, match=r"rounds\.questions = 'test'"):
        changed("rounds_1", with_values(rounds__questions="test"))


def test_an_arm_at_equal_seconds_is_the_arm_with_a_share_of_its_length() -> None:
    of = with_values(stages__reason__max_tokens="1000")
    budget = Budget(steps=BUDGET.steps, tokens=BUDGET.tokens, share=0.4)
    for name in ("visual_50", "rounds_2", "preference_50", "answers_only"):
        whole, timed = (arms.arm(of, each, seed=0, budget=budget) for each in (name, f"{name}_equal_seconds"))
        for before, after in zip(whole.recipe.stages, timed.recipe.stages, strict=True):
            assert before.max_tokens is None or after.max_tokens == round(0.4 * before.max_tokens)
        assert timed.recipe.stages[:2] == whole.recipe.stages[:2] and "in the seconds of distilled" in timed.about
    assert arms.needed("visual_50_equal_seconds") == "visual_50" and arms.needed("visual_50") == "distilled"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rollouts_100", "leaves nothing"),
        ("rounds_none", "must end in a number"),
        ("before_equal_seconds", "trains nothing"),
        ("cheaper_equal_seconds", "no arm 'cheaper'"),
    ],
)
def test_a_method_that_cannot_be_is_refused(name: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        changed(name)


def test_rollouts_need_a_teacher_that_scores() -> None:
    hinted = {"teachers.generalist.hinted": "true", "teachers.generalist.prompt": "{question} {answer}"}
    with pytest.raises(Impossible, match="no teacher that reason learns from can score"):
        arms.arm(loading.load("tiny-methods", hinted), "rollouts_50", seed=0)
    last = arms.arm(STUDIES, "rollouts_50", seed=0, budget=BUDGET).recipe.stages[-1]
    assert last.rollouts is not None and last.rollouts.teacher == "generalist"


def test_stored_log_probabilities_are_learned_or_left_out() -> None:
    with pytest.raises(Impossible, match="no teacher stores log-probabilities"):
        changed("logprobs")
    storing = with_values(teachers__reader__logprobs="5")
    assert arms.arm(storing, "logprobs", seed=0).recipe.stages[-1].distill is not None
    learning = with_values(teachers__reader__logprobs="5", stages__reason__distill="{}")
    assert arms.arm(learning, "logprobs", seed=0).recipe.stages[-1].distill is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("traces_99", "asked for 28 a question at most"),
        ("teacher_nobody", "its teachers: structured"),
        ("without_reason", "does not descend"),
        ("traces_many", "must end in a number"),
        ("cheaper", r"no arm 'cheaper'.*answers_only.*\[ablate.own.cheaper\]"),
    ],
)
def test_an_arm_that_cannot_be_says_why(name: str, reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        arms.arm(STUDIES, name, seed=0)


def test_a_teacher_that_works_on_drafts_writes_its_samples_for_each_of_them() -> None:
    chained = with_values(
        teachers__generalist__after='"structured"', teachers__generalist__prompt='"{question} {draft}"'
    )
    with pytest.raises(Impossible, match="asked for 56 a question at most"):  # 3 x 8, and 4 for each of 8 drafts
        arms.arm(chained, "traces_99", seed=0)
    assert arms.arm(chained, "traces_50", seed=0).recipe.filter.select.per_question == 50


def test_an_own_arm_sets_any_value(tmp_path: Path) -> None:
    text = loading.find("tiny-studies").read_text(encoding="utf-8")
    own = '[ablate.own.faster]\nabout = "a higher rate"\nset = { "stages.reason.learning_rate" = 3e-3 }\n'
    path = tmp_path / "mine.toml"
    path.write_text(text + own, encoding="utf-8")
    mine = loading.load(path)
    assert changed("faster", mine) == {"stages.reason.learning_rate": 3e-3}
    assert arms.arm(mine, "faster", seed=0).about == "a higher rate"


def test_an_own_arm_with_a_misspelt_key_is_refused_by_name(tmp_path: Path) -> None:
    text = loading.find("tiny-studies").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text + '[ablate.own.odd]\nset = { "stages.reason.learning_rat" = 1 }\n', encoding="utf-8")
    with pytest.raises(RecipeError, match=r"arm odd.*\n.*learning_rat: unknown key; did you mean 'learning_rate'"):
        arms.arm(loading.load(path), "odd", seed=0)
    with pytest.raises(RecipeError, match="arm odd"):  # and is not left out like a ready arm that is not possible
        arms.possible(loading.load(path))


def test_every_ready_arm_is_offered_or_refused_with_a_reason() -> None:
    found, skipped = arms.possible(STUDIES)
    assert {"distilled", "merged", "teacher_generalist", "traces_8", "without_align"} <= set(found)
    assert len(found) == len(set(found))
    assert list(skipped) == ["logprobs"]


def test_a_study_that_compares_an_arm_it_lacks_is_refused() -> None:
    with pytest.raises(RecipeError, match="arms lacks distilled"):
        loading.load("tiny-studies", {"ablate.studies.scaling.arms": '["size_125"]'})


def test_a_copied_recipe_brings_the_assets_that_it_shares_with_another(tmp_path: Path) -> None:
    copied = loading.load(copy_shipped("tiny-studies", tmp_path / "mine"))
    for path in (copied.student.vision, copied.teachers[-1].model, copied.data["test"].source):
        assert copied.local(path).exists()


HOT = """
from distill.recipe.loading import put

def hot(values, recipe):
    put(values, "stages.reason.learning_rate", 0.5)
    return "a learning rate of a half"

def broken(values, recipe):
    values["stages"]["reason"]
"""


@pytest.fixture
def with_code(tmp_path: Path) -> Path:
    copy_shipped("tiny-studies", tmp_path / "tiny-studies.toml")
    (tmp_path / "mine.py").write_text(HOT)
    return tmp_path / "tiny-studies.toml"


def test_an_own_arm_may_be_code_of_a_file_beside_the_recipe(with_code: Path) -> None:
    read = loading.load(with_code, {"ablate.own.hot.change": "mine.py:hot"})
    found = arms.arm(read, "hot", seed=read.seed)
    assert arms.changes(read, found.recipe) == {"stages.reason.learning_rate": 0.5}
    assert found.about == "a learning rate of a half"
    assert f'change = "{with_code.parent / "mine.py"}:hot"' in read.to_toml()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("mine.py:broken", r"ablate\.own\.hot\.change = 'mine\.py:broken' failed: TypeError"),
        ("mine.py:HOT", "defines no HOT"),
    ],
)
def test_an_own_arm_whose_code_fails_says_so(with_code: Path, change: str, message: str) -> None:
    read = loading.load(with_code, {"ablate.own.hot.change": change})
    with pytest.raises(RecipeError, match=message):
        arms.arm(read, "hot", seed=0)
