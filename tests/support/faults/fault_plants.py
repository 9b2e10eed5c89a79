"""Changes to the files and the recipe of tests/support/worlds/check_world.py, from which faults are made."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worlds import check_world as world

Plant = Callable[[Path, dict[str, Any]], object]


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """What is planted, and the key and words that the result has to hold."""

    plant: Plant
    key: str
    words: str
    state: str = "problem"


def edit(name: str, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> Plant:
    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        path = folder / f"{name}.jsonl"
        world.write(path, [change(number, row) for number, row in enumerate(world.rows(path))])

    return plant


def put(*path: Any) -> Plant:
    *keys, last, value = path

    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        node: Any = recipe
        for key in keys:
            node = node[key] if isinstance(key, int) or isinstance(node, list) else node.setdefault(key, {})
        node[last] = value

    return plant


def write(name: str, content: bytes) -> Plant:
    return lambda folder, recipe: (folder / name).write_bytes(content)


def remove(*names: str) -> Plant:
    return lambda folder, recipe: [path.unlink() for name in names for path in folder.glob(name)]


def both(*plants: Plant) -> Plant:
    return lambda folder, recipe: [plant(folder, recipe) for plant in plants]


def teacher(name: str, **values: Any) -> Plant:
    """One more teacher, about all questions."""
    settings = {"name": name, "backend": "vllm", "model": "some/teacher", "base_url": "http://127.0.0.1:9/v1"}

    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        made = {key: value for key, value in {**settings, **values}.items() if value is not None}
        recipe["teachers"].append(made)

    return plant


def add_stage(**values: Any) -> Plant:
    settings = {"train": ["language"], "max_steps": 1, "batch_size": 4, "micro_batch_tokens": 512}
    return lambda folder, recipe: recipe["stages"].append({**settings, **values})


def add_rule(name: str, drop: str) -> Plant:
    return lambda folder, recipe: recipe["filter"]["rules"].append({"name": name, "drop": drop})


def add_source(name: str, rows: list[dict[str, Any]], **values: Any) -> Plant:
    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        world.write(folder / f"{name}.jsonl", rows)
        recipe["data"][name] = {"source": f"{name}.jsonl", "images_root": "images", **values}

    return plant


def remove_tensor(folder: Path, recipe: dict[str, Any]) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "language" / "model.safetensors"
    weights = load_file(path)
    weights.pop(next(name for name in sorted(weights) if "mlp" in name))
    save_file(weights, path, metadata={"format": "pt"})


def remove_shard(folder: Path, recipe: dict[str, Any]) -> None:
    path = folder / "language" / "model.safetensors"
    path.rename(path.with_name("model-00001-of-00002.safetensors"))
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "language" / "model.safetensors.index.json").write_text(json.dumps(index))


def cut_file(name: str) -> Plant:
    return lambda folder, recipe: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def put_json(name: str, **changes: Any) -> Plant:
    def plant(folder: Path, recipe: dict[str, Any]) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return plant


def copy_images(folder: Path, recipe: dict[str, Any]) -> None:
    first = world.QUESTIONS + world.CAPTIONS
    for number in range(5):
        shutil.copyfile(folder / "images" / f"{number}.png", folder / "images" / f"{first + number}.png")


def damage_images(folder: Path, recipe: dict[str, Any]) -> None:
    for number in (1, 2, 3):
        (folder / "images" / f"{number}.png").write_bytes(b"<!DOCTYPE html><html>not found</html>")


def write_adapter(folder: Path, recipe: dict[str, Any]) -> None:
    from safetensors.torch import save_file
    from torch import zeros

    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "../teacher"}))
    weights = {"base_model.model.no.such.layer.lora_A.weight": zeros(4, 4)}
    save_file(weights, folder / "adapter" / "adapter_model.safetensors")
    recipe["eval"].setdefault("students", {})["other"] = {"model": "teacher", "adapter": "adapter"}


def remove_end_of_turn(folder: Path, recipe: dict[str, Any]) -> None:
    for file in (folder / "language").glob("*token*"):
        file.write_text(file.read_text().replace("<|im_end|>", "<|stop|>"))
