"""Stages follow each other through the files they leave; a kill costs time and nothing else."""

import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import orjson
import pytest
import torch
from faults import killed
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.commands.status import parts
from distill.errors import DataError, RecipeError, StaleError
from distill.recipe.loading import load
from distill.recipe.sections import stages
from distill.types import Progress
from student.models import start_model
from student.train import train
from student.training.cost import memory

ALIGN = worlds.stage("align", "questions", train='["projector"]', steps=3)
LORA = "[stages.lora]\nrank = 4\nalpha = 8\n"
REASON = worlds.stage("reason", steps=4, more=LORA)
ANSWERS = worlds.stage("answers_only", steps=4, more='start = "align"\ntarget = "answer"\n')


@pytest.fixture(scope="module")
def trained(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world with three finished stages."""
    folder = Path(shutil.copytree(world, tmp_path_factory.mktemp("trained") / "w"))
    train(worlds.recipe(folder, ALIGN, REASON, ANSWERS), folder / "run")
    return folder


def weights(folder: Path, stage: str) -> dict[str, torch.Tensor]:
    return load_file(folder / "run" / "train" / stage / "model" / "model.safetensors")


def test_every_stage_leaves_a_student_that_transformers_loads(trained: Path):
    for name in ("align", "reason", "answers_only"):
        path = trained / "run" / "train" / name / "model"
        AutoModelForImageTextToText.from_pretrained(path)
        assert "<|im_start|>" in AutoProcessor.from_pretrained(path).chat_template


def test_the_folder_of_a_student_does_not_say_where_it_was_trained(trained: Path):
    files = [path for name in ("align", "reason") for path in (trained / "run" / "train" / name / "model").iterdir()]
    assert len(files) > 8
    assert [path.name for path in files if str(trained).encode() in path.read_bytes()] == []


def test_the_student_of_a_stage_is_gone_when_the_next_one_is_loaded(place: Path, monkeypatch: pytest.MonkeyPatch):
    found: list[weakref.ref[torch.nn.Module]] = []
    load_start = start_model.load

    def loaded(*args: object) -> tuple[torch.nn.Module, object]:
        assert not any(model() is not None for model in found)
        model, processor = load_start(*args)
        found.append(weakref.ref(model))
        return model, processor

    monkeypatch.setattr(start_model, "load", loaded)
    gc.disable()
    try:
        train(worlds.recipe(place, ALIGN, REASON), place / "run")
    finally:
        gc.enable()
    assert len(found) == 2


def test_a_student_keeps_the_cache_that_training_switched_off(trained: Path):
    config = json.loads((trained / "run" / "train" / "reason" / "model" / "config.json").read_text())
    assert config.get("use_cache", True) and config["text_config"]["use_cache"]


def test_what_a_stage_does_not_train_is_equal_bit_for_bit(trained: Path):
    align, reason, answers = (weights(trained, name) for name in ("align", "reason", "answers_only"))
    base = load_file(trained / "vision" / "model.safetensors")
    for name, value in base.items():
        if not name.removeprefix("vision_model.").startswith("head."):
            assert torch.equal(reason[f"model.vision_model.{name.removeprefix('vision_model.')}"], value)
    for later in (reason, answers):
        same = {name for name in align if torch.equal(align[name], later[name])}
        assert all(name in same for name in align if "vision_model" in name or "connector" in name)
        assert not all(name in same for name in align)
    proven = json.loads((trained / "run" / "train" / "reason" / "parts.json").read_text())
    assert {"tower", "projector", "language"} == set(proven["frozen_sha256"])
    assert (
        Manifest.read(trained / "run" / "train" / "reason").inputs["frozen.tower"] == proven["frozen_sha256"]["tower"]
    )


def test_a_merged_student_says_what_its_adapter_says(trained: Path):
    from peft import PeftModel

    stages = trained / "run" / "train"
    start = AutoModelForImageTextToText.from_pretrained(stages / "align" / "model")
    merged = AutoModelForImageTextToText.from_pretrained(stages / "reason" / "model")
    ids = torch.arange(5, 25).unsqueeze(0)
    base = start(input_ids=ids).logits
    adapted = PeftModel.from_pretrained(start, stages / "reason" / "adapter")(input_ids=ids).logits
    torch.testing.assert_close(merged(input_ids=ids).logits, adapted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(merged(input_ids=ids).logits, base, atol=1e-4)


def test_manifests_state_rows_steps_and_tokens(trained: Path):
    whole = Manifest.read(trained / "run" / "train")
    reason, answers = (Manifest.read(trained / "run" / "train" / name) for name in ("reason", "answers_only"))
    assert whole.counts == {"stages": 3, "steps": 11}
    assert reason.counts["rows"] == answers.counts["rows"] == 40
    assert reason.counts["steps"] == answers.counts["steps"] == 4
    # The adapters of `reason` are in its weights.
    assert (
        reason.counts["parameters"]
        == answers.counts["parameters"]
        == sum(value.numel() for value in weights(trained, "reason").values())
    )
    assert reason.tokens["response"] > 3 * answers.tokens["response"]
    lines = list(read_jsonl(trained / "run" / "train" / "reason" / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["tokens"] == reason.tokens["trained"]
    assert not (trained / "run" / "train" / "reason" / "checkpoints").exists()


def test_the_table_of_parts_says_what_was_trained_and_in_which_dtype(trained: Path):
    lines = [line.split() for line in parts(trained / "run").splitlines()]
    assert ["align", "projector", "2,048", "2,048", "float32", "0.00819", "MB"] in lines
    tower = next(line for line in lines if line[:2] == ["reason", "tower"])
    assert tower[3] == "0"
    assert [line[1] for line in lines if line[0] == "reason"] == ["tower", "projector", "language", "adapters"]


def test_replayed_rows_change_nothing_in_the_length_of_learned_replies(trained: Path, tmp_path: Path):
    """Replayed answers have two tokens, traces many more: a student of both writes replies as long as the traces."""
    folder = Path(shutil.copytree(trained, tmp_path / "w"))
    stages = (ALIGN, REASON.replace("batch_size", "replay = { questions = 0.5 }\nbatch_size"))
    alone = Manifest.read(folder / "run" / "train" / "reason")
    mixed = train(worlds.recipe(folder, *stages), folder / "run", stage="reason", fresh=True)
    assert alone is not None and mixed.counts["replayed"] == 40
    assert mixed.tokens["own_response"] == alone.tokens["own_response"] > 2 * mixed.tokens["response"]


def test_what_a_kill_after_the_manifest_leaves_behind_is_removed(trained: Path):
    (trained / "run" / "train" / "align" / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    train(load(trained / "recipe.toml"), trained / "run")
    assert not (trained / "run" / "train" / "align" / "checkpoints").exists()


def test_a_finished_run_is_skipped_without_torch(trained: Path):
    code = (
        "import sys; from pathlib import Path; from distill.recipe import load; from student.train import train\n"
        f"made = train(load({str(trained / 'recipe.toml')!r}), Path({str(trained / 'run')!r}))\n"
        "assert made.counts['stages'] == 3 and 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    before = (trained / "run" / "train" / "manifest.json").stat().st_mtime_ns
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
    assert (trained / "run" / "train" / "manifest.json").stat().st_mtime_ns == before


def test_a_stage_made_from_other_settings_names_them_and_the_way_out(trained: Path):
    recipe = load(trained / "recipe.toml", {"stages.reason.learning_rate": "1e-5", "stages.reason.lora.rank": "8"})
    with pytest.raises(StaleError) as error:
        train(recipe, trained / "run")
    text = str(error.value)
    assert "stage.learning_rate: 0.005 -> 1e-05" in text and "stage.lora.rank: 4 -> 8" in text and "--fresh" in text
    assert "align" not in text.splitlines()[0]


def test_how_often_is_saved_and_logged_makes_nothing_stale(trained: Path):
    changed = {"stages.reason.save_every_steps": "7", "stages.reason.log_every_steps": "3"}
    assert train(load(trained / "recipe.toml", changed), trained / "run").counts["stages"] == 3


WORK = """
def work(where, moment, step):
    where, step = Path(where), int(step)
    written, stuck = checkpoints.save_file, []
    def never(tensors, path):
        if step - 1 <= int(path.parent.name.removeprefix("checkpoint-")):
            stuck.append(path)
            threading.Event().wait()
        written(tensors, path)
    if moment == "beside":
        checkpoints.save_file = never
    if moment == "saving":
        write, saves = checkpoints.write_text, []
        def torn(path, text):
            saves.append(path)
            die() if len(saves) == step else write(path, text)
        checkpoints.write_text = torn
    def watch(progress):
        if (moment == "training" or stuck) and progress.stage == "train reason" and progress.done == step:
            die()
    train(load(where / "recipe.toml"), where / "run", on_progress=watch)
"""


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(place: Path, tmp_path: Path):
    # Rows packed to token budgets, another source mixed in, several epochs; dropout draws numbers at every step.
    more = (
        "batch_tokens = 1000\nmicro_batch_tokens = 500\nreplay = { questions = 0.2 }\n"
        '[stages.loss]\nnormalise = "spans"\nanswer = 2\n[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n'
    )
    recipe = worlds.recipe(place, ALIGN, worlds.stage("reason", steps=12, save=2, more=more))
    other = Path(shutil.copytree(place, tmp_path / "other"))
    train(recipe, place / "run")
    # Dies after step 3, then while it writes its third checkpoint of that attempt, then after a step that it made
    # beside the write of step 8, then after step 11.
    moments = (("training", 3), ("saving", 3), ("beside", 9), ("training", 11))
    killed.die_in_turn(WORK, *((other, *moment) for moment in moments))
    steps: list[int] = []

    def note(progress: Progress) -> None:
        if progress.stage == "train reason":
            steps.append(progress.done)

    train(load(other / "recipe.toml"), other / "run", on_progress=note)
    # Whether the checkpoint of step 10 was complete when step 11 was made is chance.
    assert steps in ([11, 12], [9, 10, 11, 12])
    ours, theirs = weights(other, "reason"), weights(place, "reason")
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    stable = ("step", "epoch", "loss", "tokens", "images", "shares", "losses", "accuracies", "learning_rate")
    lines = [
        [[line[key] for key in stable] for line in read_jsonl(where / "run" / "train" / "reason" / "metrics.jsonl")]
        for where in (place, other)
    ]
    assert lines[0] == lines[1]
    first, second = (Manifest.read(where / "run" / "train" / "reason") for where in (place, other))
    assert first.tokens == second.tokens and first.counts == second.counts


def test_an_interrupted_stage_with_checkpoints_is_not_resumed_under_other_settings(place: Path):
    recipe = worlds.recipe(place, worlds.stage("align", "questions", train='["projector"]', save=1))

    def stop(progress: Progress) -> None:
        if progress.done == 3 and progress.unit == "steps":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, place / "run", on_progress=stop)
    changed = load(recipe.path, {"stages.align.learning_rate": "0.5"})
    with pytest.raises(StaleError, match=r"stage.learning_rate: 0.005 -> 0.5"):
        train(changed, place / "run")
    train(recipe, place / "run")
    assert [line["step"] for line in read_jsonl(place / "run" / "train" / "align" / "metrics.jsonl")] == [
        *range(1, 7)
    ]


def test_fresh_redoes_one_stage_and_what_starts_from_it_and_keeps_the_last_result(trained: Path, tmp_path: Path):
    place = Path(shutil.copytree(trained, tmp_path / "w"))
    recipe = load(place / "recipe.toml")
    before = {name: Manifest.read(place / "run" / "train" / name) for name in ("align", "answers_only")}
    changed = load(recipe.path, {"stages.reason.learning_rate": "1e-3"})
    made = train(changed, place / "run", stage="reason", fresh=True)
    assert made.fields["stage.learning_rate"] == 1e-3
    assert {name: Manifest.read(place / "run" / "train" / name) for name in before} == before
    assert Manifest.read(place / "run" / "train") is None
    assert Manifest.read(place / "run" / "train.previous" / "reason").fields["stage.learning_rate"] == 5e-3
    assert train(changed, place / "run").counts["stages"] == 3

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(changed, place / "run", stage="reason", fresh=True, on_progress=stop)
    assert Manifest.read(place / "run" / "train") is None, "training is unfinished again"
    train(changed, place / "run", stage="align", fresh=True)
    assert sorted(path.name for path in (place / "run" / "train").iterdir()) == ["align"]
    kept = Manifest.read(place / "run" / "train.previous" / "reason")
    assert kept is not None and kept.fields["stage.learning_rate"] == 1e-3, "the last one that was finished"


def test_a_single_stage_needs_the_stage_it_starts_from(place: Path):
    recipe = worlds.recipe(place, ALIGN, REASON)
    with pytest.raises(StaleError, match="`distill train --stage align` first"):
        train(recipe, place / "run", stage="reason")
    with pytest.raises(RecipeError, match="its stages: align, reason"):
        train(recipe, place / "run", stage="resaon")
    train(recipe, place / "run")
    (place / "run/train/align/manifest.json").unlink()
    with pytest.raises(StaleError, match="`distill train --stage align` first"):
        train(recipe, place / "run", stage="reason", fresh=True)
    assert Manifest.read(place / "run/train/reason") is not None, "nothing is set aside for a stage that cannot begin"


def test_an_unreadable_checkpoint_is_one_message_and_earlier_stages_stay(place: Path):
    recipe = worlds.recipe(place, ALIGN, REASON)
    train(recipe, place / "run", stage="align")
    broken = place / "run" / "train" / "align" / "model" / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"model\.safetensors: it has 1,000 bytes"):
        train(recipe, place / "run")
    assert Manifest.read(place / "run" / "train" / "align") is not None
    assert Manifest.read(place / "run" / "train" / "reason") is None


def test_a_stage_whose_rows_are_all_too_long_says_so(place: Path):
    recipe = worlds.recipe(place, worlds.stage("align", "questions", more="max_length = 5\n"))
    with pytest.raises(DataError, match=r"no row of data = 'questions' can be trained on \(too_long: 40\)"):
        train(recipe, place / "run")


def test_traces_need_a_finished_filter_stage(place: Path):
    (place / "run" / "filter" / "manifest.json").unlink()
    with pytest.raises(StaleError, match="run `distill filter"):
        train(worlds.recipe(place, REASON), place / "run")


def test_a_stage_that_needs_no_traces_is_trained_before_there_are_any(place: Path):
    shutil.rmtree(place / "run" / "filter")
    manifest = train(worlds.recipe(place, ALIGN, REASON), place / "run", stage="align")
    assert manifest.counts["steps"] == 3


def test_dropped_rows_and_limits_are_counted(place: Path):
    lines = (place / "questions.jsonl").read_bytes().splitlines()
    first = orjson.loads(lines[0])
    del first["answer"]
    (place / "questions.jsonl").write_bytes(b"\n".join([orjson.dumps(first), *lines[1:]]))
    recipe = worlds.recipe(place, worlds.stage("align", "questions", steps=1, more="limit = 11\n"))
    counts = train(recipe, place / "run").outputs and Manifest.read(place / "run" / "train" / "align").counts
    assert counts["rows"] == 11 and counts["dropped_no_answer"] == 1


def test_half_precision_without_loss_scaling_is_refused(place: Path):
    recipe = worlds.recipe(place, ALIGN)
    with pytest.raises(RecipeError, match="bfloat16 or float32"):
        train(load(recipe.path, {"student.dtype": "float16"}), place / "run")


def test_bfloat16_students_stay_bfloat16(place: Path):
    recipe = worlds.recipe(place, ALIGN, REASON)
    # A step in bfloat16 takes seconds on a CPU.
    short = {"stages.align.max_steps": "1", "stages.reason.max_steps": "1"}
    train(load(recipe.path, {"student.dtype": "bfloat16", **short}), place / "run")
    assert {value.dtype for value in weights(place, "reason").values()} == {torch.bfloat16}
    table = json.loads((place / "run" / "train" / "reason" / "parts.json").read_text())["parts"]
    assert {row["part"]: row["dtype"] for row in table if row["part"] != "adapters"} == dict.fromkeys(
        ("tower", "projector", "language"), "bfloat16"
    )


def test_a_resumed_step_of_one_pass_rounds_as_after_a_step_of_several(place: Path, tmp_path: Path):
    more = "limit = 12\nmicro_batch_tokens = 350\nmax_grad_norm = 0.01\n"  # two passes, one pass
    recipe = worlds.recipe(place, worlds.stage("reason", steps=2, save=1, more=more))
    recipe = load(recipe.path, {"student.dtype": "bfloat16"})
    killed = Path(shutil.copytree(place, tmp_path / "killed"))
    train(recipe, place / "run")

    def kill(progress: Progress) -> None:
        if progress.stage == "train reason" and progress.done == 2:
            raise OSError

    again = load(killed / "recipe.toml", {"student.dtype": "bfloat16"})
    with pytest.raises(OSError):
        train(again, killed / "run", on_progress=kill)
    assert (killed / "run" / "train" / "reason" / "checkpoints" / "checkpoint-1" / "complete").is_file()
    train(again, killed / "run")
    whole, resumed = weights(place, "reason"), weights(killed, "reason")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_stage_resumed_on_a_card_with_more_free_memory_equals_one_that_was_trained_in_one_go(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    more = "limit = 12\n[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n"
    recipe = worlds.recipe(place, worlds.stage("reason", steps=2, save=1, more=more))
    killed = Path(shutil.copytree(place, tmp_path / "killed"))
    monkeypatch.setattr(stages, "PASS_TOKENS", 100)

    def with_memory_for(tokens: int) -> None:
        settings = {"micro_batch_tokens": tokens, "gradient_checkpointing": False}
        monkeypatch.setattr(memory, "settled", lambda stage, *_, **__: stage.model_copy(update=settings))

    with_memory_for(350)
    train(recipe, place / "run")

    def kill(progress: Progress) -> None:
        if progress.stage == "train reason" and progress.done == 2:
            raise OSError

    again = load(killed / "recipe.toml")
    with pytest.raises(OSError):
        train(again, killed / "run", on_progress=kill)
    with_memory_for(8192)
    train(again, killed / "run")
    whole, resumed = weights(place, "reason"), weights(killed, "reason")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert json.loads((killed / "run/train/reason/parts.json").read_bytes())["micro_batch_tokens"] == 350


def test_a_stage_that_starts_from_base_ignores_the_stage_before_it(place: Path, tmp_path: Path):
    other = Path(shutil.copytree(place, tmp_path / "other"))
    train(worlds.recipe(place, worlds.stage("reason", steps=3)), place / "run")
    train(worlds.recipe(other, ALIGN, worlds.stage("reason", steps=3, more='start = "base"\n')), other / "run")
    alone, after = weights(place, "reason"), weights(other, "reason")
    assert all(torch.equal(alone[name], after[name]) for name in alone | after)


def test_whatever_training_writes_others_may_read(trained: Path):
    umask = os.umask(0)
    os.umask(umask)
    files = [path for path in (trained / "run").rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.suffix == ".safetensors" for path in files)
    assert [path for path in files if path.stat().st_mode & 0o777 & ~umask != 0o666 & ~umask] == []
    folders = [path for path in (trained / "run").rglob("*") if path.is_dir()]
    assert [path for path in folders if path.stat().st_mode & 0o777 != 0o777 & ~umask] == []
