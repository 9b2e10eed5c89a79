"""The questions and pictures of named test sets, in a form that a training question is looked up in quickly.

`build` reads the sources once and writes a folder: `samples.parquet`, `texts.parquet` (each distinct wording once),
`images.parquet`, and one sorted array of hashes for everything that is looked up by text. Its last file,
`index.json`, names what it was made from; a folder that still agrees is used again. `load` opens it once a process;
the array is mapped, not read, so workers share it. What counts as a match is `filters.signals.contamination`'s
business.
"""

import hashlib
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
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
from distill.data.arrow import table_of
from distill.data.images import read_bytes
from distill.data.reader import samples, source_fields
from distill.data.source_images import pictures_digest
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Sample
from filters.matching import image_match
from filters.matching.question_match import Wording, tokens, wording

FORMAT = 1
"""Raised whenever the same test sets would give another index."""
GRAMS = (8, 13)
MOST_ROWS = 64
"""Wordings that one key may propose; one that proposes more says too little, and keeps the first of them only."""

_INDEX = "index.json"
_WORD = (1 << 64) - 1
_BASE = 0x9E3779B97F4A7C15
_TAGS = {8: 0x8A5CD789635D2DFF, 13: 0x121FD2155C472F96, "text": 0x3C6EF372FE94F82B, "run": 0x5BE0CD19137E2179}
_TWO_LEFT_OUT = range(5, 11)
_LONGEST_LEFT_OUT = 24
_RUNS_FROM = 8
_GRAM_ROW = -1
_WORKERS = 4

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
    """Everything that a training question is compared with. Samples, wordings and pictures go by their row."""

    samples: pa.Table
    texts: pa.Table
    hashes: NDArray[np.uint64]
    rows: NDArray[np.int32]
    words: NDArray[np.uint64]
    refs: tuple[ImageRef, ...]
    looks: tuple[image_match.ImageHashes, ...]
    """pictures.Look of each test picture; empty when the index was built without looking at them."""
    group_of_sha256: dict[str, int]
    group_of_pixels: dict[str, int]
    groups: tuple[int, ...]
    samples_of_group: dict[int, tuple[int, ...]]
    seen: dict[str, int | None] = field(default_factory=dict)
    """Group of each training picture that was looked at, by its sha256."""

    @lru_cache(maxsize=1 << 14)  # noqa: B019  an index lives as long as its process
    def sample(self, row: int) -> TestSample:
        values = {name: self.samples[name][row].as_py() for name in ("set", "id", "question", "answers")}
        return TestSample(**values | {"answers": tuple(values["answers"])})

    @lru_cache(maxsize=1 << 14)  # noqa: B019
    def wording(self, row: int) -> Wording:
        return wording(self.sample(row).question)

    def is_word(self, word: str) -> bool:
        """Whether a word stands in any test question."""
        return bool(self.find([word_hash(word)], self.words)[0] >= 0)

    def find(self, queries: list[int], hashes: NDArray[np.uint64] | None = None) -> list[int]:
        """First place of each hash in the sorted array, -1 where it is not there."""
        known = self.hashes if hashes is None else hashes
        if not len(known) or not queries:
            return [-1] * len(queries)
        wanted = np.array(queries, dtype=np.uint64)
        places = np.searchsorted(known, wanted)
        found = known[np.minimum(places, len(known) - 1)] == wanted
        return [int(place) for place in np.where(found, places, -1)]

    def rows_at(self, place: int) -> list[int]:
        """The wordings under the hash at this place."""
        same = self.hashes[place : place + MOST_ROWS] == self.hashes[place]
        found: list[int] = self.rows[place : place + MOST_ROWS][same].tolist()
        return found


@lru_cache(maxsize=1 << 17)
def word_hash(word: str) -> int:
    """A number for a word, the same in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())


def gram_hashes(hashes: Sequence[int], size: int) -> list[int]:
    """A hash of every run of `size` words, from the words' hashes."""
    if len(hashes) < size:
        return []
    leaving = pow(_BASE, size, 1 << 64)
    tag = _TAGS[size]
    rolled = 0
    for value in hashes[:size]:
        rolled = (rolled * _BASE + value) & _WORD
    found = [rolled ^ tag]
    for out, value in zip(hashes, hashes[size:], strict=False):
        rolled = (rolled * _BASE + value - out * leaving) & _WORD
        found.append(rolled ^ tag)
    return found


def text_hash(text: str) -> int:
    return word_hash.__wrapped__(text) ^ _TAGS["text"]


