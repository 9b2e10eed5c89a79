"""An index of the traces of a run in a store, put together from what agents have read of its units."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distill.errors import DataError
from filters.tables.id_columns import ids_of
from filters.tables.journal_pieces import Maker
from filters.tables.trace_index import PlannedTraces, read_plan, rows_of_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitIndex:
    """The data of an index about some partitions of a run in a store."""

    places: pa.Table
    """The id of each live trace, its journal in the folder of the unit, and where its line starts."""
    journals: Mapping[str, str]
    """What each journal is called in the folder of the whole run."""
    makers: Mapping[Maker, int]


def index_of_units(
    generate: Path, samples: Path, journals: Sequence[str], units: Iterable[UnitIndex], digests: Sequence[int]
) -> tuple[PlannedTraces, NDArray[np.int32]]:
    """What `index` gives, put together from the indexes of units: no journal is read; the unit of each trace, or -1.

    `journals`: the journals of the run by their paths below `generate`; `digests`: the digests of the partitions.
    Raises DataError where units and journals do not belong together.
    """
    planned, _ = read_plan(generate, samples, len(digests))
    planned.journals = [generate / name for name in journals]
    unit_numbers = np.full(len(planned.ids), -1, np.int32)
    numbers = {name: number for number, name in enumerate(journals)}
    units = list(units)
    rows_of_units = rows_of_ids(planned.ids, np.concatenate([ids_of(unit.places["id"]) for unit in units]))
    ends = np.cumsum([len(unit.places) for unit in units])
    for unit_number, (unit, rows) in enumerate(zip(units, np.split(rows_of_units, ends[:-1]), strict=True)):
        encoded = unit.places["journal"].combine_chunks().dictionary_encode()
        names = [unit.journals.get(name, "") for name in encoded.dictionary.to_pylist()]
        if (rows < 0).any() or not numbers.keys() >= set(names):
            raise DataError(f"{generate}: the traces of some units do not belong to the run; filter it again")
        planned.journal[rows] = np.array([numbers[name] for name in names], np.int32)[encoded.indices.to_numpy()]
        planned.start[rows] = unit.places["start"].to_numpy()
        planned.makers.update(unit.makers)
        unit_numbers[rows] = unit_number
    planned.digests = list(digests)
    shutil.rmtree(planned.samples, ignore_errors=True)
    return planned, unit_numbers
