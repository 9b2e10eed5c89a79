"""An index of the questions and images of named test sets, for fast look-up of a training question.

`build_index` reads the sources once and writes a folder: `samples.parquet`, `texts.parquet` (each distinct wording
once), `images.parquet`, and one sorted array of hashes for all look-ups by text. Its last file, `index.json`, holds
the fingerprint of the sources; a valid folder is used again. `load_index` opens it once a process; the array is
memory-mapped, so workers share it. `filters.signals.families.contamination` decides what counts as a match.
"""

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.files import atomic_path, write_json
from distill.artifacts.manifest import fingerprint
from distill.data.arrow import read_columns, table_of
from distill.data.images.file_statuses import file_statuses
from distill.data.reader import samples, source_fields
from distill.data.source_images import images_root
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Sample
from filters.matching import image_match
from filters.matching.question_match import Wording, parse_wording
from filters.matching.question_tokens import tokenize

FORMAT = 4
"""Raised whenever the same test sets give another index."""
GRAMS = (8, 13)
MOST_ROWS = 64
"""Wordings that one key may propose; a more common key is too unspecific and keeps its first wording only."""

_INDEX = "index.json"
_WORD = (1 << 64) - 1
_BASE = 0x9E3779B97F4A7C15
_TAGS = {8: 0x8A5CD789635D2DFF, 13: 0x121FD2155C472F96, "text": 0x3C6EF372FE94F82B, "run": 0x5BE0CD19137E2179}
_TWO_LEFT_OUT = range(5, 11)
_LONGEST_LEFT_OUT = 24
_RUNS_FROM = 8
_GRAM_ROW = -1

