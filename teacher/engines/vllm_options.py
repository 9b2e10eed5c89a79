"""The options of a vLLM server: which there are, how a recipe's values become arguments.

The list in vllm_options.txt is vLLM's own, printed by its parser (benchmarks/vllm_options.py), a section for each
version. It names options; whether a value suits is the server's to say.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from distill import redact
from distill.errors import RecipeError
from distill.recipe.teachers import Server

_LIST = Path(__file__).with_name("vllm_options.txt")
_OWN = {
    "model": "`model` of the teacher",
    "model-tag": "`model` of the teacher",
    "host": "the run, which serves to itself alone",
    "port": "the run, which takes a free one",
    "uds": "the run, which talks over a port",
    "headless": "the run, which needs the API",
    "served-model-name": "`served_model` of the teacher",
    "revision": "`revision` of the teacher",
}

_DECIDING = frozenset(
    [
        *("dtype", "quantization", "quantization-config", "kv-cache-dtype", "mm-encoder-attn-dtype", "hf-overrides"),
        *(
            "tokenizer",
            "tokenizer-revision",
            "code-revision",
            "lora-modules",
            "default-mm-loras",
            "mm-processor-kwargs",
        ),
        *("chat-template", "chat-template-content-format", "default-chat-template-kwargs", "interleave-mm-strings"),
        *("generation-config", "override-generation-config"),
    ]
)
"""Options that change what a server answers to the same request: its weights, its numbers, or the prompt it sees."""


@cache
def options() -> dict[str, dict[str, tuple[str, str]]]:
    """By version, newest first: each option by name without dashes, its kind and its spelling."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("# vllm "):
            section = found[line.removeprefix("# vllm ")] = {}
        else:
            kind, *names = line.split()
            for name in names:
                inverse = kind == "switch" and name == _inverse(names[0])
                section[name.lstrip("-")] = ("inverse" if inverse else kind, name)
    return found


def is_vllm(server: Server) -> bool:
    """Whether a server's command is vLLM's, so that the list of options holds for it."""
    program = Path(server.command[0]).name
    return program == "vllm" or any(re.match(r"vllm(\.|$)", part) for part in server.command[1:])


def check_arguments(server: Server, where: str) -> None:
    """Raises RecipeError for an argument that vLLM does not have, that is the run's own, or of the wrong kind."""
    given = [*server.command, *server.extra, *server.environment.values(), *map(str, server.arguments.values())]
    if any(map(redact.is_masked, given)):
        raise RecipeError(
            f"{where}: a secret in it is masked, because this is the copy of a recipe that a run keeps; use the "
            "recipe itself, or set the value again"
        )
    for name, value in server.arguments.items():
        option = _plain(name)
        if option in _OWN:
            raise RecipeError(f"{where}.arguments.{name}: is set by {_OWN[option]}; leave it out here")
        if is_vllm(server):
            _check(option, name, value, where)
    for argument in server.extra:
        option = _plain(argument.partition("=")[0])
        if argument.startswith("--") and option in _OWN:
            raise RecipeError(f"{where}.extra: {argument} is set by {_OWN[option]}; leave it out here")


def _check(option: str, name: str, value: Any, where: str) -> None:
    known = _known(option)
    if known is None:
        everything = options()
        near = difflib.get_close_matches(option, {key for each in everything.values() for key in each}, n=1)
        raise RecipeError(
            f"{where}.arguments.{name}: vLLM {next(iter(everything))} has no option --{option}"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + " (an option of another version goes into `extra`, unchecked)"
        )
    bare = known[0] in ("flag", "switch", "inverse")
    if known[0] != "optional" and bare != isinstance(value, bool):
        wants = "true or false" if bare else "a value"
        raise RecipeError(f"{where}.arguments.{name} = {value!r}: --{option} takes {wants}")


def render(arguments: Mapping[str, Any]) -> list[str]:
    """A recipe's arguments as a command line has them."""
    found: list[str] = []
    for name, value in arguments.items():
        option = _plain(name)
        kind, spelling = _known(option) or ("", f"--{option}")
        _, dot, key = option.partition(".")
        dashed = spelling.partition(".")[0] + dot + key
        if value is True:
            found.append(dashed)
        elif value is False:
            found += [f"--no-{option}"] if kind == "switch" else [_inverse(dashed)] if kind == "inverse" else []
        elif isinstance(value, list | tuple) and kind == "values":
            found += [dashed, *map(_text, value)]
        elif isinstance(value, list | tuple) and kind == "repeated":
            found += [part for each in value for part in (dashed, _text(each))]
        else:
            found += [dashed, _text(value)]
    return found


def deciding(command: Sequence[str]) -> dict[str, list[str]]:
    """The options of a command line that change what its server answers, with their values."""
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for part in command:
        if part.startswith("-"):
            name, equals, value = part.partition("=")
            option = _plain("quantization" if name == "-q" else name)
            values = found.setdefault(option, []) if option.partition(".")[0] in _DECIDING else None
            if values is not None and equals:
                values.append(value)
        elif values is not None:
            values.append(part)
    return found


def _inverse(spelling: str) -> str:
    """vLLM 0.33 pairs --enable-x with --disable-x; the --no- form of older versions is still understood."""
    for prefix, opposite in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if spelling.startswith(prefix):
            return opposite + spelling.removeprefix(prefix)
    return ""


def _plain(name: str) -> str:
    """`--max_model_len` and `max-model-len` are one option; what follows a dot is a key of its JSON value."""
    option, dot, rest = name.strip().lstrip("-").partition(".")
    return option.replace("_", "-") + dot + rest


def _known(option: str) -> tuple[str, str] | None:
    base = option.partition(".")[0]
    return next((section[base] for section in options().values() if base in section), None)


def _text(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return orjson.dumps(value if isinstance(value, Mapping) else list(value)).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)