def keys(question: Wording) -> list[int]:
    """The hashes under which a question proposes itself to those that differ from it by a few content words.

    The first is the content as a whole, in any order; the others leave one or two words out of it, or are runs of
    three. Two contents that differ in one word (of up to 24), in two (of up to 10), or in three (of 12 and more)
    share one of them.
    """
    content = [word_hash(name) for name, _ in question.content]
    whole = sum(content) & _WORD
    found = {whole: None}
    size = len(content)
    if 2 <= size <= _LONGEST_LEFT_OUT:
        found |= dict.fromkeys((whole - value) & _WORD for value in content)
    if size in _TWO_LEFT_OUT:
        found |= dict.fromkeys((whole - one - other) & _WORD for one, other in combinations(content, 2))
    if size >= _RUNS_FROM:
        runs = zip(content, content[1:], content[2:], strict=False)
        found |= dict.fromkeys(((a * _BASE + b) * _BASE + c) & _WORD ^ _TAGS["run"] for a, b, c in runs)
    return list(found)


def build(recipe: Recipe, sources: Sequence[str], folder: Path, *, images: bool) -> str:
    """Write the index of these sources to `folder` unless a valid one lies there; returns its digest.

    Raises DataError when a source cannot be read.
    """
    made_from = fingerprint(
        {
            "format": FORMAT,
            "look": image_match.VERSION if images else None,
            "sources": [
                [name, fingerprint(source_fields(recipe, name)), pictures_digest(recipe, name)] for name in sources
            ],
        }
    )
    digest = _valid(folder, made_from)
    if digest is not None:
        return digest
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (folder / _INDEX, *folder.glob(".*.tmp")):
        stale.unlink(missing_ok=True)
    shown: dict[str, ImageRef] = {}
    rows: list[dict[str, Any]] = []
    for name in sources:
        for sample in samples(recipe, name):
            rows.append(_sample_row(name, sample))
            for ref in sample.images:
                shown.setdefault(ref.sha256, ref)
    limit = max((recipe.data[name].max_pixels for name in sources), default=1)
    pictured = _image_rows(list(shown.values()), images=images, max_pixels=limit)
    _write(folder / "samples.parquet", rows, _SAMPLES)
    _write(folder / "images.parquet", pictured, _IMAGES)
    texts = _text_rows(rows)
    _write(folder / "texts.parquet", texts, _TEXTS)
    _write_hashes(folder, texts)
    content = [
        [[row["set"], row["id"], row["question"], row["answers"]] for row in rows],
        [[row[name] for name in ("sha256", "group", "phash", "flat", "pixels")] for row in pictured],
    ]
    digest = fingerprint({"format": FORMAT, "content": content})
    write_json(folder / _INDEX, {"fingerprint": made_from, "digest": digest})
    return digest


def _valid(folder: Path, made_from: str) -> str | None:
    """The digest of an index made from these settings whose pictures are where and what they were."""
    try:
        made = orjson.loads((folder / _INDEX).read_bytes())
        if made["fingerprint"] != made_from:
            return None
        table = pq.read_table(folder / "images.parquet", columns=["path", "bytes", "modified_ns"])
        files = {row["path"]: row for row in table.to_pylist()}
        if any(stat_of(path) != row for path, row in files.items()):
            return None
    except (OSError, KeyError, orjson.JSONDecodeError, pa.ArrowException):
        return None
    return str(made["digest"])


def stat_of(path: str) -> dict[str, Any]:
    """Where a file lies, its size and when it was written."""
    status = Path(path).stat()
    return {"path": path, "bytes": status.st_size, "modified_ns": status.st_mtime_ns}


def _sample_row(name: str, sample: Sample) -> dict[str, Any]:
    return {
        "set": name,
        "id": sample.id,
        "question": sample.question,
        "answers": list(sample.answers),
        "images": [ref.sha256 for ref in sample.images],
    }


def _image_rows(refs: Sequence[ImageRef], *, images: bool, max_pixels: int) -> list[dict[str, Any]]:
    """One row a distinct picture; pictures that are the same but for their encoding are one group."""

    def look(ref: ImageRef) -> image_match.ImageHashes:
        return image_match.look(read_bytes(ref), max_pixels=max_pixels)

    looks: list[image_match.ImageHashes] = []
    if images:
        with ThreadPoolExecutor(_WORKERS) as pool:
            looks = list(pool.map(look, refs))

    def confirm(pairs: Sequence[tuple[int, int]]) -> list[bool]:
        return [
            image_match.same(read_bytes(refs[one]), read_bytes(refs[other]), max_pixels=max_pixels)
            for one, other in pairs
        ]

    group = image_match.clusters(looks, confirm) if images else range(len(refs))
    rows = []
    for place, ref in enumerate(refs):
        seen = looks[place] if looks else None
        rows.append(
            asdict(ref)
            | {
                "group": group[place],
                "phash": seen.phash.hex() if seen else "",
                "flat": seen.flat if seen else False,
                "pixels": seen.pixels if seen else "",
            }
            | stat_of(ref.path)
        )
    return rows


