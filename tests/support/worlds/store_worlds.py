"""Runs whose traces lie in a store: a small world, and what of two runs must be equal."""

import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import orjson
from servers.store_servers import BUCKET
from worlds.generate_world import World

from distill.artifacts.files import file_sha256
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import train_data_folder
from distill.artifacts.manifest import Manifest
from distill.object_store.interface import ObjectStore
from distill.object_store.local_store import LocalStore
from distill.units.stored_run import pull_generate
from distill.units.stored_stage import pull_stage
from filters.apply import apply

PASSING = {"latency_s", "created", "crc"}
"""What two records of the same trace need not share."""


def small_world(folder: Path, url: str) -> World:
    """30 questions about nine images, three traces each: 90 requests."""
    world = World(folder)
    world.add_rows(30, images=9)
    world.rows = [row | {"answer": None} for row in world.rows]  # the stub knows no right one
    world.add_teacher(url, samples=3, max_in_flight=4)
    return world


def copied(world: World, folder: Path) -> World:
    """The same world with all that its folder holds, in another one."""
    shutil.copytree(world.folder, folder, dirs_exist_ok=True)
    other = World(folder)
    other.rows, other.teachers, other.head = world.rows, world.teachers, world.head
    return other


def lines_of(world: World, run: Path) -> list[dict[str, Any]]:
    """The records of a run, by id."""
    other = World(world.folder)
    other.run = run
    records = [{key: value for key, value in each.items() if key not in PASSING} for each in other.records()]
    return sorted(records, key=lambda record: str(record["id"]))


def dataset(run: Path) -> dict[str, str]:
    """Digests of the dataset's files."""
    folder = train_data_folder(run)
    return {path.name: file_sha256(path) for path in sorted(folder.rglob("*.parquet"))}


def put_data(world: World, bucket: ObjectStore) -> None:
    """Put the rows and images of a world into a bucket, and let its recipe read them there."""
    world.recipe()
    for path in [world.folder / "rows.jsonl", *world.folder.glob("*.png")]:
        bucket.put(f"data/{path.name}", path)
    world.source, world.images_root = f"s3://{BUCKET}/data/rows.jsonl", f"s3://{BUCKET}/data"


def put_shards(world: World, bucket: ObjectStore) -> None:
    """Put the rows and images of a world into a bucket as two tar shards, and let its recipe read them there."""
    world.recipe()
    rows = [orjson.loads(line) for line in (world.folder / "rows.jsonl").read_bytes().splitlines()]
    for number in range(2):
        path = world.folder / f"{number}.tar"
        with tarfile.open(path, "w") as shard:
            for row in range(number * len(rows) // 2, (number + 1) * len(rows) // 2):
                image = world.folder / rows[row].pop("image")
                shard.add(image, f"{row:04d}{image.suffix}")
                member = tarfile.TarInfo(f"{row:04d}.json")
                data = orjson.dumps(rows[row])
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
        bucket.put(f"data/{path.name}", path)
    world.source, world.images_root = f"s3://{BUCKET}/data/*.tar", ""


def address(world: World) -> str:
    """Of the run of a world in a store that is a folder."""
    return (world.folder / "store").as_uri()


def assert_filtered_as_in_a_folder(world: World) -> Manifest:
    """The finished filter stage in the store has the files of a run in a folder; its manifest."""
    store, pulled, plain = LocalStore(world.folder / "store"), world.folder / "pulled", world.folder / "plain"
    pull_stage(store, "filter", pulled / "filter")
    pull_generate(store, plain)
    expected, found = apply(world.recipe(), plain), Manifest.read(pulled / "filter")
    assert found is not None and found.outputs == expected.outputs
    assert dataset(pulled) == dataset(plain) != {}
    return found


def losses_of_same_steps(*trainings: Path) -> list[list[float]]:
    """The losses of the stage `reason` in folders of `train`, which must have read the same rows in each step."""
    logs = [list(read_jsonl(folder / "reason" / "metrics.jsonl")) for folder in trainings]
    counts = [
        [[line[key] for key in ("step", "tokens", "response_tokens", "images")] for line in log] for log in logs
    ]
    assert all(each == counts[0] for each in counts)
    return [[line["loss"] for line in log] for log in logs]
