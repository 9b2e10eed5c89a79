"""Print the options of the vLLM server installed here: one section of teacher/vllm_options.txt.

    PYTHON_WITH_VLLM benchmarks/vllm_options.py

The first line names the version; then one option a line: its kind, then its spellings. They come from the very
parser that `vllm serve` uses; nothing is started. A machine without a GPU needs a build for CPUs, or a package whose
metadata says so. Kinds: flag (bare), switch (bare, with a --no- form), value, optional (bare or with a value), values
(several after one option), repeated (the option once for each value).
"""

import argparse
from importlib import import_module
from importlib.util import find_spec

PLACES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
"""Modules that have held the parser, the newest first."""


def lines(parser: argparse.ArgumentParser) -> list[str]:
    """Every option that a parser knows, except help."""
    found = []
    for action in parser._actions:
        known = action.option_strings
        names = [text for text in known if not (text.startswith("--no-") and "--" + text[5:] in known)]
        if "--help" not in names and names:
            found.append(" ".join([_kind(action), *sorted(names, key=lambda text: not text.startswith("--"))]))
    return sorted(found, key=lambda line: line.split(" ", 1)[1])


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
    """The parser of the OpenAI-compatible server, wherever this version keeps it."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for place in PLACES:
        if find_spec(place) and hasattr(module := import_module(place), "make_arg_parser"):
            parser: argparse.ArgumentParser = module.make_arg_parser(FlexibleArgumentParser())
            return parser
    raise SystemExit(f"no server parser in any of {PLACES}; look where this vLLM keeps make_arg_parser")


if __name__ == "__main__":
    import vllm

    print(f"# vllm {vllm.__version__}")
    print("\n".join(lines(server_parser())))
