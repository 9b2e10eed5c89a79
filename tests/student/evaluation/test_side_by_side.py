"""Students that are asked in processes of their own give the replies of students asked one after the other."""

import shutil
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import orjson
import pytest
from processes.pool_in_process import replace_pools
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.artifacts.manifest import Manifest
from distill.errors import BusyError, DataError
from distill.jobs import JobPool
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from student.evaluate import evaluate
from student.evaluation import collect_replies, embedded_students, side_by_side
from student.train import train

STAGES = (
    worlds.stage("align", "questions", train='["projector"]', steps=3),
    worlds.stage("reason", steps=2),
    worlds.stage("answers", steps=2, more='start = "align"\ntarget = "answer"\n'),
)
EVAL = """
[eval]
max_new_tokens = 8
batch_size = 5
gallery = 4
[eval.arms]
untouched = "base"
distilled = "reason"
answers_only = "answers"
"""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Hashable]:
    """The names of the jobs that a pool was given."""
    return replace_pools(monkeypatch, "student.evaluation.side_by_side", "student.train")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    worlds.parts(folder)
    worlds.data(folder)
    train(worlds.recipe(folder, *STAGES, more=EVAL), folder / "run")
    return folder


@pytest.fixture(scope="module")
def one_by_one(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("evaluated") / "w"))
    evaluate(load(folder / "recipe.toml"), folder / "run")
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "w"))


def replies(folder: Path) -> list[dict[str, Any]]:
    """All replies but for their seconds, in one order."""
    lines = [
        {name: value for name, value in line.items() if name != "seconds"}
        for line in read_jsonl(folder / "run" / "eval" / collect_replies.REPLIES)
    ]
    return sorted(lines, key=lambda line: (line["student"], line["without_image"], line["sample_id"]))


def arms_of_metrics(folder: Path) -> dict[str, float]:
    arms = orjson.loads((folder / "run" / "eval" / "metrics.json").read_bytes())["arms"]
    return {name: arm["accuracy"] for name, arm in arms.items()}


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("something is asked")


def test_students_side_by_side_give_the_replies_of_students_one_by_one(
    place: Path, one_by_one: Path, begun: list[Hashable]
):
    manifest = evaluate(load(place / "recipe.toml"), place / "run", jobs=2)
    assert begun == ["untouched", "answers_only", "distilled"]
    assert replies(place) == replies(one_by_one) and arms_of_metrics(place) == arms_of_metrics(one_by_one)
    expected = Manifest.read(one_by_one / "run" / "eval")
    assert expected is not None and manifest.fingerprint == expected.fingerprint
    assert not (place / "run" / "eval" / "asked").exists()


@pytest.mark.slow
def test_a_student_is_asked_in_a_process_of_its_own(place: Path, one_by_one: Path):
    recipe = load(place / "recipe.toml")
    told: list[str] = []
    with JobPool(2, lambda progress: told.append(progress.stage)) as pool:
        pool.submit("distilled", side_by_side.ask_alone, recipe, place / "run", "distilled")
        for _, asked in pool.results():
            asked.result()
    assert "eval distilled" in told
    evaluate(recipe, place / "run")
    assert replies(place) == replies(one_by_one)


