"""Labels that a person gives to traces: RUN/labels/labels.jsonl, one line a label, the last one of a trace counts.

A label is on the disk before the server confirms it. Labels are compared with the judge's verdicts to estimate the
judge's error rates on this run.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.json_lines import TWICE, Damaged
from distill.errors import DataError
from distill.stats.intervals import wilson

Label = Literal["correct", "wrong", "unsure"]
LABELS: Final = get_args(Label)
FILE: Final = "labels/labels.jsonl"
ENOUGH: Final = 100
"""With this number of labels or more, error rates are reliable enough."""
_NOTE_CHARACTERS: Final = 2_000
_NO_LABEL: Final = "it is no label:"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLabel:
    """What a person said of a trace. `blind`: given while the judge's verdict was hidden."""

    trace: str
    label: Label
    note: str = ""
    blind: bool = False
    at: str = ""


def read_labels(run: Path) -> dict[str, TraceLabel]:
    """The last label of every labelled trace; damaged lines are left out.

    Raises DataError for a line that was edited and is no label, or names a key twice: what was meant is not known.
    """
    fields = TraceLabel.__dataclass_fields__
    found: dict[str, TraceLabel] = {}

    def on_damage(line: Damaged) -> None:
        if line.reason.startswith((TWICE, _NO_LABEL)):
            raise DataError(f"{run / FILE}:{line.line}: {line.reason}; correct the line")

    for record in read_jsonl(run / FILE, check=_label_fault, on_damage=on_damage):
        found[record["trace"]] = TraceLabel(**{name: record[name] for name in fields if name in record})
    return found


def _label_fault(record: Mapping[str, Any]) -> str:
    """What keeps a record from being a label; empty when nothing does."""
    if record.get("label") not in LABELS:
        return f"{_NO_LABEL} label = {record.get('label')!r:.60} is none of {', '.join(LABELS)}"
    if not isinstance(record.get("trace"), str):
        return f"{_NO_LABEL} trace = {record.get('trace')!r:.60} is no id"
    for name, kind in (("note", str), ("at", str), ("blind", bool)):
        if not isinstance(record.get(name, kind()), kind):
            return f"{_NO_LABEL} {name} = {record[name]!r:.60} is no {'text' if kind is str else 'true or false'}"
    return ""


class LabelJournal:
    """The labels of a run, open for one writer. A second writer fails with BusyError."""

    def __init__(self, run: Path) -> None:
        self._journal = Journal(run / FILE)
        self.labels = read_labels(run)

    def add(self, values: Mapping[str, Any]) -> TraceLabel:
        """Check and keep a label; it is durable on return. Raises DataError."""
        trace, label, note = values.get("trace"), values.get("label"), values.get("note") or ""
        if not isinstance(trace, str) or not trace:
            raise DataError(f"trace = {trace!r}: a label needs the id of a trace")
        if label not in LABELS:
            raise DataError(f"label = {label!r}: choose one of {', '.join(LABELS)}")
        if not isinstance(note, str) or len(note) > _NOTE_CHARACTERS:
            raise DataError(f"note: a text of at most {_NOTE_CHARACTERS:,} characters")
        at = datetime.now(UTC).isoformat(timespec="seconds")
        new = TraceLabel(trace=trace, label=cast(Label, label), note=note, blind=bool(values.get("blind")), at=at)
        self._journal.append(asdict(new))
        self._journal.flush()
        self.labels[trace] = new
        return new

    def close(self) -> None:
        self._journal.close()


def compare_with_judge(labels: Mapping[str, TraceLabel], verdicts: Mapping[str, str]) -> dict[str, Any]:
    """Error rates of the judge, by the labels `correct` and `wrong` of traces that it judged.

    `false_accept`: judged correct, of those labelled wrong. `false_reject`: judged wrong, of those labelled correct.
    `undecided`: judged undecided, of those labelled correct. Each has `n`, `of`, and where there is a label
    `share` and its Wilson interval `ci95`.
    """
    pairs = [(label.label, verdicts[trace]) for trace, label in labels.items() if trace in verdicts]
    return {
        "labels": len(labels),
        "enough": ENOUGH,
        "blind": sum(label.blind for label in labels.values()),
        "unsure": sum(label.label == "unsure" for label in labels.values()),
        "false_accept": _rate(pairs, "wrong", "correct"),
        "false_reject": _rate(pairs, "correct", "wrong"),
        "undecided": _rate(pairs, "correct", "undecided"),
    }


def _rate(pairs: list[tuple[Label, str]], label: str, verdict: str) -> dict[str, Any]:
    judged = [found for given, found in pairs if given == label]
    n = judged.count(verdict)
    rate: dict[str, Any] = {"n": n, "of": len(judged)}
    return rate | ({"share": n / len(judged), "ci95": wilson(n, len(judged))} if judged else {})
