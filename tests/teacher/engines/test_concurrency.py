"""How many requests a server is given: against simulated servers, step by step, without clocks or sockets."""

from pathlib import Path

import pytest
from servers.simulated_server import LATENCIES, drawn_latencies, seconds_of

from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.engines.http.concurrency import (
    BLIND_START,
    MAX_IN_FLIGHT,
    START,
    ConcurrencyLimit,
    FoundLimit,
    new_limit,
    read_found,
    write_found,
)
from teacher.engines.http.replicas import Replica, choose
from teacher.engines.http.server_info import parse_queue
from teacher.messages.request import Author, Model, Request

METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 12.0
vllm:num_requests_running{engine="1",model_name="m"} 10.0
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1000.0
vllm:generation_tokens_total{engine="1",model_name="m"} 250.0
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e9
"""


def test_the_queue_is_read_from_vllms_metrics_over_all_its_engines() -> None:
    assert parse_queue(METRICS) == (22.0, 3.0)
    assert parse_queue("vllm:num_requests_running 4\nvllm:num_requests_waiting 0\n") == (4.0, 0.0)
    assert parse_queue("") is None
    assert parse_queue("other_metric 1\n") is None


def watched(limit_of_server: ConcurrencyLimit, slots: int, looks: int = 40) -> list[int]:
    """The limits that a server with so many slots and a queue of any length leads to."""
    limits = []
    for look in range(looks):
        running = min(slots, limit_of_server.limit)
        limit_of_server.observe_queue(running, limit_of_server.limit - running, limit_of_server.limit, now=look / 4)
        limits.append(limit_of_server.limit)
    return limits


@pytest.mark.parametrize("slots", [1, 4, 64, 100, 256, 1024])
def test_a_server_that_shows_its_queue_is_kept_full_with_a_short_queue(slots: int) -> None:
    limits = watched(ConcurrencyLimit(), slots)
    assert all(slots < limit <= 1.4 * slots + 8 for limit in limits[20:])


def test_a_large_server_is_filled_within_a_few_looks() -> None:
    assert watched(ConcurrencyLimit(), 1024)[6] > 1024


def test_a_queue_while_the_server_still_reads_prompts_lowers_nothing() -> None:
    limit_of_server = ConcurrencyLimit()
    for look, running in enumerate((20, 40, 70, 100)):
        limit_of_server.observe_queue(running, START - running, START, now=look / 4)
    assert limit_of_server.limit == START


def test_waves_of_prompts_lower_nothing_below_what_the_server_can_work_on() -> None:
    limit_of_server = ConcurrencyLimit()
    for look in range(200):
        running = (
            min(256, limit_of_server.limit) if look % 8 else 100
        )  # every two seconds a wave ends and the next is being read
        limit_of_server.observe_queue(running, limit_of_server.limit - running, limit_of_server.limit, now=look / 4)
        assert limit_of_server.limit >= START
    assert 256 < limit_of_server.limit <= 300


def test_what_the_server_has_not_even_read_yet_is_not_added_to() -> None:
    limit_of_server = ConcurrencyLimit()
    for look in range(20):
        limit_of_server.observe_queue(running=4, waiting=0, in_flight=limit_of_server.limit, now=look)
    assert limit_of_server.limit <= 2 * START + 5


def test_places_that_are_not_used_raise_nothing() -> None:
    limit_of_server = ConcurrencyLimit()
    for look in range(20):
        limit_of_server.observe_queue(running=3, waiting=0, in_flight=3, now=look)
    assert limit_of_server.limit == START


def test_a_cap_holds_and_nothing_goes_below_one() -> None:
    assert max(watched(ConcurrencyLimit(cap=10), 1000)) == 10
    assert ConcurrencyLimit(cap=3).limit == 3
    limit_of_server = ConcurrencyLimit()
    for second in range(100):
        limit_of_server.refused(1, now=10 * second)
    assert limit_of_server.limit == 1
    assert max(watched(ConcurrencyLimit(), 10**6)) == MAX_IN_FLIGHT


def test_a_burst_of_refusals_counts_once_and_the_limit_comes_back_later() -> None:
    limit_of_server = ConcurrencyLimit()
    for number in range(50):
        limit_of_server.refused(START, now=1 + number / 1000)
    lowered = limit_of_server.limit
    assert lowered == round(0.7 * START)
    limit_of_server.observe_queue(lowered, 0, lowered, now=1.5)
    assert limit_of_server.limit == lowered
    limit_of_server.observe_queue(lowered, 0, lowered, now=4.0)
    assert limit_of_server.limit > lowered


def blind(limit_of_server: ConcurrencyLimit, slots: int, seconds: float, *, slower: float = 0.0) -> int:
    """The limit after some time with a server that shows nothing: `slots` at once, each request taking a second.

    `slower`: what every request beyond the slots costs all of them.
    """
    now, due = 0.0, 0.0
    while now < seconds:
        busy = min(slots, limit_of_server.limit)
        rate = busy / (1 + slower * max(0, limit_of_server.limit - slots))
        now += 0.05
        due += rate * 0.05
        while due >= 1:
            limit_of_server.completed(limit_of_server.limit, now)
            due -= 1
    return limit_of_server.limit


@pytest.mark.parametrize("slots", [64, 200, 500])
def test_a_silent_server_gets_what_its_throughput_pays_for(slots: int) -> None:
    limit = blind(ConcurrencyLimit(start=BLIND_START), slots, 120)
    assert slots * 0.97 <= limit <= 2.6 * slots


def test_a_silent_server_that_suffers_from_too_much_is_not_given_more() -> None:
    assert blind(ConcurrencyLimit(start=BLIND_START), 64, 60, slower=0.02) <= 90


@pytest.mark.parametrize("kind", LATENCIES)
@pytest.mark.parametrize("slots", [4, 16, 64, 256])
def test_ten_thousand_requests_to_a_silent_server_take_a_tenth_more_than_with_the_best_fixed_number(
    kind: str, slots: int
) -> None:
    for mean_s in (3.0, 60.0):
        latencies = drawn_latencies(kind, mean_s, 10_000)
        learning = ConcurrencyLimit(start=BLIND_START, longest_s=300.0)
        assert seconds_of(learning, slots, latencies) < 1.1 * seconds_of(slots, slots, latencies)


@pytest.mark.parametrize("kind", LATENCIES)
@pytest.mark.parametrize("slots", [4, 30, 256, 1024])
def test_texts_that_begin_soon_show_a_silent_server_s_size_before_its_first_answer(kind: str, slots: int) -> None:
    for mean_s in (3.0, 60.0):
        latencies = drawn_latencies(kind, mean_s, 2000)
        learning = ConcurrencyLimit(start=BLIND_START, longest_s=300.0)
        assert seconds_of(learning, slots, latencies, begin_share=0.02) < 1.1 * seconds_of(slots, slots, latencies)


@pytest.mark.parametrize("kind", LATENCIES)
@pytest.mark.parametrize("slots", [4, 30, 256, 1024])
def test_texts_that_begin_late_cost_nothing(kind: str, slots: int) -> None:
    latencies = drawn_latencies(kind, 15.0, 2000)
    without = seconds_of(ConcurrencyLimit(start=BLIND_START, longest_s=300.0), slots, latencies)
    for share in (0.3, 0.6, 0.95):
        learning = ConcurrencyLimit(start=BLIND_START, longest_s=300.0)
        assert seconds_of(learning, slots, latencies, begin_share=share) < 1.02 * without


def test_a_server_that_begins_few_texts_at_once_is_given_no_more_before_its_first_answer() -> None:
    limit = ConcurrencyLimit(start=BLIND_START)
    for _ in range(3):
        limit.failed()
        for number in range(28):
            limit.begun(BLIND_START, 0.1 * number, 0.1)
        assert limit.limit == BLIND_START
    limit.begun(BLIND_START, 3.0, 0.1)
    assert limit.limit == 2 * BLIND_START
    warm = ConcurrencyLimit(start=BLIND_START, warm=True)
    for _ in range(100):
        warm.begun(BLIND_START, 0.1, 0.1)
    assert warm.limit == BLIND_START


@pytest.mark.parametrize("kind", LATENCIES)
@pytest.mark.parametrize("slots", [4, 64, 1024])
def test_what_an_earlier_run_found_serves_two_thousand_requests_as_well_as_the_best_fixed_number(
    kind: str, slots: int
) -> None:
    for mean_s in (3.0, 60.0):
        latencies = drawn_latencies(kind, mean_s, 2000)
        found = ConcurrencyLimit(start=slots, warm=True, longest_s=300.0)
        assert seconds_of(found, slots, latencies) < 1.05 * seconds_of(slots, slots, latencies)


def test_a_slow_silent_server_is_not_given_more_than_it_answers_in_time() -> None:
    for begin_share in (None, 0.02):
        limit = ConcurrencyLimit(start=BLIND_START, longest_s=300.0)
        seconds_of(limit, 4, drawn_latencies("equal", 60.0, 400), begin_share=begin_share)
        assert 4 <= limit.limit <= 4 * 300 / 60 + 2


def test_the_next_run_starts_with_what_was_found_and_a_start_in_the_recipe_comes_first(tmp_path: Path) -> None:
    teacher = Teacher(name="t", model="m", backend="openai", base_url="http://127.0.0.1:9/v1")
    assert read_found(tmp_path) is None
    first = new_limit(teacher, None)
    write_found(tmp_path, [first])  # it has answered nothing
    assert (first.limit, read_found(tmp_path)) == (BLIND_START, None)
    seconds_of(first, 256, drawn_latencies("uniform", 3.0, 10_000))
    write_found(tmp_path, [first])
    found = read_found(tmp_path)
    assert found == FoundLimit(limit=first.limit, rising=False) and 256 <= found.limit <= 3 * 256
    assert new_limit(teacher, found).limit == found.limit and new_limit(teacher, found).warm
    assert new_limit(teacher.model_copy(update={"start_in_flight": 77}), found).limit == 77
    assert new_limit(teacher.model_copy(update={"max_in_flight": 8}), found).limit == 8
    assert new_limit(teacher.model_copy(update={"backend": "vllm"}), found).limit == START
    (tmp_path / "in_flight.json").write_text("{")
    assert read_found(tmp_path) is None


def request_about(image: str) -> Request:
    teacher = Teacher(name="t", model="m", base_url="http://127.0.0.1:9/v1")
    author = Author(teacher=teacher, model=Model(name="m", revision="", local=False), seed=0)
    refs = (ImageRef(sha256=image, path=image),) if image else ()
    return author.first_attempt(Sample(id=image or "s", images=refs, question="?"), 0)


def replicas(count: int) -> list[Replica]:
    return [Replica(f"http://127.0.0.1:{number}/v1", ConcurrencyLimit()) for number in range(count)]


def test_questions_about_one_image_go_to_one_server_and_images_spread_over_all() -> None:
    servers = replicas(3)
    homes = {str(number): choose(servers, request_about(str(number)), 0.0).url for number in range(300)}
    assert all(choose(servers, request_about(image), 0.0).url == home for image, home in homes.items())
    counts = [list(homes.values()).count(server.url) for server in servers]
    assert min(counts) > 60


def test_only_the_images_of_a_lost_server_move() -> None:
    servers = replicas(3)
    before = {str(number): choose(servers, request_about(str(number)), 0.0) for number in range(100)}
    servers[0].failed("row", 0.0, connection=True)
    after = {image: choose(servers, request_about(image), 1.0) for image in before}
    assert all(after[image] is home for image, home in before.items() if home is not servers[0])
    assert servers[0] not in after.values()
    assert choose(servers, request_about("0"), 100.0) is before["0"]


def test_an_overloaded_server_passes_some_on() -> None:
    servers = replicas(2)
    home = choose(servers, request_about("a"), 0.0)
    home.in_flight = 30
    assert choose(servers, request_about("a"), 0.0) is not home
