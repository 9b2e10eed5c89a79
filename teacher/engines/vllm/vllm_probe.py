"""Run by vLLM's own interpreter: print the version and the options of the server installed there, as JSON.

An option is its kind, then its spellings. They come from the parser that `vllm serve` uses; nothing is started.
Kinds: flag (bare), switch (bare, with a --no- form), value, optional (bare or with a value), values (several after
one option), repeated (the option once for each value).
"""

import argparse
import json
import sys
from importlib import import_module
from importlib.util import find_spec

_MODULES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
"""Modules that have held the parser, the newest first."""


def server_options(parser: argparse.ArgumentParser) -> list[list[str]]:
    """Every option that a parser knows, except help."""
    options = []
    for action in parser._actions:
        known = action.option_strings
        names = [text for text in known if not (text.startswith("--no-") and "--" + text[5:] in known)]
        if "--help" not in names and names:
            options.append([_kind(action), *sorted(names, key=lambda text: not text.startswith("--"))])
    return options


def _kind(action: argparse.Action) -> str:
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    if isinstance(action, argparse._AppendAction):
        return "repeated"
    if action.nargs == 0:
        return "flag"
    if action.nargs == "?":
        return "optional"
    return "values" if action.nargs in ("+", "*") else "value"


def server_parser() -> argparse.ArgumentParser:
    """The parser of the OpenAI-compatible server, from the module where this version has it."""
    parser_class = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    for name in _MODULES:
        if _exists(name) and hasattr(module := import_module(name), "make_arg_parser"):
            parser: argparse.ArgumentParser = module.make_arg_parser(parser_class())
            return parser
    raise SystemExit(f"no server parser in any of {_MODULES}; look where this vLLM keeps make_arg_parser")


def _exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its package is not there
        return False


if __name__ == "__main__":
    answer = {"version": import_module("vllm").__version__, "options": server_options(server_parser())}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
