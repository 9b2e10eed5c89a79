"""Questions that ask the same of the same picture, as a side table by sample: which sample repeats which other one.

Two samples are duplicates when their pictures are the same, one by one and in order (`filters.matching.image_match`),
and their questions are the same text but for case, layout and closing punctuation, with the same options. Questions
in other words stay apart. Of a group the smallest sample id is the one that the others repeat. A sample with a
picture that cannot be decoded belongs to no group. Nothing is dropped here.

Every picture is looked at once: what was seen, and which pairs were compared, is kept beside the table by the digest
of the encoded bytes and taken over in the next run. Memory holds some kilobyte a picture, never pixels.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.integrity import digested_path
from distill.artifacts.journal import Journal
from distill.artifacts.json_lines import requiring
from distill.artifacts.manifest import fingerprint
from distill.data.images import read_bytes
from distill.errors import ImageError
from distill.types import ImageRef, Sample
from filters.matching import image_match
from filters.matching.image_match import ImageHashes
from filters.signals.base import OK, UNDECIDABLE
from filters.signals.schema import QUESTION
from filters.tables import side_tables
from filters.tables.trace_index import read_partition

VERSION = "1"
"""Raised whenever the same samples could get other values."""


_SCHEMA = pa.schema([pa.field("sample_id", pa.string()), *QUESTION])
_ROW_GROUP = 8192
_UNREAD = "unread"
_CLOSING = " \t.?!:;,"

Item = TypeVar("Item")
Result = TypeVar("Result")
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuestionKey:
    id: str
    text: bytes
    """Digest of what is asked, without the pictures."""
    pictures: tuple[str, ...]
    """Digests of their encoded bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedSamples:
    samples: Path
    partitions: tuple[int, ...]
    max_pixels: int
    workers: int

    def read(self) -> Iterator[Sample]:
        for number in self.partitions:
            yield from read_partition(self.samples, number)


@dataclass(slots=True, kw_only=True)
class _Memory:
    """What is known of pictures by the digests of their bytes, and the journals that keep it."""

    looked: Path
    compared: Path
    looks: dict[str, ImageHashes] = field(default_factory=dict)
    verdicts: dict[Pair, bool] = field(default_factory=dict)


def write(
    samples_folder: Path, partitions: Iterable[int], folder: Path, *, max_pixels: int, workers: int = 1
) -> Path:
    """Write the side table of these partitions' samples to `folder`; an unchanged one is left as it is.

    Its bytes depend on the samples and their pictures alone.
    """
    source = _PlannedSamples(
        samples=samples_folder, partitions=tuple(partitions), max_pixels=max_pixels, workers=max(1, workers)
    )
    path = side_tables.part(folder, 0)
    asked = sorted(map(_asked, source.read()), key=lambda one: one.id)
    identity = {"version": VERSION, "pictures": image_match.VERSION, "max_pixels": max_pixels}
    content = hashlib.sha256()
    for one in asked:
        content.update(orjson.dumps([one.id, one.text.hex(), one.pictures]))
    made_from = fingerprint(identity | {"content": content.hexdigest()})
    known = side_tables.metadata(path)
    # What could not be read then may be readable now.
    if known.get(side_tables.FINGERPRINT) == made_from and known.get(_UNREAD) == "0":
        return path
    folder.mkdir(parents=True, exist_ok=True)
    memory = _remembered(folder, fingerprint(identity)[:16])
    shown = sorted({digest for one in asked for digest in one.pictures if digest})
    _look(source, shown, memory)
    readable = [digest for digest in shown if digest in memory.looks]
    groups, failed = _groups(source, readable, memory)
    metadata = {side_tables.FINGERPRINT: made_from, _UNREAD: str(failed + len(shown) - len(readable))}
    table = pa.Table.from_pylist(list(_rows(asked, groups)), schema=_SCHEMA.with_metadata(metadata))
    with digested_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=_ROW_GROUP)
    return path


def key(sample: Sample) -> bytes:
    """A digest that two questions share when they are the same text and offer the same options."""
    said = [_plain(sample.question), *map(_plain, sample.options)]
    return hashlib.blake2b(orjson.dumps(said), digest_size=16).digest()


def _plain(text: str) -> str:
    # Composition alone: compatibility forms tell "x2" from "x" squared.
    return " ".join(unicodedata.normalize("NFC", text).casefold().split()).rstrip(_CLOSING)


def _asked(sample: Sample) -> _QuestionKey:
    return _QuestionKey(id=sample.id, text=key(sample), pictures=tuple(ref.sha256 for ref in sample.images))


