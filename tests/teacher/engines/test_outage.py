"""Whose fault a failure is: rows that alone fail are guilty, outages are waited for and blame no row."""

import asyncio
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from servers import client_helpers as clients
from servers import stub_server
from students import tiny_models
from worlds.generate_world import World, asked_of

from distill.artifacts.manifest import Manifest
from distill.data.images.image_files import sha256
from distill.errors import CircuitOpen, ImageError
from distill.types import ImageRef
from teacher.engines.http.concurrency import ConcurrencyLimit
from teacher.engines.http.replicas import Replica
from teacher.engines.image_folders import Folders
from teacher.engines.outage import REFUSED, Dependency, Failure, RowFailures
from teacher.generate import generate
from teacher.messages.completion import Completion


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def mode(url: str, name: str) -> None:
    urllib.request.urlopen(f"{url.removesuffix('/v1')}/mode?{name}").read()


@contextmanager
def after(seconds: float, change: Callable[[], Any]) -> Iterator[None]:
    timer = threading.Timer(seconds, change)
    timer.start()
    try:
        yield
    finally:
        timer.join()


# --- the rule ---------------------------------------------------------------------------------------------------


def test_a_row_is_guilty_only_after_others_have_passed_between_its_failures_and_after_the_last() -> None:
    servers, row, failure = Dependency("s"), RowFailures("row"), Failure("x", "", tries=2)
    row.failed(servers, failure, servers)
    row.failed(servers, failure, servers)
    row.failed(servers, failure, servers)
    assert not row.proven(servers, failure)  # no row passed
    servers.passed("other")
    assert not row.proven(servers, failure)  # one failure counts
    row.failed(servers, failure, servers)
    assert not row.proven(servers, failure)  # no row has passed since
    servers.passed("other")
    assert row.proven(servers, failure)


def test_if_more_rows_fail_in_the_same_way_a_row_needs_more_failures_for_its_error() -> None:
    servers, failure = Dependency("s"), Failure("x", "", tries=2)
    for number in range(50):
        servers.passed(f"{number}")
    assert servers.tries_needed("row", failure) == 2
    for number in range(25):
        servers.failed(f"bad {number}", failure)
    assert servers.tries_needed("row", failure) == 9
    assert servers.tries_needed("row", Failure("y", "", tries=2)) == 2
    for number in range(25):
        servers.blame(f"bad {number}")
    assert servers.tries_needed("row", failure) == 2


def test_servers_that_answer_nothing_prove_nothing_beside_one_that_works() -> None:
    servers, row, failure = Dependency("s"), RowFailures("row"), Failure("x", "", tries=2)
    broken, working = (Replica(name, ConcurrencyLimit()) for name in ("broken", "working"))
    for _ in range(20):
        row.failed(servers, failure, broken)
        working.passed()
        servers.passed("other")
    assert not row.proven(servers, failure)
    for _ in range(2):
        row.failed(servers, failure, working)
        assert not row.proven(servers, failure)
        working.passed()
    assert row.proven(servers, failure)


def test_where_most_tries_fail_ten_in_a_row_prove_nothing_unless_the_request_is_refused() -> None:
    servers = Dependency("s")
    lost, refused = Failure("connection", "reset"), Failure(REFUSED, "", kind="connection")
    for number in range(100):
        servers.passed(f"{number}") if number % 5 == 0 else servers.failed(f"{number}", lost)
    # A sound row fails 41 times in a row with a probability of 1e-4; 40 is the most that is asked for.
    assert servers.tries_needed("row", lost) == 40
    assert servers.tries_needed("row", refused) == 10


def test_an_outage_is_said_once_and_stops_the_run_when_it_lasts() -> None:
    now, said = [0.0], list[str]()
    servers = Dependency("the server", clock=lambda: now[0])
    for number in range(3):
        servers.failed(f"{number}", Failure("connection", "refused"))
    for seconds in (0.0, 5.0, 899.0):
        now[0] = seconds
        servers.wait(900.0, said.append, idle=False)
    assert said == ["waiting for the server, for 15 min at most: connection: refused"]
    now[0] = 900.0
    servers.failed("0", Failure("connection", "refused"))
    with pytest.raises(CircuitOpen, match="the server: no request has succeeded for 15 min") as caught:
        servers.wait(900.0, said.append, idle=False)
    assert caught.value.exit_code == 3
    servers.passed("0")
    servers.wait(900.0, said.append, idle=False)
    assert len(said) == 1


def test_a_client_that_stood_still_asks_once_more_before_it_stops() -> None:
    now = [0.0]
    servers = Dependency("the server", clock=lambda: now[0])
    servers.failed("0", Failure("connection", "refused"))
    now[0] = 1000.0
    servers.wait(900.0, lambda _: None, idle=True)
    servers.failed("0", Failure("connection", "refused"))
    with pytest.raises(CircuitOpen, match="no request has succeeded for 17 min"):
        servers.wait(900.0, lambda _: None, idle=True)


