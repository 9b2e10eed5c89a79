"""What every script of benchmarks/ prints for `--help`, in one process.

    python tests/support/listed/benchmark_helps.py

Prints a JSON object: the path of each Python file of benchmarks/ that can be run, and its help, or the traceback of
what failed. Modules of one folder of benchmarks/ do not stay for the next: they have equal names.
"""

import argparse
import contextlib
import io
import json
import runpy
import sys
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def print_help(parser: argparse.ArgumentParser, file: object = None) -> None:
    """The help of a parser and of its subcommands."""
    print(parser.format_help())
    for action in parser._actions:
        for name in action.choices or () if isinstance(action, argparse._SubParsersAction) else ():
            print_help(action.choices[name])


def help_of(script: Path) -> str:
    known, paths, out = set(sys.modules), list(sys.path), io.StringIO()
    sys.argv, sys.path[:0] = [str(script), "--help"], [str(script.parent)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            runpy.run_path(str(script), run_name="__main__")
        return f"{out.getvalue()}\nends without help"
    except SystemExit as error:
        return out.getvalue() if not error.code else f"{out.getvalue()}\nexit code {error.code}"
    except BaseException:
        return f"{out.getvalue()}\n{traceback.format_exc()}"
    finally:
        sys.path[:] = paths
        for name in set(sys.modules) - known:
            if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def scripts() -> list[Path]:
    """The Python files of benchmarks/ that are run, not only imported."""
    files = sorted((ROOT / "benchmarks").rglob("*.py"))
    return [file for file in files if '__name__ == "__main__"' in file.read_text(encoding="utf-8")]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    argparse.ArgumentParser.print_help = print_help
    sys.path.insert(0, str(ROOT))
    json.dump({str(script.relative_to(ROOT)): help_of(script) for script in scripts()}, sys.stdout)
