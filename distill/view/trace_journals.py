"""The journals of a run that is not filtered as a table, read piece by piece, also while they are written."""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from distill.artifacts.journal import read_jsonl_at
from distill.artifacts.json_lines import read_record
from distill.artifacts.layout import part_paths
from distill.trace_records.token_counts import known_usage
from distill.trace_records.trace_lines import trace_fault

JOURNAL = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "sample_id", "teacher", "outcome", "finish_reason", "answer")),
        *((name, pa.int64()) for name in ("k", "attempt", "reasoning_tokens", "answer_tokens", "start")),
        ("latency_s", pa.float64()),
        ("hinted", pa.bool_()),
        ("draft", pa.string()),
        ("journal", pa.string()),
    ]
)
_BATCH = 2_000
_OF_TRACE = "sample_id, teacher, k, draft"
REPLACED = "replaced by another attempt"
FATES = f"""SELECT journal.*,
    CASE WHEN attempt < last THEN '{REPLACED}' ELSE 'not filtered' END AS fate
    FROM journal LEFT JOIN (SELECT {_OF_TRACE}, max(attempt) AS last FROM journal WHERE attempt > 0 GROUP BY ALL)
    USING ({_OF_TRACE})"""
"""SQL of the journals with the fate of each reply: few are further attempts, so the join is small."""


class TraceJournals:
    """Journals as a table, from where the last call ended. A finished record replaces an error of the same trace."""

    def __init__(self, generate: Path, database: duckdb.DuckDBPyConnection) -> None:
        self._generate, self._database = generate, database
        self._last: dict[Path, tuple[int, str]] = {}
        """First byte and trace of the last record that was read of each journal."""
        self._finished: set[str] = set()
        kinds = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}
        columns = ", ".join(
            f"{column.name} {kinds[column.type]}{' PRIMARY KEY' if column.name == 'id' else ''}" for column in JOURNAL
        )
        database.execute(f"CREATE TEMP TABLE journal ({columns})")

    def more(self, at_most: int) -> bool:
        """Append what was written since, so many records at most; whether nothing is left.

        Where a journal was written again, all are read again.
        """
        if not all(map(self._is_as_read, self._last)):
            self._forget()
        new = self._new()
        try:
            for begin in range(0, at_most, _BATCH):
                size = min(_BATCH, at_most - begin)
                rows = list(islice(new, size))
                self._insert({row["id"]: row for row in rows})
                if len(rows) < size:
                    return True
            return False
        except BaseException:
            self._forget()  # of what was read, some is not in the table
            raise

    def _is_as_read(self, journal: Path) -> bool:
        start, trace = self._last[journal]
        record = read_record(journal, start)
        return record is not None and record.get("id") == trace

    def _forget(self) -> None:
        self._last.clear()
        self._finished.clear()
        self._database.execute("DELETE FROM journal")

    def _new(self) -> Iterator[dict[str, Any]]:
        for journal in part_paths(self._generate, ".jsonl", below="*"):
            begin, _ = self._last.get(journal, (0, ""))
            for start, record in read_jsonl_at(journal, check=trace_fault, on_damage=lambda _: None, begin=begin):
                self._last[journal] = start, record["id"]
                if record["id"] in self._finished:
                    continue
                if record["outcome"] != "error":
                    self._finished.add(record["id"])
                yield _row(record, journal.relative_to(self._generate).as_posix(), start)

    def _insert(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        if rows:
            self._database.register("new_rows", pa.Table.from_pylist(list(rows.values()), schema=JOURNAL))
            self._database.execute("INSERT OR REPLACE INTO journal SELECT * FROM new_rows")
            self._database.unregister("new_rows")


def _row(record: Mapping[str, Any], journal: str, start: int) -> dict[str, Any]:
    row = {name: record[name] for name in JOURNAL.names if name in record}
    usage = known_usage(record)
    return row | {
        "reasoning_tokens": usage["reasoning"],
        "answer_tokens": usage["answer"],
        "hinted": record["hinted"],
        "journal": journal,
        "start": start,
    }
