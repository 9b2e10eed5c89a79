"""What an ablation can find and costs is stated before it runs, from the recipe or from earlier results."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from distill.ablation import power
from distill.ablation.runner import AskedArms, chosen
from distill.artifacts.layout import ARMS as ARMS_FOLDER
from distill.artifacts.layout import RESULTS, SHARED
from distill.artifacts.manifest import Manifest
from distill.errors import RecipeError
from distill.recipe import loading

STUDIES = loading.load("tiny-studies")
ARMS, _ = chosen(STUDIES, AskedArms())


def finished(folder: Path, stage: str, seconds: float, **counts: int) -> None:
    target = folder / SHARED / stage
    target.mkdir(parents=True)
    Manifest(stage="x", fingerprint="f", fields={}, inputs={}, outputs={}, counts=counts, seconds=seconds).write(
        target
    )


def test_stages_that_arms_share_are_counted_once(tmp_path: Path) -> None:
    work = power.state_power(STUDIES, tmp_path, ["distilled", "answers_only", "merged", "traces_1"], [0, 1])["work"]
    # align, instruct, reason, answers only, merged; one trace a question is what the recipe has.
    assert work["trainings"] == 2 * 5
    steps = [stage.max_steps or 0 for stage in STUDIES.stages]
    assert work["steps"] == 2 * (sum(steps) + steps[-1] + sum(steps))
    assert work["replies"] == 2 * 3 * 3600
    assert work["seconds"] is None


def test_rounds_and_arms_at_equal_seconds_train_stages_of_their_own(tmp_path: Path) -> None:
    work = power.state_power(STUDIES, tmp_path, ["distilled", "rounds_2"], [0])["work"]
    assert work["trainings"] == 3 + 3  # the reference; a shorter round 0 and two rounds
    assert work["steps"] == sum(stage.max_steps or 0 for stage in STUDIES.stages) + 300 + 2 * 150
    timed = power.state_power(STUDIES, tmp_path, ["distilled", "random", "random_equal_seconds"], [0])["work"]
    assert (timed["trainings"], timed["steps"], timed["replies"]) == (3 + 1 + 1, None, 3 * 3600)


def test_seconds_and_spread_come_from_what_was_measured(tmp_path: Path) -> None:
    assumed = power.state_power(STUDIES, tmp_path, ARMS, [0, 1, 2])
    finished(tmp_path, "train-a", 100, steps=400)
    finished(tmp_path, "eval-a", 36, predictions=1800, predictions_without_image=1800)
    earlier = {"a": {"effect": None}, "b": {"effect": {"sd": {"seed": 0.03, "question": 0.2, "rest": 0.4}}}}
    (tmp_path / RESULTS).write_bytes(orjson.dumps({"arms": earlier}))
    measured = power.state_power(STUDIES, tmp_path, ARMS, [0, 1, 2])
    work = measured["work"]
    assert work["seconds"] == pytest.approx(work["steps"] * 0.25 + work["replies"] * 0.01)
    assert measured["sd"]["seed"] == pytest.approx(0.03)
    assert measured["differences"][0]["detectable"] > 2 * assumed["differences"][0]["detectable"]
    assert "1 arm measured before" in power.statement_text(measured)


def test_domains_of_claims_have_their_own_questions_and_holm_asks_for_more(tmp_path: Path) -> None:
    statement = power.state_power(STUDIES, tmp_path, ARMS, STUDIES.ablate.seeds)
    assert {row["domain"]: row["n"] for row in statement["differences"]} == {
        None: 3600,
        "scenes": 1200,
        "charts": 1200,
        "digits": 1200,
    }
    for row in statement["differences"]:
        assert row["half_width"] < row["detectable"] < row["detectable_corrected"]
    assert statement["claims"] == 15


def test_without_claims_nothing_is_corrected_for_them(tmp_path: Path) -> None:
    text = power.statement_text(power.state_power(STUDIES, tmp_path, ["distilled", "random"], [0]))
    assert "by a single claim." in text and "Holm" not in text


def test_questions_without_a_gold_answer_give_no_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = power.reader.samples
    half = (replace(each, answers=()) if number % 2 else each for number, each in enumerate(own(STUDIES, "test")))
    monkeypatch.setattr(power.reader, "samples", lambda *_: half)
    statement = power.state_power(STUDIES, tmp_path, ["distilled", "random"], [0])
    assert statement["differences"][0]["n"] == 1800 and statement["work"]["replies"] == 2 * 1800


def test_a_test_set_without_gold_answers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power.reader, "samples", lambda *_: iter(()))
    with pytest.raises(RecipeError, match=r"\[data\.test\] has no question with a gold answer"):
        power.state_power(STUDIES, tmp_path, ["distilled", "random"], [0, 1])


def measured(folder: Path, seed: int | str) -> None:
    target = folder / ARMS_FOLDER / "distilled" / f"seed-{seed}" / "eval"
    target.mkdir(parents=True)
    Manifest(stage="eval", fingerprint="f", fields={}).write(target)


def test_seeds_are_stated_once_and_never_after_an_arm_was_measured_with_them(tmp_path: Path) -> None:
    power.keep_statement(STUDIES, tmp_path, ARMS, [0, 1])
    stated = power.read_statements(tmp_path)
    power.keep_statement(STUDIES, tmp_path, ARMS[:3], [1])
    assert power.read_statements(tmp_path) == stated
    assert [each["before"] for each in stated] == [[0, 1]]
    late = tmp_path / "late"
    measured(late, 0)
    measured(late, "1.old")  # moved aside
    power.keep_statement(STUDIES, late, ARMS, [0])
    assert power.read_statements(late) == []


def test_seeds_that_are_added_have_a_statement_of_their_own_and_the_page_tells_which(tmp_path: Path) -> None:
    power.keep_statement(STUDIES, tmp_path, ARMS, [0, 1])
    measured(tmp_path, 0)
    measured(tmp_path, 5)
    power.keep_statement(STUDIES, tmp_path, ARMS, [0, 5, 2, 3])
    first, second = power.read_statements(tmp_path)
    assert (first["seeds"], second["seeds"], second["before"]) == ([0, 1], [0, 1, 2, 3, 5], [2, 3])
    assert second["differences"][0]["detectable"] < first["differences"][0]["detectable"]
    texts = power.stated_texts({"power": [first, second], "seeds": [0, 1, 2, 3, 5]})
    assert "before seeds 0, 1 ran: 19 arms x 2 seeds, 15 claims" in texts[0]
    assert "before seeds 2, 3 ran: 19 arms x 5 seeds, 15 claims" in texts[1]
    assert texts[2] == "Nothing was stated before seed 5 ran."


def test_seeds_before_which_nothing_was_stated_are_named(tmp_path: Path) -> None:
    statement = power.state_power(STUDIES, tmp_path, ARMS, [0, 1]) | {"before": [0, 1]}
    stated, rest = power.stated_texts({"power": [statement], "seeds": [0, 1, 2, 3]})
    assert "before seeds 0, 1 ran: 19 arms x 2 seeds" in stated and rest.startswith(
        "Nothing was stated before seeds 2, 3"
    )
    assert power.stated_texts({"seeds": [0]}) == []


@pytest.mark.parametrize("seeds", [1, 3])
def test_of_one_question_no_difference_is_promised(tmp_path: Path, seeds: int) -> None:
    from distill.stats.paired_effects import Deviations, planned_detectable

    parts = Deviations(seed=0.01, question=0.2, rest=0.4)
    assert planned_detectable(parts, seeds=seeds, n=1, comparisons=3, level=0.05) == (1.0, float("inf"))
    statement = power.state_power(STUDIES, tmp_path, ARMS, range(seeds))
    statement["differences"][1] |= {"n": 1, "detectable": None, "detectable_corrected": None}
    assert "1 question; no difference can be found" in power.statement_text(statement)


def test_a_claim_about_a_domain_without_questions_is_refused_before_the_runs(tmp_path: Path) -> None:
    studies = dict(STUDIES.ablate.studies)
    claims = tuple(claim.model_copy(update={"domain": "maps"}) for claim in studies["filtering"].claims)
    studies["filtering"] = studies["filtering"].model_copy(update={"claims": claims})
    ablate = STUDIES.ablate.model_copy(update={"studies": studies})
    with pytest.raises(RecipeError, match=r"about domain 'maps', .* it has 'charts', 'digits', 'scenes'"):
        power.state_power(STUDIES.model_copy(update={"ablate": ablate}), tmp_path, ARMS, [0])
