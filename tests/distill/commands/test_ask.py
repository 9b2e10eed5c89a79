"""`distill ask`: every model of a run answers one question, and what cannot answer says why."""

import multiprocessing
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from servers import stub_server
from servers.view_servers import Visitor, viewed
from typer.testing import CliRunner, Result
from worlds import student_worlds

from distill import cli, live_text, redact
from distill.commands.ask import ModelReply
from distill.commands.ask import ask as ask_models
from distill.commands.live_replies import LiveReplies
from distill.rationale import NO_THINK
from distill.recipe.loading import load
from student.inference import generation
from student.train import train
from teacher.engines.connect import EngineSettings, connect
from teacher.generate import generate

RECIPE = """
[data.instruct]
source = "{data}"
[[teachers]]
name = "stub"
model = "stub"
base_url = "{url}"
prompt = "Look closely. {{question}}"
[teachers.sampling]
max_tokens = 8
[[teachers]]
name = "managed"
model = "some/model"
[student]
vision = "vision"
language = "language"
pixel_shuffle = 2
dtype = "float32"
{stage}
[eval]
max_new_tokens = 3
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run with one trained stage, and a teacher behind a server."""
    folder = student_worlds.parts(tmp_path_factory.mktemp("run"))
    image = student_worlds.make_image(folder / "one.png", 1)
    (folder / "rows.jsonl").write_bytes(
        orjson.dumps({"image": image.name, "question": "How many?", "answer": "2"}) + b"\n"
    )
    with stub_server.serve(words=4) as url:
        stage = student_worlds.stage("first", data="instruct", steps=1)
        (folder / "recipe.toml").write_text(RECIPE.format(data=folder / "rows.jsonl", url=url, stage=stage))
        train(load(folder / "recipe.toml"), folder)
        yield folder


def ask(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, ["ask", *map(str, arguments)])


