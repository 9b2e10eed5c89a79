"""Exported students of other people's classes in a real vLLM say what transformers says."""

import json
import os
from pathlib import Path

import pytest
from servers import vllm_server
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.cli import app
from distill.recipe.loading import load
from student.train import train

PROMPTS = 16
KINDS = ("gemma4", "lfm2-vl", "qwen2.5-vl")
# Not Gemma 3: vLLM's attention for CPUs lets no image token see a later one.
FURTHER = (
    "llava-onevision",
    "mistral3",
    "qwen3-vl",
    "internvl",
    "llava",
    "qwen2-vl",
    "llava-next",
    "glm4v",
)
EVERY = "DISTILL_REAL_ENGINES" in os.environ
"""Whether all classes are served; each takes some 15 CPU seconds."""

pytestmark = [*vllm_server.marks(timeout_s=900), pytest.mark.usefixtures("vllm_interpreter")]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    # vLLM's gated delta rule for CPUs takes bfloat16 alone, in which ties fall either way.
    [("qwen3.5", "bfloat16"), *((kind, "float32") for kind in (*KINDS, *(FURTHER if EVERY else ())))],
)
def test_an_exported_student_says_in_vllm_what_it_says_in_transformers(
    kind: str, dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worlds.data(tmp_path, questions=2 * PROMPTS)
    worlds.published(kind, tmp_path / "student", served=True)
    stage = worlds.stage("lora", steps=2, more="[stages.lora]\nrank = 4\nalpha = 8\n")
    made = worlds.recipe(tmp_path, stage, more='[eval]\ndata = "questions"\nmax_new_tokens = 16\n')
    text = made.path.read_text()
    parts = 'vision = "vision"\nlanguage = "language"\npixel_shuffle = 2\n'
    assert parts in text
    text = text.replace(parts, 'model = "student"\n').replace('dtype = "float32"', f'dtype = "{dtype}"')
    made.path.write_text(text)
    run = tmp_path / "run"
    train(recipe := load(made.path), run)
    (run / "recipe.toml").write_text(recipe.to_toml())
    command = ["export", str(run), "--out", str(tmp_path / "out"), "--verify", "--prompts", str(PROMPTS)]
    done = CliRunner().invoke(app, command)
    with capsys.disabled():
        print(f"\n{done.output}")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out" / "verify.json").read_text())
    assert report["passed"] and report["with_images"] == PROMPTS
    assert report["replies"]["same_prompts"] == PROMPTS
    # In bfloat16 ties fall either way: one run had 7 of 16. Replies of another model would not be equal.
    assert report["replies"]["identical_share"] >= (0.99 if dtype == "float32" else 0.25)
    assert report["replies"]["different_replies"] > PROMPTS / 4
