"""A student as GGUF files in a real llama.cpp, through the command line: it says what transformers says."""

import json
from pathlib import Path

import pytest
from servers import llama_server
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.cli import app
from distill.recipe.loading import load
from student.train import train

PROMPTS = 48

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(llama_server.why_not()), reason=llama_server.why_not() or "-"),
]


@pytest.fixture(autouse=True)
def llama_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTILL_LLAMA_SERVER", llama_server.command())


@pytest.fixture(scope="module", params=[2, 1])
def run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A run whose stage has trained adapters for a few steps, from a random student with sharp choices."""
    folder = worlds.parts(tmp_path_factory.mktemp("world"))
    worlds.data(folder, questions=2 * PROMPTS)
    worlds.outspoken(folder)
    lora = worlds.stage("lora", steps=3, more="[stages.lora]\nrank = 4\nalpha = 8\n")
    path = worlds.recipe(folder, lora, more='[eval]\ndata = "questions"\nmax_new_tokens = 24\n').path
    path.write_text(path.read_text().replace("pixel_shuffle = 2", f"pixel_shuffle = {request.param}"))
    recipe = load(path)
    train(recipe, folder / "run")
    (folder / "run" / "recipe.toml").write_text(recipe.to_toml())
    return folder / "run"


def test_a_student_says_in_llama_cpp_what_it_says_in_transformers(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A random student is often undecided; in f16 its replies without shuffle part at ties (docs/log.md).
    weight_type = "f32" if load(run / "recipe.toml").student.pixel_shuffle == 1 else "f16"
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["export", str(run), "--out", str(out), "--gguf", weight_type, "--verify", "--prompts", str(PROMPTS)]
    )
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert done.exit_code == 0, done.output
    report = json.loads((out / "verify.json").read_text())
    assert report["passed"] and report["form"] == "gguf" and report["dtype"] == weight_type
    assert report["with_images"] == report["replies"]["compared"] == PROMPTS
    assert report["replies"]["identical_share"] >= 0.95
    assert report["replies"]["same_prompts"] == PROMPTS
    assert report["replies"]["different_replies"] > PROMPTS / 2
    assert report["server"]["engine"].startswith("llama.cpp")
