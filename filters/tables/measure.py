"""Measure the families of signals on every trace, partition by partition, and reuse valid values.

A partition's file carries the fingerprint of all inputs of its values (versions and parameters of the requested
families, the partition's traces and samples). Nothing is measured again while it is equal. Where only some samples
changed, the rows of the other samples are reused; where only some families changed, the values of the other families
are. A family that is not requested does not count, so that a new family is measured alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.integrity import digest_note, note_digest
from distill.artifacts.layout import part_path
from distill.artifacts.manifest import fingerprint
from distill.machine.memory import seldom_collected
from distill.machine.process_pool import ProcessPool
from distill.ocr.texts import read_missing
from distill.types import ImageRef, Sample, Trace
from filters.signals import registry
from filters.signals.base import ERROR, UNDECIDABLE, Extractor
from filters.signals.families.ocr import Ocr
from filters.signals.registry import errors_text
from filters.signals.schema import FACTS
from filters.tables.journal_pieces import content
from filters.tables.run_signal_tables import raw_metadata, write_table
from filters.tables.trace_index import PlannedTraces, read_partition, read_traces
from filters.tables.workers import SERIAL, Workers
from filters.text.minhash import Scheme, remember_forms, sign
from filters.text.shared_texts import MOST_CHARACTERS, MOST_SAMPLES, forget_texts
from filters.text.words import comparable_text

_FINGERPRINT, _MADE_BY, _EXTRACTORS = b"signals_fingerprint", b"made_by", b"extractors"
_TO_TRY_AGAIN = b"to_try_again"
"""There where a value is missing that another try may give: the samples."""

_TEXTS: list[tuple[str, pa.DataType]] = [
    ("content", pa.binary(16)),
    ("words", pa.binary(16)),
    ("signature", pa.binary()),
    ("names", pa.uint64()),
    ("template", pa.uint64()),
]
REMEMBERED = tuple(name for name, _ in _TEXTS)
"""What a partition's file remembers of the texts, which no rule can see: all that the trace's sample is measured from
(`content`), and for near duplicates the digest and MinHash signature of the words, and two hashes of
`filters.text.values_and_names`."""
OnRead = Callable[[int, int], None]
"""Called with the images that are read, and all of them."""


def file_columns(extractors: tuple[Extractor, ...]) -> pa.Schema:
    """The columns of a partition's file: the signals, and what is remembered of the texts."""
    outside_families = {
        extractor.name: type(extractor) for extractor in extractors if extractor.name not in registry.FAMILIES
    }
    return pa.schema([*registry.local_columns(outside_families), *(pa.field(name, kind) for name, kind in _TEXTS)])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition to measure: all that a worker needs to know."""

    path: Path
    extractors: tuple[Extractor, ...]
    identity: Mapping[str, Any]
    """Identity of each extractor, by its name."""
    content: str
    """Digest of the partition's traces and samples."""
    scheme: Scheme | None
    """How texts are signed; None when the filter searches no near duplicates across questions."""
    journals: tuple[Path, ...]
    samples: Path
    number: int
    locations: NDArray[np.int64]
    """The `Place` of each record, in the order of the files."""