def _rows(asked: Sequence[_QuestionKey], groups: dict[str, str]) -> Iterator[dict[str, Any]]:
    """One row a sample; `groups` names the group of every readable picture."""
    shown: dict[tuple[str, ...], list[str]] = {}
    same: dict[tuple[tuple[str, ...], bytes], list[str]] = {}
    readable = {one.id: tuple(groups.get(digest, "") for digest in one.pictures) for one in asked}
    for one in asked:
        if "" not in readable[one.id]:
            shown.setdefault(readable[one.id], []).append(one.id)
            same.setdefault((readable[one.id], one.text), []).append(one.id)
    for one in asked:
        row: dict[str, Any] = {"sample_id": one.id, "question_pictures": len(one.pictures)}
        own = readable[one.id]
        if "" in own:
            yield row | {"question_state": UNDECIDABLE}
            continue
        first, *others = same[own, one.text]
        row |= {"question_state": OK, "question_cluster_size": 1 + len(others)}
        if one.id != first:
            row["question_duplicate_of"] = first
        if own:
            row |= {"question_picture_cluster": shown[own][0], "question_picture_questions": len(shown[own])}
        yield row


def _look(source: _PlannedSamples, digests: Iterable[str], memory: _Memory) -> None:
    """Hash the pictures that have no hash yet; pictures that cannot be decoded are left out."""
    refs = _refs(source, {digest for digest in digests if digest not in memory.looks})
    # Where they lie, so that a table with pictures in it is read once.
    new = sorted(refs.values(), key=lambda ref: (ref.path, ref.column, ref.row, ref.index))

    def look(ref: ImageRef) -> ImageHashes | None:
        try:
            return image_match.hash_image(read_bytes(ref), max_pixels=source.max_pixels)
        except ImageError:
            return None

    with Journal(memory.looked) as journal, _pool(source.workers) as mapped:
        for ref, seen in zip(new, mapped(look, new), strict=True):
            if seen is not None:
                memory.looks[ref.sha256] = seen
                journal.append(
                    {"sha256": ref.sha256, "phash": seen.phash.hex(), "flat": seen.flat, "pixels": seen.pixels}
                )


def _groups(source: _PlannedSamples, digests: Sequence[str], memory: _Memory) -> tuple[dict[str, str], int]:
    """For each of these pictures the first of those that show the same; and how many pairs could not be compared."""
    looks = [memory.looks[digest] for digest in digests]
    refs = _refs(source, {digests[place] for pair in image_match.propose_pairs(looks) for place in pair})
    failed = 0

    def same(pair: Pair) -> bool | None:
        if pair in memory.verdicts:
            return memory.verdicts[pair]
        try:
            return image_match.is_same_image(
                *(read_bytes(refs[digest]) for digest in pair), max_pixels=source.max_pixels
            )
        except ImageError:
            return None

    def confirm(places: list[tuple[int, int]]) -> Iterator[bool]:
        nonlocal failed
        pairs = [(digests[one], digests[other]) for one, other in places]
        for pair, verdict in zip(pairs, mapped(same, pairs), strict=True):
            failed += verdict is None
            if verdict is not None and pair not in memory.verdicts:
                memory.verdicts[pair] = verdict
                journal.append({"one": pair[0], "other": pair[1], "same": verdict})
            yield bool(verdict)

    with Journal(memory.compared) as journal, _pool(source.workers) as mapped:
        batch = 1 if source.workers == 1 else 4 * source.workers
        found = image_match.cluster_images(looks, confirm, batch=batch)
    return {digest: digests[first] for digest, first in zip(digests, found, strict=True)}, failed


def _remembered(folder: Path, name: str) -> _Memory:
    """What earlier runs with the same settings saw; what others saw is forgotten."""
    memory = _Memory(looked=folder / f"looks-{name}.jsonl", compared=folder / f"pairs-{name}.jsonl")
    for stale in {*folder.glob("looks-*.jsonl"), *folder.glob("pairs-*.jsonl")} - {memory.looked, memory.compared}:
        stale.unlink()
    for record in recovered(memory.looked, requiring("sha256", "phash", "flat", "pixels")):
        memory.looks[record["sha256"]] = ImageHashes(
            phash=bytes.fromhex(record["phash"]), flat=record["flat"], pixels=record["pixels"]
        )
    for record in recovered(memory.compared, requiring("one", "other", "same")):
        memory.verdicts[record["one"], record["other"]] = record["same"]
    return memory


def _refs(source: _PlannedSamples, wanted: set[str]) -> dict[str, ImageRef]:
    """Where these pictures lie; of several places the first by its name."""
    found: dict[str, ImageRef] = {}
    for sample in source.read() if wanted else ():
        for ref in sample.images:
            if ref.sha256 in wanted:
                known = found.setdefault(ref.sha256, ref)
                if (ref.path, ref.row, ref.index) < (known.path, known.row, known.index):
                    found[ref.sha256] = ref
    return found


Mapped = Callable[[Callable[[Item], Result], Iterable[Item]], Iterator[Result]]


@contextmanager
def _pool(workers: int) -> Iterator[Mapped[Any, Any]]:
    """`map` over threads, in order, with few results waiting. Pictures are decoded outside the interpreter's lock."""
    if workers == 1:
        yield map
        return
    with ThreadPoolExecutor(workers) as pool:

        def mapped(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
            remaining = iter(items)
            while batch := list(islice(remaining, 16 * workers)):
                yield from pool.map(function, batch)

        yield mapped
