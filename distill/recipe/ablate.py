"""The recipe's section about ablations: which arms are compared, over which seeds, and what they are to show.

Part of the recipe models. What an arm changes is worked out by distill/ablation/arms.py.
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Name, Section

REFERENCE = "distilled"
"""The arm that is the recipe as it stands."""


class CustomArm(Section):
    """An arm of the user's own: values of the recipe that differ in it."""

    about: str = ""
    set: Mapping[str, Any]
    """Dotted key to value, as with --set: { "stages.reason.learning_rate" = 1e-4 }."""


class Claim(Section):
    """A sentence that the figures may bear out: one arm answers better than another."""

    text: str
    better: Name
    than: Name
    domain: str | None = None
    """Only the questions of this domain."""


class Study(Section):
    """A question, and the arms that answer it."""

    question: str
    arms: tuple[Name, ...] = Field(strict=False)
    reference: Name = REFERENCE
    """The arm that the others of this study are compared with."""
    claims: tuple[Claim, ...] = Field(default=(), strict=False)
    kind: Literal["compare", "scaling", "teacher_fit"] = "compare"
    """scaling: fit a curve of accuracy over traces. teacher_fit: does the filter rank teachers as students do?"""
    notes: tuple[str, ...] = Field(default=(), strict=False)
    """What a reader has to know to take the figures for what they are."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        named = [self.reference, *(arm for claim in self.claims for arm in (claim.better, claim.than))]
        missing = sorted(set(named) - set(self.arms))
        if missing:
            raise ValueError(f"arms lacks {', '.join(missing)}, which the study compares")
        return self


class Ablate(Section):
    """Controlled comparisons: the same recipe, trained again with one thing changed."""

    seeds: tuple[int, ...] = Field(default=(0, 1, 2), strict=False, min_length=1)
    """Each arm is trained once a seed. Traces are made once, with the recipe's own seed."""
    stage: Name | None = None
    """The stage that arms change and whose student is measured; default: the last that learns rationales."""
    equal_steps: bool = True
    """Every arm trains that stage for as many steps as the reference does, however many rows it has."""
    arms: tuple[Name, ...] = Field(default=(), strict=False)
    """Ready arms, or own ones by name; default: the arms of all studies, else every ready one that is possible."""
    own: Mapping[Name, CustomArm] = Field(default_factory=dict)
    studies: Mapping[Name, Study] = Field(default_factory=dict)
    gallery: int = Field(default=60, ge=0)
    """Questions shown with pictures in the report."""
