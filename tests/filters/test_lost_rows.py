"""A step of `filter` that loses a row ends with an error that says where, also under `python -O`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from servers import stub_server
from worlds import run_fixtures
from worlds.store_worlds import address, small_world

from distill.errors import DistillError, RowsLost
from filters import decision_units, signal_units, stored_dataset
from filters.apply import apply
from filters.decisions import decide
from filters.matching.near_duplicates import LshIndex
from filters.run_signals import corpus_duplicates
from filters.signal_units import SignalUnits
from filters.store_run import filter_in_store
from filters.text.minhash import Scheme
from teacher.store_run import generate_in_store

Function = Callable[..., Any]


def cut_table(path: Path) -> int:
    """Takes the last row of a table."""
    rows = pq.read_table(path)
    pq.write_table(rows.slice(0, len(rows) - 1), path)
    return len(rows) - 1


def after(function: Function, number: int) -> Function:
    """The function, and the table that its argument `number` names has lost a row after it."""
    return lambda *arguments, **named: (function(*arguments, **named), cut_table(arguments[number]))[1]


def cut_signals(index: object, signals: tuple[Path, ...], *arguments: object) -> object:
    cut_table(signals[0])
    return WRITE_CORPUS(index, signals, *arguments)


def cut_copies(units: SignalUnits, unit: object, name: str) -> bytes:
    read = READ_FILE(units, unit, name)
    if name != signal_units._COPIES:
        return read
    return signal_units.compress(b"".join(signal_units.decompress(read).splitlines(keepends=True)[:-1]))


def cut_rows(*arguments: object) -> object:
    rows, tables = SIDE_COLUMNS(*arguments)
    return rows - 1, tables


WRITE_CORPUS, SIDE_COLUMNS = corpus_duplicates.write, stored_dataset.side_columns_of_files
READ_FILE: Function = SignalUnits._read_file


@pytest.mark.parametrize(
    ("module", "name", "losing", "problem"),
    [
        (decide, "decide", after(decide.decide, 3), r"decisions\.parquet: 23 decisions for 24 traces"),
        (corpus_duplicates, "write", cut_signals, r"part-00000\.parquet: signals of 23 traces of 24"),
    ],
)
def test_a_lost_row_ends_the_filter_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str, losing: Function, problem: str
) -> None:
    run_fixtures.generate_folder(tmp_path / "run", *run_fixtures.small_world(tmp_path / "pictures"))
    monkeypatch.setattr(module, name, losing)
    with pytest.raises(RowsLost, match=problem) as caught:
        apply(run_fixtures.recipe(tmp_path, "[filter]\nworkers = 1\n"), tmp_path / "run")
    assert "move the folder filter of the run away" in str(caught.value)


@pytest.mark.parametrize(
    ("module", "name", "losing", "problem"),
    [
        (decision_units, "decide", after(decide.decide, 3), r"signals of \S+: \d+ decisions for \d+ traces"),
        (SignalUnits, "_read_file", cut_copies, r"copies\.jsonl\.zst of \S+: \d+ traces of \d+"),
        (
            stored_dataset,
            "side_columns_of_files",
            cut_rows,
            r"90 rows were selected file by file, 89 from all traces",
        ),
    ],
)
@pytest.mark.usefixtures("short_report")
def test_a_lost_row_ends_the_filter_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, name: str, losing: Function, problem: str
) -> None:
    with stub_server.serve(latency_s=0.0) as url:
        world = small_world(tmp_path, url)
        world.head = '[engine]\nscratch = "scratch"\nunit_rows = 8\nlease_s = 2.0\n[filter]\npartition_rows = 12\n'
        world.head += "rules = []\n[generate]\npatience_s = 2.0"
        generate_in_store(world.recipe(), address(world), tmp_path / "agent")
    monkeypatch.setattr(module, name, losing)
    with pytest.raises(DistillError, match=problem):
        filter_in_store(world.recipe(), address(world), tmp_path / "agent")


def test_a_text_without_a_signature_is_no_part_of_an_index(tmp_path: Path) -> None:
    scheme = Scheme()
    index = LshIndex(folder=tmp_path / "index", scheme=scheme, threshold=0.8)
    digests = np.array([bytes(15) + b"a", bytes(15) + b"b"], "S16")
    piece = np.zeros((1, scheme.width), np.uint32)
    with pytest.raises(RowsLost, match=r"segment-00000: 1 signature for 2 texts"):
        index._write(digests, np.zeros(2, np.uint64), iter([piece]))
