"""The student's own replies to the question of a trace, for `distill explain`, with what a teacher made of them.

Of every stage with `rollouts`: each reply and the mean surprisal that the teacher gives its tokens. Replies on which
the teacher is surprised are those that the stage learns most from.
"""

from pathlib import Path

import pyarrow.parquet as pq

from distill.artifacts.layout import part_paths, rollouts_folder
from distill.commands.explain_visual import records_of_text
from distill.trace_records import scores


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
        for record in records_of_text(run / scores.FOLDER / journal, trace_id):
            if record["view"] == scores.PICTURE:
                own = scores.decode(record).values[:, 0]
                text = f"{teacher} gives its {len(own):,} tokens {-own.mean():.2f} nats each"
    return text
