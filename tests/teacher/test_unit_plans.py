"""The units of a process share its folder of images and its engines: what one no longer needs, another may."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from servers.store_in_memory import MemoryStore
from worlds.generate_world import World

from distill.data import sample_files
from distill.data.images import stored_images
from distill.object_store.recipe_stores import files_in
from distill.types import ImageRef, Sample
from distill.units import image_shards
from distill.units.agent_record import AgentRecord
from distill.units.commits import Unit
from distill.units.stored_run import samples_key
from distill.units.unit_queue import UnitQueue
from teacher.generation import Generation
from teacher.progress import GenerateProgress
from teacher.store import question_plan
from teacher.unit_journals import Sealer
from teacher.unit_plans import UnitPlans

IMAGE = ImageRef(path="s3://bucket/shared.png", sha256="ab" * 32)
NAMES = ("00", "01")


@pytest.fixture
def plans(tmp_path: Path) -> Iterator[UnitPlans]:
    """Of two units with one question each."""
    world = World(tmp_path)
    world.add_rows(1)
    world.add_teacher("http://127.0.0.1:9/v1")
    recipe, store = world.recipe(), MemoryStore()
    agent = AgentRecord(store=store)
    agent.beat()
    for name in NAMES:
        sample = Sample(id=name * 10, images=(IMAGE,), question="?")
        sample_files.write_samples(tmp_path / "samples", [sample])
        store.put(samples_key(name), tmp_path / "samples")
    queue = UnitQueue(agent, [Unit(round=0, partition=name) for name in NAMES], retries=5)
    progress = GenerateProgress(lambda _: None, done=0, total=2, outcomes={})
    plan = {"rounds": [{"teachers": [teacher.name for teacher in recipe.teachers]}], "attempt": "planned"}
    models = question_plan.check_teachers(recipe)
    plans = UnitPlans(recipe, models, plan, queue=queue, scratch=tmp_path, progress=progress)
    with files_in(tmp_path / "files", recipe), plans:
        yield plans


def test_a_unit_that_ends_leaves_the_images_of_one_that_is_being_opened(
    plans: UnitPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(_: object, planned_by: str, wanted: Collection[str], partition: str) -> None:
        for digest in wanted:
            if not stored_images.file_of(digest).is_file():
                stored_images.keep(digest, b"image")
        if opened:
            plans.finish(opened.pop())  # in another thread, which ends its unit at this moment

    monkeypatch.setattr(image_shards, "fetch_shards", fetch)
    opened: list[Generation] = []
    first = plans.draw()
    assert first is not None
    opened.append(first)
    assert plans.draw() is not None and not opened
    assert stored_images.file_of(IMAGE.sha256).is_file()


def test_an_engine_outlives_the_unit_it_was_started_for(plans: UnitPlans, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for an answered request only when rows fail, and that may be after the end of its first unit."""
    monkeypatch.setattr(image_shards, "fetch_shards", lambda *_: None)
    unit = plans.draw()
    assert unit is not None
    (job,) = unit.jobs(unit.recipe.teachers)
    settings = unit.engine_settings(job)
    assert settings.known_request() is None
    plans.finish(unit)
    assert settings.known_request() is None


def test_a_unit_whose_last_traces_cannot_be_sealed_says_so_and_the_others_are_sealed(
    plans: UnitPlans, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sealed: list[str] = []

    def seal(sealer: Sealer) -> None:
        sealed.append(sealer._folder.name)
        if len(sealed) == 1:
            raise ValueError("no number")

    monkeypatch.setattr(image_shards, "fetch_shards", lambda *_: None)
    first, second = plans.draw(), plans.draw()
    assert first is not None and second is not None
    monkeypatch.setattr(Sealer, "_seal_new_lines", seal)
    plans.__exit__()
    assert sealed == [first.plan.folder.name, second.plan.folder.name]
    (told,) = [record.message for record in caplog.records]
    assert f"last traces are only in {first.plan.folder}: no number" in told
