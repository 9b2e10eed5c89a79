"""Files of samples, with references to images instead of images; written once, in the order of the plan."""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.data.arrow import table_of
from distill.errors import DataError
from distill.types import ImageRef, Sample

_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        (
            "images",
            pa.list_(
                pa.struct(
                    [
                        ("sha256", pa.string()),
                        ("path", pa.string()),
                        ("column", pa.string()),
                        ("row", pa.int64()),
                        ("index", pa.int64()),
                    ]
                )
            ),
        ),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("answer_type", pa.string()),
        ("domain", pa.string()),
        ("meta", pa.string()),
    ]
)
_OF_SAMPLE = ("id", "question", "answers", "answer_type", "domain", "meta")
_CONTENT = "content"
"""Key of a file's metadata."""
_ROW_GROUP = 1024
_KEYS_AT_ONCE = 1 << 14


def write_samples(path: Path, written: Iterable[Sample], *, before: Path | None = None) -> int:
    """Write samples (references to images, not images) to a Parquet file that appears only when complete.

    With `before` they follow the samples of that file, and the bytes are as if all had been written at once. Returns
    the number of samples that are not in `before`.
    """
    count = content = 0
    rows = iter(written)
    held: list[pa.Table] = []  # the last rows of `before`, fewer than a whole group
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, _SCHEMA, compression="zstd") as writer:
        if before is not None:
            content = int(samples_content(before), 16)
            for group in _row_groups(before):
                if len(group) == _ROW_GROUP:
                    writer.write_table(group)
                else:
                    held.append(group)
        while samples := list(islice(rows, _ROW_GROUP - sum(map(len, held)))):
            table = table_of([to_record(sample) for sample in samples], _SCHEMA)
            writer.write_table(pa.concat_tables([*held, table]).combine_chunks())
            count, content = count + len(samples), content + sum(map(sample_content, samples))
            held.clear()
        for group in held:
            writer.write_table(group)
        writer.add_key_value_metadata({_CONTENT: _hex(content)})
    return count


def _row_groups(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as table:
        yield from map(table.read_row_group, range(table.num_row_groups))


def sample_content(sample: Sample) -> int:
    """A number of 128 bits for a sample, independent of the paths of its images: the sample's id covers their
    bytes."""
    values = {name: getattr(sample, name) for name in _OF_SAMPLE}
    return content_number(values)


def content_number(values: Mapping[str, Any]) -> int:
    """A number of 128 bits for these values. The numbers of several samples are added, so their order does not
    matter."""
    text = orjson.dumps(values, option=orjson.OPT_SORT_KEYS, default=str)
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())


def samples_content(path: Path) -> str:
    """Digest of the samples in a file that `write_samples` wrote, independent of the paths of their images."""
    metadata: dict[bytes, bytes] = pq.read_metadata(path).metadata
    return metadata[_CONTENT.encode()].decode()


def _hex(content: int) -> str:
    return f"{content % (1 << 128):032x}"


def count_samples(path: Path) -> int:
    """The number of samples in a file that `write_samples` wrote."""
    with pq.ParquetFile(path) as table:
        return int(table.metadata.num_rows)


def to_record(sample: Sample) -> dict[str, Any]:
    """A sample as a row of plain values; `from_record` reads it back."""
    return {
        "id": sample.id,
        "images": [
            {"sha256": ref.sha256, "path": ref.path, "column": ref.column, "row": ref.row, "index": ref.index}
            for ref in sample.images
        ],
        "question": sample.question,
        "answers": list(sample.answers),
        "answer_type": sample.answer_type,
        "domain": sample.domain,
        "meta": orjson.dumps(dict(sample.meta), option=orjson.OPT_SORT_KEYS, default=str).decode(),
    }


def from_record(values: Mapping[str, Any]) -> Sample:
    return Sample(
        id=values["id"],
        images=tuple([ImageRef(**ref) for ref in values["images"]]),
        question=values["question"],
        answers=tuple(values["answers"]),
        answer_type=values["answer_type"],
        domain=values["domain"],
        meta=orjson.loads(values["meta"]) if values["meta"] != "{}" else {},
    )


def read_keys(path: Path) -> bytes:
    """The ids of the samples in a file, as bytes one after the other."""
    with pq.ParquetFile(path) as table:
        texts = (batch["id"] for batch in table.iter_batches(batch_size=_KEYS_AT_ONCE, columns=["id"]))
        return b"".join(bytes.fromhex("".join(ids.to_pylist())) for ids in texts)


def read_samples(
    path: Path, ids: Collection[str] | None = None, *, skip: int = 0, but: Collection[int] = ()
) -> Iterator[Sample]:
    """The samples of a file that `write_samples` wrote, in its order: all, or only the given ids.

    Of the first `skip` rows only those in `but` are read.
    """
    wanted_ids = None if ids is None else pa.array(sorted(ids), pa.string())
    try:
        with pq.ParquetFile(path) as table:
            for batch in _batches_after(table, skip, but) if skip else table.iter_batches(batch_size=_ROW_GROUP):
                if wanted_ids is not None:
                    import pyarrow.compute as pc

                    batch = batch.filter(pc.is_in(batch["id"], value_set=wanted_ids))
                yield from map(from_record, batch.to_pylist())
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as samples: {error}; run the generate stage again") from None


def _batches_after(table: Any, skip: int, but: Collection[int]) -> Iterator[Any]:
    """The rows of a file without the first `skip` ones, but with those in `but`; others are not read from disk."""
    first = 0
    wanted = sorted(but)
    for number in range(table.num_row_groups):
        end = first + table.metadata.row_group(number).num_rows
        rows = wanted[bisect_left(wanted, first) : bisect_left(wanted, min(end, skip))]
        rows += range(max(first, skip), end)
        if rows:
            # `pa.array` would import pandas where it is installed, for 0.25 s.
            wanted_rows = pa.py_buffer(array("q", [row - first for row in rows]))
            yield table.read_row_group(number).take(pa.Array.from_buffers(pa.int64(), len(rows), [None, wanted_rows]))
        first = end
