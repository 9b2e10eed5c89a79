"""The recipe's section about held-out evaluation.

Part of the recipe models: distill/recipe/recipe.py checks what refers to what.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from distill.errors import RecipeError
from distill.recipe.base import LocalOrHub, Name, Section

BASE = "base"
"""The student before any stage, where a stage could be named."""


class AnyStudent(Section):
    """A student that no stage of the recipe made."""

    model: LocalOrHub
    """Directory (checkpoint or export) or hub name; with base_url the name that the server knows it by."""
    revision: str | None = None
    adapter: LocalOrHub | None = None
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
    allow_overlap: bool = False
    """Go on although training data shows pictures or asks questions of evaluation data (distill.leakage)."""
    gallery: int = Field(default=24, ge=0)
    """Questions shown with pictures in the report."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        both = sorted(set(self.arms) & set(self.students))
        if both:
            raise ValueError(f"students and arms share names: {', '.join(both)}")
        return self


def student_values(given: Sequence[str]) -> dict[str, str]:
    """What --student says as the recipe's keys and values (JSON). Raises RecipeError."""
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, what = text.partition("=")
        url, _, model = what.partition("#")
        served = url.startswith(("http://", "https://"))
        if not (name and equals and what) or "." in name or (served and not model):
            raise RecipeError(
                f"--student {text}: write NAME=FOLDER, NAME=HUB_NAME or NAME=URL#MODEL, such as "
                "big=http://127.0.0.1:8000/v1#Qwen3-VL-8B; a name has no dot"
            )
        place = Path(what).expanduser()
        values = (
            {"base_url": url, "model": model}
            if served
            else {"model": str(place.resolve() if place.exists() else what)}
        )
        pairs |= {f"eval.students.{name}.{key}": json.dumps(value) for key, value in values.items()}
    return pairs
