"""What the commands of the stages print."""

import shlex
from pathlib import Path

import pytest

from distill.commands.stages import export_student
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
