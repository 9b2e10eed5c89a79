"""The validation section of a training stage: what is measured while it trains, and what is decided by it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Section, key, train_key

Rows = Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)]


class Validation(Section):
    """Measurements of a student while a stage trains it: greedy answers to a few questions, and the loss of held-out
    rows. Without `patience` and `keep = "best"` only `hold_out` changes what is learned.
    """

    every_steps: int = train_key(
        100, "Measure each time after this number of steps, and after the last step.", ge=1, usual=(5, None)
    )
    data: str | None = train_key(None, "The source whose questions are asked; default: no question is asked.")
    questions: int = train_key(
        64,
        "Number of questions of that source. They are chosen by their content, so every run asks the same ones.",
        ge=1,
        usual=(16, None),
    )
    max_new_tokens: int = train_key(256, "Largest number of tokens of an answer.", ge=1, usual=(32, None))
    batch_size: int = train_key(32, "Number of questions answered at once.", ge=1)
    hold_out: Rows = train_key(
        0,
        "Rows of the stage's own data on which the loss is measured, as a number or as a share of the rows. They are "
        "not trained on.",
    )
    metric: Literal["loss", "accuracy"] = train_key(
        "loss", "The measure that decides which student is better: a smaller loss or a higher accuracy."
    )
    patience: int | None = train_key(
        None,
        "Stop the stage after this number of measurements in a row without an improvement; default: never.",
        ge=1,
        usual=(2, 50),
    )
    keep: Literal["best", "last"] = train_key(
        "last", "The weights that the stage saves: the weights of the best measurement, or of the last step."
    )
    gallery: int = key(
        24,
        "Number of replies that samples.html shows with images.",
        because="it changes only how many replies the page shows",
        ge=0,
    )

    @property
    def decides(self) -> Literal["loss", "accuracy"] | None:
        """What the weights that the stage leaves depend on; None where they depend on no measurement."""
        return self.metric if self.patience is not None or self.keep == "best" else None

    @model_validator(mode="after")
    def _measures(self) -> Self:
        if self.data is None and not self.hold_out:
            raise ValueError("validation measures nothing: give data (questions to ask), hold_out (rows) or both")
        if self.decides == "loss" and not self.hold_out:
            raise ValueError("metric = 'loss' needs hold_out; set it, or metric = 'accuracy'")
        if self.decides == "accuracy" and self.data is None:
            raise ValueError("metric = 'accuracy' needs data, the source whose questions are asked")
        return self
