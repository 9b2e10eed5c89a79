"""`distill explain`: everything a run knows of one trace.

Reads the journal that holds the trace, its sample, its signals and the decision on it; a run that is not filtered yet
shows what there is. Looks only where the trace can be, so a large run answers in a second too. Computes nothing.
"""

import mmap
import textwrap
from bisect import bisect_left
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow.dataset as pads

from distill.data import read_samples
from distill.errors import DataError
from distill.types import Sample

_SHOWN = 5
_WIDTH = 100
_FACTS = ("id", "sample_id", "teacher", "k", "domain", "outcome", "finish_reason", "signal_errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of one trace. `signals` and `decision` are None while the run is not filtered."""

    record: dict[str, Any]
    sample: Sample
    signals: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    duplicates: tuple[tuple[str, float], ...] = ()
    """Traces that are duplicates of this one, with their similarity."""
    siblings: tuple[tuple[str, str, str], ...] = field(default=())
    """The other traces of the question: id, teacher, and what became of them."""


def explain(run: Path, trace_id: str) -> str:
    """Everything known of the trace with this id, or with an id that begins so, as text. Raises DataError."""
    return as_text(gather(run, trace_id))


def gather(run: Path, trace_id: str) -> Explanation:
    """The facts behind `explain`. Raises DataError naming the nearest ids."""
    plan, decisions = run / "generate" / "plan.parquet", run / "filter" / "decisions.parquet"
    if not plan.is_file():
        raise DataError(f"{run}: there are no traces here; give the directory of a run that has generated some")
    filtered = decisions.is_file()
    table = pads.dataset(decisions if filtered else plan)
    found = _one(table, trace_id.strip().lower(), run)
    record = _record(run / "generate" / found["teacher"], found["id"])
    samples = list(read_samples(run / "generate" / "samples.parquet", {found["sample_id"]}))
    if not samples:
        raise DataError(f"{run}: the sample {found['sample_id']} is not there; run the generate stage again")
    of_question = table.to_table(filter=pads.field("sample_id") == found["sample_id"]).to_pylist()
    signals = _signals(run / "filter" / "signals", found["sample_id"]) if filtered else []
    return Explanation(
        record=record,
        sample=samples[0],
        signals=next((row for row in signals if row["id"] == found["id"]), None),
        decision=found if filtered else None,
        duplicates=tuple(
            (row["id"], row["duplicate_jaccard"]) for row in signals if row.get("duplicate_of") == found["id"]
        ),
        siblings=tuple((row["id"], row["teacher"], _fate(row)) for row in of_question if row["id"] != found["id"]),
    )


def as_text(known: Explanation) -> str:
    """The facts as plain text, the outcome first."""
    record, sample = known.record, known.sample
    blocks = [
        _pairs(
            [
                ("trace", record["id"]),
                ("became", _fate(known.decision)),
                (
                    "teacher",
                    f"{record['teacher']}, attempt {record['k']}, {record['model']} {record['revision']}".strip(),
                ),
                ("outcome", f"{record['outcome']} (finish reason {record['finish_reason'] or 'unknown'})"),
                *([("error", record["error"])] if record.get("error") else []),
            ]
        ),
        _rules(known.decision),
        _pairs(
            [
                ("sample", sample.id),
                ("domain", sample.domain or "(none)"),
                *(("image", _place(ref)) for ref in sample.images),
                ("question", sample.question),
                ("gold", " | ".join(sample.answers) or "(none)"),
            ]
        ),
        f"reasoning\n{_indented(record['reasoning'] or '(none)')}",
        f"answer\n{_indented(record['answer'] or '(none)')}",
        "" if record["reasoning"] or record["answer"] else f"raw text\n{_indented(record['text'] or '(none)')}",
        _measured(known.signals),
        _listed(
            "duplicates of this trace",
            [f"{other}  similarity {similarity:.3f}" for other, similarity in known.duplicates],
        ),
        _listed(
            "other traces of the question",
            [f"{other}  {teacher:<16}  {fate}" for other, teacher, fate in known.siblings],
        ),
    ]
    return "\n\n".join(block for block in blocks if block)


def _one(table: Any, prefix: str, run: Path) -> dict[str, Any]:
    """The only row whose id begins with `prefix`."""
    rows = table.to_table(filter=_begins("id", prefix)).to_pylist() if prefix else []
    exact = [row for row in rows if row["id"] == prefix]
    if len(rows) == 1 or exact:
        return dict((exact or rows)[0])
    if rows:
        listed = ", ".join(sorted(row["id"] for row in rows)[:_SHOWN])
        raise DataError(f"{prefix!r} begins {len(rows):,} trace ids in {run} ({listed}, ...); give more characters")
    of_sample = (
        table.to_table(filter=_begins("sample_id", prefix), columns=["id"])["id"].to_pylist() if prefix else []
    )
    if of_sample:
        raise DataError(f"{prefix!r} is a sample in {run}; its traces are {', '.join(sorted(of_sample)[:_SHOWN])}")
    near = ", ".join(_nearest(prefix, table.to_table(columns=["id"])["id"].to_pylist()))
    raise DataError(f"no trace {prefix!r} in {run}; the nearest ids are {near or 'none: there is no trace at all'}")


def _begins(column: str, prefix: str) -> Any:
    # A range, not a pattern: whole row groups are skipped by their statistics.
    return (pads.field(column) >= prefix) & (pads.field(column) < f"{prefix}\U0010ffff")


def _nearest(wanted: str, ids: list[str]) -> list[str]:
    """The ids that share the longest beginning with `wanted`."""
    ids = sorted(ids)
    place = bisect_left(ids, wanted)
    around = ids[max(0, place - _SHOWN) : place + _SHOWN]
    return sorted(around, key=lambda other: (-_shared(wanted, other), other))[:3]


def _shared(one: str, other: str) -> int:
    """How many first characters are the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, its) in pairs if mine != its), min(len(one), len(other)))


def _record(folder: Path, trace_id: str) -> dict[str, Any]:
    """The journal's record of a trace: the first finished one; an error only where nothing else came of it."""
    error = None
    for journal in sorted(folder.glob("part-*.jsonl")):
        for record in _mentions(journal, trace_id):
            if record["outcome"] != "error":
                return record
            error = error or record
    if error is None:
        raise DataError(f"{folder}: the trace {trace_id} is planned but no journal holds it; run `distill generate`")
    return error


def _mentions(journal: Path, trace_id: str) -> list[dict[str, Any]]:
    """The records of this id. Searching bytes is a hundred times faster than reading every record."""
    if not journal.stat().st_size:
        return []
    found = []
    with journal.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(trace_id.encode())
        while place >= 0:
            start, end = content.rfind(b"\n", 0, place) + 1, content.find(b"\n", place)
            if end < 0:
                break
            record = orjson.loads(content[start:end])
            if record["id"] == trace_id:
                found.append(record)
            place = content.find(trace_id.encode(), end)
    return found


def _signals(folder: Path, sample_id: str) -> list[dict[str, Any]]:
    files = sorted(str(path) for path in folder.glob("part-*.parquet"))
    if not files:
        return []
    rows: list[dict[str, Any]] = pads.dataset(files).to_table(filter=pads.field("sample_id") == sample_id).to_pylist()
    return rows


def _fate(decision: dict[str, Any] | None) -> str:
    """What became of a trace, in one phrase."""
    if decision is None or "kept" not in decision:
        return "not filtered yet"
    if decision["selected"]:
        return "selected for the dataset"
    if decision["kept"]:
        return f"kept, not selected ({decision['reasons'][0]['condition']})"
    return f"dropped by {', '.join(reason['rule'] for reason in decision['reasons'])}"


def _rules(decision: dict[str, Any] | None) -> str:
    if decision is None or not decision["reasons"]:
        return ""
    lines = []
    for reason in decision["reasons"]:
        values = ", ".join(f"{name} = {_value(value)}" for name, value in orjson.loads(reason["values"]).items())
        lines.append(f"  {reason['rule']}: {values}\n    {reason['condition']}")
    return "\n".join(["failing rules" if not decision["kept"] else "why it was not selected", *lines])


def _measured(signals: dict[str, Any] | None) -> str:
    if signals is None:
        return ""
    lines = [(name, _value(value)) for name, value in signals.items() if name not in _FACTS]
    errors = orjson.loads(signals["signal_errors"] or "{}")
    lines += [(f"error of {name}", text) for name, text in errors.items()]
    return f"signals\n{textwrap.indent(_pairs(lines), '  ')}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)


def _place(ref: Any) -> str:
    return f"{ref.path} [row {ref.row}, {ref.column} {ref.index}]" if ref.column else ref.path


def _pairs(pairs: list[tuple[str, str]]) -> str:
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(
        f"{name:<{width}}  {textwrap.indent(text, ' ' * (width + 2)).lstrip()}".rstrip() for name, text in pairs
    )


def _indented(text: str) -> str:
    lines = (textwrap.fill(line, _WIDTH, initial_indent="  ", subsequent_indent="  ") for line in text.splitlines())
    return "\n".join(lines)


def _listed(head: str, lines: list[str]) -> str:
    return "\n".join([head, *(f"  {line}" for line in lines)]) if lines else ""
