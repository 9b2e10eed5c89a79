"""Loss weights of a trace's tokens by what the image adds to their likelihood under a teacher.

Teacher and student may have different tokens: a character has the gain of its teacher token, and a student token has
the mean gain of its characters. Text is aligned in runs of characters that both share; what the student writes
besides (tags, another spelling of the answer) has weight 1. Does not score (teacher/score.py), and does not decide
what a gain weighs (distill/trace_records/scores.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from distill.errors import DataError
from distill.recipe.sections.stages import Stage, Visual
from distill.trace_records import scores
from distill.word_tables import counted
from student.data.encoded_rows import Example
from student.data.teacher_logprobs import Coverage, Decode, align, is_whole_trace

_LEAST_RUN = 8
"""Characters; shorter runs of equal text meet by chance."""


@dataclass(slots=True)
class VisualWeights:
    """Gives rows their weights, and counts which of them have some."""

    visual: Visual
    decode: Decode
    """The student's."""
    scored: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """The lines of the views of each trace."""
    coverage: Coverage = field(default_factory=Coverage)
    unscored: int = 0
    """Traces without a score: each of their tokens weighs 1."""

    @classmethod
    def of_stage(cls, run: Path, stage: Stage, decode: Decode) -> "VisualWeights":
        """The weights of a stage. Raises DataError where its traces were not scored."""
        assert stage.visual is not None
        if scores.settings(run, stage.name) is None:
            raise DataError(
                f"{scores.settings_path(run, stage.name)}: the traces of stage '{stage.name}' are not scored; use "
                "`distill train` or distill.train, which does that first"
            )
        return cls(stage.visual, decode, dict(scores.by_trace(run, stage.name)))

    def weighted(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The rows with their weights; rows of other sources stay as they are."""
        piece_of = lru_cache(maxsize=None)(lambda token: self.decode([token]))
        for example in examples:
            if not is_whole_trace(example):
                yield example
                continue
            views = self.scored.get(example.row.id)
            found = scores.visual_gain(views) if views is not None else None
            if found is None:
                self.unscored += 1
                yield example
                continue
            gain = carry([piece_of(int(token)) for token in example.ids[example.begin :]], *found)
            self.coverage.traces += 1
            self.coverage.tokens += len(gain)
            self.coverage.aligned += int(np.isfinite(gain).sum())
            yield replace(example, weights=self._weights(gain))
        if not self.coverage.aligned:
            raise DataError(
                f"no token of the {counted(self.coverage.traces + self.unscored, 'trace')} has a score "
                f"({counted(self.unscored, 'trace was', 'traces were')} not scored); remove the folder `score` of "
                "the run and train again, or remove [stages.visual]"
            )

    def _weights(self, gain: np.ndarray) -> np.ndarray:
        """float32; 1 where the gain is unknown."""
        known, settings = np.isfinite(gain), self.visual
        weights = np.ones(len(gain), np.float32)
        weights[known] = scores.visual_weights(
            gain[known], strength=settings.strength, least=settings.least, most=settings.most
        )
        return weights


def carry(pieces: list[str], scored: scores.ScoredText, gain: np.ndarray) -> np.ndarray:
    """The gain of each of the student's tokens, whose texts are `pieces`, float64; NaN where a token has none."""
    own, theirs = (np.array([ord(each) for each in text], np.int64) for text in ("".join(pieces), scored.text))
    places = align(own, theirs, least=_LEAST_RUN)
    # The first token that ends behind a character holds it.
    token = np.searchsorted(scored.ends, np.maximum(places, 0), side="right")
    values = np.where(places >= 0, np.append(gain, np.nan)[np.minimum(token, len(gain))], np.nan)
    starts = np.cumsum([0, *map(len, pieces)])
    carried = np.full(len(pieces), np.nan)
    for number, (start, end) in enumerate(pairwise(starts.tolist())):
        of_token = values[start:end]
        if np.isfinite(of_token).any():
            carried[number] = np.nanmean(of_token)
    return carried
