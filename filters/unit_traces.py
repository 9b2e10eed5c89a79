"""The traces of one partition of a run in a store, on this machine while an agent works on them."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.artifacts.layout import PLAN, SAMPLE_PARTS, SAMPLES
from distill.data import sample_files
from distill.data.images import stored_images
from distill.object_store.interface import ObjectStore
from distill.recipe.recipe import Recipe
from distill.units import image_shards
from distill.units.stored_run import collect_units, generate_units, samples_key, write_object
from filters.tables.id_columns import ids_of, order_of
from filters.tables.trace_index import PlannedTraces, index
from filters.tables.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTraces:
    """A finished run in a store, and the scratch folder of an agent."""

    recipe: Recipe
    store: ObjectStore
    plan: Mapping[str, Any]
    scratch: Path

    @contextmanager
    def opened(self, partition: str, *, images: bool, workers: Workers) -> Iterator[tuple[Path, PlannedTraces]]:
        """A folder, with the traces of a partition and, where they are asked for, its images, inside the block."""
        store, folder = self.store, self.scratch / "units" / partition
        shutil.rmtree(folder, ignore_errors=True)  # of an agent that was killed
        generate = folder / "generate"
        collect_units(store, self.plan, folder, generate_units(self.plan, [partition]))
        write_object(generate / SAMPLES, store.read(samples_key(partition)))
        self._write_plan(generate)
        brought: set[str] = set()
        if images:
            brought |= image_shards.stored_refs(sample_files.read_samples(generate / SAMPLES)).keys()
            image_shards.fetch_shards(store, self.plan["attempt"], brought, partition)
        yield folder, index(generate, folder / SAMPLE_PARTS, self.recipe.filter.partition_rows, workers)
        stored_images.forget(brought)
        shutil.rmtree(folder)

    def forget(self) -> None:
        """Remove what earlier commands have left in the scratch folder."""
        shutil.rmtree(self.scratch / "units", ignore_errors=True)
        self._sorted_plan.unlink(missing_ok=True)

    def _write_plan(self, generate: Path) -> None:
        """The rows of the run's plan for the samples of a partition."""
        if not self._sorted_plan.exists():
            self._sort_plan()
        with pa.memory_map(str(self._sorted_plan)) as mapped:
            plan = pa.ipc.open_file(mapped).read_all()
            rows = np.empty(0, np.int64)
            if len(plan):
                planned = ids_of(plan["sample_id"])
                samples = np.sort(ids_of(pq.read_table(generate / SAMPLES, columns=["id"])["id"]))
                first, last = (np.searchsorted(planned, samples, side) for side in ("left", "right"))
                rows = np.concatenate([np.arange(*ends) for ends in zip(first, last, strict=True)] or [rows])
            pq.write_table(plan.take(pa.array(rows)), generate / PLAN)

    @property
    def _sorted_plan(self) -> Path:
        return self.scratch / "plan.arrow"

    def _sort_plan(self) -> None:
        """Write the run's plan in the order of the samples, so that the rows of some are found without the others."""
        plan = pq.read_table(pa.BufferReader(self.store.read(f"run/generate/{PLAN}")))
        if len(plan):
            plan = plan.take(pa.array(order_of(ids_of(plan["sample_id"])))).combine_chunks()
        with atomic_path(self._sorted_plan) as temporary, pa.ipc.new_file(temporary, plan.schema) as writer:
            writer.write_table(plan)


def to_bytes(rows: pa.Table) -> bytes:
    """A table as a stream, which `from_bytes` reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def from_bytes(data: bytes | memoryview) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
