"""Any student can be an arm: whatever form it comes in, it says what it said where it was trained."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from safetensors.torch import load_file, save_file
from servers.stub_server import serve
from students.trained_students import MIXED, metrics, recipe_of, refuse, said, train_and_export
from typer.testing import CliRunner

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import IMAGES
from distill.cli import app
from distill.errors import DistillError, ModelError, RecipeError, StaleError, TeacherError
from distill.python_api.verbs import connect
from distill.recipe.loading import load
from distill.types import Progress
from student.evaluate import evaluate
from student.evaluation import collect_replies, served_students
from student.evaluation import metrics as figures
from student.export import convert
from student.models.siq_vl import build

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copied for each test, never written to."""
    return train_and_export(tmp_path_factory.mktemp("world"))


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "w"))


def test_every_form_of_a_student_says_what_its_stage_says(place: Path) -> None:
    forms = f"""
[eval.students.folder]
model = "{place / "run/train/reason/model"}"
[eval.students.stage_folder]
model = "run/train/reason"
[eval.students.adapted]
model = "run/train/instruct/model"
adapter = "run/train/reason/adapter"
[eval.students.native]
model = "native"
[eval.students.plain]
model = "plain"
"""
    manifest = evaluate(recipe_of(place, forms), place / "run")
    found = said(place)
    assert list(found) == ["folder", "stage_folder", "adapted", "native", "plain", "distilled"]
    assert len({text for _, text in found["distilled"]}) > 8
    for name in ("predictions.jsonl", "predictions_without_image.jsonl"):
        replies = said(place, name)
        assert all(of_arm == replies["distilled"] for of_arm in replies.values())
    assert len({manifest.inputs[arm] for arm in found}) == 5, (
        "one folder given in two ways is one student, the others are not"
    )
    assert metrics(place)["arms"]["adapted"]["student"]["adapter"] == "run/train/reason/adapter"
    assert metrics(place)["deltas"]["distilled-native"]["delta"] == 0


def test_an_adapter_alone_is_laid_onto_the_model_that_it_names(place: Path) -> None:
    config = place / "run" / "train" / "reason" / "adapter" / "adapter_config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"base_model_name_or_path": str(place / "run/train/instruct/model")}))
    alone = '[eval.students.alone]\nmodel = "run/train/reason/adapter"\n'
    evaluate(recipe_of(place, alone), place / "run")
    assert said(place)["alone"] == said(place)["distilled"]
    config.write_text(json.dumps(values | {"base_model_name_or_path": None}))
    with pytest.raises(ModelError, match=r"does not name its base model; name it: eval\.students\.alone"):
        evaluate(load(place / "recipe.toml"), place / "run", fresh=True)


def test_base_is_the_student_before_any_stage(place: Path) -> None:
    student, processor = build(str(place / "vision"), str(place / "language"), 2, seed=0)
    convert.save(student, processor, place / "built")
    more = '[eval.students.built]\nmodel = "built"\n'
    recipe = recipe_of(place, more, {"eval.arms.untouched": "base"})
    evaluate(recipe, place / "run")
    found = said(place)
    assert list(found) == ["untouched", "built", "distilled"]
    assert found["untouched"] == found["built"] != found["distilled"]
    assert metrics(place)["arms"]["untouched"]["stage"] == "base"
    assert metrics(place)["arms"]["untouched"]["train_tokens"] == 0


