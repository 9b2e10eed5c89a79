"""Weights of tokens by the image: their bounds, other tokenizers, and a stage that learns with them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from worlds import student_worlds as worlds

from distill.artifacts.files import write_json
from distill.artifacts.journal import Journal, read_jsonl
from distill.errors import DataError, StaleError
from distill.recipe.sections.stages import Loss
from distill.trace_records import scores
from student.data.encoded_rows import Example, write_rows
from student.data.rows import TrainingRow
from student.data.visual_weights import carry
from student.loss.token_weights import StepWeights
from student.train import train

VISUAL = "[stages.visual]\n"


def test_weights_have_mean_one_inside_their_bounds() -> None:
    chance = np.random.default_rng(0)
    for _ in range(300):
        gain = chance.normal(scale=chance.choice([0.01, 1, 10]), size=chance.integers(1, 50))
        strength, least, most = chance.choice([0, chance.uniform(0, 10)]), chance.uniform(0, 1), chance.uniform(1, 10)
        weights = scores.visual_weights(gain, strength=strength, least=least, most=most)
        assert weights.min() >= least - 1e-6 and weights.max() <= most + 1e-6
        assert weights.mean() == pytest.approx(1, abs=1e-3)
    assert scores.visual_weights(np.ones(3), strength=1.0, least=0.0, most=1.0) == pytest.approx(np.ones(3), abs=1e-3)


def test_weights_rise_with_the_gain_and_are_one_without_strength() -> None:
    gain = np.array([-2.0, 0.0, 0.0, 1.0, 5.0])
    weights = scores.visual_weights(gain, strength=0.5, least=0.25, most=4.0)
    assert (np.diff(weights) >= 0).all() and weights[0] < 1 < weights[-1]
    assert weights[-1] / weights[3] == pytest.approx(3.5 / 1.5, rel=1e-3)
    flat = scores.visual_weights(gain, strength=0.0, least=0.25, most=4.0)
    assert flat == pytest.approx(np.ones(5), abs=1e-3)
    assert len(scores.visual_weights(np.zeros(0), strength=1.0, least=0.5, most=2.0)) == 0


def scored(*pieces: str) -> scores.ScoredText:
    ids = np.arange(len(pieces), dtype=np.int32)[:, None]
    ends = np.cumsum([len(piece) for piece in pieces]).astype(np.int32)
    return scores.ScoredText(text="".join(pieces), ids=ids, values=np.zeros(ids.shape, np.float32), ends=ends)


def test_a_gain_is_carried_to_the_tokens_of_another_tokenizer_by_character() -> None:
    teacher = scored("The bar ", "is ", "at 41", " per cent")
    ours = ["<think>\n", "The", " bar is", " at", " 4", "1 per", " cent", "\n</think>", "\n\n", "41", ""]
    gain = carry(ours, teacher, np.array([0.0, 1.0, 4.0, 2.0]))
    assert gain[1] == 0 and gain[3] == pytest.approx(4 * 2 / 3 + 1 / 3) and gain[4] == 4 and gain[6] == 2
    assert gain[2] == pytest.approx((0 * 5 + 1 * 2) / 7) and 2 < gain[5] < 4
    assert np.isnan(gain[[0, 7, 8, 9, 10]]).all()


def test_odd_texts_are_carried_or_left_out() -> None:
    teacher = scored("naïve ", "", "bar 漢字 ", "😀 is here")
    gain = carry(["na", "ï", "ve bar 漢", "\ufffd", " 😀", " is here"], teacher, np.array([1.0, 9.0, 2.0, 3.0]))
    assert gain[0] == gain[1] == 1 and np.isfinite(gain[2]) and gain[5] == 3
    assert np.isnan(carry(["quite", " another text"], teacher, np.ones(4))).all()
    assert len(carry([], teacher, np.ones(4))) == 0
    assert np.isnan(carry(["one"], scored(), np.zeros(0))).all()


def example(weights: np.ndarray | None, kinds: list[int]) -> Example:
    row = TrainingRow(id="a", images=(), question="q", response="r")
    ids = np.arange(len(kinds), dtype=np.int32)
    return Example(row=row, ids=ids, begin=0, kinds=np.array(kinds, np.uint8), weights=weights)


@pytest.mark.parametrize("normalise", ["tokens", "spans"])
def test_the_weights_of_a_step_sum_to_one_with_them_too(normalise: str, tmp_path: Path) -> None:
    rows = [
        example(np.array([0.25, 0.25, 2.5], np.float32), [0, 0, 1]),
        example(None, [0, 0, 1, 2]),
        example(np.array([0.2, 1.8], np.float32), [1, 1]),
    ]
    mapped = write_rows(tmp_path / "rows", rows)
    weights = StepWeights(mapped, Loss(answer=2.0, normalise=normalise), 0.0)  # type: ignore[arg-type]
    each = [weights(row) for row in mapped]
    assert sum(float(part.sum()) for part in each) == pytest.approx(1)
    assert each[0][0] == each[0][1] and each[2][1] == pytest.approx(9 * each[2][0], rel=1e-5)
    assert mapped[1].weights is None


def give_scores(folder: Path, *, left_out: int = 0, name: str = "t-0.jsonl") -> None:
    """Scores of a made-up teacher, whose digits need the image, for the traces of a world."""
    rows = pq.read_table(folder / "run/filter/dataset/train/part-00000.parquet").to_pylist()
    with Journal(folder / "run" / scores.FOLDER / name) as journal:
        for row in rows[left_out:]:
            text = row["messages"][-1]["content"]
            ids = np.array([[ord(each)] for each in text], np.int32)
            ends = np.arange(1, len(text) + 1, dtype=np.int32)
            for view in (scores.WITH_IMAGE, scores.BLIND):
                values = np.array([[-3.0 if view == scores.BLIND and each.isdigit() else -0.5] for each in text])
                made = scores.ScoredText(text=text, ids=ids, values=values.astype(np.float32), ends=ends)
                journal.append(scores.record_of(f"{row['trace_id']} {view}", row["trace_id"], view, made))
    write_json(scores.settings_path(folder / "run", "reason"), {"journals": {"t": name}})


def stage(more: str = VISUAL, steps: int = 6) -> str:
    return worlds.stage("reason", steps=steps, more=more)


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_jsonl(folder / "run/train/reason/metrics.jsonl")]


def test_a_stage_learns_with_weights_and_says_how_many_tokens_have_one(place: Path) -> None:
    give_scores(place, left_out=10)
    manifest = train(worlds.recipe(place, stage()), place / "run", stage="reason")
    covered = json.loads((place / "run/train/reason/visual.json").read_text())
    assert covered["traces"] == 30 and covered["unscored"] == 10
    assert 0.7 * covered["tokens"] < covered["aligned"] <= covered["tokens"]
    assert "visual.json" in manifest.outputs and manifest.fields["scores.t"] == "t-0.jsonl"


def test_without_strength_nothing_changes_and_with_it_something_does(place: Path, tmp_path: Path) -> None:
    give_scores(place)
    runs = {}
    for name, more in {"plain": "", "flat": VISUAL + "strength = 0.0\n", "weighed": VISUAL}.items():
        folder = Path(shutil.copytree(place, tmp_path / name))
        train(worlds.recipe(folder, stage(more)), folder / "run")
        runs[name] = losses(folder)
    assert runs["flat"] == pytest.approx(runs["plain"], abs=1e-4)
    assert runs["weighed"] != pytest.approx(runs["plain"], abs=1e-3)


def test_a_stage_with_scores_of_another_teacher_is_stale(place: Path) -> None:
    give_scores(place)
    recipe = worlds.recipe(place, stage())
    train(recipe, place / "run")
    give_scores(place, name="t-1.jsonl")
    with pytest.raises(StaleError, match=r"scores\.t"):
        train(recipe, place / "run")


def test_a_stage_whose_traces_are_not_scored_says_what_to_do(place: Path) -> None:
    with pytest.raises(DataError, match="not scored; use `distill train`"):
        train(worlds.recipe(place, stage()), place / "run")
    give_scores(place, left_out=40)
    with pytest.raises(DataError, match=r"40 traces has a score \(40 traces were not scored"):
        train(worlds.recipe(place, stage()), place / "run")
