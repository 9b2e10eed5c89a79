"""`distill run` with rounds: a whole run of the smallest student, a stub teacher, two rounds, and kills."""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from faults.killed import die_in_turn
from processes import forked
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.data import reader
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.rounds.results import read_results
from distill.view.trace_facts import trace_facts
from distill.view.trace_table import TraceTable

STUB = Path(__file__).parents[1] / "support" / "servers" / "stub_server.py"
MORE = f"""
[[teachers]]
name = "stub"
model = "language"
backend = "vllm"
samples = 2
server.command = ["{sys.executable}", "{STUB}", "--words=8"]
[filter]
signals = ["format", "length"]
rules = [{{ name = "incomplete", drop = "outcome <> 'complete'" }}]
[eval]
max_new_tokens = 8
allow_overlap = true
without_image = false
[eval.arms]
student = "reason"
[rounds]
count = 2
attempts = 2
hold_out = 0.3
returned = 6
samples = 1
prompt = "{{question}} A student said: {{reply}}"
steps_share = 0.5
min_gain_points = -100
max_length_growth = 1000
max_common_answer_growth = 1
"""
SAME = (
    *("rounds/1/questions/questions.parquet", "rounds/2/questions/questions.parquet"),
    *("rounds/1/filter/decisions.parquet", "rounds/2/filter/dataset/train/part-00000.parquet"),
    *("rounds/1/train/reason/model/model.safetensors", "rounds/2/train/reason/model/model.safetensors"),
)
RUN = """
import json, sys
from pathlib import Path
from worlds import run_fixtures
from filters.report import page
page.write = run_fixtures.short_report
from distill.commands import whole_run
from distill.recipe import load
whole_run.all_stages(load(sys.argv[1], json.loads(sys.argv[3])), Path(sys.argv[2]))
"""
KILLS = """
from worlds import run_fixtures
from distill.artifacts import journal
from distill.commands import rounds, whole_run
from distill.rounds import returned_questions
from filters.dataset import writer
from filters.report import page
from student.training import stage as stages
page.write = run_fixtures.short_report

def work(recipe, run, where):
    def dying(module, name, when=lambda *arguments, **options: True):
        plain = getattr(module, name)
        def call(*arguments, **options):
            if when(*arguments, **options):
                die()
            return plain(*arguments, **options)
        setattr(module, name, call)

    appended = {}
    def third(folder):
        def when(journal, *arguments, **options):
            path = str(journal.path)
            appended[path] = appended.get(path, 0) + 1
            return folder in path and appended[path] == 3
        return when

    trained = stages.run
    def training(recipe, run, stage, *arguments, on_progress, **options):
        def watched(progress):
            on_progress(progress)
            if "rounds/1" in str(run) and progress.done == 2:
                die()
        return trained(recipe, run, stage, *arguments, on_progress=watched, **options)

    if where in ("answers", "answers-2", "generate", "validation"):
        dying(journal.Journal, "append", third(f"rounds/1/{where}/"))
    elif where == "questions":
        dying(returned_questions, "describe")
    elif where == "dataset":
        dying(writer, "replace", lambda new, folder: "rounds/1" in str(folder))
    elif where == "train":
        stages.run = training
    else:
        dying(rounds, "write_results", lambda run, results: len(results["passes"]) == int(where))
    whole_run.require_fit = lambda *arguments, **options: None  # the run of `finished` was checked
    whole_run.all_stages(load(recipe), Path(run))
"""


def world(folder: Path, more: str = MORE) -> Recipe:
    worlds.parts(folder)
    worlds.data(folder, 36)
    shutil.rmtree(folder / "run")  # a filter stage made by hand
    return worlds.recipe(folder, worlds.stage("reason", steps=4), more=more)


