"""Duplicate questions about the same images, as a side table by sample: which sample repeats which other sample.

Two samples are duplicates if their images are the same, in the same order (`filters.matching.image_match`), and if
their questions have the same text (without case, layout and closing punctuation) and the same options. Questions in
other words stay apart. Of a group the smallest sample id is the one that the others repeat. A sample with an image
that cannot be decoded belongs to no group. Nothing is dropped here.

Every image is decoded once: its hashes and the compared pairs are stored beside the table by the digest of the
encoded bytes and reused in the next run. Memory holds about a kilobyte per image, never pixels.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.journal import Journal
from distill.artifacts.json_lines import requiring
from distill.artifacts.manifest import fingerprint
from distill.data.images.image_files import read_bytes
from distill.errors import ImageError
from distill.machine.thread_map import thread_map
from distill.types import ImageRef, Sample
from filters.matching import image_match
from filters.matching.image_match import ImageHashes
from filters.signals.base import OK, UNDECIDABLE
from filters.signals.schema import QUESTION
from filters.tables import run_signal_tables
from filters.tables.trace_index import read_partition

VERSION = "3"
"""Raised whenever the same samples could get other values."""


_SCHEMA = pa.schema([pa.field("sample_id", pa.string()), *QUESTION])
_UNREAD = "unread"
_BROUGHT = 1 << 16
"""Samples whose images are asked for at once."""
_CLOSING = " \t.?!:;,…‽？！。．：；，、､｡؟؛،۔।॥"

Item = TypeVar("Item")
Result = TypeVar("Result")
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuestionKey:
    id: str
    text: bytes
    """Digest of what is asked, without the images."""
    pictures: tuple[str, ...]
    """Digests of their encoded bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedSamples:
    samples: Path
    partitions: tuple[int, ...]
    max_pixels: int
    workers: int
    bring_images: Callable[[Sequence[Sample]], None] = lambda samples: None

    def read(self) -> Iterator[Sample]:
        for number in self.partitions:
            yield from read_partition(self.samples, number)


@dataclass(slots=True, kw_only=True)
class _Memory:
    """Hashes and verdicts of images by the digests of their bytes, and the journals that store them."""

    hash_journal: Path
    pair_journal: Path
    image_hashes: dict[str, ImageHashes] = field(default_factory=dict)
    verdicts: dict[Pair, bool] = field(default_factory=dict)


def identity(max_pixels: int) -> dict[str, Any]:
    """What values depend on besides samples and images."""
    return {"version": VERSION, "pictures": image_match.VERSION, "max_pixels": max_pixels}


def hash_images(
    samples_folder: Path, partitions: Iterable[int], folder: Path, *, max_pixels: int, workers: int = 1
) -> bytes:
    """The hashes of these partitions' images, as lines of the file that `write` reads (`hashes_path`)."""
    source = _PlannedSamples(
        samples=samples_folder, partitions=tuple(partitions), max_pixels=max_pixels, workers=max(1, workers)
    )
    folder.mkdir(parents=True, exist_ok=True)
    memory = _read_memory(folder, max_pixels)
    _hash_images(source, sorted({ref.sha256 for sample in source.read() for ref in sample.images}), memory)
    return memory.hash_journal.read_bytes() if memory.hash_journal.exists() else b""


def hashes_path(folder: Path, max_pixels: int) -> Path:
    """Where `write` finds hashes that are known."""
    return folder / f"looks-{_name(max_pixels)}.jsonl"


