"""What each family of signals costs: microseconds a trace on one core, and what a partition costs end to end.

    python benchmarks/filter/signals.py [--traces 2000] [--families answer format]
        [--tokenizer tokenizer.json] [--profile]

The traces are synthetic: seeded, some 300 English words, four a question, in six ways of writing (prose, numbered
steps, bullets, formulas, a teacher that thinks aloud, Chinese), with numbers, a few loops and near copies, and a
chart's table for a third of the questions (`--charts 0`: for none). Their tokens are counted with a byte-level BPE
trained on such text, unless a tokenizer is named. A family's time is that of `filters.signals.registry.rows` with it
alone, so what several families share (verdicts, vocabularies) is counted more than once. The last line is
`filters.tables.measure.measure_partition`: read the journal, measure every family, sign the texts for near
duplicates, write the table.
Takes 10 s with `--traces 100` (two shared cores).
"""

import argparse
import cProfile
import hashlib
import pstats
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path

import numpy as np

from distill.artifacts.json_lines import seal
from distill.data.sample_files import to_record
from distill.recipe.loading import load
from distill.recipe.sections.filter import DEFAULT_SIGNALS
from distill.types import Sample, Trace, Usage
from filters.signals.base import Extractor
from filters.signals.families import agreement, answer
from filters.signals.registry import FAMILIES, build, identity, rows
from filters.tables import measure
from filters.text.minhash import Scheme

NAMES = ("Apples", "Norway", "Q3 revenue", "North wing", "Diesel", "Rail freight", "2019", "Tablets", "Café Lumière")
COLOURS = ("red", "blue", "green", "orange", "purple", "grey", "teal", "brown")


def listed(text: str) -> list[str]:
    return text.split()


NOUNS = listed("""
    chart table axis legend title label value bar line point slice segment column row country region city year
    month quarter product company sector market share growth decline trend average total difference ratio
    percentage rate increase price cost revenue profit population student teacher school hospital patient
    doctor farmer worker driver train station airport ship harbour bridge river mountain forest garden flower
    animal horse sheep chicken kitchen window door ceiling carpet table chair sofa lamp mirror picture frame
    poster sign letter number symbol arrow circle triangle square corner edge border shadow colour pattern
    texture surface material metal plastic glass paper cotton leather engine wheel mirror bicycle motorcycle
    truck bus traffic crossing pavement building tower church museum library theatre stadium player referee
    goal match score league season summer winter autumn spring weather rain snow temperature pressure volume
    weight height length width distance speed energy fuel coal gas oil solar wind power water coffee tea bread
    cheese fruit apple orange banana grape vegetable carrot potato onion tomato meat fish egg
""")
VERBS = listed("""
    show read compare measure count look reach cross match follow rise fall drop climb start end stop stay
    hold carry point indicate suggest represent describe label mark draw colour cover hide reveal separate
    divide add subtract multiply estimate round check confirm notice identify locate select choose ignore
    include exclude report record
""")
ADJECTIVES = listed("""
    high low tall short wide narrow large small left right upper lower middle central first second third final
    main minor bright dark pale deep clear faint thick thin solid dashed dotted empty full round square flat
    steep gradual sharp sudden steady stable similar different equal exact rough careful visible hidden
    obvious likely local global national annual monthly recent early late former present total partial average
    typical unusual common rare
""")
PREFIXES, SUFFIXES = (
    ("", "", "", "re", "un", "sub", "over", "non-"),
    ("", "", "s", "ed", "ing", "ly", "er", "ness", "-like"),
)

PROSE = (
    "The {colour} bar for {name} reaches about {n} on the vertical axis, which is a little above the line at {m}.",
    "If I compare it with {other}, the gap comes to {n} - {m} = {d} units, so the {w} one is clearly larger.",
    "The legend on the {w} side says that {colour} stands for {name}, and the {w} note below it mentions {w} {w}.",
    "Reading from left to right, the values are {n}, {m}, {d} and {n}.5, none of which is hidden by a {w} label.",
    "Because the axis starts at {d} and not at zero, the {w} difference looks bigger than the {w} table suggests.",
    "That leaves {name} with {n}% of the {w} total, while {other} has to share the {w} rest with {w} and {w}.",
    "In the {w} panel there is a {w} marker near {m}, but it belongs to another {w} series and can be ignored.",
)
THOUGHT = (
    "Wait, let me look at the {w} bar again: it is {n}, not {m}.",
    "Hmm, the {colour} one could also be {name}, so I should check the legend before I {w} anything.",
    "Let me double-check the sum: {n} + {m} = {t}, which fits the {w} axis.",
    "Okay, so the user wants to know how the {w} of {name} compares with {other}.",
    "Actually, no, the {w} label is under the {colour} line and says {d}.",
)
FORMULAS = (
    "$$\\frac{{{n} - {m}}}{{{m}}} \\times 100 = {d}\\%$$",
    "\\[ x_{{{d}}} = {n} + {m} = {t} \\]",
    "So \\({n} \\times {d} = {t}\\) for the {w} part of {name}.",
    "Let $\\Delta = {n} - {m} = {d}$ be the {w} change of {other}.",
)
CHINESE = (
    "图中{name}的柱子大约到{n}，比{other}的{m}高出{d}个单位。",
    "从左到右依次读数：{n}、{m}、{d}，没有被标签遮住的数值。",
    "所以答案应该是{t}，不过我再检查一下图例的颜色。",
)


