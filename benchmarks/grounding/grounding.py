"""How well unsupported values are found: recall on injected misreadings, false alarms on clean rationales, cost.

    python benchmarks/grounding/grounding.py [--traces 6000] [--seed 0] [--run RUN] [--misses 0] [--alarms 0]
        [--profile]

The rationales are written in phrasings that know nothing of the extractor, about charts of the tiny world (four bars,
values 1 to 9) and about tables as data sets of natural charts keep them (series by categories, years, shares); those
of "later" were written when the extractor was finished. Half are clean; the others have one fault: a value misread
throughout, a slip in one mention, two bars swapped, a label that is not in the chart, a last step or an intermediate
one that does not come out. A fault that leaves the text as it was is drawn again. "long" are the rationales of the
tests, written out by hand. `--run` adds the traces of a finished tiny run, clean or not by comparison with every
rationale that the world's own styles could have written about the true chart.
Takes 3 s with `--traces 200` (two shared cores).
"""

import argparse
import cProfile
import pstats
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as parquet
from rationale_tables import GRIDS, LINES, grid, series
from rationales import BARS
from rationales_later import LATER
from teller import COLOURS, Phrasing, Teller

from distill.grounding.charts.chart_table import find_table
from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace, Usage
from filters.signals.families.grounding import Grounding

