"""`generate` with a run in a store gives what a run in a folder gives, from any scratch folder, and asks once."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from servers import store_servers, stub_server
from typer.testing import CliRunner
from worlds.generate_world import World, asked_of, set_mode
from worlds.store_worlds import dataset, lines_of, small_world

from distill.artifacts.files import file_sha256
from distill.cli import app
from distill.commands import store_runs
from distill.errors import CircuitOpen, DataError, DistillError, StaleError, StorageError, TeacherError
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.types import Progress
from distill.units.commits import Attempt, committed_units
from distill.units.stored_run import pull_generate, samples_key
from distill.units.unit_queue import claimed_units
from filters.apply import apply
from teacher.agent import Agent
from teacher.generation import Generation
from teacher.store_run import generate_in_store
from teacher.unit_plans import UnitPlans


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.03) as url:
        yield url


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with store_servers.s3_server() as endpoint:
        store_servers.set_keys(monkeypatch)
        yield endpoint


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    return small_world(tmp_path, url)


def sections(world: World, endpoint: str = "") -> None:
    """Small units, and the store."""
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 8\nseal_s = 0.05\n'
    if endpoint:
        world.head += store_servers.recipe_section(endpoint)
    world.head += "[generate]\npatience_s = 2.0"


class Stopped(Exception):
    pass


@pytest.mark.usefixtures("short_report")
def test_a_store_run_that_goes_on_elsewhere_equals_a_run_in_a_folder(
    world: World, url: str, endpoint: str, tmp_path: Path
) -> None:
    address = f"s3://{store_servers.BUCKET}/run"
    sections(world, endpoint)

    def interrupt(progress: Progress) -> None:
        if progress.done >= 40:
            raise Stopped

    with pytest.raises(Stopped):
        generate_in_store(world.recipe(), address, tmp_path / "first", on_progress=interrupt)
    assert 40 <= asked_of(url) < 90
    store = open_store(address, config=world.recipe().store.client_options())
    done = committed_units(store)[0]
    for left in (f"claims/{done.work}/{done.name}/000001", f"{done.folder}/killed/stub/segment-00001.zst"):
        store.put(left, b"of an agent that was killed after its commit")
    manifest = generate_in_store(world.recipe(), address, tmp_path / "second")
    assert asked_of(url) <= 90 + 4, "only what was in flight is asked again"
    asked = asked_of(url)
    assert (
        generate_in_store(world.recipe(), address, tmp_path / "second").counts == manifest.counts
        and asked_of(url) == asked
    )

    pulled = tmp_path / "pulled"
    assert len(committed_units(store)) > 2 and not store.list_objects("claims")
    assert not [stored for stored in store.list_objects("generate/p") if "/segment-" in stored.key]
    assert pull_generate(store, pulled).inputs["store"] == address
    plain = world.generate()
    assert manifest.counts == plain.counts and manifest.tokens == plain.tokens
    assert manifest.fingerprint == plain.fingerprint
    for name in ("plan.parquet", "samples.parquet"):
        assert file_sha256(pulled / "generate" / name) == file_sha256(world.run / "generate" / name)
    assert lines_of(world, pulled) == lines_of(world, world.run)
    for run in (pulled, world.run):
        apply(world.recipe(), run)
    assert dataset(pulled) == dataset(world.run) != {}


def test_a_run_is_not_continued_with_a_server_whose_options_or_files_changed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Agent) -> None:
        raise Stopped

    monkeypatch.setattr(Agent, "run", stop)
    script, template = tmp_path / "server.py", tmp_path / "chat.jinja"
    for path in (script, template):
        path.write_text("first")
    sections(world)
    del world.teachers[0]["base_url"]
    address = f"file://{tmp_path / 'store'}"

    def begin() -> None:
        recipe = world.recipe()
        text = (tmp_path / "recipe.toml").read_text()
        lines = f'[teachers.server]\ncommand = ["{script}"]\narguments = {{ chat-template = "{template}" }}\n'
        (tmp_path / "recipe.toml").write_text(f"{text}\n{lines}")
        generate_in_store(load(recipe.path), address, tmp_path / "scratch")

    for _ in range(2):  # the second time the run goes on
        with pytest.raises(Stopped):
            begin()
    for path in (script, template):
        path.write_text("second")
        with pytest.raises(StaleError, match="servers"):
            begin()
        path.write_text("first")


def test_the_next_unit_is_open_before_the_last_trace_of_one(
    world: World, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections(world)
    events: list[str] = []
    draw, finish = UnitPlans.draw, UnitPlans.finish

    def watched_draw(plans: UnitPlans) -> Generation | None:
        drawn = draw(plans)
        events.append("none" if drawn is None else "opened")
        return drawn

    def watched_finish(plans: UnitPlans, generation: Generation) -> None:
        events.append("answered")
        finish(plans, generation)

    monkeypatch.setattr(UnitPlans, "draw", watched_draw)
    monkeypatch.setattr(UnitPlans, "finish", watched_finish)
    generate_in_store(world.recipe(), f"file://{tmp_path / 'store'}", tmp_path / "scratch")
    assert events[:2] == ["opened", "opened"] and events.count("opened") == events.count("answered") > 2
    assert asked_of(url) == 90
    assert not list((tmp_path / "scratch").glob("units/*")), "folders of finished units are removed"


def test_other_settings_are_refused(world: World, tmp_path: Path) -> None:
    sections(world)
    address = f"file://{tmp_path / 'store'}"
    generate_in_store(world.recipe(), address, tmp_path / "second")
    world.teachers[0]["samples"] = 2
    with pytest.raises(StaleError, match="begun with other settings"):
        generate_in_store(world.recipe(), address, tmp_path / "second")


def test_a_killed_command_goes_on_with_nothing_lost_or_doubled(world: World, url: str, tmp_path: Path) -> None:
    sections(world)
    world.recipe()
    address = f"file://{tmp_path / 'store'}"
    command = [sys.executable, "-m", "distill", "generate", str(world.folder / "recipe.toml"), "--run", address]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while asked_of(url) < 30 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    set_mode(url, "hold")
    process.kill()
    process.wait()
    set_mode(url, "")
    done = CliRunner().invoke(app, command[3:])
    assert done.exit_code == 0, done.output
    pulled = CliRunner().invoke(app, ["pull", address, str(tmp_path / "pulled")])
    assert pulled.exit_code == 0 and "90 traces" in pulled.output
    ids = Counter(str(record["id"]) for record in lines_of(world, tmp_path / "pulled"))
    assert len(ids) == 90 and set(ids.values()) == {1}
    again = CliRunner().invoke(app, ["pull", address, str(tmp_path / "pulled")])
    assert again.exit_code == 2


def test_a_refused_pull_leaves_nothing_and_an_interrupted_one_goes_on(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections(world)
    address, pulled = f"file://{tmp_path / 'store'}", tmp_path / "pulled run"
    assert CliRunner().invoke(app, ["pull", address, str(pulled)]).exit_code != 0
    assert not pulled.exists() and not (tmp_path / "store").exists()
    (tmp_path / "file").touch()
    generate_in_store(world.recipe(), address, tmp_path / "scratch")

    done = CliRunner().invoke(app, ["pull", address, str(tmp_path / "file")])
    assert done.exit_code == 2 and "a file stands there" in done.output

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(store_runs, "pull_stage", interrupt)
        assert CliRunner().invoke(app, ["pull", address, str(pulled)]).exit_code == 130
    done = CliRunner().invoke(app, ["pull", address, str(pulled)])
    assert done.exit_code == 0 and f"90 traces; distill filter RECIPE --run '{pulled}'" in done.output, done.output
    assert not list(pulled.glob(".pulled*"))


def test_traces_that_a_killed_process_has_not_sealed_are_not_asked_again_on_its_machine(
    world: World, url: str, tmp_path: Path
) -> None:
    sections(world)
    world.head = world.head.replace("seal_s = 0.05", "seal_s = 600.0")
    address, scratch = f"file://{tmp_path / 'store'}", tmp_path / "scratch"
    program = (
        "import sys; from pathlib import Path; from distill.recipe.loading import load\n"
        "from teacher.store_run import generate_in_store\n"
        "generate_in_store(load(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))"
    )
    command = [sys.executable, "-c", program, str(world.recipe().path), address, str(scratch)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while asked_of(url) < 15 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    set_mode(url, "hold")
    time.sleep(0.5)  # longer than the journals are held back
    process.kill()
    process.wait()
    set_mode(url, "")
    generate_in_store(world.recipe(), address, scratch)
    assert asked_of(url) <= 90 + 4, "what was in flight"
    pull_generate(open_store(address), tmp_path / "pulled")
    ids = Counter(str(record["id"]) for record in lines_of(world, tmp_path / "pulled"))
    assert len(ids) == 90 and set(ids.values()) == {1}


def test_a_process_that_can_seal_nothing_asks_no_more(
    world: World, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError("the store refuses the credentials")

    sections(world)
    world.head = world.head.replace("unit_rows = 8", "unit_rows = 64")
    monkeypatch.setattr(Attempt, "seal", refuse)
    with pytest.raises(StorageError, match="refuses the credentials"):
        generate_in_store(world.recipe(), f"file://{tmp_path / 'store'}", tmp_path / "scratch")
    assert asked_of(url) < 60
    monkeypatch.undo()
    asked = asked_of(url)
    generate_in_store(world.recipe(), f"file://{tmp_path / 'store'}", tmp_path / "scratch")
    assert asked < asked_of(url) <= 90 + 4, "its traces were kept on its machine"


def test_processes_that_run_the_same_command_share_a_run_and_outlive_a_killed_one(
    world: World, tmp_path: Path
) -> None:
    with stub_server.serve(latency_s=0.5) as url:
        world.teachers[0]["base_url"] = url
        sections(world)
        world.head = world.head.replace("seal_s", "lease_s = 2.0\nseal_s")
        recipe, address = world.recipe(), f"file://{tmp_path / 'store'}"
        command = [sys.executable, "-m", "distill", "generate", str(recipe.path), "--run", address]
        set_mode(url, "hold")
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        store, deadline = open_store(address), time.monotonic() + 120
        while len(store.list_objects("agents")) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        set_mode(url, "")
        while asked_of(url) < 8 and time.monotonic() < deadline:
            time.sleep(0.02)
        processes[0].kill()
        processes[0].communicate()
        out, err = processes[1].communicate(timeout=120)
        assert processes[1].returncode == 0, err.decode()
        assert b"generate: traces" in out
        pull_generate(store, tmp_path / "pulled")
        assert not store.list_objects("claims")
        world.generate()
    assert lines_of(world, tmp_path / "pulled") == lines_of(world, world.run)
    for name in ("plan.parquet", "samples.parquet"):
        assert file_sha256(tmp_path / "pulled" / "generate" / name) == file_sha256(world.run / "generate" / name)


def test_a_unit_at_which_every_agent_fails_is_set_aside_and_the_rest_of_the_run_is_made(
    world: World, url: str, tmp_path: Path
) -> None:
    sections(world)
    world.head = world.head.replace("unit_rows = 8", "unit_rows = 2\nretries = 1")
    recipe, address = world.recipe(), f"file://{tmp_path / 'store'}"
    store = open_store(address)

    def interrupt(progress: Progress) -> None:
        if progress.done:
            raise Stopped

    with pytest.raises(Stopped):
        generate_in_store(recipe, address, tmp_path / "scratch", on_progress=interrupt)
    begun = {unit.partition for unit in (*claimed_units(store), *committed_units(store))}
    plan = orjson.loads(store.read("plan/plan.json"))
    bad = max(plan["partitions"].keys() - begun)
    samples = store.read(samples_key(bad))
    store.put(samples_key(bad), b"damaged")
    for _ in range(2):
        with pytest.raises(DataError, match=rf"plan/samples/{bad}.parquet: .*cannot be read"):
            generate_in_store(recipe, address, tmp_path / "scratch")
    with pytest.raises(DistillError, match=rf"set aside.*0/{bad} \(2 agents\)\n.*Parquet"):
        generate_in_store(recipe, address, tmp_path / "scratch")
    assert {unit.partition for unit in committed_units(store)} == plan["partitions"].keys() - {bad}
    store.put(samples_key(bad), samples)
    generate_in_store(recipe, address, tmp_path / "scratch")
    pull_generate(store, tmp_path / "pulled")
    assert len(lines_of(world, tmp_path / "pulled")) == 90 and not store.list_objects("claims")


def test_a_machine_without_some_images_gives_its_units_back_and_commits_no_error(
    world: World, tmp_path: Path
) -> None:
    """A committed unit keeps its errors: a machine with half of the images once gave 494 of 1,200 traces so."""
    sections(world)
    world.head = world.head.replace("unit_rows = 8", "unit_rows = 8\nretries = 1")
    recipe, address = world.recipe(), f"file://{tmp_path / 'store'}"

    def interrupt(progress: Progress) -> None:
        if progress.done:
            raise Stopped

    with pytest.raises(Stopped):
        generate_in_store(recipe, address, tmp_path / "scratch", on_progress=interrupt)
    store = open_store(address)
    claims = {stored.key for stored in store.list_objects("claims")}
    images = sorted(world.folder.glob("*.png"))
    for image in images[::2]:
        image.rename(f"{image}.away")
    for _ in range(3):
        with pytest.raises(CircuitOpen, match=r"missing_image on this machine: .*no such file.*under one path"):
            generate_in_store(recipe, address, tmp_path / "scratch")
    assert {stored.key for stored in store.list_objects("claims")} <= claims, "no unit counts a failure"
    for image in images[::2]:
        Path(f"{image}.away").rename(image)
    assert generate_in_store(recipe, address, tmp_path / "scratch").counts["complete"] == 90


def test_errors_that_units_keep_are_asked_again_in_a_folder_as_the_command_says(world: World, tmp_path: Path) -> None:
    """It once counted them as "errors to ask again", and the same command asked none of them."""
    sections(world)
    world.rows = [*world.rows[:4], world.rows[4] | {"question": "fault=500x3"}]
    world.teachers[0]["max_retries"] = 0
    recipe, address = world.recipe(), f"file://{tmp_path / 'store'}"
    for _ in range(2):
        text = store_runs.generate_stage_in_store(recipe, address, [], limit=None)
        assert "3 traces ended in an error, and this command does not ask them again: distill pull" in text
    world.run = tmp_path / "pulled"
    pull_generate(open_store(address), world.run)
    assert world.generate().counts["complete"] == 15


def test_a_run_of_which_all_questions_failed_says_how_they_are_asked_again(world: World, tmp_path: Path) -> None:
    """Its finished units keep the errors, so the same command alone failed for ever."""
    sections(world)
    world.rows = [row | {"question": f"{row['question']} fault=400"} for row in world.rows[:2]]
    recipe, store = world.recipe(), LocalStore(tmp_path / "store")
    for _ in range(2):
        with pytest.raises(TeacherError, match=r"all 6 requests failed.*delete the objects below .*generate/commits"):
            generate_in_store(recipe, f"file://{store.folder}", tmp_path / "scratch")
        committed = store.list_objects("generate/commits")
        assert committed
        store.delete(stored.key for stored in committed)


def test_an_outage_of_the_store_loses_nothing_asks_nothing_twice_and_says_what_it_waits_for(
    world: World, url: str, endpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two agents that are both silent for longer than a lease, none takes the units of the other."""
    address, faults = f"s3://{store_servers.BUCKET}/run", store_servers.StoreFaults()
    with store_servers.faulty_proxy(endpoint, faults) as proxy:
        sections(world, proxy)
        # No sealing and no joining: each trace is asked where its unit is.
        world.head = world.head.replace("seal_s = 0.05", "seal_s = 60.0\nlease_s = 2.0")
        recipe = world.recipe()
        threads = [
            threading.Thread(target=generate_in_store, args=(recipe, address, tmp_path / f"{number}"), daemon=True)
            for number in range(2)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 120
        while asked_of(url) < 30 and time.monotonic() < deadline:
            time.sleep(0.005)
        faults.away = True
        time.sleep(4)  # two leases; agents say after two seconds what they wait for
        assert any(thread.is_alive() for thread in threads), "a unit that is not committed keeps its agent waiting"
        faults.away = False
        for thread in threads:
            thread.join(120)
        assert asked_of(url) == 90
        assert "waiting for the store since" in caplog.text
        pull_generate(open_store(address, config=recipe.store.client_options()), tmp_path / "pulled")
    world.generate()
    assert lines_of(world, tmp_path / "pulled") == lines_of(world, world.run)
