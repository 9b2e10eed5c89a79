"""Mutated answers through the parser, the journal and every family of signals: what fails, and the longest times.

    python benchmarks/answers/mutated_answers.py [--count 1000000] [--seed 0] [--signals-every 20] [--seconds 0]
    python benchmarks/answers/mutated_answers.py --hostile

Every answer is made from a few seeds by repeats, truncation, splices, odd Unicode (lone surrogates too), nesting,
huge numbers and tag soup, up to 64 kB. Each is parsed, written to a journal of traces and read back. Every n-th of
those read is measured by all families, one after the other. `length` counts words here and `contamination` has no
test set. Prints counts of tracebacks, of records that cannot be read or differ, and the longest times of this
thread's processor time in milliseconds: a machine that is busy with other work makes them longer still. Tables that
are loaded once a process are loaded before the clock starts, and the garbage collector leaves them alone: a full
collection with them takes some 45 ms, in whatever is measured at that moment. What takes longer than its limit (5 ms
for the parser, 50 for all families) is measured twice more, with empty caches, and its smallest time counts.

`--hostile` measures the texts of data/answers/hostile.jsonl instead: 64 kB of one repeated unit each, as the answer,
as the reasoning before a short answer, and without think tags. It prints the times of each.
Takes 9 s with `--count 300`, 15 s with `--hostile` (two shared cores).
"""

import argparse
import functools
import gc
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import part_path
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import DEFAULT_SIGNALS
from distill.trace_records.trace_lines import trace_fault
from distill.types import Sample, Trace, Usage
from filters.signals import registry
from filters.signals.base import Extractor
from filters.signals.registry import FAMILIES
from filters.text.shingles import hash_words
from teacher.messages.parse import parse
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import TraceJournal

T = TypeVar("T")

MOST = 1 << 16
MOST_SECONDS = 0.05
MOST_PARSE_SECONDS = 0.005
REPEATS = 2
BATCH = 500
ENDS = ("stop", "length")
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


def text_caches() -> list[Any]:
    """The caches that remember texts and their parts; those of few entries hold tables."""
    caches = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    return [each for each in caches if (each.cache_parameters()["maxsize"] or 0) > 16 or each is hash_words]


def trace_of(text: str, number: int = 0, finish_reason: str = "stop") -> Trace:
    parsed = parse(text, finish_reason=finish_reason)
    return Trace(
        id=f"{number:032x}", sample_id="a", teacher="t", k=0, seed=0,
        reasoning=parsed.reasoning, answer=parsed.answer, text=text,
        outcome=str(parsed.outcome), finish_reason=finish_reason, usage=Usage(), params={}, model="m", revision="",
        engine={"name": "e", "version": "1"}, prompt_sha="", latency_s=0.0, created="",
    )  # fmt: skip


class Campaign:
    """The counts and longest times of one run."""

    def __init__(self) -> None:
        self.tracebacks: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.over: Counter[str] = Counter()
        self.unreadable = self.different = self.measured = 0
        self.longest: dict[str, tuple[float, int]] = {}
        """Milliseconds, and the number of the answer."""
        self.slowest: list[tuple[float, str]] = []
        """Answers over the limit of all families: milliseconds, and which answer it is."""
        self.caches = text_caches()

    def timed(self, name: str, number: int, work: Callable[[], T]) -> tuple[T | None, float]:
        """What the work gave, None for a traceback, and its processor time in seconds."""
        before = time.thread_time()
        try:
            result = work()
        except Exception:
            self.tracebacks[f"{name}: {traceback.format_exc().splitlines()[-1][:120]}"] += 1
            result = None
        return result, time.thread_time() - before

    def note(self, name: str, seconds: float, number: int) -> None:
        self.longest[name] = max(self.longest.get(name, (0.0, 0)), (round(1000 * seconds, 1), number))

    def parse(self, number: int, text: str, finish_reason: str = "stop") -> Trace | None:
        work = partial(trace_of, text, number, finish_reason)
        trace, seconds = self.timed("parse", number, work)
        for _ in range(REPEATS if seconds > MOST_PARSE_SECONDS else 0):
            seconds = min(seconds, self.timed("parse", number, work)[1])
        self.note("parse", seconds, number)
        self.over["parse"] += seconds > MOST_PARSE_SECONDS
        return trace

    def stored(self, traces: Sequence[Trace], folder: Path) -> list[Trace]:
        """The traces as they are read back from a journal."""
        journal = TraceJournal(TraceIndex(folder), flush_interval_s=3600.0)
        for trace in traces:
            number = int(trace.id, 16)
            self.note("journal", self.timed("journal", number, partial(journal.append, asdict(trace)))[1], number)
        journal.close()
        found = {}
        for record in read_jsonl(part_path(folder, 0, ".jsonl"), check=trace_fault, on_damage=lambda _: None):
            found[record["id"]] = record
        part_path(folder, 0, ".jsonl").unlink()
        read = []
        for trace in traces:
            record = found.get(trace.id)
            if record is None:
                self.unreadable += 1
                continue
            said = {name: record[name] for name in ("text", "reasoning", "answer")}
            written = {name: getattr(trace, name) for name in said}
            self.different += written != said and {name: whole(text) for name, text in written.items()} != said
            read.append(replace(trace, **said))
        return read

    def measure(self, families: Sequence[Extractor], trace: Trace, asked: Sample | None = None) -> None:
        self.measured += 1
        number = int(trace.id, 16)
        sample = asked or SAMPLES[self.measured % 2]
        spent = self.measure_once(families, trace, sample, self.states)
        for _ in range(REPEATS if sum(spent.values()) > MOST_SECONDS else 0):
            again = self.measure_once(families, trace, sample, Counter())
            spent = {name: min(seconds, again[name]) for name, seconds in spent.items()}
        for name, seconds in spent.items():
            self.note(name, seconds, number)
        total = sum(spent.values())
        default = sum(spent[name] for name in spent if name in DEFAULT_SIGNALS)
        for name, seconds in (("all families", total), ("default families", default)):
            self.note(name, seconds, number)
            self.over[name] += seconds > MOST_SECONDS
        if total > MOST_SECONDS:
            parts = sorted(spent.items(), key=lambda item: -item[1])[:4]
            said = ", ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in parts)
            self.slowest.append((1000 * total, f"{said}: answer {number}, {trace.text[:40]!a} {trace.text[-40:]!a}"))

    def measure_once(
        self, families: Sequence[Extractor], trace: Trace, sample: Sample, states: Counter[str]
    ) -> dict[str, float]:
        """Each family's processor time in seconds, with empty caches; why it has no value is counted in `states`."""
        spent = {}
        for cache in self.caches:
            cache.cache_clear()
        for family in families:
            work = partial(registry.rows, (family,), sample, [trace])
            rows, spent[family.name] = self.timed(family.name, int(trace.id, 16), work)
            for row in rows or ():
                for name, reason in orjson.loads(row["signal_errors"] or "{}").items():
                    states[f"{name}: {reason[:60]}"] += 1
        return spent


