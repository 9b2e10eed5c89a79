"""The plan of a run on many machines: by a finished small run it tells what a run in a store then takes."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from servers import store_servers, stub_server
from servers.store_servers import BUCKET, StoreFaults
from typer.testing import CliRunner
from worlds.generate_world import World
from worlds.store_worlds import put_data, small_world

import filters.store_run
import teacher.store_run
from distill.cli import app
from distill.errors import DataError, RecipeError
from distill.object_store.interface import StoredObject
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store
from distill.planning.scale_plan import plan_scale, scale_text
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.units import image_shards, unit_queue
from distill.units.stored_run import own_scratch
from filters.apply import apply


class CountingStore:
    """A store in a folder that counts requests by how they are charged."""

    def __init__(self, folder: Path) -> None:
        self._store, self.address, self.seen = LocalStore(folder), str(folder), Counter[str]()

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self.seen["reads"] += 1
        return self._store.read(key, start, end)

    def look_up(self, key: str) -> StoredObject:
        self.seen["reads"] += 1
        return self._store.look_up(key)

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        self.seen["writes"] += 1
        return self._store.list_objects(folder)

    def put(self, key: str, data: bytes | Path) -> None:
        self.seen["writes"] += 1
        self._store.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self.seen["writes"] += 1
        return self._store.create(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.02) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    world = small_world(tmp_path, url)
    world.rows.clear()
    world.add_rows(240, images=240)
    world.rows = [row | {"answer": None} for row in world.rows]
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 4\nseal_s = 600\nlease_s = 600\n'
    world.head += "[store.price]\nwrites = 0.005\nreads = 0.0004\ngb_month = 0.02\n[generate]\npatience_s = 2.0"
    return world


@pytest.mark.parametrize(("unit_rows", "units"), [(15, 16), (120, 2)])
def test_a_plan_by_a_small_run_tells_units_objects_bytes_and_requests_of_one_in_a_store(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit_rows: int, units: int
) -> None:
    world.head = world.head.replace("unit_rows = 4", f"unit_rows = {unit_rows}")
    world.generate()
    apply(world.recipe(), world.run)
    plan = plan_scale(world.recipe(), world.run, engine="ray", samples=240, agents=1)
    assert plan.units == units and plan.traces == 720 and plan.generate_hours
    assert plan.writes and plan.reads and plan.store_bytes
    monkeypatch.setattr(unit_queue, "LOOK_S", 600.0)  # a busy machine has time for more looks
    store = CountingStore(tmp_path / "store")
    for module in (teacher.store_run, filters.store_run):
        monkeypatch.setattr(module, "open_run_store", lambda *_, **__: store)
    teacher.store_run.generate_in_store(world.recipe(), "s3://bucket/run", tmp_path / "first")
    filters.store_run.filter_in_store(world.recipe(), "s3://bucket/run", tmp_path / "first")
    seen, objects = store.seen.copy(), store.list_objects()
    if units == 2:
        assert sum(stored.bytes for stored in objects) == pytest.approx(plan.store_bytes, rel=0.15)
    assert len(objects) == pytest.approx(plan.objects, rel=0.15)
    assert seen["writes"] == pytest.approx(plan.writes, rel=0.15)
    assert seen["reads"] == pytest.approx(plan.reads, rel=0.15)
    assert plan.costs["requests"] == pytest.approx((plan.writes * 0.005 + plan.reads * 0.0004) / 1000)
    assert plan.costs["storage"] == pytest.approx(plan.store_bytes / 1e9 * 0.02) and plan.costs["teachers"] is None


@pytest.mark.parametrize(("unit_rows", "shard_bytes"), [(8, 10**6), (30, 2000)])
def test_a_plan_counts_the_images_of_a_store_and_the_shards_that_the_run_packs_them_into(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit_rows: int, shard_bytes: int
) -> None:
    faults = StoreFaults()
    store_servers.set_keys(monkeypatch)
    monkeypatch.delenv("DISTILL_STORED_FILES", raising=False)
    monkeypatch.setattr(image_shards, "SHARD_BYTES", shard_bytes)
    with store_servers.s3_server() as server, store_servers.faulty_proxy(server, faults) as endpoint:
        world.rows = world.rows[:60]
        world.head = world.head.replace("unit_rows = 4", f"unit_rows = {unit_rows}")
        world.head = f"{store_servers.recipe_section(endpoint)}{world.head}"
        put_data(world, open_store(f"s3://{BUCKET}", config=store_servers.config(endpoint)))
        bound = plan_scale(world.recipe(), world.run, engine="ray", samples=60, agents=1)
        world.generate()
        apply(world.recipe(), world.run)
        plan = plan_scale(world.recipe(), world.run, engine="ray", samples=60, agents=1)
        assert plan.writes and plan.reads and bound.store_bytes is bound.writes is None
        store = CountingStore(tmp_path / "store")
        for module in (teacher.store_run, filters.store_run):
            monkeypatch.setattr(module, "open_run_store", lambda *_, **__: store)
        faults.requests.clear()
        recipe = world.recipe()
        with own_scratch(recipe, "s3://bucket/run") as scratch:
            teacher.store_run.generate_in_store(recipe, "s3://bucket/run", scratch)
        with own_scratch(recipe, "s3://bucket/run") as scratch:
            filters.store_run.filter_in_store(recipe, "s3://bucket/run", scratch)
        images = sum(request.startswith("GET") and ".png" in request for request in faults.requests)
    objects = store.list_objects()
    packed = [stored.key for stored in objects if stored.key.startswith("plan/images/")]
    assert len(packed) > 1 and images == 60
    assert len(objects) == pytest.approx(plan.objects, rel=0.15)
    assert store.seen["writes"] == pytest.approx(plan.writes, rel=0.15)
    assert store.seen["reads"] + images == pytest.approx(plan.reads, rel=0.15)


def test_more_agents_take_fewer_hours_and_ten_times_the_samples_ten_times_the_work(world: World) -> None:
    world.generate()
    recipe = load(world.folder / "recipe.toml", {"teachers.stub.price.hour": "3.0"})
    one = plan_scale(recipe, world.run, engine="slurm", samples=10**6, agents=1)
    ten = plan_scale(recipe, world.run, engine="slurm", samples=10**7, agents=10)
    assert one.generate_hours and ten.generate_hours == pytest.approx(one.generate_hours)
    assert ten.traces == 10 * one.traces == 3 * 10**7
    assert one.costs["teachers"] == pytest.approx(3.0 * one.generate_hours)
    assert ten.costs["teachers"] == pytest.approx(10 * one.costs["teachers"])
    assert one.filter_hours is None and one.store_bytes is None, "filter did not run there"


def test_teachers_that_take_turns_take_the_sum_of_their_hours_and_a_unit_of_each_partition(
    world: World, url: str
) -> None:
    world.add_teacher(url, "other", prompt="Look: {question}")
    world.generate()
    together = plan_scale(world.recipe(), world.run, engine="ray", samples=10**6, agents=1)
    for each in world.teachers:
        del each["base_url"]
    turns = plan_scale(world.recipe(), world.run, engine="ray", samples=10**6, agents=1)
    assert turns.units == 2 * together.units and turns.objects > together.objects
    assert together.generate_hours and turns.generate_hours and turns.generate_hours > together.generate_hours
    alone = [plan_scale(only(world, name), world.run, engine="ray", samples=10**6, agents=1) for name in (0, 1)]
    hours = [plan.generate_hours or 0.0 for plan in alone]
    assert turns.generate_hours == pytest.approx(sum(hours))
    priced = load(
        world.folder / "recipe.toml", {"teachers.stub.price.hour": "3.0", "teachers.other.price.hour": "5.0"}
    )
    costs = plan_scale(priced, world.run, engine="ray", samples=10**6, agents=2).costs
    assert costs["teachers"] == pytest.approx(3.0 * hours[0] + 5.0 * hours[1]), "a server is up in its own turn"


def test_a_teacher_that_the_small_run_did_not_ask_is_not_planned_as_free(world: World, url: str) -> None:
    world.rows = world.rows[:12]
    world.generate()
    before = plan_scale(world.recipe(), world.run, engine="ray", samples=10**6, agents=1)
    world.add_teacher(url, "other", prompt="Look: {question}")
    after = plan_scale(world.recipe(), world.run, engine="ray", samples=10**6, agents=1)
    assert after.traces > before.traces and after.output_tokens > before.output_tokens
    assert before.generate_hours is not None and after.generate_hours is None
    assert "of other, which it did not ask, by the maximum that the recipe allows" in after.basis


def only(world: World, number: int) -> Recipe:
    """The recipe with one of its teachers."""
    recipe = world.recipe()
    return recipe.model_copy(update={"teachers": (recipe.teachers[number],)})


def test_without_a_run_a_plan_names_bounds_and_invents_neither_prices_nor_hours(world: World) -> None:
    world.recipe()
    command = ["plan", str(world.folder / "recipe.toml"), "--engine", "slurm", "--agents", "4"]
    command += ["--run", str(world.folder / "none"), "--set", "store.price.writes=0.005"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "not known" in done.output and "<= 1,440" in done.output and "Slurm" in done.output
    fields = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert fields["samples"] == 240 and fields["generate_hours"] is None and set(fields["costs"].values()) == {None}
    (world.folder / "rows.jsonl").unlink()
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2 and "--samples" in done.output
    for option in (["--gpu", "L40S"], ["--price", "2"]):
        done = CliRunner().invoke(app, [*command, *option])
        assert done.exit_code == 2 and "teachers.price" in done.output, "they were ignored"
    done = CliRunner().invoke(app, ["plan", str(world.folder / "recipe.toml"), "--samples", "10"])
    assert done.exit_code == 2 and "--engine" in done.output


def test_traces_of_an_earlier_prompt_are_no_work_of_a_sample(world: World) -> None:
    world.generate()
    before = plan_scale(world.recipe(), world.run, engine="slurm", samples=10**6, agents=1)
    world.teachers[0]["prompt"] = "Think. {question}"
    world.generate(fresh=True)
    after = plan_scale(world.recipe(), world.run, engine="slurm", samples=10**6, agents=1)
    assert after.traces == before.traces == 3 * 10**6
    assert after.output_tokens == pytest.approx(before.output_tokens, rel=0.05)


def test_the_seconds_of_a_filter_that_reused_signals_tell_no_hours(world: World) -> None:
    world.rows = world.rows[:12]
    world.generate()
    recipe = world.recipe()
    apply(recipe, world.run)
    assert plan_scale(recipe, world.run, engine="slurm", samples=10**6, agents=1).filter_hours
    apply(recipe, world.run, fresh=True)
    assert plan_scale(recipe, world.run, engine="slurm", samples=10**6, agents=1).filter_hours is None


def test_more_machines_than_units_and_a_source_without_questions_are_reported(
    tmp_path: Path,
) -> None:
    (tmp_path / "none.jsonl").touch()
    text = '[data.questions]\nsource = "none.jsonl"\n[[teachers]]\nname = "a"\nmodel = "m"\n'
    (tmp_path / "mine.toml").write_text(text)
    recipe = load(tmp_path / "mine.toml")
    with pytest.raises((DataError, RecipeError), match="holds no"):
        plan_scale(recipe, tmp_path / "run", engine="ray", samples=None, agents=None)
    small = plan_scale(recipe, tmp_path / "run", engine="ray", samples=10**8, agents=1)
    assert "16,384 of about 6,104 samples" in scale_text(small, recipe)
    tiny = load(tmp_path / "mine.toml", {"engine.unit_rows": "60"})
    most = plan_scale(tiny, tmp_path / "run", engine="ray", samples=10**9, agents=1)
    assert "1,048,576 of about 954 samples" in scale_text(most, tiny), "the number of partitions has a limit"
    few = plan_scale(recipe, tmp_path / "run", engine="ray", samples=100, agents=1000)
    assert "--agents with fewer machines gives at least 16 units" in scale_text(few, recipe)
    more = plan_scale(recipe, tmp_path / "run", engine="ray", samples=3200, agents=100)
    assert "engine.unit_rows = 2 gives at least 16 units" in scale_text(more, recipe)
