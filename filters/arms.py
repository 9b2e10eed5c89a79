"""Ablation arms: what the student would learn from without the filter's choice. Lists of ids, written by default.

`unfiltered` is every complete trace. `random` is a random part of it with as many tokens as the dataset has, so that
a comparison with it shows what choosing adds, not what size does. The rows themselves are copied only when a stage
of training asks for an arm.
"""

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from distill import artifacts
from distill.artifacts import Manifest, atomic_path
from distill.errors import DataError
from distill.filtering import ARMS
from distill.recipe import Recipe
from filters import dataset
from filters.database import Tables, connect
from filters.traces import index

FOLDER = "arms"
_SCHEMA = pa.schema([("id", pa.string()), ("sample_id", pa.string())])
_ROW_GROUP = 8192

_TOKENS = "coalesce(rationale_tokens, 0) + coalesce(answer_tokens, 0)"
_QUERIES = {
    "unfiltered": "SELECT id, sample_id FROM complete",
    # The part ends with the trace that brings it closest to the dataset's size. Lengths that nobody measured count 1.
    "random": """SELECT id, sample_id FROM (
            SELECT id, sample_id, size, sum(size) OVER (ORDER BY luck, id) AS until FROM complete
        ) WHERE until - size / 2 <= (SELECT sum({size}) FROM signals JOIN decisions USING (id) WHERE selected)""",
}
assert set(_QUERIES) == set(ARMS)


def write(database: duckdb.DuckDBPyConnection, folder: Path, seed: int) -> dict[Path, int]:
    """Write the ids of every arm below `folder`, from a database with `signals` and `decisions`; rows by file."""
    ((measured,),) = database.execute(f"SELECT coalesce(sum({_TOKENS}), 0) > 0 FROM signals").fetchall()
    size = f"({_TOKENS})" if measured else "1"
    database.execute(
        f"""CREATE OR REPLACE TEMP VIEW complete AS
        SELECT signals.id, signals.sample_id, {size} AS size, md5('arm {seed} ' || signals.id) AS luck
        FROM signals JOIN decisions USING (id)
        WHERE outcome = 'complete' AND NOT list_contains([reason.rule for reason in reasons], 'unreadable_image')"""
    )
    written = {}
    for arm, query in _QUERIES.items():
        path = folder / f"{arm}.parquet"
        batches = database.sql(f"{query.format(size=size)} ORDER BY sample_id, id").to_arrow_reader(_ROW_GROUP)
        with atomic_path(path) as temporary, pq.ParquetWriter(temporary, _SCHEMA, compression="zstd") as writer:
            written[path] = 0
            for batch in batches:
                writer.write_table(pa.table(batch).cast(_SCHEMA))
                written[path] += len(batch)
    return written


def materialise(recipe: Recipe, run: Path, arm: str) -> Path:
    """Write the rows of an arm as a dataset to `<run>/filter/arms/<arm>`, unless they are there; returns the folder.

    Raises StaleError when the filter stage is not finished, DataError when the arm is empty.
    """
    filtered = artifacts.require(run, "filter", next_step=f"run `distill filter {recipe.path}` first")
    folder = run / "filter" / FOLDER / arm
    fields = {"filter": filtered.fingerprint, "arm": arm}
    with artifacts.locked(run):
        done = Manifest.read(folder)
        if done is not None and done.fields == fields:
            return folder
        temporary = folder.with_name(f".{arm}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        stage = run / "filter"
        traces = index(run / "generate", stage / "samples", recipe.filter.partition_rows)
        written = dataset.write(
            connect(Tables.of(stage), more={"chosen": stage / FOLDER / f"{arm}.parquet"}),
            traces,
            temporary,
            chosen="SELECT id FROM chosen",
            style=recipe.filter.rationale,
            max_pixels=dataset.max_pixels(recipe),
        )
        if not written.rows:
            raise DataError(
                f"{folder}: the arm {arm} holds no trace that can be trained on; look at the generate stage"
            )
        dataset.replace(temporary, folder)
        Manifest(
            stage=f"filter/{FOLDER}/{arm}",
            fingerprint=artifacts.fingerprint(fields),
            fields=fields,
            inputs={"filter": filtered.fingerprint},
            outputs={name: artifacts.describe(folder / name, rows) for name, rows in sorted(written.files.items())},
            counts={"rows": written.rows, "unreadable": len(written.unreadable)},
        ).write(folder)
    return folder