def write(
    samples_folder: Path,
    partitions: Iterable[int],
    folder: Path,
    *,
    max_pixels: int,
    workers: int = 1,
    bring_images: Callable[[Sequence[Sample]], None] = lambda samples: None,
) -> Path:
    """Write the side table of these partitions' samples to `folder`; an unchanged one is left as it is.

    Its bytes depend on the samples and their images alone. `bring_images` gets the samples whose images are read
    next.
    """
    source = _PlannedSamples(
        samples=samples_folder,
        partitions=tuple(partitions),
        max_pixels=max_pixels,
        workers=max(1, workers),
        bring_images=bring_images,
    )
    path = run_signal_tables.part(folder, 0)
    question_keys = sorted(map(_question_key, source.read()), key=lambda question_key: question_key.id)
    content = hashlib.sha256()
    for question_key in question_keys:
        content.update(orjson.dumps([question_key.id, question_key.text.hex(), question_key.pictures]))
    made_from = fingerprint(identity(max_pixels) | {"content": content.hexdigest()})
    saved = run_signal_tables.metadata(path)
    # An unreadable image may be readable now.
    if saved.get(run_signal_tables.FINGERPRINT) == made_from and saved.get(_UNREAD) == "0":
        return path
    folder.mkdir(parents=True, exist_ok=True)
    memory = _read_memory(folder, max_pixels)
    image_digests = sorted({digest for question_key in question_keys for digest in question_key.pictures if digest})
    _hash_images(source, image_digests, memory)
    readable = [digest for digest in image_digests if digest in memory.image_hashes]
    groups, failed = _groups(source, readable, memory)
    metadata = {run_signal_tables.FINGERPRINT: made_from, _UNREAD: str(failed + len(image_digests) - len(readable))}
    table = pa.Table.from_pylist(list(_rows(question_keys, groups)), schema=_SCHEMA.with_metadata(metadata))
    run_signal_tables.write_table(path, table)
    return path


def key(sample: Sample) -> bytes:
    """A digest that two questions share when they are the same text and offer the same options."""
    parts = [_plain(sample.question), *map(_plain, sample.options)]
    return hashlib.blake2b(orjson.dumps(parts), digest_size=16).digest()


def _plain(text: str) -> str:
    # Only canonical composition: compatibility forms would make "x" squared equal to "x2".
    whole = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    plain = whole.rstrip(_CLOSING)
    # "5!" may be a factorial.
    return f"{plain}!" if plain[-1:].isdigit() and whole[len(plain) :].startswith("!") else plain


def _question_key(sample: Sample) -> _QuestionKey:
    return _QuestionKey(id=sample.id, text=key(sample), pictures=tuple(ref.sha256 for ref in sample.images))


def _rows(question_keys: Sequence[_QuestionKey], groups: dict[str, str]) -> Iterator[dict[str, Any]]:
    """One row a sample; `groups` names the group of every readable image."""
    ids_of_images: dict[tuple[str, ...], list[str]] = {}
    ids_of_question: dict[tuple[tuple[str, ...], bytes], list[str]] = {}
    readable = {
        question_key.id: tuple(groups.get(digest, "") for digest in question_key.pictures)
        for question_key in question_keys
    }
    for question_key in question_keys:
        if "" not in readable[question_key.id]:
            ids_of_images.setdefault(readable[question_key.id], []).append(question_key.id)
            ids_of_question.setdefault((readable[question_key.id], question_key.text), []).append(question_key.id)
    for question_key in question_keys:
        row: dict[str, Any] = {"sample_id": question_key.id, "question_pictures": len(question_key.pictures)}
        image_groups = readable[question_key.id]
        if "" in image_groups:
            yield row | {"question_state": UNDECIDABLE}
            continue
        first, *others = ids_of_question[image_groups, question_key.text]
        row |= {"question_state": OK, "question_cluster_size": 1 + len(others)}
        if question_key.id != first:
            row["question_duplicate_of"] = first
        if image_groups:
            row |= {
                "question_picture_cluster": ids_of_images[image_groups][0],
                "question_picture_questions": len(ids_of_images[image_groups]),
            }
        yield row


def _hash_images(source: _PlannedSamples, digests: Iterable[str], memory: _Memory) -> None:
    """Hash the images that have no hash yet; images that cannot be decoded are left out."""
    refs = _find_refs(source, {digest for digest in digests if digest not in memory.image_hashes})
    # In the order of their files, so that a table with images is read once.
    new_refs = sorted(refs.values(), key=lambda ref: (ref.path, ref.column, ref.row, ref.index))

    def hash_ref(ref: ImageRef) -> ImageHashes | None:
        try:
            return image_match.hash_image(read_bytes(ref), max_pixels=source.max_pixels)
        except ImageError:
            return None

    with Journal(memory.hash_journal) as journal:
        for ref, image_hashes in zip(new_refs, _map(hash_ref, new_refs, source.workers), strict=True):
            if image_hashes is not None:
                memory.image_hashes[ref.sha256] = image_hashes
                journal.append(
                    {
                        "sha256": ref.sha256,
                        "phash": image_hashes.phash.hex(),
                        "flat": image_hashes.flat,
                        "pixels": image_hashes.pixels,
                    }
                )


