"""Every arm answers every question once; what is measured is what was said."""

import hashlib
import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import torch
from safetensors.torch import load_file, save_file
from worlds import student_worlds as worlds

from distill.artifacts.files import describe
from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.artifacts.manifest import Manifest, fingerprint
from distill.commands.status import evaluation as evaluation_text
from distill.errors import DataError, RecipeError, StaleError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.reports import metric_table
from distill.stats import intervals
from distill.types import Progress, Sample
from student import evaluate as evaluation
from student.evaluate import evaluate
from student.evaluation import collect_replies, embedded_students, learned_rows, questions, served_students
from student.evaluation.students import arms_of, evaluated_students
from student.inference import generation
from student.inference.reply_metrics import columns, shown_metrics
from student.inference.scoring import score_reply
from student.train import train

STAGES = (
    worlds.stage("instruct", "questions", train='["projector", "language"]', steps=40),
    worlds.stage("reason", steps=2),
    worlds.stage("answers", steps=2, more='start = "instruct"\ntarget = "answer"\n'),
)
EVAL = """
[eval]
max_new_tokens = 16
batch_size = 5
gallery = 4
[eval.arms]
instruct = "instruct"
distilled = "reason"
answers_only = "answers"
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    worlds.parts(folder)
    worlds.data(folder)
    train(worlds.recipe(folder, *STAGES, more=EVAL), folder / "run")
    return folder


def test_learned_replies_are_as_long_as_those_of_the_stages_own_rows(trained: Path, monkeypatch: pytest.MonkeyPatch):
    manifest = Manifest.read(trained / "run" / "train" / "reason")
    assert manifest is not None and manifest.counts["responses"] == 16
    larger = load(trained / "recipe.toml", {"stages.reason.batch_size": "64"})  # than the stage has rows
    monkeypatch.setattr(evaluation.diagnosis, "diagnose", lambda facts: [facts])
    metrics = {"arms": {"distilled": {"stage": "reason"}}, "deltas": {}}
    (facts,) = evaluation._diagnose(larger, trained / "run", metrics, {"distilled": []}, [], [])
    assert facts.learned_tokens == manifest.tokens["own_response"] / 40
    tokens = {"trained": 1, "response": 1}  # as earlier versions counted
    monkeypatch.setattr(evaluation.Manifest, "read", lambda folder: replace(manifest, tokens=tokens))
    (facts,) = evaluation._diagnose(larger, trained / "run", metrics, {"distilled": []}, [], [])
    assert facts.learned_tokens is None


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("evaluated") / "w"))
    evaluate(load(folder / "recipe.toml"), folder / "run")
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "w"))


def metrics(folder: Path) -> dict:
    return orjson.loads((folder / "run" / "eval" / "metrics.json").read_bytes())


def predictions(folder: Path, name: str = "predictions.jsonl") -> list[dict]:
    return list(read_jsonl(folder / "run" / "eval" / name))


def untimed(lines: list[dict]) -> list[dict]:
    """What was said, without how long it took."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_metrics_have_the_agreed_shape(evaluated: Path):
    found = metrics(evaluated)
    assert list(found["arms"]) == ["instruct", "answers_only", "distilled"]
    assert list(found["deltas"]) == ["answers_only-instruct", "distilled-instruct", "distilled-answers_only"]
    assert found["seed"] == 0
    for arm in found["arms"].values():
        assert arm["n"] == 12 == sum(domain["n"] for domain in arm["domains"].values())
        assert set(arm["domains"]) == {"charts", "scenes"}
        assert arm["ci95"][0] <= arm["accuracy"] <= arm["ci95"][1]
    assert [arm["train_steps"] for arm in found["arms"].values()] == [40, 2, 2]
    for delta in found["deltas"].values():
        assert delta["ci95"][0] <= delta["delta"] <= delta["ci95"][1] and 0 <= delta["p"] <= 1


