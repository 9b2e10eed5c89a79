"""Run the families of signals over every trace, partition by partition, and keep what is still valid.

A partition file carries the fingerprint of all that its values depend on (extractor versions and parameters, the
partition's traces and samples); one that still agrees is not measured again. Its bytes depend on nothing else.
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

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts import atomic_path, fingerprint
from distill.errors import DistillError
from filters import registry
from filters.registry import Extractor
from filters.traces import Index, Place, read_traces, select_samples

_FINGERPRINT = b"signals_fingerprint"
_ROW_GROUP = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One partition to measure: all that a worker needs to know."""

    path: Path
    fingerprint: str
    extractors: tuple[Extractor, ...]
    journals: tuple[Path, ...]
    samples: Path
    places: tuple[Place, ...]
    sample_ids: frozenset[str]


def measure(
    index: Index,
    extractors: tuple[Extractor, ...],
    folder: Path,
    *,
    workers: int = 1,
    on_done: Callable[[int, bool], None] = lambda rows, reused: None,
) -> list[Path]:
    """Write the signal table of every partition to `folder`; returns the files in order.

    `on_done` hears of every partition: its rows, and whether it was reused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tasks = list(_tasks(index, extractors, folder))
    paths = [task.path for task in tasks]
    for stale in {*folder.glob("*.parquet"), *folder.glob(".*.tmp")} - set(paths):
        stale.unlink()
    todo = []
    for task in tasks:
        if _is_valid(task):
            on_done(len(task.places), True)
        else:
            todo.append(task)
    if workers == 1 or len(todo) <= 1:
        for task in todo:
            on_done(measure_partition(task), False)
    else:
        _in_processes(todo, min(workers, len(todo)), on_done)
    return paths


def measure_partition(task: Task) -> int:
    """Measure one partition and write its file; returns the number of rows."""
    samples = select_samples(task.samples, set(task.sample_ids))
    by_sample: dict[str, list[Any]] = {}
    for trace in read_traces(task.journals, task.places):
        by_sample.setdefault(trace.sample_id, []).append(trace)
    rows: list[dict[str, Any]] = []
    for sample_id in sorted(by_sample):
        rows += registry.rows(task.extractors, samples[sample_id], by_sample[sample_id])
    rows.sort(key=lambda row: row["id"])
    schema = registry.COLUMNS.with_metadata(
        {
            b"extractors": orjson.dumps(registry.identity(task.extractors), option=orjson.OPT_SORT_KEYS),
            _FINGERPRINT: task.fingerprint.encode(),
        }
    )
    with atomic_path(task.path) as temporary:
        pq.write_table(
            pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd", row_group_size=_ROW_GROUP
        )
    return len(rows)


def _tasks(index: Index, extractors: tuple[Extractor, ...], folder: Path) -> Iterator[Task]:
    own = {"extractors": registry.identity(extractors), "columns": registry.COLUMNS.names}
    for number, places in enumerate(index.places):
        yield Task(
            path=folder / f"part-{number:05d}.parquet",
            fingerprint=fingerprint(own | {"content": f"{index.digests[number]:032x}"}),
            extractors=extractors,
            journals=tuple(index.journals),
            samples=index.samples,
            places=tuple(sorted(places.values())),
            sample_ids=frozenset(index.sample_ids[number]),
        )


def _is_valid(task: Task) -> bool:
    try:
        metadata = pq.read_schema(task.path).metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return bool(metadata.get(_FINGERPRINT) == task.fingerprint.encode())


def _in_processes(todo: list[Task], workers: int, on_done: Callable[[int, bool], None]) -> None:
    # Spawned, not forked: the tokenizer and Arrow run threads that do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker) as pool:
        waiting = {pool.submit(measure_partition, task) for task in todo}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    on_done(future.result(), False)
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