def run(folder: Path, overrides: dict[str, str] | None = None) -> dict[str, Any]:
    ended = forked.run(RUN, folder / "recipe.toml", folder / "run", json.dumps(overrides or {}))
    assert ended.codes == [0], ended.stderr
    results = read_results(folder / "run")
    assert results is not None
    return results


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rounds")
    world(folder)
    run(folder)
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / "run" / name).read_bytes()).hexdigest() for name in SAME}


def test_each_round_is_a_run_of_its_own_and_its_questions_are_those_that_the_student_failed(finished: Path) -> None:
    recipe, place = load(finished / "recipe.toml"), finished / "run"
    for number in (1, 2):
        folder = place / "rounds" / str(number)
        for stage in ("generate", "filter", "train", "eval", "questions", "answers/eval", "validation/eval"):
            assert Manifest.read(folder / stage) is not None, stage
        replies: dict[str, list[dict[str, Any]]] = {}
        for attempt in ("answers", "answers-2"):
            for line in read_jsonl(folder / attempt / "eval" / "predictions.jsonl"):
                replies.setdefault(line["sample_id"], []).append(line)
        asked = list(reader.samples(load(folder / "recipe.toml")))
        assert len(asked) == 6
        originals = {sample.id: sample for sample in reader.samples(recipe)}
        for sample in asked:
            assert sample.meta["reply"] == next(
                line["text"] for line in replies[sample.id] if line["verdict"] == "wrong"
            )
            assert (sample.question, sample.answers) == (originals[sample.id].question, originals[sample.id].answers)
        failed = sorted(
            identity
            for identity, lines in replies.items()
            if (verdicts := {line["verdict"] for line in lines}) and "wrong" in verdicts and "correct" not in verdicts
        )
        assert sorted(sample.id for sample in asked) == failed[:6]


def test_the_teacher_of_a_round_sees_the_wrong_reply_and_no_trace_comes_twice(finished: Path) -> None:
    place = finished / "run"
    first, second, third = (
        [line for part in (place / where / "generate" / "stub").glob("part-*.jsonl") for line in read_jsonl(part)]
        for where in (".", "rounds/1", "rounds/2")
    )
    assert len(second) == len(third) == 6  # one sample a question, as rounds.samples says
    assert len({trace["id"] for trace in (*first, *second, *third)}) == len(first) + 12


def test_a_round_learns_new_and_earlier_traces_with_their_rationales(finished: Path) -> None:
    folder = finished / "run" / "rounds" / "2"
    recipe = load(folder / "recipe.toml")
    (stage,) = recipe.stages
    # Half is new; the rest goes by the rows of round 0 (about 50) and of round 1 (6).
    shares = dict(stage.replay)
    assert list(shares) == ["rounds_pass_0", "rounds_pass_1"]
    assert sum(shares.values()) == pytest.approx(0.5) and shares["rounds_pass_0"] > 3 * shares["rounds_pass_1"]
    assert stage.max_steps == 2
    from collections import Counter

    from student.data import rows

    dropped: Counter[str] = Counter()
    read = list(rows.read(recipe, folder, stage, dropped))
    sources = Counter(row.source for row in read)
    selected = {
        number: pq.read_table(path).num_rows
        for number, path in {
            0: finished / "run" / "filter/dataset/train/part-00000.parquet",
            1: finished / "run" / "rounds/1/filter/dataset/train/part-00000.parquet",
            2: folder / "filter/dataset/train/part-00000.parquet",
        }.items()
    }
    assert sources == {"traces": selected[2], "rounds_pass_0": selected[0], "rounds_pass_1": selected[1]}
    assert not dropped
    assert all(row.rationale[1] > row.rationale[0] and "<think>" in row.response for row in read)


