"""The `[rounds]` section of a recipe: after round 0 the student's failures go to the teachers again.

Part of the recipe models. What a round is made of is worked out by distill/rounds/.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, Self

from pydantic import model_validator

from distill.recipe.base import Name, Section, Share, key
from distill.recipe.sections.data import ASKED

rounds_key = partial(key, affects="rounds")
HELD_OUT = "rounds_held_out"
"""The source of the questions that compare the students of the rounds, where the recipe names none."""
REPLY = "reply"
"""The key of a returned question's meta that holds the student's wrong reply."""


class Rounds(Section):
    """Rounds after round 0: the student answers, its failures go to the teachers, it is trained again."""

    count: int = key(
        0,
        "Largest number of rounds after round 0; 0: none.",
        because="finished rounds stay; a larger number adds rounds",
        ge=0,
        le=100,
    )
    stage: Name | None = rounds_key(
        None, "The stage whose student answers and is trained again; default: the last one that learns rationales."
    )
    questions: Name = rounds_key(
        ASKED,
        "The source whose questions the student answers; the teachers get the questions that it fails. Questions "
        "that the student has not learned from give more failures. Default: the questions of round 0.",
    )
    validation: Name | None = rounds_key(
        None,
        "The source whose questions decide whether a round helps. It is not trained on and must not be the test "
        "set; default: a part of `questions` that `hold_out` splits off.",
    )
    hold_out: float = key(
        0.1,
        "Share of the images of `questions` that is split off for validation, with all their questions, where "
        "`validation` names no source and data.questions has no `part`.",
        because="it only sets data.questions.part, and a change of that key makes results stale",
        gt=0,
        lt=1,
    )
    answered: int | None = rounds_key(
        None, "The student answers this number of `questions`, from the start of the source; default: all.", ge=1
    )
    attempts: int = rounds_key(
        1,
        "Number of replies of the student to each question: the first reply is greedy, the others are sampled at "
        "`temperature`.",
        ge=1,
        le=64,
        usual=(1, 16),
    )
    temperature: float = rounds_key(0.8, "Temperature of the sampled replies.", gt=0, usual=(0.2, 1.5))
    most_right: float = rounds_key(
        0.0,
        "A question goes back when some reply is wrong and at most this share of its replies is right.",
        ge=0,
        lt=1,
    )
    returned: int | None = rounds_key(
        None,
        "Largest number of questions that go back to the teachers in a round; questions with the fewest right "
        "replies go first, ties by id. Default: all questions that the student fails.",
        ge=1,
    )
    teachers: tuple[Name, ...] = rounds_key((), "The teachers that are asked in a round; default: all.", strict=False)
    samples: int | None = rounds_key(
        None,
        "Traces of each of these teachers for a returned question; default: the teacher's own `samples`.",
        ge=1,
        le=1024,
    )
    prompt: str | None = rounds_key(
        None, "Prompt of these teachers in a round; {reply} is the student's wrong reply; default: the teacher's own."
    )
    start: Literal["base", "last"] = rounds_key(
        "last",
        "The student that a round trains. last: the student of the round before. base: the student that the stage "
        "started from.",
    )
    steps_share: float = rounds_key(
        0.5,
        "Length of a round: a share of the stage's `max_tokens`, or else of its steps in round 0.",
        gt=0,
        usual=(0.05, 1),
    )
    new_share: float = rounds_key(
        0.5,
        "Share of the new traces among the tokens of traces of a round; traces of earlier rounds have the rest.",
        gt=0,
        le=1,
        usual=(0.1, 1),
    )
    ageing: float = rounds_key(
        1.0,
        "Factor on the weight of earlier traces for each round of age; 1: all traces have the same weight.",
        gt=0,
        le=1,
    )
    min_gain_points: float = key(
        0.0,
        "The rounds end when a round gains at most this number of points of accuracy on the validation questions.",
        because="it decides which finished round is the last; their files stay",
    )
    max_length_growth: float = key(
        0.5,
        "Guard: the rounds end when the median reply is longer than in round 0 by more than this share.",
        because="it decides which finished round is the last; their files stay",
        gt=0,
    )
    max_common_answer_growth: Share = key(
        0.2,
        "Guard: the rounds end when the share of the most frequent answer exceeds two shares by more than this "
        "value: its share in round 0, and the share of the most frequent gold answer.",
        because="it decides which finished round is the last; their files stay",
    )

    @model_validator(mode="after")
    def _prompt_asks(self) -> Self:
        if self.prompt is not None and "{question}" not in self.prompt:
            raise ValueError("prompt must contain {question}")
        return self


def with_held_out(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recipe's values in which rounds that name no validation source have one, split off `questions` by image."""
    rounds, sources = values.get("rounds"), values.get("data") or {}
    if not isinstance(rounds, Mapping) or not rounds.get("count") or rounds.get("validation") is not None:
        return values
    asked = sources.get(ASKED) if isinstance(sources, Mapping) else None
    share = rounds.get("hold_out", Rounds.model_fields["hold_out"].default)
    usable = isinstance(share, float) and 0 < share < 1
    if not usable or not isinstance(asked, Mapping) or "part" in asked:
        return values
    held_out = {**asked, "part": [1 - share, 1.0]}
    if isinstance(limit := asked.get("limit"), int):
        held_out["limit"] = max(1, round(limit * share))
    data = {**sources, ASKED: {**asked, "part": [0.0, 1 - share]}, HELD_OUT: held_out}
    return {**values, "data": data, "rounds": {**rounds, "validation": HELD_OUT}}
