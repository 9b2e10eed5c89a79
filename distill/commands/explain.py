"""`distill explain`: everything a run knows of one trace.

Reads the journal's record of the trace, its sample, its signals from every table, the decision, and its place in the
dataset and in training. For a run that is not filtered yet it shows the available parts. Reads only the files that
can hold the trace, so a run of a million traces also takes about a second. Before the filter stage has noted the
positions of records, it searches the teacher's journals. Computes nothing. How the facts are laid out is
`distill.commands.explain_text`'s business.
"""

import glob
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
from rapidfuzz.distance import Prefix

from distill.artifacts import layout
from distill.artifacts.json_lines import read_record, records_holding
from distill.artifacts.manifest import Manifest
from distill.commands.explain_scores import student_replies, visual_weights
from distill.commands.explain_text import Explanation, Family, Twin, as_text, fate
from distill.damaged_runs import damage_named
from distill.errors import DataError
from distill.recipe.sections.filter import PAIRS, SIGNAL_NAMES
from distill.recipe.sections.rounds import REPLY
from distill.trace_records.trace_lines import trace_fault
from distill.word_tables import counted

_SHOWN = 5
_FACTS = ("id", "sample_id", "teacher", "k", "domain", "outcome", "finish_reason", "hinted", "signal_errors")
_NO_VALUES = {*_FACTS, "names", "template"}
"""And what the tables remember of texts as numbers; what they remember as bytes is not read at all."""
_STATE = "_state"


def explain_trace(run: Path, trace_id: str) -> str:
    """Everything known of the trace with this id, or with an id that begins so, as text; for the id of a sample, of
    each of its traces. Traces of the rounds of a run are found, too. Raises DataError."""
    prefix = trace_id.strip().lower()
    found = _rounds_with(run, prefix)
    of_sample = [(folder, name) for folder, row in found for name, sample in row if sample == prefix]
    texts = []
    for folder, name in of_sample or [(found[0][0] if found else run, trace_id)]:
        with damage_named(folder):
            texts.append(as_text(gather(folder, name)))
    return "\n\n".join(texts)


def _rounds_with(run: Path, prefix: str) -> list[tuple[Path, list[tuple[str, str]]]]:
    """The rounds, from the first one on, with the traces (id and sample) of which one of both begins so."""
    tables, found = _Tables(), []
    for folder in [run, *sorted((run / layout.ROUNDS).glob("[0-9]*"), key=lambda each: int(each.name))]:
        plan = folder / "generate" / layout.PLAN
        if not prefix or not plan.is_file():
            continue
        condition = "(id >= $1 AND id < $2) OR (sample_id >= $1 AND sample_id < $2)"
        rows = tables.noted([plan], f"{condition} ORDER BY id", *_range(prefix))
        if rows:
            found.append((folder, [(row["id"], row["sample_id"]) for row in rows]))
    return found


def gather(run: Path, trace_id: str) -> Explanation:
    """The facts behind `explain`. Raises DataError naming the nearest ids."""
    generate, folder = run / "generate", run / "filter"
    plan, decisions = generate / layout.PLAN, folder / layout.DECISIONS
    if not plan.is_file():
        raise DataError(f"{run}: there are no traces here; give the directory of a run that has generated some")
    tables = _Tables()
    planned_row, decided = _find_row(tables, [path for path in (decisions, plan) if path.is_file()], trace_id, run)
    name, sample_id = planned_row["id"], planned_row["sample_id"]
    samples = tables.rows([generate / layout.SAMPLES], "id = $1", sample_id)
    if not samples:
        raise DataError(f"{run}: the sample {sample_id} is not there; run the generate stage again")
    record = records(run, {name: planned_row["teacher"]}).get(name)
    if record is None:
        journals = generate / planned_row["teacher"]
        raise DataError(f"{journals}: the trace {name} is planned but no journal holds it; run `distill generate`")
    signals = layout.part_paths(folder / layout.SIGNALS, ".parquet") if decided else []
    side_tables = _side_tables(folder) if decided else {}
    of_question = tables.rows(signals, "sample_id = $1", sample_id) if signals else []
    own = next((row for row in of_question if row["id"] == name), None)
    families = _families(tables, own, signals, side_tables, name, sample_id) if own else []
    families += _without_table(families, _asked_families(folder)) if own else []
    standing = (
        _dataset_rows(tables, folder / layout.DATASET, name, sample_id) if decided and planned_row["selected"] else ()
    )
    return Explanation(
        record=record,
        sample=samples[0],
        decision=planned_row if decided else None,
        families=families,
        errors=orjson.loads(own["signal_errors"] or "{}") if own else {},
        duplicates=_duplicates(of_question, name),
        twins=_twins(tables, side_tables.get("corpus", []), families, name),
        siblings=_siblings(tables, decisions if decided else plan, of_question, name, sample_id),
        rows=standing,
        exports=_exports(folder / "exports") if standing else (),
        arms=_arms(tables, folder / layout.ARM_DATASETS, name) if decided else (),
        visual=visual_weights(run, name),
        replies=student_replies(run, sample_id),
        round=_round(run, samples[0]),
        pair=_pair(tables, folder / layout.ARM_DATASETS / PAIRS / layout.PAIRS_TABLE, name, sample_id),
    )


