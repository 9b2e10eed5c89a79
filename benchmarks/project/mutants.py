"""Mutation testing: change one thing in a module, run the tests that reach it, and see whether one fails.

    python benchmarks/project/mutants.py [--group judge ...] [--mutants 60] [--seed 0]

Mutated are, one at a time: comparisons, `and` and `or`, `not`, arithmetic, numbers and truth values, and what a
function returns. A mutant is killed when a test fails or the tests take several times as long as unchanged ones. The
sample is drawn by the seed. All runs in a copy of the checkout, so the working tree stays as it is.

The tests of a group are collected once, in one process. Its first fork runs them all and notes how long each takes
and which functions it calls. Each mutant is a fork in which the code of one function is exchanged; it runs the tests
that call this function, the shortest first, until one fails. A change of what happens when a module is loaded is
tested by a fork of a process that has imported the libraries and nothing of the project; so is a survivor in a
function that is called while modules are loaded.
Takes 2 min with `--group policy --mutants 2` (two shared cores).
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutant_tests import Campaign, Mutant, Shortest, in_fork, tested, written

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("duckdb", "hypothesis", "numpy", "orjson", "PIL.Image", "pyarrow.parquet", "pydantic", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantGroup:
    """Modules that keep one promise, and the tests that hold it."""

    modules: tuple[str, ...]
    """Patterns below the root; `path::name,name` takes these functions only."""
    tests: tuple[str, ...]


GROUPS = {
    "judge": MutantGroup(
        modules=("distill/answers/[!_m]*.py", "distill/answers/*/[!_]*.py"),
        tests=("tests/distill/answers/test_*.py",),
    ),
    "policy": MutantGroup(
        modules=("filters/decisions/[!_]*.py",),
        tests=("tests/filters/decisions/test_*.py",),
    ),
    "artifacts": MutantGroup(
        modules=("distill/artifacts/[!_]*.py",),
        tests=("tests/distill/artifacts/test_*.py",),
    ),
    "sampling": MutantGroup(
        modules=("teacher/scheduling/[!_]*.py",),
        tests=(
            "tests/teacher/scheduling/test_sampling_policy.py",
            "tests/teacher/scheduling/test_routing.py",
            "tests/teacher/test_policies.py",
        ),
    ),
    "fingerprints": MutantGroup(
        modules=(
            "distill/artifacts/manifest.py::fingerprint,differences",
            "distill/recipe/effects.py",
            "filters/apply.py::_fields",
            "filters/tables/measure.py::_identity",
            "filters/signals/registry.py::identity",
            "student/data/rows.py::fields",
            "student/evaluate.py::identity,_fields",
            "student/train.py::stage_fields",
            "teacher/messages/request.py",
        ),
        tests=(
            "tests/recipes/test_recipe_keys.py",
            "tests/distill/recipe/test_effects.py",
            "tests/distill/artifacts/test_files.py",
            "tests/distill/artifacts/test_manifest.py",
            "tests/filters/tables/test_measure.py",
            "tests/teacher/engines/test_choices.py",
            "tests/teacher/messages/test_request.py",
        ),
    ),
}

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}

_FALSE = ("None", "False", "0")


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """A node with one change, for every change that there is."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            compared = copy.deepcopy(node)
            compared.ops[place] = COMPARISONS[type(operator)]()
            yield compared
    elif isinstance(node, ast.BoolOp):
        joined = copy.deepcopy(node)
        joined.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield joined
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        computed = copy.deepcopy(node)
        computed.op = ARITHMETIC[type(node.op)]()
        yield computed
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    # None in place of False or 0 is the same for a caller that asks what is true, and these constants change, too.
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) not in _FALSE:
        yield ast.Return(ast.Constant(None))


