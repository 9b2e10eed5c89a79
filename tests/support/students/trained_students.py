"""A trained student in several forms, and what an evaluation says of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from transformers import Qwen2ForCausalLM
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from student.export import convert
from student.train import train

STAGES = (
    worlds.stage("instruct", "questions", train='["projector", "language"]', steps=2),
    worlds.stage("reason", train='["projector", "language"]', steps=3, more="[stages.lora]\nrank = 8\nalpha = 16\n"),
)


EVAL = """
[eval]
max_new_tokens = 12
batch_size = 5
gallery = 0
[eval.arms]
distilled = "reason"
"""


MIXED = """
[data.mixed]
source = "mixed.jsonl"
format = "llava"
images_root = "images"
"""


def train_and_export(folder: Path) -> Path:
    """A run with two stages, one of them with adapters, and both exports of its student."""
    worlds.parts(folder)
    # A random decoder whose layers outweigh its embeddings says something else to every question.
    decoder = Qwen2ForCausalLM.from_pretrained(folder / "language")
    for name, weight in decoder.named_parameters():
        if weight.ndim == 2:
            weight.data.mul_(16 if ".layers." in name else 4)
    decoder.save_pretrained(folder / "language")
    worlds.data(folder)
    recipe = worlds.recipe(folder, *STAGES, more=EVAL)
    train(recipe, folder / "run")
    (folder / "run" / "recipe.toml").write_text(recipe.to_toml())
    for form in ("native", "plain"):
        convert.export(folder / "run", folder / form, native=form == "native")
    return folder


def recipe_of(place: Path, more: str = "", overrides: Mapping[str, str] | None = None) -> Recipe:
    path = place / "recipe.toml"
    path.write_text(path.read_text() + more)
    return load(path, overrides)


def said(place: Path, name: str = "predictions.jsonl") -> dict[str, list[tuple[str, str]]]:
    """Question and text of every reply, by arm."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in read_jsonl(place / "run" / "eval" / name):
        found.setdefault(line["arm"], []).append((line["sample_id"], line["text"]))
    return found


def metrics(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((place / "run" / "eval" / "metrics.json").read_bytes())
    return found


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("something was asked")
