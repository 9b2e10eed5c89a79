"""Arguments of servers that a run starts: what is checked before a start, and what changes answers."""

import pwd
import sys
from pathlib import Path
from typing import Any

import pytest
from servers import vllm_server

from distill.errors import RecipeError
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.teachers import Teacher
from teacher.engines.vllm import vllm_options
from teacher.engines.vllm.vllm_options import (
    VllmOptions,
    answer_options,
    check_arguments,
    check_options,
    installed_options,
    render,
)
from teacher.engines.vllm.vllm_server import build_command

# A package with the two modules of vLLM that its options are asked from.
VLLM_PACKAGE = {
    "_version.py": "__version__ = '0.99.0'\n",
    "__init__.py": "from vllm._version import __version__\n",
    "utils/__init__.py": "",
    "utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
    "entrypoints/__init__.py": "",
    "entrypoints/openai/__init__.py": "",
    "entrypoints/openai/cli_args.py": """\
import argparse
def make_arg_parser(parser):
    switch = argparse.BooleanOptionalAction
    parser.add_argument("--max-model-len")
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int)
    parser.add_argument("--enforce-eager", action=switch)
    parser.add_argument("--disable-log-stats", action="store_true")
    parser.add_argument("--enable-chunked-prefill", "--disable-chunked-prefill", action=switch)
    parser.add_argument("--limit-mm-per-prompt")
    parser.add_argument("--hf-overrides")
    parser.add_argument("--allowed-origins")
    parser.add_argument("--cudagraph-capture-sizes", nargs="+")
    parser.add_argument("--middleware", action="append")
    return parser
""",
}


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The command of an environment whose package vllm is a small one with a parser of the same kind."""
    package = tmp_path / "packages" / "vllm"
    for name, text in VLLM_PACKAGE.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    (tmp_path / "bin").mkdir()
    for name in ("python", "vllm"):
        program = tmp_path / "bin" / name
        program.write_text(
            f'#!/bin/sh\necho run >> {tmp_path}/runs\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n'
        )
        program.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Server(command=(str(tmp_path / "bin" / "vllm"), "serve"))


def with_arguments(server: Server, **arguments: Any) -> Server:
    return server.model_copy(
        update={"arguments": {name.replace("_", "-"): value for name, value in arguments.items()}}
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"max-model-len": 8192}, ["--max-model-len", "8192"]),
        ({"max_model_len": "8k"}, ["--max-model-len", "8k"]),
        ({"--gpu-memory-utilization": 0.9}, ["--gpu-memory-utilization", "0.9"]),
        ({"tp": 2}, ["-tp", "2"]),
        ({"enforce-eager": True}, ["--enforce-eager"]),
        ({"enforce-eager": False}, ["--no-enforce-eager"]),
        ({"disable-log-stats": False}, []),
        ({"disable-chunked-prefill": True}, ["--disable-chunked-prefill"]),
        ({"disable-chunked-prefill": False}, ["--enable-chunked-prefill"]),
        ({"limit-mm-per-prompt": {"image": 2}}, ["--limit-mm-per-prompt", '{"image":2}']),
        ({"limit_mm_per_prompt.image": 2}, ["--limit-mm-per-prompt.image", "2"]),
        ({"hf-overrides": {"a_b": True}}, ["--hf-overrides", '{"a_b":true}']),
        ({"allowed-origins": ["*"]}, ["--allowed-origins", '["*"]']),
        ({"cudagraph-capture-sizes": [1, 2]}, ["--cudagraph-capture-sizes", "1", "2"]),
        ({"middleware": ["a", "b"]}, ["--middleware", "a", "--middleware", "b"]),
    ],
)
def test_arguments_become_what_vllm_reads(arguments: dict[str, Any], expected: list[str], vllm: Server) -> None:
    assert render(vllm.model_copy(update={"arguments": arguments})) == expected


def test_arguments_of_another_program_become_words() -> None:
    server = Server(command=("python", "stub.py"), arguments={"of-another-program": [1], "quiet": False})
    assert render(server) == ["--of-another-program", "[1]"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max-modle-len": 1}, "did you mean 'max-model-len'"),
        ({"tensor_paralel_size": 1}, "did you mean 'tensor-parallel-size'"),
        ({"limit-mm-per-promt.image": 1}, "did you mean 'limit-mm-per-prompt'"),
        ({"max-model-len": True}, "takes a value"),
        ({"enforce-eager": 1}, "takes true or false"),
    ],
)
def test_a_wrong_argument_is_found_without_starting_anything(
    arguments: dict[str, Any], message: str, vllm: Server
) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        check_options(vllm.model_copy(update={"arguments": arguments}), "recipe.toml: teachers.x.server")
    assert str(caught.value).startswith("recipe.toml: teachers.x.server.arguments.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"port": 8000}, "is set by the run"), ({"served_model_name": "x"}, "`served_model` of the teacher")],
)
def test_an_argument_of_the_run_itself_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check_arguments(Server(arguments=arguments), "recipe.toml: teachers.x.server")


def test_another_program_may_have_options_of_its_own() -> None:
    server = Server(command=(sys.executable, "stub.py"), arguments={"words": 3, "quick": True})
    check_arguments(server, "here")
    check_options(server, "here")


def test_a_user_without_a_home_folder_gets_the_options_and_no_folder_in_the_current_one(
    vllm: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    vllm_options._read_options.cache_clear()
    assert installed_options(with_arguments(vllm, seed=1)).version == "0.99.0"
    assert not [*(tmp_path / "here").iterdir()]


def test_vllm_is_asked_once_for_each_version_of_it(vllm: Server, tmp_path: Path) -> None:
    def asked() -> VllmOptions:
        vllm_options._read_options.cache_clear()  # as a new process
        return installed_options(with_arguments(vllm, seed=1))

    def runs() -> int:
        return len((tmp_path / "runs").read_text().splitlines())

    first = asked()
    assert first.version == "0.99.0" and first.find("max-model-len") == ("value", "--max-model-len")
    assert runs() == 2
    assert asked() == first and runs() == 3, "only the version is asked for again"
    version = tmp_path / "packages" / "vllm" / "_version.py"
    version.write_text("__version__ = '1.0.0'\n")
    assert asked().version == "1.0.0" and runs() == 5


def test_where_no_vllm_answers_its_options_are_left_to_the_server(tmp_path: Path) -> None:
    server = Server(command=(str(tmp_path / "vllm"), "serve"), arguments={"max-modle-len": 1, "a": True, "b": False})
    check_options(server, "here")
    assert render(server) == ["--max-modle-len", "1", "--a", "--no-b"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["--dtype", "float16"], ["--dtype=float16"], True),
        (["--dtype", "float16"], ["--dtype", "bfloat16"], False),
        (["--dtype", "float16"], [], False),
        (["--gpu-memory-utilization", "0.5"], ["--max-num-seqs", "8", "--no-enable-prefix-caching"], True),
        (["-tp", "2"], ["--tensor-parallel-size", "4"], True),
        (["--an-option-of-tomorrow", "1"], ["--an-option-of-tomorrow", "2"], False),
        (["--lora-modules", "a", "b"], ["--lora-modules", '["a","b"]'], True),
        (["--host", "127.0.0.1", "--port", "1"], ["--port", "2"], True),
    ],
)
def test_options_that_change_answers_are_all_but_those_known_to_change_speed(
    one: list[str], other: list[str], same: bool
) -> None:
    assert (answer_options(["vllm", "serve", *one]) == answer_options(["vllm", "serve", *other])) is same


def test_the_way_that_vllm_is_called_changes_no_answer() -> None:
    module = ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert answer_options([*module, "--dtype", "float32"]) == answer_options(["vllm", "serve", "--dtype", "float32"])
    assert answer_options([*module, "--dtype", "float32"]) != answer_options([*module, "--dtype", "float16"])


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.skipif(bool(vllm_server.why_not()), reason=vllm_server.why_not())
@pytest.mark.parametrize("command", [("serve",), ("-m", "vllm.entrypoints.openai.api_server")])
def test_a_real_vllm_says_its_options_and_has_those_of_the_run(
    command: tuple[str, ...],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Both commands have one interpreter, which is asked once.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "options"))
    (tmp_path / "sitecustomize.py").write_text(vllm_server.SITE)
    program = vllm_server.PYTHON.with_name("vllm") if command == ("serve",) else vllm_server.PYTHON
    server = {
        "command": (str(program), *command),
        "arguments": {"enforce-eager": False},
        "environment": {"PYTHONPATH": str(tmp_path)},
    }
    full = Teacher(name="t", model="m", revision="main", served_model="name", trust_remote_code=True, server=server)
    options = installed_options(full.server)
    assert len(set(options.by_name.values())) > 300 and options.version
    check_options(with_arguments(full.server, max_model_len=512, tensor_parallel_size=1), "here")
    with pytest.raises(RecipeError, match="did you mean 'max-model-len'"):
        check_options(with_arguments(full.server, max_modle_len=512), "here")
    built = build_command(full, "org/model", 8000, media_root=tmp_path)
    emitted = {part.removeprefix("--").removeprefix("no-") for part in built if part.startswith("--")}
    assert len(emitted) >= 8
    assert emitted <= options.by_name.keys()
    assert ("--model" in built) == (command[-1] != "serve")
    assert not [name for name in built if name in answer_options(built)]
