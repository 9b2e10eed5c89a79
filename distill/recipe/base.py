"""What every section of a recipe is made of: the strict base model and the shared kinds of values."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from distill.local_paths import address_problem

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Dtype = Literal["float32", "bfloat16", "float16"]


def _not_an_address(value: str) -> str:
    if problem := address_problem(value):
        raise ValueError(problem)
    return value


LocalOrHub = Annotated[str, AfterValidator(_not_an_address)]
"""A path of this machine, or where one is possible the name of a hub."""


class Section(BaseModel):
    """A part of a recipe: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
