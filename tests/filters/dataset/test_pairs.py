"""Pairs of a right and a wrong trace: matched in length, always the same, and every question accounted for."""

from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from worlds import run_fixtures as fixtures

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.commands.explain import explain_trace
from distill.errors import DataError, StaleError
from filters.apply import apply
from filters.dataset.ablation_sets import materialise_stages
from filters.dataset.export_formats import PAIR_FORMATS
from filters.dataset.exports import export
from student.data import rows

pytestmark = pytest.mark.usefixtures("short_report")

STAGE = """
[[stages]]
name = "prefer"
data = "traces:pairs"
train = ["language"]
[stages.preference]
"""


def steps(number: int, count: int) -> str:
    return "; ".join(f"row {row} holds {number} dots" for row in range(1, count))


def world(folder: Path) -> None:
    """Four questions: one with a close wrong trace and a far one, one without, one with none right, one too far."""
    samples, traces = [], []
    for number in range(4):
        asked = fixtures.sample(
            f"Question {number}?", str(number), images=[fixtures.make_image(folder / "p", number)]
        )
        samples.append(asked)
        right, wrong = str(number), str(number + 1)
        good = fixtures.trace(asked, right, steps(number, 9), k=0)
        close = fixtures.trace(asked, wrong, steps(number + 1, 9), k=1)
        far = fixtures.trace(asked, wrong, steps(number + 1, 20), k=2)
        cut = replace(fixtures.trace(asked, wrong, steps(7, 9), k=3), outcome="truncated_thinking")
        traces += [[good, close, far, cut], [good, cut], [close, far], [good, far]][number]
    fixtures.generate_folder(folder / "run", samples, traces)


def pairs(run: Path) -> list[dict[str, object]]:
    return pq.read_table(run / "filter/arms/pairs/pairs.parquet").to_pylist()


def made(folder: Path) -> Path:
    world(folder)
    recipe = fixtures.recipe(folder, STAGE)
    apply(recipe, folder / "run")
    materialise_stages(recipe, folder / "run")
    return folder / "run"


def test_every_question_has_its_closest_pair_or_a_reason(tmp_path: Path):
    run = made(tmp_path)
    found = pairs(run)
    assert len(found) == 4
    (pair,) = [row for row in found if row["reason"] is None]
    assert pair["gap"] <= 0.1 and pair["chosen"] != pair["rejected"]
    assert sorted(str(row["reason"]) for row in found) == [
        "None",
        "lengths_differ",
        "no_right_trace",
        "no_wrong_trace",
    ]
    far = next(row for row in found if row["reason"] == "lengths_differ")
    assert far["rejected_tokens"] > 1.1 * far["chosen_tokens"]
    manifest = Manifest.read(run / "filter/arms/pairs")
    assert manifest is not None
    assert manifest.counts["pairs"] == manifest.counts["no_wrong_trace"] == manifest.counts["lengths_differ"] == 1
    assert manifest.counts["chosen_tokens"] == pair["chosen_tokens"]
    assert "pairs.parquet" in manifest.outputs


def test_the_choice_is_the_same_in_every_run(tmp_path: Path):
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    for name in ("pairs.parquet", "train/part-00000.parquet"):
        assert (first / "filter/arms/pairs" / name).read_bytes() == (second / "filter/arms/pairs" / name).read_bytes()


def test_a_stage_reads_both_traces_of_a_pair_and_knows_the_wrong_one(tmp_path: Path):
    run = made(tmp_path)
    recipe = fixtures.recipe(tmp_path, STAGE)
    (pair,) = [row for row in pairs(run) if row["reason"] is None]
    found = {row.id: row for row in rows.read(recipe, run, recipe.stages[0], rows.Counter())}
    assert found.keys() == {pair["chosen"], pair["rejected"]}
    assert found[str(pair["rejected"])].rejected and not found[str(pair["chosen"])].rejected