def test_metrics_are_what_the_predictions_say(evaluated: Path):
    found, said = metrics(evaluated), predictions(evaluated)
    assert len(said) == 36 and len({(line["arm"], line["sample_id"]) for line in said}) == 36
    for name, arm in found["arms"].items():
        lines = [line for line in said if line["arm"] == name]
        right = sum(line["verdict"] == "correct" for line in lines)
        assert arm["accuracy"] == right / 12 and tuple(arm["ci95"]) == intervals.wilson(right, 12)
        assert arm["n_undecided"] == sum(line["verdict"] == "undecided" for line in lines)
        assert arm["truncation_rate"] == sum(line["truncated"] for line in lines) / 12
    gain = found["arms"]["distilled"]["n_correct"] - found["arms"]["instruct"]["n_correct"]
    assert found["deltas"]["distilled-instruct"]["delta"] == pytest.approx(gain / 12)
    assert any(line["verdict"] == "correct" for line in said) and any(line["verdict"] == "wrong" for line in said)


def test_a_second_call_returns_at_once_without_torch(evaluated: Path):
    code = (
        "import sys; from pathlib import Path; from distill.recipe import load\n"
        "from student.evaluate import evaluate\n"
        f"made = evaluate(load({str(evaluated / 'recipe.toml')!r}), Path({str(evaluated / 'run')!r}))\n"
        "assert made.counts['predictions'] == 36 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_the_last_taught_student_is_asked_rows_that_it_learned_and_no_figure_of_an_arm_changes(
    evaluated: Path, place: Path, monkeypatch: pytest.MonkeyPatch
):
    assert "learned_rows" not in metrics(evaluated), "its stage made no whole pass over its rows"
    monkeypatch.setattr(learned_rows, "FEWEST_EPOCHS", 0.0)
    asked: list[tuple[str, int]] = []
    evaluate(load(place / "recipe.toml"), place / "run", on_progress=lambda it: asked.append((it.stage, it.done)))
    assert metrics(place)["learned_rows"].items() >= {"arm": "distilled", "n": 40}.items()
    assert asked[-1] == ("eval distilled on rows that it learned", 40)
    replies = list(read_jsonl(place / "run" / "eval" / "replies.jsonl"))
    assert len(replies) == 3 * 2 * 12 + 28, "the 12 questions of the test are among them, and asked once"
    assert Manifest.read(place / "run" / "eval").tokens == {"generated": sum(each["tokens"] for each in replies)}
    assert metrics(place)["deltas"] == metrics(evaluated)["deltas"]
    for name in ("predictions.jsonl", "predictions_without_image.jsonl"):
        assert untimed(predictions(place, name)) == untimed(predictions(evaluated, name))


