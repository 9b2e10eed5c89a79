"""Everything that the page shows of one trace, as values that JSON can hold."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.json_lines import read_record
from distill.artifacts.layout import PLAN
from distill.artifacts.manifest import Manifest
from distill.commands.explain import gather, records
from distill.commands.explain_text import Explanation, fate
from distill.errors import DataError
from distill.local_paths import as_argument
from distill.recipe.sections.stages import TRACES, Stage
from distill.trace_records.token_counts import known_usage
from distill.types import Sample
from distill.view.trace_table import TraceTable
from filters.signals.families.grounding import Grounding

_BESIDE = 8
"""Other traces of the question whose texts stand beside a trace."""
_SHOWN_PARAMS = ("temperature", "top_p", "max_tokens", "seed")


def trace_facts(table: TraceTable, trace_id: str) -> dict[str, Any]:
    """The facts of a trace by its whole id. Raises DataError where the run has no such trace."""
    location = table.record_place(trace_id)
    if location is not None:
        return _unfiltered(table, *location)
    if not (table.run / "generate" / PLAN).is_file():
        raise DataError(f"no trace {trace_id!r} in {table.run} yet")
    return _filtered(table, gather(table.run, trace_id))


def _unfiltered(table: TraceTable, journal: Path, start: int) -> dict[str, Any]:
    record = read_record(journal, start)
    if record is None:
        raise DataError(
            f"{journal}: the record at byte {start:,} is damaged; `distill repair {as_argument(table.run)}` shows "
            "the details"
        )
    samples = table.samples([record["sample_id"]])
    others = table.others(record["sample_id"], record["id"])
    return _shown(record, samples.get(record["sample_id"], {}), "not filtered yet") | {
        "siblings": _siblings(
            [(sibling["id"], sibling["teacher"], sibling["outcome"]) for sibling in others],
            {
                sibling["id"]: read_record(*location)
                for sibling in others[:_BESIDE]
                if (location := table.record_place(sibling["id"]))
            },
        )
    }


def _filtered(table: TraceTable, explanation: Explanation) -> dict[str, Any]:
    values = {name: value for family in explanation.families for name, value in family.values.items()}
    return _shown(explanation.record, explanation.sample, fate(explanation.decision)) | {
        "rules": _rules(table, explanation),
        "families": [
            {"name": family.name, "state": family.state, "values": dict(family.values)}
            for family in explanation.families
            if family.state is not None
        ],
        "marks": marks(explanation.record["reasoning"], values, _supported(table, explanation, values)),
        "errors": dict(explanation.errors or {}),
        "twins": [asdict(twin) for twin in (*explanation.duplicates, *explanation.twins)],
        "siblings": _siblings(
            explanation.siblings,
            records(table.run, {name: teacher for name, teacher, _ in explanation.siblings[:_BESIDE]}),
        ),
        "rows": [f"{file}, row {row:,}" for file, row in explanation.rows],
        "arms": list(explanation.arms),
        "student": _student(table, explanation),
        "lines": [
            *([_round(explanation.round)] if explanation.round else []),
            *(
                [f"Weights of its tokens by the image, {stage}", "\n".join(lines)]
                for stage, lines in explanation.visual
            ),
            *([f"Replies of the student, {stage}", "\n".join(lines)] for stage, lines in explanation.replies),
        ],
    }


def _round(told: str) -> list[str]:
    """The round that asked for a trace, and the wrong reply that sent the question back."""
    head, _, reply = told.partition("\n")
    return [f"Round {head.removesuffix(':')}", reply]


def _siblings(
    siblings: Sequence[tuple[str, str, str]], beside: Mapping[str, Mapping[str, Any] | None]
) -> list[dict[str, Any]]:
    """The other traces of a question, with their texts where `beside` has their records."""
    rows: list[dict[str, Any]] = []
    for name, teacher, became in siblings:
        rows.append({"id": name, "teacher": teacher, "fate": became})
        if (record := beside.get(name)) is not None:
            rows[-1] |= {"text": _text(record), "answer": record["answer"]}
    return rows


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
        "error": record["error"],
        "latency_s": record["latency_s"],
        "usage": known_usage(record),
        "params": {name: params[name] for name in _SHOWN_PARAMS if name in params},
        "reasoning": record["reasoning"],
        "answer": record["answer"],
        "text": "" if record["reasoning"] else _text(record),
        "fate": became,
        "question": sample.get("question", ""),
        "gold": list(sample.get("answers") or ()),
        "answer_type": sample.get("answer_type") or "",
        "domain": sample.get("domain") or "",
        "images": len(sample.get("images") or ()),
        "rules": [],
        "families": [],
        "marks": [],
        "errors": {},
        "twins": [],
        "siblings": [],
        "rows": [],
        "arms": [],
        "student": [],
        "lines": [],
    }


def _text(record: Mapping[str, Any]) -> str:
    """The rationale of a record, or the whole reply if it has no rationale and no answer."""
    return str(record["reasoning"] or ("" if record["answer"] else record["text"]))


def _rules(table: TraceTable, explanation: Explanation) -> list[dict[str, Any]]:
    """Every rule of the run with the values of this trace, those that drop it first."""
    if explanation.decision is None:
        return []
    rules = [
        {"rule": each["rule"], "condition": each["condition"], "values": orjson.loads(each["values"]), "drops": True}
        for each in explanation.decision["reasons"] or []
    ]
    failed = {each["rule"] for each in rules}
    passed = [each for each in table.conditions() if each.name not in failed]
    values = table.values(explanation.record["id"], {column for each in passed for column in each.columns})
    return rules + [
        {
            "rule": each.name,
            "condition": each.sql,
            "values": {column: values.get(column) for column in each.columns},
            "drops": False,
        }
        for each in passed
    ]


def _student(table: TraceTable, explanation: Explanation) -> list[str]:
    """The finished training stages that learned from a trace, and its part in a pair."""
    recipe = table.recipe()
    stages = recipe.stages if recipe is not None else ()
    learned = [
        f"learned in stage {stage.name}"
        for stage in stages
        if _learns(stage, explanation) and Manifest.read(table.run / "train" / stage.name)
    ]
    return learned + ([f"pair: {explanation.pair}"] if explanation.pair else [])


def _learns(stage: Stage, explanation: Explanation) -> bool:
    """Whether a trace is among what a stage learns from."""
    if stage.teachers and explanation.record["teacher"] not in stage.teachers:
        return False
    if stage.preference is not None:
        return explanation.pair.startswith(("chosen, ", "rejected, "))
    sets = {TRACES} if explanation.rows else set[str]()
    sets |= {f"{TRACES}:{name}" for name in explanation.arms}
    return bool(sets & {stage.data, *stage.replay})


def _supported(table: TraceTable, explanation: Explanation, values: Mapping[str, Any]) -> Sequence[tuple[int, int]]:
    """The positions of the numbers that the chart's table supports, in a run that has measured this signal."""
    recipe = table.recipe()
    if recipe is None or not values.get("grounding_checked"):
        return ()
    meta = orjson.loads(explanation.sample.get("meta") or "{}")
    sample = Sample(id=explanation.sample["id"], images=(), question=explanation.sample["question"], meta=meta)
    return Grounding.from_recipe(recipe).supported(sample, explanation.record["reasoning"])


