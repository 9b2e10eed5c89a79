"""Servers with another model, behind a proxy, with numbers that cannot be true; teachers with another name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pages.fixed_pages import pages
from servers import client_helpers as clients
from servers import stub_server
from worlds.generate_world import World, asked_of

from distill.errors import CircuitOpen, ModelError, TeacherError
from distill.recipe.sections.eval import AnyStudent
from distill.recipe.sections.teachers import Teacher
from teacher.engines.http.remote_student import check_server
from teacher.engines.http.server_info import find_served_name, parse_queue, proxy_of, same_model
from teacher.messages.request import Model
from teacher.store import renamed_teachers

MODELS = b'{"data": [{"id": "stub"}]}'


def student_at(url: str) -> AnyStudent:
    return AnyStudent(model="stub", base_url=url)


def test_a_server_that_drops_unknown_addresses_needs_no_version() -> None:
    with pages({"/v1/models": (200, "", MODELS)}) as url:
        assert clients.answers(clients.teacher(url), [], patience_s=0.5) == {}
        assert asyncio.run(check_server("mine", student_at(url))) is False


@pytest.mark.parametrize("status", [301, 308])
def test_an_address_that_has_moved_is_refused_before_anything_is_asked(status: int) -> None:
    moved = (status, "https://user:secret-word@new.example/v1/models", b"<html>")
    with pages({"/v1/models": moved}) as url:
        with pytest.raises(TeacherError, match=rf"has moved \(HTTP {status} to https://new.example/v1/models\)"):
            clients.answers(clients.teacher(url), [], patience_s=0.5)
        with pytest.raises(ModelError, match=r"set base_url to where the server is now"):
            asyncio.run(check_server("mine", student_at(url)))


def test_a_page_in_the_place_of_the_list_of_models_is_no_server_of_a_student() -> None:
    page = (200, "", b"<html>Log in</html>")
    with (
        pages({"/v1/models": page}) as url,
        pytest.raises(ModelError, match=r"eval.*is not a list of models; it begins"),
    ):
        asyncio.run(check_server("mine", student_at(url)))


def test_a_log_in_page_is_an_outage_and_no_fault_of_a_row() -> None:
    away = (302, "https://login.example", b"<html>")
    logged_out = pytest.raises(CircuitOpen, match=r"302 to https://login.example.*log-in page")
    with pages({"/v1/models": away}) as url, logged_out:
        clients.answers(clients.teacher(url), [], patience_s=0.5)
    with pages({"/v1/models": (200, "", MODELS), "/v1/chat/completions": away}) as url:
        who = clients.teacher(url)
        with pytest.raises(CircuitOpen, match=r"server_error: the address has moved \(HTTP 302"):
            clients.answers(who, clients.asked(who, "one"), patience_s=0.5)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_server_that_answers_with_another_model_is_refused_unless_allowed(world: World) -> None:
    world.add_rows(3)
    with stub_server.serve(mode="other") as url:
        world.add_teacher(url)
        with pytest.raises(TeacherError, match=r"model .another. has answered instead of 'stub'.*allow_other_model"):
            world.generate()
        assert world.records() == []
        world.teachers[0]["allow_other_model"] = True
        world.generate()
    assert {record["engine"]["model"] for record in world.records()} == {"another"}


@pytest.mark.parametrize(
    ("asked", "answered", "same"),
    [
        ("gpt-4o", "gpt-4o-2024-08-06", True),
        ("Qwen/Qwen3-8B", "Qwen3-8B", True),
        ("/models/Qwen3-8B", "qwen3-8b", True),
        ("Qwen/Qwen3-8B", "", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("Qwen/Qwen3-8B", "other/Qwen3-8B", False),
        ("Qwen3-8B", "Qwen3-4B", False),
    ],
)
def test_a_dated_name_is_the_model_and_a_like_name_is_not(asked: str, answered: str, same: bool) -> None:
    assert same_model(asked, answered) == same


def test_proxies_of_the_environment_are_used_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert proxy_of("http://teacher.example/v1") is None
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inner.example,.local")
    assert proxy_of("http://teacher.example/v1") == "http://proxy:3128"
    assert proxy_of("https://teacher.example/v1") is None
    for url in (
        "http://inner.example:8000/v1",
        "http://127.0.0.1:8000/v1",
        "http://localhost/v1",
        "http://[::1]/v1",
        "http://0.0.0.0/v1",
    ):
        assert proxy_of(url) is None


def test_a_proxy_without_a_scheme_is_one_and_what_cannot_be_used_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "no_proxy", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "proxy:3128")
    assert proxy_of("http://teacher.example/v1") == "http://proxy:3128"
    for proxy in ("socks5://user:secret@proxy:1080", "http://[::1", "http://proxy:99999", "http://"):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(TeacherError, match=r"HTTP_PROXY = .*is no HTTP proxy.*NO_PROXY") as caught:
            proxy_of("http://teacher.example/v1")
        assert "secret" not in str(caught.value)
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("all_proxy", "socks5://proxy:1080")
    with pytest.raises(TeacherError, match="ALL_PROXY"):
        proxy_of("http://teacher.example/v1")


def test_a_server_whose_only_model_is_another_one_of_the_hub_is_refused_unless_allowed() -> None:
    model = Model(name="Qwen/Qwen3-VL-8B", revision="", local=False)
    who = clients.teacher("http://127.0.0.1:1/v1", model="Qwen/Qwen3-VL-8B")
    for name in ("qwen/qwen3-vl-8b", "/models/some-folder", "alias", "model.gguf"):
        for root in (name, None):
            assert find_served_name(who, model, "url", [{"id": name, "root": root}], "here") == name
    other = [{"id": "Qwen/Qwen3-VL-2B", "root": "Qwen/Qwen3-VL-2B"}]
    with pytest.raises(TeacherError, match="serves Qwen/Qwen3-VL-2B, not model"):
        find_served_name(who, model, "url", other, "here")
    allowed = clients.teacher("http://127.0.0.1:1/v1", model="Qwen/Qwen3-VL-8B", allow_other_model=True)
    assert find_served_name(allowed, model, "url", other, "here") == "Qwen/Qwen3-VL-2B"


def test_a_server_that_has_another_model_than_before_is_refused_unless_its_name_is_given(world: World) -> None:
    world.add_rows(2)
    with stub_server.serve(model="alias") as url:
        world.add_teacher(url)
        world.generate()
    world.add_rows(1)
    with stub_server.serve(model="other-alias") as url:
        world.teachers[0]["base_url"] = url
        with pytest.raises(
            TeacherError, match=r"came from 'alias'; its server serves 'other-alias' now.*served_model"
        ):
            world.generate()
        assert len(world.records()) == 2
        world.teachers[0]["served_model"] = "other-alias"
        assert world.generate().counts["complete"] == 3


def test_a_page_of_metrics_that_is_none_says_nothing() -> None:
    for page in ("vllm:num_requests_running\nvllm:num_requests_waiting", "vllm:num_requests_running{} many"):
        assert parse_queue(page) is None


def test_a_proxy_of_the_environment_gets_the_requests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add_rows(2)
    with stub_server.serve() as url:
        monkeypatch.setenv("http_proxy", url.removesuffix("/v1"))
        world.add_teacher("http://teacher.invalid:8000/v1", images="base64")
        assert world.generate().counts["complete"] == 2
        assert asked_of(url) == 2


def test_a_renamed_teacher_buys_nothing_again(world: World) -> None:
    world.add_rows(6)
    with stub_server.serve() as url:
        world.add_teacher(url, "one")
        world.add_teacher(url, "two", prompt="Briefly: {question}")
        world.generate()
        texts = {record["id"]: record["text"] for record in world.records()}
        world.teachers[0]["name"], world.teachers[1]["name"] = "two", "three"
        manifest = world.generate(fresh=True)
        assert asked_of(url) == 12
    assert manifest.counts["two.complete"] == manifest.counts["three.complete"] == 6
    planned = set(world.planned())
    named = [record for record in world.records() if record["id"] in planned]
    assert {record["id"]: record["text"] for record in named} == texts
    for name in ("two", "three"):
        folder = world.run / "generate" / name
        assert {record["teacher"] for part in folder.glob("part-*") for record in _lines(part)} == {name}


def test_the_traces_of_another_model_are_not_read_for_those_of_a_renamed_teacher(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million traces of another teacher would be indexed at every start."""

    def refuse(folder: Path, _: Teacher) -> None:
        raise AssertionError(f"{folder} is read")

    world.add_rows(2)
    with stub_server.serve() as url:
        world.add_teacher(url, "one")
        world.add_teacher(url, "two", model="another", served_model="stub")
        world.generate()
        world.add_rows(1)
        monkeypatch.setattr(renamed_teachers, "read_index", refuse)
        assert world.generate().counts["complete"] == 6


def _lines(part: Path) -> list[dict[str, Any]]:
    import orjson

    return [orjson.loads(line) for line in part.read_bytes().splitlines()]


def test_numbers_that_cannot_be_true_are_left_out_and_counted(world: World) -> None:
    world.add_rows(3)
    world.add_rows(1, text="fault=odd")
    with stub_server.serve() as url:
        world.add_teacher(url)
        manifest = world.generate()
        assert manifest.counts["complete"] == 4 and manifest.counts["odd_numbers"] == 1
        assert world.generate() == manifest
    (odd,) = [record for record in world.records() if "notes" in record]
    assert odd["usage"] == {"prompt": 0, "image": 0, "reasoning": 0, "answer": 0}
    assert {"usage.prompt_tokens = -1", "usage.completion_tokens = 5000000000.0"} <= set(odd["notes"])


def test_a_queue_of_nonsense_is_none() -> None:
    text = "vllm:num_requests_running {}\nvllm:num_requests_waiting 3\n"
    assert parse_queue(text.format("7")) == (7.0, 3.0)
    for nonsense in ("NaN", "-1", "+Inf", "1e300"):
        assert parse_queue(text.format(nonsense)) is None
