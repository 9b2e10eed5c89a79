"""Scores of answer judges on the labelled pairs of the tests: this project's, math-verify's, MathRuler's.

    python benchmarks/answers.py [--peers FOLDER] [--part "held out"] [--families] [--show NAME]

MathRuler is no dependency; its scores need a folder made by
`pip install --target FOLDER --no-deps mathruler==0.1.0 pylatexenc`.

A false accept is a pair labelled wrong that is called correct, a false reject one labelled correct that is called
wrong. Pairs that careful readers may leave open are counted apart, as "open": called correct, called wrong. The peers
and the reference metrics know two verdicts, so that they never leave a pair open; a pair that takes a peer longer
than ten seconds counts as wrong, as it does where they are used.

The peers are called the way their own pages show: math-verify with its default extraction and once more with its
extraction of strings, for which it has to know the words that may occur, and LaTeX between the dollar signs that it
wants; MathRuler on what stands in a box, if there is one. "On the final answer" gives them the part of the prediction
that this project takes for its answer. Most pairs are short answers about pictures, few are mathematics, which is
what the two were made for: see `--families`.
"""

import argparse
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from distill.answers.final_answer import final_answer
from distill.answers.verdicts import exact_match, judge, relaxed_accuracy

PAIRS = Path(__file__).parent.parent / "tests" / "data" / "answer_pairs.jsonl"
TIMEOUT_S = 10.0
Pair = Mapping[str, Any]

_LOOP = """
import sys, json
for line in sys.stdin:
    gold, said = json.loads(line)
    try:
        same = bool(compare(gold, said))
    except Exception:
        same = False
    print(json.dumps(same), flush=True)
"""
_READY = "print('ready', flush=True)\n"
PROGRAMS = {
    "math-verify": """
import logging; logging.disable()
from math_verify import parse, verify
def compare(gold, said):
    return verify(*(parse(f"${text}$" if "\\\\" in text and "$" not in text else text) for text in (gold, said)))
""",
    "math-verify, strings": """
import logging; logging.disable()
from math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify
words = StringExtractionConfig(strings=("A", "B", "C", "D", "yes", "no"))
how = [LatexExtractionConfig(), ExprExtractionConfig(), words]
def compare(gold, said):
    return verify(*(parse(f"${text}$" if "\\\\" in text and "$" not in text else text, how) for text in (gold, said)))
""",
    "MathRuler": """
from mathruler.grader import extract_boxed_content, grade_answer
def compare(gold, said):
    return grade_answer(extract_boxed_content(said) if "boxed" in said else said, gold)
""",
}


class Peer:
    """A judge in a process of its own, which is killed when it does not answer."""

    def __init__(self, program: str, folder: Path | None, extracted: bool) -> None:
        self._program = program + _READY + _LOOP
        self._environment = {**os.environ, **({"PYTHONPATH": str(folder)} if folder else {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._extracted = extracted
        self.late = 0

    def __call__(self, pair: Pair) -> str:
        process = self._process or self._start()
        assert process.stdin is not None
        said = final_answer(pair["prediction"]).text if self._extracted else pair["prediction"]
        process.stdin.write(orjson.dumps([pair["gold"], said]) + b"\n")
        process.stdin.flush()
        line = self._line(process, TIMEOUT_S)
        if not line:
            self.late += 1
            self.stop()
        return "correct" if line == b"true\n" else "wrong"

    def _start(self) -> "subprocess.Popen[bytes]":
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )
        if self._line(self._process, 60.0) != b"ready\n":
            raise SystemExit("a peer does not start: is it installed, and is --peers its folder?")
        return self._process

    @staticmethod
    def _line(process: "subprocess.Popen[bytes]", timeout_s: float) -> bytes:
        assert process.stdout is not None
        is_there = select.select([process.stdout], [], [], timeout_s)[0]
        return process.stdout.readline() if is_there else b""

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def ours(pair: Pair) -> str:
    return judge(pair["prediction"], pair["gold"], pair["type"], options=pair.get("options")).verdict


def metric(score: Callable[[str, str], float]) -> Callable[[Pair], str]:
    return lambda pair: "correct" if score(pair["prediction"], pair["gold"]) == 1 else "wrong"


def scored(judge_pair: Callable[[Pair], str], pairs: Sequence[Pair], show: bool) -> tuple[Counter[str], float]:
    """Counts of label and verdict; median seconds a pair, of a judge that has started."""
    counts: Counter[str] = Counter()
    times: list[float] = []
    judge_pair(pairs[0])
    for pair in pairs:
        started = time.perf_counter()
        verdict = judge_pair(pair)
        times.append(time.perf_counter() - started)
        counts[f"{pair['verdict']} {verdict}"] += 1
        if show and verdict != pair["verdict"]:
            print(
                f"  {pair['family']}: {pair['gold']!r} said {pair['prediction']!r}: {verdict}, is {pair['verdict']}"
            )
    return counts, median(times)


def row(name: str, counts: Counter[str], seconds: float) -> str:
    labels = {
        label: sum(counts[f"{label} {verdict}"] for verdict in ("correct", "wrong", "undecided"))
        for label in ("correct", "wrong", "undecided")
    }

    def share(label: str, verdict: str) -> str:
        count = counts[f"{label} {verdict}"]
        return f"{count:5} {100 * count / max(1, labels[label]):5.1f} %"

    left_open = counts["correct undecided"] + counts["wrong undecided"]
    decided = labels["correct"] + labels["wrong"]
    return (
        f"{name:40} {share('wrong', 'correct'):>14} {share('correct', 'wrong'):>14}"
        f" {left_open:6} {100 * left_open / max(1, decided):5.1f} %"
        f" {share('undecided', 'correct'):>14} {share('undecided', 'wrong'):>14} {seconds * 1e6:9.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", type=Path, help="the folder with MathRuler")
    parser.add_argument("--part", help="only this part of the pairs")
    parser.add_argument("--families", action="store_true", help="a table for each family")
    parser.add_argument("--show", default="", help="print the disagreements of this judge")
    options = parser.parse_args()
    pairs: list[Pair] = [orjson.loads(line) for line in PAIRS.read_bytes().splitlines()]
    if options.part:
        pairs = [pair for pair in pairs if pair["part"] == options.part]
    judges: dict[str, Callable[[Pair], str]] = {"distill": ours}
    for name, program in PROGRAMS.items():
        if options.peers or name != "MathRuler":
            judges[name] = Peer(program, options.peers, extracted=False)
            judges[f"{name}, on the final answer"] = Peer(program, options.peers, extracted=True)
    judges |= {"relaxed accuracy": metric(relaxed_accuracy), "exact match": metric(exact_match)}
    families = sorted({pair["family"] for pair in pairs}) if options.families else []
    for family in [*families, None]:
        chosen = [pair for pair in pairs if family in (None, pair["family"])]
        print(
            f"\n{family or options.part or 'all'}: {len(chosen)} pairs, {dict(Counter(p['verdict'] for p in chosen))}"
        )
        heads = ("false accepts", "false rejects", "left open", "open: accepted", "open: rejected", "median us")
        print(f"{'':40} {heads[0]:>14} {heads[1]:>14} {heads[2]:>14} {heads[3]:>14} {heads[4]:>14} {heads[5]:>9}")
        for name, judge_pair in judges.items():
            print(row(name, *scored(judge_pair, chosen, name == options.show)))
    for name, peer in judges.items():
        if isinstance(peer, Peer):
            peer.stop()
            print(f"{name}: {peer.late} pairs took longer than {TIMEOUT_S:g} s")


if __name__ == "__main__":
    main()
