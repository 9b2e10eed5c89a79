"""What hosted models want otherwise: further parameters and headers, other names, parameters left out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from servers import stub_server
from servers.client_helpers import MODEL, answers, asked, seen, teacher
from worlds.generate_world import World

from distill import redact
from distill.errors import RecipeError, StaleError, TeacherError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from teacher.engines.http.chat_protocol import refused_parameter, request_headers, sampling_body, shown_headers
from teacher.messages.request import requests
from teacher.replay import replay


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


def hosted(url: str, **settings: Any) -> Teacher:
    return teacher(url, **{"backend": "openai", "sampling": {"temperature": 0.5, "max_tokens": 7}, **settings})


def trace_id(who: Teacher) -> str:
    return requests(Recipe(), who, MODEL, Sample(id="s", images=(), question="How many?"))[0].id


def test_a_request_has_further_parameters_and_headers_and_none_that_is_left_out(url: str) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    more = {"reasoning_effort": "high", "response_format": schema, "top_k": 20}
    who = hosted(url, extra_body=more, extra_headers={"X-Beta": "yes"}, omit=["temperature", "seed"])
    who = who.model_copy(update={"max_completion_tokens": True})
    assert not answers(who, asked(who, "How many?"))["How many?"].error
    found = seen(url)
    (body,) = found["bodies"]
    assert "x-beta: yes" in found["head"]
    for key in ("messages", "stream", "stream_options"):
        del body[key]
    assert body == {"model": "stub", "max_completion_tokens": 7, **more}


def test_headers_from_the_environment_are_sent_and_shown_by_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", "quite-secret-7781")
    who = hosted(url, headers_env={"x-team": "TEAM"}, api_key_env="TEAM")
    answers(who, asked(who, "How many?"))
    assert "x-team: quite-secret-7781" in seen(url)["head"]
    assert shown_headers(who)["x-team"] == "$TEAM"
    assert "quite-secret-7781" not in redact.exact("quite-secret-7781")
    monkeypatch.delenv("TEAM")
    with pytest.raises(RecipeError, match=r"t: api_key_env names TEAM, which is not set"):
        request_headers(who)
    with pytest.raises(RecipeError, match=r"headers_env names TEAM for the header 'x-team', and it is not set"):
        request_headers(who.model_copy(update={"api_key_env": None}))


@pytest.mark.parametrize("headers", [{"x-a": "one\r\nx-b: two"}, {"x a": "one"}, {"x-ä": "one"}, {"x-a": "ä"}])
def test_a_header_that_would_end_another_one_is_refused(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(RecipeError, match="cannot be sent"):
        request_headers(hosted(url, extra_headers=headers))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extra_body": {"temperature": 1}}, r"extra_body.temperature is set by sampling.temperature"),
        ({"extra_body": {"n": 4}}, r"extra_body.n is set by choices"),
        ({"base_url": "http://a.example/openai/deployments/d?api-version=1"}, r"base_url has a query.*openai/v1"),
        ({"omit": ["temprature"]}, r"did you mean 'temperature'"),
        ({"extra_headers": {"Authorization": "Bearer x"}}, r"use headers_env = { \"Authorization\""),
        ({"extra_headers": {"Ocp-Apim-Subscription-Key": "x"}}, r"holds a secret"),
        ({"backend": "vllm", "extra_body": {"top_k": 4}}, r"extra_body.top_k is set by sampling.top_k"),
        ({"backend": "embedded", "base_url": None, "omit": ["seed"]}, r"sends no HTTP requests and takes no omit"),
    ],
)
def test_a_key_that_contradicts_another_one_is_refused(url: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        hosted(url, **settings)


def test_what_changes_the_text_changes_the_id_and_a_value_that_is_left_out_does_not(url: str) -> None:
    plain = trace_id(hosted(url))
    assert plain == trace_id(hosted(url, headers_env={"x-api-key": "HOME"}, max_completion_tokens=True))
    changed = [
        {"extra_body": {"reasoning_effort": "low"}},
        {"extra_headers": {"x-a": "b"}},
        {"omit": ["temperature"]},
    ]
    assert len({plain, *(trace_id(hosted(url, **each)) for each in changed)}) == 4
    warm = hosted(url, omit=["temperature"], sampling={"temperature": 0.9, "max_tokens": 7})
    assert trace_id(warm) == trace_id(hosted(url, omit=["temperature"]))
    assert trace_id(warm) != trace_id(hosted(url, omit=["top_p"], sampling={"temperature": 0.9, "max_tokens": 7}))


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "param": None},
            "set teachers.t.max_completion_tokens = true",
        ),
        (
            {
                "message": "Unsupported value: 'temperature' does not support 0.5 with this model.",
                "param": "temperature",
            },
            "change teachers.t.sampling.temperature, or leave the parameter out: "
            'teachers.t.omit = ["seed","temperature"]',
        ),
        ({"message": "Unknown parameter: 'verbosity'."}, "correct teachers.t.extra_body.verbosity, or take it out"),
        ({"message": "'max_tokens' is too large: 7. Your request has 4095 input tokens."}, ""),
        ({"message": "unsupported image"}, ""),
    ],
)
def test_a_refusal_that_names_a_parameter_names_the_key(url: str, error: dict[str, Any], remedy: str) -> None:
    who = hosted(url, extra_body={"verbosity": "low"}, omit=["seed"])
    assert refused_parameter(who, orjson.dumps({"error": error})) == remedy


def test_a_run_whose_every_request_is_refused_for_a_parameter_stops_at_once_and_says_what_to_change(
    url: str, tmp_path: Path
) -> None:
    world = World(tmp_path)
    world.add_rows(3)
    world.head = ""  # patience of 15 minutes
    world.add_teacher(url, backend="openai")
    with stub_server.serve(mode="refuse-temperature") as strict:
        world.teachers[0]["base_url"] = strict
        with pytest.raises(
            TeacherError, match=r"HTTP 400.*leave the parameter out: teachers.stub.omit = \[.temperature"
        ):
            world.generate()
        world.teachers[0]["omit"] = ["temperature"]
        assert world.generate().counts["complete"] == 3


def test_a_record_says_what_was_in_force_and_is_replayed(url: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add_rows(2)
    world.add_teacher(url, backend="openai", omit=["temperature", "seed"], **{"extra_body.reasoning_effort": "low"})
    world.generate()
    for record in world.records():
        params = record["params"]
        assert params["extra_body"] == {"reasoning_effort": "low"} and params["omit"] == ["temperature", "seed"]
        assert "temperature" not in params and params["max_tokens"] == 16
        body = replay(world.recipe(), world.run, record["id"])["body"]
        assert body["reasoning_effort"] == "low" and not body.keys() & {"temperature", "seed"}
    world.teachers[0]["extra_body.reasoning_effort"] = "high"
    with pytest.raises(StaleError, match="extra_body"):
        replay(world.recipe(), world.run, record["id"])


def test_a_vllm_server_gets_the_same_parameters(url: str) -> None:
    who = teacher(url, extra_body={"structured_outputs": {"json": {}}}, omit=["min_p"], max_completion_tokens=True)
    body = sampling_body(who, who.sampling)
    assert body["structured_outputs"] == {"json": {}} and body["max_completion_tokens"] == 1024
    assert not body.keys() & {"min_p", "max_tokens"} and body["top_k"] == 0
