"""Error rates of answer judges on the labelled pairs: this project's, other projects', or your own.

    python benchmarks/answers/answers.py                            this project's judge
    python benchmarks/answers/answers.py JUDGE... [--by family] [--split held-out] [--source suite]
                                         [--final-answer] [--show]

A JUDGE is `distill`, `relaxed_accuracy` or `exact_match` (of distill.answers), or `FILE.py:FUNCTION`, followed by
`@PYTHON` where it needs the interpreter of another environment. The function gets prediction, gold, answer type (or
None) and options (or None), and gives correct, wrong or undecided, or a bool; it is asked for each
of several golds. The judges of other projects are in benchmarks/answers/judges/; each file says what to install:

    python benchmarks/answers/answers.py distill benchmarks/answers/judges/by_math_verify.py:judge \\
        benchmarks/answers/judges/by_vlmevalkit.py:judge@/path/to/env/bin/python

The pairs are in benchmarks/data/answers/pairs, a file a source; docs/answers.md says what their columns mean. A
false accept is a pair labelled wrong that is called correct, a false reject one labelled correct that is called
wrong; each share has its 95 % interval (Wilson). Pairs that careful readers may leave open count apart. A judge of
two verdicts leaves nothing open; a pair that takes another process longer than ten seconds counts as wrong, as it
does where such a judge is used. `--final-answer` gives a judge the part of the prediction that this project takes
for its answer.
Takes 50 s for this judge (two shared cores).
"""

import argparse
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from judged.labelled_pairs import FOLDER, pairs_version, read_pairs

from distill.answers import exact_match, judge, relaxed_accuracy
from distill.answers.final_answer import final_answer
from distill.stats.intervals import wilson

CHILD = Path(__file__).parent / "judges" / "child.py"
START_TIMEOUT_S, TIMEOUT_S = 60.0, 10.0
CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"
Pair = Mapping[str, Any]


class ChildJudge:
    """A judge in a process of its own, which is killed when it does not answer."""

    def __init__(self, name: str) -> None:
        target, _, python = name.partition("@")
        path, _, function = target.rpartition(":")
        self._command = [python or sys.executable, str(CHILD), path, function]
        self._process: subprocess.Popen[bytes] | None = None
        self.late = 0

    def __call__(self, pair: Pair) -> str:
        process = self._process or self._start()
        assert process.stdin is not None
        process.stdin.write(
            orjson.dumps([pair["prediction"], pair["gold"], pair["type"], pair.get("options")]) + b"\n"
        )
        process.stdin.flush()
        line = self._line(process, TIMEOUT_S)
        if not line:
            self.late += 1
            self.stop()
        return line.decode().strip() or WRONG

    def _start(self) -> "subprocess.Popen[bytes]":
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._line(self._process, START_TIMEOUT_S) != b"ready\n":
            raise SystemExit(f"the judge does not start: {' '.join(self._command)}")
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


def judge_pair(pair: Pair) -> str:
    return judge(
        pair["prediction"], pair["gold"], pair["type"], options=pair.get("options"), question=pair.get("question", "")
    ).verdict


def by_metric(score: Callable[[str, str], float]) -> Callable[[Pair], str]:
    def metric(pair: Pair) -> str:
        golds = pair["gold"] if isinstance(pair["gold"], list) else [pair["gold"]]
        return CORRECT if any(score(pair["prediction"], gold) == 1 for gold in golds) else WRONG

    return metric


OWN: dict[str, Callable[[Pair], str]] = {
    "distill": judge_pair,
    "relaxed_accuracy": by_metric(relaxed_accuracy),
    "exact_match": by_metric(exact_match),
}


def score(judge_one: Callable[[Pair], str], pairs: Sequence[Pair]) -> tuple[list[str], float]:
    """The verdict on each pair; median seconds a pair, of a judge that has started."""
    verdicts: list[str] = []
    times: list[float] = []
    judge_one(pairs[0])
    for pair in pairs:
        started = time.perf_counter()
        verdicts.append(judge_one(pair))
        times.append(time.perf_counter() - started)
    return verdicts, median(times)


def share(count: int, total: int) -> str:
    if not total:
        return f"{'none':>27}"
    low, high = wilson(count, total)
    return f"{count:5}/{total:<5}{100 * count / total:5.1f} % [{100 * low:4.1f}, {100 * high:4.1f}]"


def line(name: str, pairs: Sequence[Pair], verdicts: Sequence[str]) -> str:
    counts = Counter((pair["label"], verdict) for pair, verdict in zip(pairs, verdicts, strict=True))
    labels = Counter(pair["label"] for pair in pairs)
    columns = ((WRONG, CORRECT), (CORRECT, WRONG), (CORRECT, UNDECIDED), (WRONG, UNDECIDED), (UNDECIDED, CORRECT))
    return f"{name:34}" + "".join(f"{share(counts[key], labels[key[0]]):>31}" for key in columns)


HEADS = ("false accept", "false reject", "undecided, right", "undecided, wrong", "open called right")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [JUDGE ...] [options]",
    )
    parser.add_argument("judges", nargs="*", metavar="JUDGE", default=["distill"])
    parser.add_argument("--pairs", type=Path, default=FOLDER, help="another file of pairs, or a folder")
    parser.add_argument(
        "--by", default="split", help="a table for each value of this column: split, part, family, ..."
    )
    parser.add_argument("--split", help="only these pairs: tuned or held-out")
    parser.add_argument("--source", help="only the pairs of this source")
    parser.add_argument("--final-answer", action="store_true", help="judge the final answer of a prediction")
    parser.add_argument("--show", action="store_true", help="print every pair that is not judged as labelled")
    options = parser.parse_args()
    pairs: list[Pair] = [pair for pair in read_pairs(options.pairs) if options.split in (None, pair["split"])]
    pairs = [pair for pair in pairs if options.source in (None, pair["source"])]
    if not pairs:
        raise SystemExit("no pair has this split and source")
    if options.final_answer:
        pairs = [{**pair, "prediction": final_answer(pair["prediction"]).text} for pair in pairs]
    print(f"pairs: version {pairs_version(options.pairs)}")
    results: dict[str, list[str]] = {}
    for name in options.judges:
        judge_one = OWN.get(name) or ChildJudge(name)
        results[name], seconds = score(judge_one, pairs)
        late = (
            f"; {judge_one.late} pairs took longer than {TIMEOUT_S:g} s" if isinstance(judge_one, ChildJudge) else ""
        )
        print(f"{name}: {len(pairs)} pairs, median {seconds * 1e6:.0f} us a pair{late}")
        if isinstance(judge_one, ChildJudge):
            judge_one.stop()
        for pair, verdict in zip(pairs, results[name], strict=True):
            if options.show and verdict != pair["label"]:
                print(
                    f"  {pair['family']}: {pair['gold']!r} said {pair['prediction']!r}: {verdict}, is {pair['label']}"
                )
    for value in [*sorted({str(pair.get(options.by)) for pair in pairs}), None]:
        chosen = [index for index, pair in enumerate(pairs) if value in (None, str(pair.get(options.by)))]
        print(f"\n{value or 'all':34}" + "".join(f"{head:>31}" for head in HEADS))
        for name, verdicts in results.items():
            short = name.partition("@")[0].removeprefix("benchmarks/answers/judges/")
            print(line(short, [pairs[index] for index in chosen], [verdicts[index] for index in chosen]))


if __name__ == "__main__":
    main()