def test_explain_finds_a_trace_of_a_round_and_shows_the_reply_that_sent_its_question_back(finished: Path) -> None:
    decided = pq.read_table(finished / "run/rounds/2/filter/decisions.parquet").to_pylist()[0]
    told = CliRunner().invoke(app, ["explain", str(finished / "run"), decided["id"]]).output
    reply = next(
        sample.meta["reply"]
        for sample in reader.samples(load(finished / "run/rounds/2/recipe.toml"))
        if sample.id == decided["sample_id"]
    )
    assert "round    2; the student of the round before gave this wrong reply:" in told
    assert all(line.strip() in told for line in reply.splitlines())
    title, shown = trace_facts(TraceTable(finished / "run/rounds/2"), decided["id"])["lines"][0]
    assert title.startswith("Round 2; ") and shown == reply


def test_no_image_of_a_validation_question_is_asked_or_trained_on(finished: Path) -> None:
    recipe = load(finished / "recipe.toml")
    questions, held_out = (
        {sample.images[0].sha256 for sample in reader.samples(recipe, name)}
        for name in ("questions", "rounds_held_out")
    )
    assert questions and held_out and not questions & held_out and len(questions | held_out) == 36
    asked = {line["sample_id"] for line in read_jsonl(finished / "run/rounds/1/answers/eval/predictions.jsonl")}
    assert asked == {sample.id for sample in reader.samples(recipe)}


def test_a_second_command_finds_everything_done(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (finished / "run" / "rounds").rglob("manifest.json")}
    results = run(finished)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert results["ended"] == "rounds.count = 2 is reached" and len(results["passes"]) == 3


def results_of_stages(folder: Path) -> dict[Path, bytes]:
    """What filter, train and eval of every round left."""
    stages = ("filter", "train", "eval", "reason")
    found = (path for path in (folder / "run").rglob("manifest.json") if path.parent.name in stages)
    return {path.relative_to(folder): path.read_bytes() for path in found}


def test_a_run_that_moved_with_its_world_is_finished_and_a_replaced_image_makes_it_stale(
    finished: Path, tmp_path: Path
) -> None:
    moved, away = tmp_path / "moved", tmp_path / "away"
    shutil.copytree(finished, moved)
    finished.rename(away)
    try:
        before = results_of_stages(moved)
        assert len(before) == 19
        run(moved)
        assert results_of_stages(moved) == before and not [*moved.rglob("*.previous")]
        sample = next(iter(reader.samples(load(moved / "recipe.toml"))))
        worlds.make_image(Path(sample.images[0].path), 1000)
        ended = forked.run(RUN, moved / "recipe.toml", moved / "run", "{}")
        assert "train/reason was made from other settings:\n  data.traces: " in ended.stderr
    finally:
        away.rename(finished)


def test_the_page_of_all_pages_links_each_round(finished: Path) -> None:
    text = (finished / "run" / "index.html").read_text(encoding="utf-8")
    rounds = [path.name for path in (finished / "run" / "rounds").glob("[1-9]*")]
    assert rounds and all(f'href="rounds/{name}/index.html"' in text for name in rounds)


def test_status_shows_the_rounds_with_their_gain(finished: Path) -> None:
    text = CliRunner().invoke(app, ["status", str(finished / "run")]).output
    assert "round 0" in text and "round 2" in text and "gain, points" in text
    assert "best student: that of round 0" in text and "not better" in text  # no reply of so small a student is right
    fields = orjson.loads(CliRunner().invoke(app, ["status", str(finished / "run"), "--json"]).output)
    assert fields["rounds"]["best"] == 0 and fields["rounds"]["passes"][1]["gain"]["n"] > 0
    alone = CliRunner().invoke(app, ["status", str(finished / "run" / "rounds" / "1")])
    assert alone.exit_code == 0 and "selected" in alone.output


@pytest.mark.slow
def test_killed_at_any_point_the_same_command_ends_with_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    world(tmp_path)
    at = ("1", "answers", "answers-2", "questions", "generate", "dataset", "train", "validation", "2", "3")
    die_in_turn(KILLS, *((tmp_path / "recipe.toml", tmp_path / "run", where) for where in at))
    assert len(run(tmp_path)["passes"]) == 3
    assert digests(tmp_path) == digests(finished)


