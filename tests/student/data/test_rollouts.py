"""Stages that learn from their student's own replies: what is asked, scored, learned, kept and refused."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.ablation.arms import stage_under_study
from distill.artifacts.files import write_json
from distill.artifacts.journal import Journal, read_jsonl
from distill.cli import app
from distill.commands.explain_scores import student_replies
from distill.commands.store_stages import train_stage_in_store
from distill.errors import DataError, RecipeError, StaleError
from distill.python_api.verbs import train
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.trace_records import scores
from distill.types import Progress
from student.data.encoded_rows import Example
from student.data.rows import TrainingRow
from student.data.scored_rollouts import NO_GOLD, UNSCORED, scored_alone
from student.train import train as train_alone

QUESTIONS = 12
MORE = "[eval]\nallow_overlap = true\n"
TEACHER = """
[[teachers]]
name = "{name}"
model = "teacher"
backend = "embedded"
"""


def recipe(folder: Path, more: str = "", *, steps: int = 6, first: str = "", teachers: str = "") -> Recipe:
    """A student of two stages, the second one of its own replies."""
    own = f'[stages.rollouts]\nteacher = "own"\nmax_new_tokens = 24\nanswered = {QUESTIONS}\n{more}'
    return worlds.recipe(
        folder,
        worlds.stage("reason", steps=4, more=first),
        worlds.stage("scored", "traces:rollouts", steps=steps, more=own),
        more=TEACHER.format(name="own") + teachers + MORE,
    )


@pytest.fixture
def taught(place: Path, tmp_path: Path) -> Path:
    """A world whose teacher is a student that learned the traces longer."""
    longer = Path(shutil.copytree(place, tmp_path / "longer"))
    train(worlds.recipe(longer, worlds.stage("reason", steps=40), more=MORE), longer / "run")
    shutil.copytree(longer / "run/train/reason/model", place / "teacher")
    return place


def scored_lines(folder: Path) -> list[dict[str, Any]]:
    return [line for journal in sorted((folder / "run/score").glob("*.jsonl")) for line in read_jsonl(journal)]


def replies(folder: Path) -> list[Path]:
    return sorted((folder / "run/rollouts/scored/replies").iterdir())


def test_a_stage_learns_its_teachers_distributions_over_the_replies_of_the_student_before_it(taught: Path) -> None:
    made = train(recipe(taught, steps=40), taught / "run")
    assert made.counts["stages"] == 2
    logs = list(read_jsonl(taught / "run/train/scored/metrics.jsonl"))
    divergences = [line["extra"]["divergence"] for line in logs]
    assert np.isfinite(divergences).all() and min(divergences) > 0
    assert np.mean(divergences[-5:]) < 0.7 * np.mean(divergences[:5])
    table = pq.read_table(taught / "run/rollouts/scored/train/part-00000.parquet").to_pylist()
    (folder,) = replies(taught)
    said = {line["sample_id"]: line["text"] for line in read_jsonl(folder / "eval/predictions.jsonl")}
    assert {row["sample_id"]: row["messages"][-1]["content"] for row in table} == said and len(said) == QUESTIONS
    scored = scored_lines(taught)
    assert {line["view"] for line in scored} == {scores.WITH_IMAGE}
    # A reply that holds the mark of an image would be read as one; the student learns no such row either.
    plain = {row["trace_id"] for row in table if "<image>" not in row["messages"][-1]["content"]}
    assert {line["trace"] for line in scored} == plain
    assert scores.decode(scored[0]).ids.shape[1] == 21
    covered = json.loads((taught / "run/train/scored/distill.json").read_text())["teachers"]["own"]
    assert covered["aligned"] > 0.5 * covered["tokens"]
    # What `distill explain` shows of a question: its reply, and the teacher's mean surprisal.
    row = next(row for row in table if row["trace_id"] in plain)
    (line,) = dict(student_replies(taught / "run", row["sample_id"]))["scored"]
    own = next(scores.decode(line) for line in scored if line["trace"] == row["trace_id"]).values[:, 0]
    assert line.startswith(f"own gives its {len(own)} tokens {-own.mean():.2f} nats each: ")
    assert line.endswith(" ".join(row["messages"][-1]["content"].split()))
    assert student_replies(taught / "run", "another") == ()


def stop_at(name: str, done: int) -> Any:
    def report(progress: Progress) -> None:
        if progress.stage.startswith(name) and progress.done == done:
            raise KeyboardInterrupt

    return report


def test_a_run_that_ends_while_replies_are_made_or_scored_goes_on(taught: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(taught, tmp_path / "whole"))
    train(recipe(whole), whole / "run")
    for name, done in (("eval student", 12), ("score own", 4), ("train scored", 3)):
        with pytest.raises(KeyboardInterrupt):
            train(recipe(taught), taught / "run", on_progress=stop_at(name, done))
    (journal,) = (taught / "run/score").glob("*.jsonl")
    there = len(scored_lines(taught))
    journal.write_bytes(journal.read_bytes()[:-20])  # a torn last line, as after a kill
    train(recipe(taught), taught / "run")
    assert there == len(scored_lines(taught)) == len(scored_lines(whole))
    assert len({line["key"] for line in scored_lines(taught)}) == there
    one, other = (pq.read_table(each / "run/rollouts/scored/train/part-00000.parquet") for each in (taught, whole))
    assert one.equals(other) and len(replies(taught)) == 1
    first, second = ((each / "run/train/scored/model/model.safetensors").read_bytes() for each in (taught, whole))
    assert first == second


def test_a_finished_stage_sends_no_request_and_another_teacher_or_student_makes_it_stale(taught: Path) -> None:
    train(recipe(taught), taught / "run")
    before = (taught / "run/rollouts/scored/train/part-00000.parquet").stat().st_mtime_ns
    train(recipe(taught), taught / "run")
    assert (taught / "run/rollouts/scored/train/part-00000.parquet").stat().st_mtime_ns == before
    shutil.rmtree(taught / "teacher")
    shutil.copytree(taught / "run/train/reason/model", taught / "teacher")
    with pytest.raises(StaleError, match=r"scores\.own"):
        train(recipe(taught), taught / "run")
    train(recipe(taught), taught / "run", stage="scored", fresh=True)
    assert len(replies(taught)) == 1 and len({*(taught / "run/score").glob("own-*.jsonl")}) == 2
    train(recipe(taught, first="weight_decay = 0.1\n"), taught / "run", fresh=True)
    assert len(replies(taught)) == 2  # the replies of another student are other replies


def test_attempts_draw_other_replies_and_equal_ones_share_a_score(taught: Path) -> None:
    train(recipe(taught, "attempts = 2\n"), taught / "run", stage="reason")
    made = train(recipe(taught, "attempts = 2\n"), taught / "run", stage="scored")
    table = pq.read_table(taught / "run/rollouts/scored/train/part-00000.parquet").to_pylist()
    assert len(replies(taught)) == 2 and len(table) == 2 * QUESTIONS
    identities = [row["trace_id"] for row in table]
    assert len({*identities}) > QUESTIONS
    scored = [line["trace"] for line in scored_lines(taught)]
    assert len(scored) == len({*scored}) and {*scored} <= {*identities}
    dropped = sum(count for reason, count in made.counts.items() if reason.startswith("dropped_"))
    assert made.counts["rows"] + dropped == len(table)


def example(identity: str, ids: list[int], source: str = "traces:rollouts") -> Example:
    row = TrainingRow(id=identity, images=(), question="q", response="r", source=source)
    return Example(row=row, ids=np.array([7, *ids], np.int32), begin=1, kinds=np.zeros(len(ids), np.uint8))


def test_tokens_and_replies_without_a_score_teach_nothing(tmp_path: Path) -> None:
    stage = recipe(tmp_path).stages[1]
    with Journal(tmp_path / "run" / scores.FOLDER / "own-0.jsonl") as journal:
        for trace, view in (("a", scores.WITH_IMAGE), ("b", scores.BLIND)):
            ids = np.array([[1, 1], [2, 5], [3, 3], [4, 9], [5, 5]], np.int32)
            made = scores.ScoredText("abcde", ids, np.zeros(ids.shape, np.float32), np.arange(1, 6, dtype=np.int32))
            journal.append(scores.record_of(trace, trace, view, made))
    write_json(scores.settings_path(tmp_path / "run", "scored"), {"journals": {"own": "own-0.jsonl"}})
    dropped: Counter[str] = Counter()
    given = [
        example("a", [1, 2, 3, 4, 5, 99]),  # the end of the turn has no score
        example("a", [6, 6, 6, 6]),
        example("b", [1, 2, 3, 4, 5]),
        example("c", [1, 2, 3, 4, 5]),
        example("d", [8, 8], source="questions"),
    ]
    kept = list(scored_alone(tmp_path / "run", stage, dropped, given))
    assert [each.row.id for each in kept] == ["a", "d"] and dropped == {UNSCORED: 3}
    assert kept[0].weights is not None and kept[0].weights.tolist() == [1, 1, 1, 1, 1, 0]
    assert kept[1].weights is None


@pytest.mark.parametrize(
    ("more", "first", "teachers", "message"),
    [
        (
            "",
            "[stages.teachers]\nother = 1\n",
            TEACHER.format(name="other"),
            "has not learned from traces of 'own'",
        ),
        ("", 'target = "answer"\n', "", r"stages\.scored\.rollouts\.teacher: .*train a stage on traces first"),
        ("attempts = 2\ntemperature = 0.0\n", "", "", "would give one reply many times"),
        ("[stages.visual]\n", "", "", "visual is about traces of teachers"),
        ("[stages.distill]\n", "", "", "distill is about traces of teachers"),
        ('[stages.validation]\nhold_out = 2\nkeep = "best"\n', "", "", "has the smallest loss on its own replies"),
        ("[stages.validation]\nhold_out = 2\npatience = 3\n", "", "", "set validation.metric to accuracy"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_when_the_recipe_is_read(
    tmp_path: Path, more: str, first: str, teachers: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(tmp_path, more, first=first, teachers=teachers)


def test_data_and_section_belong_together_and_the_teacher_must_be_able_to_score(tmp_path: Path) -> None:
    reason = worlds.stage("reason")
    with pytest.raises(RecipeError, match="set both or none"):
        worlds.recipe(tmp_path, reason, worlds.stage("scored", "traces:rollouts"), more=TEACHER.format(name="own"))
    own = worlds.stage("scored", "traces:rollouts", more='[stages.rollouts]\nteacher = "own"\n')
    hosted = '[[teachers]]\nname = "own"\nmodel = "m"\nbackend = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n'
    with pytest.raises(RecipeError, match="cannot score texts"):
        worlds.recipe(tmp_path, reason, own, more=hosted)
    with pytest.raises(RecipeError, match=r"stages\.scored\.rollouts\.teacher"):
        worlds.recipe(tmp_path, reason, own.replace('"own"', '"gone"'), more=TEACHER.format(name="own"))


def test_the_student_before_any_stage_has_learned_from_no_teacher(tmp_path: Path) -> None:
    own = 'start = "base"\n[stages.rollouts]\nteacher = "own"\n'
    with pytest.raises(RecipeError, match="has not learned from traces of 'own'"):
        worlds.recipe(
            tmp_path,
            worlds.stage("reason"),
            worlds.stage("scored", "traces:rollouts", more=own),
            more=TEACHER.format(name="own"),
        )


def test_a_run_in_a_store_says_that_it_is_to_be_pulled_first(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"stages\.scored\.rollouts: .*distill pull s3://bucket/run DIR"):
        train_stage_in_store(recipe(tmp_path), "s3://bucket/run", (), stage=None, jobs=1, fresh=False)


def test_replies_that_are_not_there_are_named(taught: Path) -> None:
    train(recipe(taught), taught / "run", stage="reason")
    with pytest.raises(DataError, match=r"rollouts/scored/train: holds no"):
        train_alone(recipe(taught), taught / "run", stage="scored")


def test_an_ablation_says_that_it_makes_no_rollouts(tmp_path: Path) -> None:
    assert stage_under_study(recipe(tmp_path)) == "reason"
    with pytest.raises(RecipeError, match="arms make no rollouts"):
        stage_under_study(load(tmp_path / "recipe.toml", {"ablate.stage": '"scored"'}))


def test_check_plan_and_status_know_such_a_stage(taught: Path) -> None:
    (taught / "run" / "recipe.toml").write_text(recipe(taught).to_toml())
    both = [str(taught / "recipe.toml"), "--run", str(taught / "run")]
    for before in (True, False):
        for command in (["check", *both], ["plan", *both], ["status", str(taught / "run")]):
            result = CliRunner().invoke(app, command)
            assert result.exception is None or isinstance(result.exception, SystemExit), command
            assert result.exit_code in (0, 1) and "Traceback" not in result.output, (command, result.output)
        if before:
            result = CliRunner().invoke(app, ["train", *both])
            assert result.exit_code == 0 and (taught / "run/train/scored/manifest.json").is_file(), result.output


def test_questions_without_a_gold_answer_are_counted_and_named(taught: Path) -> None:
    rows = [json.loads(line) for line in (taught / "questions.jsonl").read_text().splitlines()]
    for number in (1, 4, 7):
        rows[number]["answer"] = None
    (taught / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told: list[Progress] = []
    train(recipe(taught, steps=2), taught / "run", on_progress=told.append)
    (said,) = (progress for progress in told if progress.stage == "rollouts scored")
    assert (said.done, said.total, said.facts[NO_GOLD]) == (QUESTIONS - 3, QUESTIONS, 3)
    left_out = list(read_jsonl(taught / "run/rollouts/scored/train/left_out.jsonl"))
    assert [line["question"] for line in left_out] == [rows[number]["question"] for number in (1, 4, 7)]
    assert {line["reason"] for line in left_out} == {NO_GOLD} and all(line["sample_id"] for line in left_out)
    manifest = json.loads((taught / "run/train/scored/manifest.json").read_text())
    assert manifest["counts"][f"dropped_{NO_GOLD}"] == 3
