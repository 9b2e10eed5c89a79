"""Test questions of many kinds, leaks of them planted among training questions, and questions that only look so.

Shared by tests/filters/signals/test_contamination.py and benchmarks/filter/contamination.py.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from faults.question_edits import TEMPLATES, edited, fill, innocents
from worlds import chart_images
from worlds.chart_images import WORDS
from worlds.run_fixtures import sample

from distill.data.images.image_files import sha256
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Sample

RECIPE = """
[data.test]
source = "test.jsonl"
[data.words]
source = "words.jsonl"
columns.image = ""
[filter.contamination]
sources = ["test", "words"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    kind: str
    picture: int | None
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A training question. `leak` names how it was planted; an innocent one has `innocent` instead."""

    sample: Sample
    of: str
    """Id of the test sample it was made from."""
    leak: str = ""
    innocent: str = ""
    picture: str = ""
    """What was done to the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    recipe: Recipe
    cases: tuple[Case, ...]


def plant(folder: Path, seed: int, count: int) -> World:
    """A test set of `count` questions on disk, and cases about it. Images have two questions each."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    asked: list[Question] = []
    images: list[bytes] = []
    while len(asked) < count:
        if not asked or chance.random() < 0.15:
            asked.append(_question(chance.choice(TEMPLATES["text"]), "text", None, chance))
            continue
        images.append(_png(rng))
        kind = chance.choice(("chart", "chart", "photo", "document"))
        for template in chance.sample(TEMPLATES[kind], 2):
            asked.append(_question(template, kind, len(images) - 1, chance))
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(images):
        (folder / f"test-{number}.png").write_bytes(data)
    lines: dict[bool, list[bytes]] = {True: [], False: []}
    for question in asked:
        shown = {} if question.picture is None else {"image": f"test-{question.picture}.png"}
        row = {"question": question.text, "answer": question.answer} | shown
        lines[bool(shown)].append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    (folder / "test.jsonl").write_bytes(b"".join(lines[True]))
    (folder / "words.jsonl").write_bytes(b"".join(lines[False]))
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    cases = tuple(_cases(asked, images, folder, chance, rng))
    return World(recipe=load(folder / "recipe.toml"), cases=cases)


def _question(template: str, kind: str, image: int | None, chance: random.Random) -> Question:
    answer = str(chance.randint(1, 500)) if chance.random() < 0.6 else chance.choice((*WORDS, "yes", "no"))
    return Question(text=fill(template, chance), kind=kind, picture=image, answer=answer)


def _png(rng: np.random.Generator) -> bytes:
    return chart_images.png(chart_images.paint(chart_images.imagine(rng, size=(320, 240))))


def _cases(
    asked: list[Question], images: list[bytes], folder: Path, chance: random.Random, rng: np.random.Generator
) -> Iterator[Case]:
    texts = {(question.picture, " ".join(re.findall(r"\w+", question.text.lower()))) for question in asked}
    for number, question in enumerate(asked):
        data = None if question.picture is None else images[question.picture]
        image = "" if data is None else "equal bytes"
        own = sample(question.text, images=_saved(folder, f"own-{number}", data))
        yield Case(sample=_with_answer(own, question.answer, chance), of=own.id, leak="exact", picture=image)
        for attempt in range(2):
            text, how = edited(question.text, chance)
            copy, image = (None, "") if data is None else _copied(data, rng)
            made = sample(text, images=_saved(folder, f"edited-{number}-{attempt}", copy))
            yield Case(sample=_with_answer(made, question.answer, chance), of=own.id, leak=how, picture=image)
        for text, how in innocents(question.kind, question.text, chance):
            if (question.picture, " ".join(re.findall(r"\w+", text.lower()))) in texts:
                continue
            copy = None if data is None else _copied(data, rng)[0]
            made = sample(text, images=_saved(folder, f"innocent-{number}-{sha256(text.encode())[:6]}", copy))
            gold = str(chance.randint(1, 500)) if chance.random() < 0.7 else ""
            yield Case(sample=_with_answer(made, gold, chance), of=own.id, innocent=how)
        if data is not None:
            other = sample(question.text, images=_saved(folder, f"other-{number}", _png(rng)))
            yield Case(sample=_with_answer(other, "7", chance), of=own.id, innocent="same words, other picture")
            text, _ = edited(question.text, chance)
            other = sample(text, images=_saved(folder, f"other2-{number}", _png(rng)))
            yield Case(sample=_with_answer(other, "", chance), of=own.id, innocent="edited words, other picture")


def _with_answer(made: Sample, answer: str, chance: random.Random) -> Sample:
    """The sample, in two of three cases with its gold answer."""
    gold = [answer] if answer and chance.random() < 0.67 else []
    return sample(made.question, *gold, images=made.images)


def _saved(folder: Path, name: str, data: bytes | None) -> list[ImageRef]:
    if data is None:
        return []
    (folder / name).write_bytes(data)
    return [ImageRef(sha256=sha256(data), path=str(folder / name))]


def _copied(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """The same image as another file."""
    image = chart_images.Image.open(chart_images.io.BytesIO(data)).convert("RGB")
    what = int(rng.integers(4))
    if what == 0:
        return data, "equal bytes"
    if what == 1:
        return chart_images.png(chart_images.resized(image, chart_images.factor(rng, 0.6, 1.8), "lanczos")), "resized"
    if what == 2:
        image = chart_images.resized(image, chart_images.factor(rng, 0.6, 1.8), "bicubic")
        return chart_images.resaved(image, rng, low=70)[0], "resized and re-saved"
    return chart_images.resaved(image, rng)[0], "re-saved"