def test_a_recipe_without_stages_and_student_evaluates_students_from_elsewhere(place: Path) -> None:
    path = place / "alone.toml"
    path.write_text(
        '[data.test]\nsource = "test.jsonl"\nimages_root = "images"\n[eval]\nmax_new_tokens = 12\n'
        'batch_size = 5\ngallery = 0\n[eval.students.native]\nmodel = "native"\n'
    )
    evaluate(load(place / "recipe.toml"), place / "run")
    evaluate(load(path), place / "alone")
    alone = [line["text"] for line in read_jsonl(place / "alone" / "eval" / "predictions.jsonl")]
    assert alone == [text for _, text in said(place)["distilled"]]
    path.write_text('[data.test]\nsource = "test.jsonl"\n')
    with pytest.raises(RecipeError, match=r"needs students: .*--student NAME=MODEL"):
        evaluate(load(path), place / "none")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('model = "./gone"', r"eval\.students\.odd: there is no folder \./gone; correct its model"),
        ('model = "images"', r"eval\.students\.odd: .*images holds no config\.json and no \*\.safetensors"),
        ('model = "test.jsonl"', r"test\.jsonl is a file; give the folder"),
        ('model = "native"\nadapter = "plain"', r"adapter .*plain holds no adapter_config\.json"),
        (
            'model = "native"\nadapter = "misfit"',
            r"misfit: this adapter does not fit .*takes 32 values, the adapter 3",
        ),
        ('model = "native"\nadapter = "elsewhere"', r"does not fit .*nowhere\.k_proj is not there[\s\S]*trained on"),
        ('model = "nobody/nothing-here"', r"nobody/nothing-here: no folder of this name is here"),
    ],
)
def test_a_student_that_cannot_work_is_refused_before_anything_is_asked(
    place: Path, values: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    adapter = place / "run" / "train" / "reason" / "adapter"
    weights = load_file(adapter / "adapter_model.safetensors")
    for name, change in (
        ("misfit", lambda key, value: (key, value[:, :3].contiguous() if "lora_A" in key else value)),
        ("elsewhere", lambda key, value: (key.replace("text_model.layers.0.self_attn", "nowhere"), value)),
    ):
        shutil.copytree(adapter, place / name)
        save_file(dict(change(*item) for item in weights.items()), place / name / "adapter_model.safetensors")
    monkeypatch.setattr(collect_replies, "ask_embedded", refuse)
    with pytest.raises(DistillError, match=message) as caught:
        evaluate(recipe_of(place, f"[eval.students.odd]\n{values}\n"), place / "run")
    assert caught.value.exit_code == 2
    assert not (place / "run" / "eval" / "replies.jsonl").exists()


def far(url: str, model: str = "stub") -> str:
    return f'[eval.students.far]\nmodel = "{model}"\nbase_url = "{url}"\n'


def test_a_served_student_is_asked_by_the_chat_of_its_server(place: Path) -> None:
    with serve() as url:
        evaluate(recipe_of(place, far(url)), place / "run", connect=connect)
    lines = [line for line in read_jsonl(place / "run" / "eval" / "predictions.jsonl") if line["arm"] == "far"]
    assert len(lines) == 12
    assert {(line["tokens"], line["rationale_tokens"], line["truncated"]) for line in lines} == {(23, 21, False)}
    assert all(0 < line["seconds"] < 30 for line in lines)
    assert lines[0]["reasoning"].startswith("step ") and lines[0]["answer"].isdigit()
    arm = metrics(place)["arms"]["far"]
    assert arm["student"] == {"model": "stub", "base_url": url} and "which weights the server has" in arm["note"]
    assert arm["without_image"]["n"] == 12
    assert "far: Known only by its address" in (place / "run" / "eval" / "report.html").read_text()


def test_images_and_greedy_settings_reach_the_server_and_the_second_time_no_image_does(place: Path) -> None:
    import urllib.request

    with serve() as url:
        evaluate(recipe_of(place, far(url)), place / "run", connect=connect)
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/seen") as answer:
            bodies = json.loads(answer.read())["bodies"]
    images = [len(body["messages"][-1]["content"]) - 1 for body in bodies]
    assert set(images) == {0, 1} and images.count(0) == 12
    assert {(body["temperature"], body["max_tokens"], body["top_k"]) for body in bodies} == {(0.0, 12, 0)}


def test_what_a_server_said_before_it_refused_a_question_is_kept(place: Path) -> None:
    lines = [json.loads(line) for line in (place / "test.jsonl").read_text().splitlines()]
    lines[3]["question"] += " fault=400x2"
    (place / "test.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    asked: list[Progress] = []
    with serve() as url:
        recipe = recipe_of(place, far(url), {"eval.without_image": "false"})
        with pytest.raises(
            TeacherError,
            match=r"gave no answer to question .*planted 400 .*others passed\)\nfinished replies are kept",
        ):
            evaluate(recipe, place / "run", connect=connect)
        kept = len(list(read_jsonl(place / "run" / "eval" / "replies.jsonl")))
        evaluate(recipe, place / "run", connect=connect, on_progress=asked.append)
    assert len(list(read_jsonl(place / "run" / "eval" / "replies.jsonl"))) == 24
    assert len(asked) == 12 + 3 - kept, "the rest of the questions one by one, and three batches of the stage"


def test_a_server_that_is_not_there_or_has_another_model_is_named_before_anything_is_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_replies, "ask_embedded", refuse)
    gone = recipe_of(place, far("http://127.0.0.1:9/v1"))
    with pytest.raises(ModelError, match=r"eval\.students\.far: no answer from http://127\.0\.0\.1:9/v1 .*start its"):
        evaluate(gone, place / "run", connect=connect)
    with serve() as url:
        other = load(place / "recipe.toml", {"eval.students.far.base_url": url, "eval.students.far.model": "other"})
        with pytest.raises(ModelError, match=r"does not serve 'other'; it serves: stub"):
            evaluate(other, place / "run", connect=connect)
        bare = load(place / "recipe.toml", {"eval.students.far.base_url": url.removesuffix("/v1")})
        with pytest.raises(ModelError, match=r"it usually ends in /v1"):
            evaluate(bare, place / "run", connect=connect)
    keyless = load(place / "recipe.toml", {"eval.students.far.api_key_env": "NO_SUCH_KEY"})
    with pytest.raises(RecipeError, match="NO_SUCH_KEY"):
        evaluate(keyless, place / "run", connect=connect)


def test_an_arm_that_comes_or_goes_leaves_the_replies_of_the_others(place: Path) -> None:
    asked: list[str] = []

    def watch(progress: Progress) -> None:
        asked.append(progress.stage)

    evaluate(load(place / "recipe.toml"), place / "run", on_progress=watch)
    before = said(place)["distilled"]
    asked.clear()
    nobody = {"eval.students.gone.model": "m", "eval.students.gone.base_url": "http://127.0.0.1:9/v1"}
    with pytest.raises(ModelError, match="no answer"):
        evaluate(load(place / "recipe.toml", nobody), place / "run", on_progress=watch, connect=connect)
    assert (place / "run" / "eval" / "manifest.json").is_file(), "what was finished is still finished"
    both = recipe_of(place, '[eval.students.other]\nmodel = "run/train/instruct"\n')
    evaluate(both, place / "run", on_progress=watch)
    assert set(asked) == {"eval other", "eval other without images"}
    assert list(metrics(place)["arms"]) == ["other", "distilled"] and said(place)["distilled"] == before
    asked.clear()
    without = both.model_copy(update={"eval": both.eval.model_copy(update={"students": {}})})
    evaluate(without, place / "run", on_progress=watch)
    evaluate(both, place / "run", on_progress=watch)
    elsewhere = load(place / "recipe.toml", {"eval.students.other.model": f'"{place}/run/train/instruct/model"'})
    evaluate(elsewhere, place / "run", on_progress=watch)
    assert asked == [] and list(metrics(place)["arms"]) == ["other", "distilled"]


def test_other_weights_behind_the_same_name_make_the_evaluation_stale(place: Path) -> None:
    recipe = recipe_of(place, '[eval.students.other]\nmodel = "native"\n')
    evaluate(recipe, place / "run")
    shutil.rmtree(place / "native")
    shutil.copytree(place / "run" / "train" / "instruct" / "model", place / "native")

    with pytest.raises(StaleError, match=r"students\.other"):
        evaluate(recipe, place / "run")


def test_a_served_reply_has_the_tokens_of_its_rationale_for_each_cut() -> None:
    text = "<think>\none two\n</think>\n\nthree\n\nfour"
    answer = SimpleNamespace(text=text, tokens=len(text), reasoning_tokens=None, truncated=False, seconds=1.0)
    reply = served_students._reply_of_server(answer, "plain")
    plain = len("<think>\none two\n</think>\n\nthree")
    assert reply["rationale_tokens_by_style"] == {"think": len("one two"), "plain": plain}
    assert reply["rationale_tokens"] == plain
    answer.reasoning_tokens = 5  # the server's own count
    reply = served_students._reply_of_server(answer, "think")
    assert reply["rationale_tokens_by_style"] == {"think": 5, "plain": 5}


def test_a_newer_version_of_the_measures_measures_again_and_asks_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as url:
        recipe = recipe_of(place, far(url))
        first = evaluate(recipe, place / "run", connect=connect)
    path = place / "run" / "eval" / "metrics.json"
    before = path.read_bytes()
    path.write_text("{}")
    monkeypatch.setattr(collect_replies, "collect_replies", refuse)
    outputs = evaluate(recipe, place / "run").outputs
    # The record of images has the time at which they were read.
    assert outputs == {**first.outputs, IMAGES: outputs[IMAGES]} and path.read_bytes() == before
    monkeypatch.setattr(figures, "MEASURES", figures.MEASURES + 1)
    again = evaluate(recipe, place / "run")
    assert path.read_bytes() == before and again.seconds == first.seconds
    looser = load(place / "recipe.toml", {"filter.answer.relative_tolerance": "10.0"})
    evaluate(looser, place / "run")
    assert metrics(place)["arms"]["far"]["n_correct"] > orjson.loads(before)["arms"]["far"]["n_correct"]


def test_questions_are_asked_without_images_when_that_is_wanted_and_they_have_some(place: Path) -> None:
    asked: list[str] = []

    def watch(progress: Progress) -> None:
        asked.append(progress.stage)

    evaluate(load(place / "recipe.toml", {"eval.without_image": "false"}), place / "run", on_progress=watch)
    assert set(asked) == {"eval distilled"} and not metrics(place)["arms"]["distilled"]["without_image"]
    asked.clear()
    evaluate(load(place / "recipe.toml"), place / "run", on_progress=watch)
    assert set(asked) == {"eval distilled without images"}
    assert metrics(place)["arms"]["distilled"]["without_image"]["n"] == 12
    blind = (place / "run" / "eval" / "predictions_without_image.jsonl").read_bytes()
    assert len(blind.splitlines()) == 12


def test_only_questions_that_have_images_are_asked_without(place: Path) -> None:
    lines = [json.loads(line) for line in (place / "test.jsonl").read_text().splitlines()]
    path = place / "recipe.toml"
    path.write_text(path.read_text().replace("[eval]", '[eval]\ndata = "mixed"', 1) + MIXED)

    def ask(pictured: int) -> dict[str, Any]:
        rows = [
            {
                "conversations": [
                    {"from": "human", "value": f"{number}: {line['question']}"},
                    {"from": "gpt", "value": line["answer"]},
                ],
                **({"image": line["image"]} if number < pictured else {}),
            }
            for number, line in enumerate(lines)
        ]
        (place / "mixed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        evaluate(load(path), place / "run", fresh=True)
        found: dict[str, Any] = metrics(place)["arms"]["distilled"]
        return found

    some = ask(3)
    assert some["n"] > 3 == some["without_image"]["n"]
    assert not ask(0)["without_image"]
    assert not (place / "run" / "eval" / "predictions_without_image.jsonl").exists()


def test_a_question_that_one_student_cannot_be_asked_counts_for_none(place: Path) -> None:
    lines = [json.loads(line) for line in (place / "test.jsonl").read_text().splitlines()]
    lines[0]["question"] = "What does <ima<image>ge> mean?"
    (place / "test.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with serve() as url:
        manifest = evaluate(recipe_of(place, far(url)), place / "run", connect=connect)
    assert manifest.counts["unasked"] == 1
    assert {arm["n"] for arm in metrics(place)["arms"].values()} == {11}


def test_the_command_adds_students_and_records_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    with serve() as url:
        arguments = [
            "eval",
            "recipe.toml",
            "--run",
            "run",
            "--student",
            "native=native",
            "--student",
            f"far={url}#stub",
            "--set",
            "eval.allow_overlap=true",
        ]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert list(metrics(place)["arms"]) == ["native", "far", "distilled"]
    recorded = load(place / "run" / "recipe.toml").eval.students
    assert recorded["native"].model == str(place / "native")
    assert (recorded["far"].base_url, recorded["far"].model) == (url, "stub")
    head = next(line for line in done.stdout.splitlines() if line.startswith("arm"))
    for column in ("accuracy % [95 % interval]", "rationale tokens", "without image %"):
        assert column in head
    tables = done.stdout.partition("\nreport: ")[0].splitlines()
    assert max(len(line) for line in tables if not line.startswith(("warning: ", "diagnosis: "))) < 120


@pytest.mark.parametrize("given", ["native", "=native", "native=", "a.b=native", "far=http://127.0.0.1:9/v1"])
def test_a_student_that_is_not_named_as_asked_is_refused(place: Path, given: str) -> None:
    done = CliRunner().invoke(app, ["eval", str(place / "recipe.toml"), "--student", given])
    assert done.exit_code == 2 and "write NAME=FOLDER, NAME=HUB_NAME or NAME=URL#MODEL" in done.output