HOSTILE = Path(__file__).parents[1] / "data" / "answers" / "hostile.jsonl"
FRAMES = {
    "answer": "<think>The bar reaches 42.</think>\n{}",
    "reasoning": "<think>{}</think>\nThe answer is 42.",
    "untagged": "{}",
}


def hostile_text(row: dict[str, Any]) -> str:
    """One unit again and again between a beginning and an end, of the size that the row says."""
    ends = len((row["head"] + row["tail"]).encode())
    return str(row["head"] + row["unit"] * ((row["bytes"] - ends) // len(row["unit"].encode())) + row["tail"])


def measure_hostile(families: Sequence[Extractor]) -> None:
    rows = [orjson.loads(line) for line in HOSTILE.read_bytes().splitlines()]
    print(f"{'ms of processor time':40}{'parse':>9}{'all':>9}{'default':>9}  slowest families")
    for row in rows:
        for frame, pattern in FRAMES.items():
            one = Campaign()
            text = pattern.replace("{}", hostile_text(row))
            trace = one.parse(0, text)
            if trace is not None:
                one.measure(families, trace, replace(SAMPLES[0], answers=(row["gold"],)))
            times = {name: milliseconds for name, (milliseconds, _) in one.longest.items()}
            totals = [times.pop(name, 0.0) for name in ("parse", "all families", "default families")]
            slowest = sorted(times.items(), key=lambda item: -item[1])[:3]
            print(f"{row['name']} as {frame}".ljust(40), *(f"{total:8.1f}" for total in totals), "", end=" ")
            print(*(f"{name} {spent}" for name, spent in slowest), *one.tracebacks, *one.states, sep=", ")


def whole(text: str) -> str:
    """What a journal keeps of a text: half a surrogate pair is no character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signals-every", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--slowest", type=int, default=5, help="so many answers over the limit are shown")
    options = parser.parse_args()
    families = tuple(family.from_recipe(Recipe()) for family in FAMILIES.values())
    warm = Campaign()
    loading = ("\\boxed{" * 50, "Germany", "三百二十 or 五", "<think>It is 5 furlong.</think>5 dm")
    for number, text in enumerate([*SEEDS, *loading]):
        warm.measure(families, trace_of(text, number))
    gc.collect()
    gc.freeze()
    if options.hostile:
        measure_hostile(families)
        return
    campaign, done = Campaign(), 0
    started = time.monotonic()
    every = texts(options.seed, options.count)
    # Ctrl-C ends a campaign early, with the figures of what is done.
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        while batch := list(islice(every, BATCH)):
            traces = [campaign.parse(done + place, text, ENDS[place % 2]) for place, text in enumerate(batch)]
            done += len(batch)
            for trace in campaign.stored([trace for trace in traces if trace is not None], Path(folder)):
                if int(trace.id, 16) % options.signals_every == 0:
                    campaign.measure(families, trace)
            if options.seconds and time.monotonic() - started > options.seconds:
                break
    print(f"{done:,} answers parsed, {campaign.measured:,} measured (seed {options.seed})")
    print(f"{campaign.tracebacks.total()} tracebacks {dict(campaign.tracebacks)}")
    print(f"{campaign.unreadable} unreadable records, {campaign.different} that differ")
    print("longest, ms of processor time (number of the answer):", dict(sorted(campaign.longest.items())))
    print(f"answers over {1000 * MOST_SECONDS:.0f} ms (parse: {1000 * MOST_PARSE_SECONDS:.0f}):", dict(campaign.over))
    for milliseconds, parts in sorted(campaign.slowest, reverse=True)[: options.slowest]:
        print(f"{milliseconds:8.1f} ms  {parts}")
    print("not measured:", dict(campaign.states))


if __name__ == "__main__":
    main()
