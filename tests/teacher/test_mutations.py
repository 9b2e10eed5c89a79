"""The mutation matrix: a finished run, one change, and exactly the traces that it touches are asked again."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomli_w
from servers import stub_server
from students import tiny_models
from worlds.generate_world import asked_of

from distill.recipe.loading import load
from teacher.generate import generate

ROWS, IMAGES, SAMPLES = 6, 3, 2
ALL = ROWS * SAMPLES


class World:
    """A data set and a recipe, changed by one mutation."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.rows = [
            {"image": f"{number % IMAGES}.png", "question": f"How many? {number}", "answer": "7"}
            for number in range(ROWS)
        ]
        self.seed = 0
        self.source = "rows.jsonl"
        self.sampling: dict[str, Any] = {"temperature": 0.8, "max_tokens": 100}
        self.teacher: dict[str, Any] = {"name": "t", "model": "stub", "base_url": url, "samples": SAMPLES}

    def generate(self) -> None:
        table = b"".join(orjson.dumps(row) + b"\n" for row in self.rows)
        if self.source == "rows.jsonl":
            (self.folder / "rows.jsonl").write_bytes(table)
        recipe = {
            "seed": self.seed,
            "data": {"questions": {"source": self.source, "images_root": "."}},
            "teachers": [{**self.teacher, "sampling": self.sampling}],
        }
        (self.folder / "recipe.toml").write_text(tomli_w.dumps(recipe))
        generate(load(self.folder / "recipe.toml"), self.folder / "run", fresh=True)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, url: str) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    for number in range(IMAGES):
        tiny_models.make_image(folder / f"{number}.png", number, size=16)
    World(folder, url).generate()
    return folder


def teacher(**values: Any) -> Callable[[World], None]:
    return lambda world: world.teacher.update(values)


def sampling(**values: Any) -> Callable[[World], None]:
    return lambda world: world.sampling.update(values)


def seed(world: World) -> None:
    world.seed = 1


def image_byte(world: World) -> None:
    tiny_models.make_image(world.folder / "1.png", 99, size=16)


def order(world: World) -> None:
    world.rows.reverse()


def appended(world: World) -> None:
    world.rows += [{"image": "0.png", "question": "And now?"}, {"image": "1.png", "question": "And now?"}]


def removed(world: World) -> None:
    del world.rows[2]


def question(world: World) -> None:
    world.rows[3]["question"] += " Really?"


def gold(world: World) -> None:
    world.rows[3]["answer"] = "8"


def other_format(world: World) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(world.rows[:4]), world.folder / "part-a.parquet")
    pq.write_table(pa.Table.from_pylist(world.rows[4:]), world.folder / "part-b.parquet")
    (world.folder / "table").mkdir()
    for name in ("part-a.parquet", "part-b.parquet"):
        (world.folder / name).rename(world.folder / "table" / name)
    world.source = "table"


MATRIX: dict[str, tuple[Callable[[World], None], int]] = {
    "template": (teacher(prompt="Think first. {question}"), ALL),
    "system": (teacher(system="You are careful."), ALL),
    "model revision": (teacher(revision="abc"), ALL),
    "temperature": (sampling(temperature=0.7), ALL),
    "top_p": (sampling(top_p=0.9), ALL),
    "top_k": (sampling(top_k=20), ALL),
    "min_p": (sampling(min_p=0.1), ALL),
    "repetition_penalty": (sampling(repetition_penalty=1.1), ALL),
    "max_tokens": (sampling(max_tokens=99), ALL),
    "stop": (sampling(stop=["\n\n\n"]), ALL),
    "stop_repetition": (sampling(stop_repetition=False), ALL),
    "thinking_budget": (sampling(thinking_budget=50), ALL),
    "seed": (seed, ALL),
    "image byte": (image_byte, ROWS // IMAGES * SAMPLES),
    "processor setting": (teacher(mm_processor_kwargs={"max_pixels": 1000}), ALL),
    "chat template argument": (teacher(chat_template_kwargs={"enable_thinking": False}), ALL),
    "log-probabilities": (teacher(logprobs=2), ALL),
    "one more sample": (teacher(samples=SAMPLES + 1), ROWS),
    "one sample fewer": (teacher(samples=SAMPLES - 1), 0),
    "question": (question, SAMPLES),
    "gold answer": (gold, 0),
    "input order": (order, 0),
    "appended rows": (appended, 2 * SAMPLES),
    "removed row": (removed, 0),
    "other file format, two files": (other_format, 0),
    "connection": (teacher(max_in_flight=1, timeout_s=7.0, max_retries=1, images="base64"), 0),
    "way of parsing": (teacher(reasoning="tags"), 0),
}


@pytest.mark.parametrize("name", MATRIX)
def test_a_change_asks_again_exactly_what_it_touches(name: str, finished: Path, url: str, tmp_path: Path) -> None:
    mutate, expected = MATRIX[name]
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    world = World(tmp_path, url)
    mutate(world)
    before = asked_of(url)
    world.generate()
    assert asked_of(url) - before == expected
    world.generate()
    assert asked_of(url) - before == expected