def texts(source: random.Random) -> Callable[[], dict[str, object]]:
    """A function that fills the slots of a sentence; words are drawn by Zipf's law from some ten thousand."""
    stems = dict.fromkeys([*NOUNS, *VERBS, *ADJECTIVES])
    derived = [before + stem + after for before in PREFIXES for after in SUFFIXES for stem in stems]
    vocabulary = [*dict.fromkeys([*stems, *source.sample(derived, len(derived))])]
    weights = list(accumulate((rank + 10) ** -1.3 for rank in range(len(vocabulary))))

    class Slots(dict[str, object]):
        def __missing__(self, key: str) -> object:
            return source.choices(vocabulary, cum_weights=weights)[0]

    def slots() -> dict[str, object]:
        n, m = source.randint(10, 999), source.randint(2, 99)
        names = {"name": source.choice(NAMES), "other": source.choice(NAMES), "colour": source.choice(COLOURS)}
        return Slots(n=n, m=m, d=abs(n - m), t=n + m, **names)

    return slots


def rationale(source: random.Random, slots: Callable[[], dict[str, object]], style: str, size: int) -> str:
    """A text of about `size` words; half of its sentences carry a free clause, so that no two are alike."""
    sentences: list[str] = []
    length = 0
    while length < size:
        pool = PROSE
        if style == "thought" and source.random() < 0.4:
            pool = THOUGHT
        elif style == "formulas" and source.random() < 0.3:
            pool = FORMULAS
        elif style == "chinese":
            pool = CHINESE
        text = source.choice(pool)
        if pool is PROSE and source.random() < 0.5:
            text = text[:-1] + ", {a} the {b} {c} of {name} {e} more {f} than {g} {h}."
        # Slots without a value of their own are words, another one at every place.
        for _ in range(text.count("{w}")):
            text = text.replace("{w}", str(slots()["w"]), 1)
        text = text.format_map(slots())
        sentences.append(text)
        length += len(text) // 2 if style == "chinese" else text.count(" ") + 1
    if style == "steps":
        return "\n".join(f"{number}. {text}" for number, text in enumerate(sentences, 1))
    if style == "bullets":
        return "\n".join(f"- **{text.partition(' ')[0]}** {text}" for text in sentences)
    broken = [text + ("\n\n" if source.random() < 0.2 else " ") for text in sentences]
    return "".join(broken).strip()


def questions(count: int, size: int, seed: int, charts: int = 3) -> Iterator[tuple[Sample, list[Trace]]]:
    """Samples with four traces each; 2 % of the traces end in a loop and 5 % are near copies of another."""
    source = random.Random(seed)
    slots = texts(source)
    styles = ("prose", "prose", "steps", "bullets", "formulas", "thought", "thought", "chinese")
    for number in range(count):
        filled = slots()
        gold = str(filled["d"])
        meta: dict[str, object] = {}
        if charts and number % charts == 0:
            meta["bars"] = {name: source.randint(2, 999) for name in source.sample(NAMES, 5)}
        sample = Sample(
            id=_digest("sample", number),
            images=(),
            question="How much higher is the {colour} bar of {name} than that of {other} in year {n}?".format_map(
                filled
            ),
            answers=(gold,),
            domain="charts",
            meta=meta,
        )
        traces: list[Trace] = []
        for k in range(4):
            style = source.choices(styles, weights=(4, 4, 4, 3, 3, 4, 4, 1))[0]
            reasoning = rationale(source, slots, style, max(20, int(source.gauss(size, size / 4))))
            if traces and source.random() < 0.05:
                reasoning = traces[0].reasoning + " That is all."
            elif source.random() < 0.02:
                reasoning += " So the bar is 12, and then the bar is" * 30
            answer = gold if source.random() < 0.7 else source.choice((f"{gold} units", "about 40", f"**{gold}%**"))
            traces.append(_trace(sample, k, reasoning, answer))
        yield sample, traces


