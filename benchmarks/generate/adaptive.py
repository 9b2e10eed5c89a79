"""Adaptive n against a fixed n: verified yield and tokens, on the shipped `tiny` teachers.

    python benchmarks/generate/adaptive.py [--limit 300] [--most 8] [--temperature 1.0]

The yield of a run at k is the number of verified traces it has to offer when at most k a question are used: the sum
over questions of min(k, correct traces). Fixed n asks `--most` times about every question; adaptive n asks until k
traces are verified, at most as often. Tokens are those generated, the wasted ones included. Both use the same seeds.
Takes 15 s with `--limit 12 --most 2` (two shared cores).
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distill.answers.verdicts import judge
from distill.artifacts.journal import read_jsonl
from distill.data import sample_files
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.sampling import Until
from teacher.generate import generate


def changed(recipe: Recipe, sampling: Mapping[str, Any], **values: Any) -> Recipe:
    """The recipe with other values for every teacher."""
    teachers = tuple(
        teacher.model_copy(update={**values, "sampling": teacher.sampling.model_copy(update=dict(sampling))})
        for teacher in recipe.teachers
    )
    return recipe.model_copy(update={"teachers": teachers})


def correct_traces(recipe: Recipe, run: Path) -> tuple[Counter[str], int, int]:
    """Verified traces a question; all traces; all generated tokens."""
    samples = {sample.id: sample for sample in sample_files.read_samples(run / "generate" / "samples.parquet")}
    correct: Counter[str] = Counter()
    traces = tokens = 0
    for part in run.glob("generate/*/part-*.jsonl"):
        for record in read_jsonl(part):
            traces += 1
            tokens += record["usage"]["reasoning"] + record["usage"]["answer"]
            sample = samples[record["sample_id"]]
            if record["outcome"] == "complete":
                verdict = judge(record["answer"], sample.answers, sample.answer_type).verdict
                correct[sample.id] += verdict == "correct"
    return correct, traces, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=300, help="questions asked, spread over the domains")
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=1.0)
    options = parser.parse_args()
    sampling = {"temperature": options.temperature}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fixed = changed(load("tiny"), sampling, samples=options.most)
        generate(fixed, folder / "fixed", limit=options.limit)
        found, traces, tokens = correct_traces(fixed, folder / "fixed")
        share = found.total() / traces
        print(f"{options.limit} questions, temperature {options.temperature:g}, {share:.1%} of all traces correct\n")
        print("| run | traces | tokens | yield | fixed n's yield | tokens saved |")
        print("| --- | --- | --- | --- | --- | --- |")
        print(f"| fixed n = {options.most} | {traces:,} | {tokens:,} | {found.total():,} | | |")
        for wanted in (1, 2, 4):
            adaptive = changed(load("tiny"), sampling, samples=options.most, until=Until(correct=wanted))
            run = folder / f"adaptive{wanted}"
            generate(adaptive, run, limit=options.limit)
            ours, asked, spent = correct_traces(adaptive, run)
            target = sum(min(wanted, count) for count in found.values())
            got = sum(min(wanted, count) for count in ours.values())
            saved = 1 - spent / tokens
            print(f"| until {wanted} correct | {asked:,} | {spent:,} | {got:,} | {target:,} | {saved:.1%} |")


if __name__ == "__main__":
    main()
