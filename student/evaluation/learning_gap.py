"""Compares a student's replies to rows that it learned with its replies to the test. The result has four states:

- `carries_over`: it answers the test about as well as its own rows.
- `own_rows_only`: it answers its own rows far better, so the cause is a difference between the test and these rows,
  or too few rows.
- `not_learned`: it does not answer its own rows either. The cause is the training, or the form of the questions.
- `unknown`: too few rows, or no clear figures.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from distill.recipe.sections.stages import Stage
from distill.reports.findings import FEWEST, Finding, is_below, share
from distill.stats.intervals import wilson
from distill.word_tables import counted
from student.data.rows import TrainingRow
from student.inference.reply_metrics import Prediction

Learning = Literal["carries_over", "own_rows_only", "not_learned", "unknown"]

_GAP: Final = 0.25
"""Points by which own rows are surely answered better. After one or two epochs some 20 points are usual."""
_LEARNED: Final = 0.65
"""Own rows of which surely fewer are answered were not learned; a healthy short stage reached 85 % of them."""
_MANY_ROWS: Final = 200
_FITTED: Final = 0.9
"""Share of tokens for which the right one is the likeliest, from which the stage has surely taken hold."""


def learning(learned: Sequence[Prediction], replies: Sequence[Prediction]) -> Learning:
    if min(len(learned), len(replies)) < FEWEST:
        return "unknown"
    if _surely_ahead(_right(learned), len(learned), _right(replies), len(replies)) > _GAP:
        return "own_rows_only"
    if is_below(_right(learned), len(learned), _LEARNED):
        return "not_learned"
    return "carries_over"


def _right(replies: Sequence[Prediction]) -> int:
    return sum(reply["verdict"] == "correct" for reply in replies)


def _surely_ahead(first: int, of_first: int, second: int, of_second: int) -> float:
    """The lower end of the interval of the difference of two shares (Newcombe 1998, method 10)."""
    share_first, share_second = first / of_first, second / of_second
    below, above = share_first - wilson(first, of_first)[0], wilson(second, of_second)[1] - share_second
    return share_first - share_second - math.hypot(below, above)


def figures(arm: str, learned: Sequence[Prediction], replies: Sequence[Prediction]) -> str:
    """Both shares, as the beginning of a sentence."""
    own = share(_right(learned), len(learned), "rows that it learned")
    return f"{arm} answers {own}, and {share(_right(replies), len(replies), 'questions of the test')}"


def of_own_rows(
    arm: str,
    stage: Stage,
    learned: Sequence[Prediction],
    replies: Sequence[Prediction],
    rows: Sequence[TrainingRow],
    *,
    test: str,
    is_bad: bool,
) -> Iterator[Finding]:
    """What a student does that answers its own rows alone; no fault where the test's result is not bad.

    For a test whose questions, answers and images each look like those of the rows.
    """
    if learning(learned, replies) != "own_rows_only":
        return
    own = [row for row in rows if row.source == stage.data]
    asked = len({row.sample_id for row in own})
    images = len({ref.sha256 for row in own for ref in row.images})
    of_images = f" about {counted(images, 'image')}" if images else ""
    if asked < _MANY_ROWS:
        why = f"it has learned its {counted(asked, 'question')}{of_images} by heart"
        change = f"data.questions: more different questions and images, or fewer epochs in stages.{stage.name}"
    elif 2 * _right(replies) * len(learned) < _right(learned) * len(replies):
        why = (
            "it has learned, and questions, answers and images of the test each look like those that it learned, so "
            "they may not belong together"
        )
        change = f"data.{test}: its columns of image, question and answer; look at some rows with `distill view`"
    else:
        why = "it has learned, but does not generalise to the test"
        change = "data.questions or the test: both need the same kinds of questions, answers and images"
    yield Finding(
        name="own_rows_only",
        kind="fault" if is_bad else "open",
        problem=f"{figures(arm, learned, replies)}: {why}",
        certainty="likely",
        change=change,
    )


def of_no_learning(
    arm: str,
    stage: Stage,
    learned: Sequence[Prediction],
    replies: Sequence[Prediction],
    tokens_right: float | None,
) -> Iterator[Finding]:
    """A finding if the student does not answer its own rows either: then the test data is not the cause of the bad
    result. It is not a fault, because a hard task may need a longer training.
    """
    if learning(learned, replies) != "not_learned":
        return
    is_fitted = tokens_right is not None and tokens_right >= _FITTED
    at_end = (
        "" if tokens_right is None else f"; the stage {stage.name} ended with {100 * tokens_right:.0f} % right tokens"
    )
    yield Finding(
        name="not_learned",
        kind="open",
        problem=f"{figures(arm, learned, replies)}, so the test does not explain the result{at_end}",
        certainty="likely",
        change="what differs between training and asking: the student's chat template, "
        f"stages.{stage.name}.loss, [eval]; else train longer"
        if is_fitted
        else f"stages.{stage.name}: its learning rate, steps and trained parts",
    )
