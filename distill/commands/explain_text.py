"""The facts that `distill explain` shows of one trace, and their layout as text: the outcome first.

distill/commands/explain.py collects the facts.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

_WIDTH = 100
_LISTED = 20
_DIGEST_CHARACTERS = 12
_WHY_NO_VALUE = {
    "student": " (filter.student.per_teacher chose other traces)",
    "judge": " (it is only for answers that are left undecided)",
    "human": " (no person has labelled it)",
}
"""Why one trace has no value of a family that others have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of signals on one trace. `state` is None where the trace has no value of it."""

    name: str
    state: str | None
    values: Mapping[str, Any]
    made_by: Mapping[str, Any]
    """Version and parameters of the extractor."""
    asked: bool
    """Whether the recipe asks for the family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """Another trace that says the same."""

    id: str
    similarity: float | None = None
    preferred: bool = False
    """Whether it is the preferred trace of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of one trace. Before `distill filter` it has no decision and no families."""

    record: Mapping[str, Any]
    sample: Mapping[str, Any]
    decision: Mapping[str, Any] | None = None
    families: Sequence[Family] = ()
    errors: Mapping[str, str] | None = None
    """Why families failed on this trace."""
    duplicates: Sequence[Twin] = ()
    """Near duplicates of the same question."""
    twins: Sequence[Twin] = ()
    """Near duplicates across the run, the preferred one first unless it is this one; similarities are to that one."""
    siblings: Sequence[tuple[str, str, str]] = ()
    """The other traces of the question: id, teacher, and what became of them."""
    rows: Sequence[tuple[str, int]] = ()
    """Where it stands in the dataset: file and row, from 0."""
    exports: Sequence[str] = ()
    """Exports of the dataset that contain the trace under its id."""
    arms: Sequence[str] = ()
    """Arms of the ablation that contain it."""
    round: str = ""
    """The round that asked for it, and the student's reply that sent the question back; empty for round 0."""
    pair: str = ""
    """Its part in the pair of its question, or why there is none; empty where no stage learns from pairs."""
    visual: Sequence[tuple[str, Sequence[str]]] = ()
    """Training stages that weigh its tokens by the image, and the lines of its text with these weights."""
    replies: Sequence[tuple[str, Sequence[str]]] = ()
    """Training stages that learn from the student's own replies to its question, and a line for each of them."""


def as_text(explanation: Explanation) -> str:
    """The facts as plain text, the outcome first."""
    record, sample = explanation.record, explanation.sample
    attempt = f", attempt {record['attempt'] + 1}" if record["attempt"] else ""
    author = f"{record['teacher']}, k = {record['k']}{attempt}, {record['model']} {record['revision']}".strip()
    blocks = [
        _pairs(
            [
                ("trace", record["id"]),
                ("became", fate(explanation.decision)),
                *(("where", f"{file}, row {row:,}") for file, row in explanation.rows),
                *([("exports", ", ".join(explanation.exports))] if explanation.exports else []),
                *([("arms", ", ".join(explanation.arms))] if explanation.arms else []),
                *([("round", explanation.round)] if explanation.round else []),
                *([("pair", explanation.pair)] if explanation.pair else []),
                ("teacher", author),
                ("outcome", f"{record['outcome']} (finish reason {record['finish_reason'] or 'unknown'})"),
                *([("error", record["error"])] if record["error"] else []),
            ]
        ),
        _rules(explanation.decision),
        _pairs(
            [
                ("sample", sample["id"]),
                ("domain", sample["domain"] or "(none)"),
                *(("image", _place(ref)) for ref in sample["images"]),
                ("question", sample["question"]),
                ("gold", " | ".join(sample["answers"]) or "(none)"),
            ]
        ),
        f"reasoning\n{_indented(record['reasoning'] or '(none)')}",
        f"answer\n{_indented(record['answer'] or '(none)')}",
        "" if record["reasoning"] or record["answer"] else f"raw text\n{_indented(record['text'] or '(none)')}",
        _measured(explanation),
        *(_listed(f"visual weights in stage {stage}, mean 1", lines) for stage, lines in explanation.visual),
        *(
            _listed(f"the student's replies that stage {stage} learns from", lines)
            for stage, lines in explanation.replies
        ),
        _listed("duplicates within the question", [_twin(twin, "stays") for twin in explanation.duplicates]),
        _listed(
            "near duplicates across the run"
            + ("" if any(twin.preferred for twin in explanation.twins) else " (this one is preferred)"),
            [_twin(twin, "preferred") for twin in explanation.twins],
        ),
        _listed(
            "other traces of the question",
            [f"{sibling}  {teacher:<16}  {became}" for sibling, teacher, became in explanation.siblings],
        ),
    ]
    return "\n\n".join(block for block in blocks if block)


