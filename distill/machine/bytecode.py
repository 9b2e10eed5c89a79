"""Compiled modules: those that a full disk or a limit of file sizes cut short, and docstrings that they lack.

Python writes each module that it imports once more, compiled, and does not look whether all of it was written. Some
versions keep it, and every later import of the module fails then, also when there is room again.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

REMOVED = (
    "{path}: a full disk, or a limit of file sizes (ulimit -f), cut this compiled module short; it is removed, and "
    "Python makes it again: free space, or raise the limit, and run the same command again"
)


def remove_cut_module(error: BaseException) -> Path | None:
    """Remove the compiled module that this error of an import comes from; None for any other error."""
    trace = error.__traceback__ if isinstance(error, EOFError | ValueError | TypeError) else None
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "_compile_bytecode":  # of Python's importlib
            path = Path(trace.tb_frame.f_locals["bytecode_path"])
            path.unlink(missing_ok=True)
            return path
        trace = trace.tb_next
    return None


def docstring(thing: type | Callable[..., Any]) -> str:
    """The docstring of a function or class; from its source where `python -OO` has compiled it away."""
    if thing.__doc__ is not None:
        return inspect.cleandoc(thing.__doc__)
    definition = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(definition, ast.FunctionDef | ast.ClassDef)
    return ast.get_docstring(definition) or ""
