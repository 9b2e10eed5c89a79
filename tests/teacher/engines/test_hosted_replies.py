"""How hosted APIs answer: waits they ask for, refusals, filters, reasoning, tokens, names of models.

The forms are those of the APIs' documentation; docs/log.md names the sources.
"""

import asyncio
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import orjson
import pytest
from pages.fixed_pages import pages
from servers import client_helpers as clients
from servers import stub_server

from distill.errors import CircuitOpen, TeacherError
from distill.recipe.sections.teachers import Teacher
from teacher.engines.asked_waits import asked_wait_s
from teacher.engines.http.chat_protocol import completion_from_body, refused_parameter
from teacher.engines.http.exchange import request_failure
from teacher.engines.http.server_info import find_served_name, other_model, same_model
from teacher.engines.http.streaming import assemble_body
from teacher.engines.outage import Dependency, Failure
from teacher.messages.completion import Completion
from teacher.messages.parse import parse
from teacher.messages.request import Model

NOW = 1_800_000_000
IN_A_MINUTE = datetime.fromtimestamp(NOW + 60, UTC)
GOOGLE = {"error": {"code": 429, "details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "38s"}]}}
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@pytest.mark.parametrize(
    ("headers", "body", "wait_s"),
    [
        ({"retry-after": "2"}, "", 2),
        ({"retry-after": format_datetime(IN_A_MINUTE, usegmt=True)}, "", 60),
        ({"retry-after-ms": "1500", "retry-after": "2"}, "", 1.5),
        ({"x-ratelimit-reset-requests": "6m0s"}, "", 360),
        ({"x-ratelimit-reset-tokens": "900ms", "x-ratelimit-remaining-tokens": "0"}, "", 0.9),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "2m59.56s"}, "", 179.56),
        ({"x-ratelimit-reset-tokens": "55", "x-ratelimit-remaining-tokens": "-1"}, "", 55),
        ({"x-rate-limit-reset-tokens": "55"}, "", 55),
        ({"x-ratelimit-reset": str(IN_A_MINUTE.timestamp() * 1000)}, "", 60),
        ({"x-ratelimit-reset": str(IN_A_MINUTE.timestamp())}, "", 60),
        ({"anthropic-ratelimit-requests-reset": IN_A_MINUTE.strftime("%Y-%m-%dT%H:%M:%SZ")}, "", 60),
        ({}, "Rate limit reached (TPM): Limit 15000. Please try again in 5.289s. Visit", 5.289),
        ({}, "Please try again in 6m0s.", 360),
        ({}, "exceeded the token rate limit. Please retry after 45 seconds.", 45),
        ({}, orjson.dumps([GOOGLE]).decode(), 38),
        ({"x-ratelimit-reset-requests": "soon"}, "Try again later.", None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_read_however_it_is_written(
    headers: dict[str, str], body: str, wait_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    found = asked_wait_s(429, headers, body.encode())
    assert found == (None if wait_s is None else pytest.approx(wait_s))


def test_a_limit_of_which_something_remains_is_not_waited_for_and_one_that_was_not_reached_neither() -> None:
    headers = {
        "x-ratelimit-reset-requests": "24h0m0s",
        "x-ratelimit-remaining-requests": "99",
        "x-ratelimit-reset-tokens": "2s",
        "x-ratelimit-remaining-tokens": "0",
    }
    assert asked_wait_s(429, headers) == 2
    assert asked_wait_s(500, headers) is None
    assert asked_wait_s(400, {}, b"Please retry after 45 seconds.") is None
    failure = request_failure(clients.teacher("http://127.0.0.1:1/v1"), 429, b"", headers)
    assert failure.wait_s == 2 and failure.reason == "rate_limited"


@pytest.mark.parametrize(
    ("status", "reason", "of_the_request"),
    [
        (400, "refused_request", True),
        (413, "refused_request", True),
        (422, "refused_request", True),
        (403, "refused_request", False),
        (410, "refused_request", False),
        (429, "rate_limited", False),
        (408, "server_error", False),
        (409, "server_error", False),
        (498, "server_error", False),
        (499, "server_error", False),
        (529, "server_error", False),
    ],
)
def test_only_a_status_that_refuses_what_a_request_says_speaks_against_a_row(
    status: int, reason: str, of_the_request: bool
) -> None:
    failure = request_failure(clients.teacher("http://127.0.0.1:1/v1"), status, b"{}", {})
    assert (failure.reason, failure.of_the_request) == (reason, of_the_request)


def body_of(message: Any, finish: str | None = "stop", usage: Any = USAGE, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish, **more}], "usage": usage}


def completed(body: dict[str, Any]) -> Completion:
    return completion_from_body(body, b"", 0.0, logprobs=False)


def streamed(*deltas: dict[str, Any], finish: str | None = "stop", end: bytes = b"data: [DONE]\n\n") -> Completion:
    pieces = [{"choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
    pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": USAGE})
    return completed(assemble_body(b"".join(b"data: %b\n\n" % orjson.dumps(each) for each in pieces) + end))


@pytest.mark.parametrize(
    ("said", "finish", "stop_reason"),
    [
        ("stop", "stop", ""),
        (None, "stop", ""),
        ("eos_token", "eos_token", ""),
        ("max_output_tokens", "length", "max_output_tokens"),
        ("MAX_TOKENS", "length", "MAX_TOKENS"),
        ("model_context_window_exceeded", "length", "model_context_window_exceeded"),
        ("content_filter", "content_filter", ""),
        ("content_filter: PROHIBITED_CONTENT", "content_filter", "content_filter: PROHIBITED_CONTENT"),
        ("SAFETY", "content_filter", "SAFETY"),
        ("sensitive", "content_filter", "sensitive"),
    ],
)
def test_the_end_of_an_answer_is_known_in_the_words_of_every_api(
    said: str | None, finish: str, stop_reason: str
) -> None:
    found = completed(body_of({"content": "4"}, said))
    assert (found.finish_reason, found.stop_reason) == (finish, stop_reason)


@pytest.mark.parametrize("said", ["network_error", "SERVER_ERROR", "error", "abort", "insufficient_system_resource"])
def test_an_answer_that_was_given_up_is_asked_for_again(said: str) -> None:
    with pytest.raises(Failure, match=f"server_error: finish_reason {said}"):
        completed(body_of({"content": "half an ans"}, said))


def test_an_error_beside_half_an_answer_is_an_error() -> None:
    with pytest.raises(Failure, match=r"server_error: .*Upstream error"):
        completed(body_of({"content": "half"}, "stop", error={"code": 502, "message": "Upstream error"}))


def test_an_answer_that_a_filter_withholds_is_a_refusal_also_without_a_message() -> None:
    withheld = {"choices": [{"index": 0, "finish_reason": "content_filter: PROHIBITED_CONTENT"}], "usage": USAGE}
    found = completed(withheld)
    assert parse(found.text, finish_reason=found.finish_reason).outcome == "refusal"
    with pytest.raises(Failure, match="garbled_response"):
        completed({"choices": [{"index": 0, "finish_reason": "stop"}], "usage": USAGE})


DETAILS = [
    {"type": "reasoning.text", "text": "Two and ", "index": 0},
    {"type": "reasoning.summary", "summary": "two.", "index": 1},
    {"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 2},
]


def test_reasoning_that_only_details_hold_is_kept_and_that_under_three_names_counts_once() -> None:
    alone = completed(body_of({"content": "4", "reasoning": None, "reasoning_details": DETAILS}))
    assert alone.text == "<think>Two and two.</think>4"
    names = {"reasoning": "Two and two.", "reasoning_content": "Two and two.", "reasoning_details": DETAILS}
    assert completed(body_of({"content": "4", **names})).text == alone.text
    assert streamed({"content": "", **names}, {"content": "4"}).text == alone.text
    pieces = [{"content": "", "reasoning_details": [each]} for each in DETAILS]
    assert streamed(*pieces, {"content": "4"}).text == alone.text


def test_a_stream_is_whole_when_it_says_that_it_is_done_or_how_it_ended() -> None:
    assert streamed({"content": "4"}, finish=None).text == "4"
    assert streamed({"content": "4"}, end=b"").text == "4"
    with pytest.raises(Failure, match="the streamed answer is not complete"):
        streamed({"content": "4"}, finish=None, end=b"")


@pytest.mark.parametrize(
    ("usage", "generated"),
    [
        (USAGE, 20),
        ({"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81}, 60),
        ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}, 603),
        ({"prompt_tokens": 20, "completion_tokens": 198}, 198),
        ({"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 0}, 198),
        ({"total_tokens": 81}, 0),
    ],
)
def test_thoughts_that_only_the_total_counts_are_counted(usage: dict[str, int], generated: int) -> None:
    found = completed(body_of({"content": "4"}, usage=usage))
    assert found.completion_tokens == generated
    assert found.reasoning_tokens == (generated - usage.get("completion_tokens", 0) or None)


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("mistral-small-latest", "mistral-small-2506", True),
        ("acme/model-vl-32b:free", "acme/model-vl-32b", True),
        ("gemini-2.5-flash", "models/gemini-2.5-flash", True),
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("mistral-small-latest", "mistral-medium-2506", False),
        ("model:8b", "model:2b", False),
    ],
)
def test_a_name_that_leads_to_a_model_is_that_of_the_model(asked: str, answered: str, same: bool) -> None:
    assert same_model(asked, answered) == same


def test_a_deployment_answers_under_the_name_of_its_model() -> None:
    who = clients.teacher("http://127.0.0.1:1/v1", backend="openai", model="gpt-4o", served_model="my-deployment")
    assert other_model(who, "my-deployment", "gpt-4o-2024-08-06") == ""
    assert "has answered instead of 'my-deployment'" in other_model(who, "my-deployment", "gpt-4o-mini")


@pytest.mark.parametrize(
    ("model", "served_model", "listed", "name"),
    [
        ("gpt-4o", "my-deployment", ["gpt-4o-2024-08-06", "gpt-35-turbo"], "my-deployment"),
        ("claude-sonnet-4-5", None, ["claude-sonnet-4-5-20250929", "claude-opus-4-1-20250805"], "claude-sonnet-4-5"),
        ("gemini-2.5-flash", None, ["models/gemini-2.5-pro", "models/gemini-2.5-flash"], "gemini-2.5-flash"),
        ("acme/model-vl:nitro", None, ["acme/model-vl", "acme/model"], "acme/model-vl:nitro"),
        ("Qwen/Qwen3-VL-8B", None, ["qwen/qwen3-vl-8b", "qwen/qwen3-vl-2b"], "qwen/qwen3-vl-8b"),
    ],
)
def test_a_list_of_models_that_has_another_form_of_the_name_is_no_refusal(
    model: str, served_model: str | None, listed: list[str], name: str
) -> None:
    who = clients.teacher("http://127.0.0.1:1/v1", backend="openai", model=model, served_model=served_model)
    cards = [{"id": each} for each in listed]
    assert find_served_name(who, Model(name=model, revision="", local=False), "url", cards, "here") == name
    typo = Model(name="gpt-4oo", revision="", local=False)
    with pytest.raises(TeacherError, match="not model = 'gpt-4oo'"):
        find_served_name(
            clients.teacher("http://x/v1", backend="openai", model="gpt-4oo"), typo, "url", cards, "here"
        )


@pytest.mark.parametrize(
    ("settings", "error", "remedy"),
    [
        ({"samples": 2, "choices": 2}, {"message": "'n' : number must be at most 1"}, "set teachers.t.choices = 1"),
        ({"samples": 2, "choices": 2}, {"message": "Too many.", "param": "n"}, "set teachers.t.choices = 1"),
        ({}, {"message": "'n' : number must be at most 1"}, ""),
        (
            {"system": "Be brief."},
            {"message": "Unsupported value: 'messages[0].role' does not support 'system' with this model."},
            "take teachers.t.system out, and put its text into teachers.t.prompt",
        ),
        (
            {},
            {
                "message": [
                    {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
                ]
            },
            'leave the parameter out: teachers.t.omit = ["seed"]',
        ),
    ],
)
def test_a_refusal_names_the_key_that_sends_what_is_refused(
    settings: dict[str, Any], error: dict[str, Any], remedy: str
) -> None:
    who = clients.teacher("http://127.0.0.1:1/v1", backend="openai", **settings)
    assert refused_parameter(who, orjson.dumps({"error": error})) == remedy


def test_while_all_rows_fail_one_at_a_time_tries_and_more_seldom_with_time() -> None:
    now = [0.0]
    servers = Dependency("server", clock=lambda: now[0])
    for row in ("a", "b", "c"):
        servers.failed(row, Failure("rate_limited", "x"))
    tries = []
    while now[0] < 900:
        if servers.may_try(900.0):
            tries.append(now[0])
        now[0] += 0.1
    assert 50 < len(tries) < 100
    assert tries[-1] - tries[-2] == pytest.approx(15, abs=0.2)
    servers.passed("a")
    assert servers.may_try(900.0) and servers.may_try(900.0)


def test_answers_that_cannot_be_used_are_not_paid_for_fifteen_minutes() -> None:
    now = [0.0]
    servers = Dependency("server", clock=lambda: now[0])
    for now[0] in (0.0, 10.0, 31.0):
        servers.failed("a", Failure("garbled_response", "not a chat completion", paid=True))
    with pytest.raises(CircuitOpen, match="no request has succeeded for 31 s"):
        servers.wait(900.0, lambda _: None, idle=True)


def test_a_key_that_may_not_list_models_may_ask() -> None:
    answers = {
        "/v1/models": (403, "", b'{"error": "Missing scopes: api.model.read"}'),
        "/v1/chat/completions": (200, "", orjson.dumps(body_of({"content": "4"}))),
    }
    with pages(answers) as url:
        who = clients.teacher(url)
        found = clients.answers(who, clients.asked(who, "one"), patience_s=0.5)
    assert found["one"].text == "4"


def test_an_answer_that_cannot_be_used_says_that_it_was_paid() -> None:
    body = orjson.dumps({"choices": [{"message": {"content": {"no": "text"}}, "finish_reason": "stop"}]})
    answers = {
        "/v1/models": (200, "", b'{"data": [{"id": "stub"}]}'),
        "/v1/chat/completions": (200, "", body),
    }
    with pages(answers) as url:
        who = clients.teacher(url)

        async def failure() -> Failure:
            async with clients.client_of(who) as client:
                await client.check()
                replica = client.replicas[0]
                with pytest.raises(Failure) as caught:
                    await client._exchange.send(replica, [b"{}"], after_timeout=False)
                return caught.value

        assert asyncio.run(failure()).paid


def paid(url: str) -> Teacher:
    return clients.teacher(url, backend="openai", max_in_flight=None)


@pytest.mark.parametrize("whole", [0, 1], ids=["in pieces", "whole"])
def test_another_model_that_answers_the_first_request_is_paid_for_one_reply(whole: int) -> None:
    with stub_server.serve(mode="other", whole=whole, latency_s=0.2) as url:
        with pytest.raises(TeacherError, match=r"model 'another' has answered instead of 'stub'"):
            clients.answers(paid(url), clients.asked(paid(url), *map(str, range(40))))
        assert clients.seen(url)["requests"] == 1


def test_all_requests_go_out_when_the_first_reply_begins_and_not_when_it_ends() -> None:
    with stub_server.serve() as url:
        found = clients.answers(paid(url), clients.asked(paid(url), "fault=drip", *map(str, range(40))))
    assert next(iter(found)) != "fault=drip" and not any(each.error for each in found.values())


def test_the_first_replies_go_out_together_where_they_cost_nothing() -> None:
    with stub_server.serve(mode="other", latency_s=0.2) as url:
        who = clients.teacher(url, max_in_flight=8)
        with pytest.raises(TeacherError):
            clients.answers(who, clients.asked(who, *map(str, range(40))))
        assert clients.seen(url)["requests"] == 8
