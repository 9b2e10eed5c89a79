"""The `[stages.rollouts]` section of a recipe: a stage learns from its student's own replies, scored by a teacher.

Part of the recipe models. How the replies are made and scored is in distill/wiring/rollouts.py.
"""

from typing import Self

from pydantic import model_validator

from distill.recipe.base import Name, Section, train_key

ROLLOUTS = "rollouts"
"""In the data of a stage, behind "traces:": the replies of the student that it starts from."""


class Rollouts(Section):
    """The student that the stage starts from answers the training questions, and a teacher scores its replies."""

    teacher: Name = train_key(
        ...,
        "The teacher that scores the replies. An earlier stage of this student must have learned from its traces. "
        "Its backend must be able to score texts (embedded, vllm).",
    )
    top_k: int = train_key(20, "Number of likeliest tokens that the teacher gives for each position.", ge=1, le=20)
    attempts: int = train_key(1, "Replies of the student to each question.", ge=1, le=64, usual=(1, 16))
    temperature: float = train_key(
        1.0, "Sampling temperature of the replies; 0: the likeliest tokens.", ge=0, usual=(0, 1.5)
    )
    answered: int | None = train_key(
        None,
        "The student answers this number of training questions, from the start of the source; default: all.",
        ge=1,
        usual=(50, None),
    )
    max_new_tokens: int = train_key(512, "Largest length of a reply in tokens.", ge=1, usual=(32, None))

    @model_validator(mode="after")
    def _replies_differ(self) -> Self:
        if self.attempts > 1 and not self.temperature:
            raise ValueError(
                f"attempts = {self.attempts} at temperature 0 would give one reply many times; set attempts = 1, or "
                "a temperature above 0"
            )
        return self
