"""The rows of a stage as tokens, in one file that all processes of a machine map, so none holds them in its memory.

One process encodes and writes; memory stays flat, since the operating system pages rows in as steps need them. The
file lives as long as its stage trains and is written again by the next command. Does not encode
(student/data/encode.py) or choose the rows of a step (student/data/batch_plan.py).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any, overload

import numpy as np
import orjson
import pyarrow as pa

from distill.artifacts.files import storage_errors
from distill.errors import StorageError
from distill.types import ImageRef
from student.data.rows import Smaller, TrainingRow

_SCHEMA = pa.schema(
    [
        ("ids", pa.list_(pa.int32())),
        ("kinds", pa.list_(pa.uint8())),
        ("weights", pa.list_(pa.float32())),
        ("begin", pa.int32()),
        ("images", pa.int32()),
        ("difficulty", pa.float64()),
        ("source", pa.string()),
        ("teacher", pa.string()),
        ("sample_id", pa.string()),
        ("row", pa.binary()),
    ]
)
_BATCH_ROWS = 512
_NO_WEIGHTS = np.zeros(0, np.float32)
_DECODED_ROWS = 4096
"""Rows that are kept as they were read: a step looks at each of its own several times."""
NO_PARTNER = "no_partner"
"""A row whose partner in a pair cannot be trained on, because it is too long for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One row as tokens."""

    row: TrainingRow
    ids: np.ndarray
    """int32, image tokens included."""
    begin: int
    """The first position that carries loss."""
    kinds: np.ndarray
    """uint8, the part of the response (RATIONALE, ANSWER, FORMAT) that each token from `begin` on belongs to."""
    weights: np.ndarray | None = None
    """float32, what each of these tokens weighs beside its part and its row, with mean 1; None: 1 each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """What a plan needs to know of every row."""

    lengths: np.ndarray
    """Tokens, image tokens included."""
    responses: np.ndarray
    """Tokens of the response."""
    images: np.ndarray
    difficulty: np.ndarray
    sources: Sequence[str]
    teachers: Sequence[str]

    def in_groups(self, rows: int) -> "RowColumns":
        """The columns of groups of consecutive rows: sums over each group, or the value of its first row if there is
        no sum."""
        sums = {name: getattr(self, name).reshape(-1, rows).sum(1) for name in ("lengths", "responses", "images")}
        firsts = {name: getattr(self, name)[::rows] for name in ("difficulty", "sources", "teachers")}
        return RowColumns(**sums, **firsts)


def columns_of(rows: Sequence[Example]) -> RowColumns:
    """The columns of rows, in memory or mapped."""
    if isinstance(rows, MappedRows):
        return rows.columns
    return RowColumns(
        lengths=np.array([len(example.ids) for example in rows], np.int64),
        responses=np.array([len(example.kinds) for example in rows], np.int64),
        images=np.array([len(example.row.images) for example in rows], np.int64),
        difficulty=np.array([example.row.difficulty for example in rows], np.float64),
        sources=[example.row.source for example in rows],
        teachers=[example.row.teacher for example in rows],
    )


def whole_pairs(examples: Iterable[Example], dropped: Counter[str]) -> Iterator[Example]:
    """Pairs of traces of one question, the right row first; a row without a partner is left out and counted."""
    for _, group in groupby(examples, key=lambda example: example.row.sample_id):
        rows = sorted(group, key=lambda example: example.row.rejected)
        if [example.row.rejected for example in rows] == [False, True]:
            yield from rows
        else:
            dropped[NO_PARTNER] += len(rows)


def write_rows(path: Path, examples: Iterable[Example]) -> "MappedRows":
    """Write rows as they come, and map them. Raises StorageError."""
    rows = iter(examples)
    path.parent.mkdir(parents=True, exist_ok=True)
    with storage_errors(path), pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        while group := list(islice(rows, _BATCH_ROWS)):
            writer.write_batch(_batch(group))
    return MappedRows(path)


def _batch(group: Sequence[Example]) -> pa.RecordBatch:
    columns = columns_of(group)
    return pa.record_batch(
        [
            _lists([example.ids for example in group], np.int32),
            _lists([example.kinds for example in group], np.uint8),
            _lists([_NO_WEIGHTS if example.weights is None else example.weights for example in group], np.float32),
            pa.array([example.begin for example in group], pa.int32()),
            pa.array(columns.images, pa.int32()),
            pa.array(columns.difficulty, pa.float64()),
            pa.array(columns.sources, pa.string()),
            pa.array(columns.teachers, pa.string()),
            pa.array([example.row.sample_id for example in group], pa.string()),
            pa.array([orjson.dumps(asdict(example.row)) for example in group], pa.binary()),
        ],
        schema=_SCHEMA,
    )


