"""Lines of the packages by kind: code, docstrings and comments, blank; now, and at other commits.

    python benchmarks/project/line_counts.py [COMMIT ...] [--folders]

A docstring is a string that stands alone as a statement. `--folders` counts each folder of a package by itself, with
the difference between the first two columns. Reads the files from git; `.` is the working tree.
Takes 6 s (two shared cores).
"""

import argparse
import ast
import io
import subprocess
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("distill", "teacher", "filters", "student")
KINDS = ("code", "text", "blank")


def sources(commit: str) -> Iterator[tuple[str, str]]:
    """Path and text of every module of the packages."""
    if commit == ".":
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*.py")):
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        return
    listed = ["git", "ls-tree", "-r", "--name-only", commit, *PACKAGES]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split():
        if name.endswith(".py"):
            shown = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, check=True)
            yield name, shown.stdout.decode()


def count_lines(text: str) -> Counter[str]:
    """Lines by kind; a line of code with a comment behind it is code."""
    lines = text.splitlines()
    kinds = ["blank" if not line.strip() else "code" for line in lines]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            kinds[node.lineno - 1 : node.end_lineno] = ["text"] * (node.end_lineno - node.lineno + 1)  # type: ignore
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].lstrip().startswith("#"):
            kinds[token.start[0] - 1] = "text"
    return Counter(kinds)


def totals(commit: str, *, folders: bool) -> dict[str, Counter[str]]:
    result: dict[str, Counter[str]] = defaultdict(Counter)
    for name, text in sources(commit):
        parts = name.split("/")
        result["/".join(parts[: 2 if folders and len(parts) > 2 else 1])] += count_lines(text)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", default=["."], metavar="COMMIT")
    parser.add_argument("--folders", action="store_true")
    arguments = parser.parse_args()
    every = [totals(commit, folders=arguments.folders) for commit in arguments.commits]
    names = sorted({name for each in every for name in each})
    print("| | " + " | ".join(f"{commit}: lines | {' | '.join(KINDS)}" for commit in arguments.commits) + " |")
    print("| --- |" + " ---: |" * (len(every) * (1 + len(KINDS))))
    for name in [*names, "all"]:
        cells = []
        for each in every:
            counts = sum(each.values(), Counter()) if name == "all" else each.get(name, Counter())
            cells += [f"{sum(counts.values()):,}", *(f"{counts[kind]:,}" for kind in KINDS)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