def test_a_round_that_gains_too_little_is_the_last_and_the_best_student_is_named(finished: Path) -> None:
    results = run(finished, {"rounds.min_gain_points": "100"})
    assert results["best"] == 0 and results["student"] == str(finished / "run" / "train" / "reason" / "model")
    assert len(results["passes"]) == 2 and results["ended"].startswith("round 1 is the last one: the round gains")


def test_more_rounds_are_added_to_those_that_are_there(finished: Path) -> None:
    before = digests(finished)
    assert len(run(finished, {"rounds.count": "3"})["passes"]) == 4
    assert digests(finished) == before


def test_a_refused_change_keeps_the_results_of_the_rounds_and_says_where_its_settings_come_from(
    finished: Path,
) -> None:
    results = (finished / "run/rounds/rounds.json").read_bytes()
    overrides = orjson.dumps({"rounds.ageing": "0.5"}).decode()
    ended = forked.run(RUN, finished / "recipe.toml", finished / "run", overrides)
    assert "stage.replay.rounds_pass_0: " in ended.stderr and "`distill run --redo-stale`" in ended.stderr
    assert "the settings of round 2 follow from [rounds] and from the rounds before it" in ended.stderr
    assert (finished / "run/rounds/rounds.json").read_bytes() == results


def test_a_rise_is_the_best_pass_and_a_fall_that_the_recipe_allows_is_not(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    for number, said in enumerate(("{number}", "{gold}", "{number}")):
        plant(tmp_path / "copy", number, said, 9)
    results = run(tmp_path / "copy")
    assert [each["verdict"] for each in results["passes"]] == [None, "better", "accuracy_lost"]
    assert results["best"] == 1 and results["student"].endswith("rounds/1/train/reason/model")


def plant(folder: Path, number: int, said: str, tokens: int) -> None:
    """Write the journal of a round's student: `said`, with the gold answer or the number of the question in it."""
    place = folder / "run" / "rounds" / str(number) / "validation" / "eval"
    golds = {line["sample_id"]: line["gold"][0] for line in read_jsonl(place / "predictions.jsonl")}
    lines = []
    for at, line in enumerate(read_jsonl(place / "replies.jsonl")):
        answer = said.format(gold=golds[line["sample_id"]], number=100 + at)
        text = f"<think>\none\n</think>\n\n{answer}"
        lines.append({**line, "text": text, "tokens": tokens, "rationale_tokens": 1, "truncated": False})
    write_jsonl(place / "replies.jsonl", lines)
    (place / "manifest.json").unlink()  # the replies are judged again


@pytest.mark.parametrize(
    ("first", "now", "kind", "words"),
    [
        (("{number}", 9), ("77", 9), "common_answer", "100 % of the replies have the answer '77'"),
        (("{number}", 9), ("{gold}", 300), "longer_replies", "300 tokens, and 9 in round 0"),
        (("{gold}", 9), ("{number}", 9), "accuracy_lost", "answers worse than before: -100.0 points"),
    ],
)
def test_a_student_that_a_round_spoiled_ends_the_rounds_and_the_one_before_it_stays_the_best(
    finished: Path, first: tuple[str, int], now: tuple[str, int], kind: str, words: str
) -> None:
    plant(finished, 0, *first)
    plant(finished, 1, *now)
    results = run(finished, {"rounds.max_length_growth": "0.5", "rounds.max_common_answer_growth": "0.2"})
    assert results["passes"][1]["verdict"] == kind and len(results["passes"]) == 2
    assert (
        results["best"] == 0
        and results["ended"].startswith("round 1 is the last one: ")
        and words in results["ended"]
    )
    text = CliRunner().invoke(app, ["status", str(finished / "run")]).output
    assert "best student: that of round 0" in text and kind.replace("_", " ") in text