# --- servers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outage", ["401", "402", "403", "404", "408", "quota", "500", "html", "login", "inner", "away"]
)
def test_an_outage_amid_a_run_costs_no_row_and_leaves_no_error(world: World, outage: str) -> None:
    world.add_rows(60)
    with stub_server.serve(latency_s=0.02) as url:
        world.add_teacher(url, max_in_flight=8)
        world.head = "[generate]\npatience_s = 60"
        with after(0.4, lambda: mode(url, outage)), after(1.2, lambda: mode(url, "")):
            manifest = world.generate()
    assert manifest.counts["complete"] == 60 and "error" not in manifest.counts
    assert world.ids() == world.planned()


def test_an_outage_that_lasts_stops_the_run_with_3_and_the_next_run_asks_again(world: World) -> None:
    world.add_rows(40)
    said: list[Any] = []
    with stub_server.serve(latency_s=0.1) as url:
        world.add_teacher(url, max_in_flight=4)
        with after(0.3, lambda: mode(url, "401")), pytest.raises(CircuitOpen, match="HTTP 401: all 401") as caught:
            world.generate(on_progress=lambda progress: said.append(progress.facts.get("now")))
        assert caught.value.exit_code == 3
        assert any(str(line).startswith("waiting for teacher 'stub' at http://127.0.0.1") for line in said)
        assert Manifest.read(world.run / "generate") is None
        kept = world.records()
        assert not [record for record in kept if record["error"]]
        with pytest.raises(CircuitOpen, match="HTTP 401"):
            world.generate(fresh=True)
        mode(url, "")
        assert world.generate().counts["complete"] == 40
        assert world.records()[: len(kept)] == kept and asked_of(url) <= 40 + 4


def test_a_client_that_an_outage_stopped_answers_again_when_the_server_does() -> None:
    with stub_server.serve() as url:
        who = clients.teacher(url, max_in_flight=4)
        wanted = clients.asked(who, *"abcdefgh")
        found: list[str] = []

        async def run() -> None:
            async with clients.client_of(who, patience_s=0.5) as client:
                await client.check()
                mode(url, "500")
                with pytest.raises(CircuitOpen, match="HTTP 500"):
                    await client.answer(clients.given(wanted), lambda request, _: found.append(request.id))
                mode(url, "")
                await client.answer(clients.given(wanted), lambda request, _: found.append(request.id))

        asyncio.run(asyncio.wait_for(run(), 60))
        assert sorted(found) == sorted(request.id for request in wanted)


def test_one_replica_of_three_that_is_down_at_the_start_is_used_when_it_comes(world: World) -> None:
    world.add_rows(30)
    with stub_server.serve() as first, stub_server.serve() as second:
        world.add_teacher(first)
        world.teachers[0]["base_url"] = [first, "http://127.0.0.1:9/v1", second]
        assert world.generate().counts["complete"] == 30
        assert asked_of(first) and asked_of(second)


def test_a_replica_that_fails_everything_costs_no_row(world: World) -> None:
    world.add_rows(40)
    with stub_server.serve() as first, stub_server.serve(fail_all=404) as second:
        world.add_teacher(first)
        world.teachers[0]["base_url"] = [first, second]
        assert world.generate().counts["complete"] == 40


def test_the_last_row_that_fails_is_proven_guilty_by_asking_again_what_is_known_to_pass(world: World) -> None:
    world.add_rows(3)
    with stub_server.serve() as url:
        world.add_teacher(url, max_retries=1)
        world.generate()
        world.add_rows(1, text="fault=500")
        manifest = world.generate()
    assert manifest.counts["complete"] == 3 and manifest.counts["error"] == 1
    (guilty,) = [record for record in world.records() if record["error"]]
    assert guilty["error"].startswith("server_error: HTTP 500")


def test_fresh_with_a_server_down_does_not_say_that_all_is_well(world: World) -> None:
    world.add_rows(4)
    world.add_rows(1, text="fault=400")
    with stub_server.serve() as url:
        world.add_teacher(url)
        world.generate()
    world.head = "[generate]\npatience_s = 0.3"
    with pytest.raises(CircuitOpen, match="no answer from"):
        world.generate(fresh=True)
    assert Manifest.read(world.run / "generate") is None


# --- images -----------------------------------------------------------------------------------------------------


def test_a_folder_of_images_that_goes_away_is_waited_for(world: World) -> None:
    world.add_rows(60, images=60)
    (world.folder / "images").mkdir()
    for row in world.rows:
        (world.folder / row["image"]).rename(world.folder / "images" / row["image"])
        row["image"] = f"images/{row['image']}"
    images, away = world.folder / "images", world.folder / "away"
    with stub_server.serve(latency_s=0.03) as url:
        world.add_teacher(url, max_in_flight=4, images="base64")
        world.head = "[generate]\npatience_s = 60"
        with after(0.5, lambda: images.rename(away)), after(1.3, lambda: away.rename(images)):
            assert world.generate().counts["complete"] == 60
        world.add_rows(1)
        world.rows[-1]["image"] = "images/0.png"
        world.head = "[generate]\npatience_s = 0.5"
        images.rename(away)
        with pytest.raises(CircuitOpen, match="cannot be read"):
            generate(_same_rows(world), world.run)
        away.rename(images)
        assert world.generate().counts["complete"] == 61


