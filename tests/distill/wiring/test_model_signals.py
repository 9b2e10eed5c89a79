"""The roof builds what the recipe asks for, loads nothing before it is needed, and says what it cannot do."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from servers import client_helpers as clients
from servers import stub_server
from students import tiny_models
from worlds import run_fixtures as fixtures

from distill.commands.stages import filter_stage
from distill.errors import DataError, RecipeError
from distill.recipe.recipe import Recipe
from distill.wiring.model_signals import measurers
from filters.apply import apply
from filters.signals import schema
from filters.tables.run_signal_tables import Item

STUDENT = '[student]\nmodel = "model"\n[filter]\nsignals = ["student"]\n'


def items(folder: Path) -> list[Item]:
    samples, traces = fixtures.small_world(folder / "pictures", questions=3)
    by_id = {sample.id: sample for sample in samples}
    return sorted(
        ((trace.id, by_id[trace.sample_id], trace) for trace in traces), key=lambda item: (item[1].id, item[0])
    )


def rows(paths: list[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def recipe(folder: Path, text: str) -> Recipe:
    return fixtures.recipe(folder, text)


def test_a_recipe_that_asks_for_neither_gets_neither(tmp_path: Path) -> None:
    assert measurers(recipe(tmp_path, ""), tmp_path / "run") == {}


def test_traces_are_measured_with_the_student_of_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_models.build(tmp_path / "model", hidden=64, layers=2)
    found = items(tmp_path)
    read = recipe(tmp_path, STUDENT)
    paths = measurers(read, tmp_path / "run")["student"](found)
    table = rows(paths)
    assert paths == [tmp_path / "run" / "filter" / "student" / "part-00000.parquet"]
    assert [row["id"] for row in table] == sorted(name for name, _, _ in found)
    states = {row["student_state"] for row in table}
    assert states == {"ok"}
    for row in table:
        assert row["student_nll"] > 0 and row["student_blind_gap"] is not None and row["student_tokens"] > 10
    # Nothing is loaded where every value is there.
    monkeypatch.setattr("student.models.siq_vl.load", lambda *_args, **_options: pytest.fail("loaded"))
    assert rows(measurers(recipe(tmp_path, STUDENT), tmp_path / "run")["student"](found)) == table


def test_the_student_sees_the_text_that_the_dataset_will_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_models.build(tmp_path / "model", hidden=64, layers=2)
    shown: list[tuple[str, str]] = []

    class Fake:
        def __call__(self, said: list[Any]) -> list[dict[str, Any]]:
            shown.extend((item.row.response, item.row.response[item.answer_at :]) for item in said)
            return [{"reason": "fake"} for _ in said]

    monkeypatch.setattr("student.inference.likelihood.load", lambda *_args, **_options: Fake())
    found = items(tmp_path)[:1]
    trace = found[0][2]
    for style in ("think", "plain"):
        measurers(recipe(tmp_path, f'{STUDENT}rationale = "{style}"\n'), tmp_path / style)["student"](found)
    reasoning, answer = trace.reasoning.strip(), trace.answer
    assert shown == [
        (f"<think>\n{reasoning}\n</think>\n\n{answer}", answer),
        (f"{reasoning}\n\n{answer}", answer),
    ]


def test_the_identity_is_that_of_the_checkpoints_content(tmp_path: Path) -> None:
    tiny_models.build(tmp_path / "model", hidden=64, layers=2)
    tiny_models.build(tmp_path / "other", hidden=64, layers=2, seed=1)
    tiny_models.build(tmp_path / "same", hidden=64, layers=2)

    def identity(checkpoint: str) -> dict[str, Any]:
        text = f'[filter]\nsignals = ["student"]\n[filter.student]\ncheckpoint = "{checkpoint}"\n'
        return dict(measurers(recipe(tmp_path, text), tmp_path / "run")["student"].identity)

    assert identity("model") == identity("same") != identity("other")


def test_a_student_of_parts_needs_a_checkpoint_and_the_error_names_one(tmp_path: Path) -> None:
    parts = '[student]\nvision = "v"\nlanguage = "l"\npixel_shuffle = 2\n[filter]\nsignals = ["student"]\n'
    with pytest.raises(RecipeError, match=r"filter\.student\.checkpoint = \"runs/.*/train/STAGE/model\""):
        measurers(recipe(tmp_path, parts), tmp_path / "run")
    with pytest.raises(RecipeError, match=r"no \[student\]"):
        measurers(recipe(tmp_path, '[filter]\nsignals = ["student"]\n'), tmp_path / "run")


def test_the_judge_is_asked_about_undecided_answers_only(tmp_path: Path) -> None:
    asked = fixtures.sample("Which animal?", "a grey wolf", answer_type="text")
    answers = ("a grey wolf", "a cow", "a wolf, grey, I believe")
    traces = [fixtures.trace(asked, answer, k=k) for k, answer in enumerate(answers)]
    with stub_server.serve(words=3) as url:
        text = (
            f'[[teachers]]\nname = "oracle"\nmodel = "stub"\nbase_url = "{url}"\n'
            '[filter]\nsignals = ["judge"]\n[filter.judge]\nteacher = "oracle"\nmax_tokens = 20\n'
        )
        table = rows(
            measurers(recipe(tmp_path, text), tmp_path / "run")["judge"]([(one.id, asked, one) for one in traces])
        )
        bodies = clients.seen(url)["bodies"]
    assert [(row["id"], row["judge_verdict"]) for row in table] == [(traces[2].id, "undecided")]
    (body,) = bodies
    text = body["messages"][0]["content"][0]["text"]
    assert "Which animal?" in text and "a grey wolf" in text and answers[2] in text and body["max_tokens"] == 20


def test_rules_see_what_the_student_and_the_judge_say(tmp_path: Path) -> None:
    tiny_models.build(tmp_path / "model", hidden=64, layers=2)
    samples, traces = fixtures.small_world(tmp_path / "pictures", questions=4)
    asked = fixtures.sample("Which animal?", "a grey wolf", answer_type="text")
    traces.append(fixtures.trace(asked, "a wolf, grey, I believe"))
    fixtures.generate_folder(tmp_path / "run", [*samples, asked], traces)
    text = """
