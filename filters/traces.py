"""Where the live traces of a run lie: an index over the generate stage's journals, and reading by it.

The journals are read once, front to back; afterwards any partition reads only its own lines. Memory holds ids and
positions, never texts. The first finished record of an id counts, an error only where nothing else came of it, and
only ids of the plan are live. Whole samples fall
into a partition, by a hash of the sample's id: neither the order of the journals nor that of the plan matters.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts import read_jsonl_at
from distill.data import read_samples
from distill.errors import DataError
from distill.types import Outcome, Sample, Trace, Usage

_OF_TRACE = ("id", "sample_id", "teacher", "k", "reasoning", "answer", "text", "outcome", "finish_reason")
_OF_SAMPLE = ("id", "question", "answers", "answer_type", "domain", "meta")
"""What signals can depend on; when a trace was made, or where an image lies, is not part of it."""

Place = tuple[int, int]
"""Number of the journal, and the byte at which the line starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """What produced a teacher's traces, as the traces themselves say it."""

    teacher: str
    model: str
    revision: str
    engine: str
    hinted: bool = False


@dataclass(slots=True, kw_only=True)
class Index:
    """The live traces by partition. `digests` change exactly when a partition's traces or samples do."""

    journals: list[Path]
    samples: Path
    places: list[dict[str, Place]]
    sample_ids: list[set[str]]
    digests: list[int]
    planned: int
    makers: Counter[Maker] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return sum(len(partition) for partition in self.places)

    def place(self, trace_id: str, sample_id: str) -> Place:
        return self.places[partition_of(sample_id, len(self.places))][trace_id]


def partitions(traces: int, partition_rows: int) -> int:
    """How many partitions: a power of two, so that a growing run seldom moves a sample to another one."""
    return 1 << max(0, -(-traces // partition_rows) - 1).bit_length()


def partition_of(sample_id: str, count: int) -> int:
    return int.from_bytes(hashlib.blake2b(sample_id.encode(), digest_size=8).digest()) % count


def index(generate: Path, partition_rows: int) -> Index:
    """Read the plan, the journals and the samples of a finished generate stage. Raises DataError."""
    plan = _plan(generate / "plan.parquet")
    count = partitions(len(plan), partition_rows)
    # Quarantined rows and other notes lie beside the teachers' folders, not in them.
    found = Index(
        journals=sorted(generate.glob("*/part-*.jsonl")),
        samples=generate / "samples.parquet",
        places=[{} for _ in range(count)],
        sample_ids=[set() for _ in range(count)],
        digests=[0] * count,
        planned=len(plan),
    )
    errors: dict[str, dict[str, Any]] = {}
    for number, journal in enumerate(found.journals):
        for start, record in read_jsonl_at(journal):
            sample_id = plan.get(record["id"])
            if sample_id is None:
                continue
            partition = partition_of(sample_id, count)
            if record["id"] in found.places[partition]:
                if record["id"] not in errors or record["outcome"] == Outcome.ERROR:
                    continue
                before = errors.pop(record["id"])
                _add(found.digests, partition, _content(before), sign=-1)
                found.makers[_maker(before)] -= 1
            elif record["outcome"] == Outcome.ERROR:
                errors[record["id"]] = record
            found.places[partition][record["id"]] = (number, start)
            found.sample_ids[partition].add(sample_id)
            found.makers[_maker(record)] += 1
            _add(found.digests, partition, _content(record))
    for sample in read_samples(found.samples):
        partition = partition_of(sample.id, count)
        if sample.id in found.sample_ids[partition]:
            _add(found.digests, partition, {name: getattr(sample, name) for name in _OF_SAMPLE})
    found.makers = +found.makers
    return found


def read_traces(journals: Sequence[Path], places: Sequence[Place]) -> Iterator[Trace]:
    """The traces at these places, in their order."""
    files: dict[int, IO[bytes]] = {}
    try:
        for number, start in places:
            if number not in files:
                files[number] = journals[number].open("rb")
            files[number].seek(start)
            yield trace(orjson.loads(files[number].readline()))
    finally:
        for file in files.values():
            file.close()


def trace(record: dict[str, Any]) -> Trace:
    """A journal's record as a trace; what no filter looks at (log-probabilities) stays in the journal."""
    known = {key: record[key] for key in Trace.__slots__ if key in record and key != "logprobs"}
    return Trace(**(known | {"usage": Usage(**record["usage"])}))


def select_samples(path: Path, wanted: set[str]) -> dict[str, Sample]:
    """The samples of these ids. Raises DataError when one is not there."""
    found = {sample.id: sample for sample in read_samples(path, wanted)}
    if missing := wanted - found.keys():
        raise DataError(
            f"{path}: {len(missing)} samples of the traces are not there (first: {min(missing)}); "
            "the generate stage's files do not belong together, run it again"
        )
    return found


def _plan(path: Path) -> dict[str, str]:
    try:
        table = pq.read_table(path, columns=["id", "sample_id"])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {error}; run the generate stage again") from None
    return {row["id"]: row["sample_id"] for row in table.to_pylist()}


def _maker(record: dict[str, Any]) -> Maker:
    engine = record.get("engine") or {}
    return Maker(
        teacher=record["teacher"],
        model=str(record.get("model", "")),
        revision=str(record.get("revision", "")),
        engine=" ".join(str(engine[key]) for key in ("name", "version") if engine.get(key)),
        hinted=bool(record.get("hinted")),
    )


def _content(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in _OF_TRACE}


def _add(digests: list[int], partition: int, content: dict[str, Any], *, sign: int = 1) -> None:
    """Add to a sum of hashes, which is the same whatever the order in which the contents come."""
    text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS, default=str)
    number = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())
    digests[partition] = (digests[partition] + sign * number) % (1 << 128)
