"""Arms of another method (rounds, rollouts, preference, visual weights): as long as the reference, or as slow."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from distill.ablation import arm_job
from distill.ablation.arm_job import SECONDS, Job, place
from distill.ablation.arms import arm
from distill.ablation.costs import seconds
from distill.ablation.drafts import Budget, Impossible
from distill.ablation.runner import AskedArms, ablate
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import RESULTS
from distill.artifacts.manifest import Manifest
from distill.data import reader
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.rounds import make_round

TINY = Path(__file__).parents[3] / "recipes" / "tiny"
TOKENS = 6000
RECIPE = f"""
[data.questions]
source = "{TINY}/data/questions.parquet"
part = [0.0, 0.5]
limit = 24
[data.pool]
source = "{TINY}/data/questions.parquet"
part = [0.5, 1.0]
limit = 12
[data.captions]
source = "{TINY}/data/captions.parquet"
limit = 16
[data.test]
source = "{TINY}/data/test.parquet"
limit = 9

[[teachers]]
name = "all"
backend = "embedded"
model = "{TINY}/teachers/generalist"
samples = 3
[teachers.sampling]
temperature = 1.5
max_tokens = 96

[filter.select]
per_question = 1

[student]
vision = "{TINY}/tower"
language = "{TINY}/decoder"
pixel_shuffle = 2
dtype = "float32"

[[stages]]
name = "align"
data = "captions"
train = ["projector"]
max_steps = 2
batch_size = 4
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
max_tokens = {TOKENS}
batch_size = 4

[eval]
data = "test"
max_new_tokens = 6
batch_size = 9
without_image = false

[rounds]
questions = "pool"

[ablate]
seeds = [0]
arms = ["rounds_2", "rollouts_50", "preference_50", "visual_50"]
gallery = 3
"""
ARMS = ("distilled", "rounds_2", "rollouts_50", "preference_50", "visual_50")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A recipe beside its run, with every arm of it."""
    folder = tmp_path_factory.mktemp("methods")
    (folder / "mine.toml").write_text(RECIPE, encoding="utf-8")
    ablate(load(folder), folder / "run")
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "a", symlinks=True))


def load(folder: Path) -> Recipe:
    return loading.load(folder / "mine.toml")


def manifest(stage: Path) -> Manifest:
    found = Manifest.read(stage)
    assert found is not None, stage
    return found


def take(stage: Path, taken: float) -> None:
    """Let a finished stage have taken so many seconds."""
    replace(manifest(stage), seconds=taken).write(stage)


def test_the_arms_are_in_one_table_with_as_many_tokens_and_all_their_seconds(finished: Path) -> None:
    found = orjson.loads((finished / "run" / "ablate" / RESULTS).read_bytes())
    assert set(found["arms"]) == set(ARMS) and found["skipped"] == {}
    align = manifest(place(finished / "run", "distilled", 0) / "train" / "align").tokens["trained"]
    for name in ARMS:
        cost = found["arms"][name]["cost"]
        # Each stage, and each round, ends at the step that comes nearest; a step has some 600 tokens, of pairs 1,200.
        assert abs(cost["train_tokens"] - align - TOKENS) < 1300, name
        more = cost["all_seconds"] - cost["train_seconds"]
        assert more > 0.01 if name in ("rounds_2", "rollouts_50", "visual_50") else more == pytest.approx(0), name


