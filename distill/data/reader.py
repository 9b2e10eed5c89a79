"""Reads data sources as samples, one by one.

`read` gives every row as a sample or as a BadRow with a counted reason; `samples` gives the usable samples, and
refuses a source with too few of them. A sample's id comes from its question and its images' bytes, never from its
position. Images are checked by decoding them fully, a few at a time; samples hold only references to them.
`distill.data.sources` finds the rows; `distill.data.formats` reads their columns.
"""

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from distill.artifacts.compact_map import CompactMap
from distill.artifacts.manifest import fingerprint
from distill.data import formats, sample_files, source_answer_types, sources
from distill.data.gold_answers import RowError
from distill.data.grown_sources import content_files, file_state
from distill.data.images.image_references import ImageReferences
from distill.data.row_values import RowQuestion
from distill.data.source_parts import SourcePart
from distill.data.sources import SourceRow, SourceStart, SourceTable
from distill.data.tables.table_kinds import PACKED_LINES, SHARDS
from distill.errors import DataError, ImageError
from distill.machine.thread_map import thread_map
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED, FORMAT_NAMES, DataSource
from distill.types import BadRow, ImageRef, Sample
from distill.word_tables import counted

_THREADS = min(4, os.cpu_count() or 1)
_REQUESTS = 32
"""Images that are fetched from a store at the same time."""
_DETAIL_CHARACTERS = 500
_COLUMNS_FROM = 200
"""Rows of a file without a header that are looked at to learn its columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBefore:
    """The rows at the start of a source that an earlier command has read: their end and their content."""

    start: SourceStart
    samples: Path
    """The samples of these rows, as `write_samples` wrote them."""
    reasons: Counter[str]
    """Reasons of the bad rows."""


def samples(
    recipe: Recipe,
    name: str = ASKED,
    *,
    on_bad: Callable[[BadRow], None] | None = None,
    before: ReadBefore | None = None,
    on_end: Callable[[int], None] | None = None,
) -> Iterator[Sample]:
    """The usable samples of a source, in order; `on_bad` gets every other row. The samples of `before` are left out.

    `on_end` gets the number of rows after the last row.

    Raises DataError if the source does not exist, has no usable row, lacks a mapped column, or has more than
    `max_bad_share` bad rows (repeated rows are left out but are not bad). That last one is known at the end of the
    source only.
    """
    good = 0 if before is None else sample_files.count_samples(before.samples)
    reasons: Counter[str] = Counter() if before is None else +before.reasons
    first: list[BadRow] = []
    for item in read(recipe, name, before=before, on_end=on_end):
        if isinstance(item, Sample):
            good += 1
            yield item
            continue
        reasons[item.reason] += 1
        if len(first) < 3 and item.reason != "duplicate_row":
            first.append(item)
        if on_bad is not None:
            on_bad(item)
    require_enough(sources.settings(recipe, name), name, good, reasons, first)


def require_enough(source: DataSource, name: str, good: int, reasons: Counter[str], first: Sequence[BadRow]) -> None:
    """Raise DataError for a source with no or too few usable samples; `good`: their number."""
    where = f"[data.{name}] source = {source.source!r}"
    if not good and not reasons:
        outside = (
            "" if source.part == (0, 1) else f" whose image falls into part = {list(source.part)}; make it larger"
        )
        raise DataError(f"{where} holds no rows{outside}")
    bad = reasons.total() - reasons["duplicate_row"]
    if good and bad <= source.max_bad_share * (good + bad):
        return
    counts = ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common())
    shown = "\n".join(f"  {row.source} row {row.row}: {row.reason}: {row.detail}" for row in first)
    share = f"more than max_bad_share = {source.max_bad_share}" if good else "no usable row is left"
    raise DataError(
        f"{where}: {bad:,} of {counted(good + bad, 'row')} cannot be used, {share} ({counts}); the first:\n{shown}\n"
        "check source, images_root, format and columns"
    )


def read(
    recipe: Recipe,
    name: str = ASKED,
    *,
    decode: Callable[[int], bool] | None = None,
    before: ReadBefore | None = None,
    on_end: Callable[[int], None] | None = None,
) -> Iterator[Sample | BadRow]:
    """Every row of a source in order, as samples (a row may hold several) or as a BadRow.

    Among rows with the same question and images, the first is kept; the others are duplicate_row, or
    conflicting_answer if their gold answers differ. Rows outside `part` are left out. Stops after `limit` samples. A
    survey passes `decode`. For row numbers where it is false, images are not decoded: they must exist, their ids come
    from their paths, and only the first image of a row decides its `part`. The rows of `before` are left out. Raises
    DataError when the source cannot be read at all.
    """
    source = sources.settings(recipe, name)
    table = sources.locate(recipe, name)
    reader = _SampleReader(source, table, decode or _always)
    part = _part(reader, survey=decode is not None)
    seen = _SeenSamples(before)
    good = last_row = 0
    rows = _checked_columns(table, source, name) if before is None else sources.rows(table, before.start)
    for row, items in _ordered(reader.prepare, rows, table):
        last_row = row.row if isinstance(row, BadRow) else row.number
        for item in items:
            if isinstance(item, Sample):
                if part is not None and item not in part:
                    continue
                same = seen.has_same_gold(item)
                if same is not None:
                    item = _repeated(item, last_row, table, same=same)
                else:
                    seen.add(item)
                    good += 1
            yield item
            if good == source.limit:
                return
    if on_end is not None:
        on_end(last_row or (before.start.rows if before else 0))


def _always(number: int) -> bool:
    return True


def _part(reader: "_SampleReader", *, survey: bool) -> SourcePart | None:
    """The part of a source that is read; rows with several images decide which images are in one part.

    None: the whole source.
    """
    source, table = reader.source, reader.table
    if source.part == (0, 1):
        return None
    part = SourcePart(source.part)
    if not survey:
        for _, items in _ordered(reader.prepare_several, sources.rows(table), table):
            for item in items:
                if isinstance(item, Sample):
                    part.join(item)
    return part


class _SeenSamples:
    """The samples of a source so far, and whether a repeated one has the same gold answers."""

    _GOLD = struct.Struct("<q")

    def __init__(self, before: ReadBefore | None) -> None:
        self._gold = CompactMap(self._GOLD.size)
        self._before = CompactMap(self._GOLD.size)
        self._file = before.samples if before else None
        if before is not None:
            keys = sample_files.read_keys(before.samples)
            rows = np.arange(sample_files.count_samples(before.samples), dtype="<i8").tobytes()
            self._before = CompactMap.of(self._GOLD.size, keys, rows)

    def add(self, sample: Sample) -> None:
        self._gold[bytes.fromhex(sample.id)] = self._GOLD.pack(hash(sample.answers))

    def has_same_gold(self, sample: Sample) -> bool | None:
        """Whether an earlier sample with the same id has the same gold answers; None when there is none."""
        key = bytes.fromhex(sample.id)
        if (gold := self._gold.get(key)) is not None:
            return bool(gold == self._GOLD.pack(hash(sample.answers)))
        row = self._before.get(key)
        if row is None or self._file is None:
            return None
        number = self._GOLD.unpack(row)[0]
        before = next(sample_files.read_samples(self._file, skip=number + 1, but=[number]))
        return before.answers == sample.answers


def read_rows(
    recipe: Recipe, name: str, table: SourceTable
) -> Iterator[tuple[SourceRow | BadRow, list[Sample | BadRow]]]:
    """Every row of a source without changes, with its samples; also repeated rows, without a limit."""
    source = sources.settings(recipe, name)
    reader = _SampleReader(source, table, _always)
    yield from _ordered(reader.prepare, _checked_columns(table, source, name), table)


def first_fault(recipe: Recipe, name: str) -> str:
    """The reason why the first rows of a source cannot be read; empty if one row can be read. No image is looked
    at."""
    fault = ""
    for row in islice(sources.rows(sources.locate(recipe, name)), _COLUMNS_FROM):
        try:
            if isinstance(row, BadRow):
                raise DataError(row.detail)
            formats.parse(row.values, sources.settings(recipe, name))
        except DataError as error:
            fault = fault or str(error)
        else:
            return ""
    return fault


def _block_rows(table: SourceTable) -> int:
    """Rows that a thread takes at once: few where they may carry whole images."""
    return 4 if table.root_address or table.kind in ("parquet", "arrow") else 64


def _repeated(sample: Sample, number: int, table: SourceTable, *, same: bool) -> BadRow:
    reason = "duplicate_row" if same else "conflicting_answer"
    detail = f"same question and images as an earlier row (sample {sample.id})"
    if not same:
        detail += f", but its answer is {sample.answer!r}"
    return BadRow(source=table.label, row=number, reason=reason, detail=detail)


def _checked_columns(table: SourceTable, source: DataSource, name: str) -> Iterator[SourceRow | BadRow]:
    """The rows of a table, once its first ones have shown that the mapped columns exist."""
    rows = sources.rows(table)
    head = list(islice(rows, _COLUMNS_FROM if table.kind in ("jsonl", PACKED_LINES, "json", SHARDS) else 1))
    values = (row.values for row in head if isinstance(row, SourceRow))
    asked = (each for row in values for each in formats.readable_rows(row, source.columns.question))
    columns = {name for row in asked for name in row}
    if columns:
        formats.check_columns(columns, source, f"[data.{name}] {table.label}")
    yield from head
    del head
    yield from rows


def _ordered(
    work: Callable[[SourceRow | BadRow], list[Sample | BadRow]],
    rows: Iterator[SourceRow | BadRow],
    table: SourceTable,
) -> Iterator[tuple[SourceRow | BadRow, list[Sample | BadRow]]]:
    """The rows with the results of `work`, in order, computed by a few threads a few blocks of rows ahead."""

    def work_on(block: list[SourceRow | BadRow]) -> list[tuple[SourceRow | BadRow, list[Sample | BadRow]]]:
        return [(row, work(row)) for row in block]

    block_rows = _block_rows(table)
    blocks = iter(lambda: list(islice(rows, block_rows)), [])
    threads = _REQUESTS if table.root_address else _THREADS
    for results in thread_map(work_on, blocks, threads, ahead=2 * threads):
        yield from results


class _SampleReader:
    """Turns rows into samples."""

    def __init__(self, source: DataSource, table: SourceTable, decode: Callable[[int], bool]) -> None:
        self.source = source
        self.table = table
        self._images = ImageReferences(source, table, decode)

    def prepare(self, row: SourceRow | BadRow) -> list[Sample | BadRow]:
        if isinstance(row, BadRow):
            return [row]
        try:
            parsed = formats.parse(row.values, self.source)
            refs = tuple(self._images.reference(cell, row) for cell in parsed.images)
        except (RowError, ImageError) as error:
            return [BadRow(source=self.table.label, row=row.number, reason=error.reason, detail=_brief(str(error)))]
        return [_sample(question, refs) for question in parsed.questions]

    def prepare_several(self, row: SourceRow | BadRow) -> list[Sample | BadRow]:
        """As `prepare`, but only for rows with several images."""
        try:
            several = isinstance(row, SourceRow) and len(formats.parse(row.values, self.source).images) > 1
        except RowError:
            several = False
        return self.prepare(row) if several else []


def _brief(text: str) -> str:
    """A message, cut: it may quote a long cell."""
    return text if len(text) <= _DETAIL_CHARACTERS else f"{text[:_DETAIL_CHARACTERS]}..."


def _sample(question: RowQuestion, refs: tuple[ImageRef, ...]) -> Sample:
    return Sample(
        id=sample_id(question.text, [ref.sha256 for ref in refs]),
        images=refs,
        question=question.text,
        answers=question.answers,
        answer_type=question.answer_type,
        domain=question.domain,
        meta=question.meta,
    )


def sample_id(question: str, image_sha256s: Iterable[str]) -> str:
    """The id of a question about images: the same on every machine and at every time."""
    text = "\0".join([question, *image_sha256s])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def source_fields(recipe: Recipe, name: str = ASKED) -> dict[str, Any]:
    """The settings of a source for a fingerprint: they depend on the content of the source and not on its location.

    Files are digested whole. Images beside a table are not digested, because their bytes are part of the sample ids.
    """
    source = sources.settings(recipe, name)
    fields = affecting(source, "source")
    if source.answer_type is not None:
        fields["answer_type"] = source_answer_types.answer_type_of(source)
    if source.format not in FORMAT_NAMES:
        fields["format"] = formats.outside_format(source).code
    if not sources.is_there(recipe, name):
        return fields | {"source": source.source}
    table = sources.locate(recipe, name)
    # Shards in different folders may share a name, so their order is part of the key.
    digests = {
        f"{position:05d} {file.name}": file_state(table, file) for position, file in enumerate(content_files(table))
    }
    return fields | {"content": next(iter(digests.values())) if len(digests) == 1 else fingerprint(digests)}
