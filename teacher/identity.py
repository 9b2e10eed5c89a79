"""Names of traces and seeds, derived from content.

A trace id covers what decides the text of an attempt: the sample and its image bytes, the model and its revision,
the rendered prompt, every sampling value in force, the chat template arguments, the seed and k. It does not cover
where a row stands, how a teacher is called, or which backend serves it: the same model asked the same thing over
HTTP or in process is the same attempt, and one may be resumed with the other. Engine and version are recorded on
each trace instead.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.artifacts import canonical, directory_sha256
from distill.recipe import Recipe, Sampling, Teacher
from distill.types import Sample
from teacher.prompts import Prompt, prompt, prompt_sha

_NEUTRAL: dict[str, Any] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "stop": []}
"""Sampling values that switch something off. They are left out of an id, so new switches don't change old ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Which weights answer. A local directory is known by its contents, a hub name by name and revision."""

    name: str
    revision: str
    local: bool

    @property
    def key(self) -> str:
        return self.revision if self.local else f"{self.name}@{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One wanted trace: attempt `k` of one teacher at one sample."""

    id: str
    sample: Sample
    k: int
    seed: int
    prompt: Prompt
    prompt_sha: str


def model_of(recipe: Recipe, teacher: Teacher) -> Model:
    """The identity of a teacher's model, from the recipe and the disk alone: no server has to be up."""
    path = Path(recipe.local_or_hub(teacher.model))
    if path.is_dir():
        return Model(name=teacher.model, revision=directory_sha256(path), local=True)
    return Model(name=teacher.model, revision=teacher.revision or "", local=False)


def sampling_key(sampling: Sampling) -> dict[str, Any]:
    """The sampling values in force."""
    values = sampling.model_dump(mode="json")
    return {key: value for key, value in values.items() if value != _NEUTRAL.get(key)}


def requests(recipe: Recipe, teacher: Teacher, model: Model, sample: Sample) -> list[Request]:
    """The traces that one teacher is wanted to write for one sample, k = 0, 1, ..."""
    asked = prompt(teacher, sample)
    sha = prompt_sha(asked)
    # Seeds are shared by all settings of one model on purpose: two temperatures are then compared on the same luck.
    of_sample = {"sample": sample.id, "model": model.key, "seed": recipe.seed}
    content = {
        "sample": sample.id,
        "images": [image.sha256 for image in sample.images],
        "model": model.key,
        "prompt": sha,
        "sampling": sampling_key(teacher.sampling),
        "chat_template_kwargs": dict(teacher.chat_template_kwargs),
    }
    wanted = []
    for k in range(teacher.samples):
        seed = int.from_bytes(_digest("seed", {**of_sample, "k": k})[:4], "big") >> 1
        name = _digest("trace", {**content, "seed": seed, "k": k}).hex()[:20]
        wanted.append(Request(id=name, sample=sample, k=k, seed=seed, prompt=asked, prompt_sha=sha))
    return wanted


def _digest(kind: str, content: dict[str, Any]) -> bytes:
    return hashlib.sha256(kind.encode() + b"\0" + canonical(content)).digest()
