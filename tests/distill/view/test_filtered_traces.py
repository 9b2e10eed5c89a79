"""The views of a filtered run: a scan has the rows that a search by id finds."""

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from distill.artifacts.layout import DECISIONS, SIGNALS, part_paths
from distill.view.filtered_traces import create_facts, create_scanned, with_labels
from filters.tables.signal_database import Tables, connect


def _views(tables: Tables, decisions: Path) -> duckdb.DuckDBPyConnection:
    database = connect(tables, more={"decisions": decisions})
    create_facts(database, tables)
    database.execute("CREATE TEMP TABLE labels (id VARCHAR PRIMARY KEY, label VARCHAR)")
    database.execute("INSERT INTO labels SELECT id, 'correct' FROM decisions USING SAMPLE 3")
    create_scanned(database, tables)
    return database


def _rows(database: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, object]]:
    return database.sql(f"FROM ({query}) ORDER BY id").to_arrow_table().to_pylist()


@pytest.mark.parametrize("sides", ["all", "none"])
def test_a_scan_has_the_columns_and_rows_that_ids_find(run: Path, sides: str) -> None:
    tables = Tables.of(run / "filter")
    if sides == "none":
        tables = Tables(signals=tables.signals, side={}, columns=tables.columns)
    database = _views(tables, run / "filter" / DECISIONS)
    expected = _rows(database, with_labels("facts"))
    assert len(expected) > 30 and sum(row["label"] is not None for row in expected) == 3
    assert _rows(database, "FROM scanned") == expected
    assert "beside" in str(database.execute("EXPLAIN FROM scanned").fetchall())


def test_files_in_another_order_than_the_decisions_are_joined_to_the_right_rows(run: Path, tmp_path: Path) -> None:
    (source,) = part_paths(run / "filter" / SIGNALS, ".parquet")
    signals, files = pq.read_table(source), []
    for number, rows in enumerate((signals.slice(20), signals.slice(0, 20))):
        files.append(tmp_path / f"{number}.parquet")
        pq.write_table(rows.take(list(range(rows.num_rows))[::-1]), files[-1])
    tables = Tables.of(run / "filter")
    database = _views(
        Tables(signals=tuple(files), side=tables.side, columns=tables.columns), run / "filter" / DECISIONS
    )
    assert _rows(database, "SELECT * EXCLUDE label FROM scanned") == _rows(
        _views(tables, run / "filter" / DECISIONS), "FROM facts"
    )


def test_a_decision_without_signals_is_not_left_out(run: Path, tmp_path: Path) -> None:
    (source,) = part_paths(run / "filter" / SIGNALS, ".parquet")
    pq.write_table(pq.read_table(source).slice(1), tmp_path / "fewer.parquet")
    tables = Tables.of(run / "filter")
    fewer = Tables(signals=(tmp_path / "fewer.parquet",), side=tables.side, columns=tables.columns)
    database = _views(fewer, run / "filter" / DECISIONS)
    counts = "SELECT fate, count(*) FROM {0} GROUP BY fate ORDER BY fate"
    assert (
        database.execute(counts.format("scanned")).fetchall() == database.execute(counts.format("facts")).fetchall()
    )
    assert len(database.execute("FROM scanned").fetchall()) == pq.read_metadata(run / "filter" / DECISIONS).num_rows
