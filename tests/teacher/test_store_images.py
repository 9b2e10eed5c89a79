"""`generate` and `filter` with rows and images in a store: the traces and the dataset of images on this machine."""

import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image
from processes import forked
from servers import store_servers, stub_server
from servers.store_servers import BUCKET, StoreFaults
from worlds.generate_world import World, asked_of, set_mode
from worlds.run_fixtures import short_report
from worlds.store_worlds import dataset, lines_of, put_data, put_shards, small_world

from distill.artifacts.files import file_sha256
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.units import image_shards
from distill.units.stored_run import own_scratch, pull_generate
from distill.units.stored_stage import pull_stage
from filters.apply import apply
from filters.report import page
from filters.store_run import filter_in_store
from teacher.agent import Agent
from teacher.store_run import generate_in_store

pytestmark = pytest.mark.usefixtures("short_report")
RUN = f"s3://{BUCKET}/run"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.03) as url:
        yield url


@pytest.fixture
def faults() -> StoreFaults:
    return StoreFaults()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, faults: StoreFaults) -> Iterator[str]:
    store_servers.set_keys(monkeypatch)
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
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 15\nseal_s = 0.05\n'
    world.head += store_servers.recipe_section(endpoint)
    world.head += "[generate]\npatience_s = 2.0"
    return world


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, url: str) -> Path:
    """A run of these rows and images in a folder."""
    world = small_world(tmp_path_factory.mktemp("finished"), url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write", short_report)
        world.generate()
        apply(world.recipe(), world.run)
    return world.run


@pytest.fixture
def plain(world: World, finished: Path) -> World:
    """The same, for one test."""
    shutil.copytree(finished, world.run)
    return world


def generate(world: World) -> None:
    recipe = world.recipe()
    with own_scratch(recipe, RUN) as scratch:
        generate_in_store(recipe, RUN, scratch)


def assert_equal(world: World, bucket: ObjectStore, pulled: Path) -> None:
    """The run in the store has the traces of the run in the folder, and its filter the same dataset."""
    recipe = world.recipe()
    store = open_store(RUN, config=recipe.store.client_options())
    pull_generate(store, pulled)
    assert lines_of(world, pulled) == lines_of(world, world.run) and len(lines_of(world, pulled)) == 90
    assert file_sha256(pulled / "generate/plan.parquet") == file_sha256(world.run / "generate/plan.parquet")
    with own_scratch(recipe, RUN) as scratch:
        filter_in_store(recipe, RUN, scratch)
    pull_stage(store, "filter", pulled / "filter")
    assert dataset(pulled) == dataset(world.run) != {}


def image_gets(faults: StoreFaults) -> Counter[str]:
    """How often each image was fetched by its own name."""
    return Counter(request for request in faults.requests if request.startswith("GET") and ".png" in request)


def shards(bucket: ObjectStore) -> list[str]:
    return [stored.key for stored in bucket.list_objects("run/plan/images")]


def test_a_run_on_a_store_of_images_equals_one_on_local_images(
    plain: World, bucket: ObjectStore, faults: StoreFaults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_shards, "SHARD_BYTES", 2000)
    put_data(plain, bucket)
    for path in plain.folder.glob("*.png"):
        path.unlink()
    bucket.put("run/plan/images/killed/00/00/000.tar", b"of a process that was killed while it planned")
    generate(plain)
    units = {key.rsplit("/", 1)[0] for key in shards(bucket)}
    assert 1 < len(units) < len(shards(bucket)) and not [key for key in shards(bucket) if "killed" in key]
    assert not list(plain.folder.rglob("scratch/*/files")), "nothing is left on this machine"
    assert_equal(plain, bucket, tmp_path / "pulled")
    assert len(image_gets(faults)) == 9 and set(image_gets(faults).values()) == {1}, "each image is asked for once"


def test_a_run_on_tar_shards_of_a_store_equals_one_on_local_images(
    plain: World, bucket: ObjectStore, faults: StoreFaults, tmp_path: Path
) -> None:
    put_shards(plain, bucket)
    for path in plain.folder.glob("*.png"):
        path.unlink()
    generate(plain)
    assert_equal(plain, bucket, tmp_path / "pulled")
    gets = Counter(request for request in faults.requests if request.startswith("GET") and "/data/" in request)
    assert set(gets.values()) == {1} and len(gets) == 2, "each shard of the source is read once"


def stop_when_planned(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a run, and end before its first unit."""

    def stop(self: Agent) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Agent, "run", stop)
        generate(world)


def test_images_that_are_replaced_or_deleted_during_a_run_change_nothing(
    plain: World, bucket: ObjectStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_data(plain, bucket)
    stop_when_planned(plain, monkeypatch)
    bucket.put("data/0.png", plain.folder / "1.png")
    bucket.delete(["data/2.png"])
    generate(plain)
    assert_equal(plain, bucket, tmp_path / "pulled")


def test_images_that_look_alike_are_compared_as_they_were_when_the_run_was_planned(
    world: World, bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.head += '\n[filter]\nsignals = ["answer", "question"]'
    world.recipe()
    Image.open(world.folder / "4.png").save(world.folder / "3.png", compress_level=0)  # the same in another file
    world.generate()
    apply(world.recipe(), world.run)
    (table,) = (world.run / "filter" / "question").glob("*.parquet")
    rows = pq.read_table(table, columns=["question_picture_questions"]).to_pylist()
    assert {row["question_picture_questions"] for row in rows} >= {3, 6}, "questions about one picture, and about two"
    put_data(world, bucket)
    stop_when_planned(world, monkeypatch)
    for name in ("3.png", "4.png"):
        bucket.put(f"data/{name}", world.folder / "1.png")
    generate(world)
    assert_equal(world, bucket, tmp_path / "pulled")
    pulled = tmp_path / "pulled" / table.relative_to(world.run)
    assert pulled.read_bytes() == table.read_bytes()


def test_without_a_shard_images_are_fetched_one_by_one_and_another_one_is_an_error_of_its_questions(
    plain: World,
    bucket: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put_data(plain, bucket)
    stop_when_planned(plain, monkeypatch)
    first, *others = shards(bucket)
    bucket.put(first, bucket.read(first)[:1000])
    bucket.delete(others)
    bucket.put("data/0.png", plain.folder / "1.png")
    generate(plain)
    assert "cannot be read" in caplog.text
    recipe = plain.recipe()
    pull_generate(open_store(RUN, config=recipe.store.client_options()), tmp_path / "pulled")
    pulled, before = (lines_of(plain, run) for run in (tmp_path / "pulled", plain.run))
    bad = [record for record in pulled if record["outcome"] == "error"]
    assert bad and all("changed_image" in record["error"] for record in bad)
    assert [record for record in pulled if record not in bad] == [
        record for record in before if record["id"] not in {each["id"] for each in bad}
    ]
    assert len({record["sample_id"] for record in bad}) in (3, 4), "the questions about one image"


def test_an_outage_while_a_unit_reads_its_images_is_waited_for(
    plain: World, bucket: ObjectStore, url: str, faults: StoreFaults, tmp_path: Path
) -> None:
    put_data(plain, bucket)
    away: list[float] = []

    def leave(request: str) -> None:
        if request.startswith("GET") and ".tar" in request and not away:
            away.append(time.monotonic() + 3.0)
        faults.away = bool(away) and time.monotonic() < away[0]

    faults.wait_before = leave
    asked = asked_of(url)
    generate(plain)
    assert away and asked_of(url) == asked + 90
    assert_equal(plain, bucket, tmp_path / "pulled")


def test_an_agent_that_is_killed_while_it_reads_images_costs_nothing(
    plain: World, bucket: ObjectStore, url: str, faults: StoreFaults, tmp_path: Path
) -> None:
    put_data(plain, bucket)
    reached, killed = threading.Event(), threading.Event()

    def hold(request: str) -> None:
        if request.startswith("GET") and ".tar" in request and not killed.is_set():
            reached.set()
            killed.wait(60)

    faults.wait_before = hold
    command = [forked.interpreter(), "-m", "distill", "generate", str(plain.recipe().path), "--run", RUN]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert reached.wait(60)
    process.kill()
    process.wait()
    killed.set()
    asked = asked_of(url)
    generate(plain)
    assert asked_of(url) == asked + 90
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
    plain.head = plain.head.replace("unit_rows = 15", "unit_rows = 8\nlease_s = 2.0")
    command = [forked.interpreter(), "-m", "distill", "generate", str(plain.recipe().path), "--run", RUN]
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
