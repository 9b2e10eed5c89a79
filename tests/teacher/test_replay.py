"""The request behind a trace: rebuilt exactly, sent again, or refused with what has changed."""

import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers import stub_server
from students import tiny_models
from typer.testing import CliRunner

from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.cli import app
from distill.data.sample_files import write_samples
from distill.errors import DataError, StaleError
from distill.recipe.loading import load
from teacher.generate import generate
from teacher.replay import replay

RECIPE = """
seed = {seed}
[data.questions]
source = "rows.jsonl"
[generate.outcomes]
empty_answer = "resample"
truncated_thinking = "raise_cap"
attempts = 3
[[teachers]]
name = "writer"
model = "stub"
base_url = "{url}"
images = "base64"
system = "Be {{brief}}."
prompt = "{prompt}"
api_key_env = "STUB_KEY"
[teachers.sampling]
max_tokens = 50
[[teachers]]
name = "editor"
model = "stub"
base_url = "{url}"
images = "base64"
prompt = "Shorter: {{question}} {{draft}}"
after = "writer"
"""


class World:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def recipe(self, *, seed: int = 0, prompt: str = "{question}") -> Any:
        (self.folder / "recipe.toml").write_text(RECIPE.format(seed=seed, url=self.url, prompt=prompt))
        return load(self.folder / "recipe.toml")

    def records(self) -> list[dict[str, Any]]:
        return [record for part in self.folder.glob("run/generate/*/part-*.jsonl") for record in read_jsonl(part)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    tiny_models.make_image(folder / "0.png", 0, size=16)
    questions = ("How many?", "fault=empty please", "fault=think please")
    rows = [{"image": "0.png", "question": question} for question in questions]
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    with stub_server.serve() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STUB_KEY", "secret")
        world = World(folder, url)
        generate(world.recipe(), folder / "run")
        yield world


def bodies(world: World) -> list[dict[str, Any]]:
    with urllib.request.urlopen(world.url.removesuffix("/v1") + "/seen") as response:
        return list(orjson.loads(response.read())["bodies"])


def plain(body: dict[str, Any]) -> bytes:
    """A body without what does not change the answer: names of images, and whether it comes in pieces."""
    for message in body["messages"]:
        for part in message["content"]:
            part.pop("uuid", None)
    for way in ("stream", "stream_options"):
        body.pop(way, None)
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def test_every_trace_s_request_is_rebuilt_as_it_was_sent(world: World) -> None:
    records = world.records()
    sent = {plain(body) for body in bodies(world)}
    assert {record["attempt"] for record in records} == {0, 1, 2} and any(record["draft"] for record in records)
    shown = [replay(world.recipe(), world.folder / "run", record["id"]) for record in records]
    assert {plain(request["body"]) for request in shown} == sent
    assert len(shown) == len(sent) == 8


@pytest.mark.parametrize("former", ["another", "yet-another"])
def test_the_trace_of_a_renamed_teacher_is_that_of_its_name_of_today(
    world: World, tmp_path: Path, former: str
) -> None:
    run = Path(shutil.copytree(world.folder / "run", tmp_path / "run"))
    (run / "generate" / former).mkdir()
    for part in (run / "generate" / "writer").glob("part-*.jsonl"):
        lines = [{**record, "teacher": former} for record in read_jsonl(part)]
        write_jsonl(run / "generate" / former / part.name, lines)
    for record in world.records():
        assert replay(world.recipe(), run, record["id"])["method"] == "POST"


def test_the_key_is_named_and_neither_shown_nor_needed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = next(record["id"] for record in world.records() if record["teacher"] == "writer")
    shown = replay(world.recipe(), world.folder / "run", trace)
    assert b"secret" not in orjson.dumps(shown)
    monkeypatch.delenv("STUB_KEY")
    assert replay(world.recipe(), world.folder / "run", trace) == shown
    assert shown["headers"]["authorization"] == "Bearer $STUB_KEY"


def test_a_trace_of_a_sample_that_is_planned_no_more_is_found_in_the_source(world: World, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(world.folder / "run", copied)
    expected = [replay(world.recipe(), copied, record["id"]) for record in world.records()]
    write_samples(copied / "generate" / "samples.parquet", [])
    assert [replay(world.recipe(), copied, record["id"]) for record in world.records()] == expected


def test_the_body_is_what_curl_can_send_and_the_answer_is_the_stored_one(world: World) -> None:
    trace = next(record for record in world.records() if record["outcome"] == "complete")
    shown = replay(world.recipe(), world.folder / "run", trace["id"])
    asked = urllib.request.Request(shown["url"], orjson.dumps(shown["body"]), {"content-type": "application/json"})
    with urllib.request.urlopen(asked) as response:
        assert orjson.loads(response.read())["choices"][0]["message"]["content"] == trace["text"]


def test_it_can_be_sent_again_and_is_compared(world: World) -> None:
    trace = next(record for record in world.records() if record["outcome"] == "complete")
    again = replay(world.recipe(), world.folder / "run", trace["id"][:10], resend=True)
    assert again["equal"] and again["answer"] == again["stored"] == trace["text"]


@pytest.mark.parametrize(
    ("change", "named"), [({"prompt": "Well: {question}"}, "the prompt or an image"), ({"seed": 1}, "seed")]
)
def test_a_changed_recipe_is_refused_with_what_changed(world: World, change: dict[str, Any], named: str) -> None:
    trace = next(record for record in world.records() if record["teacher"] == "writer")
    with pytest.raises(StaleError, match=named):
        replay(world.recipe(**change), world.folder / "run", trace["id"])


def test_an_unknown_id_and_an_ambiguous_one_are_said(world: World) -> None:
    with pytest.raises(DataError, match="no trace has an id"):
        replay(world.recipe(), world.folder / "run", "zzz")
    with pytest.raises(DataError, match="8 traces begin with ''"):
        replay(world.recipe(), world.folder / "run", "")


def test_the_command_prints_json_alone(world: World) -> None:
    world.recipe()
    trace = world.records()[0]["id"]
    arguments = ["generate", str(world.folder / "recipe.toml"), "--run", str(world.folder / "run")]
    done = CliRunner().invoke(app, [*arguments, "--replay", trace])
    assert done.exit_code == 0 and orjson.loads(done.stdout)["method"] == "POST"
    assert CliRunner().invoke(app, [*arguments, "--resend"]).exit_code == 2


def test_an_embedded_teacher_s_request_names_images_and_gives_the_same_text_again(tmp_path: Path) -> None:
    tiny_models.build(tmp_path / "model", hidden=32, layers=1)
    tiny_models.make_image(tmp_path / "0.png", 0, size=16)
    (tmp_path / "rows.jsonl").write_bytes(orjson.dumps({"image": "0.png", "question": "How many?"}) + b"\n")
    (tmp_path / "recipe.toml").write_text(
        '[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "t"\nmodel = "model"\nbackend = "embedded"\n'
        "samples = 3\nlogprobs = 2\n[teachers.sampling]\nmax_tokens = 12\n"
    )
    chosen = load(tmp_path / "recipe.toml")
    generate(chosen, tmp_path / "run")
    trace = list(read_jsonl(tmp_path / "run/generate/t/part-00000.jsonl"))[1]
    again = replay(chosen, tmp_path / "run", trace["id"], resend=True)
    assert again["equal"] and again["stored"] == trace["text"]
    assert again["request"]["seed"] == trace["seed"]
    assert again["request"]["messages"][0]["content"][0]["path"] == str(tmp_path / "0.png")
    tiny_models.build(tmp_path / "model", hidden=32, layers=1, seed=5)
    with pytest.raises(StaleError, match="the model's revision"):
        replay(chosen, tmp_path / "run", trace["id"])
