"""Gives weight to those tokens of a student's own replies that its teacher has scored.

The student learns from its own replies only the teacher's distributions (student/data/teacher_logprobs.py), so a
token without one has weight 0, and a reply without one is left out and counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from distill.artifacts.journal import read_jsonl
from distill.recipe.sections.stages import Stage
from distill.trace_records import logprobs, scores
from student.data.encoded_rows import Example
from student.data.teacher_logprobs import align, is_whole_trace

LEFT_OUT = "left_out.jsonl"
"""Beside the rows: a line for each training question that has no reply, with `sample_id` and `reason`."""
NO_GOLD = "no_gold_answer"
"""A question that the student is not asked: an evaluation asks those only that it can judge."""
UNASKED = "unasked"
"""A question that the student cannot be asked: it holds the student's own mark of an image."""
UNSCORED = "unscored"
"""A reply that the teacher could not score, or that shares no run of tokens with what it scored."""


def count_left_out(folder: Path) -> Counter[str]:
    """The numbers of questions without a reply in a stage's folder of rows, by reason."""
    return Counter(line["reason"] for line in read_jsonl(folder / LEFT_OUT))


def scored_alone(run: Path, stage: Stage, dropped: Counter[str], examples: Iterable[Example]) -> Iterator[Example]:
    """The rows of a stage, of replies only those that have a score, with weight 1 for their scored tokens, else 0.

    Reasons for replies left out are added to `dropped`. Replayed rows stay as they are.
    """
    scored = {
        record["id"]: logprobs.decode(record["logprobs"])[0][:, 0].copy()
        for record in scores.of_image(run, stage.name)
    }
    for example in examples:
        if example.row.source != stage.data or not is_whole_trace(example):
            yield example
            continue
        tokens = scored.get(example.row.id)
        weights = None if tokens is None else align(example.ids[example.begin :], tokens) >= 0
        if weights is None or not weights.any():
            dropped[UNSCORED] += 1
            continue
        yield replace(example, weights=weights.astype(np.float32))