def test_rounds_take_the_failures_of_the_pool_and_the_last_one_is_measured(finished: Path) -> None:
    recipe, folder = load(finished), place(finished / "run", "rounds_2", 0)
    pool = {sample.id for sample in reader.samples(recipe, "pool")}
    for number in (1, 2):
        answers = list(read_jsonl(folder / "rounds" / str(number) / "answers" / "eval" / "predictions.jsonl"))
        assert {line["sample_id"] for line in answers} == pool
        of_round = loading.load(folder / "rounds" / str(number) / "recipe.toml")
        returned = {sample.id for sample in reader.samples(of_round)}
        assert returned == {line["sample_id"] for line in answers if line["verdict"] == "wrong"} != set()
    stages = [folder / "train" / "reason", *(folder / "rounds" / number / "train" / "reason" for number in "12")]
    trained = [manifest(stage) for stage in stages]
    assert [each.fields["stage.max_tokens"] for each in trained] == [TOKENS // 2, TOKENS // 4, TOKENS // 4]
    assert not (folder / "eval").exists() and not (folder / "rounds" / "1" / "eval").exists()
    results = orjson.loads((finished / "run" / "ablate" / RESULTS).read_bytes())["arms"]["rounds_2"]
    assert results["seeds"]["0"]["run"] == "arms/rounds_2/seed-0/rounds/2"
    learned = [manifest(each).counts for each in stages]
    assert results["cost"]["traces"] == sum(counts["rows"] - counts.get("replayed", 0) for counts in learned)
    tokens = sum(each.tokens["trained"] for each in trained)
    assert results["cost"]["trace_tokens"] == tokens  # also those of rounds; nothing else is replayed
    assert results["cost"]["train_tokens"] == tokens + manifest(folder / "train" / "align").tokens["trained"]


def test_rollouts_and_pairs_are_learned_after_the_first_half(finished: Path) -> None:
    for name, stage, folder in (("rollouts_50", "rollouts", "rollouts"), ("preference_50", "pairs", "pairs")):
        run = place(finished / "run", name, 0)
        made = loading.load(run / "recipe.toml")
        assert [each.name for each in made.stages] == ["align", "reason", stage]
        assert {each.max_tokens for each in made.stages[1:]} == {TOKENS // 2}
        first, last = (manifest(run / "train" / each) for each in ("reason", stage))
        assert last.fields["start_fingerprint"] == first.fingerprint
        assert last.fields["stage.data"] == f"traces:{folder}"
    covered = orjson.loads((place(finished / "run", "rollouts_50", 0) / "train/rollouts/distill.json").read_bytes())
    assert covered["teachers"]["all"]["aligned"] > 0.5 * covered["teachers"]["all"]["tokens"] > 0


def test_traces_of_an_arm_are_those_of_all_its_stages_and_replies_of_the_student_are_none(finished: Path) -> None:
    found = orjson.loads((finished / "run" / "ablate" / RESULTS).read_bytes())["arms"]
    first = {name: manifest(place(finished / "run", name, 0) / "train" / "reason") for name in ARMS}
    for name in ("distilled", "rollouts_50", "visual_50"):
        assert found[name]["cost"]["traces"] == first[name].counts["rows"], name
        assert found[name]["cost"]["trace_tokens"] == first[name].tokens["trained"], name
    run = place(finished / "run", "preference_50", 0)
    pairs = pq.read_table(run / "filter" / "arms" / "pairs" / "pairs.parquet").to_pylist()
    of_pairs = {pair[role] for pair in pairs if pair["reason"] is None for role in ("chosen", "rejected")}
    chosen = pq.read_table(run / "filter" / "decisions.parquet").to_pylist()
    selected = {trace["id"] for trace in chosen if trace["selected"]}
    assert of_pairs and selected - of_pairs and of_pairs - selected
    assert found["preference_50"]["cost"]["traces"] == len(selected | of_pairs)
    learned = first["preference_50"].tokens["trained"] + manifest(run / "train" / "pairs").tokens["trained"]
    assert found["preference_50"]["cost"]["trace_tokens"] == learned


def test_a_finished_ablation_does_nothing_again(finished: Path) -> None:
    stages = [*(finished / "run" / "ablate" / "arms").rglob("manifest.json")]
    before, results = [path.stat().st_mtime_ns for path in stages], finished / "run" / "ablate" / RESULTS
    written = results.read_bytes()
    ablate(load(finished), finished / "run")
    assert [path.stat().st_mtime_ns for path in stages] == before
    assert results.read_bytes() == written


def test_a_round_that_is_killed_three_times_goes_on_and_ends_with_the_same_student(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place(here / "run", "rounds_2", 0)
    whole = manifest(folder / "rounds" / "2" / "train" / "reason")
    shutil.rmtree(folder / "rounds")

    def killed(*values: Any) -> None:
        raise KeyboardInterrupt

    for where in ("write_returned", "round_recipe", "selected_traces"):
        with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
            dying.setattr(make_round, where, killed)
            ablate(load(here), here / "run", AskedArms(arms=["rounds_2"]))
    ablate(load(here), here / "run", AskedArms(arms=["rounds_2"]))
    again = manifest(folder / "rounds" / "2" / "train" / "reason")
    model = "model/model.safetensors"
    assert again.outputs[model].sha256 == whole.outputs[model].sha256


def test_an_arm_at_equal_seconds_trains_what_the_seconds_of_the_reference_leave(here: Path) -> None:
    recipe, run = load(here), here / "run"
    take(place(run, "distilled", 0) / "train" / "reason", 100.0)
    take(place(run, "preference_50", 0) / "train" / "reason", 150.0)
    take(place(run, "preference_50", 0) / "train" / "pairs", 50.0)
    ablate(recipe, run, AskedArms(arms=["preference_50_equal_seconds"]))
    folder = place(run, "preference_50_equal_seconds", 0)
    noted = orjson.loads((folder / SECONDS).read_bytes())
    assert noted["share"] == pytest.approx(0.5) and noted["arm"]["training"] == 200.0
    made = loading.load(folder / "recipe.toml")
    assert [each.max_tokens for each in made.stages[1:]] == [TOKENS // 4, TOKENS // 4]
    # What is noted stays: seconds of a finished stage that changed later would make the arm stale.
    take(place(run, "distilled", 0) / "train" / "reason", 1000.0)
    ablate(recipe, run, AskedArms(arms=["preference_50_equal_seconds"]))
    assert orjson.loads((folder / SECONDS).read_bytes()) == noted


def test_visual_weights_at_equal_seconds_pay_for_the_scores(here: Path) -> None:
    run, budget = here / "run", Budget(steps={"reason": 9}, tokens={"reason": TOKENS})
    visual = place(run, "visual_50", 0)
    journal = next((visual / "score").glob("*.jsonl"))
    own = seconds(arm(load(here), "visual_50", seed=0, budget=budget), visual, "reason")
    lines = [orjson.loads(line)["seconds"] for line in journal.read_bytes().splitlines()]
    assert own.method == pytest.approx(sum(lines)) and own.method > 0
    take(visual / "train" / "reason", 100.0)
    take(place(run, "distilled", 0) / "train" / "reason", 100.0)
    share = arm_job._share_in_seconds(load(here), run, Job("visual_50", 0), budget)
    assert share == pytest.approx((100 - own.method) / 100)


def test_a_method_that_asks_for_longer_than_the_reference_trains_is_left_out_with_the_reason(here: Path) -> None:
    folder = place(here / "run", "rounds_2", 0)
    take(folder / "rounds" / "1" / "answers" / "eval", 1e6)
    ablate(load(here), here / "run", AskedArms(arms=["rounds_2_equal_seconds"]))
    found = orjson.loads((here / "run" / "ablate" / RESULTS).read_bytes())
    assert "no time left to train" in found["skipped"]["rounds_2_equal_seconds"]
    assert "rounds_2_equal_seconds" not in found["arms"] and "rounds_2" in found["arms"]


def test_an_arm_at_equal_seconds_waits_for_the_arm_without_the_limit(here: Path) -> None:
    shutil.rmtree(place(here / "run", "visual_50", 0))
    budget = Budget(steps={"reason": 9}, tokens={"reason": TOKENS})
    with pytest.raises(Impossible, match=r"visual_50, seed 0, is not finished"):
        arm_job._share_in_seconds(load(here), here / "run", Job("visual_50", 0), budget)
