"""Labels of people as a side table: one row for each trace that was labelled in `distill view`."""

from collections.abc import Mapping
from pathlib import Path

from distill.artifacts.manifest import fingerprint
from distill.trace_records.human_labels import TraceLabel
from filters.signals.base import OK
from filters.signals.schema import HUMAN
from filters.tables import run_signal_tables

VERSION = "1"
"""Raised whenever the same labels could get other values."""
FIELD = "extractors.human.labels"
"""The field of a filter manifest that holds the digest of the labels."""


def identity(labels: Mapping[str, TraceLabel]) -> dict[str, str]:
    """What the values depend on: a digest that changes with every label, and with nothing else."""
    return {
        "version": VERSION,
        "labels": fingerprint({trace: [label.label, label.blind] for trace, label in labels.items()}),
    }


def write(labels: Mapping[str, TraceLabel], folder: Path) -> Path:
    """Write the table; its file."""
    rows = [
        {"id": trace, "human_state": OK, "human_verdict": label.label, "human_blind": label.blind}
        for trace, label in labels.items()
    ]
    path = run_signal_tables.part(folder, 0)
    run_signal_tables.write(path, rows, HUMAN, {run_signal_tables.FINGERPRINT: fingerprint(identity(labels))})
    return path
