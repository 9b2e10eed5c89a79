"""Overlap of one training source with evaluation sources, row by row (`filters.signals.families.contamination`):

- pair: a row asks a test question about the same image, or both have no image and the same question;
- image: a row shows an image of the test set under another question;
- text: a row asks in the words of a test question, about another image. Templates do that; it is no leak.

Every image is decoded, so that an image that was saved or resized again is found. An image of one colour is no
leak by itself. The result is stored beside the indexes of the evaluation sources and is valid as long as the sources
and their images are unchanged. `distill.planning.leakage` decides which sources are compared and what follows.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.artifacts.manifest import fingerprint
from distill.data import reader
from distill.data.arrow import read_columns, table_of
from distill.data.images.file_statuses import file_statuses
from distill.recipe.recipe import Recipe
from distill.types import Sample
from distill.word_tables import counted
from filters.matching import image_match, test_sets
from filters.signals.families import contamination

EXAMPLES = 3
PAIR, IMAGE, TEXT = "pair", "image", "text"
_FORMAT = 1
_BATCH = 256
_MADE_FROM, _ROWS = b"made_from", b"rows"
_LEAKS = pa.schema(
    [
        ("evaluation", pa.string()),
        ("kind", pa.string()),
        ("sample", pa.string()),
        ("question", pa.string()),
        ("picture", pa.string()),
        ("test_sample", pa.string()),
        ("test_question", pa.string()),
        ("tests", pa.list_(pa.int64())),
    ]
)
_FILES = pa.schema([("path", pa.string()), ("bytes", pa.int64()), ("modified_ns", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """A training row that shows an image of an evaluation source, or asks one of its questions about it."""

    kind: str
    sample: str
    question: str
    picture: str
    """Path of its first image; empty when it has none."""
    test_sample: str
    test_question: str

    def __str__(self) -> str:
        shown = f" ({self.picture})" if self.picture else ""
        does = "asks the same as" if self.kind == PAIR else "shows an image of"
        asked, tested = f"{self.question!r:.80}", f"{self.test_question!r:.80}"
        return f"{self.sample}{shown} {asked} {does} test row {self.test_sample} {tested}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """The overlap of a training source with an evaluation source."""

    training: str
    evaluation: str
    rows: int
    """Training rows that were compared."""
    questions: int
    """Questions of the evaluation source."""
    pairs: int
    images: int
    """Rows with a test image under another question; pairs are not among them."""
    texts: int
    """Rows in the words of a test question about another image; no leak."""
    touched: int
    """Questions of the evaluation source whose image a training row shows, or that one asks."""
    examples: tuple[Leak, ...] = ()

    @property
    def leaking(self) -> int:
        """Training rows that leak."""
        return self.pairs + self.images

    def __str__(self) -> str:
        of = f"[data.{self.training}] and [data.{self.evaluation}]"
        if not self.leaking:
            words = f", {self.texts:,} share words only" if self.texts else ""
            return f"{of} have no image and no question in common ({counted(self.rows, 'row')}{words})"
        return (
            f"{of} overlap: {self.leaking:,} of {counted(self.rows, 'row')} show a test image or ask a test "
            f"question ({self.pairs:,} the same question, {self.images:,} another one), and meet "
            f"{self.touched:,} of {counted(self.questions, 'test question')}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """An evaluation source as an index."""

    __test__ = False

    name: str
    digest: str
    index: test_sets.TestSetIndex
    rows: Mapping[str, int]
    """Sample id to its row."""

    @classmethod
    def open(cls, recipe: Recipe, name: str, folder: Path) -> "Test":
        """The index in `folder`, built unless a valid one lies there. Raises DataError."""
        digest = test_sets.build_index(recipe, (name,), folder, images=True)
        index = test_sets.load_index(str(folder.resolve()), digest)
        return cls(
            name=name,
            digest=digest,
            index=index,
            rows={id_: row for row, id_ in enumerate(index.samples["id"].to_pylist())},
        )

    def leak(self, sample: Sample, groups: Sequence[int]) -> tuple[str, int, list[int]]:
        """The kind of a match, the row of the test question that matches best, and the rows of all that are met.

        `groups`: the groups of test images that the sample shows.
        """
        shown = set(groups) - self.index.plain_groups
        test_rows = sorted({row for group in shown for row in self.index.samples_of_group[group]})
        if sample.id in self.rows:
            row = self.rows[sample.id]
            return PAIR, row, sorted({row, *test_rows})
        best = contamination.find_best_match(sample, groups, self.index)
        if best.sample is None:
            return best.kind, -1, []
        return best.kind, best.sample, sorted({best.sample, *test_rows}) if best.kind == PAIR else test_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaks:
    """What was found in one training source."""

    training: str
    rows: int
    """Rows that were compared."""
    table: pa.Table
    complete: bool = True
    """False when the time was up."""

    def overlap(self, test: Test, only: Collection[str] | None = None) -> Overlap:
        """The overlap with one evaluation source; `only`: the ids of the samples that count."""
        rows = [row for row in self.table.to_pylist() if row["evaluation"] == test.name]
        rows = [row for row in rows if only is None or row["sample"] in only]
        leaking = sorted(
            (row for row in rows if row["kind"] != TEXT), key=lambda row: (row["kind"] != PAIR, row["sample"])
        )
        pairs = sum(row["kind"] == PAIR for row in leaking)
        return Overlap(
            training=self.training,
            evaluation=test.name,
            rows=self.rows if only is None else len(only),
            questions=len(test.rows),
            pairs=pairs,
            images=len(leaking) - pairs,
            texts=len(rows) - len(leaking),
            touched=len({number for row in leaking for number in row["tests"]}),
            examples=tuple(Leak(**{key: row[key] for key in Leak.__slots__}) for row in leaking[:EXAMPLES]),
        )


def find(recipe: Recipe, name: str, tests: Sequence[Test], folder: Path, deadline: float = float("inf")) -> Leaks:
    """Compare a training source with these tests, or read what was found before in `folder`.

    Stops at `deadline` (of the monotonic clock). Raises DataError when the source cannot be read.
    """
    made_from = fingerprint(
        {
            "format": [_FORMAT, test_sets.FORMAT, contamination.Contamination.version, image_match.VERSION],
            "source": reader.source_fields(recipe, name),
            "tests": {test.name: test.digest for test in tests},
        }
    )
    # In a folder of their own: another source may be called "NAME.files".
    path, files = folder / f"{name}.parquet", folder / "files" / f"{name}.parquet"
    saved = _known(name, path, files, made_from)
    if saved is not None:
        return saved
    image_paths: set[str] = set()
    leaks = _compare(recipe, name, tests, image_paths, deadline)
    if leaks.complete:
        path.unlink(missing_ok=True)  # the two belong together; it comes last
        statuses = sorted(file_statuses(image_paths).items())
        rows = [{"path": path, "bytes": size, "modified_ns": number} for path, (size, number) in statuses]
        _write(files, table_of(rows, _FILES))
        stamp = {_MADE_FROM: made_from.encode(), _ROWS: str(leaks.rows).encode()}
        _write(path, leaks.table.replace_schema_metadata(stamp))
    return leaks


def _known(name: str, path: Path, files: Path, made_from: str) -> Leaks | None:
    """The stored overlap, if sources and images are unchanged."""
    try:
        table = read_columns(path)
        metadata = table.schema.metadata or {}
        if metadata.get(_MADE_FROM) != made_from.encode():
            return None
        rows = {row["path"]: (row["bytes"], row["modified_ns"]) for row in read_columns(files).to_pylist()}
        if file_statuses(rows) != rows:
            return None
    except (OSError, pa.ArrowException):
        return None
    return Leaks(training=name, rows=int(metadata[_ROWS]), table=table)


def _write(path: Path, table: pa.Table) -> None:
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _compare(recipe: Recipe, name: str, tests: Sequence[Test], image_paths: set[str], deadline: float) -> Leaks:
    """Compare every row with every test; the paths of the images are added to `image_paths`."""
    max_pixels = recipe.data[name].max_pixels
    groups: list[dict[str, int | None]] = [{} for _ in tests]
    leaks: list[dict[str, Any]] = []
    seen: set[str] = set()
    rows = 0
    samples = reader.samples(recipe, name)

    while batch := list(islice(samples, _BATCH)):
        new_refs = list(
            {ref.sha256: ref for sample in batch for ref in sample.images if ref.sha256 not in seen}.values()
        )
        hashes_of_images = image_match.hash_refs(new_refs, max_pixels=max_pixels)
        image_paths |= {ref.path for ref in new_refs}
        seen |= {ref.sha256 for ref in new_refs}
        for test, group_of_image in zip(tests, groups, strict=True):
            new_groups = contamination.find_image_groups(
                hashes_of_images, new_refs, test.index, max_pixels=max_pixels
            )
            group_of_image |= {ref.sha256: group for ref, group in zip(new_refs, new_groups, strict=True)}
            for sample in batch:
                sample_groups = {group_of_image[ref.sha256] for ref in sample.images}
                kind, row, test_rows = test.leak(
                    sample, sorted(group for group in sample_groups if group is not None)
                )
                if kind in (PAIR, IMAGE, TEXT):
                    leaks.append(_record(sample, kind, test, row, test_rows))
        rows += len(batch)
        if time.monotonic() > deadline:
            break
    # Nothing is left where the last row was reached in time.
    complete = next(samples, None) is None
    return Leaks(training=name, rows=rows, table=table_of(leaks, _LEAKS), complete=complete)


def _record(sample: Sample, kind: str, test: Test, row: int, test_rows: list[int]) -> dict[str, Any]:
    record = {"evaluation": test.name, "kind": kind, "sample": sample.id}
    if kind == TEXT:
        return record
    matched = test.index.sample(row)
    return record | {
        "question": sample.question,
        "picture": sample.images[0].path if sample.images else "",
        "test_sample": matched.id,
        "test_question": matched.question,
        "tests": test_rows,
    }
