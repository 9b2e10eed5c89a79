"""The recipe's section about held-out evaluation.

Part of the recipe models: distill/recipe.py reads the file and checks what refers to what.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from distill.sections import Name, Section

BASE = "base"
"""The student before any stage, where a stage could be named."""


class AnyStudent(Section):
    """A student that no stage of the recipe made."""

    model: str
    """Directory (checkpoint or export) or hub name; with base_url the name that the server knows it by."""
    revision: str | None = None
    adapter: str | None = None
    """Directory of a PEFT adapter for `model`."""
    base_url: str | None = None
    """An OpenAI-compatible server that has it, such as http://127.0.0.1:8000/v1."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the server's key; the key itself never enters a recipe."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.base_url is not None and (self.adapter is not None or self.revision is not None):
            raise ValueError("base_url: a server decides adapter and revision of its model; leave them out")
        if self.api_key_env is not None and self.base_url is None:
            raise ValueError("api_key_env is for a server; it needs base_url")
        return self


class Eval(Section):
    """Held-out evaluation: which stages' students answer which questions."""

    data: str = "test"
    max_new_tokens: int = Field(default=512, ge=1)
    batch_size: int = Field(default=32, ge=1)
    arms: Mapping[Name, Name] = Field(default_factory=dict)
    """Arm name to stage name, or "base"; default: every stage but the first, under its own name."""
    students: Mapping[Name, AnyStudent] = Field(default_factory=dict)
    """Further arms: students from anywhere."""
    engine: Literal["embedded", "vllm"] = "embedded"
    """vllm: every arm is exported and served while it is asked."""
    think: bool = True
    """False: questions end with "/no_think", which students know that stages.no_think has taught."""
    without_image: bool = True
    """Ask every question that has images once more without them: what a student says unseen, it does not see."""
    gallery: int = Field(default=24, ge=0)
    """Questions shown with pictures in the report."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        both = sorted(set(self.arms) & set(self.students))
        if both:
            raise ValueError(f"students and arms share names: {', '.join(both)}")
        return self
