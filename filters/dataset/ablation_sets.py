"""Ablation arms: the training sets without the filter's selection, as lists of trace ids. Written by default.

`unfiltered` is every complete trace. `random` is a random subset of these traces with as many tokens as the dataset.
So a comparison with `random` shows the effect of the selection, not of the size. The rows are copied only when a
training stage needs an arm.
"""

import shutil
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts import manifest
from distill.artifacts.files import atomic_path, describe, locked
from distill.artifacts.integrity import changed, require_finished
from distill.artifacts.layout import ARM_DATASETS, DECISIONS, PAIRS_TABLE, SAMPLE_PARTS
from distill.artifacts.manifest import Manifest
from distill.errors import NothingKept
from distill.local_paths import run_command
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import ARMS, PAIRS
from distill.recipe.sections.rollouts import ROLLOUTS
from distill.word_tables import counted
from filters.dataset import pairs
from filters.dataset import writer as dataset
from filters.tables.id_columns import tables_of_rows
from filters.tables.signal_database import Tables, connect, ranges
from filters.tables.trace_index import index

_SCHEMA = pa.schema([("id", pa.string()), ("sample_id", pa.string())])
_ROW_GROUP = 8192


def write(database: duckdb.DuckDBPyConnection, folder: Path, seed: int) -> dict[Path, int]:
    """Write the ids of every arm below `folder`, from a database with `local` and `decisions`; rows by file."""
    ((measured,),) = database.execute(f"SELECT coalesce(sum({pairs.TOKENS}), 0) > 0 FROM local").fetchall()
    size = pairs.TOKENS if measured else "1"  # without measured lengths every trace counts 1
    # The few that cannot be read are left out of all: a join of all with their decisions would hold all ids.
    database.execute(f"CREATE OR REPLACE TEMP TABLE unreadable AS SELECT id FROM decisions WHERE {pairs.UNREADABLE}")
    database.execute(
        f"""CREATE OR REPLACE TEMP VIEW complete AS
        SELECT id, sample_id, {size} AS size, CAST('0x' || md5('arm {seed} ' || id)[:15] AS BIGINT) AS hash
        FROM local ANTI JOIN unreadable USING (id) WHERE outcome = 'complete'"""
    )
    chosen = "SELECT id FROM decisions WHERE selected"
    ((tokens,),) = database.execute(
        f"SELECT coalesce(sum({size}), 0) FROM local SEMI JOIN ({chosen}) USING (id)"
    ).fetchall()
    ((rows,),) = database.execute("SELECT count(*) FROM local").fetchall()
    last, later = _random_hashes(database, int(tokens))
    of_arm = {"unfiltered": "true", "random": f"(hash <= {last} OR hash IN ({', '.join(map(str, [-1, *later]))}))"}
    written = {}
    for arm in ARMS:
        path = folder / f"{arm}.parquet"
        query = f"SELECT id, sample_id FROM complete WHERE {of_arm[arm]} AND {{}} ORDER BY sample_id, id"
        parts = (
            database.sql(query.format(within.format("sample_id"))).to_arrow_reader(_ROW_GROUP)
            for within in ranges(rows)
        )
        with atomic_path(path) as temporary, pq.ParquetWriter(temporary, _SCHEMA, compression="zstd") as writer:
            written[path] = 0
            for table in tables_of_rows(chain.from_iterable(parts), _ROW_GROUP):
                writer.write_table(table.cast(_SCHEMA))
                written[path] += len(table)
    return written


def _random_hashes(database: duckdb.DuckDBPyConnection, tokens: int) -> tuple[int, list[int]]:
    """The hash up to which all traces fit into `tokens`, and the hashes of later traces that fit into the rest."""
    columns = database.execute("SELECT hash, size FROM complete WHERE size > 0").fetchnumpy()
    order = np.argsort(columns["hash"])
    hashes, sizes = columns["hash"][order], columns["size"][order].astype(np.int64)
    seen = int((np.cumsum(sizes) <= tokens).sum())
    last, left, later = int(hashes[seen - 1]) if seen else -1, tokens - int(sizes[:seen].sum()), list[int]()
    while len(fitting := seen + np.flatnonzero(sizes[seen:] <= left)):
        seen = int(fitting[0]) + 1
        left -= int(sizes[seen - 1])
        later.append(int(hashes[seen - 1]))
    return last, later


def materialise(recipe: Recipe, run: Path, arm: str) -> Path:
    """Write the rows of an arm as a dataset to `<run>/filter/arms/<arm>`, unless they are there; returns the folder.

    Raises StaleError when the filter stage is not finished, NothingKept when the arm is empty.
    """
    filtered = require_finished(run, "filter", next_step=f"run {run_command('filter', recipe.path, run)} first")
    folder = run / "filter" / ARM_DATASETS / arm
    fields = {"filter": filtered.fingerprint, "arm": arm}
    with locked(run):
        done = Manifest.read(folder)
        if done is not None and done.fields == fields and not changed(folder, done.outputs.items()):
            return folder
        temporary = folder.with_name(f".{arm}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        stage = run / "filter"
        path, counts = stage / ARM_DATASETS / f"{arm}.parquet", dict[str, int]()
        chosen = "SELECT id, sample_id FROM chosen"
        if arm == PAIRS:
            path, chosen = temporary / PAIRS_TABLE, pairs.TRACES
            temporary.mkdir(parents=True)
            counts = pairs.write(connect(Tables.of(stage), more={"decisions": stage / DECISIONS}), path)
        traces = index(run / "generate", stage / SAMPLE_PARTS, recipe.filter.partition_rows)
        written = dataset.write(
            connect(Tables.of(stage), more={"chosen": path}), traces, temporary, recipe, chosen=chosen
        )
        if not written.rows:
            raise NothingKept(
                f"{folder}: the arm {arm} holds no trace that can be trained on{_without(counts)}; "
                + (_NO_PAIRS if arm == PAIRS else "look at the generate stage")
            )
        dataset.replace(temporary, folder)
        listed = {PAIRS_TABLE: describe(folder / PAIRS_TABLE)} if counts else {}
        Manifest(
            stage=f"filter/{ARM_DATASETS}/{arm}",
            fingerprint=manifest.fingerprint(fields),
            fields=fields,
            inputs={"filter": filtered.fingerprint},
            outputs=dict(sorted((written.files | listed).items())),
            counts={"rows": written.rows, "unreadable": len(written.unreadable), **counts},
        ).write(folder)
    return folder


_NO_PAIRS = (
    "a pair is a right and a wrong trace of one question: ask for more traces of a question (samples of a teacher), "
    "or at a higher temperature, or leave the stage with preference out"
)


def _without(counts: Mapping[str, int]) -> str:
    """The questions that have no pair, by their reason."""
    said = ", ".join(
        f"{name}: {counted(count, 'question')}" for name, count in counts.items() if count and "tokens" not in name
    )
    return f" ({said})" if said else ""


def materialise_stages(recipe: Recipe, run: Path, only: str | None = None) -> None:
    """Write the rows of every arm that the recipe's stages learn from, or one of them."""
    for stage in recipe.stages:
        _, _, arm = stage.data.partition(":")
        if arm not in ("", ROLLOUTS) and only in (None, stage.name):
            materialise(recipe, run, arm)