def test_a_finished_evaluation_asks_no_student_for_its_rows_alone(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    monkeypatch.setattr(learned_rows, "FEWEST_EPOCHS", 0.0)
    monkeypatch.setattr(collect_replies, "ask_embedded", lambda *_: pytest.fail("a student was asked"))
    evaluate(load(folder / "recipe.toml", {"filter.answer.relative_tolerance": "0.1"}), folder / "run")
    assert metrics(folder)["learned_rows"]["n"] == 12, "those that are questions of the test, too"


def test_the_report_shows_every_arm_and_the_images(evaluated: Path):
    page = (evaluated / "run" / "eval" / "report.html").read_text()
    assert page.count('<article class="card entry"') == 4
    assert page.count("base64,") == 4
    for text in ("answers_only", "distilled", "instruct", "charts", "scenes", "<svg"):
        assert text in page
    assert "http://" not in page and "<script src" not in page


def test_only_the_gallery_is_redrawn_when_only_its_size_changes(evaluated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    before = metrics(folder), predictions(folder)
    evaluate(load(folder / "recipe.toml", {"eval.gallery": "2"}), folder / "run")
    assert (metrics(folder), predictions(folder)) == before
    assert (folder / "run" / "eval" / "report.html").read_text().count('class="card entry"') == 2


def test_an_interrupted_evaluation_goes_on_and_ends_with_the_same_bytes(evaluated: Path, place: Path):
    recipe = load(place / "recipe.toml")
    asked: list[tuple[str, int]] = []

    def stop(progress: Progress) -> None:
        asked.append((progress.stage, progress.done))
        if progress.stage == "eval answers_only":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(recipe, place / "run", on_progress=stop)
    with (place / "run" / "eval" / "replies.jsonl").open("ab") as file:
        file.write(b'{"sample_id": "12", "stu')
    asked.clear()
    evaluate(recipe, place / "run", on_progress=lambda progress: asked.append((progress.stage, progress.done)))
    blind = " without images"
    assert asked == [
        ("eval answers_only", 10),
        ("eval answers_only", 12),
        *[(f"eval answers_only{blind}", done) for done in (5, 10, 12)],
        *[("eval distilled", done) for done in (5, 10, 12)],
        *[(f"eval distilled{blind}", done) for done in (5, 10, 12)],
    ]
    for name in ("predictions.jsonl", "predictions_without_image.jsonl"):
        assert untimed(predictions(place, name)) == untimed(predictions(evaluated, name))
    assert metrics(place)["deltas"] == metrics(evaluated)["deltas"]


def test_questions_that_memory_does_not_hold_at_once_are_asked_in_smaller_batches(
    evaluated: Path, place: Path, monkeypatch: pytest.MonkeyPatch
):
    own, facts = generation.reply_ids, []

    def ids(model: Any, prompter: Any, samples: Any, batch: Any, **settings: Any) -> list[list[int]]:
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return own(model, prompter, samples, batch, **settings)

    monkeypatch.setattr(generation, "reply_ids", ids)
    recipe = load(place / "recipe.toml")
    evaluate(recipe, place / "run", on_progress=lambda progress: facts.append(dict(progress.facts)))
    assert {"now": "out of memory with 5 in a batch: from here on 2"} in facts
    assert untimed(predictions(place)) == untimed(predictions(evaluated))


def test_other_settings_are_named_and_fresh_keeps_the_last_result(evaluated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    changed = load(folder / "recipe.toml", {"eval.max_new_tokens": "1"})
    with pytest.raises(StaleError, match=r"eval.max_new_tokens: 16 -> 1"):
        evaluate(changed, folder / "run")
    evaluate(changed, folder / "run", fresh=True)
    assert max(line["tokens"] for line in predictions(folder)) == 1
    assert (folder / "run" / "eval.previous" / "metrics.json").is_file()


def test_replies_are_never_taken_for_those_of_other_settings(evaluated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    (folder / "run" / "eval" / "manifest.json").unlink()
    with pytest.raises(StaleError, match=r"was started with other settings:\n  eval.max_new_tokens: 16 -> 1"):
        evaluate(load(folder / "recipe.toml", {"eval.max_new_tokens": "1"}), folder / "run")
    before = predictions(folder)
    evaluate(load(folder / "recipe.toml"), folder / "run")
    assert predictions(folder) == before


def test_a_student_trained_again_makes_its_evaluation_stale(evaluated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    changed = load(folder / "recipe.toml", {"stages.reason.max_steps": "1"})
    train(changed, folder / "run", stage="reason", fresh=True)
    with pytest.raises(StaleError, match=r"students\.distilled"):
        evaluate(changed, folder / "run")


def test_a_stage_of_the_same_settings_with_other_weights_is_asked_again(evaluated: Path, tmp_path: Path):
    """As `train --fresh` leaves it on another device or with other versions of its packages."""
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    recipe, evaluation_before = load(folder / "recipe.toml"), Manifest.read(folder / "run/eval")
    assert evaluation_before is not None
    with_other_weights(folder / "run/train/reason")
    with pytest.raises(StaleError, match=r"weights\.distilled"):
        evaluate(recipe, folder / "run")
    # What an earlier version evaluated has no weights noted, in its replies neither, and stays.
    replies = folder / "run/eval/replies.jsonl"
    noted = list(read_jsonl(replies))
    write_jsonl(replies, [{key: value for key, value in line.items() if key != "weights"} for line in noted])
    fields = {key: value for key, value in evaluation_before.fields.items() if not key.startswith("weights.")}
    replace(evaluation_before, fields=fields, fingerprint=fingerprint(fields)).write(folder / "run/eval")
    before = predictions(folder)
    evaluate(recipe, folder / "run")
    assert untimed(predictions(folder)) == untimed(before)
    write_jsonl(replies, noted)
    replace(evaluation_before).write(folder / "run/eval")
    evaluate(recipe, folder / "run", fresh=True)
    assert untimed(predictions(folder)) != untimed(before)


def with_other_weights(stage: Path) -> None:
    """Leave a finished stage as another training with the same settings would."""
    trained = Manifest.read(stage)
    assert trained is not None
    path = stage / "model/model.safetensors"
    save_file({name: value + 0.5 for name, value in load_file(path).items()}, path, {"format": "pt"})
    replace(trained, outputs={**trained.outputs, "model/model.safetensors": describe(path)}).write(stage)


def test_stages_of_the_same_settings_with_other_weights_are_two_students(place: Path):
    twin = worlds.stage("twin", steps=2, more='start = "instruct"\n')
    recipe, run = worlds.recipe(place, *STAGES, twin, more=f'{EVAL}twin = "twin"\n'), place / "run"
    shutil.copytree(run / "train/reason", run / "train/twin")
    with_other_weights(run / "train/twin")
    manifest = evaluate(recipe, run)
    assert manifest.inputs["twin"] == manifest.inputs["distilled"] and manifest.counts["predictions"] == 4 * 12
    said = [[line["text"] for line in predictions(place) if line["arm"] == arm] for arm in ("twin", "distilled")]
    assert said[0] != said[1]


@pytest.mark.parametrize("between", ['{answers_only = "answers"}', '{renamed = "reason"}'])
def test_an_arm_that_comes_back_with_other_weights_is_asked_again(evaluated: Path, tmp_path: Path, between: str):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    recipe, run = load(folder / "recipe.toml"), folder / "run"
    before = untimed(predictions(folder))
    if "answers" in between:  # the arm goes before its stage is trained again
        evaluate(load(folder / "recipe.toml", {"eval.arms": between}), run)
        with_other_weights(run / "train/reason")
    else:  # the same stage under another name
        with_other_weights(run / "train/reason")
        evaluate(load(folder / "recipe.toml", {"eval.arms": between}), run)
        renamed = [{**line, "arm": "distilled"} for line in untimed(predictions(folder))]
        assert renamed != [line for line in before if line["arm"] == "distilled"]
    evaluate(recipe, run)
    now = untimed(predictions(folder))
    for arm in ("instruct", "distilled", "answers_only"):
        same = [line for line in now if line["arm"] == arm] == [line for line in before if line["arm"] == arm]
        assert same == (arm != "distilled")


def test_an_arm_whose_stage_is_unfinished_says_what_to_run(place: Path):
    shutil.rmtree(place / "run" / "train" / "answers")
    with pytest.raises(StaleError, match="run `distill train"):
        evaluate(load(place / "recipe.toml"), place / "run")


def test_questions_without_gold_or_without_a_source_are_refused(place: Path):
    lines = [orjson.loads(line) for line in (place / "test.jsonl").read_bytes().splitlines()]
    for line in lines:
        line["answer"] = ""
    (place / "test.jsonl").write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    with pytest.raises(DataError, match="gold answer"):
        evaluate(load(place / "recipe.toml"), place / "run")
    with pytest.raises(DataError, match="known: questions, test"):
        evaluate(load(place / "recipe.toml", {"eval.data": "tset"}), place / "run")


def test_without_named_arms_every_stage_but_the_first_is_one(tmp_path: Path):
    def arms(*stages: str) -> dict[str, str]:
        recipe: Recipe = worlds.recipe(tmp_path, *stages)
        return arms_of(recipe)

    align = worlds.stage("align", "questions")
    assert arms(align) == {"align": "align"}
    assert list(arms(align, *STAGES)) == ["instruct", "answers", "reason"]


def test_answers_are_judged_as_the_filter_judges_them():
    reply = {"text": "<think>\nred\n</think>\n\npear", "tokens": 4, "rationale_tokens": 1, "truncated": False}
    choice = Sample(
        id="s", images=(), question="?", answers=("B",), answer_type="choice", meta={"options": ["apple", "pear"]}
    )

    def verdict(sample: Sample, reply: dict, tolerance: float = 0.0, *, plain: bool = False) -> str:
        return score_reply(sample, reply, plain=plain, relative_tolerance=tolerance)["verdict"]

    assert verdict(choice, reply) == "correct"
    number = Sample(id="n", images=(), question="?", answers=("100",), answer_type="number")
    close = {**reply, "text": "104"}
    assert verdict(number, close) == "wrong"
    assert verdict(number, close, 0.05) == "correct"
    assert verdict(number, {**reply, "text": "90 and 10\n\n100"}, plain=True) == "correct"


def test_a_student_of_two_modes_can_be_asked_for_answers_alone(place: Path):
    recipe = load(place / "recipe.toml", {"eval.think": "false"})
    assert all(sample.question.endswith(" /no_think") for sample in questions.read_questions(recipe)[0])


def test_rows_that_were_not_asked_are_counted_by_reason_in_the_results(place: Path):
    with (place / "test.jsonl").open("a") as file:
        file.write('{"image": "", "question": "How many?", "answer": "1"}\n')
        file.write('{"image": "0.png", "question": "How many red ones?", "answer": ""}\n')
    evaluate(load(place / "recipe.toml", {"eval.without_image": "false"}), place / "run")
    assert metrics(place)["left_out"] == {"empty_image_cell": 1, "no_answer": 1}
    note = "\n\nnote: rows of the evaluation data that were not asked: empty_image_cell: 1, no_answer: 1\n\n"
    assert note in evaluation_text(place / "run")


SHORT = """
from distill.answers.reference_metrics import relaxed_accuracy
from student.evaluation.user_metrics import UserMetric

own_short = UserMetric(name="own_short", label="short answers", kind="share",
    value=lambda sample, prediction: len(prediction["answer"].split()) <= 1 if sample.domain == "charts" else None)
own_length = UserMetric(name="own_length", label="characters", kind="mean",
    value=lambda sample, prediction: len(prediction["text"]))
own_relaxed = UserMetric(name="own_relaxed", label="relaxed again", kind="share", compared=True,
    value=lambda sample, prediction: any(relaxed_accuracy(prediction["answer"], gold) for gold in sample.answers))
own_verdict = UserMetric(name="own_verdict", label="v", kind="share", field="verdict", value=len)
own_mean = UserMetric(name="own_mean", label="m", kind="mean", compared=True, value=len)
wrong = UserMetric(name="accuracy", label="a", kind="share", value=len)
"""


def test_metrics_from_a_file_judge_the_replies_that_are_there(evaluated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    (folder / "mine.py").write_text(SHORT)
    replies = (folder / "run/eval/replies.jsonl").read_bytes()
    named = {"eval.metrics": '["mine.py:own_short", "mine.py:own_length"]'}
    seen: list[Progress] = []
    done = evaluate(load(folder / "recipe.toml", named), folder / "run", on_progress=seen.append)
    assert (folder / "run/eval/replies.jsonl").read_bytes() == replies
    total = len(predictions(folder))
    with_images = [each.done for each in seen if each.stage == "eval: metrics of your own"]
    assert with_images == list(range(total + 1)), "a slow metric shows where it is"
    arm = metrics(folder)["arms"]["distilled"]
    said = [line for line in predictions(folder) if line["arm"] == "distilled"]
    short = [line["own_short"] for line in said if line["own_short"] is not None]
    assert arm["own_short_n"] == len(short) == 6 and arm["own_short"] == sum(short) / 6
    assert arm["own_short_ci95"] == list(intervals.wilson(sum(short), 6))
    assert arm["own_length"] == sum(len(line["text"]) for line in said) / 12
    assert arm["domains"]["scenes"]["own_short"] is None
    assert "short answers" in (folder / "run/eval/report.html").read_text()
    assert "short answers" in evaluation_text(folder / "run")
    assert done.fields["metrics.own_short"].startswith("sha256:")
    evaluate(load(folder / "recipe.toml"), folder / "run")
    assert "own_metrics" not in metrics(folder)


def test_a_metric_from_a_file_and_one_of_the_project_go_the_same_way(evaluated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    (folder / "mine.py").write_text(SHORT)
    evaluate(load(folder / "recipe.toml", {"eval.metrics": '["mine.py:own_relaxed"]'}), folder / "run")
    found, said = metrics(folder), predictions(folder)
    assert [line["own_relaxed"] for line in said] == [line["relaxed"] for line in said]
    assert {line["own_relaxed"] for line in said} == {True, False}
    for arm in found["arms"].values():
        groups = [arm, *arm["domains"].values(), *arm["difficulty"].values()]
        for group, end in itertools.product(groups, ("", "_ci95", "_n")):
            assert group[f"own_relaxed{end}"] == group[f"relaxed_accuracy{end}"]
    assert all(delta["own_relaxed"] == delta["relaxed_accuracy"] for delta in found["deltas"].values())
    own, built_in = (
        next(metric for metric in shown_metrics(found) if metric.name == name)
        for name in ("own_relaxed", "relaxed_accuracy")
    )
    table = metric_table.table(found["arms"], columns("more", (own, built_in)))
    assert all(cells[0] == cells[1] != metric_table.MetricCell(text="") for cells in table.rows.values())
    page = (folder / "run/eval/report.html").read_text()
    assert "relaxed again" in page and "relaxed accuracy" in page
    assert "relaxed again" in evaluation_text(folder / "run")


@pytest.mark.parametrize(
    ("name", "lacking"), [("own_verdict", "field and equals are for"), ("own_mean", "only a share is compared")]
)
def test_a_metric_from_a_file_cannot_write_over_a_prediction(
    evaluated: Path, tmp_path: Path, name: str, lacking: str
):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    (folder / "mine.py").write_text(SHORT)
    with pytest.raises(RecipeError, match=lacking):
        evaluate(load(folder / "recipe.toml", {"eval.metrics": f'["mine.py:{name}"]'}), folder / "run")


def test_a_metric_that_cannot_be_used_is_refused_before_a_student_is_asked(evaluated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(evaluated, tmp_path / "w"))
    (folder / "mine.py").write_text(SHORT)
    with pytest.raises(RecipeError, match="its name must begin with own_"):
        evaluate(load(folder / "recipe.toml", {"eval.metrics": '["mine.py:wrong"]'}), folder / "run")


def test_a_student_that_no_question_can_be_asked_needs_no_server(place: Path):
    recipe = load(place / "recipe.toml", {"eval.engine": "vllm"})
    student = evaluated_students(recipe, place / "run")["instruct"]
    asked = questions.QuestionSet(
        samples=[Sample(id="marked", images=(), question="What is <image>?")], without_image=False
    )
    work = questions.Work(evaluated=student, missing=[(asked, frozenset({"marked"}))])
    told: list[Any] = []
    served_students.ask_exported(
        recipe, place / "run" / "eval", work, pytest.fail, {}, lambda _, replies: told.extend(replies)
    )
    assert [reply for _, reply in told] == [{"unasked": embedded_students.UNASKED}]


def test_every_arm_is_asked_through_a_server_of_its_own_export(place: Path):
    served: list[tuple[str, int]] = []

    @contextmanager
    def serve(checkpoint: Path, *, arguments: dict[str, Any], **limits: int) -> Iterator[SimpleNamespace]:
        served.append((hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest(), 0))
        assert arguments["dtype"] == "float32" and limits["max_new_tokens"] == 16

        def ask(samples: Sequence[Sample]) -> list[tuple[list[int], list[int]]]:
            served[-1] = (served[-1][0], served[-1][1] + len(samples))
            return [([], [len(served)]) for _ in samples]

        yield SimpleNamespace(ask=ask)

    evaluate(load(place / "recipe.toml", {"eval.engine": "vllm"}), place / "run", vllm=lambda: serve)
    assert len({digest for digest, _ in served}) == 3 and [count for _, count in served] == [2 * 12] * 3
    replies = {
        arm: {line["text"] for line in predictions(place) if line["arm"] == arm} for arm in metrics(place)["arms"]
    }
    assert [len(texts) for texts in replies.values()] == [1] * 3 and len(set.union(*replies.values())) == 3
    assert not (place / "run" / "eval" / ".export").exists()