def measure(
    index: PlannedTraces,
    extractors: tuple[Extractor, ...],
    folder: Path,
    *,
    scheme: Scheme | None = None,
    workers: Workers = SERIAL,
    readers: int = 1,
    on_done: Callable[[int, int], None] = lambda rows, reused: None,
    on_read: OnRead = lambda read, images: None,
) -> tuple[Path, ...]:
    """Write the signal table of every partition to `folder`; returns the files in order.

    `on_done` is called for every partition with its number of rows and the number of reused rows. Text in images is
    read before, in `readers` processes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks = list(_tasks(index, extractors, folder, scheme))
    paths = tuple(task.path for task in tasks)
    for stale in {*folder.glob("*.parquet"), *folder.glob(".*.tmp")} - set(paths):
        stale.unlink()
        digest_note(stale).unlink(missing_ok=True)
    todo = []
    for task in tasks:
        if _is_current(task):
            note_digest(task.path)
            on_done(len(task.locations), len(task.locations))
        else:
            todo.append(task)
    if todo:
        index.copy_samples()
    samples = (sample for task in todo for sample in read_partition(task.samples, task.number))
    read_images(extractors, samples, readers, on_read)
    for rows, reused in workers.map(measure_partition, todo):
        on_done(rows, reused)
    return paths


def read_images(extractors: Iterable[Extractor], samples: Iterable[Sample], processes: int, on_read: OnRead) -> None:
    """Read the missing texts of images in so many processes; nothing where `ocr` is not among the families.

    What was read stays on disk when the run is killed. An image that cannot be read costs its own samples' values.
    """
    for extractor in extractors:
        if not isinstance(extractor, Ocr) or extractor.texts is None:
            continue
        refs: dict[str, ImageRef] = {}
        for sample in samples:
            refs |= {ref.sha256: ref for ref in sample.images if ref.sha256 not in refs}
        with ProcessPool(processes) as readers:
            read_missing(
                refs, extractor.texts, max_pixels=extractor.max_pixels, run_tasks=readers.map, on_done=on_read
            )


def measured_by(extractors: tuple[Extractor, ...], scheme: Scheme | None) -> str:
    """Fingerprint of what rows depend on besides their samples and traces."""
    return _made_by(registry.identity(extractors), file_columns(extractors).names, scheme).decode()


def write_measured(rows: pa.Table, path: Path, extractors: tuple[Extractor, ...], scheme: Scheme | None) -> int:
    """Write rows that were measured elsewhere as the file of a partition that `measure` would write.

    `rows` are sorted by id, have the columns of such a file, and each sample with all its traces. Returns the digest
    of the partition's traces and samples.
    """
    of_samples = dict(zip(rows["sample_id"].to_pylist(), rows["content"].to_pylist(), strict=True))
    content_digest = sum(map(int.from_bytes, of_samples.values())) % (1 << 128)
    _write_file(path, rows, registry.identity(extractors), scheme, f"{content_digest:032x}")
    return content_digest


@seldom_collected()
def measure_partition(task: PartitionTask) -> tuple[int, int]:
    """Measure one partition and write its file; returns its rows, and how many of them were taken over whole."""
    samples = {sample.id: sample for sample in read_partition(task.samples, task.number)}
    by_sample: dict[str, list[Trace]] = {}
    for trace in read_traces(task.journals, task.locations.tolist()):
        by_sample.setdefault(trace.sample_id, []).append(trace)
    contents = {sample_id: _content_digest(samples[sample_id], by_sample[sample_id]) for sample_id in by_sample}
    earlier = _read_earlier(task, contents)
    unchanged = set(earlier.rows["sample_id"].to_pylist())
    missing = tuple(extractor for extractor in task.extractors if extractor.name not in earlier.families)

    def measure_samples(sample_ids: Iterable[str], extractors: tuple[Extractor, ...], *, signed: bool) -> pa.Table:
        tables = [schema.empty_table()]
        for group in _groups([(samples[sample_id], by_sample[sample_id]) for sample_id in sorted(sample_ids)]):
            texts = {trace.id: comparable_text(trace) for _, traces in group for trace in traces}
            remember_forms(list(texts.values()))
            rows = registry.rows_of_samples(extractors, group)
            for row in rows:
                row["content"] = contents[row["sample_id"]]
            if task.scheme is not None and signed:
                _add_signatures(rows, texts, task.scheme)
            forget_texts()
            tables.append(pa.Table.from_pylist(rows, schema=schema))
        return pa.concat_tables(tables)

    schema = file_columns(task.extractors)
    reused_rows, is_complete = earlier.rows, not missing and (earlier.signed or task.scheme is None)
    if unchanged and not is_complete:
        reused_rows = _merge_measured(
            earlier, measure_samples(unchanged, missing, signed=not earlier.signed), task.extractors
        )
    table = pa.concat_tables(
        [reused_rows, measure_samples(by_sample.keys() - unchanged, task.extractors, signed=True)]
    )
    _write_file(task.path, table.sort_by("id"), task.identity, task.scheme, task.content)
    return len(table), len(reused_rows) if is_complete else 0


def _write_file(
    path: Path, table: pa.Table, identity: Mapping[str, Any], scheme: Scheme | None, content: str
) -> None:
    """Write the sorted rows of a partition, with the fingerprint of all that they depend on."""
    metadata = {
        _EXTRACTORS: orjson.dumps(identity, option=orjson.OPT_SORT_KEYS),
        _MADE_BY: _made_by(identity, table.column_names, scheme),
        _FINGERPRINT: _fingerprint(identity, table.column_names, scheme, content),
    }
    if again := len(_samples_to_try_again(table)):
        metadata[_TO_TRY_AGAIN] = str(again).encode()
    write_table(path, table.replace_schema_metadata(metadata))


def _samples_to_try_again(table: pa.Table) -> set[str]:
    """The samples with a value that was not measured for a reason that may be gone.

    A family failed: it may ask a server, or read a file. An image could not be read. The clock stopped a family.
    """
    found = [pc.equal(table[name], ERROR) for name in table.column_names if name.endswith("_state")]
    if "contamination_state" in table.column_names:
        found.append(pc.equal(table["contamination_state"], UNDECIDABLE))
    found.append(pc.match_substring(table["signal_errors"], registry.OUT_OF_TIME.reason))
    return {sample for each in found for sample in table.filter(each)["sample_id"].to_pylist()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRows:
    """The valid part of a partition's file from an earlier run."""

    rows: pa.Table
    """Rows of the unchanged samples; values that are not valid are NULL."""
    families: frozenset[str]
    """The families whose values are valid."""
    signed: bool
    """Whether the signatures of the texts are valid."""


