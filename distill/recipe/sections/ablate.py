"""The recipe's section about ablations: the arms, the seeds, and the claims to test.

Part of the recipe models. What an arm changes is worked out by distill/ablation/arms.py.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from distill.extensions import ARMS
from distill.recipe.base import Name, NameOrCode, Section, key

ablate_key = partial(key, affects="ablate")
REFERENCE = "distilled"
"""The arm with the unchanged recipe."""
EQUAL_SECONDS = "_equal_seconds"
"""End of the name of an arm that may take no longer than the reference; the name without it is the arm that it is
made from."""


class CustomArm(Section):
    """An arm of your own: the values of the recipe that it changes."""

    about: str = ablate_key("", "What the arm changes, in words, for the table and the report.")
    set: Mapping[str, Any] = ablate_key(
        {}, 'Dotted keys and their values in this arm, as with --set: { "stages.reason.learning_rate" = 1e-4 }.'
    )
    change: Annotated[str, NameOrCode(ARMS)] | None = ablate_key(
        None,
        'Code that changes the values of the recipe: "FILE.py:NAME", or an entry point of a package.',
        omit_default="ablate",
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.set and self.change is None:
            raise ValueError('an own arm needs set (values that differ) or change ("FILE.py:NAME")')
        return self


class Claim(Section):
    """A statement that the results may support: one arm answers better than another."""

    text: str = ablate_key(..., "The statement, as the report prints it.")
    better: Name = ablate_key(..., "The arm that is expected to answer better.")
    than: Name = ablate_key(..., "The arm that it is compared with.")
    domain: str | None = ablate_key(None, "Compare on the questions of this domain only; default: all questions.")


class Study(Section):
    """A question, and the arms that answer it."""

    question: str = ablate_key(..., "The question that the study answers.")
    arms: tuple[Name, ...] = ablate_key(..., "The arms that are compared.", strict=False)
    reference: Name = ablate_key(REFERENCE, "The arm that the other arms of this study are compared with.")
    claims: tuple[Claim, ...] = key((), "Statements that the study tests.", strict=False)
    kind: Literal["compare", "scaling", "teacher_fit"] = ablate_key(
        "compare",
        "compare: differences between arms. scaling: also fit a curve of accuracy over the number of traces. "
        "teacher_fit: also test whether the filter's ranking of the teachers equals the ranking of their students "
        "by accuracy.",
    )
    notes: tuple[str, ...] = ablate_key((), "Remarks that a reader needs to interpret the results.", strict=False)

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        arm_names = [self.reference, *(arm for claim in self.claims for arm in (claim.better, claim.than))]
        missing = sorted(set(arm_names) - set(self.arms))
        if missing:
            raise ValueError(f"arms lacks {', '.join(missing)}, which the study compares")
        return self


class Ablate(Section):
    """Controlled comparisons: the same recipe, trained again with one thing changed."""

    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = ablate_key(
        (0, 1, 2),
        "Each arm is trained once with each of these seeds. Traces are made once, with the recipe's own seed.",
        strict=False,
        min_length=1,
    )
    stage: Name | None = ablate_key(
        None,
        "The stage that arms change and whose student is measured; default: the last stage that learns rationales.",
    )
    equal_steps: bool = ablate_key(
        True,
        (
            "Every arm trains that stage for the same number of steps as the reference, independent of its number of "
            "rows."
        ),
    )
    arms: tuple[Name, ...] = ablate_key(
        (),
        "Names of built-in arms or of your own arms; default: the arms of all studies, else every built-in arm "
        "that fits the recipe.",
        strict=False,
    )
    own: Mapping[Name, CustomArm] = key({}, "Arms of your own, by name.")
    studies: Mapping[Name, Study] = key({}, "Studies, by name: questions and the arms that answer them.")
    gallery: int = ablate_key(60, "Number of questions that the report shows with images.", ge=0)

    @model_validator(mode="after")
    def _free_names(self) -> Self:
        for name in self.own:
            if name == REFERENCE:
                raise ValueError(f"own.{name}: this is the name of the unchanged recipe; give your arm another name")
            if name.endswith(EQUAL_SECONDS):
                raise ValueError(f"own.{name}: {EQUAL_SECONDS} at the end of a name means another arm in equal time")
        return self