def test_what_was_asked_before_is_not_asked_again_and_counts_in_the_seconds(
    place: Path, one_by_one: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = load(place / "recipe.toml")
    for arm in ("untouched", "answers_only", "distilled"):
        side_by_side.ask_alone(recipe, place / "run", arm)
    slower = sum(line["seconds"] for line in read_all_asked(place))
    monkeypatch.setattr(collect_replies, "ask_embedded", refuse)
    manifest = evaluate(recipe, place / "run")
    assert replies(place) == replies(one_by_one) and manifest.seconds >= round(slower, 3)


def test_the_seconds_of_a_stopped_evaluation_count(place: Path, one_by_one: Path, monkeypatch: pytest.MonkeyPatch):
    asked = list(read_jsonl(one_by_one / "run" / "eval" / collect_replies.REPLIES))
    for name in ("eval/replies.jsonl", "eval/settings.json"):  # a killed command leaves these
        (place / "run" / "eval").mkdir(exist_ok=True)
        shutil.copy(one_by_one / "run" / name, place / "run" / name)
    lines = [line | {"seconds": 100.0} for line in asked]
    write_jsonl(place / "run" / "eval" / collect_replies.REPLIES, lines)
    monkeypatch.setattr(collect_replies, "ask_embedded", refuse)
    manifest = evaluate(load(place / "recipe.toml"), place / "run")
    assert 100 * len(asked) <= manifest.seconds < 100 * len(asked) + 100


def read_all_asked(folder: Path) -> list[dict[str, Any]]:
    return [line for path in (folder / "run" / "eval" / "asked").glob("*.jsonl") for line in read_jsonl(path)]


def test_a_process_that_was_killed_goes_on_where_it_was(place: Path, one_by_one: Path):
    recipe = load(place / "recipe.toml")
    side_by_side.ask_alone(recipe, place / "run", "distilled")
    (path,) = (place / "run" / "eval" / "asked").glob("*.jsonl")
    whole = read_all_asked(place)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    side_by_side.ask_alone(recipe, place / "run", "distilled")
    told = [(line["without_image"], line["sample_id"]) for line in read_all_asked(place)]
    assert len(told) == len(set(told)) == len(whole)
    evaluate(recipe, place / "run")
    assert replies(place) == replies(one_by_one)


def test_replies_with_other_settings_are_removed_and_asked_again(place: Path):
    recipe = load(place / "recipe.toml")
    side_by_side.ask_alone(recipe, place / "run", "distilled")
    shorter = load(place / "recipe.toml", {"eval.max_new_tokens": "4"})
    evaluate(shorter, place / "run")
    assert max(line["tokens"] for line in replies(place)) <= 4
    assert not (place / "run" / "eval" / "asked").exists()


def test_an_evaluation_is_refused_while_a_process_still_asks(place: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = load(place / "recipe.toml")
    ask_embedded = embedded_students.ask_embedded

    def evaluate_meanwhile(*args: Any) -> None:
        ask_embedded(*args)
        with pytest.raises(BusyError):
            evaluate(recipe, place / "run")

    monkeypatch.setattr(side_by_side, "ask_embedded", evaluate_meanwhile)
    side_by_side.ask_alone(recipe, place / "run", "distilled")


def test_students_are_ready_to_be_asked_once_their_stages_are_finished(place: Path):
    recipe, run = load(place / "recipe.toml"), place / "run"
    assert [*side_by_side.asks_after(recipe, run, [])] == ["eval untouched"]
    assert [*side_by_side.asks_after(recipe, run, ["answers", "align"])] == ["eval untouched", "eval answers_only"]
    served = load(place / "recipe.toml", {"eval.engine": "vllm"})
    assert side_by_side.asks_after(served, run, ["answers"]) == {}
    evaluate(recipe, run)
    assert side_by_side.asks_after(recipe, run, ["answers"]) == {}


def untrained(place: Path) -> Recipe:
    shutil.rmtree(place / "run" / "train")
    return load(place / "recipe.toml")


def test_free_processes_of_the_training_ask_students_whose_stages_are_finished(place: Path, begun: list[Hashable]):
    recipe, run = untrained(place), place / "run"
    train(recipe, run, jobs=2, beside=lambda finished: side_by_side.asks_after(recipe, run, finished))
    # `untouched` waits until each stage has a process.
    assert begun[0] == "align" and {*begun[1:3]} == {"reason", "answers"}
    assert begun[3] == ("beside", "eval untouched") and len(begun) == len(set(begun)) == 6
    assert {line["student"] for line in read_all_asked(place)} == {
        line["student"] for line in evaluated_replies(place)
    }


def evaluated_replies(place: Path) -> list[dict[str, Any]]:
    evaluate(load(place / "recipe.toml"), place / "run")
    return replies(place)


def test_an_error_beside_the_training_comes_after_the_last_stage(place: Path, begun: list[Hashable]):
    def fail(**_: object) -> None:
        raise DataError("no question can be read")

    recipe, run = untrained(place), place / "run"
    with pytest.raises(DataError, match="no question can be read"):
        train(recipe, run, jobs=2, beside=lambda finished: {"eval untouched": fail})
    assert all(Manifest.read(run / "train" / stage) is not None for stage in ("align", "reason", "answers"))