def _lists(values: Sequence[np.ndarray], dtype: Any) -> pa.ListArray:
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(values).astype(dtype)))


class MappedRows(Sequence[Example]):
    """The rows of a file that `write_rows` wrote, or some of them."""

    def __init__(self, path: Path, chosen: np.ndarray | None = None) -> None:
        """`chosen`: numbers of rows, in order; None: all."""
        self._path, self._chosen = path, chosen
        try:
            self._table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        except FileNotFoundError:
            raise StorageError(
                f"{path}: the main process wrote the rows here, but this process cannot read them; all processes of "
                "a training need a shared file system"
            ) from None
        self._batches = self._table.to_batches()
        self._starts = np.cumsum([0, *map(len, self._batches)]).tolist()
        self._cached = lru_cache(maxsize=_DECODED_ROWS)(self._read)

    def __len__(self) -> int:
        return int(self._starts[-1]) if self._chosen is None else len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | Sequence[Example]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._cached(self._number(index % len(self)))

    def __iter__(self) -> Iterator[Example]:
        for index in range(len(self)):
            yield self._read(self._number(index))

    def _number(self, index: int) -> int:
        """The row of the file that a row of these is."""
        return index if self._chosen is None else int(self._chosen[index])

    def take(self, indexes: Sequence[int]) -> "MappedRows":
        """Some of these rows."""
        chosen = np.asarray(indexes, np.int64)
        return MappedRows(self._path, chosen if self._chosen is None else self._chosen[chosen])

    def count_token(self, token: int) -> int:
        """How often a token comes in all rows; the file is read once, front to back."""
        counts = []
        for batch in self._batches:
            before = np.concatenate([[0], np.cumsum(batch["ids"].values.to_numpy() == token)])
            counts.append(np.diff(before[batch["ids"].offsets.to_numpy()]))
        each = np.concatenate([np.zeros(0, np.int64), *counts])
        return int((each if self._chosen is None else each[self._chosen]).sum())

    def image_refs(self) -> Iterator[ImageRef]:
        """The images of every row; rows without one are not read."""
        for index in np.flatnonzero(self.columns.images).tolist():
            batch, position = self._position(self._number(index))
            yield from map(_image, orjson.loads(memoryview(batch["row"][position].as_buffer()))["images"])

    def sample_ids(self) -> list[str]:
        """The question of every row: kept by none, for a stage may have as many as rows."""
        return self._texts("sample_id")

    def _texts(self, name: str) -> list[str]:
        # A string once for all rows that have it.
        encoded = self._table[name].combine_chunks().dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        return [names[code] for code in (codes if self._chosen is None else codes[self._chosen]).tolist()]

    @cached_property
    def columns(self) -> RowColumns:
        """The columns of all rows; of the file only these are read."""

        def chosen(values: np.ndarray) -> np.ndarray:
            return values if self._chosen is None else values[self._chosen]

        lengths, responses = (
            np.concatenate([[0], *(np.diff(batch[name].offsets.to_numpy()) for batch in self._batches)])[1:]
            for name in ("ids", "kinds")
        )
        return RowColumns(
            lengths=chosen(lengths),
            responses=chosen(responses),
            images=chosen(self._table["images"].to_numpy()),
            difficulty=chosen(self._table["difficulty"].to_numpy()),
            sources=self._texts("source"),
            teachers=self._texts("teacher"),
        )

    def _position(self, number: int) -> tuple[pa.RecordBatch, int]:
        at = bisect_right(self._starts, number) - 1
        return self._batches[at], number - self._starts[at]

    def _read(self, number: int) -> Example:
        batch, position = self._position(number)
        weights = batch["weights"][position].values
        return Example(
            row=_row(orjson.loads(memoryview(batch["row"][position].as_buffer()))),
            ids=batch["ids"][position].values.to_numpy(),
            begin=batch["begin"][position].as_py(),
            kinds=batch["kinds"][position].values.to_numpy(),
            weights=weights.to_numpy() if len(weights) else None,
        )


def _row(values: dict[str, Any]) -> TrainingRow:
    spans = {name: tuple(values.pop(name)) for name in ("rationale", "answer")}
    images = tuple(_image(each) for each in values.pop("images"))
    return TrainingRow(images=images, rationale=spans["rationale"], answer=spans["answer"], **values)


def _image(values: dict[str, Any]) -> ImageRef:
    original = values.pop("original", None)
    return ImageRef(**values) if original is None else Smaller(original=ImageRef(**original), **values)
