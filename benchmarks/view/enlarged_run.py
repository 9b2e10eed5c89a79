"""A filtered run of as many traces as wanted, copied from a small one under new ids, for the benchmarks of the view.

It has what the page reads: plan, samples, journals, signals in partitions of 10,000 rows, side tables, decisions, and
the places of the records. It has no dataset, report and exports.
"""

import shutil
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import describe
from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import seal
from distill.artifacts.layout import (
    DECISIONS,
    PLACES,
    PLAN,
    RECIPE,
    SAMPLE_PARTS,
    SAMPLES,
    SIGNALS,
    part_path,
    part_paths,
)
from distill.artifacts.manifest import Manifest
from filters.signals.schema import SIDE

_PARTITION_ROWS = 10_000
_IDS = ("id", "sample_id", "duplicate_of", "corpus_duplicate_of")


def enlarge(run: Path, target: Path, traces: int) -> None:
    """Write a run of `traces` traces to `target`."""
    generate, folder = target / "generate", target / "filter"
    sides = {name: files for name in SIDE if (files := part_paths(run / "filter" / name, ".parquet"))}
    for path in (generate, folder / SIGNALS, folder / SAMPLE_PARTS, *(folder / name for name in sides)):
        path.mkdir(parents=True)
    parts = 1 << max(0, -(-traces // _PARTITION_ROWS) - 1).bit_length()
    database = _keys(run, traces, parts)
    _copy(database, [run / "filter" / DECISIONS], folder / DECISIONS)
    _copy(database, [run / "generate" / PLAN], generate / PLAN)
    _copy(database, [run / "generate" / SAMPLES], generate / SAMPLES, key="old_sample")
    signals = part_paths(run / "filter" / SIGNALS, ".parquet")
    for part in range(parts):
        _copy(database, signals, part_path(folder / SIGNALS, part, ".parquet"), where=f"part = {part}")
    outputs = {}
    for name, files in sides.items():
        path = part_path(folder / name, 0, ".parquet")
        _copy(database, files, path, key="old_sample" if SIDE[name][0] == "sample_id" else "old")
        outputs[path.relative_to(folder).as_posix()] = describe(path)
    _journals(run, target, database)
    shutil.copyfile(run / RECIPE, target / RECIPE)
    manifest = Manifest.read(run / "filter")
    assert manifest is not None
    replace(manifest, outputs=outputs).write(folder)  # other files than its own


def _keys(run: Path, traces: int, parts: int) -> duckdb.DuckDBPyConnection:
    """A database with the table `keys`: each trace of the small run with the numbers of its copies."""
    database = duckdb.connect()
    decisions = f"read_parquet('{run / 'filter' / DECISIONS}')"
    ((rows,),) = database.execute(f"SELECT count(*) FROM {decisions}").fetchall()
    part = f"('0x' || md5(sample_id || copy)[:4])::INTEGER * {parts} // 65536"
    database.execute(
        f"CREATE TABLE keys AS SELECT id AS old, sample_id AS old_sample, copy, {part} AS part "
        f"FROM {decisions}, (SELECT range AS copy FROM range({-(-traces // rows)})) ORDER BY copy, id LIMIT {traces}"
    )
    return database


def _copy(
    database: duckdb.DuckDBPyConnection, files: list[Path], path: Path, *, key: str = "old", where: str = "true"
) -> None:
    """Write the rows of these files once for each copy of their trace or sample, sorted by their new ids."""
    source = f"read_parquet({list(map(str, files))}, union_by_name = true)"
    names = [name for name, *_ in database.execute(f"SELECT * FROM {source} LIMIT 0").description or []]
    new = ", ".join(f"md5(source.{name} || keys.copy)[:20] AS {name}" for name in names if name in _IDS)
    own = "id" if "id" in names else "sample_id"
    keys = f"(SELECT DISTINCT {key} AS name, copy FROM keys WHERE {where}) keys"
    database.execute(
        f"COPY (SELECT source.* REPLACE ({new}) FROM {keys} JOIN {source} source ON source.{own} = keys.name "
        f"ORDER BY {own}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
    )


def _journals(run: Path, target: Path, database: duckdb.DuckDBPyConnection) -> None:
    """Write the records of all copies, and the table of their places."""
    copies: dict[str, list[int]] = {}
    for name, copy in database.execute("SELECT old, copy FROM keys").fetchall():
        copies.setdefault(name, []).append(copy)
    places = []
    for source in part_paths(run / "generate", ".jsonl", below="*"):
        name = source.relative_to(run / "generate")
        path = target / "generate" / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            for record in read_jsonl(source):
                for copy in copies.get(record["id"], ()):
                    own = {each: _digest(record[each], copy) for each in ("id", "sample_id")}
                    places.append((own["id"], name.as_posix(), file.tell()))
                    file.write(seal(record | own))
    columns = map(pa.array, zip(*sorted(places), strict=True))
    table = pa.table(dict(zip(("id", "journal", "start"), columns, strict=True)))
    pq.write_table(table, target / "filter" / SAMPLE_PARTS / PLACES, compression="zstd")


def _digest(name: str, copy: int) -> str:
    return md5(f"{name}{copy}".encode(), usedforsecurity=False).hexdigest()[:20]
