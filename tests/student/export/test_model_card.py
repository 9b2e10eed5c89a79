"""The model card of an export: figures of the run with their intervals, and no place of this machine."""

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from worlds import report_worlds as worlds

from distill.artifacts.manifest import Manifest
from distill.recipe.loading import load
from student.evaluation.students import arms_of
from student.export.convert import choose_stage
from student.export.model_card import write_model_card

RECIPE = """
[data.questions]
source = "secret-place/questions.jsonl"
[[teachers]]
name = "reader"
model = "owner/reader"
revision = "v1"
base_url = "http://user:hunter2@gpu-7.internal:8000/v1"
[[teachers]]
name = "idle"
model = "owner/idle"
[student]
vision = "owner/tower"
language = "secret-place/decoder"
pixel_shuffle = 2
[student.card]
license = "apache-2.0"
[filter.card]
language = ["en"]
teachers = {reader = "mit | custom"}
[[stages]]
name = "align"
data = "questions"
train = ["projector"]
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
[[stages]]
name = "control"
data = "traces"
target = "answer"
train = ["language"]
start = "align"
[eval.arms]
distilled = "reason"
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A trained run, without an evaluation."""
    (tmp_path / "secret-place" / "decoder").mkdir(parents=True)
    (tmp_path / "secret-place" / "questions.jsonl").touch()
    (tmp_path / "recipe.toml").write_text(RECIPE)
    for number, stage in enumerate(("align", "reason", "control")):
        counts = {"parameters": 1_234_567, "steps": 100 * (number + 1)}
        manifest = Manifest(stage=stage, fingerprint=stage, fields={}, counts=counts, tokens={"trained": 5_000})
        manifest.write(tmp_path / "run" / "train" / stage)
    data = tmp_path / "run" / "filter" / "dataset" / "train"
    data.mkdir(parents=True)
    pq.write_table(pa.table({"teacher": ["reader"] * 1_500}), data / "part-00000.parquet")
    return tmp_path / "run"


