"""The traces of a run as one table that a person filters, sorts and counts.

A filtered run is read from its Parquet files: signals, decisions and samples. A run without decisions is read from
its journals, piece by piece, also while `distill generate` writes them. Both have a column for labels of people.
Nothing is written. Conditions have the form of rules: SQL over one trace, checked before it runs.
"""

import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from distill.artifacts.integrity import require_finished
from distill.artifacts.layout import DECISIONS, RECIPE, SAMPLES
from distill.artifacts.manifest import Manifest
from distill.errors import DataError, RecipeError, first_line
from distill.local_paths import as_argument
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import Filter
from distill.view.facets import FACETS, facet_values
from distill.view.filtered_traces import OWN, create_facts, create_scanned, with_labels
from distill.view.trace_journals import FATES, JOURNAL, REPLACED, TraceJournals
from filters.decisions.rules import Condition, check, check_condition
from filters.tables.signal_database import (
    Tables,
    closed_database,
    columns_of,
    connect,
    identifier,
    parquet_rows,
    text,
)

LIMIT_S = 10.0
_INTERRUPT_S = 0.1
"""Between two interrupts of a query when the table is closed."""
_REMEMBERED = 64
_LABELS = "CREATE TEMP TABLE labels (id VARCHAR PRIMARY KEY, label VARCHAR)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search. `chosen`: values by facet; `find`: a text of its shown values; `order`: a column, '-' reverses."""

    where: str = ""
    words: str = ""
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    find: Mapping[str, str] = field(default_factory=dict)
    order: str = ""
    offset: int = 0
    limit: int = 50