[student]
model = "model"
[[teachers]]
name = "oracle"
model = "stub"
base_url = "{url}"
[filter]
signals = ["answer", "format", "student", "judge"]
rules = [{{ name = "far", drop = "student_nll > 0" }}, {{ name = "asked", drop = "judge_verdict = 'correct'" }}]
[filter.judge]
teacher = "oracle"
"""
    with stub_server.serve(words=3) as url:
        read = recipe(tmp_path, text.format(url=url))
        with pytest.raises(DataError, match="far: 17"):
            filter_stage(read, tmp_path / "run")
        with pytest.raises(RecipeError, match="asks for student, judge, which a model measures"):
            apply(read, tmp_path / "run")
        read = recipe(tmp_path, text.format(url=url).replace("student_nll > 0", "student_nll > 99"))
        filter_stage(read, tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "filter" / "dataset" / "train" / "part-00000.parquet").to_pylist()
    signals = {row["trace_id"]: orjson.loads(row["signals"]) for row in table}
    assert all(found["student_nll"] > 0 for found in signals.values())
    assert signals[traces[-1].id]["judge_state"] == "undecidable"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[filter]\nsignals = ["judge"]\n', r"filter\.judge\.teacher"),
        ('[filter.judge]\nteacher = "brif"\n', "did you mean 'brief'"),
        ('[filter.judge]\nprompt = "Is {prediction} right?"\n', "prompt must contain {gold} and {prediction}"),
    ],
)
def test_a_judge_that_cannot_be_asked_is_said_on_loading(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(tmp_path, text)


def test_a_resolved_recipe_names_the_checkpoint_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    read = recipe(tmp_path, '[filter.student]\ncheckpoint = "model"\n')
    assert f'checkpoint = "{tmp_path / "model"}"' in read.to_toml()


def test_every_column_begins_with_the_name_of_its_family() -> None:
    assert all(name.startswith("student_") for name in schema.STUDENT.names)
    assert all(name.startswith("judge_") for name in schema.JUDGE.names)
