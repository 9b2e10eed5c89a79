"""A data set, a recipe and a run directory for tests of `distill generate`, and how often a stub server was asked."""

import urllib.request
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
from students import tiny_models

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from teacher.generate import generate


class World:
    """A data set and a recipe in a folder, with its run directory."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.rows: list[dict[str, Any]] = []
        self.teachers: list[dict[str, Any]] = []
        self.sampling: dict[str, Any] = {"max_tokens": 16}
        self.head = "[generate]\npatience_s = 2.0"
        self.source, self.images_root = "rows.jsonl", "."

    def add_rows(self, count: int, *, text: str = "How many?", domain: str = "", images: int = 3) -> None:
        for _ in range(count):
            number = len(self.rows)
            name = f"{number % images}.png"
            if not (self.folder / name).exists():
                tiny_models.make_image(self.folder / name, number, size=16)
            row = {"image": name, "question": f"{text} {number}", "answer": "7", "domain": domain}
            self.rows.append(row)

    def add_teacher(self, url: str | None, name: str = "stub", **settings: Any) -> None:
        values = {"name": name, "model": "stub", "backend": "vllm", "base_url": url, "timeout_s": 5.0, **settings}
        self.teachers.append({key: value for key, value in values.items() if value is not None})

    def recipe(self) -> Recipe:
        (self.folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in self.rows))
        lines = [self.head, "[data.questions]", f'source = "{self.source}"']
        lines += [f'images_root = "{self.images_root}"'] if self.images_root else []
        for teacher in self.teachers:
            lines.append("[[teachers]]")
            lines += [f"{key} = {orjson.dumps(value).decode()}" for key, value in teacher.items()]
            lines.append("[teachers.sampling]")
            lines += [f"{key} = {orjson.dumps(value).decode()}" for key, value in self.sampling.items()]
        (self.folder / "recipe.toml").write_text("\n".join(lines))
        return load(self.folder / "recipe.toml")

    def generate(self, **options: Any) -> Manifest:
        return generate(self.recipe(), self.run, **options)

    def records(self) -> list[dict[str, Any]]:
        return [record for part in sorted(self.run.glob("generate/*/part-*.jsonl")) for record in read_jsonl(part)]

    def ids(self) -> list[str]:
        return sorted(record["id"] for record in self.records())

    def planned(self) -> list[str]:
        return sorted(pq.read_table(self.run / "generate" / "plan.parquet")["id"].to_pylist())


def set_mode(url: str, name: str) -> None:
    """What all requests to a stub meet from now on."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    direct.open(f"{url.removesuffix('/v1')}/mode?{name}").read()


def asked_of(url: str) -> int:
    # The opener of the module keeps the proxy of the test that opens first.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url.removesuffix("/v1") + "/seen") as response:
        return int(orjson.loads(response.read())["answered"])