class TraceTable:
    """One run. Threads may call the methods at the same time; the database answers one after the other."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.require_run(f"run `distill generate RECIPE --run {as_argument(run)}` first")
        self._lock, self._counting = threading.Lock(), threading.Lock()
        self._labels: dict[str, str] = {}
        self._opened = 0
        """Changes whenever the run is read again: columns and rows may be others since."""
        self._open()

    def require_run(self, step: str = "it was moved or deleted while this page was open") -> None:
        """Raise DataError where the run is gone."""
        if not (self.run / "generate").is_dir():
            raise DataError(f"{self.run}: no run directory with traces; {step}")

    def _open(self) -> None:
        """Read the run as it is now: with its decisions if the filter stage has finished."""
        self._opened, self._aligned = self._opened + 1, False
        folder, samples = self.run / "filter", self.run / "generate" / SAMPLES
        version = _filter_version(self.run)
        self._counts: dict[str, list[dict[str, Any]]] = {}
        """What `_count` has answered since the last change."""
        self.unread = False
        """Whether the journals of a run that is not filtered have records that are not in the table yet."""
        self._checked: tuple[Filter | None, list[Condition]] = None, []
        self.filtered = version is not None
        more = {"samples": samples} if samples.is_file() else {}
        if self.filtered:
            require_finished(self.run, "filter", next_step="run `distill filter` first")
            self._tables = tables = Tables.of(folder)
            self._database = connect(tables, more=more | {"decisions": folder / DECISIONS})
            self.signal_columns = columns_of(tables)
            self.columns = pa.schema([*self.signal_columns, *OWN])
            create_facts(self._database, tables)
        else:
            self._database = closed_database(files=[samples] if more else [])
            self.columns = pa.schema([*JOURNAL, ("domain", pa.string()), *OWN])
            self._read = TraceJournals(self.run / "generate", self._database)
            domain = "samples.domain" if more else "NULL::VARCHAR"
            if more:
                self._database.execute(f"CREATE TEMP VIEW samples AS SELECT * FROM {parquet_rows([samples])}")
            joined = "LEFT JOIN samples ON samples.id = replies.sample_id" if more else ""
            self._database.execute(f"""CREATE TEMP VIEW facts AS SELECT replies.*, {domain} AS domain,
                []::VARCHAR[] AS rules FROM ({FATES}) AS replies {joined}""")
        self._database.execute(_LABELS)
        self._database.execute(f"CREATE TEMP VIEW traces AS {with_labels('facts')}")
        self._has_samples = bool(more)
        self._write_labels(self._labels)
        self._opened += 1
        self.version = version  # last: what failed on the way is tried again

    def refresh(self, at_most: int = sys.maxsize) -> None:
        """Read new records, at most this number, or a filter stage that has finished since.

        Raises DataError where the run is gone.
        """
        self.require_run()
        if self.filtered and _filter_version(self.run) == self.version:
            return  # without waiting for a query
        with self._lock:
            self._open_if_changed()
            if not self.filtered:
                self._counts = {}
                self.unread = not self._read.more(at_most)

    def _open_if_changed(self) -> None:
        if _filter_version(self.run) != self.version:
            self._database.close()
            self._open()

    def close(self) -> None:
        self._database.interrupt()
        # A query whose thread holds the lock may begin only now, after the interrupt.
        while not self._lock.acquire(timeout=_INTERRUPT_S):
            self._database.interrupt()
        try:
            self._database.close()
        finally:
            self._lock.release()

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """The current label of every labelled trace."""
        with self._lock:
            self._counts = {}
            self._labels = dict(labels)
            self._write_labels(self._labels)

    def set_label(self, trace_id: str, label: str) -> None:
        with self._lock:
            self._counts = {}
            self._labels[trace_id] = label
            self._database.execute("INSERT OR REPLACE INTO labels VALUES (?, ?)", [trace_id, label])

    def _write_labels(self, labels: Mapping[str, str]) -> None:
        if labels:
            rows = pa.table({"id": list(labels), "label": list(labels.values())})
            self._database.register("new_labels", rows)
            self._database.execute("INSERT OR REPLACE INTO labels SELECT id, label FROM new_labels")
            self._database.unregister("new_labels")

    def prepare(self) -> None:
        """Count what the first page shows."""
        self._count(*self._condition(Query()), {})

    def search(self, query: Query) -> dict[str, Any]:
        """`total`, the `rows` of one page, and counts of every facet, for the traces that a query asks for.

        `replaced`: the number of attempts in the total that another attempt replaced, so they are no traces of the
        run. Raises RecipeError for a condition that cannot be right, DataError for one that takes too long or fails.
        """
        while True:
            opened = self._opened
            try:
                result = self._search(query)
            except (KeyError, StopIteration, DataError, RecipeError):
                with self._lock:
                    self._open_if_changed()  # the files may belong to another filter stage
                if opened == self._opened:
                    raise
            else:
                if opened == self._opened:
                    return result

    def _search(self, query: Query) -> dict[str, Any]:
        base, values = self._condition(query)
        chosen = self._chosen(query.chosen)
        counts = self._count(base, values, chosen)
        rows = self._page(query, base, values, chosen)
        questions = self.samples([row["sample_id"] for row in rows])
        for row in rows:
            row["question"] = questions.get(row["sample_id"], {}).get("question", "")
        found = {row["facet"]: row["n"] for row in counts if row["facet"] in ("total", "replaced")}
        return {**found, "rows": rows, **facet_values(counts, self._facets(), query.chosen, query.find)}

    def _page(
        self, query: Query, base: str, values: Sequence[Any], chosen: Mapping[str, tuple[str, list[str]]]
    ) -> list[dict[str, Any]]:
        """The rows of one page of the traces that have a condition and chosen values."""
        tokens = "rationale_tokens" if self.filtered else "reasoning_tokens"
        shown = [name for name in ("answer_verdict", tokens) if name in self.columns.names]
        column, order = query.order.removeprefix("-"), ""
        if column:
            if column not in self.columns.names:
                names = ", ".join(self.columns.names)
                raise DataError(f"order = {column!r}: no column of this run; choose one of {names}")
            order = f"{identifier(column)} {'DESC' if query.order.startswith('-') else 'ASC'} NULLS LAST, "
        extra = [*shown, *([column] if column and column not in (*shown, "id", "sample_id", "teacher") else [])]
        listed = ", ".join(["id, sample_id, teacher, domain, k, fate, rules, label", *map(identifier, extra)])
        conditions = [base, *(sql for sql, _ in chosen.values())]
        own = "decisions" if self.filtered else "journal"  # without the joins of `traces`
        ids = self._rows(
            f"SELECT id FROM {own if conditions == ['true'] and not column else self.scanned()} "
            f"WHERE {' AND '.join(conditions)} ORDER BY {order}id LIMIT ? OFFSET ?",
            [*values, *(value for _, value in chosen.values()), query.limit, query.offset],
            limited=base != "true",
        )
        # As constants they are looked for in the files, before the joins.
        among = ", ".join(text(row["id"]) for row in ids) or "NULL"
        return self._rows(f"SELECT {listed} FROM traces WHERE id IN ({among}) ORDER BY {order}id")

    def _count(
        self, base: str, values: Sequence[Any], chosen: Mapping[str, tuple[str, list[str]]]
    ) -> list[dict[str, Any]]:
        """The number of traces of every value of every facet, and of all, for a condition and the chosen values.

        Cached, because another page or another order does not change them.
        """
        with self._counting:  # a second request for the same count waits for the first
            counts, key = self._counts, repr((base, values, chosen))  # after a change of the run there is a new dict
            if key not in counts:
                if len(counts) >= _REMEMBERED:
                    counts.clear()
                counts[key] = self._counted(base, values, chosen)
            return counts[key]

    def _counted(
        self, base: str, values: Sequence[Any], chosen: Mapping[str, tuple[str, list[str]]]
    ) -> list[dict[str, Any]]:
        sides = [f"({sql}) AS {identifier(f'in {name}')}" for name, (sql, _) in chosen.items()]
        names = self._facets()
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
        # The first page does not wait until all rows are side by side.
        view = "traces" if base == "true" and not chosen and not self._aligned else self.scanned()
        return self._rows(
            f"WITH hits AS MATERIALIZED (SELECT {', '.join([narrow, *sides])} FROM {view} WHERE {base}) "
            f"SELECT facet, value, n FROM ({counted} "
            f"UNION ALL SELECT 'total', NULL, count(*) FROM hits WHERE {_all_but('', chosen)} UNION ALL "
            f"SELECT 'replaced', NULL, count(*) FROM hits WHERE fate = {text(REPLACED)} AND {_all_but('', chosen)}) "
            "ORDER BY facet, n DESC, value",
            [*(value for _, value in chosen.values()), *values],
            limited=base != "true",
        )

    def scanned(self) -> str:
        """The view for a query that reads all traces. A filtered run of a million needs 2 s for it, once."""
        with self._lock:
            if self.filtered and not self._aligned:
                try:
                    create_scanned(self._database, self._tables)
                except duckdb.Error as error:
                    raise DataError(f"{self.run}: the traces cannot be read: {first_line(error)}") from None
                self._aligned = True
        return "scanned" if self.filtered else "traces"

    def _facets(self) -> list[str]:
        return [name for name in FACETS if name == "rule" or name in self.columns.names]

    def samples(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Questions by id, with golds and image references."""
        if not ids or not self._has_samples:
            return {}
        rows = self._rows("SELECT * FROM samples WHERE id IN (SELECT unnest(?))", [list(dict.fromkeys(ids))])
        return {row["id"]: row for row in rows}

    def value_range(self, column: str) -> tuple[float, float]:
        """The smallest and the largest finite number of a column; zeros where it has none."""
        listed = "coalesce(min(value), 0) AS low, coalesce(max(value), 0) AS high"
        numbers = f"SELECT {identifier(column)}::DOUBLE AS value FROM {self.scanned()}"
        (row,) = self._rows(f"SELECT {listed} FROM ({numbers}) WHERE isfinite(value)")
        return row["low"], row["high"]

    def holds(self, trace_id: str) -> bool:
        """Whether the run has a trace with this whole id, also one that was not read yet."""
        query = "SELECT 1 FROM facts WHERE id = ? LIMIT 1"
        if not (rows := self._rows(query, [trace_id])) and self.unread:
            self.refresh()
            rows = self._rows(query, [trace_id])
        return bool(rows)

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
            check_condition(query.where, self.columns)
            parts.append(f"coalesce((\n{query.where}\n), false)")
        words = list(dict.fromkeys(query.words.split())) if self._has_samples else []
        if words:
            each = "(contains(question, lower(?)) OR contains(gold, lower(?)))"
            texts = "id, lower(question) AS question, lower(array_to_string(answers, ' ')) AS gold"
            asked = " AND ".join([each] * len(words))
            parts.append(f"sample_id IN (SELECT id FROM (SELECT {texts} FROM samples) WHERE {asked})")
            values += [word for word in words for _ in range(2)]
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

    def _rows(self, sql: str, values: Sequence[Any] = (), *, limited: bool = False) -> list[dict[str, Any]]:
        """The rows of a query; `limited`: a person wrote a part of it, and it may take LIMIT_S seconds."""
        with self._lock:
            timer = threading.Timer(LIMIT_S, self._database.interrupt)
            if limited:
                timer.start()
            try:
                result = self._database.execute(sql, list(values))
                heads = [head[0] for head in result.description or []]
                return [dict(zip(heads, row, strict=True)) for row in result.fetchall()]
            except duckdb.InterruptException:
                raise DataError(f"the query was stopped after {LIMIT_S:g} seconds; use a simpler condition") from None
            except duckdb.Error as error:
                what = "the condition fails on a trace" if limited else f"{self.run}: the traces cannot be read"
                raise DataError(f"{what}: {first_line(error)}") from None
            finally:
                timer.cancel()
                if limited:
                    timer.join()  # or it would stop the next query


def _all_but(facet: str, chosen: Collection[str]) -> str:
    """SQL of whether a hit has the chosen values of all facets but this one, whose values are joined by *or*."""
    return " AND ".join(["true", *(identifier(f"in {name}") for name in chosen if name != facet)])


def _filter_version(run: Path) -> tuple[str, str] | None:
    """A value that changes with every finished filter stage of a run; None while there is none."""
    finished = Manifest.read(run / "filter")
    return None if finished is None else (finished.fingerprint, finished.created)