def marks(
    rationale: str, values: Mapping[str, Any], supported: Sequence[tuple[int, int]] = ()
) -> list[dict[str, Any]]:
    """Pieces of a rationale that a signal names: `start` and `end` in characters, `kind` (slip, unsupported or
    supported), and a `note`. Signals keep the first few pieces; a piece that is not literally in the rationale is
    left out.
    """
    candidates = []
    for claim in _listed(values.get("arithmetic_slip")):
        candidates += _places(rationale, str(claim["written"]), "slip", f"comes out as {_plain(claim['expected'])}")
    for claim in _listed(values.get("unsupported")):
        expected = ", ".join(map(_plain, claim["expected"]))
        note = f"the table says {expected}" if expected else "the table has no such value"
        candidates += _places(rationale, str(claim["value"]), "unsupported", note, {start for start, _ in supported})
    taken: list[dict[str, Any]] = []
    for mark in sorted(candidates, key=lambda mark: (mark["start"], -mark["end"])):
        if not taken or mark["start"] >= taken[-1]["end"]:
            taken.append(mark)
    taken += [
        {"start": start, "end": end, "kind": "supported", "note": "the table supports it"}
        for start, end in supported
        if all(end <= mark["start"] or start >= mark["end"] for mark in taken)
    ]
    return sorted(taken, key=lambda mark: mark["start"])


def _listed(value: Any) -> Sequence[Mapping[str, Any]]:
    return orjson.loads(value) if isinstance(value, str) and value.startswith("[") else ()


def _places(rationale: str, piece: str, kind: str, note: str, without: Collection[int] = ()) -> list[dict[str, Any]]:
    """The first place of a piece, not as part of a longer word or number, and not at one of `without`."""
    start = rationale.find(piece)
    while start in without or (start >= 0 and _inside(rationale, start, start + len(piece))):
        start = rationale.find(piece, start + 1)
    return [{"start": start, "end": start + len(piece), "kind": kind, "note": note}] if start >= 0 else []


def _inside(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    return (before.isalnum() and text[start].isalnum()) or (after.isalnum() and text[end - 1].isalnum())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
