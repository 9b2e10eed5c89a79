"""Run the families of signals over every trace, partition by partition, and keep what is still valid.

A partition's file carries the fingerprint of all that its values depend on (extractor versions and parameters, the
partition's traces and samples); where it still agrees nothing is measured again. Where only some samples changed, the
rows of the others are taken over. The bytes of a file depend on nothing else.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.integrity import digest_note, digested_path, is_whole
from distill.artifacts.manifest import fingerprint
from distill.errors import DistillError
from distill.types import Sample, Trace
from filters.signals import registry
from filters.signals.registry import Extractor
from filters.tables.trace_index import PlannedTraces, content, read_partition, read_traces
from filters.text.minhash import Scheme, sign
from filters.text.words import said

SIGNALS = "signals"
_FINGERPRINT, _MADE_BY, _EXTRACTORS = b"signals_fingerprint", b"made_by", b"extractors"
_ROW_GROUP = 8192

_TEXTS: list[tuple[str, pa.DataType]] = [
    ("content", pa.binary(16)),
    ("words", pa.binary(16)),
    ("signature", pa.binary()),
    ("names", pa.uint64()),
    ("template", pa.uint64()),
]
SCHEMA = pa.schema([*registry.LOCAL, *(pa.field(name, kind) for name, kind in _TEXTS)])
"""A partition's file: the signals, and what is remembered of the texts, which no rule can see: all that the trace's
sample is measured from (`content`), and for near duplicates the digest and MinHash signature of the words, and two
hashes of `filters.text.compared_forms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTask:
    """One partition to measure: all that a worker needs to know."""

    path: Path
    fingerprint: str
    extractors: tuple[Extractor, ...]
    scheme: Scheme | None
    """How texts are signed; None when nobody looks for near duplicates across questions."""
    journals: tuple[Path, ...]
    samples: Path
    number: int
    places: NDArray[np.int64]
    """The `Place` of each record, in the order of the files."""


def measure(
    index: PlannedTraces,
    extractors: tuple[Extractor, ...],
    folder: Path,
    *,
    scheme: Scheme | None = None,
    workers: int = 1,
    on_done: Callable[[int, int], None] = lambda rows, reused: None,
) -> tuple[Path, ...]:
    """Write the signal table of every partition to `folder`; returns the files in order.

    `on_done` hears of every partition: its rows, and how many of them were not measured anew.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks = list(_tasks(index, extractors, folder, scheme))
    paths = tuple(task.path for task in tasks)
    for stale in {*folder.glob("*.parquet"), *folder.glob(".*.tmp")} - set(paths):
        stale.unlink()
        digest_note(stale).unlink(missing_ok=True)
    todo = []
    for task in tasks:
        if (_metadata(task.path) or {}).get(_FINGERPRINT) == task.fingerprint.encode():
            on_done(len(task.places), len(task.places))
        else:
            todo.append(task)
    if workers == 1 or len(todo) <= 1:
        for task in todo:
            on_done(*measure_partition(task))
    else:
        _in_processes(todo, min(workers, len(todo)), on_done)
    return paths


def measure_partition(task: PartitionTask) -> tuple[int, int]:
    """Measure one partition and write its file; returns its rows, and how many of them were taken over."""
    samples = {sample.id: sample for sample in read_partition(task.samples, task.number)}
    by_sample: dict[str, list[Trace]] = {}
    for trace in read_traces(task.journals, task.places.tolist()):
        by_sample.setdefault(trace.sample_id, []).append(trace)
    contents = {sample_id: _content(samples[sample_id], by_sample[sample_id]) for sample_id in by_sample}
    known = _known(task)
    same = [
        sample_id
        for sample_id, digest in zip(*known.select(["sample_id", "content"]).to_pydict().values(), strict=True)
        if contents.get(sample_id) == digest
    ]
    kept = known.filter(pc.is_in(known["sample_id"], pa.array(same, pa.string())))
    rows: list[dict[str, Any]] = []
    for sample_id in sorted(by_sample.keys() - set(same)):
        measured = registry.rows(task.extractors, samples[sample_id], by_sample[sample_id])
        rows += [row | {"content": contents[sample_id]} for row in measured]
    if task.scheme is not None:
        texts = {trace.id: said(trace) for traces in by_sample.values() for trace in traces}
        signed = sign([texts[row["id"]] for row in rows], task.scheme)
        columns = (signed.digests.tolist(), signed.signatures, signed.names.tolist(), signed.templates.tolist())
        for row, digest, signature, names, template in zip(rows, *columns, strict=True):
            row |= {"words": digest.ljust(16, b"\0"), "signature": signature.tobytes()}
            row |= {"names": names, "template": template}
    table = pa.concat_tables([kept, pa.Table.from_pylist(rows, schema=SCHEMA)]).sort_by("id")
    metadata = {
        _EXTRACTORS: orjson.dumps(registry.identity(task.extractors), option=orjson.OPT_SORT_KEYS),
        _MADE_BY: _made_by(task),
        _FINGERPRINT: task.fingerprint.encode(),
    }
    with digested_path(task.path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(metadata), temporary, compression="zstd", row_group_size=_ROW_GROUP
        )
    return len(table), len(kept)


def _tasks(
    index: PlannedTraces, extractors: tuple[Extractor, ...], folder: Path, scheme: Scheme | None
) -> Iterator[PartitionTask]:
    own = _identity(extractors, scheme)
    for number, digest in enumerate(index.digests):
        yield PartitionTask(
            path=folder / f"part-{number:05d}.parquet",
            fingerprint=fingerprint(own | {"content": f"{digest:032x}"}),
            extractors=extractors,
            scheme=scheme,
            journals=tuple(index.journals),
            samples=index.samples,
            number=number,
            places=np.array(sorted(index.places(index.rows(number))), np.int64).reshape(-1, 2),
        )


def _identity(extractors: tuple[Extractor, ...], scheme: Scheme | None) -> dict[str, Any]:
    """What a row depends on besides its sample and traces."""
    return {
        "extractors": registry.identity(extractors),
        "columns": SCHEMA.names,
        "scheme": None if scheme is None else scheme.as_fields(),
    }


def _made_by(task: PartitionTask) -> bytes:
    return fingerprint(_identity(task.extractors, task.scheme)).encode()


def _content(sample: Sample, traces: list[Trace]) -> bytes:
    return ((content(sample) + sum(map(content, traces))) % (1 << 128)).to_bytes(16)


def _known(task: PartitionTask) -> pa.Table:
    """The rows that an earlier run left, if it measured in the same way."""
    if (_metadata(task.path) or {}).get(_MADE_BY) != _made_by(task):
        return SCHEMA.empty_table()
    return pq.read_table(task.path).replace_schema_metadata(None).cast(SCHEMA)


def _metadata(path: Path) -> dict[bytes, bytes] | None:
    """What a file says of itself; None when there is none or it is damaged."""
    try:
        return dict(pq.read_schema(path).metadata or {}) if is_whole(path) else None
    except (OSError, pa.ArrowException):
        return None


def _in_processes(todo: list[PartitionTask], workers: int, on_done: Callable[[int, int], None]) -> None:
    # Spawned, not forked: the tokenizer and Arrow run threads that do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
        waiting = {pool.submit(measure_partition, task) for task in todo}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    on_done(*future.result())
        except BrokenProcessPool as error:
            raise DistillError(
                "a filter worker died (most likely out of memory); finished partitions are kept: run the same "
                "command again, with fewer filter.workers or a smaller filter.partition_rows"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    # One worker is one core: threads inside would only fight for it.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)
