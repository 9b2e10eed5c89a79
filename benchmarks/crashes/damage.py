"""Damage one line in a hundred of a journal in every way, and compare what is lost with what was damaged.

    python benchmarks/crashes/damage.py [--traces 2000] [--rounds 50] [--seed 0]

Every round damages 1 % of the lines of a fresh copy, scans it as a resumed run does, sets aside what is damaged, and
appends the lost traces again, as the run does when its teacher answers. Lost ids must be exactly those of the lines
that changed; every other record must be what it was; at the end the ids must be those of before. Then the processor
time of an append with and without its checksum.
Takes 1 s with `--traces 200 --rounds 2` (two shared cores).
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.damaged_lines import side_file
from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.json_lines import seal
from distill.recipe.sections.teachers import Teacher
from distill.trace_records.trace_lines import trace_fault
from teacher.store.trace_journal import read_index, rewrite_parts

Damage = Callable[[random.Random, bytes], bytes]
TEACHER = Teacher(name="t", model="m", backend="vllm", base_url="http://127.0.0.1:9/v1")


def _cut(chance: random.Random, line: bytes, new: Callable[[int], bytes]) -> bytes:
    at = chance.randrange(len(line) - 1)
    size = chance.randrange(1, min(200, len(line) - at))
    return line[:at] + new(size) + line[at + size :]


def _flipped(chance: random.Random, line: bytes) -> bytes:
    at = chance.randrange(len(line) - 1)
    return line[:at] + bytes([line[at] ^ (1 << chance.randrange(8))]) + line[at + 1 :]


def _without(chance: random.Random, line: bytes) -> bytes:
    record = orjson.loads(line)
    del record[chance.choice(sorted(record))]
    return orjson.dumps(record) + b"\n"


def _half_a_field(chance: random.Random, line: bytes) -> bytes:
    at = line.index(b'"', chance.randrange(len(line) - 40))
    return line[:at] + line[at + chance.randrange(3, 30) :]


KINDS: dict[str, Damage] = {
    "bit flipped": _flipped,
    "bytes deleted": lambda chance, line: _cut(chance, line, lambda size: b""),
    "bytes inserted": lambda chance, line: line[:50] + chance.randbytes(chance.randrange(1, 90)) + line[50:],
    "zeros": lambda chance, line: _cut(chance, line, lambda size: b"\0" * size),
    "noise": lambda chance, line: _cut(chance, line, chance.randbytes),
    "cut short": lambda chance, line: line[: chance.randrange(1, len(line) - 20)],
    "line lost": lambda chance, line: b"",
    "emptied": lambda chance, line: b"\n",
    "field removed": _without,
    "field torn out": _half_a_field,
    "order mark": lambda chance, line: b"\xef\xbb\xbf" + line,
    "crlf": lambda chance, line: line[:-1] + b"\r\n",
    "line break lost": lambda chance, line: line[:-1],
    "doubled": lambda chance, line: line + line,
    "zeros between": lambda chance, line: b"\0" * 4096 + b"\n" + line,
}
HARMLESS = {"order mark", "crlf", "line break lost", "doubled", "zeros between"}
"""Nothing of the record itself is changed, so nothing may be lost."""


def record(chance: random.Random, number: int) -> dict[str, Any]:
    words = " ".join(chance.choice(("red", "über", "7", "{x}", '"so"', "\n", "left")) for _ in range(250))
    params = {"temperature": 0.8, "reasoning": TEACHER.reasoning, "parser": _parser()}
    return {
        **{"id": f"{number:032x}", "sample_id": f"s{number}", "teacher": "t", "k": 0, "seed": number},
        **{"reasoning": words, "answer": "7", "text": words, "outcome": "complete", "finish_reason": "stop"},
        **{"usage": dict.fromkeys(("prompt", "image", "reasoning", "answer"), 9), "params": params, "model": "m"},
        **{"revision": "", "engine": {"name": "vllm", "version": "1"}, "prompt_sha": "0", "latency_s": 0.5},
        **{"created": "", "attempt": 0, "draft": "", "hinted": False, "error": ""},
    }


def _parser() -> Any:
    from teacher.messages.parse import VERSION

    return VERSION


def one_round(chance: random.Random, whole: Path, folder: Path, counts: Counter[str]) -> None:
    lines = whole.read_bytes().splitlines(keepends=True)
    before = {orjson.loads(line)["id"]: line for line in lines}
    expected = set()
    for at in sorted(chance.sample(range(len(lines)), max(1, len(lines) // 100))):
        kind = chance.choice(list(KINDS))
        changed = KINDS[kind](chance, lines[at])
        counts[f"damaged: {kind}"] += 1
        if kind not in HARMLESS and changed != lines[at]:
            expected.add(orjson.loads(lines[at])["id"])
        lines[at] = changed
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    part = folder / "part-00000.jsonl"
    part.write_bytes(b"".join(lines))
    index = read_index(folder, TEACHER)
    rewrite_parts(index, TEACHER, drop_errors=True)
    kept = {found["id"]: found for found in read_jsonl(part, check=trace_fault)}
    lost = before.keys() - kept.keys()
    counts["lines damaged"] += len(expected)
    counts["traces lost"] += len(lost)
    counts["lost without damage"] += len(lost - expected)
    counts["damaged and kept"] += len(expected - lost)
    counts["kept and changed"] += sum(seal(found) != before[key] for key, found in kept.items() if key in before)
    counts["invented"] += len(kept.keys() - before.keys())
    aside = side_file(part)
    counts["pieces set aside"] += sum(1 for _ in read_jsonl(aside)) if aside.exists() else 0
    with Journal(part) as journal:
        for key in sorted(lost):
            found = orjson.loads(before[key])
            del found["crc"]
            journal.append(found)
    counts["rounds that end with other ids"] += {found["id"] for found in read_jsonl(part)} != before.keys()


def append_cost(records: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Microseconds a line: as it was before checksums, as it is, and the checksum alone."""
    lines = [seal(found)[:-19] for found in records]

    def spent(work: Callable[[Any], object], items: list[Any]) -> float:
        best = float("inf")
        for _ in range(5):
            begun = time.process_time()
            for item in items:
                work(item)
            best = min(best, time.process_time() - begun)
        return 1e6 * best / len(items)

    plain = spent(lambda item: orjson.dumps(item, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS), records)
    return plain, spent(seal, records), spent(zlib.crc32, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    traces, rounds, seed = options.traces, options.rounds, options.seed
    chance = random.Random(seed)
    records = [record(chance, number) for number in range(traces)]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole.jsonl"
        whole.write_bytes(b"".join(map(seal, records)))
        print(f"{traces:,} traces, {whole.stat().st_size / traces:,.0f} bytes a line, {rounds} rounds, seed {seed}")
        for _ in range(rounds):
            one_round(chance, whole, Path(place) / "t", counts)
    for name, count in sorted(counts.items()):
        print(f"{name:<34} {count:>8,}")
    plain, sealed, crc = append_cost(records)
    print(
        f"a line: {plain:.2f} us without, {sealed:.2f} us with checksum (+{sealed - plain:.2f}; CRC alone {crc:.2f})"
    )
    bad = (
        "lost without damage",
        "damaged and kept",
        "kept and changed",
        "invented",
        "rounds that end with other ids",
    )
    return int(any(counts[name] for name in bad))


if __name__ == "__main__":
    sys.exit(main())
