"""The results of a run as tables for programs: traces, signals, the dataset, and the comparison of students.

Tables are Arrow's; `table.to_pandas()` gives a data frame. Everything is read from the files of the run; nothing is
asked, measured or written.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill import packages
from distill.artifacts.integrity import require_finished
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import DATASET, DECISIONS, PLAN, PREDICTIONS, SAMPLES, part_paths
from distill.damaged_runs import damage_named
from distill.errors import DataError
from distill.python_api.arguments import run_folder
from distill.trace_records.token_counts import known_usage
from distill.trace_records.trace_lines import trace_fault
from distill.types import Outcome

if TYPE_CHECKING:
    from datasets import Dataset

_TRACES = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "sample_id", "teacher", "model", "question")),
        ("golds", pa.list_(pa.string())),
        *((name, pa.string()) for name in ("reasoning", "answer", "outcome", "finish_reason")),
        *((name, pa.int64()) for name in ("k", "seed", "prompt_tokens", "image_tokens")),
        *((name, pa.int64()) for name in ("reasoning_tokens", "answer_tokens")),
        ("latency_s", pa.float64()),
        ("hinted", pa.bool_()),
    ]
)
_ROWS = 2_000
"""Traces that become one piece of the table."""
_COMPARED = pa.schema(
    [
        *((name, pa.string()) for name in ("later", "earlier")),
        ("questions", pa.int64()),
        *((name, pa.float64()) for name in ("accuracy_later", "accuracy_earlier", "difference", "low", "high", "p")),
    ]
)


def traces(run: Path | str) -> pa.Table:
    """One row for each trace, with its question and gold answers; for an unfinished run, the traces so far.

    Tokens are counts (null if the server reported none); latency_s is in seconds. Raises DataError if the folder is
    not a run with traces.
    """
    run = run_folder(run)
    folder = run / "generate"
    if not folder.is_dir():
        raise DataError(f"{run}: no run directory with traces; run `distill generate` first")
    with damage_named(run):
        return _traces(folder)


def _traces(folder: Path) -> pa.Table:
    plan = folder / PLAN
    listed = pq.read_table(plan, columns=["id", "teacher"]) if plan.is_file() else None
    final = None if listed is None else dict(zip(*(column.to_pylist() for column in listed.columns), strict=True))
    asked = folder / SAMPLES
    samples = pq.read_table(asked, columns=["id", "question", "answers"]).to_pylist() if asked.is_file() else []
    by_id = {sample["id"]: sample for sample in samples}
    pieces, rows = [], []
    for record in _records(folder, final):
        rows.append(_trace_row(record, by_id.get(record["sample_id"], {})))
        if len(rows) == _ROWS:
            pieces.append(pa.RecordBatch.from_pylist(rows, schema=_TRACES))
            rows = []
    pieces.append(pa.RecordBatch.from_pylist(rows, schema=_TRACES))
    return pa.Table.from_batches(pieces)


def _records(folder: Path, final: Mapping[str, str] | None) -> Iterator[dict[str, Any]]:
    """Each trace once, finished ones first: a trace that failed has a second record if a later run asked again.

    `final` has the teacher of each trace: a trace of a renamed teacher lies in the folder of the former name, too.
    """
    done, failed = set(), {}
    for part in part_paths(folder, ".jsonl", below="*"):
        for record in read_jsonl(part):
            key = str(record.get("id"))
            if trace_fault(record) or key in done or (final is not None and final.get(key) != record.get("teacher")):
                continue
            if record["outcome"] == Outcome.ERROR:
                failed[key] = record
            else:
                done.add(key)
                yield record
    yield from (record for key, record in failed.items() if key not in done)


def _trace_row(record: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[str, Any]:
    known = known_usage(record)
    usage = {f"{part}_tokens": known[part] for part in ("prompt", "image", "reasoning", "answer")}
    about = {"question": sample.get("question"), "golds": sample.get("answers"), "hinted": False}
    row = {**about, **record, **usage}
    return {name: row[name] for name in _TRACES.names}


def signals(run: Path | str) -> pa.Table:
    """One row for each trace: every signal, `kept`, `selected`, and `rules` (the rules that the trace failed).

    `not_selected` in `rules` is not a rule: the trace is kept, but the selection left it out.

    Raises StaleError where `filter` has not finished, DataError where there is no run and for damaged files.
    """
    from filters.tables.signal_database import Tables, connect

    run = _finished(run_folder(run), "filter")
    folder = run / "filter"
    with damage_named(run), closing(connect(Tables.of(folder), more={"decisions": folder / DECISIONS})) as database:
        return database.sql(
            "SELECT signals.*, decisions.kept, decisions.selected, "
            "list_transform(decisions.reasons, lambda reason: reason.rule) AS rules "
            "FROM decisions LEFT JOIN signals ON decisions.id = signals.id"
        ).to_arrow_table()


def dataset(run: Path | str) -> "Dataset":
    """The filtered examples as a `datasets.Dataset`, images decoded on access; needs the extra `train`.

    Raises StaleError where `filter` has not finished, DataError where there is no run and for damaged files.
    """
    run = _finished(run_folder(run), "filter")
    packages.require("distill.dataset", "datasets")
    from datasets import load_dataset

    with damage_named(run):
        return load_dataset(str(run / "filter" / DATASET), split="train")


def compare(*runs: Path | str) -> pa.Table:
    """Compares every two students of one or more evaluated runs, paired by question: one row for each pair of
    students.

    The name of a student is its arm. With several runs it is RUN:ARM, where RUN is the name of the run's folder, or
    its path if two folders have the same name. Only questions that both students answered count. `difference` is
    accuracy, later minus earlier, from -1 to 1; `low` and `high` are the ends of its 95 % interval (Bonett and
    Price), `p` is McNemar's exact test.

    Raises StaleError where `eval` has not finished, DataError where there is no run, for damaged files and for a run
    that is named twice.
    """
    from distill.stats import intervals

    students: dict[str, dict[str, bool]] = {}
    for run, name in _run_names(runs).items():
        _finished(run, "eval")
        before = f"{name}:" if len(runs) > 1 else ""
        for line in read_jsonl(run / "eval" / PREDICTIONS):
            right = line["verdict"] == "correct"
            students.setdefault(f"{before}{line['arm']}", {})[line["sample_id"]] = right
    rows = []
    for earlier, later in combinations(students, 2):
        both = [key for key in students[later] if key in students[earlier]]
        if not both:
            continue
        first, second = ([students[name][key] for key in both] for name in (later, earlier))
        paired = intervals.paired(first, second)
        low, high = paired.ci95
        rows.append(
            {
                "later": later,
                "earlier": earlier,
                "questions": len(both),
                "accuracy_later": sum(first) / len(both),
                "accuracy_earlier": sum(second) / len(both),
                "difference": paired.delta,
                "low": low,
                "high": high,
                "p": paired.p,
            }
        )
    return pa.Table.from_pylist(rows, schema=_COMPARED)


def _finished(run: Path, stage: str) -> Path:
    """The run, once its stage is finished. A path without a run and an unfinished stage have different errors."""
    if not run.is_dir():
        raise DataError(f"{run}: there is no such folder; give the directory of a run")
    require_finished(run, stage, next_step=f"run `distill {stage}` first")
    return run


def _run_names(runs: Sequence[Path | str]) -> dict[Path, str]:
    """Runs by path, each with a name of its own: two folders may have the same one."""
    if not runs:
        raise DataError("no run is given; give the directory of at least one evaluated run")
    paths = [run_folder(run).resolve() for run in runs]
    if twice := [path for path, count in Counter(paths).items() if count > 1]:
        raise DataError(f"{twice[0]}: this run is given twice; give each run once")
    names = Counter(path.name for path in paths)
    return {path: path.name if names[path.name] == 1 else str(path) for path in paths}