def test_explain_shows_the_pair_of_a_trace_or_why_there_is_none(tmp_path: Path):
    run = made(tmp_path)
    found = pairs(run)
    (pair,) = [row for row in found if row["reason"] is None]
    for own, role, other in (("chosen", "chosen", "rejected"), ("rejected", "rejected", "chosen")):
        said = explain_trace(run, str(pair[own]))
        assert f"{role}, with {pair[other]} {other}" in said
        assert f"{pair['chosen_tokens']} and {pair['rejected_tokens']} tokens" in said
    far = next(row for row in found if row["reason"] == "lengths_differ")
    assert "none: lengths_differ" in explain_trace(run, str(far["chosen"]))


def test_without_lengths_pairs_are_refused_with_what_to_do(tmp_path: Path):
    world(tmp_path)
    recipe = fixtures.recipe(tmp_path, STAGE + '[filter]\nsignals = ["answer", "format"]\nrules = []\n')
    apply(recipe, tmp_path / "run")
    with pytest.raises(DataError, match=r'add "length" to filter\.signals'):
        materialise_stages(recipe, tmp_path / "run")


def test_a_run_without_any_pair_says_why(tmp_path: Path):
    samples, traces = fixtures.small_world(tmp_path / "p", questions=2)
    fixtures.generate_folder(tmp_path / "run", samples, [trace for trace in traces if trace.k != 1])
    recipe = fixtures.recipe(tmp_path, STAGE)
    apply(recipe, tmp_path / "run")
    with pytest.raises(DataError, match=r"no_wrong_trace: 2 questions\).*ask for more traces of a question"):
        materialise_stages(recipe, tmp_path / "run")


def contents(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages]


def test_pairs_are_exported_for_other_trainers_as_the_journals_have_them(tmp_path: Path):
    import datasets
    from students import tiny_models
    from transformers import AutoProcessor
    from trl.trainer.dpo_trainer import DataCollatorForVisionPreference

    run, out = made(tmp_path), tmp_path / "out"
    (pair,) = [row for row in pairs(run) if row["reason"] is None]
    told = {str(line["id"]): line for part in (run / "generate").rglob("part-*.jsonl") for line in read_jsonl(part)}
    right, wrong = (
        f"<think>\n{told[str(pair[key])]['reasoning']}\n</think>\n\n{told[str(pair[key])]['answer']}"
        for key in ("chosen", "rejected")
    )
    (run / "recipe.toml").touch()
    chosen = [word for name in PAIR_FORMATS for word in ("--dataset", name)]
    ended = CliRunner().invoke(app, ["export", str(run), *chosen, "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    written = [made_format.file for made_format in PAIR_FORMATS.values()]
    (trl,), (factory,), (swift,) = ([*read_jsonl(out / name)] for name in written)
    assert contents(trl["chosen"]) == [right] and contents(trl["rejected"]) == [wrong]
    assert [factory[key]["content"] for key in ("chosen", "rejected")] == [right, wrong]
    assert factory["messages"] == swift["messages"][:1]
    assert factory["messages"] == [{"role": "user", "content": f"<image>{trl['prompt'][0]['content']}"}]
    assert swift["messages"][1]["content"] == right and swift["rejected_response"] == wrong
    info = orjson.loads((out / "dataset_info.json").read_bytes())["run"]
    assert info["ranking"] and info["file_name"] == "llama-factory-pairs.jsonl"
    loaded = datasets.Dataset.from_list([{**trl, "images": [str(out / path) for path in trl["images"]]}])
    tiny_models.build(tmp_path / "model", hidden=32, layers=1)
    processor = AutoProcessor.from_pretrained(tmp_path / "model")
    batch = DataCollatorForVisionPreference(processor)(
        [*loaded.cast_column("images", datasets.List(datasets.Image()))]
    )
    assert len(batch["input_ids"]) == 2 and batch["completion_mask"].any()


def test_pairs_that_are_not_there_or_mixed_with_single_traces_are_not_exported(tmp_path: Path):
    world(tmp_path)
    apply(fixtures.recipe(tmp_path, STAGE), tmp_path / "run")
    with pytest.raises(StaleError, match="distill train"):
        export(tmp_path / "run", ["trl-pairs"], tmp_path / "out")
    with pytest.raises(DataError, match="give each its own --out"):
        export(tmp_path / "run", ["trl-pairs", "llava"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
