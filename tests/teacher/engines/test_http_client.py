"""The HTTP client against planted faults, and what it sends."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from servers import stub_server
from servers.client_helpers import MODEL, answers, asked, client_of, given, seen, teacher
from students import tiny_models

from distill.data.images.image_files import sha256
from distill.errors import CircuitOpen, RecipeError, StorageError, TeacherError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Outcome
from teacher.engines import outage
from teacher.engines.circuit_breaker import Breaker
from teacher.engines.connect import engine_settings
from teacher.engines.http.chat_protocol import completion_from_body, request_headers, sampling_body
from teacher.engines.http.exchange import request_failure
from teacher.engines.http.http_engine import HttpEngine
from teacher.messages.completion import Completion
from teacher.messages.parse import parse
from teacher.messages.request import Model, Request


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


def test_faults_that_pass_are_retried_and_faults_of_the_row_are_not(url: str) -> None:
    who = teacher(url, max_retries=3, timeout_s=3.0)
    questions = ["fine", "fault=500x2", "fault=429x2", "fault=disconnectx1", "fault=garbagex1", "fault=abortx1"]
    questions += ["fault=hangx1", "fault=400", "fault=404", "fault=422"]
    found = answers(who, asked(who, *questions))
    assert {question for question, done in found.items() if not done.error} == set(questions[:7])
    for refused in questions[7:]:
        assert found[refused].error.startswith(f"refused_request: HTTP {refused[-3:]}: planted")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("fault=500", "server_error: HTTP 500: planted 500 (2 tries, others passed)"),
        ("fault=503", "server_error: HTTP 503"),
        ("fault=429", "rate_limited: HTTP 429"),
        ("fault=disconnect", "connection: "),
        ("fault=garbage", "garbled_response: not a chat completion: <html>"),
        ("fault=abort", "server_error: finish_reason abort"),
        ("fault=hang", "timeout: nothing of the answer for 1 s (timeout_s = 1)"),
    ],
)
def test_a_fault_that_stays_becomes_the_rows_error_with_its_class(url: str, fault: str, reason: str) -> None:
    who = teacher(url, max_retries=1, timeout_s=1.0 if fault == "fault=hang" else 60.0)
    found = answers(who, asked(who, fault, *"abc"))
    assert found[fault].error.startswith(reason)
    assert not any(found[other].error for other in "abc")


@pytest.mark.timing
def test_retry_after_is_honoured(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BACKOFF_S", "MAX_WAIT_S"):
        monkeypatch.setattr(outage, name, 60.0)
    who = teacher(url, max_retries=1)
    started = time.monotonic()
    found = answers(who, asked(who, "fault=429x1 wait"), patience_s=600.0)
    assert not found["fault=429x1 wait"].error
    assert time.monotonic() - started < 10  # the header asks for 0.05 s; without it the wait is 30 s or more


def test_no_more_requests_than_max_in_flight_are_under_way() -> None:
    with stub_server.serve(latency_s=0.02) as url:
        who = teacher(url, max_in_flight=5)
        answers(who, asked(who, *(str(index) for index in range(60))))
        assert seen(url)["most_in_flight"] == 5


def test_requests_are_drawn_only_as_they_are_needed(url: str) -> None:
    who = teacher(url, max_in_flight=4)
    drawn = finished = most_ahead = 0

    def source() -> Iterator[Request]:
        nonlocal drawn, most_ahead
        for request in asked(who, *(str(index) for index in range(200))):
            drawn += 1
            most_ahead = max(most_ahead, drawn - finished)
            yield request

    def done(_request: Request, _completion: Completion) -> None:
        nonlocal finished
        finished += 1

    async def run() -> None:
        async with client_of(who) as client:
            await client.answer(given(source()), done)

    asyncio.run(run())
    assert finished == 200
    assert most_ahead <= 4


def test_the_circuit_opens_when_too_many_of_the_last_hundred_requests_fail(url: str) -> None:
    who = teacher(url, max_retries=0, max_in_flight=4)
    wanted = asked(who, *(f"fault=400 {index}" if index % 3 else str(index) for index in range(300)))
    with pytest.raises(CircuitOpen, match="of the last 100 requests failed") as caught:
        answers(who, wanted, max_failure_share=0.5)
    assert caught.value.exit_code == 3


def test_the_circuit_stays_closed_at_the_allowed_share() -> None:
    breaker = Breaker(0.5)
    for index in range(400):
        breaker.record("here", "broken" if index % 2 else "")
    with pytest.raises(CircuitOpen):
        breaker.record("here", "broken")


def test_an_openai_server_gets_only_what_it_knows_and_what_differs_from_neutral(url: str) -> None:
    plain = teacher(url, backend="openai", sampling={"temperature": 0.5, "max_tokens": 7})
    assert sampling_body(plain, plain.sampling) == {"temperature": 0.5, "max_tokens": 7}
    with pytest.raises(RecipeError, match="top_k cannot be sent by backend 'openai'"):
        sampling_body(plain, Sampling(top_k=5))


def test_finish_reason_usage_and_a_reasoning_field_are_kept() -> None:
    with stub_server.serve(field=True, words=5) as url:
        who = teacher(url)
        done = answers(who, asked(who, "How many?"))["How many?"]
    assert done.text.startswith("<think>step ") and "</think>" in done.text
    assert done.finish_reason == "stop"
    assert (done.prompt_tokens, done.image_tokens, done.completion_tokens, done.reasoning_tokens) == (30, 16, 8, 6)


@pytest.mark.parametrize("said", ["length", "max_tokens", "MAX_TOKENS", "model_length"])
def test_an_answer_that_was_cut_is_so_in_the_words_of_every_server(said: str) -> None:
    body = {"choices": [{"message": {"content": "<think>3 + 4 = 7</think> The ans"}, "finish_reason": said}]}
    done = completion_from_body(body, b"", 0.0, logprobs=False)
    assert done.finish_reason == "length" and done.stop_reason == ("" if said == "length" else said)
    assert parse(done.text, finish_reason=done.finish_reason).outcome == Outcome.TRUNCATED_ANSWER


def test_an_answer_that_the_server_gave_up_is_no_answer() -> None:
    for said in ("abort", "error", "insufficient_system_resource"):
        body = {"choices": [{"message": {"content": "The answer is 7 be"}, "finish_reason": said}]}
        with pytest.raises(outage.Failure, match=f"server_error: finish_reason {said}"):
            completion_from_body(body, b"", 0.0, logprobs=False)


@pytest.mark.parametrize("status", [202, 204, 206, 304])
def test_a_status_that_refuses_nothing_is_an_outage_and_no_fault_of_the_row(url: str, status: int) -> None:
    failure = request_failure(teacher(url), status, b"", {})
    assert failure.reason == "server_error" and not failure.refused and not failure.of_the_request


def test_a_server_that_is_not_there_is_named_with_the_next_step() -> None:
    who = teacher("http://127.0.0.1:9/v1")
    with pytest.raises(CircuitOpen, match=r"no answer from http://127.0.0.1:9/v1.*vllm serve stub"):
        answers(who, [], patience_s=0.5)


def test_a_server_that_serves_another_model_is_refused(url: str) -> None:
    other = Model(name="Qwen/other", revision="", local=False)

    async def check(who: Teacher, model: Model) -> str:
        async with client_of(who, model) as client:
            await client.check()
            return client.info.model

    with stub_server.serve(model="alias", root="Qwen/real") as aliased:
        with pytest.raises(TeacherError, match="serves alias, not model = 'Qwen/other'"):
            asyncio.run(check(teacher(aliased), other))
        with pytest.raises(TeacherError, match="does not serve 'mine'"):
            asyncio.run(check(teacher(aliased, served_model="mine"), other))
        assert asyncio.run(check(teacher(aliased, served_model="alias"), other)) == "alias"
        real = Model(name="Qwen/real", revision="", local=False)
        assert asyncio.run(check(teacher(aliased), real)) == "alias"


def test_servers_that_serve_the_model_under_two_names_are_refused() -> None:
    real = Model(name="Qwen/real", revision="", local=False)

    async def check(*urls: str) -> str:
        async with client_of(teacher(urls[0], base_url=urls), real) as client:
            await client.check()
            return client.info.model

    with (
        stub_server.serve(model="one", root="Qwen/real") as first,
        stub_server.serve(model="two", root="Qwen/real") as second,
        stub_server.serve(model="one", root="Qwen/real") as third,
    ):
        with pytest.raises(
            TeacherError, match=r"serves the model as '(one|two)', another of its servers as '(one|two)'"
        ):
            asyncio.run(check(first, second))
        assert asyncio.run(check(first, third)) == "one"


def test_a_local_model_is_known_at_the_server_by_its_contents(tmp_path: Path) -> None:
    from distill.artifacts.files import directory_sha256

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    mine = Model(name="mine", revision=directory_sha256(tmp_path / "mine"), local=True)

    async def check(url: str) -> str:
        async with client_of(teacher(url), mine) as client:
            await client.check()
            return client.info.model

    with stub_server.serve(model="m", root=tmp_path / "mine") as url:
        assert asyncio.run(check(url)) == "m"
    with stub_server.serve(model="m", root=tmp_path) as url, pytest.raises(TeacherError, match="not model"):
        asyncio.run(check(url))


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.delenv("TEACHER_KEY", raising=False)
    with pytest.raises(RecipeError, match="TEACHER_KEY"):
        answers(teacher(url, api_key_env="TEACHER_KEY"), [])


def test_a_key_loses_the_line_break_of_its_file_and_quotation_marks_and_near_names_are_said(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("TEACHER_API_KEY", "abcdefgh123\n")
    assert request_headers(teacher(url, api_key_env="TEACHER_API_KEY"))["authorization"] == "Bearer abcdefgh123"
    with pytest.raises(RecipeError, match="did you mean 'TEACHER_API_KEY'"):
        request_headers(teacher(url, api_key_env="TEACHER_KEY"))
    monkeypatch.setenv("TEACHER_API_KEY", "'abcdefgh123'")
    with pytest.raises(RecipeError, match="TEACHER_API_KEY is in quotation marks; export it without them"):
        request_headers(teacher(url, api_key_env="TEACHER_API_KEY"))


def test_log_probabilities_come_with_token_ids_the_sampled_one_first(url: str) -> None:
    who = teacher(url, logprobs=3)
    (done,) = answers(who, asked(who, "How many?")).values()
    assert done.token_ids is not None and done.token_logprobs is not None
    assert done.token_ids.shape == done.token_logprobs.shape == (done.completion_tokens, 4)
    assert (done.token_ids[:, 0] == done.token_ids[:, 1]).all()
    assert done.token_logprobs[0].tolist() == [-0.25, -0.25, -1.25, -2.25]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("fault=reset", "connection: "),
        ("fault=cut", "garbled_response: "),
        ("fault=nothing", "garbled_response: "),
        ("fault=nochoices", "garbled_response: "),
        ("fault=bytes", "garbled_response: "),
        ("fault=redirect", "server_error: the address has moved (HTTP 302 to "),
        ("fault=huge", "oversized_response: more than 64 MiB"),
        ("fault=bomb", "oversized_response: more than 64 MiB"),
        ("fault=null", ""),
        ("fault=slow", ""),
    ],
)
def test_strange_answers_have_their_class(url: str, fault: str, reason: str) -> None:
    who = teacher(url, max_retries=0, timeout_s=60.0)
    error = answers(who, asked(who, fault, "a", "b"))[fault].error
    assert error.startswith(reason) and bool(error) == bool(reason)


def test_requests_spread_over_replicas_by_image_and_move_when_one_breaks(tmp_path: Path) -> None:
    refs = []
    for number in range(12):
        path = tiny_models.make_image(tmp_path / f"{number}.png", number, size=8)
        refs.append(ImageRef(sha256=sha256(path.read_bytes()), path=str(path)))
    with stub_server.serve() as first, stub_server.serve(crash_after=5) as second:
        who = teacher(first).model_copy(update={"base_url": (first, second), "images": "base64"})
        wanted = [request for number, ref in enumerate(refs) for request in asked(who, *"abcd", images=(ref,))]
        wanted = [replace(request, id=f"{number:020x}") for number, request in enumerate(wanted)]
        found: dict[str, Completion] = {}

        async def run() -> None:
            async with client_of(who) as client:
                await client.check()
                await client.answer(given(wanted), lambda request, done: found.__setitem__(request.id, done))

        asyncio.run(run())
        assert seen(first)["requests"] >= 44
    assert len(found) == 48 and not any(done.error for done in found.values())


def test_a_server_left_alone_is_not_given_more_than_its_share_while_the_other_is_down() -> None:
    with stub_server.serve(latency_s=0.02) as first, stub_server.serve(crash_after=5) as second:
        who = teacher(first, max_in_flight=4).model_copy(update={"base_url": (first, second)})
        found = answers(who, asked(who, *(str(number) for number in range(200))))
        assert seen(first)["most_in_flight"] <= 8  # its own four, and those that were under way at the other
    assert len(found) == 200 and not any(done.error for done in found.values())


def test_a_server_that_fails_to_show_its_queue_for_a_while_is_looked_at_again() -> None:
    with stub_server.serve(slots=8, metrics_fail=2) as url:
        who = teacher(url)
        until = time.monotonic() + 60
        (request,) = asked(who, "How many?")

        async def get() -> Request | None:
            looks = (await asyncio.to_thread(seen, url))["looks"]
            return request if looks < 4 and time.monotonic() < until else None

        async def run() -> None:
            async with client_of(who) as client:
                await client.answer(get, lambda *_: None)

        asyncio.run(run())
        assert seen(url)["looks"] >= 4


def test_a_silent_server_is_given_more_as_soon_as_it_begins_to_write() -> None:
    with stub_server.serve() as url:
        who = teacher(url, backend="openai", max_in_flight=None)

        async def run() -> None:
            async with client_of(who) as client:
                await client.answer(
                    given(asked(who, *(f"fault=drip {number}" for number in range(150)))), lambda *_: None
                )

        asyncio.run(run())
        assert seen(url)["most_in_flight"] == 150  # 118 if the 32 at first had to be answered before


def test_a_lost_server_that_is_started_again_costs_no_try() -> None:
    calls: list[str] = []
    with stub_server.serve() as url:
        who = teacher(url, max_retries=0)

        async def revive(lost: str) -> bool:
            calls.append(lost)
            return True

        async def run() -> Completion:
            found: list[Completion] = []
            async with client_of(who, revive=revive) as client:
                await client.check()
                await client.answer(given(asked(who, "fault=resetx2")), lambda _, done: found.append(done))
            return found[0]

        assert not asyncio.run(run()).error and calls == [url, url]


def test_a_request_that_brings_the_server_down_again_and_again_is_given_up_and_the_others_are_not() -> None:
    crashes = 0
    with stub_server.serve(latency_s=0.02) as url:
        who = teacher(url, max_retries=0)

        async def revive(_: str) -> bool:
            nonlocal crashes
            crashes += 1
            return True

        wanted = asked(who, "fault=reset poison", *(f"well {number}" for number in range(20)))
        found: dict[str, Completion] = {}

        async def run() -> None:
            async with client_of(who, revive=revive) as client:
                await client.check()
                await client.answer(
                    given(wanted), lambda request, done: found.__setitem__(request.sample.question, done)
                )

        asyncio.run(run())
    assert found.pop("fault=reset poison").error.startswith("server_lost: the server went down 4 times")
    assert crashes == 4 and len(found) == 20 and not any(done.error for done in found.values())


def test_an_engine_ends_its_servers_also_where_the_limit_it_found_cannot_be_written(tmp_path: Path) -> None:
    """A full disk must not leave a server on its GPUs."""
    (tmp_path / "folder").write_text("a file, so no place for in_flight.json")
    who = teacher("http://127.0.0.1:9/v1", backend="openai")
    settings = engine_settings(Recipe(), who, MODEL, tmp_path / "folder")
    engine = HttpEngine(settings)
    ended: list[str] = []
    engine._stack.callback(ended.append, "server")
    engine._client.replicas[0].concurrency.completed(1, 1.0)
    with pytest.raises(StorageError):
        asyncio.run(engine.close())
    assert ended == ["server"]
