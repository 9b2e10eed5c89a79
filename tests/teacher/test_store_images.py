"""`generate` and `filter` with rows and images in a store: the traces and the dataset of images on this machine."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import store_servers
import stub_server
from generate_world import World, asked_of, set_mode
from store_servers import BUCKET, StoreFaults
from store_worlds import dataset, lines_of, put_data, small_world

from distill.artifacts.files import file_sha256
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.units.stored_run import own_scratch, pull_generate
from filters.apply import apply
from filters.store_run import filter_in_store
from teacher.store_run import generate_in_store

RUN = f"s3://{BUCKET}/run"


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.03) as url:
        yield url


@pytest.fixture
def faults() -> StoreFaults:
    return StoreFaults()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, faults: StoreFaults) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("DISTILL_STORED_FILES", raising=False)
    with store_servers.s3_server() as server, store_servers.faulty_proxy(server, faults) as proxy:
        yield proxy


@pytest.fixture
def bucket(endpoint: str) -> ObjectStore:
    return open_store(f"s3://{BUCKET}", config=store_servers.config(endpoint))


@pytest.fixture
def world(tmp_path: Path, url: str, endpoint: str) -> World:
    """Rows and images on this machine."""
    world = small_world(tmp_path / "world", url)
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 8\nseal_s = 0.05\n'
    world.head += f'[store]\nendpoint = "{endpoint}"\nregion = "us-east-1"\nallow_http = true\n'
    world.head += "[generate]\npatience_s = 2.0"
    return world


@pytest.fixture
def plain(world: World) -> World:
    """A finished run of these rows and images in a folder."""
    world.generate()
    apply(world.recipe(), world.run)
    return world


def generate(world: World) -> None:
    recipe = world.recipe()
    with own_scratch(recipe, RUN) as scratch:
        generate_in_store(recipe, RUN, scratch)


def assert_equal(world: World, bucket: ObjectStore, pulled: Path) -> None:
    """The run in the store has the traces of the run in the folder, and its filter the same dataset."""
    recipe = world.recipe()
    pull_generate(open_store(RUN, config=recipe.store.client_options()), pulled)
    assert lines_of(world, pulled) == lines_of(world, world.run) and len(lines_of(world, pulled)) == 90
    assert file_sha256(pulled / "generate/plan.parquet") == file_sha256(world.run / "generate/plan.parquet")
    with own_scratch(recipe, RUN) as scratch:
        filter_in_store(recipe, RUN, scratch)
        assert dataset(scratch / "run") == dataset(world.run) != {}


def test_a_run_on_a_store_of_images_equals_one_on_local_images(
    plain: World, bucket: ObjectStore, tmp_path: Path
) -> None:
    put_data(plain, bucket)
    for path in plain.folder.glob("*.png"):
        path.unlink()
    generate(plain)
    assert_equal(plain, bucket, tmp_path / "pulled")


def test_a_run_in_a_folder_reads_images_of_a_store_and_notices_another_one(
    plain: World, bucket: ObjectStore, url: str, faults: StoreFaults, tmp_path: Path
) -> None:
    other = World(plain.folder)
    put_data(plain, bucket)
    other.head, other.rows, other.teachers = plain.head, plain.rows, plain.teachers
    other.source, other.images_root, other.run = plain.source, plain.images_root, tmp_path / "run"
    other.generate()
    apply(other.recipe(), other.run)
    assert lines_of(plain, other.run) == lines_of(plain, plain.run)
    assert dataset(other.run) == dataset(plain.run) != {}
    asked = asked_of(url)
    faults.seen.clear()
    other.generate()
    assert asked_of(url) == asked and faults.seen["GET"] <= 2, "a finished run lists the images and reads none"
    bucket.put("data/0.png", plain.folder / "1.png")
    other.generate()
    samples = pq.read_table(other.run / "generate/samples.parquet")["images"].to_pylist()
    assert asked_of(url) > asked and len({image["sha256"] for images in samples for image in images}) == 8


def test_agents_share_a_run_on_a_store_of_images_and_outlive_a_killed_one(
    plain: World, bucket: ObjectStore, url: str, tmp_path: Path
) -> None:
    put_data(plain, bucket)
    plain.head = plain.head.replace("seal_s", "lease_s = 2.0\nseal_s")
    command = [sys.executable, "-m", "distill", "generate", str(plain.recipe().path), "--run", RUN]
    set_mode(url, "hold")
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    deadline = time.monotonic() + 120
    while len(bucket.list_objects("run/claims/generate")) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    asked = asked_of(url)
    set_mode(url, "")
    while asked_of(url) < asked + 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    processes[0].kill()
    processes[0].communicate()
    _, err = processes[1].communicate(timeout=120)
    assert processes[1].returncode == 0, err.decode()
    assert_equal(plain, bucket, tmp_path / "pulled")
