"""The traces of a finished filter stage as arrays, for one policy after another.

A trace is its place among all ids, and a question, a group and a teacher are numbers. What an expression gives for
every trace is computed once and remembered, so a policy with one new rule reads the signals of this rule only.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.layout import DECISIONS
from distill.errors import DataError
from distill.word_tables import counted
from filters.decisions.copies import KINDS
from filters.signals.schema import SIDE
from filters.tables.signal_database import Tables, connect, identifier, null_column

GROUPS = ("teacher", "domain", "difficulty")
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
Replaced = frozenset[str]
"""Names of kinds of copies whose columns say that nothing is repeated."""

_REMEMBERED = 512
"""Expressions; the flags of a million traces need 0.125 MB."""
_PLACE = "place of the trace"
_FIRST_ROWS = 10_000


class TraceArrays:
    """The traces of a filter folder. Codes of questions and groups begin with 0.

    Codes are made from hashes: two of a million questions have the same with a probability of one to 37 million.
    Raises DataError where signals and decisions are of different traces.
    """

    def __init__(self, folder: Path, columns: pa.Schema, *, threads: int | None = None) -> None:
        tables = Tables.of(folder, columns)
        self._sides = tables.side
        self.decisions = folder / DECISIONS
        self.database = connect(tables, more={"decisions": self.decisions}, threads=threads)
        self.count = pq.read_metadata(self.decisions).num_rows
        described = self.database.execute("FROM local LIMIT 0").description or ()
        self.local = {name: str(kind) for name, kind, *_ in described}
        """The columns that no side table has, with their SQL types."""
        named = ", ".join(f"coalesce(nullif({name}, ''), '(none)') AS {name}" for name in GROUPS)
        hashed = f"hash({', '.join(GROUPS)})"
        rows = self.database.execute(f"""
            SELECT hash(id) AS id, hash(sample_id) AS question, {hashed} AS hashed
            FROM (SELECT id, sample_id, {named} FROM local)""").fetchnumpy()
        before = self.database.execute("SELECT hash(id) AS id, kept, selected FROM decisions").fetchnumpy()
        with ThreadPoolExecutor(3) as pool:  # numpy sorts outside the interpreter's lock
            sorts = [pool.submit(np.argsort, each["id"]) for each in (rows, before)]
            coded = pool.submit(_codes, rows["question"])
        place, number = (each.result() for each in sorts)
        self.ids = before["id"][number], number
        """The hashes of all ids, sorted, and the trace that each is of."""
        if not np.array_equal(rows["id"][place], self.ids[0]):
            raise DataError(
                f"{folder}: signals of {counted(len(place), 'trace')} and decisions on {len(number):,}, of which "
                f"{len(np.intersect1d(rows['id'], before['id'])):,} are the same; run `distill filter --fresh`"
            )
        self._number = _at(place, number)
        """The number of the trace at each place of the files."""
        self.was_kept, self.was_selected = before["kept"], before["selected"]
        self.questions, question = coded.result()
        self.question = _at(self._number, question)
        codes, self.groups = self._groups(rows["hashed"], f"SELECT {hashed}, * FROM (SELECT {named} FROM local")
        self.group = _at(self._number, codes)
        self._remembered: OrderedDict[tuple[str, Replaced], NDArray[Any]] = OrderedDict()

    def _groups(self, hashes: NDArray[np.uint64], query: str) -> tuple[Numbers, list[tuple[str, ...]]]:
        """The group of each row, and teacher, domain and difficulty of each group; `query` has them with their hash.

        Few groups have many traces: most are among the first rows, and so not all rows are read again.
        """
        known: dict[int, tuple[str, ...]] = {}
        start, count = 0, _FIRST_ROWS
        while True:
            sorted_hashes = np.array(sorted(known), np.uint64)
            codes = np.searchsorted(sorted_hashes, hashes)
            strange = np.append(sorted_hashes, 0)[codes] != hashes
            strange |= codes == len(known)
            if not strange.any():
                return codes, [known[each] for each in sorted(known)]
            start, count = int(np.argmax(strange)), 8 * count
            rows = self.database.execute(f"{query} LIMIT {count} OFFSET {start})").fetchall()
            known |= {each: tuple(names) for each, *names in rows}

    def is_text(self, column: str) -> bool:
        """Whether the values of a column are texts; its name is in small letters."""
        sides = (field for _, schema in SIDE.values() for field in schema)
        kinds = {field.name.lower(): "VARCHAR" if field.type == pa.string() else "" for field in sides}
        return {**kinds, **{name.lower(): kind for name, kind in self.local.items()}}[column] == "VARCHAR"

    def flags(self, conditions: Mapping[str, Iterable[str]], replaced: Replaced = frozenset()) -> dict[str, Flags]:
        """Whether each condition holds; `conditions` maps its SQL, which is never NULL, to the columns that it reads.

        Those that read the same tables are computed together.
        """
        packed = self.compute(conditions, {}, replaced)
        return {sql: np.unpackbits(packed[sql], count=self.count).view(np.bool_) for sql in conditions}

    def compute(
        self,
        conditions: Mapping[str, Iterable[str]],
        values: Mapping[str, Iterable[str]],
        replaced: Replaced = frozenset(),
    ) -> dict[str, NDArray[Any]]:
        """Conditions, as packed bits, and other expressions: one query for all that read the same tables."""
        every = {**conditions, **values}
        computed = {sql: self._remembered[sql, replaced] for sql in every if (sql, replaced) in self._remembered}
        by_sides: dict[tuple[str, ...], list[str]] = {}
        for sql in every.keys() - computed.keys():
            by_sides.setdefault(self._sides_of(every[sql]), []).append(sql)
        for group in by_sides.values():
            columns = {name for sql in group for name in every[sql]}
            for sql, found in zip(group, self._read(group, columns, replaced), strict=True):
                computed[sql] = np.packbits(found) if sql in conditions else found
        for sql, found in computed.items():
            self._remember((sql, replaced), found)
        return computed

    def values(
        self, sql: str, columns: Iterable[str], replaced: Replaced = frozenset(), *, ordered: bool = True
    ) -> NDArray[Any]:
        """What an expression over these columns gives for every trace; a masked array where one is NULL.

        `ordered`: it is computed row by row, not with a window over all rows.
        """
        if (sql, replaced) not in self._remembered:
            (found,) = self._read([sql], columns, replaced, ordered=ordered)
            self._remember((sql, replaced), found)
        return self._remembered[sql, replaced]

    def source(self, columns: Iterable[str], replaced: Replaced = frozenset(), *, placed: bool = False) -> str:
        """SQL of the table `signals` with these columns, in the order of the files, or `placed` with this place.

        A join or a window may change the order.
        """
        read, sides = {column.lower() for column in columns}, self._sides_of(columns)
        joined = f"(SELECT *, row_number() OVER () - 1 AS {identifier(_PLACE)} FROM local)" if placed else "local"
        joined += "".join(f" LEFT JOIN side_{name} USING ({SIDE[name][0]})" for name in sides)
        missing = [column for name, (_, schema) in SIDE.items() if name not in self._sides for column in schema]
        listed = ["*", *(null_column(column) for column in missing if column.name.lower() in read)]
        sql = f"SELECT {', '.join(listed)} FROM {joined}"
        for kind in KINDS:
            new = [
                f"CASE WHEN true THEN {value} ELSE {column} END AS {column}"
                for column, value in kind.preferred.items()
                if kind.name in replaced and column in read
            ]
            sql = f"SELECT * REPLACE ({', '.join(new)}) FROM ({sql})" if new else sql
        return f"({sql}) AS signals"

    def _read(
        self, expressions: Sequence[str], columns: Iterable[str], replaced: Replaced, *, ordered: bool = True
    ) -> list[NDArray[Any]]:
        columns = list(columns)
        placed = not ordered or bool(self._sides_of(columns))
        listed = ", ".join(f"(\n{sql}\n) AS value_{place}" for place, sql in enumerate(expressions))
        more = f", {identifier(_PLACE)}" if placed else ""
        source = self.source(columns, replaced, placed=placed)
        rows = self.database.execute(f"SELECT {listed}{more} FROM {source}").fetchnumpy()
        number = self._number[rows[_PLACE]] if placed else self._number
        return [_at(number, rows[f"value_{place}"]) for place in range(len(expressions))]

    def _sides_of(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The side tables with files that have one of these columns."""
        read = {column.lower() for column in columns}
        return tuple(
            name for name in SIDE if name in self._sides and any(c.lower() in read for c in SIDE[name][1].names)
        )

    def _remember(self, key: tuple[str, Replaced], values: NDArray[Any]) -> None:
        self._remembered[key] = values
        self._remembered.move_to_end(key)
        while len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)


def _at(places: Numbers, values: NDArray[Any]) -> NDArray[Any]:
    """An array with each value at its place."""
    placed = np.ma.empty(len(values), values.dtype) if np.ma.isMaskedArray(values) else np.empty_like(values)
    placed[places] = values
    return placed


def _codes(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """The different hashes, sorted, and for each one its place among them."""
    different, codes = np.unique(hashes, return_inverse=True)
    return different, codes.astype(np.int32)
