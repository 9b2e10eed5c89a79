"""Ablation arms are lists of ids, made by default; their rows are written when training asks for them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from worlds import run_fixtures as fixtures

from distill.errors import RecipeError, StaleError
from filters.apply import apply
from filters.dataset import writer
from filters.dataset.ablation_sets import materialise
from student.data import rows

pytestmark = pytest.mark.usefixtures("short_report")

STAGE = """
[[stages]]
name = "reason"
data = "{data}"
train = ["language"]
[filter.select]
per_question = 1
"""


def world(folder: Path, questions: int = 12):
    samples, traces = fixtures.small_world(folder / "pictures", questions=questions)
    fixtures.generate_folder(folder / "run", samples, traces)
    return traces


def recipe(folder: Path, data: str = "traces:random", seed: int = 0):
    read = fixtures.recipe(folder, STAGE.format(data=data))
    return read.model_copy(update={"seed": seed})


def ids(run: Path, arm: str) -> list[str]:
    return pq.read_table(run / f"filter/arms/{arm}.parquet")["id"].to_pylist()


def tokens(run: Path, wanted: set[str]) -> int:
    table = pq.read_table(run / "filter/signals").to_pylist()
    return sum(row["rationale_tokens"] + row["answer_tokens"] for row in table if row["id"] in wanted)


def test_unfiltered_is_every_complete_trace(tmp_path):
    traces = world(tmp_path)
    manifest = apply(recipe(tmp_path), tmp_path / "run")
    expected = {trace.id for trace in traces if trace.outcome == "complete"}
    found = ids(tmp_path / "run", "unfiltered")
    assert set(found) == expected and len(found) == len(expected)
    assert manifest.outputs["arms/unfiltered.parquet"].count == len(expected)


def test_random_has_as_many_tokens_as_the_dataset(tmp_path):
    world(tmp_path, questions=60)
    apply(recipe(tmp_path), tmp_path / "run")
    run = tmp_path / "run"
    decisions = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    selected = tokens(run, {row["id"] for row in decisions if row["selected"]})
    found = set(ids(run, "random"))
    every = set(ids(run, "unfiltered"))
    assert found < every
    assert 0 <= selected - tokens(run, found) < min(tokens(run, {name}) for name in every - found)


def test_a_long_trace_that_does_not_fit_is_left_out_of_random(tmp_path):
    samples, traces = fixtures.small_world(tmp_path / "pictures", questions=20)
    traces = [replace(one, reasoning=one.reasoning * 60) if place == 2 else one for place, one in enumerate(traces)]
    fixtures.generate_folder(tmp_path / "run", samples, traces)
    run = tmp_path / "run"
    for seed in range(12):
        apply(recipe(tmp_path, seed=seed), run, fresh=True)
        decisions = pq.read_table(run / "filter/decisions.parquet").to_pylist()
        selected = tokens(run, {row["id"] for row in decisions if row["selected"]})
        left = selected - tokens(run, set(ids(run, "random")))
        assert 0 <= left < min(tokens(run, {name}) for name in ids(run, "unfiltered"))


def test_the_seed_chooses_and_nothing_else_does(tmp_path):
    world(tmp_path)
    found = []
    for seed in (0, 0, 1):
        apply(recipe(tmp_path, seed=seed), tmp_path / "run", fresh=True)
        found.append(ids(tmp_path / "run", "random"))
    assert found[0] == found[1] != found[2]


def test_unreadable_images_are_in_no_arm(tmp_path):
    traces = world(tmp_path)
    (tmp_path / "pictures" / "00000.png").unlink()
    apply(recipe(tmp_path), tmp_path / "run")
    gone = {trace.id for trace in traces[:4]}
    assert not gone & set(ids(tmp_path / "run", "unfiltered"))


def test_without_lengths_random_has_as_many_traces(tmp_path):
    world(tmp_path)
    read = fixtures.recipe(
        tmp_path, '[filter]\nsignals = ["answer"]\nrules = []\n[filter.select]\nper_question = 1\n'
    )
    manifest = apply(read, tmp_path / "run")
    assert len(ids(tmp_path / "run", "random")) == manifest.counts["selected"]


def test_training_reads_an_arm_once_it_is_written(tmp_path):
    world(tmp_path)
    read, run = recipe(tmp_path), tmp_path / "run"
    apply(read, run)
    assert not (run / "filter/arms/random").exists()
    folder = materialise(read, run, "random")
    found = list(rows.read(read, run, read.stages[0], Counter()))
    assert sorted(row.id for row in found) == sorted(ids(run, "random"))
    assert all(row.images and row.response.startswith("<think>") for row in found)
    dataset = pq.read_table(folder / "train").to_pylist()
    assert all(orjson.loads(row["signals"])["format_state"] == "ok" for row in dataset)
    assert rows.fields(read, run, read.stages[0]).keys() == {"data.traces:random"}


def test_an_arm_is_written_once_and_again_after_another_filter(tmp_path):
    world(tmp_path)
    read, run = recipe(tmp_path), tmp_path / "run"
    apply(read, run)
    path = materialise(read, run, "unfiltered") / "train/part-00000.parquet"
    before = path.stat().st_mtime_ns
    materialise(read, run, "unfiltered")
    assert path.stat().st_mtime_ns == before
    (path.parent.parent.with_name(".unfiltered.tmp")).mkdir()
    (path.parent.parent / "manifest.json").unlink()
    assert materialise(read, run, "unfiltered") == path.parent.parent and path.stat().st_mtime_ns != before


def test_an_arm_of_which_a_file_is_gone_is_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "dataset_file_rows", lambda rows: 5)
    world(tmp_path)
    apply(recipe(tmp_path), tmp_path / "run")
    written = materialise(recipe(tmp_path), tmp_path / "run", "random")
    before = {path.name: path.read_bytes() for path in written.rglob("*.parquet")}
    assert len(before) > 1
    (tmp_path / "run/filter/arms/random/train/part-00001.parquet").unlink()
    again = materialise(recipe(tmp_path), tmp_path / "run", "random")
    assert {path.name: path.read_bytes() for path in again.rglob("*.parquet")} == before


def test_an_arm_needs_a_finished_filter(tmp_path):
    world(tmp_path)
    with pytest.raises(StaleError, match=f"`distill filter .* --run {tmp_path / 'run'}` first"):
        materialise(recipe(tmp_path), tmp_path / "run", "random")


def test_an_unknown_arm_is_refused_on_loading(tmp_path):
    with pytest.raises(RecipeError, match=r"traces:randon.*did you mean 'traces:random'"):
        recipe(tmp_path, data="traces:randon")


@pytest.mark.parametrize("data", ["traces", "traces:random"])
def test_training_is_stale_for_other_rows_and_not_for_a_filter_that_ran_again(tmp_path, data):
    """A run that asks again for a failed trace has other journals; if the rows are the same, so is their identity."""
    samples, traces = fixtures.small_world(tmp_path / "pictures", questions=12)
    read, run = recipe(tmp_path, data), tmp_path / "run"

    def identity(latency_s: float, left_out: int = 0) -> tuple[str, str]:
        again = [replace(trace, latency_s=latency_s) for trace in traces[left_out:]]
        fixtures.generate_folder(run, samples, again)
        filtered = apply(read, run)
        return filtered.fingerprint, rows.fields(read, run, read.stages[0])[f"data.{data}"]

    first, later, fewer = identity(1.0), identity(2.0), identity(1.0, left_out=4)
    assert first[0] != later[0] and first[1] == later[1]
    assert first[1] != fewer[1]