def _same_rows(world: World) -> Any:
    """The recipe before the last row was added."""
    last = world.rows.pop()
    recipe = world.recipe()
    world.rows.append(last)
    return recipe


def test_an_image_that_is_replaced_after_its_neighbours_is_waited_for(tmp_path: Path) -> None:
    refs = []
    for number in range(2):
        path = tiny_models.make_image(tmp_path / f"{number}.png", number)
        refs.append(ImageRef(sha256=sha256(path.read_bytes()), path=str(path)))
    folders = Folders(patience_s=60.0)
    assert folders.read(refs[0])
    (tmp_path / "1.png").rename(tmp_path / "away")
    (tmp_path / "1.png").mkdir()
    with pytest.raises(ImageError) as caught:
        folders.read(refs[1])
    assert 0 < folders.retry_wait_s(refs[1], caught.value) <= 1
    time.sleep(1)
    assert folders.retry_wait_s(refs[1], caught.value) == 0  # it alone cannot be read
    (tmp_path / "1.png").rmdir()
    (tmp_path / "away").rename(tmp_path / "1.png")
    assert folders.retry_wait_s(refs[1], caught.value) > 0
    assert folders.read(refs[1])


@pytest.mark.timing
def test_a_single_image_that_is_gone_is_guilty_soon_while_its_neighbours_are_read(tmp_path: Path) -> None:
    with stub_server.serve() as url:
        who = clients.teacher(url, images="base64")
        refs = []
        for number in range(3):
            path = tiny_models.make_image(tmp_path / f"{number}.png", number)
            refs.append(ImageRef(sha256=sha256(path.read_bytes()), path=str(path)))
        (tmp_path / "2.png").unlink()
        started = time.monotonic()
        found = {}
        for ref in refs:
            found |= clients.answers(who, clients.asked(who, ref.path, images=(ref,)))
    assert [bool(found[ref.path].error) for ref in refs] == [False, False, True]
    assert found[refs[2].path].error.startswith("image: missing_image") and time.monotonic() - started < 20


@pytest.mark.parametrize("way", ["base64", "file"])
def test_an_image_replaced_during_a_run_leaves_its_old_digest_on_no_new_trace(tmp_path: Path, way: str) -> None:
    path = tiny_models.make_image(tmp_path / "a.png", 1)
    tiny_models.make_image(tmp_path / "neighbour.png", 3)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    with stub_server.serve(allowed_local_media_path=tmp_path) as url:
        who = clients.teacher(url, images=way, max_in_flight=1)
        found: list[Completion] = []

        def done(_: Any, completion: Completion) -> None:
            found.append(completion)
            if len(found) == 2:
                tiny_models.make_image(path, 2)
                time.sleep(0.3)

        async def run() -> None:
            async with clients.client_of(who) as client:
                await client.check()
                await client.answer(clients.given(clients.asked(who, *"abcd", images=(ref,))), done)

        asyncio.run(run())
    assert [done.error.split(": ")[:2] for done in found] == [[""], [""], *[["image", "changed_image"]] * 2]


# --- hanging and long answers -----------------------------------------------------------------------------------


def test_a_trace_that_takes_longer_than_timeout_s_is_asked_once_and_kept() -> None:
    with stub_server.serve() as url:
        who = clients.teacher(url, timeout_s=1.5)
        found = clients.answers(who, clients.asked(who, "fault=drip", "fine"))
        assert not found["fault=drip"].error and found["fault=drip"].latency_s > 2.5
        assert clients.seen(url)["requests"] == 2


@pytest.mark.parametrize("fault", ["fault=hang", "fault=stall"])
def test_a_request_that_hangs_is_given_up_after_two_silences(fault: str) -> None:
    with stub_server.serve() as url:
        who = clients.teacher(url, timeout_s=0.5)
        found = clients.answers(who, clients.asked(who, fault, "fine"))
        assert found[fault].error.startswith("timeout: nothing of the answer for 0.5 s")
        assert clients.seen(url)["requests"] <= 6  # two tries, one good row, and that again as a control


def test_an_answer_in_pieces_is_the_answer_that_comes_whole() -> None:
    found = []
    for whole in (0, 1):
        with stub_server.serve(whole=whole, field=True) as url:
            who = clients.teacher(url, logprobs=2)
            (done,) = clients.answers(who, clients.asked(who, "How many?")).values()
            found.append(
                (done.text, done.finish_reason, done.prompt_tokens, done.image_tokens, done.completion_tokens)
            )
            found[-1] += (done.reasoning_tokens, done.token_ids.tolist() if done.token_ids is not None else None)  # type: ignore[assignment]
    assert found[0] == found[1]