def _trace(sample: Sample, k: int, reasoning: str, answer: str) -> Trace:
    return Trace(
        id=_digest(sample.id, k),
        sample_id=sample.id,
        teacher=("first", "second")[k % 2],
        k=k // 2,
        seed=k,
        reasoning=reasoning,
        answer=answer,
        text=f"<think>\n{reasoning}\n</think>\n\n{answer}",
        outcome="complete",
        finish_reason="stop",
        usage=Usage(),
        params={},
        model="m",
        revision="r",
        engine={},
        prompt_sha="",
        latency_s=0.0,
        created="",
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def train_tokenizer(path: Path, merges: int, size: int) -> None:
    """A byte-level BPE as today's language models have, of text like that which is measured."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # The split of GPT-4's kind, of which those of the present small models are variants.
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    pattern = words + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=merges + 256, show_progress=False)
    corpus = (trace.text for _, traces in questions(1500, size, seed=99) for trace in traces)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.save(str(path))
    print(f"tokenizer: {tokenizer.get_vocab_size():,} tokens")


def extractors(tokenizer: Path, names: tuple[str, ...]) -> tuple[Extractor, ...]:
    """The families as a recipe builds them, for a student with this tokenizer."""
    with tempfile.TemporaryDirectory() as name:
        recipe = Path(name) / "recipe.toml"
        recipe.write_text(f'[filter]\nsignals = {list(names)}\n[student]\nmodel = "{tokenizer.parent.resolve()}"\n')
        return build(load(recipe))


def cost_us(families: tuple[Extractor, ...], data: list[tuple[Sample, list[Trace]]], repeats: int) -> float:
    """Processor time a trace, the best of `repeats` runs: others on the machine only ever slow one down."""
    count = sum(len(traces) for _, traces in data)
    best = float("inf")
    for _ in range(repeats):
        _forget()
        start = time.process_time()
        for sample, traces in data:
            rows(families, sample, traces)
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def partition_us(families: tuple[Extractor, ...], data: list[tuple[Sample, list[Trace]]], folder: Path) -> float:
    """Processor time a trace of measuring a whole partition from its journal into its file."""
    journal, samples = folder / "part-00000.jsonl", folder / "samples"
    samples.mkdir()
    with (samples / "part-00000.jsonl").open("wb") as file:
        file.writelines(seal(to_record(sample)) for sample, _ in data)
    traces = [trace for _, traces in data for trace in traces]
    places, start = [], 0
    with journal.open("wb") as file:
        for trace in traces:
            places.append((0, start))
            start += file.write(seal(asdict(trace)))
    task = measure.PartitionTask(
        path=folder / "signals.parquet",
        extractors=families,
        identity=identity(families),
        content="",
        scheme=Scheme(),
        journals=(journal,),
        samples=samples,
        number=0,
        locations=np.array(places, np.int64),
    )
    _forget()
    begun = time.process_time()
    measure.measure_partition(task)
    return (time.process_time() - begun) / len(traces) * 1e6


def _forget() -> None:
    answer._judge_answer.cache_clear()
    agreement._equivalent.cache_clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=2000)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--charts", type=int, default=3, help="one in so many questions has a chart's table; 0: none")
    parser.add_argument("--families", nargs="*", default=list(DEFAULT_SIGNALS), choices=list(FAMILIES))
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json instead of one trained here")
    parser.add_argument("--merges", type=int, default=30_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--profile", action="store_true", help="say where the time of all together goes")
    options = parser.parse_args()
    data = list(questions(options.traces // 4, options.words, options.seed, options.charts))
    lengths = [len(trace.reasoning.split()) for _, traces in data for trace in traces]
    print(f"{len(lengths):,} traces, {sum(lengths) / len(lengths):.0f} words on average")
    with tempfile.TemporaryDirectory() as name:
        tokenizer = options.tokenizer
        if tokenizer is None:
            tokenizer = Path(name) / "tokenizer.json"
            train_tokenizer(tokenizer, options.merges, options.words)
        families = extractors(tokenizer, tuple(options.families))
    print(f"{'family':<24}{'us a trace':>12}{'traces/s':>12}")
    for family in families:
        _line(family.name, cost_us((family,), data, options.repeats))
    _line("all together", cost_us(families, data, options.repeats))
    costs = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as name:
            costs.append(partition_us(families, data, Path(name)))
    _line("measure_partition", min(costs))
    if options.profile:
        with cProfile.Profile() as profile:
            for sample, traces in data:
                rows(families, sample, traces)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def _line(name: str, cost: float) -> None:
    rate = f"{1e6 / cost:,.0f}" if cost else "-"  # less than a tick of the clock
    print(f"{name:<24}{cost:>12.1f}{rate:>12}", flush=True)


if __name__ == "__main__":
    main()
