"""A key that changes a result changes what identifies it: the id of a trace, or the fingerprint of a stage.

Every key of the recipe's models is in `tests/support/recipe_keys.py`, with what it changes or why it changes nothing;
each is changed here in a recipe that uses it, and what identifies each result is compared.
"""

import tomllib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import recipe_keys as table
import tomli_w
from PIL import Image

from distill.artifacts.manifest import Manifest, fingerprint
from distill.data.source_images import pictures_digest
from distill.recipe.base import Section
from distill.recipe.loading import load, put
from distill.recipe.recipe import Recipe
from distill.recipe.teachers import Teacher
from distill.types import Sample
from distill.wiring import measurers
from filters import apply
from filters.signals import registry
from student import evaluate
from student.train import stage_fields
from teacher.engines.vllm_options import deciding, render
from teacher.messages.request import requests
from teacher.store import question_plan


def keys(model: type[Section] = Recipe, before: str = "") -> Iterator[str]:
    """Every key that a recipe may hold; a star stands for the name of a list's or table's item."""
    for name, field in model.model_fields.items():
        inner = list(dict.fromkeys(_sections(field.annotation)))
        for section, stars in inner:
            yield from keys(section, f"{before}{name}{stars}.")
        if not inner:
            yield f"{before}{name}"


def _sections(annotation: Any) -> Iterator[tuple[type[Section], str]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, ""
    items = typing.get_origin(annotation) in (tuple, list, dict, Mapping)
    for argument in typing.get_args(annotation):
        yield from ((section, f".*{stars}" if items else stars) for section, stars in _sections(argument))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sources of the recipe, and the manifests of what its stages start from."""
    folder = tmp_path_factory.mktemp("keys")
    for number, name in enumerate(("questions", "test", "more", "other")):
        said = [{"from": "human", "value": "<image>\nHow many?"}, {"from": "gpt", "value": "4"}]
        row = {"question": f"How many {name}?", "answer": str(number), "image": "a.png", "conversations": said}
        row |= {"other": "b.png", "kind": "number"}
        (folder / f"{name}.jsonl").write_bytes(orjson.dumps(row))
    (folder / "words.txt").write_text("a word\n")
    for number, name in enumerate(("images", "others")):
        (folder / name).mkdir()
        for shade, file in enumerate(("a.png", "b.png")):
            Image.new("RGB", (8, 8), (number, shade, 7)).save(folder / name / file)
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    Manifest(stage="filter", fingerprint="filtered", fields={}).write(folder / "run" / "filter")
    for stage in ("first", "second", "watched"):
        found = Manifest(
            stage=stage, fingerprint=f"trained {stage}", fields={}, counts={"steps": 1}, tokens={"trained": 1}
        )
        found.write(folder / "run" / "train" / stage)
    return folder


def identities(recipe: Recipe, folder: Path) -> dict[str, str]:
    """What identifies each result of a recipe, each for itself: what it starts from is taken as given."""
    models = question_plan.check(recipe)
    sample = Sample(id="s", images=(), question="How many?", answers=("4",), domain="")
    generated = Manifest(stage="generate", fingerprint="generated", fields={})
    families = registry.identity(registry.build(recipe, folder / "index"))
    families |= {name: dict(found.identity) for name, found in measurers(recipe, folder / "run").items()}
    return {
        "trace": fingerprint(
            {
                "ids": [
                    [request.id for request in requests(recipe, teacher, models[teacher.name], sample)]
                    for teacher in recipe.teachers
                ]
            }
        ),
        "plan": fingerprint(question_plan.state(recipe, folder / "run" / "generate", {}, None)),
        "generate": fingerprint(question_plan.settings(recipe, models)),
        "engine": fingerprint({"teachers": [deciding_options(teacher) for teacher in recipe.teachers]}),
        "pictures": fingerprint({name: pictures_digest(recipe, name) for name in recipe.data}),
        "filter": fingerprint(apply._fields(recipe, generated, families)),
        "card": apply._dressed(recipe),
        "train": fingerprint({"stages": list(stage_fields(recipe, folder / "run").items())}),
        "eval": evaluate.identity(recipe, folder / "run"),
        "ablate": fingerprint(recipe.ablate.model_dump(mode="json")),
    }


def deciding_options(teacher: Teacher) -> object:
    return deciding([*teacher.server.command, *render(teacher.server), *teacher.server.extra])


def recipe_with(folder: Path, key: str, value: Any) -> Recipe:
    """The recipe of the table with one value changed; without a key as it is."""
    values = tomllib.loads(table.BASE)
    for name, item in value.items() if key.endswith(".*") else [("", value)] if key else []:
        put(values, f"{key.removesuffix('*')}{name}", item)
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(values))
    return load(path)


@pytest.fixture(scope="module")
def unchanged(place: Path) -> dict[str, str]:
    return identities(recipe_with(place, "", None), place)


def test_every_key_of_a_recipe_is_in_the_table_and_no_other() -> None:
    assert sorted({*table.CHANGES, *table.UNCHANGED}) == sorted(keys())
    assert not table.CHANGES.keys() & table.UNCHANGED.keys()
    assert all(why for _, _, why in table.UNCHANGED.values())


@pytest.mark.parametrize("key", table.CHANGES)
def test_a_key_that_changes_a_result_changes_what_identifies_it(
    key: str, place: Path, unchanged: dict[str, str]
) -> None:
    where, value, results = table.CHANGES[key]
    found = identities(recipe_with(place, where, value), place)
    assert " ".join(name for name in unchanged if unchanged[name] != found[name]) == results


@pytest.mark.parametrize("key", table.UNCHANGED)
def test_a_key_that_changes_no_result_makes_nothing_stale(key: str, place: Path, unchanged: dict[str, str]) -> None:
    where, value, _ = table.UNCHANGED[key]
    assert identities(recipe_with(place, where, value), place) == unchanged
