"""Mutated answers through the parser, the record and every family of signals: what fails, and the longest times.

    python benchmarks/mutated_answers.py [--count 1000000] [--seed 0] [--signals-every 20] [--seconds 0]

Every answer is made from a few seeds by repeats, truncation, splices, odd Unicode (lone surrogates too), nesting,
huge numbers and tag soup, up to 64 kB. Each is parsed; every n-th is measured by all families but `length` and
`contamination`, which need files. Prints counts of tracebacks and the longest times of processor time in
milliseconds. Journals are not written here.
"""

import argparse
import random
import time
import traceback
from collections.abc import Iterator

import orjson

from distill.types import Sample, Trace, Usage
from filters import registry
from filters.registry import FAMILIES
from teacher.parse import parse

MOST = 1 << 16
SEEDS = (
    "<think>The red bar is 8 and the blue one 6, so 8 + 6 = 14.</think>The answer is 14.",
    "Step 1: read the chart.\n- 45 in 2015\n- 30 in 2016\n\n**Answer:** \\boxed{\\frac{3}{2}}",
    "Wait, let me recheck: 12:30 + 15 min, 10% of 250 is 25, twice 7 is 14. <answer>B</answer>",
    "I cannot see the image. 等等，再数一遍。The total of 3, 4 and 5 is 12!",
)
PIECES = (
    *" \n\t\u00a0\u200b\u0301\ud800\udfff\U0001f600é中の한яا0.,:;!?()[]{}<>|\\_#`\"'$€%+-*/=×≈→^√°",
    "<think>", "</think>", "[THINK]", "<answer>", "</answer>", "\\boxed{", "\\frac{1}{", "\\text{", "answer ",
    "the answer is ", "so, ", "wait, ", "sum of 3, ", "from 3 to ", "twenty-",
    "9" * 40, "1e999", "3 + 4 = 7, ", "4, 8, 9, ", "red is 8, ",
    "**", ".**",
)  # fmt: skip
SAMPLES = (
    Sample(id="a", images=(), question="How many more?", answers=("7",), meta={"table": {"red": 8, "blue": 6}}),
    Sample(id="b", images=(), question="Which one?", answers=("red",), meta={"options": ["red", "blue"]}),
)  # fmt: skip


def mutated(rng: random.Random) -> str:
    text = rng.choice(SEEDS)
    for _ in range(rng.randint(1, 5)):
        place = rng.randint(0, len(text))
        kind = rng.randrange(5)
        if kind == 0:
            text = text[:place] + rng.choice(PIECES) * rng.choice((1, 3, 50, 1000, MOST)) + text[place:]
        elif kind == 1:
            text = text[:place]
        elif kind == 2:
            text = text[:place] + rng.choice(SEEDS)[rng.randint(0, 30) :]
        elif kind == 3:
            text = text[:place] + "".join(rng.choice(PIECES) for _ in range(rng.choice((2, 20, 300)))) + text[place:]
        else:
            part = text[place : place + rng.randint(1, 30)]
            text = text[:place] + part * rng.choice((2, 40, 3000)) + text[place:]
        text = text[:MOST]
    return text


def texts(seed: int, count: int) -> Iterator[str]:
    rng = random.Random(seed)
    return (mutated(rng) for _ in range(count))


def trace_of(text: str, finish_reason: str = "stop") -> Trace:
    parsed = parse(text, finish_reason=finish_reason)
    return Trace(
        id="t", sample_id="a", teacher="t", k=0, seed=0, reasoning=parsed.reasoning, answer=parsed.answer, text=text,
        outcome=str(parsed.outcome), finish_reason=finish_reason, usage=Usage(), params={}, model="m", revision="",
        engine={}, prompt_sha="", latency_s=0.0, created="",
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signals-every", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.0)
    options = parser.parse_args()
    families = tuple(family() for name, family in FAMILIES.items() if name not in ("length", "contamination"))
    failures: dict[str, int] = {}
    states: dict[str, int] = {}
    longest = {"parse": 0.0, "signals": 0.0}
    started, done, measured = time.monotonic(), 0, 0
    for text in texts(options.seed, options.count):
        try:
            before = time.thread_time()
            trace = trace_of(text, "length" if done % 2 else "stop")
            longest["parse"] = max(longest["parse"], time.thread_time() - before)
            if done % options.signals_every == 0:
                measured += 1
                before = time.thread_time()
                for row in registry.rows(families, SAMPLES[done // options.signals_every % 2], [trace]):
                    for name, reason in orjson.loads(row["signal_errors"] or "{}").items():
                        states[f"{name}: {reason[:60]}"] = states.get(f"{name}: {reason[:60]}", 0) + 1
                longest["signals"] = max(longest["signals"], time.thread_time() - before)
        except Exception:
            last = traceback.format_exc().splitlines()[-1][:120]
            failures[last] = failures.get(last, 0) + 1
        done += 1
        if options.seconds and time.monotonic() - started > options.seconds:
            break
    print(f"{done:,} answers parsed, {measured:,} measured; {sum(failures.values())} tracebacks {failures}")
    print("longest, ms:", {name: round(1000 * value, 1) for name, value in longest.items()})
    print("not measured:", states)


if __name__ == "__main__":
    main()
