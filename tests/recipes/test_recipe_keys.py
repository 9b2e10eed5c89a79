"""A key that changes a result changes what identifies it: the id of a trace, or the fingerprint of a stage.

Every key says in its model what it makes stale. Each is changed here, to the example values of
`tests/support/listed/recipe_keys.py`, and what identifies each result is compared before and after.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomli_w
from listed import recipe_keys as table
from PIL import Image

from distill.artifacts.manifest import Manifest, fingerprint
from distill.data import reader
from distill.planning.redo import compare_recipes
from distill.recipe.base import Section
from distill.recipe.effects import affecting, inner_sections, recipe_keys
from distill.recipe.loading import find, load, put, schema
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import sources_of
from distill.types import Sample
from distill.wiring.model_signals import measurers
from filters import apply
from filters.signals import registry
from student import evaluate
from student.evaluation.students import EvaluatedStudent, fields_of_arms
from student.train import stage_fields
from teacher.engines.vllm.vllm_options import server_answer_options
from teacher.messages.request import requests
from teacher.store import question_plan

KEYS = {key.path: key for key in recipe_keys(Recipe)}


METRIC = """
from student.evaluation.user_metrics import UserMetric
own_metric = UserMetric(name="own_metric", label="mine", kind="mean", value=lambda sample, prediction: 1.0)
"""


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
    (folder / "mine.py").write_text(METRIC)
    for number, name in enumerate(("images", "others")):
        (folder / name).mkdir()
        for shade, file in enumerate(("a.png", "b.png")):
            Image.new("RGB", (8, 8), (number, shade, 7)).save(folder / name / file)
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    Manifest(stage="filter", fingerprint="filtered", fields={}).write(folder / "run" / "filter")
    return folder


def images_of(recipe: Recipe, name: str) -> dict[str, list[str]]:
    """The images that a stage reads of a source, as it compares them later."""
    return {"images": [ref.sha256 for row in reader.samples(recipe, name) for ref in row.images]}


def identities(recipe: Recipe, folder: Path) -> dict[str, str]:
    """What identifies each result of a recipe, each for itself: what it starts from is taken as given."""
    models = question_plan.check_teachers(recipe)
    sample = Sample(id="s", images=(), question="How many?", answers=("4",), domain="")
    generated = Manifest(stage="generate", fingerprint="generated", fields={})
    families = registry.identity(registry.build(recipe, folder / "index"))
    scheme = apply.corpus_scheme(recipe)
    families |= {} if scheme is None else {"corpus": scheme.as_fields()}
    families |= {name: dict(found.identity) for name, found in measurers(recipe, folder / "run").items()}
    return {
        "traces": fingerprint(
            {"ids": [requests(recipe, teacher, models[teacher.name], sample)[0].id for teacher in recipe.teachers]}
        ),
        "engine": fingerprint({"teachers": [server_answer_options(teacher.server) for teacher in recipe.teachers]}),
        "generate": fingerprint(
            question_plan.result_settings(recipe, models)
            | question_plan.plan_inputs(recipe, folder / "run" / "generate", {}, None)
        ),
        **{f"signals:{name}": fingerprint({name: family}) for name, family in families.items()},
        "filter": fingerprint(apply._fields(recipe, generated, families)),
        "card": apply._packaging_fingerprint(recipe, {}),
        "train": fingerprint(
            {
                "stages": list(stage_fields(recipe, folder / "run").values()),
                "images": [images_of(recipe, name) for stage in recipe.stages for name in sources_of(stage)],
            }
        ),
        "eval": evaluate.identity(recipe, folder / "run") + fingerprint(images_of(recipe, recipe.eval.data)),
        "rounds": fingerprint(affecting(recipe.rounds, "rounds")),
        "ablate": fingerprint(affecting(recipe.ablate, "ablate")),
    }


def recipe_with(folder: Path, key: str, value: Any) -> Recipe:
    """The recipe of the table with one value changed; without a key as it is."""
    values = tomllib.loads(table.BASE)
    for name, item in value.items() if key.endswith("*") else [("", value)] if key else []:
        put(values, f"{key.removesuffix('*')}{name}", item)
    path = folder / "recipe.toml"
    path.write_text(tomli_w.dumps(values))
    return load(path)


@pytest.fixture(scope="module")
def unchanged(place: Path, base: Recipe) -> dict[str, str]:
    """The identities of the recipe whose stages are trained."""
    for stage, fields in stage_fields(base, place / "run").items():
        made = Manifest(stage=stage, fingerprint=f"trained {stage}", fields=dict(fields))
        replace(made, counts={"steps": 1}, tokens={"trained": 1}).write(place / "run" / "train" / stage)
    return identities(base, place)


@pytest.fixture(scope="module")
def base(place: Path) -> Recipe:
    return recipe_with(place, "", None)


def test_every_key_of_a_recipe_has_an_example_and_no_other() -> None:
    assert sorted(table.EXAMPLES) == sorted(KEYS)


def sections(model: type[Section] = Recipe) -> Iterator[type[Section]]:
    yield model
    for field in model.model_fields.values():
        for section, _ in inner_sections(field.annotation):
            yield from sections(section)


def test_every_key_has_a_description_and_says_what_it_makes_stale_or_why_nothing() -> None:
    whole = schema()
    parts = {"Recipe": whole, **whole["$defs"]}
    names = {(model.__name__, name) for model in sections() for name in model.model_fields}
    keys = {(model, name): parts[model]["properties"][name] for model, name in names}
    assert [name for name, key in keys.items() if not key.get("description", "").strip()] == []
    assert [key.path for key in KEYS.values() if bool(key.affects) == bool(key.because)] == []


@pytest.mark.parametrize("key", table.EXAMPLES)
def test_a_key_changes_exactly_the_identities_that_its_model_names(
    key: str, place: Path, base: Recipe, unchanged: dict[str, str]
) -> None:
    shown: set[str] = set()
    for where, value in table.EXAMPLES[key]:
        recipe = recipe_with(place, where, value)
        found = identities(recipe, place)
        changes = compare_recipes(base, recipe).changes
        assert key in {change.key.path for change in changes}
        targets = {target for change in changes for target in change.targets}
        stale = {target if target.startswith("signals:") else target.partition(":")[0] for target in targets}
        assert sorted(name for name in found if unchanged.get(name) != found[name]) == sorted(stale)
        shown |= {target.partition(":")[0] for target in targets}
    assert {*KEYS[key].affects} - {"source"} <= shown


@pytest.mark.parametrize("name", ["tiny-steps", "qwen3-vl"])
def test_the_documented_engines_change_nothing_that_a_recipe_makes(name: str, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```\n(\[engine\]\n.*?)```", page, re.DOTALL)
    assert [re.search(r'kind = "(\w+)"', block)[1] for block in blocks] == ["slurm", "ray"]  # type: ignore[index]
    shipped = find(name)
    other = tmp_path / "recipe.toml"
    for block in blocks:
        other.write_text(f"{shipped.read_text(encoding='utf-8')}\n{block}", encoding="utf-8")
        here = load(other).model_copy()
        here._path = shipped
        changes = compare_recipes(load(shipped), here).changes
        assert {change.path.partition(".")[0] for change in changes} == {"engine"}
        assert not any(change.targets for change in changes), "the same run goes on with such a recipe"


def test_an_arm_counts_by_its_stage_and_a_student_from_elsewhere_by_its_content_wherever_it_lies(
    base: Recipe,
) -> None:
    def compared(**changed: str) -> str:
        values = {"stage": "base", "stage_key": "a", "path": "owner/hub", "content": "b"} | changed
        arms = {
            "base": EvaluatedStudent(arm="base", origin=values["stage"], key=values["stage_key"], facts={}),
            "hub": EvaluatedStudent(arm="hub", origin=values["path"], key=values["content"], facts={}),
        }
        return fingerprint(fields_of_arms(base, arms))

    assert compared(path="moved/hub") == compared()
    others = [compared(stage="second"), compared(stage_key="c"), compared(content="c")]
    assert len({compared(), *others}) == 4
