"""The traces of one partition of a run in a store, on this machine while an agent works on them."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.layout import PLAN, SAMPLE_PARTS, SAMPLES
from distill.data import sample_files
from distill.data.images import stored_images
from distill.object_store.interface import ObjectStore
from distill.recipe.recipe import Recipe
from distill.units import image_shards
from distill.units.commits import Commit, Unit, read_file
from distill.units.stored_run import collect_units, generate_units, samples_key, write_bytes
from filters.tables.id_columns import Ids
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
        write_bytes(generate / SAMPLES, store.read(samples_key(partition)))
        self._write_plan(generate)
        brought: set[str] = set()
        if images:
            brought |= image_shards.stored_refs(sample_files.read_samples(generate / SAMPLES)).keys()
            image_shards.fetch_shards(store, self.plan["attempt"], brought, partition)
        yield folder, index(generate, folder / SAMPLE_PARTS, self.recipe.filter.partition_rows, workers)
        stored_images.forget(brought)
        shutil.rmtree(folder)

    def _write_plan(self, generate: Path) -> None:
        """The rows of the run's plan for the samples of a partition."""
        whole = self.scratch / PLAN
        if not whole.exists():
            write_bytes(whole, self.store.read(f"run/generate/{PLAN}"))
        samples = pq.read_table(generate / SAMPLES, columns=["id"])["id"]
        pq.write_table(pq.read_table(whole, filters=pc.field("sample_id").isin(samples)), generate / PLAN)


class SamplePartitions:
    """The partition of every sample that has traces."""

    def __init__(self, names: Sequence[str], sample_ids: Ids, numbers: NDArray[np.int32]) -> None:
        """`numbers` are those of the partitions among the `names`, for each trace; -1 for one that is not there."""
        live = np.flatnonzero(numbers >= 0)
        self._ids, first = np.unique(sample_ids[live], return_index=True)
        self.names, self._numbers = names, numbers[live[first]]

    def numbers(self, sample_ids: Ids) -> NDArray[np.int32]:
        """The partitions that these samples are in, by their numbers among the `names`."""
        return self._numbers[np.searchsorted(self._ids, sample_ids)]


def read_table(store: ObjectStore, unit: Unit, commit: Commit, name: str) -> pa.Table:
    """A table of a committed unit."""
    return pq.read_table(pa.BufferReader(read_file(store, unit, commit, name)))
