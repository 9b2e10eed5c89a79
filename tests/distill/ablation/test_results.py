"""What an ablation says follows from the predictions alone."""

from pathlib import Path
from typing import Any

import pytest

from distill.ablation import results
from distill.ablation.arm_result import ArmResult
from distill.errors import DataError
from distill.recipe import loading

STUDIES = loading.load("tiny-studies")


def outcome(right: list[bool], folder: Path = Path("arms/a/seed-0"), ids: str = "q") -> ArmResult:
    lines = [
        {"sample_id": f"{ids}{place:04d}", "domain": ("charts", "scenes")[place % 2], "verdict": verdict}
        for place, verdict in enumerate("correct" if each else "wrong" for each in right)
    ]
    share = sum(right) / len(right)
    return ArmResult(
        about="",
        changed={},
        folder=folder,
        predictions=tuple(lines),
        figures={"accuracy": share, "ci95": [0, 1], "mean_tokens": 10 * share, "format_rate": 1.0},
        cost={"train_steps": 3, "train_tokens": 100, "train_seconds": 1.5, "traces": 7},
        curve=((1, 2.0), (3, 1.0)),
        evaluation="f",
    )


def arms(**shares: list[float]) -> dict[str, dict[int, ArmResult]]:
    """Of 200 questions the first so many are answered correctly, seed by seed."""
    return {
        name: {
            seed: outcome([place < share * 200 for place in range(200)], Path(f"arms/{name}/seed-{seed}"))
            for seed, share in enumerate(of_arm)
        }
        for name, of_arm in shares.items()
    }


def table(found: dict[str, dict[int, ArmResult]]) -> dict[str, Any]:
    return results.table(STUDIES, Path(), found, {"logprobs": "none stored"})


def test_accuracy_is_the_mean_over_seeds_and_the_effect_its_difference() -> None:
    found = table(arms(distilled=[0.5, 0.6, 0.7], random=[0.3, 0.4, 0.5]))
    assert found["arms"]["distilled"]["accuracy"] == pytest.approx(0.6)
    assert found["arms"]["distilled"]["effect"] is None
    assert found["arms"]["random"]["effect"]["delta"] == pytest.approx(-0.2)
    assert [each["delta"] for each in found["arms"]["random"]["effect"]["by_seed"].values()] == pytest.approx(
        [-0.2] * 3
    )
    assert found["n"] == 200 and found["seeds"] == [0, 1, 2]
    assert found["skipped"] == {"logprobs": "none stored"}


def test_domains_and_costs_are_those_of_the_arm() -> None:
    arm = table(arms(distilled=[0.5, 0.5]))["arms"]["distilled"]
    assert {name: (each["n"], each["accuracy"]) for name, each in arm["domains"].items()} == {
        "charts": (100, 0.5),
        "scenes": (100, 0.5),
    }
    trained = {"train_steps": 3, "train_tokens": 100, "train_seconds": 1.5, "traces": 7}
    assert arm["cost"] == {**trained, "answer_tokens": 5}
    assert arm["metrics"]["format_rate"] == 1.0
    assert arm["curves"]["0"] == [[1, 2.0], [3, 1.0]]
    assert arm["seeds"]["1"]["run"] == "arms/distilled/seed-1"


def test_a_study_is_judged_once_all_its_arms_are_there() -> None:
    filtering = {"unfiltered": [0.3, 0.3, 0.3], "random": [0.3, 0.3, 0.3]}
    assert "filtering" not in table(arms(distilled=[0.6]))["studies"]
    found = table(arms(distilled=[0.6, 0.6, 0.6], **filtering))["studies"]["filtering"]
    assert [claim["verdict"] for claim in found["claims"]] == [results.HOLDS, results.HOLDS]
    assert found["effects"]["random"]["delta"] == pytest.approx(-0.3)
    assert set(found["effects"]) == {"unfiltered", "random"}


@pytest.mark.parametrize(
    ("delta", "p", "verdict"),
    [
        (0.02, 0.049, results.HOLDS),
        (-0.02, 0.049, results.FAILS),
        (0.02, 0.05, results.UNDECIDED),
        (-0.02, 0.2, results.UNDECIDED),
        (0.0, 0.0, results.UNDECIDED),
    ],
)
def test_a_claim_holds_only_where_its_adjusted_p_value_is_below_5_percent(delta: float, p: float, verdict: str):
    assert results.verdict(delta, p) == verdict


def test_claims_are_corrected_for_their_number_over_all_studies() -> None:
    def right(share: float, flipped: int) -> list[bool]:
        return [(index < share * 200) != (index % 23 < flipped) for index in range(200)]

    shares = {"distilled": (0.5, 0), "unfiltered": (0.44, 2), "random": (0.42, 2)}
    found = {
        name: {seed: outcome(right(share + seed / 100, flipped)) for seed in range(3)}
        for name, (share, flipped) in shares.items()
    }
    claims = table(found)["studies"]["filtering"]["claims"]  # two of 15; the others have no results yet
    p_values = [claim["effect"]["p"] for claim in claims]
    assert 0 < min(p_values) < 0.05
    assert [claim["p_adjusted"] for claim in claims] == pytest.approx(
        [min(1.0, 15 * p) if p == min(p_values) else min(1.0, max(15 * min(p_values), 14 * p)) for p in p_values]
    )
    assert all(claim["effect"]["detectable"] > 0 for claim in claims)


