"""The scores that teachers gave texts of one trace, for `distill explain`.

For a stage with `visual`: each word with the mean weight of its tokens, by the settings of the stage; the student's
tokens get the same weights by character. For a stage with `rollouts`: the student's own replies to the question, each
with the mean surprisal of its tokens under the teacher; a stage learns most from replies that surprise the teacher.
Searches the journals of scores for the trace and reads no other line.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from distill.artifacts.json_lines import records_holding
from distill.artifacts.layout import part_paths, rollouts_folder
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.trace_records import scores
from distill.word_tables import counted

_SETTING = "stage.visual."
_WORD = re.compile(r"\S+")


def visual_weights(run: Path, trace_id: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """For each finished training stage that weighed the trace its name, and the lines of the text with weights."""
    shown = []
    for path in sorted((run / "train").glob(f"*/{MANIFEST}")):
        manifest = Manifest.read(path.parent)
        fields = manifest.fields if manifest is not None else {}
        if _SETTING + "strength" not in fields:
            continue
        journals = [journal for name, journal in fields.items() if name.startswith(scores.FIELD)]
        views = {
            record["view"]: record
            for name in journals
            for record in _records_of_text(run / scores.FOLDER / name, trace_id)
        }
        found = scores.visual_gain(views) if len(views) == 2 else None
        if found is not None:
            scored, gain = found
            settings = {name: fields[_SETTING + name] for name in ("strength", "least", "most")}
            shown.append((path.parent.name, _lines(scored, scores.visual_weights(gain, **settings))))
    return tuple(shown)


def student_replies(run: Path, sample_id: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """For each stage that learns from replies to the sample its name, and a line a reply. Raises DataError."""
    shown = []
    for folder in sorted(rollouts_folder(run, "").glob("*/train")):
        stage = folder.parent.name
        lines = tuple(
            f"{_surprisal(run, stage, row['trace_id'])}: {' '.join(row['messages'][-1]['content'].split())}"
            for path in part_paths(folder, ".parquet")
            for row in pq.read_table(
                path, columns=["trace_id", "messages"], filters=[("sample_id", "=", sample_id)]
            ).to_pylist()
        )
        if lines:
            shown.append((stage, lines))
    return tuple(shown)


def _surprisal(run: Path, stage: str, trace_id: str) -> str:
    """What the teacher of a stage gives a reply; of several scores the last."""
    text = "not scored"
    for teacher, journal in (scores.settings(run, stage) or {"journals": {}})["journals"].items():
        for record in _records_of_text(run / scores.FOLDER / journal, trace_id):
            if record["view"] == scores.WITH_IMAGE:
                own = scores.decode(record).values[:, 0]
                text = f"{teacher} gives its {counted(len(own), 'token')} {-own.mean():.2f} nats each"
    return text


def _records_of_text(journal: Path, trace_id: str) -> Iterable[dict[str, Any]]:
    """The scores of a trace."""
    needle = f'"trace":"{trace_id}"'.encode()
    return records_holding(journal, needle, scores.check_score) if journal.is_file() else ()


def _lines(scored: scores.ScoredText, weights: np.ndarray) -> tuple[str, ...]:
    """The text's lines, each word followed by its weight."""
    lines, start = [], 0
    for line in scored.text.splitlines(keepends=True):
        words = []
        for word in _WORD.finditer(line):
            characters = np.arange(start + word.start(), start + word.end())
            tokens = np.searchsorted(scored.ends, characters, side="right")
            words.append(f"{word[0]} [{weights[np.minimum(tokens, len(weights) - 1)].mean():.1f}]")
        lines.append(" ".join(words))
        start += len(line)
    return tuple(lines)
