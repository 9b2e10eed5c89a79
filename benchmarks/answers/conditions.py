"""What each condition of the judge costs and saves: every condition of a module switched off, one after the other.

    python benchmarks/answers/conditions.py distill.answers.texts.asked_roles [MODULE ...] [--without PART ...]
        [--every N]

A condition is the test of an `if` that only returns, or one side of an `and` or `or` that is returned. Switched off,
the `if` never returns and the side says nothing. A row gives the differences to the whole judge, over the labelled
pairs that come to the function: wrong pairs accepted, right pairs accepted, right pairs rejected. A condition whose
row has few wrong accepts beside many right ones does not pay. The symbolic voter is not asked.
Takes more than 7 min for `distill.answers.texts.asked_roles`; 15 s with `--every 200` (two shared cores).
"""

import argparse
import ast
import importlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from judged.labelled_pairs import read_pairs

from distill.answers import verdicts


def verdict(pair: dict[str, Any]) -> str:
    options, question = pair.get("options"), pair.get("question", "")
    return verdicts._judge(
        pair["prediction"], pair["gold"], pair["type"], 0.0, options, ask_worker=False, question=question
    ).verdict


def variants(function: ast.FunctionDef) -> Iterator[tuple[int, str, ast.FunctionDef]]:
    """Line and text of each condition, and the function without it."""
    for number, node in enumerate(ast.walk(function)):
        changed = deepcopy(function)
        other = next(twin for place, twin in enumerate(ast.walk(changed)) if place == number)
        if isinstance(other, ast.If) and isinstance(other.body[0], ast.Return) and not has_walrus(other.test):
            text, other.test = ast.unparse(other.test), ast.Constant(value=False)
            yield other.lineno, text, changed
        elif isinstance(other, ast.BoolOp) and isinstance(node, ast.BoolOp) and len(other.values) > 1:
            for place, side in enumerate(node.values):
                if not has_walrus(side):
                    neutral = ast.copy_location(ast.Constant(value=isinstance(node.op, ast.And)), side)
                    other.values = [neutral if index == place else one for index, one in enumerate(node.values)]
                    yield side.lineno, ast.unparse(side), deepcopy(changed)


def has_walrus(node: ast.AST) -> bool:
    return any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))


def code_of(function: ast.FunctionDef, namespace: dict[str, Any]) -> CodeType:
    function.decorator_list = []
    module = ast.fix_missing_locations(ast.Module(body=[function], type_ignores=[]))
    own = dict(namespace)
    exec(compile(module, "<variant>", "exec"), own)
    code = own[function.name].__code__
    assert isinstance(code, CodeType)
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    parser.add_argument("--without", action="append", default=[], metavar="PART", help="leave out this part")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one pair in so many")
    options = parser.parse_args()
    pairs = read_pairs()[:: options.every]
    pairs = [pair for pair in pairs if pair["part"] not in options.without]
    callers: dict[CodeType, set[int]] = defaultdict(set)
    before = []
    for index, pair in enumerate(pairs):

        def note(frame: FrameType, event: str, _: object, index: int = index) -> None:
            callers[frame.f_code].add(index)

        sys.setprofile(note)
        said = verdict(pair)
        sys.setprofile(None)
        before.append(said)
    caches = [
        value
        for name, module in [*sys.modules.items()]
        if name.startswith("distill.answers")
        for value in vars(module).values()
        if hasattr(value, "cache_clear")
    ]
    print(f"{'wrong +-':>10}{'right +-':>10}{'reject +-':>10}  condition switched off")
    for name in options.modules:
        module = importlib.import_module(name)
        for node in ast.parse(inspect.getsource(module)).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            function = inspect.unwrap(getattr(module, node.name))
            assert isinstance(function, FunctionType)
            whole, chosen = function.__code__, callers[function.__code__]
            for line, text, changed in variants(node):
                function.__code__ = code_of(changed, vars(module))
                for cache in caches:
                    cache.cache_clear()
                counts = {"wrong": [0, 0], "right": [0, 0], "reject": [0, 0]}
                for index in chosen:
                    try:
                        after = verdict(pairs[index])
                    except Exception:  # a condition that guards against an error
                        continue
                    right = pairs[index]["label"] == "correct"
                    for kind, counted in (("right" if right else "wrong", "correct"), ("reject", "wrong")):
                        if kind != "reject" or right:
                            gain = (after == counted) - (before[index] == counted)
                            counts[kind][0 if gain > 0 else 1] += abs(gain)
                columns = "".join(f"{f'+{more} -{less}':>10}" for more, less in counts.values())
                print(f"{columns}  {name.rpartition('.')[2]}:{line} {text[:150]}", flush=True)
            function.__code__ = whole


if __name__ == "__main__":
    main()