def asked(*arguments: str | Path) -> dict[str, Any]:
    done = ask(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return {reply["name"]: reply for reply in orjson.loads(done.stdout)["replies"]}


def test_a_reply_in_plain_text_is_shown_by_its_parts() -> None:
    fields = ModelReply(name="after", model="stage a", text="two and one\n\n3", style="plain").as_fields()
    assert (fields["rationale"], fields["answer"]) == ("two and one", "3")


def test_a_run_answers_before_and_after_training_with_its_teachers(run: Path) -> None:
    replies = asked(run, run / "one.png", "How many?")
    assert list(replies) == ["before", "after", "stub", "managed"]
    assert replies["before"]["model"] == "the untrained student" and replies["after"]["model"] == "stage first"
    assert 0 < replies["before"]["tokens"] <= 3 and 0 < replies["after"]["tokens"] <= 3
    assert replies["stub"]["text"] and not replies["stub"]["not_asked"]
    assert "base_url" in replies["managed"]["not_asked"]
    assert sorted(path.name for path in run.iterdir() if path.name.startswith((".", "ask"))) in ([], [".lock"])


def test_a_student_of_two_modes_is_asked_in_the_mode_of_the_runs_evaluation(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    own = generation.Prompter.batches

    def batches(prompter: Any, samples: Any, size: int) -> Any:
        heard.extend(sample.question for sample in samples)
        return own(prompter, samples, size)

    monkeypatch.setattr(generation.Prompter, "batches", batches)
    quiet = Path(shutil.copytree(run, tmp_path / "quiet"))
    recipe = quiet / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("[eval]", "[eval]\nthink = false"))
    for place in (run, quiet):
        asked(place, run / "one.png", "How many?", "--model", "after")
    assert heard == ["How many?", f"How many?{NO_THINK}"]


def test_the_choice_of_models_and_further_students(run: Path) -> None:
    model = run / "train" / "first" / "model"
    replies = asked(run, run / "one.png", "How many?", "--model", "after", "--student", model)
    assert list(replies) == ["after", "student"]
    assert replies["student"]["text"] == replies["after"]["text"]
    # Without a run: one model by its folder.
    assert asked(model, run / "one.png", "How many?")["model"]["model"] == str(model)


def teacher_says(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    @asynccontextmanager
    async def connect_and_change(settings: EngineSettings) -> AsyncIterator[Any]:
        async with connect(settings) as engine:

            async def answer(requests: Any, done: Any) -> None:
                await engine.answer(requests, lambda request, reply: done(request, replace(reply, **values)))

            yield SimpleNamespace(answer=answer)

    monkeypatch.setattr("teacher.ask.connect", connect_and_change)


def test_a_reply_of_a_teacher_that_was_cut_says_so(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (run, run / "one.png", "How many?", "--model", "teacher")
    whole = asked(*arguments)["stub"]
    assert not whole["truncated"] and whole["tokens"] == 7
    teacher_says(monkeypatch, finish_reason="length")
    assert asked(*arguments)["stub"]["truncated"]
    assert "(cut off: the reply reached the token limit of the recipe)" in ask(*arguments).stdout


def test_control_characters_of_a_model_never_reach_the_terminal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher_says(monkeypatch, text="<think>\x1b]0;me\x07</think>\x9b2J3")
    for more in ([], ["--json"]):
        done = ask(run, run / "one.png", "How many?", "--model", "teacher", *more)
        assert done.exit_code == 0, done.output
        assert not {"\x1b", "\x07", "\x9b"} & set(done.stdout) and "\\u001b" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{run}", "gone.png", "What?"), "gone.png"),
        (("{run}", "{run}/recipe.toml", "What?"), "recipe.toml: none of"),
        (("{run}", "{run}/one.png", " "), "no visible character"),
        (("{run}", "{run}/one.png", "What?", "--model", "later"), "before, after, teacher"),
        (("nowhere/at/all", "{run}/one.png", "What?"), "nowhere/at/all"),
    ],
)
def test_what_cannot_be_asked_is_a_plain_error(run: Path, arguments: tuple[str, ...], message: str) -> None:
    done = ask(*(each.format(run=run) for each in arguments))
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


def test_secrets_and_control_characters_stay_out_of_text_that_comes_in_pieces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    redact.know("canary-in-pieces")
    assert redact.unfinished("he says cana") == 4 and redact.unfinished("he says: ") == 0
    live = LiveReplies(width=200)
    with live.begin(1):
        with live.hear("after", "stage a"):
            heard = live_text.current()
            assert heard is not None
            heard.begin()
            for piece in ("<think>\x1b]0;", "me\x07 can", "ary-in-", "pieces</think>", " 3 can"):
                heard.write(piece)
            assert "canary" not in capsys.readouterr().out, "the end may be a secret's beginning"
        live.replied(ModelReply(name="after", model="stage a", text="3 can", seconds=1.25))
    rest = capsys.readouterr().out
    assert rest.startswith("can\n(1.2 s") and live_text.current() is None


@pytest.mark.parametrize(("width", "side_by_side"), [(40, False), (120, True)])
def test_replies_come_while_they_are_written_and_stand_side_by_side_where_there_is_room(
    run: Path, width: int, side_by_side: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: dict[str, list[str]] = {}

    class Recorded(LiveReplies):
        @contextmanager
        def hear(self, name: str, model: str) -> Iterator[None]:
            with super().hear(name, model):
                text = live_text.current()
                assert text is not None
                write, pieces = text.write, heard.setdefault(name, [])
                text.write = lambda piece: (pieces.append(piece), write(piece))[1]  # type: ignore[method-assign]
                yield

    replies = ask_models(
        str(run), run / "one.png", "How many?", kinds=("after", "teacher"), students=(), listener=Recorded(width)
    )
    texts = {reply.name: reply.text for reply in replies if not reply.not_asked}
    assert set(texts) == {"after", "stub"} == {name for name, pieces in heard.items() if pieces}
    assert "".join(heard["after"]).strip() == texts["after"].strip()
    assert len(heard["stub"]) > 1 and "".join(heard["stub"]).split() == texts["stub"].split()
    shown = capsys.readouterr().out
    bodies = [reply.body for reply in replies if reply.name == "stub"]
    assert bodies[0].split()[0] in shown
    last = shown[shown.rindex("after (") :].splitlines()[0]
    assert ("stub (stub" in last) == side_by_side


def test_what_is_no_terminal_gets_whole_replies(run: Path) -> None:
    done = ask(run, run / "one.png", "How many?", "--model", "after")
    assert done.exit_code == 0 and done.stdout.startswith("== after (stage first, ")


def events(address: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    status, lines, _ = Visitor(address).ask("/api/ask", body)
    assert status == 200, lines
    return [orjson.loads(line) for line in lines.splitlines()]


@pytest.fixture(scope="module")
def generated(run: Path) -> tuple[Path, str]:
    """The run after generate, and its one sample."""
    recipe = load(run / "recipe.toml")
    teachers = tuple(teacher for teacher in recipe.teachers if teacher.name == "stub")
    one = recipe.model_copy(update={"teachers": teachers, "data": {"questions": recipe.data["instruct"]}})
    generate(one, run)
    (sample,) = pq.read_table(run / "generate" / "samples.parquet").column("id").to_pylist()
    return run, sample


def test_the_page_of_a_run_asks_its_models_about_a_sample(generated: tuple[Path, str]) -> None:
    run, sample = generated
    with viewed(run) as (visitor, address):
        told = events(address, {"sample_id": sample, "question": "What?", "teachers": True})
        replies = {one["reply"]["name"]: one["reply"] for one in told if "reply" in one}
        assert list(replies) == ["before", "after", "stub", "managed"] and replies["stub"]["text"]
        assert all(0 < replies[name]["tokens"] <= 3 for name in ("before", "after"))
        heard = [one["name"] for one in told if "text" in one]
        assert heard[0] == "before" and "after" in heard
        assert visitor.ask("/api/ask", {"sample_id": "nothing"})[0] == 400
        assert visitor.ask("/api/ask", {"sample_id": sample}, Cookie=None)[0] == 403
        assert visitor.ask("/api/ask", {"sample_id": sample}, Origin="http://elsewhere")[0] == 403


def test_a_page_asks_one_question_at_a_time_and_ends_the_models_with_itself(generated: tuple[Path, str]) -> None:
    run, sample = generated
    with viewed(run) as (visitor, address), ThreadPoolExecutor() as pool:
        first = pool.submit(Visitor(address).ask, "/api/ask", {"sample_id": sample})
        while not (asking := multiprocessing.active_children()):
            time.sleep(0.01)
        assert visitor.ask("/api/ask", {"sample_id": sample})[0] == 409
        asking[0].kill()  # such as for want of memory
        status, lines, _ = first.result()
        assert status == 200 and "ended early (exit code -9)" in orjson.loads(lines.splitlines()[-1])["error"]
        second = pool.submit(Visitor(address).ask, "/api/ask", {"sample_id": sample})
        while not (asking := multiprocessing.active_children()):
            time.sleep(0.01)
    second.exception()
    assert not asking[0].is_alive()