def _text_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each distinct wording once, with the first sample that asks it without a picture and the first with one."""
    found: dict[str, dict[str, Any]] = {}
    for place, row in enumerate(rows):
        text = " ".join(tokens(row["question"]))
        entry = found.setdefault(text, {"text": text, "question": row["question"], "plain": -1, "pictured": -1})
        kind = "pictured" if row["images"] else "plain"
        if entry[kind] < 0:
            entry[kind] = place
    return [found[text] for text in sorted(found)]


def _write_hashes(folder: Path, texts: Sequence[dict[str, Any]]) -> None:
    """What is looked up by text: arrays, for a test set of 100,000 questions has millions of keys."""
    known: set[int] = set()
    found, rows = array("Q"), array("i")
    wholes = array("Q")
    for row, entry in enumerate(texts):
        asked = wording(entry["question"])
        hashes = [word_hash(token) for token in asked.tokens]
        known.update(hashes)
        for size in GRAMS:
            grams = gram_hashes(hashes, size)
            found.extend(grams)
            rows.extend([_GRAM_ROW] * len(grams))
        proposing = keys(asked)
        wholes.append(proposing[0])
        proposing.append(text_hash(asked.text))
        found.extend(proposing)
        rows.extend([row] * len(proposing))
    everything, places = np.frombuffer(found, np.uint64), np.frombuffer(rows, np.int32)
    order = np.lexsort((places, everything))
    everything, places = everything[order], places[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (everything[1:] != everything[:-1]) | (places[1:] != places[:-1])
    everything, places = everything[first], places[first]
    _, start, count = np.unique(everything, return_index=True, return_counts=True)
    rank = np.arange(len(everything)) - np.repeat(start, count)
    whole = np.isin(everything, np.frombuffer(wholes, np.uint64))
    # One row of a common key stays: that the words match is reason enough to look at the picture.
    kept = (np.repeat(count, count) <= MOST_ROWS) | (rank < np.where(whole, MOST_ROWS, 1))
    _save(folder / "hashes.npy", everything[kept])
    _save(folder / "rows.npy", places[kept])
    _save(folder / "words.npy", np.array(sorted(known), dtype=np.uint64))


def _save(path: Path, values: NDArray[Any]) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def _write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    with atomic_path(path) as temporary:
        pq.write_table(table_of(rows, schema), temporary, compression="zstd")


def _mapped(path: Path) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


@cache
def load(folder: str, digest: str) -> TestSetIndex:
    """The index that `build` wrote. Raises DataError when another one lies there now."""
    place = Path(folder)
    try:
        made = orjson.loads((place / _INDEX).read_bytes())
        if made["digest"] != digest:
            raise DataError(f"{folder}: the index of the test sets changed while it was in use; run filter again")
        table = {name: pq.read_table(place / f"{name}.parquet") for name in ("samples", "texts", "images")}
        hashes, rows, words = (_mapped(place / f"{name}.npy") for name in ("hashes", "rows", "words"))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(f"{folder}: cannot be read as an index of test sets: {error}; remove it, run again") from None
    shown = table["images"].to_pylist()
    groups = tuple(row["group"] for row in shown)
    group_of = {row["sha256"]: row["group"] for row in shown}
    asked: dict[int, list[int]] = {}
    for number, digests in enumerate(table["samples"]["images"].to_pylist()):
        for group in sorted({group_of[sha256] for sha256 in digests}):
            asked.setdefault(group, []).append(number)
    looked = [row for row in shown if row["pixels"]]
    return TestSetIndex(
        samples=table["samples"],
        texts=table["texts"],
        hashes=hashes,
        rows=rows,
        words=words,
        refs=tuple(ImageRef(**{name: row[name] for name in ImageRef.__slots__}) for row in shown),
        looks=tuple(
            image_match.ImageHashes(phash=bytes.fromhex(row["phash"]), flat=row["flat"], pixels=row["pixels"])
            for row in looked
        ),
        group_of_sha256=group_of,
        group_of_pixels={row["pixels"]: row["group"] for row in looked},
        groups=groups,
        samples_of_group={group: tuple(rows) for group, rows in asked.items()},
    )
