"""The validation section of a training stage: what is measured while it trains, and what is decided by it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Section

Rows = Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)]


class Validation(Section):
    """Quality of a student while a stage trains it: greedy answers to a few questions, loss of rows kept out."""

    every_steps: int = Field(default=100, ge=1)
    """Measure after so many steps, and after the last one."""
    data: str | None = None
    """A source whose questions are asked; without one nothing is generated."""
    questions: int = Field(default=64, ge=1)
    """Of that source, chosen by their content: every run asks the same ones."""
    max_new_tokens: int = Field(default=256, ge=1)
    batch_size: int = Field(default=32, ge=1)
    """Questions answered at once."""
    hold_out: Rows = 0
    """Rows of the stage's own data to measure the loss on, a number or a share of them; they are not trained on."""
    metric: Literal["loss", "accuracy"] = "loss"
    """What "better" means: a smaller loss or a larger accuracy."""
    patience: int | None = Field(default=None, ge=1)
    """Stop the stage after so many measurements in a row that are no better than the best one; default: never."""
    keep: Literal["best", "last"] = "last"
    """Whose weights the stage leaves: those of the best measurement, or those of its last step."""
    gallery: int = Field(default=24, ge=0)
    """Replies shown with pictures on the page of samples."""

    @property
    def decides(self) -> bool:
        """Whether the weights that the stage leaves depend on what is measured."""
        return self.patience is not None or self.keep == "best"

    @model_validator(mode="after")
    def _measures(self) -> Self:
        if self.data is None and not self.hold_out:
            raise ValueError("validation measures nothing: give data (questions to ask), hold_out (rows) or both")
        if self.decides and self.metric == "loss" and not self.hold_out:
            raise ValueError("metric = 'loss' needs hold_out; set it, or metric = 'accuracy'")
        if self.decides and self.metric == "accuracy" and self.data is None:
            raise ValueError("metric = 'accuracy' needs data, the source whose questions are asked")
        return self
