"""Planted leaks that are found, innocent questions that are not, and what asking costs.

    python benchmarks/filter/contamination.py [--questions 700] [--seed 0] [--large 20000] [--examples 5]

A test set of so many questions about charts, photographs, documents and plain text (question_edits.py and
planted_leaks.py in tests/support/faults). Each is planted once as it is and twice edited, its image saved or
resized, among questions that look like it: about the same image with a number, a name, a thing, a colour or an
opposite exchanged or a negation added, and the same words about another image. A third of all questions come
without gold answers. An exchanged word that is in none of the matcher's lists is a kind of its own. Then the cost of
a sample with four traces, and of the index, for a test set of `large` questions.
Takes 70 s with `--questions 100 --large 100` (two shared cores).
"""

import argparse
import random
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from faults.planted_leaks import Case, plant
from faults.question_edits import TEMPLATES, fill
from worlds.run_fixtures import sample, trace

from distill.recipe.loading import load
from filters.signals.families.contamination import Contamination, prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=700)
    parser.add_argument("--large", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=0, help="print so many misses and false alarms")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        world = plant(Path(folder), options.seed, options.questions)
        family = prepare(world.recipe, Path(folder) / "index")
        found, cost = asked(family, world.cases)
        table("planted leaks", "found", [case for case in world.cases if case.leak], found)
        table("innocent questions", "false alarms", [case for case in world.cases if case.innocent], found)
        examples(world.cases, found, options.examples)
        print(f"\n{cost:,.0f} us a sample here, where most pictures are decoded and confirmed against a test picture")
        words = replace(family, images="bytes")
        print(f"{asked(words, world.cases)[1]:,.0f} us a sample with pictures known by their bytes only")
    large(options.large, options.seed)


def asked(family: Contamination, cases: Iterable[Case]) -> tuple[dict[int, str | None], float]:
    """What each case is found to be, by its place, and the processor time a sample in microseconds."""
    found: dict[int, str | None] = {}
    one = [trace()]
    start = time.process_time()
    for case in cases:
        found[id(case)] = family.measure(case.sample, one)[0].get("contamination")
    return found, (time.process_time() - start) / max(1, len(found)) * 1e6


def table(title: str, said: str, cases: list[Case], found: dict[int, str | None]) -> None:
    kinds: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        kinds[case.leak or case.innocent].append(case)
        if case.leak:
            kinds[f"picture: {case.picture or 'none'}"].append(case)
    listed = [case for case in cases if case.leak != "other words"]
    total = {"all": cases} | ({"all but other words": listed} if len(listed) < len(cases) else {})
    print(f"\n{title:<40}{'cases':>8}{said:>14}{'share':>9}")
    for kind, members in (*sorted(kinds.items()), *total.items()):
        pairs = sum(found[id(case)] == "pair" for case in members)
        print(f"{kind:<40}{len(members):>8,}{pairs:>14,}{pairs / len(members):>9.2%}")


def examples(cases: Iterable[Case], found: dict[int, str | None], count: int) -> None:
    wrong = [case for case in cases if bool(case.leak) != (found[id(case)] == "pair")]
    for case in random.Random(0).sample(wrong, min(count, len(wrong))):
        print(f"  {case.leak or case.innocent}: {case.sample.question!r} {case.sample.answers} {case.picture}")


def large(count: int, seed: int) -> None:
    """A big test set without images: what the index and a question cost."""
    chance = random.Random(seed)

    def question() -> str:
        return fill(chance.choice(TEMPLATES[chance.choice(("chart", "photo", "document", "text"))]), chance)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {question(): None for _ in range(count * 2)}
        lines = [orjson.dumps({"question": text, "answer": str(place)}) for place, text in enumerate(rows)]
        (folder / "test.jsonl").write_bytes(b"\n".join(lines[:count]))
        (folder / "recipe.toml").write_text('[data.test]\nsource = "test.jsonl"\ncolumns.image = ""\n')
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        family = prepare(load(folder / "recipe.toml"), folder / "index")
        seconds = time.process_time() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        size = sum(path.stat().st_size for path in (folder / "index").iterdir()) / 2**20
        start = time.process_time()
        prepare(load(folder / "recipe.toml"), folder / "index")
        again = time.process_time() - start
        print(
            f"\nindex of {min(count, len(lines)):,} questions: {seconds:.1f} s, {size:.0f} MiB, "
            f"{grown:.0f} MiB more memory; {again * 1e3:.0f} ms to see that it is still valid"
        )
        samples = [sample(question()) for _ in range(5000)]
        four = [trace(k=k) for k in range(4)]
        family.measure(samples[0], four)
        start = time.process_time()
        kinds = Counter(family.measure(one, four)[0]["contamination"] for one in samples)
        cost = (time.process_time() - start) / len(samples) * 1e6
        print(f"{cost:.0f} us a question, {cost / 4:.0f} us a trace with four traces a question ({dict(kinds)})")


if __name__ == "__main__":
    main()
