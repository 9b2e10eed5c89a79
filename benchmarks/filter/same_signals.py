"""Whether a change of the code changes any signal: measure fixed sets of texts into a file, before and after.

    python benchmarks/filter/same_signals.py before.jsonl [--run RUN] [--mutated 2000] [--traces 1200]
    python benchmarks/filter/same_signals.py after.jsonl ...
    cmp before.jsonl after.jsonl

All families of signals and the signatures of the texts are measured partition by partition, as `distill filter` does,
for the texts of `signals.py`, the rationales of `grounding.py` (its worlds and those written by hand), the mutated
answers of `mutated_answers.py`, the texts of benchmarks/data (arithmetic, near duplicates, answers), and the traces
of a finished run. Each line holds the set, and one row of the signal table.
Takes 3 min with `--mutated 30 --traces 60` (two shared cores).
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
from signals import questions

from distill.data.sample_files import from_record, to_record
from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace, Usage
from filters.signals.registry import FAMILIES, identity
from filters.tables import measure
from filters.tables.trace_index import trace as read_trace
from filters.text.minhash import Scheme

BENCHMARKS = Path(__file__).parents[1]
sys.path += [str(BENCHMARKS / "answers"), str(BENCHMARKS / "grounding"), str(BENCHMARKS.parent / "tests" / "support")]

from grounding import cases, long_cases, pair  # noqa: E402 - beside another script
from judged.labelled_pairs import read_pairs  # noqa: E402
from mutated_answers import SAMPLES, texts, trace_of  # noqa: E402

Question = tuple[Sample, list[Trace]]
_PARTITION = 500


def trace(sample_id: str, number: int, reasoning: str, answer: str) -> Trace:
    return Trace(
        id=f"{sample_id}-{number}", sample_id=sample_id, teacher="ab"[number % 2], k=number // 2, seed=0,
        reasoning=reasoning, answer=answer, text=reasoning + answer, outcome="complete", finish_reason="stop",
        usage=Usage(), params={}, model="m", revision="r", engine={}, prompt_sha="", latency_s=0.0, created="",
    )  # fmt: skip


def lines(pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted((BENCHMARKS / "data").glob(pattern)):
        yield from map(orjson.loads, path.read_bytes().splitlines())


def grounded(count: int) -> Iterator[Question]:
    rng = random.Random(0)
    for number, case in enumerate([*cases(count, rng), *long_cases(rng)]):
        sample, written = pair(case, number)
        yield sample, [written]


def mutated(count: int) -> Iterator[Question]:
    """Three mutated answers a question, so that texts are compared too."""
    drawn = texts(5, count)
    for number in range(0, count, 3):
        sample = replace(SAMPLES[number % 2], id=f"m{number:06}")
        traces = [trace_of(text, number + place) for place, text in enumerate(islice(drawn, 3))]
        yield sample, [replace(each, sample_id=sample.id) for each in traces]


def written() -> Iterator[Question]:
    """The texts of benchmarks/data."""
    for number, row in enumerate(lines("arithmetic/*/*.jsonl")):
        sample = Sample(id=f"a{number:06}", images=(), question="What does the text say?", answers=("7",))
        yield sample, [trace(sample.id, 0, row["text"], "7")]
    for number, row in enumerate(lines("near_duplicates/*/*.jsonl")):
        sample = Sample(id=f"n{number:06}", images=(), question="Which one is larger?", answers=("red",))
        yield sample, [trace(sample.id, 0, row["a"], "red"), trace(sample.id, 1, row["b"], "red")]
    for number, row in enumerate(read_pairs()):
        options = list(map(str, row.get("options") or ()))
        question = str(row.get("question") or "What is shown?")
        sample = Sample(
            id=f"p{number:06}", images=(), question=question, answers=(str(row["gold"]),),
            answer_type=row.get("type"), meta={"options": options} if options else {},
        )  # fmt: skip
        yield sample, [trace(sample.id, 0, f"I see {row['prediction']}.", str(row["prediction"]))]


def of_run(run: Path) -> Iterator[Question]:
    by_sample: dict[str, list[Trace]] = {}
    for path in sorted((run / "generate").glob("*/part-*.jsonl")):
        for line in path.read_bytes().splitlines():
            made = read_trace(orjson.loads(line))
            by_sample.setdefault(made.sample_id, []).append(made)
    for path in sorted((run / "filter" / "samples").glob("part-*.jsonl")):
        for line in path.read_bytes().splitlines():
            sample = from_record(orjson.loads(line))
            yield sample, by_sample.get(sample.id, [])


def measured(asked: list[Question], folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of one partition."""
    journal, samples = folder / "part-00000.jsonl", folder / "samples"
    samples.mkdir(exist_ok=True)
    option = orjson.OPT_APPEND_NEWLINE
    part = b"".join(orjson.dumps(_clean(to_record(sample)), option=option) for sample, _ in asked)
    (samples / "part-00000.jsonl").write_bytes(part)
    places, start = [], 0
    with journal.open("wb") as file:
        for _, traces in asked:
            for each in traces:
                places.append((0, start))
                start += file.write(orjson.dumps(_clean(asdict(each)), option=option))
    families = tuple(family.from_recipe(Recipe()) for family in FAMILIES.values())
    path = folder / "signals.parquet"
    task = measure.PartitionTask(
        path=path, extractors=families, identity=identity(families), content="", scheme=Scheme(), journals=(journal,),
        samples=samples, number=0, locations=np.array(places, np.int64),
    )  # fmt: skip
    path.unlink(missing_ok=True)
    measure.measure_partition(task)
    table = pq.read_table(path)
    for row in table.to_pylist():
        yield {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}


def _clean(record: dict[str, Any]) -> dict[str, Any]:
    """Half of a surrogate pair cannot be written."""
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in record.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--mutated", type=int, default=2000)
    parser.add_argument("--traces", type=int, default=1200)
    options = parser.parse_args()
    sets: dict[str, Iterator[Question]] = {
        "signals": questions(options.traces // 4, 300, 1),
        "no tables": questions(options.traces // 8, 150, 2, 0),
        "grounding": grounded(options.traces * 2),
        "mutated": mutated(options.mutated),
        "written": written(),
    }
    if options.run:
        sets["run"] = of_run(options.run)
    with options.out.open("wb") as file, tempfile.TemporaryDirectory() as name:
        for set_name, asked in sets.items():
            count = 0
            while part := list(islice(asked, _PARTITION)):
                for row in measured([(sample, traces) for sample, traces in part if traces], Path(name)):
                    count += 1
                    file.write(orjson.dumps([set_name, row], option=orjson.OPT_APPEND_NEWLINE))
            print(f"{set_name}: {count:,} traces", flush=True)


if __name__ == "__main__":
    main()