class _Sites(ast.NodeTransformer):
    """Counts the nodes that can be changed, and puts a change in the place of one of them."""

    def __init__(self, chosen: int = -1) -> None:
        self.chosen, self.count = chosen, 0
        self.line, self.before, self.after = 0, "", ""

    def visit(self, node: ast.AST) -> ast.AST:
        for other in changed(node):
            if self.count == self.chosen:
                self.line = getattr(node, "lineno", 0)
                self.before, self.after = ast.unparse(node), ast.unparse(other)
                self.count += 1
                return ast.copy_location(other, node)
            self.count += 1
        for name, value in ast.iter_fields(node):
            # Types and decorators say nothing that a run could show.
            if name in ("annotation", "returns", "decorator_list", "bases", "keywords" if _is_class(node) else ""):
                continue
            # `strict` of zip is a check that right code never fails.
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            if isinstance(value, list):
                value[:] = [self.visit(item) if isinstance(item, ast.AST) else item for item in value]
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node


def _is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef)


def _parts(tree: ast.Module, names: frozenset[str]) -> list[ast.AST]:
    """The functions with these names; the whole module when none is named."""
    if not names:
        return [tree]
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name in names]


def mutants(root: Path, group: MutantGroup, count: int, seed: int) -> tuple[list[Mutant], int]:
    """A sample of the mutants of a group, and how many there are."""
    sites: list[tuple[Path, frozenset[str], int, int]] = []
    for pattern in group.modules:
        where, _, names = pattern.partition("::")
        wanted = frozenset(names.split(",")) if names else frozenset[str]()
        for path in sorted(root.glob(where)):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for place, part in enumerate(_parts(tree, wanted)):
                counter = _Sites()
                counter.visit(part)
                sites += [(path, wanted, place, number) for number in range(counter.count)]
    chosen = random.Random(seed).sample(sites, min(count, len(sites)))
    return [_mutant(*site) for site in sorted(chosen, key=str)], len(sites)


def _mutant(path: Path, wanted: frozenset[str], place: int, number: int) -> Mutant:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    site = _Sites(number)
    site.visit(_parts(tree, wanted)[place])
    tree = ast.fix_missing_locations(tree)
    return Mutant(path=path, line=site.line, before=site.before, after=site.after, tree=tree)


def run(root: Path, name: str, group: MutantGroup, count: int, seed: int) -> float:
    """The share of mutants that the tests of a group kill; prints those that live."""
    if gone := [pattern for pattern in group.tests if not any(root.glob(pattern))]:
        sys.exit(f"{name}: no such tests: {', '.join(gone)}")
    tests = sorted({str(path.relative_to(root)) for pattern in group.tests for path in root.glob(pattern)})
    chosen, all_of_them = mutants(root, group, count, seed)
    begun, report = time.monotonic(), root.parent / "report.json"
    report.unlink(missing_ok=True)
    in_fork(lambda: tested(root, tests, Campaign(chosen, report)), 24 * 3600.0)
    if not report.exists():
        sys.exit(f"{name}: its tests fail without any change")
    noted = json.loads(report.read_bytes())
    usual_s = sum(noted["times"].values())
    alive, again = [], noted["killed"].count(None)
    for mutant, killed in zip(chosen, noted["killed"], strict=True):
        if killed is None:
            with written(mutant):
                killed = not in_fork(lambda: tested(root, tests, Shortest(noted["times"])), 20.0 + usual_s)[0]
        if not killed:
            alive.append(mutant)
            where = f"{mutant.path.relative_to(root)}:{mutant.line}"
            print(f"  alive  {where}  {mutant.before}  ->  {mutant.after}", flush=True)
    killed_count = len(chosen) - len(alive)
    share = killed_count / max(1, len(chosen))
    print(f"{name}: {killed_count} of {len(chosen)} killed ({share:.1%}), drawn from {all_of_them}", flush=True)
    took_s = time.monotonic() - begun
    print(f"  {usual_s:.0f} s for the tests unchanged, {took_s:.0f} s in all, {again} loaded again", flush=True)
    return share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", nargs="*", choices=sorted(GROUPS), default=list(GROUPS))
    parser.add_argument("--mutants", type=int, default=60, help="of each group")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for library in LIBRARIES:
        __import__(library)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        skip = shutil.ignore_patterns(".*", "__pycache__", "runs", "dist")
        shutil.copytree(ROOT, root, ignore=skip)
        for name in options.group:
            run(root, name, GROUPS[name], options.mutants, options.seed)


if __name__ == "__main__":
    main()
