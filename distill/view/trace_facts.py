"""Everything that the page shows of one trace, as values that JSON can hold."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.json_lines import record_at
from distill.artifacts.layout import PLAN
from distill.commands.explain import gather
from distill.commands.explain_text import Explanation, fate
from distill.errors import DataError
from distill.trace_records.token_counts import known_usage
from distill.view.trace_table import TraceTable

_SHOWN_PARAMS = ("temperature", "top_p", "max_tokens", "seed")


def trace_facts(table: TraceTable, trace_id: str) -> dict[str, Any]:
    """The facts of a trace by its whole id. Raises DataError where the run has no such trace."""
    place = table.record_place(trace_id)
    if place is not None:
        return _unfiltered(table, *place)
    if not (table.run / "generate" / PLAN).is_file():
        raise DataError(f"no trace {trace_id!r} in {table.run} yet")
    return _filtered(gather(table.run, trace_id))


def _unfiltered(table: TraceTable, journal: Path, start: int) -> dict[str, Any]:
    with journal.open("rb") as file:
        record = record_at(file, start)
    if record is None:
        raise DataError(
            f"{journal}: the record at byte {start:,} is damaged; `distill repair {table.run}` tells more"
        )
    samples = table.samples([record["sample_id"]])
    return _shown(record, samples.get(record["sample_id"], {}), "not filtered yet")


def _filtered(found: Explanation) -> dict[str, Any]:
    reasons = (found.decision or {}).get("reasons") or []
    values = {name: value for family in found.families for name, value in family.values.items()}
    return _shown(found.record, found.sample, fate(found.decision)) | {
        "reasons": [
            {"rule": one["rule"], "condition": one["condition"], "values": orjson.loads(one["values"])}
            for one in reasons
        ],
        "families": [
            {"name": family.name, "state": family.state, "values": dict(family.values)}
            for family in found.families
            if family.state is not None
        ],
        "marks": marks(found.record["reasoning"], values),
        "errors": dict(found.errors or {}),
        "twins": [asdict(twin) for twin in (*found.duplicates, *found.twins)],
        "siblings": [{"id": name, "teacher": teacher, "fate": became} for name, teacher, became in found.siblings],
        "rows": [f"{file}, row {row:,}" for file, row in found.rows],
        "arms": list(found.arms),
    }


def _shown(record: Mapping[str, Any], sample: Mapping[str, Any], became: str) -> dict[str, Any]:
    params = record.get("params") or {}
    return {
        "id": record["id"],
        "sample_id": record["sample_id"],
        "teacher": record["teacher"],
        "k": record["k"],
        "model": record["model"],
        "outcome": record["outcome"],
        "finish_reason": record["finish_reason"],
        "error": record.get("error") or "",
        "latency_s": record["latency_s"],
        "usage": known_usage(record),
        "params": {name: params[name] for name in _SHOWN_PARAMS if name in params},
        "reasoning": record["reasoning"],
        "answer": record["answer"],
        "text": "" if record["reasoning"] or record["answer"] else record["text"],
        "fate": became,
        "question": sample.get("question", ""),
        "gold": list(sample.get("answers") or ()),
        "answer_type": sample.get("answer_type") or "",
        "domain": sample.get("domain") or "",
        "images": len(sample.get("images") or ()),
        "reasons": [],
        "families": [],
        "marks": [],
        "errors": {},
        "twins": [],
        "siblings": [],
        "rows": [],
        "arms": [],
    }


def marks(rationale: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Pieces of a rationale that a signal speaks of: `start` and `end` in characters, `kind` (slip or unsupported),
    and a `note`. Signals keep the first few; a piece that does not stand so in the rationale is left out."""
    found = []
    for claim in _listed(values.get("arithmetic_slip")):
        found += _places(rationale, str(claim["written"]), "slip", f"comes out as {_plain(claim['expected'])}")
    for claim in _listed(values.get("unsupported")):
        expected = ", ".join(map(_plain, claim["expected"]))
        note = f"the table says {expected}" if expected else "the table has no such value"
        found += _places(rationale, str(claim["value"]), "unsupported", note)
    taken: list[dict[str, Any]] = []
    for mark in sorted(found, key=lambda mark: (mark["start"], -mark["end"])):
        if not taken or mark["start"] >= taken[-1]["end"]:
            taken.append(mark)
    return taken


def _listed(value: Any) -> Sequence[Mapping[str, Any]]:
    return orjson.loads(value) if isinstance(value, str) and value.startswith("[") else ()


def _places(rationale: str, piece: str, kind: str, note: str) -> list[dict[str, Any]]:
    """The first place of a piece that is not part of a longer word or number."""
    start = rationale.find(piece)
    while start >= 0 and _inside(rationale, start, start + len(piece)):
        start = rationale.find(piece, start + 1)
    return [{"start": start, "end": start + len(piece), "kind": kind, "note": note}] if start >= 0 else []


def _inside(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    return (before.isalnum() and text[start].isalnum()) or (after.isalnum() and text[end - 1].isalnum())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