def card(run: Path, stage: str = "reason", **arguments: Any) -> tuple[dict[str, Any], str]:
    out = run.parent / "out"
    out.mkdir(exist_ok=True)
    write_model_card(load(run.parent / "recipe.toml"), run, out, stage, arguments)
    _, header, body = (out / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(header), body


def evaluate(run: Path, stage: str) -> dict[str, Any]:
    asked = worlds.samples([worlds.drawing(run / "pictures", number) for number in range(4)], 90)
    metrics = worlds.metrics(worlds.predictions(asked, words=20))
    for arm, facts in metrics["arms"].items():
        facts["stage"] = stage if arm == "distilled" else arm
    (run / "eval").mkdir()
    (run / "eval" / "metrics.json").write_text(json.dumps(metrics))
    fields = {"students.distilled": stage, "eval.data": "exam", "eval.max_new_tokens": 77}
    Manifest(stage="eval", fingerprint="e", fields=fields).write(run / "eval")
    return metrics


def test_the_hub_reads_licence_base_model_and_task(run: Path) -> None:
    header, _ = card(run)
    assert header["license"] == "apache-2.0" and header["language"] == ["en"]
    assert header["base_model"] == ["owner/tower"], "a folder of this machine is no model of the hub"
    assert header["pipeline_tag"] == "image-text-to-text" and header["library_name"] == "transformers"


def test_figures_are_those_of_the_evaluation(run: Path) -> None:
    metrics = evaluate(run, "reason")
    arm = metrics["arms"]["distilled"]
    low, high = (f"{100 * end:.1f}" for end in arm["ci95"])
    _, body = card(run)
    assert f"**Accuracy {100 * arm['accuracy']:.1f} [{low}, {high}] %** on 90 held-out questions" in body
    assert f"| distilled | {100 * arm['accuracy']:.1f} \\[{low}, {high}] |" in body  # cells are escaped
    assert all(f"| {name} |" in body for name in (*metrics["arms"], *arm["domains"]))
    others = [name for name in metrics["deltas"] if "distilled" in name.split("-")]
    assert len(others) == 3 and all(f"| {name} |" in body for name in others)
    assert "answers_only-instruct" in metrics["deltas"] and "| answers_only-instruct |" not in body


def test_the_card_says_what_its_columns_are(run: Path) -> None:
    evaluate(run, "reason")
    text = card(run)[1]
    assert "- *hallucination*: Share of rationales with a value that chart and question do not support" in text
    assert "Training tokens and seconds are those of the last stage of a student." in text


def test_a_student_of_an_earlier_step_is_not_called_one_of_all_steps(run: Path) -> None:
    stage = run / "train" / "reason"
    manifest = Manifest.read(stage)
    assert manifest is not None and "student of step" not in card(run)[1]
    replace(manifest, counts={**manifest.counts, "kept_step": 120}).write(stage)
    assert "| 200 (student of step 120) | 5,000 |" in card(run)[1]


def test_a_student_without_evaluation_has_no_figures(run: Path) -> None:
    assert "was not evaluated" in card(run)[1]
    evaluate(run, "other")
    assert "was not evaluated" in card(run)[1], "another stage's figures are not this student's"


def test_the_training_table_names_replayed_sources(run: Path) -> None:
    assert "| reason | traces (rationale) |" in card(run)[1]
    train_again(run, **{"stage.replay.align": 0.1, "stage.replay.captions": 0.25})
    assert "| reason | traces (rationale), 10 % align, 25 % captions |" in card(run)[1]


def train_again(run: Path, **fields: Any) -> None:
    manifest = Manifest.read(run / "train" / "reason")
    assert manifest is not None
    replace(manifest, fingerprint="again", fields=fields).write(run / "train" / "reason")


def test_figures_of_an_earlier_training_are_not_this_students(run: Path) -> None:
    evaluate(run, "reason")
    assert "of the source `exam`" in card(run)[1] and "at most 77 new tokens" in card(run)[1]
    train_again(run)
    assert "was not evaluated" in card(run)[1] and "Accuracy" not in card(run)[1]


def test_the_card_tells_what_the_stage_learned_and_not_what_the_recipe_says_now(run: Path) -> None:
    train_again(run, **{"stage.learning_rate": 0.25, "data.traces": "dataset before"})
    Manifest(stage="filter", fingerprint="dataset now", fields={}).write(run / "filter")
    body = card(run)[1]
    assert "| reason | traces (rationale) | language | 200 | 5,000 | 0.25 |" in body
    assert "| reader | owner/reader | v1 | not known: the dataset was made again | mit" in body


def test_lineage_and_teachers_are_those_of_this_stage(run: Path) -> None:
    _, body = card(run)
    assert "| align | questions | projector | 100 | 5,000 |" in body
    assert "| reason | traces (rationale) | language | 200 | 5,000 |" in body
    assert "| control |" not in body
    assert "| reader | owner/reader | v1 | 1,500 | mit \\| custom |" in body and "| idle |" not in body
    aligned = card(run, "align")[1]
    assert "| reader |" not in aligned and "rationale `</think>`" not in aligned, "no trace taught it"


def test_a_dataset_made_by_hand_names_no_teachers(run: Path) -> None:
    pq.write_table(pa.table({"answer": ["4"]}), run / "filter" / "dataset" / "train" / "part-00000.parquet")
    assert "examples in the dataset" not in card(run)[1]


def test_no_place_of_this_machine_and_no_secret_is_in_the_card(run: Path) -> None:
    recipe = load(run.parent / "recipe.toml")
    (run.parent / "recipe.toml").write_text(recipe.to_toml())  # as the run keeps it: with absolute paths
    _, body = card(run)
    for secret in ("hunter2", "gpu-7", "secret-place", str(run.parent), os.sep + "tmp"):
        assert secret not in body, secret
    assert 'language = "decoder"' in body and 'model = "owner/reader"' in body


def test_the_options_of_the_server_are_in_the_command(run: Path) -> None:
    _, body = card(run, **{"model-impl": "transformers", "trust-remote-code": True})
    assert "vllm serve path/to/this/folder --model-impl transformers --trust-remote-code\n" in body
    options = {"compilation-config": {"custom_ops": ["none"]}, "dtype": "float32"}
    (line,) = [line for line in card(run, **options)[1].splitlines() if line.startswith("vllm serve")]
    words = shlex.split(line)
    assert words[3:] == ["--compilation-config", '{"custom_ops":["none"]}', "--dtype", "float32"]
    assert "trust_remote_code=True" in body and "trust_remote_code" not in card(run)[1]


def test_the_card_of_gguf_files_says_how_llama_cpp_runs_them(run: Path) -> None:
    gguf = {"model": "model.gguf", "mmproj": "mmproj.gguf", "weights": "f16", "image_size": 224}
    write_model_card(load(run.parent / "recipe.toml"), run, run.parent, "reason", gguf=gguf)
    _, header, body = (run.parent / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(header)["library_name"] == "gguf"
    assert "llama-server --model model.gguf --mmproj mmproj.gguf" in body and "(f16 weights)" in body
    assert "Stretch each image to 224 x 224 pixels first" in body and "(224, 224), Image.Resampling.LANCZOS" in body
    assert "vllm serve" not in body and "AutoProcessor" not in body and "## Training" in body


def test_a_student_of_another_runs_traces_reasons_too(run: Path) -> None:
    path = run.parent / "recipe.toml"
    (run.parent / "old").mkdir()
    old = '[data.old]\nsource = "old"\nformat = "traces"\n[[teachers]]\nname = "reader"'
    text = RECIPE.replace('data = "traces"', 'data = "old"').replace('[[teachers]]\nname = "reader"', old)
    path.write_text(text.replace("[eval.arms]", '[eval.arms]\ncontrol = "control"'))
    recipe = load(path)
    assert "that reasons before it answers" in card(run)[1] and "that reasons" not in card(run, "control")[1]
    assert choose_stage(recipe, run) == "reason" and list(arms_of(recipe)) == ["control", "distilled"]
