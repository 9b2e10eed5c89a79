"""The traces of a run as one table that a person filters, sorts and counts.

A filtered run is read from its Parquet files: signals, decisions and samples. A run without decisions is read from
its journals, piece by piece, also while `distill generate` writes them. Both have a column for labels of people.
Nothing is written. Conditions are those of the rules: SQL over one trace, checked before it runs.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from distill.artifacts.integrity import require_finished
from distill.artifacts.journal import read_jsonl_at
from distill.artifacts.json_lines import read_record
from distill.artifacts.layout import DECISIONS, RECIPE, SAMPLES, part_paths
from distill.artifacts.manifest import Manifest
from distill.errors import DataError, RecipeError, first_line
from distill.local_paths import as_argument
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import Filter
from distill.trace_records.token_counts import known_usage
from distill.trace_records.trace_lines import trace_fault
from filters.decisions.rules import Condition, check, check_condition
from filters.tables.signal_database import (
    Tables,
    closed_database,
    connect,
    identifier,
    join_aligned,
    parquet_rows,
    text,
)

FACETS = ("fate", "rule", "label", "outcome", "answer_verdict", "arithmetic", "teacher", "domain", "difficulty")
"""Columns whose values are counted and chosen by a click. `rule`: each rule that a trace failed."""
LIMIT_S = 10.0
_FACET_VALUES = 30
_LABELS = "CREATE TEMP TABLE labels (id VARCHAR PRIMARY KEY, label VARCHAR)"
_OWN = pa.schema([("fate", pa.string()), ("label", pa.string())])
_JOURNAL = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "sample_id", "teacher", "outcome", "finish_reason", "answer")),
        *((name, pa.int64()) for name in ("k", "reasoning_tokens", "answer_tokens", "start")),
        ("latency_s", pa.float64()),
        ("hinted", pa.bool_()),
        ("journal", pa.string()),
    ]
)
_BATCH = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search of the page. `chosen`: facet to its chosen values; `order`: a column, a leading '-' reverses."""

    where: str = ""
    words: str = ""
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    order: str = ""
    offset: int = 0
    limit: int = 50