def _groups(asked: Sequence[tuple[Sample, list[Trace]]]) -> Iterator[list[tuple[Sample, list[Trace]]]]:
    """The samples in groups that are measured together."""
    group: list[tuple[Sample, list[Trace]]] = []
    characters = 0
    for sample, traces in asked:
        own = sum(len(trace.text) + len(trace.reasoning) for trace in traces)
        if group and (len(group) == MOST_SAMPLES or characters + own > MOST_CHARACTERS):
            yield group
            group, characters = [], 0
        group.append((sample, traces))
        characters += own
    if group:
        yield group


def _add_signatures(rows: list[dict[str, Any]], texts: Mapping[str, str], scheme: Scheme) -> None:
    signed = sign([texts[row["id"]] for row in rows], scheme)
    columns = (signed.digests.tolist(), signed.signatures, signed.names.tolist(), signed.templates.tolist())
    for row, digest, signature, names, template in zip(rows, *columns, strict=True):
        row |= {"words": digest.ljust(16, b"\0"), "signature": signature.tobytes()}
        row |= {"names": names, "template": template}


def _read_earlier(task: PartitionTask, contents: Mapping[str, bytes]) -> EarlierRows:
    """Read the valid part of the file of an earlier run."""
    schema = file_columns(task.extractors)
    metadata_of_file = raw_metadata(task.path)
    required_columns = {*FACTS.names, "signal_errors", "content"}
    if not {_EXTRACTORS, _MADE_BY} <= metadata_of_file.keys() or not required_columns <= set(
        pq.read_schema(task.path).names
    ):
        return EarlierRows(rows=schema.empty_table(), families=frozenset(), signed=False)
    file = pq.read_table(task.path).replace_schema_metadata(None)
    saved_identities, identities = (
        orjson.loads(metadata_of_file[_EXTRACTORS]),
        orjson.loads(orjson.dumps(task.identity)),
    )
    families = frozenset(
        extractor.name
        for extractor in task.extractors
        if saved_identities.get(extractor.name) == identities[extractor.name]
        and set(extractor.columns.names) <= set(file.column_names)
    )
    signed = task.scheme is not None and metadata_of_file[_MADE_BY] == _made_by(
        saved_identities, file.column_names, task.scheme
    )
    again = _samples_to_try_again(file)
    unchanged_ids = [
        sample_id
        for sample_id, digest in zip(file["sample_id"].to_pylist(), file["content"].to_pylist(), strict=True)
        if contents.get(sample_id) == digest and sample_id not in again
    ]
    rows = file.filter(pc.is_in(file["sample_id"], pa.array(unchanged_ids, pa.string())))
    valid = required_columns | {*(REMEMBERED if signed else ())}
    valid.update(*(extractor.columns.names for extractor in task.extractors if extractor.name in families))
    columns = [
        rows[field.name].cast(field.type) if field.name in valid else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    table = pa.table(columns, schema=schema)
    errors = [orjson.loads(text or "{}") for text in table["signal_errors"].to_pylist()]
    valid_errors = [{name: reason for name, reason in error.items() if name in families} for error in errors]
    return EarlierRows(rows=_with_errors(table, valid_errors), families=families, signed=signed)


def _merge_measured(earlier: EarlierRows, measured: pa.Table, extractors: tuple[Extractor, ...]) -> pa.Table:
    """Earlier rows with the values that were measured now; both have the same traces."""
    rows, measured = earlier.rows.sort_by("id"), measured.sort_by("id")
    measured_columns = {
        name for extractor in extractors if extractor.name not in earlier.families for name in extractor.columns.names
    }
    measured_columns |= set() if earlier.signed else {*REMEMBERED} - {"content"}
    for index, name in enumerate(rows.column_names):
        if name in measured_columns:
            rows = rows.set_column(index, rows.schema.field(index), measured[name])
    pairs = zip(rows["signal_errors"].to_pylist(), measured["signal_errors"].to_pylist(), strict=True)
    merged_errors = [orjson.loads(before or "{}") | orjson.loads(now or "{}") for before, now in pairs]
    order = [extractor.name for extractor in extractors]
    return _with_errors(rows, [{name: error[name] for name in order if name in error} for error in merged_errors])


def _with_errors(rows: pa.Table, errors: list[dict[str, str]]) -> pa.Table:
    index = rows.column_names.index("signal_errors")
    return rows.set_column(index, rows.schema.field(index), pa.array(map(errors_text, errors), pa.string()))


def _tasks(
    index: PlannedTraces, extractors: tuple[Extractor, ...], folder: Path, scheme: Scheme | None
) -> Iterator[PartitionTask]:
    identity = registry.identity(extractors)
    live = np.flatnonzero(index.journal >= 0)
    by_place = live[np.lexsort((index.start[live], index.journal[live], index.partition[live]))]
    borders = np.searchsorted(index.partition[by_place], np.arange(len(index.digests) + 1))
    for number, digest in enumerate(index.digests):
        rows = by_place[borders[number] : borders[number + 1]]
        yield PartitionTask(
            path=part_path(folder, number, ".parquet"),
            extractors=extractors,
            identity=identity,
            content=f"{digest:032x}",
            scheme=scheme,
            journals=tuple(index.journals),
            samples=index.samples,
            number=number,
            locations=np.column_stack([index.journal[rows], index.start[rows]]).astype(np.int64),
        )


def _identity(extractors: Mapping[str, Any], columns: list[str], scheme: Scheme | None) -> dict[str, Any]:
    """The inputs of a file's rows besides samples and traces; `columns`: the columns of the file itself."""
    return {"extractors": extractors, "columns": columns, "scheme": None if scheme is None else scheme.as_fields()}


def _made_by(extractors: Mapping[str, Any], columns: list[str], scheme: Scheme | None) -> bytes:
    return fingerprint(_identity(extractors, columns, scheme)).encode()


def _fingerprint(identity: Mapping[str, Any], columns: list[str], scheme: Scheme | None, content: str) -> bytes:
    return fingerprint(_identity(identity, columns, scheme) | {"content": content}).encode()


def _is_current(task: PartitionTask) -> bool:
    """Whether the file holds what would be measured; columns of other families may be there or not."""
    metadata_of_file = raw_metadata(task.path)
    if _FINGERPRINT not in metadata_of_file or _TO_TRY_AGAIN in metadata_of_file:
        return False
    columns = pq.read_schema(task.path).names
    needed = {name for extractor in task.extractors for name in extractor.columns.names}
    return metadata_of_file[_FINGERPRINT] == _fingerprint(
        task.identity, columns, task.scheme, task.content
    ) and needed <= set(columns)


def _content_digest(sample: Sample, traces: list[Trace]) -> bytes:
    return ((content(sample) + sum(map(content, traces))) % (1 << 128)).to_bytes(16)
