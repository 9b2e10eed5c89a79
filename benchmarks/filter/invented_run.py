"""A finished generate stage of invented traces, as large as wanted, for the benchmarks of the filter stage.

Four teachers, three domains, four to eight traces a question, shared images; some texts say what another one said,
exactly or but for the end, and some are cut.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path, describe
from distill.artifacts.manifest import Manifest, fingerprint
from distill.data.arrow import table_of
from distill.data.reader import sample_id
from distill.data.sample_files import samples_content, write_samples
from distill.types import ImageRef, Sample

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))

TEACHERS = ("structured", "reader", "analyst", "brief")
IMAGE_CELLS = 64
QUESTIONS_AT_ONCE = 2048
NAMES = ("apple", "pear", "plum", "cherry", "lemon", "quince", "medlar", "olive", "fig", "date", "sloe", "damson")
PLACES = ("left", "right", "top", "bottom", "middle", "front", "back", "corner", "edge", "shade")
VERBS = ("count", "see", "read", "compare", "add", "take", "weigh", "find", "mark", "check")
PLAN = pa.schema(
    [
        ("id", pa.string()),
        ("sample_id", pa.string()),
        ("teacher", pa.string()),
        ("k", pa.int32()),
        ("attempt", pa.int32()),
        ("hinted", pa.bool_()),
    ]
)


def written_recipe(folder: Path, text: str = "") -> Path:
    """A recipe whose filter section is `text`; it asks for nothing that a finished generate stage has not."""
    from worlds.run_fixtures import recipe

    path = recipe(folder, text).path
    assert path is not None
    return path


def write_run(run: Path, traces: int, words: int, chance: random.Random) -> None:
    """`<run>/generate` with exactly so many traces."""
    from worlds.run_fixtures import make_image

    folder = run / "generate"
    images = [make_image(run / "pictures", number) for number in range(IMAGE_CELLS)]
    sentences = [sentence(chance) for _ in range(4096)]
    for teacher in TEACHERS:
        (folder / teacher).mkdir(parents=True)
    journals = {teacher: (folder / teacher / "part-00000.jsonl").open("wb") for teacher in TEACHERS}

    def samples(plan: pq.ParquetWriter) -> Iterator[Sample]:
        left = traces
        before = "I see nothing yet."
        rows: list[dict[str, Any]] = []
        while left:
            number = traces - left
            count = min(left, chance.randint(4, 8))
            asked = question(number, images, chance)
            for place in range(count):
                before = rationale(before, sentences, words, chance)
                row = write_trace(asked, place, before, journals, chance)
                rows.append(row)
            left -= count
            if len(rows) >= QUESTIONS_AT_ONCE or not left:
                plan.write_table(table_of(rows, PLAN))
                rows.clear()
            yield asked

    with (
        atomic_path(folder / "plan.parquet") as path,
        pq.ParquetWriter(path, PLAN, compression="zstd") as plan,
    ):
        write_samples(folder / "samples.parquet", samples(plan))
    for journal in journals.values():
        journal.close()
    fields = {"teachers": list(TEACHERS), "traces": traces, "words": words}
    outputs = {f"{name}/part-00000.jsonl": describe(folder / name / "part-00000.jsonl") for name in TEACHERS}
    Manifest(
        stage="generate",
        fingerprint=fingerprint(fields),
        fields=fields,
        inputs={"samples.parquet": samples_content(folder / "samples.parquet")},
        counts={"traces": traces},
        outputs=outputs,
    ).write(folder)


def question(number: int, images: list[ImageRef], chance: random.Random) -> Sample:
    ref = chance.choice(images)
    domain = ("scenes", "charts", "documents")[number % 3]
    bars = {name: chance.randint(1, 90) for name in chance.sample(NAMES, 4)}
    name, gold = next(iter(bars.items()))
    text = f"Question {number}: how many boxes of {name} are there?"
    return Sample(
        id=sample_id(text, [ref.sha256]),
        images=(ref,),
        question=text,
        answers=(str(gold),),
        domain=domain,
        meta={"bars": bars} if domain == "charts" else {},
    )


def sentence(chance: random.Random) -> str:
    return (
        f"I {chance.choice(VERBS)} the {chance.choice(NAMES)} at the {chance.choice(PLACES)} and "
        f"{chance.choice(VERBS)} {chance.randint(1, 999)} of them,"
    )


def rationale(before: str, sentences: list[str], words: int, chance: random.Random) -> str:
    """A text of so many words; some repeat the last one, exactly or but for its end."""
    kind = chance.random()
    if kind < 0.02:
        return before
    if kind < 0.06:
        return f"{before} {chance.choice(sentences).removesuffix(',')}."
    return " ".join(chance.choices(sentences, k=max(1, words // 12))).removesuffix(",") + "."


def write_trace(
    asked: Sample, place: int, text: str, journals: dict[str, IO[bytes]], chance: random.Random
) -> dict[str, Any]:
    """Journal one attempt; its row of the plan."""
    teacher, k = TEACHERS[place % len(TEACHERS)], place // len(TEACHERS)
    gold = int(asked.answers[0])
    answer = str(gold if chance.random() < 0.7 else gold + chance.randint(1, 9))
    outcome = "complete" if chance.random() < 0.95 else "truncated_thinking"
    if outcome != "complete":
        answer = ""
    row = {"sample_id": asked.id, "teacher": teacher, "k": k, "attempt": 0, "hinted": False}
    row["id"] = fingerprint(row)[:32]
    record = row | {
        "seed": k,
        "reasoning": text,
        "answer": answer,
        "text": f"<think>\n{text}\n</think>\n\n{answer}",
        "outcome": outcome,
        "finish_reason": "stop" if answer else "length",
        "usage": {"prompt": 300, "image": 256, "reasoning": len(text) // 4, "answer": 1, "cached": None},
        "params": {"temperature": 0.8, "top_p": 0.95, "max_tokens": 2048},
        "model": f"teachers/{teacher}",
        "revision": "r1",
        "engine": {"name": "vllm", "version": "0.11"},
        "prompt_sha": "p",
        "latency_s": 0.5,
        "created": "2026-01-01T00:00:00+00:00",
        "draft": "",
        "stop_reason": "",
        "error": "",
        "logprobs": None,
    }
    journals[teacher].write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS))
    return row
