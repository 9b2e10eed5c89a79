"""Asking a teacher some questions: any engine, answers in order, faults cost their own question only."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import client_helpers as clients
from servers import stub_server
from students import tiny_models

from distill.data.images.image_files import sha256
from distill.errors import CircuitOpen, RecipeError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import ImageRef
from teacher.ask import AskedQuestion, answer_text, open_teacher


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(words=4) as url:
        yield url


def recipe(folder: Path, settings: str) -> Recipe:
    path = folder / "recipe.toml"
    head = '[data.questions]\nsource = "q.jsonl"\n[generate]\npatience_s = 1.0\n'
    path.write_text(f'{head}[[teachers]]\nname = "judge"\n{settings}')
    return load(path)


def served(folder: Path, url: str, more: str = "") -> Recipe:
    return recipe(folder, f'model = "stub"\nbase_url = "{url}"\nmax_in_flight = 4\nmax_retries = 2\n{more}')


def questions(*texts: str) -> list[AskedQuestion]:
    return [AskedQuestion(text=text) for text in texts]


def test_answers_come_back_in_order_without_their_thinking(url: str, tmp_path: Path) -> None:
    asked = questions(*(f"Is {number} a number?" for number in range(30)))
    with open_teacher(served(tmp_path, url), "judge", tmp_path, max_tokens=8) as ask:
        together = ask(asked)
        apart = [ask([question])[0] for question in asked[:5]]
        assert ask([]) == []
    assert together[:5] == apart and len(set(together)) > 5
    assert all(answer.isdigit() for answer in together)


def test_it_asks_greedily_with_its_own_limit_and_the_teachers_system_text(url: str, tmp_path: Path) -> None:
    path = tiny_models.make_image(tmp_path / "a.png", 1, size=16)
    image = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    text = "Look at this very picture"
    settings = 'system = "Be brief."\nimages = "base64"\n[teachers.sampling]\ntemperature = 0.7\nmax_tokens = 999\n'
    with open_teacher(served(tmp_path, url, settings), "judge", tmp_path, max_tokens=8) as ask:
        ask([AskedQuestion(text=text, images=(image,))])
    (body,) = [body for body in clients.seen(url)["bodies"] if body["messages"][-1]["content"][-1]["text"] == text]
    assert body["temperature"] == 0 and body["max_tokens"] == 8
    assert body["messages"][0]["content"][0]["text"] == "Be brief."
    assert body["messages"][1]["content"][0]["image_url"]["url"].startswith("data:image/png")


def test_a_question_that_fails_has_an_empty_answer_and_costs_no_other(url: str, tmp_path: Path) -> None:
    asked = questions("first", "fault=400", "fault=500x1 passes", "fault=garbage", "last")
    with open_teacher(served(tmp_path, url), "judge", tmp_path, max_tokens=8) as ask:
        answers = ask(asked)
    assert [bool(answer) for answer in answers] == [True, False, True, False, True]


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(CircuitOpen, match="no answer from"),
        open_teacher(served(tmp_path, "http://127.0.0.1:9/v1"), "judge", tmp_path, max_tokens=8) as ask,
    ):
        ask(questions("anyone?"))


def test_nothing_is_attached_to_before_the_first_question(tmp_path: Path) -> None:
    with open_teacher(served(tmp_path, "http://127.0.0.1:9/v1"), "judge", tmp_path, max_tokens=8):
        pass


def test_an_unknown_teacher_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with (
        pytest.raises(RecipeError, match="no teacher 'jugde'; known: judge"),
        open_teacher(served(tmp_path, "http://x/v1"), "jugde", tmp_path, max_tokens=8),
    ):
        pass


def test_an_embedded_teacher_answers_too(tmp_path: Path) -> None:
    tiny_models.build(tmp_path / "model", hidden=64, layers=2, spread=0.2, end_weight=1.5)
    asked = questions("How many?", "7 - 4 =", "Which bar is higher?")
    with open_teacher(
        recipe(tmp_path, 'model = "model"\nbackend = "embedded"\n'), "judge", tmp_path, max_tokens=12
    ) as ask:
        first, again = ask(asked), ask(asked[::-1])
    assert first == again[::-1] and any(first)


def test_servers_are_started_once_and_gone_at_the_end(tmp_path: Path) -> None:
    settings = f'model = "stub"\n[teachers.server]\ncommand = {stub_server_command()}\nrestarts = 0\n'
    (tmp_path / "q.jsonl").write_text('{"question": "?"}\n')
    with open_teacher(recipe(tmp_path, settings), "judge", tmp_path / "logs", max_tokens=8) as ask:
        assert all(ask(questions("one", "two"))) and all(ask(questions("three")))
    (log,) = (tmp_path / "logs").glob("server-*.log")
    assert log.read_text().count("===") == 1


def stub_server_command() -> str:
    import sys

    return f'["{sys.executable}", "{stub_server.__file__}"]'


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("yes", {}, "yes"),
        ("<think>no, no</think>\n\nYes.", {}, "Yes."),
        ("no, wait</think> yes", {}, "yes"),
        ("<think>it goes on and", {}, ""),
        ("the template has opened it", {"tagged": True}, ""),
        ("Yes. The answer is the same.", {}, "Yes. The answer is the same."),
    ],
)
def test_thinking_is_left_out_and_nothing_else(text: str, options: dict[str, Any], said: str) -> None:
    assert answer_text(text, **options) == said
