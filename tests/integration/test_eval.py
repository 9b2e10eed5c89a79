"""Students served by a real vLLM, through the command line: they say what they say in this process."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import vllm_server
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.cli import app
from distill.recipe.loading import load
from student.export.convert import export
from student.train import train
from teacher.engines.vllm import export_server

pytestmark = vllm_server.marks(timeout_s=900)

EVAL = """
[eval]
data = "questions"
allow_overlap = true
max_new_tokens = 24
batch_size = 16
gallery = 0
[eval.arms]
untouched = "base"
distilled = "lora"
"""


@pytest.fixture(autouse=True, scope="module")
def python() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        vllm_server.use_it(patch)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with adapters of a few steps, whose student says something else to every question."""
    folder = worlds.parts(tmp_path_factory.mktemp("world"))
    worlds.data(folder)
    worlds.outspoken(folder)
    lora = worlds.stage("lora", steps=3, more="[stages.lora]\nrank = 4\nalpha = 8\n")
    recipe = worlds.recipe(folder, lora, more=EVAL)
    train(recipe, folder / "run")
    (folder / "run" / "recipe.toml").write_text(recipe.to_toml())
    return folder


def evaluated(place: Path, *more: str, recipe: str = "recipe.toml") -> dict[tuple[str, bool, str], str]:
    """What `distill eval --fresh` makes every arm say, with and without images, by arm and question."""
    done = CliRunner().invoke(app, ["eval", str(place / recipe), "--run", str(place / "run"), "--fresh", *more])
    assert done.exit_code == 0, done.output
    folder = place / "run" / "eval"
    assert not (folder / ".export").exists()
    names = ("predictions.jsonl", "predictions_without_image.jsonl")
    return {
        (line["arm"], name == names[0], line["sample_id"]): line["text"]
        for name in names
        for line in read_jsonl(folder / name)
    }


@pytest.fixture(scope="module")
def said(place: Path) -> dict[tuple[str, bool, str], str]:
    """What the arms say in this process, and what one of them says that is served apart, as the arm `far`."""
    export(place / "run", place / "native", stage="lora")
    limits: dict[str, Any] = {"max_new_tokens": 24, "max_pixels": 10_000}
    arguments = {"dtype": "float32", "max-model-len": 512, "limit-mm-per-prompt": {"image": 1}}
    server = export_server.find_server(load(place / "recipe.toml"))
    with export_server.serve_export(place / "native", server=server, arguments=arguments, **limits) as served:
        return evaluated(place, "--student", f"far={served.url}#{export_server.SERVED_NAME}")


def test_a_student_that_is_served_elsewhere_says_what_it_says_in_this_process(said: dict[Any, str]) -> None:
    pairs = [(plain(said["distilled", *key]), plain(text)) for (arm, *key), text in said.items() if arm == "far"]
    same = sum(mine == theirs for mine, theirs in pairs)
    print(f"\n{same} of {len(pairs)} replies are the same")
    assert same >= 0.98 * len(pairs) and len({mine for mine, _ in pairs}) > 40


def test_a_student_served_for_the_evaluation_says_what_it_says_in_this_process(
    place: Path, said: dict[Any, str]
) -> None:
    # The trained one is served above; that each arm gets a server of its own is tested with a stub.
    text = (place / "recipe.toml").read_text()
    (place / "base.toml").write_text(text.replace('distilled = "lora"\n', ""))
    here = {key: text for key, text in said.items() if key[0] == "untouched"}
    served = evaluated(place, "--set", "eval.engine=vllm", recipe="base.toml")
    assert here.keys() == served.keys() and len(here) == 2 * 40
    same = sum(served[key] == text for key, text in here.items())
    print(f"\n{same} of {len(here)} replies are the same")
    assert same >= 0.99 * len(here)
    assert len(set(here.values())) > 20


def plain(text: str) -> str:
    """A reply without special tokens, which servers leave out, and without bytes that are no text."""
    return re.sub(r"<\|\w+\|>|<(?:fake_token_around_image|image|global-img|end_of_utterance)>|\ufffd", "", text)
