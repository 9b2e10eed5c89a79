"""Trace ids: changed by everything that decides a text, by nothing else."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomli_w
from students import tiny_models

from distill.data import reader
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from teacher.messages.prompts import prompt_sha
from teacher.messages.request import Author, Model, model_of, plain_request, requests


class World:
    """A data set, a model directory and a recipe that a test changes one thing of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = [
            {"image": f"{index}.png", "question": f"How many? {index}", "answer": str(index)} for index in range(6)
        ]
        for index in range(6):
            tiny_models.make_image(folder / f"{index}.png", index, size=8)
        model = folder / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        (model / "model.safetensors").write_bytes(b"weights")
        self.seed = 0
        self.sampling: dict[str, Any] = {"temperature": 0.8, "max_tokens": 100}
        self.teacher: dict[str, Any] = {"name": "t", "model": "model", "backend": "embedded", "samples": 2}

    def recipe(self) -> Recipe:
        (self.folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in self.rows))
        recipe = {
            "seed": self.seed,
            "data": {"questions": {"source": "rows.jsonl"}},
            "teachers": [{**self.teacher, "sampling": self.sampling}],
        }
        path = self.folder / "recipe.toml"
        path.write_text(tomli_w.dumps(recipe))
        return load(path)

    def ids(self) -> dict[tuple[str, int], str]:
        """The trace id of every question and k."""

        recipe = self.recipe()
        (teacher,) = recipe.teachers
        model = model_of(recipe, teacher)
        return {
            (sample.question, request.k): request.id
            for sample in reader.samples(recipe)
            for request in requests(recipe, teacher, model, sample)
        }


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _set_sampling(**values: Any) -> Any:
    return lambda world: world.sampling.update(values)


def _set_teacher(**values: Any) -> Any:
    return lambda world: world.teacher.update(values)


def _one_image_byte(world: World) -> None:
    tiny_models.make_image(world.folder / "3.png", 99, size=8)


def _one_question(world: World) -> None:
    world.rows[3]["question"] = "How many more?"


def _weights(world: World) -> None:
    (world.folder / "model" / "model.safetensors").write_bytes(b"weightz")


def _processor(world: World) -> None:
    (world.folder / "model" / "processor_config.json").write_text('{"image_seq_len": 16}')


EVERYTHING = {
    "template": _set_teacher(prompt="Think first.\n{question}"),
    "system": _set_teacher(system="Be brief."),
    "temperature": _set_sampling(temperature=0.9),
    "top_p": _set_sampling(top_p=0.9),
    "top_k": _set_sampling(top_k=5),
    "min_p": _set_sampling(min_p=0.1),
    "repetition_penalty": _set_sampling(repetition_penalty=1.1),
    "max_tokens": _set_sampling(max_tokens=101),
    "stop": _set_sampling(stop=["\n\n"]),
    "chat_template_kwargs": _set_teacher(chat_template_kwargs={"enable_thinking": False}),
    "model weights": _weights,
    "processor setting": _processor,
    "seed": lambda world: setattr(world, "seed", 1),
}


@pytest.mark.parametrize("change", EVERYTHING)
def test_a_setting_that_decides_the_text_changes_every_id(world: World, change: str) -> None:
    before = world.ids()
    EVERYTHING[change](world)
    after = world.ids()
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


def test_another_revision_of_a_hub_model_changes_every_id(world: World) -> None:
    world.teacher |= {"model": "some/model", "revision": "aaa"}
    before = world.ids()
    world.teacher["revision"] = "bbb"
    assert not set(before.values()) & set(world.ids().values())


@pytest.mark.parametrize("change", [_one_image_byte, _one_question])
def test_a_changed_row_changes_its_own_ids_only(world: World, change: Any) -> None:
    before = set(world.ids().values())
    change(world)
    after = set(world.ids().values())
    assert len(before) == len(after) == 12
    assert len(before & after) == 10


def _rename_teacher(world: World) -> None:
    world.teacher["name"] = "renamed"


def _move_model(world: World) -> None:
    (world.folder / "model").rename(world.folder / "moved")
    world.teacher["model"] = "moved"


def _serve_it(world: World) -> None:
    world.teacher |= {"backend": "vllm", "base_url": "http://127.0.0.1:1/v1", "max_in_flight": 7, "timeout_s": 3.0}


def _reparse(world: World) -> None:
    world.teacher["reasoning"] = "tags"