def records(run: Path, teachers: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The records of traces whose teachers are given, by id; those that no journal holds are left out."""
    generate, found = run / "generate", dict[str, dict[str, Any]]()
    index_path = run / "filter" / layout.SAMPLE_PARTS / layout.PLACES
    ids = sorted(teachers)
    condition = "id BETWEEN $1 AND $2 AND id IN (SELECT unnest($3))"  # the range skips row groups
    for row in _Tables().noted([index_path], condition, ids[0], ids[-1], ids) if index_path.is_file() and ids else ():
        record = read_record(generate / row["journal"], row["start"])
        if record is not None and record.get("id") == row["id"]:
            found[row["id"]] = record
    for name in teachers.keys() - found.keys():
        if (searched := _searched(generate / teachers[name], name)) is not None:
            found[name] = searched
    return found


def _searched(journals: Path, trace_id: str) -> dict[str, Any] | None:
    """The first finished record of a trace in a teacher's journals; an error only if it has no finished record."""
    error = None
    for journal in layout.part_paths(journals, ".jsonl"):
        for record in records_holding(journal, trace_id.encode(), trace_fault):
            if record["id"] == trace_id and record["outcome"] != "error":
                return record
            if record["id"] == trace_id:
                error = error or record
    return error


class _Tables:
    """Rows of Parquet files. The engine skips row groups by their statistics, so files sorted by id are quick."""

    def __init__(self) -> None:
        import duckdb

        self._unreadable = duckdb.Error
        self._connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})

    def rows(
        self,
        paths: Sequence[Path],
        condition: str,
        *values: Any,
        columns: str = "*",
        end: str = "",
        options: str = "",
    ) -> list[dict[str, Any]]:
        """The rows of these files for which an SQL condition holds; columns of bytes are left out."""
        # What would be a pattern in a path is taken literally, and a folder `teacher=big` is no column.
        files = [glob.escape(str(path)) for path in paths]
        source = f"read_parquet(${len(values) + 1}, hive_partitioning = false{options})"
        cursor = self._connection.execute(f"SELECT {columns} FROM {source} WHERE {condition} {end}", [*values, files])
        heads = cursor.description or []
        shown_columns = [index for index, head in enumerate(heads) if str(head[1]) != "BLOB"]
        return [{heads[index][0]: row[index] for index in shown_columns} for row in cursor.fetchall()]

    def noted(self, paths: Sequence[Path], condition: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of files that only save a search; none where such a file cannot be read."""
        try:
            return self.rows(paths, condition, *values)
        except self._unreadable:
            return []


def _find_row(tables: _Tables, paths: Sequence[Path], trace_id: str, run: Path) -> tuple[dict[str, Any], bool]:
    """The only row whose id begins so, and whether it is a decision; a trace newer than the decisions is planned."""
    prefix = trace_id.strip().lower()
    for path in paths if prefix else ():
        rows = tables.rows([path], "id >= $1 AND id < $2", *_range(prefix))
        exact = [row for row in rows if row["id"] == prefix]
        if len(rows) == 1 or exact:
            row = (exact or rows)[0]
            return row, "kept" in row
        if rows:
            listed = ", ".join(sorted(row["id"] for row in rows)[:_SHOWN])
            raise DataError(
                f"{prefix!r} begins {counted(len(rows), 'trace id')} in {run} ({listed}, ...); give more characters"
            )
    for path in paths if prefix else ():
        rows = tables.rows(
            [path], "sample_id >= $1 AND sample_id < $2", *_range(prefix), columns="id", end="ORDER BY id"
        )
        if rows:
            listed = ", ".join(row["id"] for row in rows[:_SHOWN])
            raise DataError(f"{prefix!r} is a sample in {run}; its traces are {listed}")
    near = ", ".join(_nearest_ids(tables, paths[-1], prefix))
    raise DataError(f"no trace {prefix!r} in {run}; the nearest ids are {near or 'none: the run has no traces'}")


def _range(prefix: str) -> tuple[str, str]:
    # A range, not a pattern: whole row groups are skipped by their statistics.
    return prefix, f"{prefix}\U0010ffff"


def _nearest_ids(tables: _Tables, plan: Path, prefix: str) -> list[str]:
    """The ids that share the longest beginning with `prefix`."""
    before = tables.rows([plan], "id < $1", prefix, columns="id", end=f"ORDER BY id DESC LIMIT {_SHOWN}")
    after = tables.rows([plan], "id >= $1", prefix, columns="id", end=f"ORDER BY id LIMIT {_SHOWN}")
    around = [row["id"] for row in before + after]
    return sorted(around, key=lambda trace_id: (-Prefix.similarity(prefix, trace_id), trace_id))[:3]


def _side_tables(folder: Path) -> dict[str, list[Path]]:
    """Tables that are measured across partitions or by a model, by name: those that the finished stage used."""
    tables: dict[str, list[Path]] = {}
    for path in layout.part_paths(folder, ".parquet", below="*"):
        tables.setdefault(path.parent.name, []).append(path)
    tables.pop("signals", None)
    try:
        outputs = orjson.loads((folder / "manifest.json").read_bytes())["outputs"]
    except FileNotFoundError:
        return tables
    return {name: paths for name, paths in tables.items() if f"{name}/{paths[0].name}" in outputs}


def _families(
    tables: _Tables,
    own: dict[str, Any],
    signals: Sequence[Path],
    side_tables: dict[str, list[Path]],
    trace_id: str,
    sample_id: str,
) -> list[Family]:
    """The families of signals that the tables have, with their values: what was not measured has no state."""
    made_by = orjson.loads((pq.read_schema(signals[0]).metadata or {}).get(b"extractors", b"{}"))
    rows = [own]
    for paths in side_tables.values():
        columns = [field.name for field in pq.read_schema(paths[0]) if "binary" not in str(field.type)]
        key, value = ("id", trace_id) if "id" in columns else ("sample_id", sample_id)
        rows += tables.rows(paths, f"{key} = $1", value)[:1] or [dict.fromkeys(columns)]
    families: list[tuple[str, str | None, dict[str, Any]]] = []
    for row in rows:
        for column, value in row.items():
            if column.endswith(_STATE):
                families.append((column.removesuffix(_STATE), value, {}))
            elif column not in _NO_VALUES and families:
                families[-1][2][column] = value
    asked = {*made_by, *side_tables}
    return [
        Family(name=name, state=state, values=values, made_by=made_by.get(name, {}), asked=name in asked)
        for name, state, values in families
    ]


def _without_table(there: Sequence[Family], asked: Collection[str]) -> list[Family]:
    """The project's families that no table has: not asked for, or there was no trace to measure."""
    known = {family.name for family in there}
    return [
        Family(name=name, state=None, values={}, made_by={}, asked=name in asked)
        for name in SIGNAL_NAMES
        if name not in known
    ]


def _asked_families(folder: Path) -> Collection[str]:
    """The families that the finished filter stage was asked for; none where it is unfinished."""
    made = Manifest.read(folder)
    return () if made is None else made.fields.get("filter.signals", ())


def _duplicates(of_question: list[dict[str, Any]], trace_id: str) -> tuple[Twin, ...]:
    """Traces of the question that this one repeats, or that repeat it."""
    repeated = {row["duplicate_of"]: row["duplicate_jaccard"] for row in of_question if row["id"] == trace_id}
    twins = [Twin(id=name, similarity=jaccard, preferred=True) for name, jaccard in repeated.items() if name]
    twins += [
        Twin(id=row["id"], similarity=row["duplicate_jaccard"])
        for row in of_question
        if row["duplicate_of"] == trace_id
    ]
    return tuple(twins)


def _twins(tables: _Tables, corpus: Sequence[Path], families: Sequence[Family], trace_id: str) -> tuple[Twin, ...]:
    """The near duplicates of a trace across the run, the preferred one first; each similarity is to that one."""
    own = next((family.values for family in families if family.name == "corpus"), {})
    if (own.get("corpus_cluster_size") or 0) < 2:
        return ()
    preferred = own["corpus_duplicate_of"] or trace_id
    group = tables.rows(corpus, "corpus_duplicate_of = $1", preferred, end="ORDER BY corpus_jaccard DESC, id")
    twins = [Twin(id=row["id"], similarity=row["corpus_jaccard"]) for row in group]
    twins.insert(0, Twin(id=preferred, similarity=own["corpus_jaccard"], preferred=True))
    return tuple(twin for twin in twins if twin.id != trace_id)


def _siblings(
    tables: _Tables, decisions: Path, of_question: list[dict[str, Any]], trace_id: str, sample_id: str
) -> tuple[tuple[str, str, str], ...]:
    """The other traces of the question, with their teacher and their fate."""
    if of_question:
        # By id, for the decisions are sorted by it.
        placeholders = ", ".join(f"${number}" for number in range(1, len(of_question) + 1))
        rows = tables.rows([decisions], f"id IN ({placeholders})", *(row["id"] for row in of_question))
    else:
        rows = tables.rows([decisions], "sample_id = $1", sample_id)
    siblings = sorted((row for row in rows if row["id"] != trace_id), key=lambda row: (row["teacher"], row["k"]))
    return tuple((row["id"], row["teacher"], fate(row)) for row in siblings)


def _dataset_rows(tables: _Tables, dataset: Path, trace_id: str, sample_id: str) -> tuple[tuple[str, int], ...]:
    """The position of the trace in the dataset: file below the run, and row."""
    paths = sorted((dataset / "train").glob("*.parquet"), key=layout.by_number)
    if not paths:
        return ()
    rows = tables.rows(
        paths,
        "sample_id = $1 AND trace_id = $2",
        sample_id,
        trace_id,
        columns="filename, file_row_number",
        options=", filename = true, file_row_number = true",
    )
    run = dataset.parent.parent
    return tuple((str(Path(row["filename"]).relative_to(run)), row["file_row_number"]) for row in rows)


def _exports(folder: Path) -> tuple[str, ...]:
    """The exports of the dataset: each holds its examples in their order."""
    entries = folder.iterdir() if folder.is_dir() else iter(())
    names = {path.name for path in entries if path.suffix in (".json", ".jsonl") or path.name == "webdataset"}
    return tuple(sorted(names - {"dataset_info.json"}))


def _round(run: Path, sample: Mapping[str, Any]) -> str:
    """The round that a run directory is, and the reply that sent the question back; "" for a run of its own."""
    if run.resolve().parent.name != layout.ROUNDS:
        return ""
    reply = orjson.loads(sample["meta"] or "{}").get(REPLY, "")
    return f"{run.resolve().name}; the student of the round before gave this wrong reply:\n{reply}"


def _pair(tables: _Tables, path: Path, trace_id: str, sample_id: str) -> str:
    """The pair of a trace for a preference stage, or why its question has none; "" where pairs were not made."""
    row = next(iter(tables.rows([path], "sample_id = $1", sample_id)), None) if path.is_file() else None
    if row is None:
        return ""
    lengths = f"{row['chosen_tokens']} and {counted(row['rejected_tokens'], 'token')}"
    if row["reason"] is not None:
        return f"none: {row['reason']}" + (f" (the closest have {lengths})" if row["chosen"] else "")
    roles = {row["chosen"]: "chosen", row["rejected"]: "rejected"}
    own = roles.pop(trace_id, None)
    with_others = " and ".join(f"{other} {role}" for other, role in roles.items())
    return (f"{own}, with {with_others}" if own else f"not in it: {with_others}") + f" ({lengths})"


def _arms(tables: _Tables, folder: Path, trace_id: str) -> tuple[str, ...]:
    paths = sorted(folder.glob("*.parquet"), key=layout.by_number)
    return tuple(path.stem for path in paths if tables.rows([path], "id = $1", trace_id, columns="id"))