PHRASINGS = {"bars": BARS, "later": LATER, "series": LINES, "grid": GRIDS}
NAMELESS = ("left_to_right", "without", "mean", "ranking")
"""Phrasings that give values without labels: the same ones in another order are no fault."""
FAULTS = ("misread", "slip", "swap", "label", "step", "intermediate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    world: str
    phrasing: str
    fault: str
    """Empty where the rationale is clean."""
    question: str
    meta: dict[str, Any]
    text: str


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Clean rationales and faulty ones in turn, most of them about charts of the tiny world."""
    worlds = ("bars", "series", "bars", "grid", "bars", "series", "bars", "later")
    for number in range(count):
        world = worlds[number // 2 % 8]
        made = None
        while made is None:
            made = one(world, rng.choice(PHRASINGS[world]), rng.choice(FAULTS) if number % 2 else "", rng)
        yield made


def one(world: str, phrasing: Phrasing, fault: str, rng: random.Random) -> Case | None:
    """One rationale; None where the fault leaves no mark on it."""
    if world in ("bars", "later"):
        chosen = rng.sample(COLOURS, 4)
        values: dict[str, float] = {colour: rng.randint(1, 9) for colour in chosen}
        others = tuple(colour for colour in COLOURS if colour not in chosen)
        meta: dict[str, Any] = {"bars": values}
    else:
        values, others, title = series(rng) if world == "series" else grid(rng)
        meta = {"table": stored(values, rng), "title": title}
    labels = list(values)
    first, second = sorted(rng.sample(labels, 2), key=values.__getitem__, reverse=True)
    state = rng.getstate()
    question, clean = phrasing(Teller(values, rng, "", ()), first, second, labels)
    if not fault:
        return Case(world=world, phrasing=phrasing.__name__, fault="", question=question, meta=meta, text=clean)
    rng.setstate(state)
    _, text = phrasing(Teller(values, rng, fault, others), first, second, labels)
    if (
        fault == "swap"
        and phrasing.__name__ in NAMELESS
        and sorted(re.findall(r"[\w.]+", text)) == sorted(re.findall(r"[\w.]+", clean))
    ):
        return None
    return (
        Case(world=world, phrasing=phrasing.__name__, fault=fault, question=question, meta=meta, text=text)
        if text != clean
        else None
    )


def stored(values: dict[str, float], rng: random.Random) -> Any:
    """The table in one of the forms that data sets use."""
    if "|" not in next(iter(values)):
        form = rng.randrange(4)
        if form == 0:
            return values
        if form == 1:
            return [["Category", "Value"], *([label, str(value)] for label, value in values.items())]
        if form == 2:
            return "Category,Value\n" + "\n".join(f"{label},{value}" for label, value in values.items())
        return [{"name": label, "value": value} for label, value in values.items()]
    rows: dict[str, dict[str, float]] = defaultdict(dict)
    for label, value in values.items():
        row, _, column = label.partition("|")
        rows[row][column] = value
    if rng.random() < 0.5:
        return rows
    columns = list(next(iter(rows.values())))
    return "\n".join(
        [
            " | ".join(["Entity", *columns]),
            *(" | ".join([row, *map(str, cells.values())]) for row, cells in rows.items()),
        ]
    )


def long_cases(rng: random.Random) -> Iterator[Case]:
    """The long rationales of the tests as they are, and with each value of the chart misread once."""
    path = Path(__file__).resolve().parents[2] / "tests" / "data" / "chart_rationales.jsonl"
    for line in path.read_bytes().splitlines():
        told = orjson.loads(line)
        case = Case(
            world="long",
            phrasing="by hand",
            fault="",
            question=told["question"],
            meta={"table": told["table"], "title": told["title"]},
            text=told["rationale"],
        )
        yield case
        table = find_table(case.meta)
        assert table is not None
        for match in re.finditer(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\d)(?!\w)", case.text):
            value = float(match[0])
            other = value + rng.choice([1, 2, -1, 3]) if value < 12 else value * rng.choice([0.8, 0.9, 1.1, 1.2])
            wrong = f"{other:.1f}" if "." in match[0] else str(int(other))
            if value in table.values and wrong not in case.text:
                text = case.text[: match.start()] + wrong + case.text[match.end() :]
                yield replace(case, fault="slip", text=text)


# --- the traces of a finished tiny run ------------------------------------------------------------------------------


def run_cases(run: Path) -> Iterator[Case]:
    """Traces about charts and digits whose chart is known, clean or not by every possible wording."""
    table = parquet.read_table(run / "generate" / "samples.parquet", columns=["id", "question", "domain", "meta"])
    samples = {row["id"]: row for row in table.to_pylist() if row["domain"] in ("charts", "digits")}
    for path in sorted((run / "generate").glob("*/part-*.jsonl")):
        for line in path.read_bytes().splitlines():
            trace = orjson.loads(line)
            sample = samples.get(trace["sample_id"])
            if sample is None or trace["outcome"] != "complete":
                continue
            meta = orjson.loads(sample["meta"])
            right = charts_wordings(meta) if sample["domain"] == "charts" else digits_wordings(meta)
            text = trace["reasoning"].strip()
            skeletons = {skeleton(one) for one in right}
            if text not in right and skeleton(text) not in skeletons:
                continue  # told in another way: nobody can say whether it is clean
            yield Case(
                world=f"run {sample['domain']}",
                phrasing=trace["teacher"],
                fault="" if text in right else "misread",
                question=sample["question"],
                meta=meta,
                text=text,
            )


def skeleton(text: str) -> str:
    return re.sub(r"\d+|\b(?:" + "|".join(COLOURS) + r")\b", "#", text)


def running_sum(numbers: list[int]) -> str:
    return ", ".join(
        f"{sum(numbers[: place + 1])} + {numbers[place + 1]} = {sum(numbers[: place + 2])}"
        for place in range(len(numbers) - 1)
    )


def charts_wordings(meta: dict[str, Any]) -> set[str]:
    bars: dict[str, int] = meta["bars"]
    if meta["kind"] in ("total", "range"):
        # A sample's meta does not keep the order of its bars.
        found = set()
        for order in permutations(bars):
            said = ", ".join(f"{colour} {bars[colour]}" for colour in order)
            if meta["kind"] == "total":
                found.add(f"{said}. {running_sum([bars[colour] for colour in order])}.")
            else:
                high, low = max(bars.values()), min(bars.values())
                end = f"{high} - {low} = {high - low}."
                found |= {
                    f"{said}. high {high}, low {low}: {end}",
                    f"{said}. The highest is {high}, the lowest is {low}: {end}",
                }
        return found
    found = set()
    for first, second in permutations(meta["terms"]):
        one, two = bars[first], bars[second]
        end = f"{one} + {two} = {one + two}." if meta["kind"] == "sum" else f"{one} - {two} = {one - two}."
        found |= {f"{lead}{first} {one}, {second} {two}: {end}" for lead in ("", "The chart shows ")}
    return found


def digits_wordings(meta: dict[str, Any]) -> set[str]:
    digits: list[int] = meta["digits"]
    rows = {"top": digits[:3], "bottom": digits[3:]}
    top, bottom = (" ".join(map(str, row)) for row in rows.values())
    leads = (f"The image reads {top} / {bottom}.", f"Transcript: {top} / {bottom}.")
    if meta["kind"] == "row":
        (which,) = meta["terms"]
        row = rows[which]
        end = f"The {which} row is {' '.join(map(str, row))}. {running_sum(row)}."
    elif meta["kind"] == "range":
        high, low = max(digits), min(digits)
        end = f"The largest is {high}, the smallest is {low}. {high} - {low} = {high - low}."
    else:
        one, two = max(rows["top"]), max(rows["bottom"])
        end = f"The largest are {one} and {two}. {one} + {two} = {one + two}."
    return {f"{lead}\n{end}" for lead in leads}


# --- measuring ------------------------------------------------------------------------------------------------------


def pair(case: Case, number: int) -> tuple[Sample, Trace]:
    sample = Sample(
        id=f"s{number}", images=(), question=case.question, answers=(), domain=case.world, meta=case.meta
    )  # fmt: skip
    trace = Trace(
        id=f"t{number}", sample_id=sample.id, teacher="t", k=0, seed=0, reasoning=case.text, answer="",
        text=case.text, outcome="complete", finish_reason="stop", usage=Usage(), params={}, model="m", revision="r",
        engine={}, prompt_sha="", latency_s=0.0, created="",
    )  # fmt: skip
    return sample, trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--misses", type=int, default=0, help="print so many faulty rationales that passed")
    parser.add_argument("--alarms", type=int, default=0, help="print so many clean rationales that were flagged")
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    found = list(cases(chosen.traces, random.Random(chosen.seed)))
    found += long_cases(random.Random(chosen.seed))
    if chosen.run:
        found += run_cases(chosen.run)
    judge(found, chosen.misses, chosen.alarms)
    cost(chosen.seed, chosen.profile)


def judge(found: list[Case], misses: int, alarms: int) -> None:
    extractor = Grounding.from_recipe(Recipe())
    tally: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    phrasings: dict[tuple[str, str, bool], list[int]] = defaultdict(lambda: [0, 0])
    for number, case in enumerate(found):
        sample, trace = pair(case, number)
        (row,) = extractor.measure(sample, [trace])
        assert row["grounding_state"] == "ok", row
        flagged = row["unsupported_values"] > 0
        for count in (tally[case.world, case.fault], phrasings[case.world, case.phrasing, bool(case.fault)]):
            count[0] += 1
            count[1] += flagged
        if flagged != bool(case.fault):
            left = misses if case.fault else alarms
            if left:
                print(f"{'MISSED ' + case.fault if case.fault else 'ALARM'} [{case.phrasing}] {case.meta}")
                print(f"  Q {case.question}\n  R {case.text}\n  {row['unsupported']}\n")
                misses, alarms = (misses - 1, alarms) if case.fault else (misses, alarms - 1)
    print(f"{len(found)} rationales in {len({case.phrasing for case in found})} phrasings")
    for world in dict.fromkeys(world for world, _ in tally):
        clean = tally[world, ""]
        faulty = [tally[world, fault] for fault in FAULTS if (world, fault) in tally]
        whole, hit = sum(count for count, _ in faulty), sum(flagged for _, flagged in faulty)
        print(
            f"\n{world}: false alarms {clean[1]}/{clean[0]} = {share(clean[1], clean[0])}, "
            f"recall {hit}/{whole} = {share(hit, whole)}"
        )
        for fault in FAULTS:
            if (world, fault) in tally:
                count, flagged = tally[world, fault]
                print(f"  {fault:<13}{flagged:>5}/{count:<5} {share(flagged, count)}")
        weak = [
            f"{name} {'recall' if faulty else 'alarms'} {share(flagged, count)}"
            for (where, name, faulty), (count, flagged) in sorted(phrasings.items())
            if where == world and (flagged < 0.95 * count if faulty else flagged > 0.03 * count)
        ]
        print("  weakest: " + "; ".join(weak) if weak else "  no phrasing below 95 % recall or above 3 % alarms")


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def cost(seed: int, profile: bool) -> None:
    """Microseconds a trace of some 300 words, four traces a question, no text twice."""
    rng = random.Random(seed + 1)
    pairs: list[tuple[Sample, list[Trace]]] = []
    words = 0
    for number in range(250):
        world, phrasings = (("bars", BARS), ("series", LINES), ("grid", GRIDS))[number % 3]
        traces: list[Trace] = []
        while len(traces) < 4:
            texts: list[str] = []
            while sum(len(text.split()) for text in texts) < 300:
                told = one(world, rng.choice(phrasings), "", random.Random(f"{seed} {number}"))
                assert told is not None
                texts.append(
                    " ".join([told.text, *rng.choices(FILLER, k=2), f"({rng.choice(WORDS)} {rng.choice(WORDS)})"])
                )
            sample, trace = pair(told, 4 * number + len(traces))
            traces.append(replace(trace, reasoning="\n".join(texts)))
            words += len(traces[-1].reasoning.split())
        pairs.append((sample, traces))
    extractor = Grounding.from_recipe(Recipe())
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    spent = timed(extractor, pairs)
    if profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    count = 4 * len(pairs)
    bare = [(replace(sample, meta={}), traces) for sample, traces in pairs]
    without = timed(extractor, bare)
    print(f"\ncost: {spent:.0f} us a trace of {words / count:.0f} words, {without:.1f} us without a table")


def timed(extractor: Grounding, pairs: list[tuple[Sample, list[Trace]]]) -> float:
    """Microseconds of processor time a trace, the median over questions: other programs disturb some."""
    spent = []
    for sample, traces in pairs:
        started = time.process_time()
        extractor.measure(sample, traces)
        spent.append(1e6 * (time.process_time() - started) / len(traces))
    return statistics.median(spent)


FILLER = (
    "Let me take a closer look at the picture before I go on.",
    "The legend explains what each of them stands for, and the axis is labelled clearly enough to be read.",
    "I should be careful here, because the question asks about something else than I thought at first.",
    "Now that everything has been read off, the rest is simple.",
    "Hmm, that seems right, and it agrees with the general impression of the chart.",
)
WORDS = [a + b + c for a in "bdfglmnprst" for b in ("a", "e", "io", "u") for c in ("lt", "rn", "sk", "nd", "m", "x")]


if __name__ == "__main__":
    main()