def _spell_out_defaults(world: World) -> None:
    world.sampling |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "stop": []}


def _reorder(world: World) -> None:
    world.rows.reverse()


def _move_images(world: World) -> None:
    (world.folder / "elsewhere").mkdir()
    for row in world.rows:
        (world.folder / row["image"]).rename(world.folder / "elsewhere" / row["image"])
        row["image"] = f"elsewhere/{row['image']}"


@pytest.mark.parametrize(
    "change", [_rename_teacher, _move_model, _serve_it, _reparse, _spell_out_defaults, _reorder, _move_images]
)
def test_what_does_not_decide_the_text_changes_no_id(world: World, change: Any) -> None:
    before = world.ids()
    change(world)
    assert world.ids() == before


def test_appended_rows_and_more_samples_only_add_ids(world: World) -> None:
    before = world.ids()
    world.rows.append({"image": "0.png", "question": "And now?", "answer": "1"})
    world.teacher["samples"] = 3
    after = world.ids()
    assert before.items() <= after.items()
    assert len(after) == 21


def test_seeds_are_31_bit_numbers_that_are_neither_consecutive_nor_repeated(world: World) -> None:
    world.teacher["samples"] = 50
    recipe = world.recipe()
    (teacher,) = recipe.teachers
    model = model_of(recipe, teacher)
    seeds = [
        request.seed for sample in reader.samples(recipe) for request in requests(recipe, teacher, model, sample)
    ]
    assert all(0 <= seed < 2**31 for seed in seeds) and max(seeds) >= 2**30
    assert len(set(seeds)) == 300
    assert min(abs(a - b) for a, b in pairwise(seeds)) > 1000


def _author(**settings: Any) -> Author:
    teacher = Teacher(**{"name": "t", "model": "m", "backend": "embedded", "prompt": "{question}"} | settings)
    return Author(teacher=teacher, model=Model(name="m", revision="r", local=False), seed=0)


SAMPLE = Sample(id="s", images=(), question="How many?")


def test_the_id_and_the_seed_of_an_attempt_stay_the_same_from_version_to_version() -> None:
    # A run that an earlier version began is resumed by these ids; with other ids everything is asked again.
    author = _author()
    first = author.first_attempt(SAMPLE, 0)
    again = author.next_attempt(first, author.teacher.sampling, reseed=True)
    assert (first.id, first.seed) == ("b4e51a26ce7dd8668af4", 646122903)
    assert (again.id, again.seed) == ("7776d26c0cc34833d37d", 41007505)


def test_the_dtype_is_in_the_ids_of_an_embedded_teacher_where_it_is_not_the_default() -> None:
    usual = _author().first_attempt(SAMPLE, 0).id
    served = {"backend": "vllm", "base_url": "http://127.0.0.1:1/v1"}
    assert _author(dtype="float32").first_attempt(SAMPLE, 0).id == usual
    assert _author(dtype="bfloat16").first_attempt(SAMPLE, 0).id != usual
    assert _author(dtype="bfloat16", **served).first_attempt(SAMPLE, 0).id == usual


def test_a_further_attempt_counts_those_before_it_and_has_a_new_seed_only_if_one_is_called_for() -> None:
    author = _author()
    first = author.first_attempt(SAMPLE, 0)
    longer = author.next_attempt(first, Sampling(max_tokens=4096), reseed=False)
    reseeded = author.next_attempt(longer, Sampling(max_tokens=4096), reseed=True)
    assert [(each.attempt, each.reseeds) for each in (first, longer, reseeded)] == [(0, 0), (1, 0), (2, 1)]
    assert first.seed == longer.seed != reseeded.seed
    assert len({first.id, longer.id, reseeded.id}) == 3


def test_another_hub_model_of_the_same_revision_changes_every_id(world: World) -> None:
    world.teacher |= {"model": "some/model", "revision": "main"}
    before = world.ids()
    world.teacher["model"] = "other/model"
    assert not set(before.values()) & set(world.ids().values())


def test_the_control_question_is_asked_with_the_teachers_own_settings_and_always_the_same() -> None:
    teacher = _author(system="Be brief.", sampling=Sampling(temperature=0.3)).teacher
    control = plain_request(teacher)
    assert (control.prompt.system, control.prompt.text) == ("Be brief.", "Answer with the word yes.")
    assert control.sampling == teacher.sampling and control.prompt_sha == prompt_sha(control.prompt)
    assert (control.id, control.k, control.seed) == ("", 0, 0)