def _groups(source: _PlannedSamples, digests: Sequence[str], memory: _Memory) -> tuple[dict[str, str], int]:
    """For each image the first image that shows the same; and the number of pairs that could not be compared."""
    hashes_of_images = [memory.image_hashes[digest] for digest in digests]
    refs = _find_refs(
        source, {digests[index] for pair in image_match.propose_pairs(hashes_of_images) for index in pair}
    )
    failed = 0

    def compare_pair(pair: Pair) -> bool | None:
        if pair in memory.verdicts:
            return memory.verdicts[pair]
        try:
            return image_match.is_same_image(
                *(read_bytes(refs[digest]) for digest in pair), max_pixels=source.max_pixels
            )
        except ImageError:
            return None

    def confirm(index_pairs: list[tuple[int, int]]) -> Iterator[bool]:
        nonlocal failed
        pairs = [(digests[left], digests[right]) for left, right in index_pairs]
        for pair, verdict in zip(pairs, _map(compare_pair, pairs, source.workers), strict=True):
            failed += verdict is None
            if verdict is not None and pair not in memory.verdicts:
                memory.verdicts[pair] = verdict
                journal.append({"one": pair[0], "other": pair[1], "same": verdict})
            yield bool(verdict)

    with Journal(memory.pair_journal) as journal:
        batch = 1 if source.workers == 1 else 4 * source.workers
        first_indexes = image_match.cluster_images(hashes_of_images, confirm, batch=batch)
    return {digest: digests[first] for digest, first in zip(digests, first_indexes, strict=True)}, failed


def _name(max_pixels: int) -> str:
    return fingerprint(identity(max_pixels))[:16]


def _read_memory(folder: Path, max_pixels: int) -> _Memory:
    """The results of earlier runs with the same settings; results of other settings are deleted."""
    memory = _Memory(
        hash_journal=hashes_path(folder, max_pixels), pair_journal=folder / f"pairs-{_name(max_pixels)}.jsonl"
    )
    for stale in {*folder.glob("looks-*.jsonl"), *folder.glob("pairs-*.jsonl")} - {
        memory.hash_journal,
        memory.pair_journal,
    }:
        stale.unlink()
    for record in recovered(memory.hash_journal, requiring("sha256", "phash", "flat", "pixels")):
        memory.image_hashes[record["sha256"]] = ImageHashes(
            phash=bytes.fromhex(record["phash"]), flat=record["flat"], pixels=record["pixels"]
        )
    for record in recovered(memory.pair_journal, requiring("one", "other", "same")):
        memory.verdicts[record["one"], record["other"]] = record["same"]
    return memory


def _find_refs(source: _PlannedSamples, wanted_digests: set[str]) -> dict[str, ImageRef]:
    """The location of each image, which is brought to this machine; of several locations the first by name."""
    ref_of_digest: dict[str, ImageRef] = {}
    shown: list[Sample] = []
    for sample in source.read() if wanted_digests else ():
        wanted_refs = [ref for ref in sample.images if ref.sha256 in wanted_digests]
        if wanted_refs:
            shown.append(sample)
        if len(shown) == _BROUGHT:
            source.bring_images(shown)
            shown = []
        for ref in wanted_refs:
            known_ref = ref_of_digest.setdefault(ref.sha256, ref)
            if (ref.path, ref.row, ref.index) < (known_ref.path, known_ref.row, known_ref.index):
                ref_of_digest[ref.sha256] = ref
    source.bring_images(shown)
    return ref_of_digest


def _map(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`map`, over threads where there are several: images are decoded outside the interpreter's lock."""
    return map(function, items) if workers == 1 else thread_map(function, items, workers, ahead=4 * workers)