def test_arms_that_answered_different_questions_are_not_compared() -> None:
    found = arms(distilled=[0.5]) | {"random": {0: outcome([True] * 200, ids="other")}}
    with pytest.raises(DataError, match="different questions"):
        table(found)


def test_only_seeds_that_both_arms_have_are_compared() -> None:
    found = table(arms(distilled=[0.5, 0.9], random=[0.4]))
    assert found["arms"]["random"]["effect"]["delta"] == pytest.approx(-0.1)
    assert list(found["arms"]["random"]["effect"]["by_seed"]) == ["0"]


def test_variance_between_seeds_widens_the_interval() -> None:
    steady, lucky = (
        table(arms(distilled=[0.5, 0.5, 0.5], random=of_arm))["arms"]["random"]["effect"]["ci95"]
        for of_arm in ([0.4, 0.4, 0.4], [0.2, 0.4, 0.6])
    )
    assert lucky[1] - lucky[0] > 2 * (steady[1] - steady[0])


def test_arms_that_are_always_wrong_are_not_known_to_be_for_certain() -> None:
    found = table(arms(distilled=[0.0, 0.0], random=[0.0, 0.0]))["arms"]
    assert found["distilled"]["ci95"][0] == 0 < found["distilled"]["ci95"][1] < 0.03
    low, high = found["random"]["effect"]["ci95"]
    assert -0.03 < low < 0 < high < 0.03


def test_a_few_questions_that_all_go_one_way_prove_nothing() -> None:
    right, wrong = outcome([True] * 3), outcome([False] * 3)
    measured = results.effect({0: right}, {0: wrong}, None)
    assert measured["delta"] == 1.0 and measured["p"] == pytest.approx(0.25) and measured["detectable"] is None
    assert results.effect({0: right}, {0: right}, None)["p"] == 1.0
    many = results.effect({0: outcome([True] * 30)}, {0: outcome([False] * 30)}, None)
    assert many["p"] < 1e-8


def test_one_seed_is_compared_by_the_exact_test_of_shares() -> None:
    first, second = outcome([True] * 4 + [False] * 96), outcome([False] * 100)
    measured = results.effect({0: first}, {0: second}, None)
    assert measured["p"] == pytest.approx(0.125)  # of 4 questions that differ; a t test says 0.045
    assert measured["ci95"] == measured["by_seed"]["0"]["ci95"] and measured["ci95"][0] < 0
    assert measured["detectable"] > 0


def test_arms_of_a_study_that_were_run_with_other_seeds_wait_for_a_common_one() -> None:
    found = arms(distilled=[0.6, 0.6], unfiltered=[0.3, 0.3], random=[0.3, 0.3])
    found["unfiltered"].pop(0)
    found["random"].pop(1)
    assert "filtering" in table(found)["studies"]  # both are compared with the reference of their seed
    study = STUDIES.ablate.studies["filtering"].model_copy(update={"reference": "random"})
    ablate = STUDIES.ablate.model_copy(update={"studies": {"filtering": study}})
    recipe = STUDIES.model_copy(update={"ablate": ablate})
    assert "filtering" not in results.table(recipe, Path(), found, {})["studies"]
    found["random"] = found["unfiltered"]
    assert "filtering" in results.table(recipe, Path(), found, {})["studies"]


def test_a_claim_about_a_domain_without_questions_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match="no question of domain 'maps'"):
        results.effect({0: outcome([True] * 3)}, {0: outcome([False] * 3)}, None, domain="maps")


def test_a_study_that_cannot_be_analysed_is_left_out_with_its_reason_and_the_others_are_written() -> None:
    filtering = STUDIES.ablate.studies["filtering"]
    (claim, *_) = filtering.claims
    maps = filtering.model_copy(update={"claims": (claim.model_copy(update={"domain": "maps"}),)})
    ranked = filtering.model_copy(update={"kind": "teacher_fit"})
    studies = {"maps": maps, "ranked": ranked, "filtering": filtering}
    recipe = STUDIES.model_copy(update={"ablate": STUDIES.ablate.model_copy(update={"studies": studies})})
    found = arms(distilled=[0.6, 0.6], unfiltered=[0.3, 0.3], random=[0.3, 0.3])
    written = results.table(recipe, Path(), found, {"logprobs": "none stored"}, DataError("no trace was measured"))
    assert set(written["studies"]) == {"filtering"} and written["studies"]["filtering"]["claims"]
    assert written["skipped"] == {
        "logprobs": "none stored",
        "study maps": "no question of domain 'maps' was answered; correct the claim in [ablate.studies]",
        "study ranked": "no trace was measured",
    }