def fate(decision: Mapping[str, Any] | None) -> str:
    """What became of a trace, in one phrase."""
    if decision is None or "kept" not in decision:
        return "not filtered yet"
    if decision["selected"]:
        return "selected for the dataset"
    if decision["kept"]:
        return f"kept, not selected ({decision['reasons'][0]['condition']})"
    return f"dropped by {', '.join(reason['rule'] for reason in decision['reasons'])}"


def _rules(decision: Mapping[str, Any] | None) -> str:
    if decision is None or not decision["reasons"]:
        return ""
    lines = []
    for reason in decision["reasons"]:
        values = ", ".join(f"{name} = {_value(value)}" for name, value in orjson.loads(reason["values"]).items())
        lines.append(f"  {reason['rule']}: {values}\n    {reason['condition']}")
    return "\n".join(["failing rules" if not decision["kept"] else "why it was not selected", *lines])


def _measured(explanation: Explanation) -> str:
    """Every family with its state, how it was measured, and its values."""
    blocks = []
    for family in explanation.families:
        if family.state is None:
            continue
        parameters = sorted(family.made_by.items(), key=lambda entry: (entry[0] != "version", entry[0]))
        made_by = ", ".join(f"{name} {_brief(value)}" for name, value in parameters)
        blocks.append(f"  {family.name}: {family.state}{f' ({made_by})' if made_by else ''}")
        if family.name in (explanation.errors or {}):
            blocks.append(f"    error: {(explanation.errors or {})[family.name]}")
        values = [(name, _value(value)) for name, value in family.values.items()]
        # Values of a family that could not measure are empty, but for the reason.
        if family.state != "ok":
            values = [(name, value) for name, value in values if value != "-"]
        blocks.append(textwrap.indent(_pairs(values), "    "))
    absent = [family for family in explanation.families if family.state is None]
    without = [f"{family.name}{_WHY_NO_VALUE.get(family.name, '')}" for family in absent if family.asked]
    not_asked = [family.name for family in absent if not family.asked]
    blocks += [f"  measured, but not for this trace: {', '.join(without)}"] if without else []
    blocks += [f"  not measured, because filter.signals lacks them: {', '.join(not_asked)}"] if not_asked else []
    return "\n".join(["signals", *(block for block in blocks if block)]) if blocks else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)


def _brief(value: Any) -> str:
    text = _value(value)
    return text if len(text) <= 4 * _DIGEST_CHARACTERS else f"{text[:_DIGEST_CHARACTERS]}..."


def _twin(twin: Twin, role: str) -> str:
    similarity = "" if twin.similarity is None else f"  similarity {twin.similarity:.3f}"
    return f"{twin.id}{similarity}{f'  {role}' if twin.preferred else ''}"


def _place(ref: Mapping[str, Any]) -> str:
    return f"{ref['path']} [row {ref['row']}, {ref['column']} {ref['index']}]" if ref["column"] else str(ref["path"])


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(
        f"{name:<{width}}  {textwrap.indent(text, ' ' * (width + 2)).lstrip()}".rstrip() for name, text in pairs
    )


def _indented(text: str) -> str:
    lines = (textwrap.fill(line, _WIDTH, initial_indent="  ", subsequent_indent="  ") for line in text.splitlines())
    return "\n".join(lines)


def _listed(head: str, lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - _LISTED:,} more"] if len(lines) > _LISTED else []
    return "\n".join([head, *(f"  {line}" for line in [*lines[:_LISTED], *more])]) if lines else ""