class TraceTable:
    """One run. Threads may call the methods at the same time; the database answers one after the other."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._require_run(f"run `distill generate RECIPE --run {as_argument(run)}` first")
        self._lock = threading.Lock()
        self._labels: dict[str, str] = {}
        self._open()

    def _require_run(self, step: str) -> None:
        if not (self.run / "generate").is_dir():
            raise DataError(f"{self.run}: no run directory with traces; {step}")

    def _open(self) -> None:
        """Read the run as it is now: with its decisions if the filter stage has finished."""
        folder, samples = self.run / "filter", self.run / "generate" / SAMPLES
        version = _filter_version(self.run)
        self._checked: tuple[Filter | None, list[Condition]] = None, []
        self.filtered = version is not None
        more = {"samples": samples} if samples.is_file() else {}
        if self.filtered:
            require_finished(self.run, "filter", next_step="run `distill filter` first")
            tables = Tables.of(folder)
            self._database = connect(tables, more=more | {"decisions": folder / DECISIONS})
            self.signal_columns = tables.columns
            self.columns = pa.schema([*tables.columns, *_OWN])
            # `signals` joins the side tables; without any, rows of the aligned files are put side by side.
            joined = (
                "decisions LEFT JOIN signals ON decisions.id = signals.id"
                if tables.side
                else join_aligned(self._database, "decisions", ["local"]).replace("local", "local AS signals", 1)
            )
            self._database.execute(f"""CREATE TEMP VIEW facts AS SELECT signals.*,
                CASE WHEN decisions.selected THEN 'selected' WHEN decisions.kept THEN 'kept, not selected'
                ELSE 'dropped' END fate,
                list_transform(decisions.reasons, lambda reason: reason.rule) AS rules FROM {joined}""")
        else:
            self._database = closed_database(files=[samples] if more else [])
            self.columns = pa.schema([*_JOURNAL, ("domain", pa.string()), *_OWN])
            self._read = _JournalReader(self.run / "generate", self._database)
            domain = "samples.domain" if more else "NULL::VARCHAR"
            if more:
                self._database.execute(f"CREATE TEMP VIEW samples AS SELECT * FROM {parquet_rows([samples])}")
            joined = "LEFT JOIN samples ON samples.id = journal.sample_id" if more else ""
            self._database.execute(f"""CREATE TEMP VIEW facts AS SELECT journal.*, {domain} AS domain,
                'not filtered' AS fate, []::VARCHAR[] AS rules FROM journal {joined}""")
        self._database.execute(_LABELS)
        self._database.execute(
            "CREATE TEMP VIEW traces AS SELECT facts.*, labels.label FROM facts "
            "LEFT JOIN labels ON labels.id = facts.id"
        )
        self._has_samples = bool(more)
        self._write_labels(self._labels)
        self.version = version  # last: what failed on the way is tried again

    def refresh(self) -> None:
        """Take in new records, or a filter stage that has finished since. Raises DataError where the run is gone."""
        self._require_run("it was moved or deleted while this page was open")
        with self._lock:
            if _filter_version(self.run) != self.version:
                self._database.close()
                self._open()
            if not self.filtered:
                self._read.more()

    def close(self) -> None:
        self._database.close()

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """The current label of every labelled trace."""
        with self._lock:
            self._labels = dict(labels)
            self._write_labels(self._labels)

    def set_label(self, trace_id: str, label: str) -> None:
        with self._lock:
            self._labels[trace_id] = label
            self._database.execute("INSERT OR REPLACE INTO labels VALUES (?, ?)", [trace_id, label])

    def _write_labels(self, labels: Mapping[str, str]) -> None:
        if labels:
            rows = pa.table({"id": list(labels), "label": list(labels.values())})
            self._database.register("new_labels", rows)
            self._database.execute("INSERT OR REPLACE INTO labels SELECT id, label FROM new_labels")
            self._database.unregister("new_labels")

    def search(self, query: Query) -> dict[str, Any]:
        """`total`, the `rows` of one page, and counts of every facet, for the traces that a query asks for.

        Raises RecipeError for a condition that cannot be right, DataError for one that takes too long or fails.
        """
        base, values = self._condition(query)
        chosen = self._chosen(query.chosen)
        sides = [f"({sql}) AS {identifier(f'in {name}')}" for name, (sql, _) in chosen.items()]
        picked = [value for _, value in chosen.values()]
        names = [name for name in FACETS if name == "rule" or name in self.columns.names]
        narrow = ", ".join("rules" if name == "rule" else identifier(name) for name in names)
        counted = " UNION ALL ".join(
            f"SELECT {text(name)} AS facet, value, count(*) AS n FROM "
            + (
                f"(SELECT unnest(rules) AS value FROM hits WHERE {_all_but(name, chosen)})"
                if name == "rule"
                else f"(SELECT {identifier(name)} AS value FROM hits "
                f"WHERE {identifier(name)} IS NOT NULL AND {_all_but(name, chosen)})"
            )
            + " GROUP BY value"
            for name in names
        )
        facets = self._rows(
            f"WITH hits AS MATERIALIZED (SELECT {', '.join([narrow, *sides])} FROM traces WHERE {base}) "
            f"SELECT facet, value, n FROM ({counted} UNION ALL SELECT 'total', NULL, count(*) FROM hits "
            f"WHERE {_all_but('', chosen)}) ORDER BY facet, n DESC, value",
            [*picked, *values],
        )
        total = next(row["n"] for row in facets if row["facet"] == "total")
        tokens = "rationale_tokens" if self.filtered else "reasoning_tokens"
        shown = [name for name in ("answer_verdict", tokens) if name in self.columns.names]
        column = query.order.removeprefix("-")
        if column and column not in self.columns.names:
            raise DataError(
                f"order = {column!r}: no column of this run; choose one of {', '.join(self.columns.names)}"
            )
        order = (
            f"{identifier(column)} {'DESC' if query.order.startswith('-') else 'ASC'} NULLS LAST, " if column else ""
        )
        extra = [*shown, *([column] if column and column not in (*shown, "id", "sample_id", "teacher") else [])]
        listed = ", ".join(["id, sample_id, teacher, domain, k, fate, rules, label", *map(identifier, extra)])
        rows = self._rows(
            f"SELECT {listed} FROM traces WHERE {' AND '.join([base, *(sql for sql, _ in chosen.values())])} "
            f"ORDER BY {order}id LIMIT ? OFFSET ?",
            [*values, *picked, query.limit, query.offset],
        )
        questions = self.samples([row["sample_id"] for row in rows])
        for row in rows:
            row["question"] = questions.get(row["sample_id"], {}).get("question", "")
        grouped: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
        for row in facets:
            if row["facet"] != "total" and len(grouped[row["facet"]]) < _FACET_VALUES:
                grouped[row["facet"]].append((str(row["value"]), row["n"]))
        return {"total": total, "rows": rows, "facets": grouped}

    def samples(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Questions by id, with golds and image references."""
        if not ids or not self._has_samples:
            return {}
        rows = self._rows("SELECT * FROM samples WHERE id IN (SELECT unnest(?))", [list(dict.fromkeys(ids))])
        return {row["id"]: row for row in rows}

    def value_range(self, column: str) -> tuple[float, float]:
        """The smallest and the largest value of a column; zeros where it has none."""
        name = identifier(column)
        (row,) = self._rows(f"SELECT coalesce(min({name}), 0) AS low, coalesce(max({name}), 0) AS high FROM facts")
        return float(row["low"]), float(row["high"])

    def holds(self, trace_id: str) -> bool:
        """Whether the run has a trace with this whole id."""
        return bool(self._rows("SELECT 1 FROM facts WHERE id = ? LIMIT 1", [trace_id]))

    def values(self, trace_id: str, columns: Collection[str]) -> dict[str, Any]:
        listed = ", ".join(identifier(name) for name in sorted(columns)) or "id"
        return next(iter(self._rows(f"SELECT {listed} FROM facts WHERE id = ?", [trace_id])), {})

    def others(self, sample_id: str, trace_id: str) -> list[dict[str, Any]]:
        """The other traces of a question, in a run that is not filtered."""
        query = "SELECT id, teacher, outcome FROM journal WHERE sample_id = ? AND id <> ? ORDER BY teacher, k"
        return self._rows(query, [sample_id, trace_id])

    def recipe(self) -> Recipe | None:
        """The recipe that the run keeps; None where it has none."""
        path = self.run / RECIPE
        return load(path) if path.is_file() else None

    def conditions(self) -> list[Condition]:
        """The checked rules of the run; none without a recipe, or where another recipe made the signals."""
        recipe = self.recipe()
        settings = None if recipe is None else recipe.filter
        if self._checked[0] != settings:  # a check takes 0.07 s
            try:
                conditions = check(settings, self.signal_columns) if settings else []
            except RecipeError:
                conditions = []
            self._checked = settings, conditions
        return self._checked[1]

    def record_place(self, trace_id: str) -> tuple[Path, int] | None:
        """Journal and first byte of a trace's record, in a run that is not filtered."""
        rows = [] if self.filtered else self._rows("SELECT journal, start FROM journal WHERE id = ?", [trace_id])
        return (self.run / "generate" / rows[0]["journal"], rows[0]["start"]) if rows else None

    def verdicts(self, ids: Sequence[str]) -> dict[str, str]:
        """The judge's verdicts on traces, where it gave one."""
        if not self.filtered:
            return {}
        query = "SELECT id, answer_verdict FROM facts WHERE id IN (SELECT unnest(?)) AND answer_verdict IS NOT NULL"
        return {row["id"]: row["answer_verdict"] for row in self._rows(query, [list(ids)])}

    def _condition(self, query: Query) -> tuple[str, list[Any]]:
        parts: list[str] = ["true"]
        values: list[Any] = []
        if query.where.strip():
            check_condition(query.where, self.columns, "condition")
            parts.append(f"coalesce((\n{query.where}\n), false)")
        for word in query.words.split() if self._has_samples else ():
            parts.append(
                "sample_id IN (SELECT id FROM samples WHERE contains(lower(question), lower(?)) "
                "OR contains(lower(array_to_string(answers, ' ')), lower(?)))"
            )
            values += [word, word]
        return " AND ".join(parts), values

    def _chosen(self, chosen: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, list[str]]]:
        """SQL with its value of whether a trace has one of the chosen values, by facet."""
        parts = {}
        for name, wanted in chosen.items():
            if name not in FACETS:
                raise DataError(f"{name!r} is no facet; choose one of {', '.join(FACETS)}")
            if name == "rule":
                sql = "list_has_any(rules, ?)"
            elif name in self.columns.names:
                sql = f"coalesce(list_contains(?, {identifier(name)}), false)"
            else:
                sql = "false AND ? IS NOT NULL"
            parts[name] = sql, list(wanted)
        return parts

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a query, at most LIMIT_S seconds of it."""
        with self._lock:
            timer = threading.Timer(LIMIT_S, self._database.interrupt)
            timer.start()
            try:
                result = self._database.execute(sql, list(values))
                heads = [head[0] for head in result.description or []]
                return [dict(zip(heads, row, strict=True)) for row in result.fetchall()]
            except duckdb.InterruptException:
                raise DataError(f"the query was stopped after {LIMIT_S:g} seconds; ask for less at a time") from None
            except duckdb.Error as error:
                raise DataError(f"the condition fails on a trace: {first_line(error)}") from None
            finally:
                timer.cancel()


def _all_but(facet: str, chosen: Collection[str]) -> str:
    """SQL of whether a hit has the chosen values of all facets but this one, whose values are joined by *or*."""
    return " AND ".join(["true", *(identifier(f"in {name}") for name in chosen if name != facet)])


def _filter_version(run: Path) -> tuple[str, str] | None:
    """A value that changes with every finished filter stage of a run; None while there is none."""
    finished = Manifest.read(run / "filter")
    return None if finished is None else (finished.fingerprint, finished.created)


class _JournalReader:
    """Journals as a table, from where the last call ended. A finished record replaces an error of the same trace."""

    def __init__(self, generate: Path, database: duckdb.DuckDBPyConnection) -> None:
        self._generate, self._database = generate, database
        self._last: dict[Path, tuple[int, str]] = {}
        """First byte and trace of the last record that was read of each journal."""
        self._finished: set[str] = set()
        kinds = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}
        columns = ", ".join(
            f"{column.name} {kinds[column.type]}{' PRIMARY KEY' if column.name == 'id' else ''}"
            for column in _JOURNAL
        )
        database.execute(f"CREATE TEMP TABLE journal ({columns})")

    def more(self) -> None:
        """Append what was written since. Where a journal was written anew, all are read again."""
        if not all(map(self._is_as_read, self._last)):
            self._forget()
        rows: dict[str, dict[str, Any]] = {}
        try:
            for row in self._new():
                rows[row["id"]] = row
                if len(rows) >= _BATCH:
                    self._insert(rows)
                    rows = {}
            self._insert(rows)
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
            self._database.register("new_rows", pa.Table.from_pylist(list(rows.values()), schema=_JOURNAL))
            self._database.execute("INSERT OR REPLACE INTO journal SELECT * FROM new_rows")
            self._database.unregister("new_rows")


def _row(record: Mapping[str, Any], journal: str, start: int) -> dict[str, Any]:
    row = {name: record.get(name) for name in _JOURNAL.names if name in record}
    usage = known_usage(record)
    return row | {
        "reasoning_tokens": usage["reasoning"],
        "answer_tokens": usage["answer"],
        "hinted": record["hinted"],
        "journal": journal,
        "start": start,
    }
