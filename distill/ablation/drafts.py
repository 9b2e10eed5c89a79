"""What the ready arms of an ablation are made with: a recipe's values while an arm changes them, and its budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage, lineage

LENGTHS = ("max_tokens", "max_steps", "epochs")
"""The keys that say how long a stage is, the one that counts first."""


class Impossible(RecipeError):
    """This recipe cannot have this arm; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Training of the reference: steps and tokens of the stage under study and of those it descends from."""

    steps: Mapping[str, int]
    tokens: Mapping[str, int]
    share: float = 1.0
    """The share of its length that an arm at equal seconds trains: it may take no longer than the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What one arm trains and measures."""

    about: str
    recipe: Recipe
    stage: str
    """The stage whose student is measured, or "base"."""
    rounds: int = 0
    """Rounds after the stages; the student of the last one is measured."""


@dataclass(slots=True)
class Draft:
    """A recipe's values while an arm changes them."""

    recipe: Recipe
    values: dict[str, Any]
    stage: str
    budget: Budget | None
    rounds: int = 0

    @property
    def studied(self) -> dict[str, Any]:
        """The stage under study, as values."""
        return next(values for values in self.values["stages"] if values["name"] == self.stage)

    @property
    def model(self) -> Stage:
        """The stage under study, as the recipe has it."""
        return self.line[-1]

    @property
    def line(self) -> list[Stage]:
        """The stages from which the stage under study starts, and this stage, as in the recipe."""
        return lineage(self.recipe.stages, self.stage)

    def before(self) -> str | None:
        """The stage that the one under study starts from."""
        return self.line[-2].name if len(self.line) > 1 else None

    def settle_length(self) -> None:
        """Give the stage under study as many steps as the reference takes, unless its values say how long it is."""
        if self.budget is not None and self.recipe.ablate.equal_steps:
            self.studied.setdefault("max_steps", self.budget.steps[self.stage])


def part_of(stage: Mapping[str, Any], share: float) -> dict[str, Any]:
    """The values of a stage that trains a share of the length of `stage`."""
    key = next((key for key in LENGTHS if key in stage), "epochs")
    whole = stage.get(key, Stage.model_fields["epochs"].default)
    kept = {name: value for name, value in stage.items() if name not in LENGTHS}
    return kept | {key: share * whole if key == "epochs" else max(1, round(share * whole))}


def number(name: str, text: str) -> int:
    """The number, from 1, that the name of an arm ends in. Raises RecipeError for anything else."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise RecipeError(f"ablate: {name} must end in a number from 1")
    return int(text)
