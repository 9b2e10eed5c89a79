"""The program of a server: where it is found, how it is run, which files it may read."""

import sys
from pathlib import Path
from typing import Any

import pytest

from distill.errors import RecipeError
from distill.recipe.sections.teachers import Teacher
from teacher.engines.vllm.vllm_server import Servers, build_command

# Answers /health and /pid, writes its own pid and that of a child to a file, and has a child that outlives SIGTERM.


def test_a_program_that_is_not_there_is_the_recipes_mistake(tmp_path: Path) -> None:
    for command in (["no-such-vllm", "serve"], ["bin/vllm", "serve"]):
        with pytest.raises(RecipeError, match="there is no program"):
            Servers(Teacher(name="t", model="m", server={"command": command}), "m", tmp_path, base=tmp_path)


def test_a_relative_program_is_found_beside_the_recipe(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    servers = Servers(
        Teacher(name="t", model="m", server={"command": ["bin/vllm", "serve"]}), "m", tmp_path, base=tmp_path
    )
    assert servers.command[:3] == [str(program), "serve", "m"]


def test_a_python_script_runs_in_this_python_and_needs_no_right_to_be_executed(tmp_path: Path) -> None:
    (tmp_path / "teacher.py").write_text("")
    servers = Servers(
        Teacher(name="t", model="m", server={"command": ["./teacher.py"]}), "m", tmp_path, base=tmp_path
    )
    assert servers.command[:4] == [sys.executable, str(tmp_path / "teacher.py"), "--model", "m"]
    with pytest.raises(RecipeError, match="there is no program"):
        Servers(Teacher(name="t", model="m", server={"command": ["./other.py"]}), "m", tmp_path, base=tmp_path)


def test_a_file_of_images_is_allowed_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    def built(command: list[str], **arguments: Any) -> list[str]:
        server = {"command": command, "arguments": arguments}
        return build_command(Teacher(name="t", model="m", server=server), "m", 1, media_root=tmp_path)

    assert str(tmp_path) in built(["vllm", "serve"])
    assert str(tmp_path) not in built(["vllm", "serve"], allowed_local_media_path="/data")
    assert str(tmp_path) not in built(["python", "stub.py"])
