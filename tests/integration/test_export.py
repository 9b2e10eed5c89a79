"""An exported student in a real vLLM, through the command line: both forms say what transformers says."""

import json
from pathlib import Path

import pytest
from servers import vllm_server
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.cli import app
from student.train import train

PROMPTS = 64

pytestmark = [*vllm_server.marks(timeout_s=900), pytest.mark.usefixtures("vllm_interpreter")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose stage has trained adapters for a few steps, from a random student with sharp choices."""
    folder = worlds.parts(tmp_path_factory.mktemp("world"))
    worlds.data(folder, questions=2 * PROMPTS)
    worlds.outspoken(folder)
    lora = worlds.stage("lora", steps=3, more="[stages.lora]\nrank = 4\nalpha = 8\n")
    recipe = worlds.recipe(folder, lora, more='[eval]\ndata = "questions"\nmax_new_tokens = 24\n')
    train(recipe, folder / "run")
    (folder / "run" / "recipe.toml").write_text(recipe.to_toml())
    return folder / "run"


def test_both_forms_of_a_student_say_in_vllm_what_they_say_in_transformers(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["export", str(run), "--out", str(out), "--both", "--verify"])
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert done.exit_code == 0, done.output
    for form in ("native", "plain"):
        report = json.loads((out / form / "verify.json").read_text())
        assert report["passed"] and report["form"] == form
        assert report["with_images"] == report["replies"]["compared"] == PROMPTS
        assert report["replies"]["identical_share"] >= 0.99
        assert report["replies"]["same_prompts"] == PROMPTS
        assert report["replies"]["tokens"] > 4 * PROMPTS
        assert report["replies"]["different_replies"] > PROMPTS / 2
        assert report["server"]["engine"].startswith("vllm ")
    assert "--model-impl transformers --trust-remote-code" in done.stdout.splitlines()[-1]
