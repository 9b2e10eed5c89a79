"""What the commands of the stages print."""

import shlex
from pathlib import Path

import pytest

from distill.artifacts.layout import RECIPE
from distill.commands.stages import export_student, filter_stage, recorded
from distill.errors import InputError, ModelError, StaleError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from student.export import convert


def test_the_command_that_serves_an_export_is_one_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"compilation-config": {"custom_ops": ["none"]}, "trust-remote-code": True}
    monkeypatch.setattr("distill.commands.stages.load", lambda _: Recipe())
    monkeypatch.setattr(convert, "export", lambda *_, **__: "reason")
    monkeypatch.setattr(convert, "server_arguments", lambda _: options)
    out = tmp_path / "my student"
    printed = export_student(tmp_path, out, None, forms=[convert.NATIVE])
    words = shlex.split(printed.partition("serve it: ")[2])
    assert words == [
        "vllm",
        "serve",
        str(out),
        "--compilation-config",
        '{"custom_ops":["none"]}',
        "--trust-remote-code",
    ]


@pytest.mark.parametrize("error", [StaleError, ModelError])
def test_a_command_that_refuses_its_input_leaves_the_recipe_of_the_run(
    tmp_path: Path, error: type[InputError]
) -> None:
    run, mine, other = tmp_path / "run", load("tiny"), load("tiny", {"seed": "5"})
    with recorded(mine, run):
        pass
    before = (run / RECIPE).read_text()
    with pytest.raises(error), recorded(other, run):
        raise error("no such checkpoint")
    assert (run / RECIPE).read_text() == before
    with pytest.raises(KeyboardInterrupt), recorded(other, run):  # it began: its results are of this recipe
        raise KeyboardInterrupt
    assert load(run / RECIPE).seed == 5


def test_a_stage_that_lacks_the_one_before_names_the_whole_command(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    with pytest.raises(StaleError, match=f"run `distill generate .*tiny.toml --run '{run}'` first"):
        filter_stage(load("tiny"), run)