_SAMPLES = pa.schema(
    [
        ("set", pa.string()),
        ("id", pa.string()),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("images", pa.list_(pa.string())),
    ]
)
_TEXTS = pa.schema(
    [("text", pa.string()), ("question", pa.string()), ("plain", pa.int64()), ("pictured", pa.int64())]
)
_IMAGES = pa.schema(
    [
        ("sha256", pa.string()),
        ("group", pa.int64()),
        ("phash", pa.string()),
        ("flat", pa.bool_()),
        ("pixels", pa.string()),
        ("one_colour", pa.bool_()),
        ("path", pa.string()),
        ("column", pa.string()),
        ("row", pa.int64()),
        ("index", pa.int64()),
        ("bytes", pa.int64()),
        ("modified_ns", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSample:
    """One question of a test set."""

    __test__ = False

    set: str
    id: str
    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TestSetIndex:
    """The test sets that a training question is compared with. Samples, wordings and images are named by row."""

    samples: pa.Table
    texts: pa.Table
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int32]
    words: NDArray[np.uint64]
    refs: tuple[ImageRef, ...]
    image_hashes: tuple[image_match.ImageHashes, ...]
    """Hashes of each test image; empty when the index was built without decoding images."""
    group_of_sha256: dict[str, int]
    group_of_pixels: dict[str, int]
    groups: tuple[int, ...]
    samples_of_group: dict[int, tuple[int, ...]]
    plain_groups: frozenset[int]
    """Groups of images of one colour: such an image under another question leaks nothing."""
    group_of_seen: dict[str, int | None] = field(default_factory=dict)
    """Group of each training image that was decoded, by its sha256."""

    @lru_cache(maxsize=1 << 14)  # noqa: B019  an index lives as long as its process
    def sample(self, row: int) -> TestSample:
        values = {name: self.samples[name][row].as_py() for name in ("set", "id", "question", "answers")}
        return TestSample(**values | {"answers": tuple(values["answers"])})

    @lru_cache(maxsize=1 << 14)  # noqa: B019
    def wording(self, row: int) -> Wording:
        return parse_wording(self.sample(row).question)

    @lru_cache(maxsize=1 << 14)  # noqa: B019
    def proposals(self, question: str) -> tuple[Wording, tuple[int, ...]]:
        """A question's wording, and the positions of its exact text and of its keys. Templates repeat questions."""
        wording = parse_wording(question)
        return wording, tuple(self.find([text_hash(wording.text), *question_keys(wording)]))

    def is_word(self, word: str) -> bool:
        """Whether any test question holds a word."""
        return bool(self.find([word_hash(word)], self.words)[0] >= 0)

    def find(self, queries: list[int], hashes: NDArray[np.uint64] | None = None) -> list[int]:
        """First position of each hash in the sorted array; -1 where it is missing."""
        known = self.hashes if hashes is None else hashes
        if not len(known) or not queries:
            return [-1] * len(queries)
        query_hashes = np.array(queries, dtype=np.uint64)
        positions = np.searchsorted(known, query_hashes)
        is_known = known[np.minimum(positions, len(known) - 1)] == query_hashes
        return [int(position) for position in np.where(is_known, positions, -1)]

    def rows_at(self, position: int) -> list[int]:
        """The wordings with the hash at this position."""
        same_hash = self.hashes[position : position + MOST_ROWS] == self.hashes[position]
        rows: list[int] = self.rows[position : position + MOST_ROWS][same_hash].tolist()
        return rows


@lru_cache(maxsize=1 << 17)
def word_hash(word: str) -> int:
    """A number for a word, the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())


def gram_hashes(hashes: Sequence[int], size: int) -> list[int]:
    """A hash of every run of `size` words, from the words' hashes."""
    if len(hashes) < size:
        return []
    leaving_factor = pow(_BASE, size, 1 << 64)
    tag = _TAGS[size]
    rolled = 0
    for value in hashes[:size]:
        rolled = (rolled * _BASE + value) & _WORD
    grams = [rolled ^ tag]
    for leaving_hash, value in zip(hashes, hashes[size:], strict=False):
        rolled = (rolled * _BASE + value - leaving_hash * leaving_factor) & _WORD
        grams.append(rolled ^ tag)
    return grams


def text_hash(text: str) -> int:
    return word_hash.__wrapped__(text) ^ _TAGS["text"]


def question_keys(question: Wording) -> list[int]:
    """The hashes that a question shares with questions that differ in a few content words.

    The first is the hash of the whole content in any order; the others leave out one or two words, or are runs of
    three. Two contents that differ in one word (of up to 24), in two (of up to 10), or in three (of 12 and more)
    share one of them.
    """
    content = [word_hash(name) for name, _ in question.content]
    whole = sum(content) & _WORD
    ordered_keys = {whole: None}
    size = len(content)
    if 2 <= size <= _LONGEST_LEFT_OUT:
        ordered_keys |= dict.fromkeys((whole - value) & _WORD for value in content)
    if size in _TWO_LEFT_OUT:
        ordered_keys |= dict.fromkeys((whole - first - second) & _WORD for first, second in combinations(content, 2))
    if size >= _RUNS_FROM:
        runs = zip(content, content[1:], content[2:], strict=False)
        ordered_keys |= dict.fromkeys(((a * _BASE + b) * _BASE + c) & _WORD ^ _TAGS["run"] for a, b, c in runs)
    return list(ordered_keys)


def build_index(recipe: Recipe, sources: Sequence[str], folder: Path, *, images: bool) -> str:
    """Write the index of these sources to `folder` unless a valid one lies there; returns its digest.

    Raises DataError when a source cannot be read.
    """
    made_from = fingerprint(
        {
            "format": FORMAT,
            "look": image_match.VERSION if images else None,
            "sources": [
                [name, fingerprint(source_fields(recipe, name)), images_root(recipe, name)] for name in sources
            ],
        }
    )
    digest = _valid_digest(folder, made_from)
    if digest is not None:
        return digest
    folder.mkdir(parents=True, exist_ok=True)
    for stale_path in (folder / _INDEX, *folder.glob(".*.tmp")):
        stale_path.unlink(missing_ok=True)
    ref_of_sha256: dict[str, ImageRef] = {}
    rows: list[dict[str, Any]] = []
    for name in sources:
        for sample in samples(recipe, name):
            rows.append(_sample_row(name, sample))
            for ref in sample.images:
                ref_of_sha256.setdefault(ref.sha256, ref)
    limit = max((recipe.data[name].max_pixels for name in sources), default=1)
    image_rows = _image_rows(list(ref_of_sha256.values()), images=images, max_pixels=limit)
    _write(folder / "samples.parquet", rows, _SAMPLES)
    _write(folder / "images.parquet", image_rows, _IMAGES)
    texts = _text_rows(rows)
    _write(folder / "texts.parquet", texts, _TEXTS)
    _write_hashes(folder, texts)
    content = [
        [[row["set"], row["id"], row["question"], row["answers"]] for row in rows],
        [[row[name] for name in ("sha256", "group", "phash", "flat", "pixels", "one_colour")] for row in image_rows],
    ]
    digest = fingerprint({"format": FORMAT, "content": content})
    write_json(folder / _INDEX, {"fingerprint": made_from, "digest": digest})
    return digest


def _valid_digest(folder: Path, made_from: str) -> str | None:
    """The digest of an index made from these settings whose image files are unchanged; None for any other."""
    try:
        made = orjson.loads((folder / _INDEX).read_bytes())
        if made["fingerprint"] != made_from:
            return None
        table = read_columns(folder / "images.parquet", ["path", "bytes", "modified_ns"])
        files = {row["path"]: row for row in table.to_pylist()}
        if {path: (row["bytes"], row["modified_ns"]) for path, row in files.items()} != file_statuses(files):
            return None
    except (OSError, KeyError, orjson.JSONDecodeError, pa.ArrowException):
        return None
    return str(made["digest"])


def _sample_row(name: str, sample: Sample) -> dict[str, Any]:
    return {
        "set": name,
        "id": sample.id,
        "question": sample.question,
        "answers": list(sample.answers),
        "images": [ref.sha256 for ref in sample.images],
    }


def _image_rows(refs: Sequence[ImageRef], *, images: bool, max_pixels: int) -> list[dict[str, Any]]:
    """One row per distinct image; images that differ in encoding only are one group."""
    hashes_of_images: Sequence[image_match.ImageHashes] = ()
    group: Sequence[int] = range(len(refs))
    if images:
        hashes_of_images, group = image_match.cluster_refs(refs, max_pixels=max_pixels)
    statuses = file_statuses(ref.path for ref in refs)
    rows = []
    for index, ref in enumerate(refs):
        image_hashes = hashes_of_images[index] if hashes_of_images else None
        rows.append(
            asdict(ref)
            | {
                "group": group[index],
                "phash": image_hashes.phash.hex() if image_hashes else "",
                "flat": image_hashes.flat if image_hashes else False,
                "pixels": image_hashes.pixels if image_hashes else "",
                "one_colour": image_hashes.one_colour if image_hashes else False,
            }
            | dict(zip(("bytes", "modified_ns"), statuses[ref.path], strict=True))
        )
    return rows


def _text_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each distinct wording once, with its first sample without an image and its first sample with one."""
    row_of_text: dict[str, dict[str, Any]] = {}
    for row_number, row in enumerate(rows):
        text = " ".join(tokenize(row["question"]))
        entry = row_of_text.setdefault(text, {"text": text, "question": row["question"], "plain": -1, "pictured": -1})
        column = "pictured" if row["images"] else "plain"
        if entry[column] < 0:
            entry[column] = row_number
    return [row_of_text[text] for text in sorted(row_of_text)]


def _write_hashes(folder: Path, texts: Sequence[dict[str, Any]]) -> None:
    """Write the keys of all look-ups by text as arrays: a test set of 100,000 questions has millions of keys."""
    words: set[int] = set()
    hashes, hash_rows = array("Q"), array("i")
    wholes = array("Q")
    for row, entry in enumerate(texts):
        question = parse_wording(entry["question"])
        token_hashes = [word_hash(token) for token in question.tokens]
        words.update(token_hashes)
        for size in GRAMS:
            grams = gram_hashes(token_hashes, size)
            hashes.extend(grams)
            hash_rows.extend([_GRAM_ROW] * len(grams))
        row_keys = question_keys(question)
        wholes.append(row_keys[0])
        row_keys.append(text_hash(question.text))
        hashes.extend(row_keys)
        hash_rows.extend([row] * len(row_keys))
    all_hashes, row_of_hash = np.frombuffer(hashes, np.uint64), np.frombuffer(hash_rows, np.int32)
    order = np.lexsort((row_of_hash, all_hashes))
    all_hashes, row_of_hash = all_hashes[order], row_of_hash[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (all_hashes[1:] != all_hashes[:-1]) | (row_of_hash[1:] != row_of_hash[:-1])
    all_hashes, row_of_hash = all_hashes[first], row_of_hash[first]
    _, start, count = np.unique(all_hashes, return_index=True, return_counts=True)
    rank = np.arange(len(all_hashes)) - np.repeat(start, count)
    whole = np.isin(all_hashes, np.frombuffer(wholes, np.uint64))
    # One row of a common key stays: matching words are reason enough to compare the image.
    kept = (np.repeat(count, count) <= MOST_ROWS) | (rank < np.where(whole, MOST_ROWS, 1))
    _save(folder / "hashes.npy", all_hashes[kept])
    _save(folder / "rows.npy", row_of_hash[kept])
    _save(folder / "words.npy", np.array(sorted(words), dtype=np.uint64))


def _save(path: Path, values: NDArray[Any]) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def _write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    with atomic_path(path) as temporary:
        pq.write_table(table_of(rows, schema), temporary, compression="zstd")


@cache
def load_index(folder: str, digest: str) -> TestSetIndex:
    """The index that `build_index` wrote. Raises DataError when the folder holds another one now."""
    path = Path(folder)
    try:
        made = orjson.loads((path / _INDEX).read_bytes())
        if made["digest"] != digest:
            raise DataError(f"{folder}: the index of the test sets changed while it was in use; run filter again")
        table = {name: read_columns(path / f"{name}.parquet") for name in ("samples", "texts", "images")}
        arrays = [path / f"{name}.npy" for name in ("hashes", "rows", "words")]
        hashes, rows, words = (np.asarray(np.load(file, mmap_mode="r", allow_pickle=False)) for file in arrays)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{folder}: cannot be read as an index of test sets: {error}; remove it, run again") from None
    image_rows = table["images"].to_pylist()
    groups = tuple(row["group"] for row in image_rows)
    group_of = {row["sha256"]: row["group"] for row in image_rows}
    samples_of_group: dict[int, list[int]] = {}
    for number, digests in enumerate(table["samples"]["images"].to_pylist()):
        for group in sorted({group_of[sha256] for sha256 in digests}):
            samples_of_group.setdefault(group, []).append(number)
    decoded = [row for row in image_rows if row["pixels"]]
    return TestSetIndex(
        samples=table["samples"],
        texts=table["texts"],
        hashes=hashes,
        rows=rows,
        words=words,
        refs=tuple(ImageRef(**{each.name: row[each.name] for each in fields(ImageRef)}) for row in image_rows),
        image_hashes=tuple(
            image_match.ImageHashes(phash=bytes.fromhex(row["phash"]), flat=row["flat"], pixels=row["pixels"])
            for row in decoded
        ),
        group_of_sha256=group_of,
        group_of_pixels={row["pixels"]: row["group"] for row in decoded},
        groups=groups,
        samples_of_group={group: tuple(rows) for group, rows in samples_of_group.items()},
        plain_groups=frozenset(row["group"] for row in image_rows if row["one_colour"]),
    )
