"""A plan tells what training will take before anything is loaded: exact where data is there, a bound where not."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner
from worlds import student_worlds as worlds
from worlds.published_shapes import QWEN_HALF_BILLION

from distill import cli
from distill.errors import ModelError, RecipeError
from distill.machine import hardware
from distill.planning import plan, stage_plans, stage_times
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Preference
from student.data import encode, images, rows
from student.models import inputs, siq_vl
from student.train import train
from student.training.cost import workload

TOWER = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 512,
    "patch_size": 16,
}
PUBLISHED = """
[data.captions]
source = "nobody/captions"
limit = 64000
[data.traces_to_be]
source = "nobody/questions"
[student]
vision = "vision"
language = "language"
pixel_shuffle = 2
[[stages]]
name = "align"
data = "captions"
train = ["projector"]
max_steps = 1000
batch_size = 64
[[stages]]
name = "instruct"
data = "captions"
train = ["projector", "language"]
lora = { rank = 64, alpha = 16 }
[[stages]]
name = "full"
data = "captions"
train = ["projector", "language"]
[[stages]]
name = "reason"
data = "traces"
train = ["projector", "language"]
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """The 849 M student of SigLIP2-large-512 and Qwen2.5-0.5B, as configurations alone."""
    folder = tmp_path_factory.mktemp("published")
    for name, config in (("vision", TOWER), ("language", QWEN_HALF_BILLION)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    (folder / "published.toml").write_text(PUBLISHED)
    return load(folder / "published.toml")


@pytest.fixture(scope="module")
def plans(published: Recipe) -> dict[str, stage_plans.StagePlan]:
    _, found = stage_plans.plans(published, published.path.parent / "run")
    return {planned.stage.name: planned for planned in found}


def test_the_published_student_has_its_published_parameters(plans: dict[str, stage_plans.StagePlan]):
    sizes = {row.part: row for row in plans["instruct"].parts}
    # 316 M with the pooling head of the tower, which no student has.
    assert sizes["tower"].parameters == pytest.approx(304e6, rel=0.01)
    assert sizes["projector"].parameters == pytest.approx(3.67e6, rel=0.01)
    assert sizes["language"].parameters + sizes["adapters"].parameters == pytest.approx(529e6, rel=0.01)
    assert sizes["adapters"].trainable + sizes["projector"].trainable == pytest.approx(38e6, rel=0.03)


def test_the_length_of_a_stage_follows_from_rows_batches_and_epochs(plans: dict[str, stage_plans.StagePlan]):
    assert plans["align"].schedule == workload.Schedule(1000, 64 * 1000 * 1024)
    assert plans["full"].schedule == workload.Schedule(4000, 64 * 1000 * 1024)
    assert plans["reason"].schedule is None
    assert plans["align"].load.is_bound


def test_a_micro_batch_of_pairs_holds_both_traces(plans: dict[str, stage_plans.StagePlan]):
    alone = plans["align"].stage.model_copy(update={"batch_size": 1, "micro_batch_tokens": 8192})
    single = replace(plans["align"], stage=alone)
    pairs = replace(single, stage=alone.model_copy(update={"preference": Preference()}))
    assert pairs.micro_batch_tokens == 2 * single.micro_batch_tokens


def test_full_training_costs_about_six_flops_a_parameter_and_token(plans: dict[str, stage_plans.StagePlan]):
    full = plans["full"]
    assert full.schedule is not None
    body = 358e6
    head, tower = 136e6, 304e6 * 1024 / 1024
    expected = (6 * body + 2 * tower) * full.schedule.tokens
    assert full.flops == pytest.approx(expected + 6 * head * full.schedule.tokens * 0.75, rel=0.15)
    assert plans["align"].flops < full.flops


def test_memory_is_weights_gradients_states_and_a_step(plans: dict[str, stage_plans.StagePlan]):
    full, align = plans["full"], plans["align"]
    trained = sum(row.trainable for row in full.parts)
    # Of bfloat16 weights, but in float32: a step of this stage may be several passes.
    assert full.memory.gradients == 4 * trained
    assert full.memory.optimizer == 10 * trained and full.memory.checkpoint == 12 * trained
    assert full.memory.weights == align.memory.weights
    assert full.bytes(checkpointing=False) > 2 * full.bytes(checkpointing=True)
    # About 1.4 MB a token of a decoder of half a billion parameters.
    step = full.memory.micro_batch(False)
    assert (step.bytes[2] - step.bytes[1]) / (step.tokens[2] - step.tokens[1]) == pytest.approx(1.4e6, rel=0.05)


def test_a_small_card_needs_checkpointing_and_a_large_one_does_not(plans: dict[str, stage_plans.StagePlan]):
    small, large = hardware.find_gpu("T4"), hardware.find_gpu("h100")
    assert stage_plans.fit(plans["full"], small).checkpointing
    found = stage_plans.fit(plans["full"], large)
    assert found.fits and not found.checkpointing
    assert found.most_tokens > 8192
    time = stage_times.stage_time(plans["full"], large, found)
    assert time is not None
    least, expected = time.hours
    assert least < expected
    assert least == pytest.approx(plans["full"].flops / (989.4e12 * time.bound.mfu) / 3600)
    assert stage_times.stage_time(plans["full"], small, stage_plans.fit(plans["full"], small)) is None  # no bf16


def test_a_card_with_room_takes_wider_passes_and_is_faster(plans: dict[str, stage_plans.StagePlan]):
    full, card = plans["full"], hardware.find_gpu("h100")
    [(wide, gpu_fit, time)] = stage_times.on_card([full], card)
    assert wide.stage.pass_tokens == 32_768 and wide.bytes(checkpointing=False) < card.usable_bytes
    narrow = stage_times.stage_time(full, card, gpu_fit)
    assert time is not None and narrow is not None
    assert time.hours[1] < narrow.hours[1]
    [(small, _, _)] = stage_times.on_card([full], hardware.find_gpu("T4"))
    assert small.stage.pass_tokens < 32_768


def test_a_plan_names_the_bottleneck_and_the_setting_that_lifts_it(plans: dict[str, stage_plans.StagePlan]):
    card = hardware.find_gpu("h100")
    gpu_fit = stage_plans.fit(plans["full"], card)
    time = stage_times.stage_time(plans["full"], card, gpu_fit)
    assert time is not None
    said = stage_times.advice(plans["full"], card, gpu_fit, time)
    found = re.match(
        r"(\d+) % of its time on the GPU is pointwise operations \(decoder\), and the host may be too slow to start "
        r"[\d,]+ kernels a step; kernels = \"compile\" lifts the MFU to (\d+) % at most",
        said,
    )
    assert found is not None and int(found[2]) > 100 * time.bound.mfu
    compiled = replace(plans["full"], stage=plans["full"].stage.model_copy(update={"kernels": "compile"}))
    faster = stage_times.stage_time(compiled, card, gpu_fit)
    assert faster is not None and round(100 * faster.bound.mfu) == int(found[2])
    assert "kernels =" not in stage_times.advice(compiled, card, gpu_fit, faster)


def test_the_text_has_every_stage_and_says_what_is_a_bound(published: Recipe):
    align, _, _, reason = published.stages
    run = published.path.parent / "run"
    short = reason.model_copy(update={"train": ("projector",)})
    said = plan.training_plan(published.model_copy(update={"stages": (align, short)}), run, gpu="rtx 4090", price=2.0)
    assert re.search(r"802 M parameters = tower 304 M \+ projector 3.67 M \+ language 494 M, in bfloat16", said)
    assert re.search(r"^align +3.67 M +<= 64,000 +<= 1,024 +1,000 +<= 65.5 M", said, re.MULTILINE)
    assert "RTX 4090: 24.0 GiB, 165 TFLOP/s in bf16" in said
    assert re.search(r"^reason +.*\?", said, re.MULTILINE)
    assert "reason: rows and tokens by the maximum that the recipe allows; how many is known once" in said
    few = plan.training_plan(published.model_copy(update={"stages": (align,)}), run)
    assert all(name in few for name in hardware.USUAL)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    worlds.parts(tmp_path)
    worlds.data(tmp_path)
    return tmp_path


def test_rows_and_tokens_of_data_that_is_there_are_those_that_training_sees(world: Path):
    recipe = worlds.recipe(
        world,
        worlds.stage("align", "questions", train='["projector"]'),
        worlds.stage("reason"),
        more='[data.short]\nsource = "questions.jsonl"\nimages_root = "images"\nlimit = 10\n',
    )
    _, found = stage_plans.plans(recipe, world / "run")
    student, processor = siq_vl.build(str(world / "vision"), str(world / "language"), 2)
    for planned in found:
        examples = encode.encode(
            rows.read(recipe, world / "run", planned.stage, encode.Counter()),
            encode.Encoder(processor, inputs.end_ids(student)),
            images.ImageStore(processor, torch.float32),
            encode.RowLimits(planned.stage.max_length, 10**6),
        )
        assert planned.load.rows == len(examples) == 40
        assert planned.load.tokens == sum(examples.lengths) / 40
        assert planned.load.patches == 16
        assert not planned.load.is_bound
        assert planned.load.basis == "all rows"
        assert planned.schedule is not None
        assert planned.schedule.steps == 6


PRINTING = """
from distill.answers.user_types import UserAnswerType
print("loaded")
grade = UserAnswerType(name="own_grade", same=lambda prediction, gold: prediction == gold)
"""


def test_what_code_of_a_recipe_prints_is_no_part_of_the_plan(world: Path):
    (world / "mine.py").write_text(PRINTING)
    recipe = worlds.recipe(world, worlds.stage("align", "questions", train='["projector"]'))
    answer_type = "data.questions.answer_type=mine.py:grade"
    options = ["--run", str(world / "run"), "--set", answer_type, "--json"]
    done = CliRunner().invoke(cli.app, ["plan", str(recipe.path), *options])
    assert json.loads(done.stdout)["stages"][0]["rows"] == 40
    assert "loaded" in done.stderr


def test_a_sample_stands_for_the_rows_behind_it(world: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = worlds.recipe(world, worlds.stage("reason"), worlds.stage("align", "questions", train='["projector"]'))
    monkeypatch.setattr(workload, "SAMPLED_ROWS", 16)
    _, found = stage_plans.plans(recipe, world / "run")
    assert [planned.load.rows for planned in found] == [40, 40]
    assert found[0].load.basis == "the first 16 rows"


@pytest.mark.parametrize(
    ("length", "rows", "steps"),
    [
        ("epochs = 4\n", 40, 4 * 5),
        ("epochs = 4\nbatch_tokens = 900\nmicro_batch_tokens = 500\n", 10, 4),
        ("epochs = 4\nreplay = { questions = 0.25 }\n", 10, 8),
        ("max_tokens = 3000\n", 10, 10),
    ],
)
def test_a_stage_is_planned_as_long_as_it_will_be(length: str, rows: int, steps: int, world: Path):
    """Step sizes that are no multiple of a micro-batch; replayed rows, which have a share; epochs of two steps."""
    stage = worlds.stage("reason", more=f"limit = {rows}\n{length}").replace("max_steps = 6\n", "")
    _, (found,) = stage_plans.plans(worlds.recipe(world, stage), world / "run")
    assert found.schedule is not None and (found.load.rows, found.schedule.steps) == (rows, steps)


def test_replayed_rows_of_another_length_and_rows_kept_out_are_planned_as_they_are_trained(world: Path):
    """Replayed questions are much shorter than traces, so a step has fewer tokens."""
    more = "epochs = 4\nreplay = { questions = 0.4 }\n[stages.validation]\nhold_out = 0.25\nevery_steps = 1000\n"
    stage = worlds.stage("reason", more=more).replace("max_steps = 6\n", "")
    recipe = worlds.recipe(world, stage)
    _, (found,) = stage_plans.plans(recipe, world / "run")
    trained = train(recipe, world / "run", stage="reason")
    assert found.schedule is not None and found.load.rows == trained.counts["rows"] - trained.counts["replayed"] < 40
    assert found.schedule.steps == pytest.approx(trained.counts["steps"], abs=2)
    assert found.schedule.tokens == pytest.approx(trained.tokens["trained"], rel=0.05)


def test_each_stage_has_the_memory_of_its_own_steps(world: Path):
    """Only the gradients of steps of several passes are float32."""
    sizes = ((1, 8192), (64, 8192), (1, 8192))
    stages = (
        worlds.stage(f"s{number}", more=f"micro_batch_tokens = {tokens}\n").replace("size = 8", f"size = {size}")
        for number, (size, tokens) in enumerate(sizes)
    )
    recipe = load(worlds.recipe(world, *stages).path, {"student.dtype": "bfloat16"})
    _, found = stage_plans.plans(recipe, world / "run")
    one, several, again = (planned.memory.gradients for planned in found)
    assert several == 2 * one and again == one


def test_speed_measured_in_the_run_tells_its_time(world: Path):
    recipe = worlds.recipe(world, worlds.stage("reason"))
    folder = world / "run" / "train" / "reason"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "tokens": 500, "seconds": 0.5}) + "\n")
    said = plan.training_plan(recipe, world / "run")
    assert re.search(r"^measured in this run +tokens/s", said, re.MULTILINE)
    assert re.search(r"^reason +1,000 ", said, re.MULTILINE)
    assert "tokens/s: over the whole time in the training loop, with validations and checkpoints" in said
    assert "student.dtype is float32: times are estimated for bfloat16 only" in said


def test_a_student_that_is_neither_here_nor_reachable_is_one_plain_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    done = CliRunner().invoke(cli.app, ["plan", "qwen3-vl", "--gpu", "L4", "--run", str(tmp_path / "run")])
    assert done.exit_code == ModelError.exit_code
    assert "google/siglip2-base-patch16-224: no folder of this name is here" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("h100", "H100"), ("rtx4090", "RTX 4090"), ("A100-80GB", "A100 80GB"), ("a100", "A100 40GB"), ("l4", "L4")],
)
def test_a_card_is_found_however_it_is_spelled(spelling: str, name: str):
    assert hardware.find_gpu(spelling).name == name


def test_an_unknown_card_is_an_error_that_names_the_nearest():
    with pytest.raises(RecipeError, match=r"--gpu RTX 4080: not a known GPU; did you mean 'RTX 4090'\?"):
        hardware.find_gpu("RTX 4080")


@pytest.mark.parametrize(
    ("device", "memory_gib", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", 79.2, "A100 80GB"),
        ("NVIDIA A100-PCIE-40GB", 39.4, "A100 40GB"),
        ("NVIDIA L40S", 44.4, "L40S"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 94.9, "RTX PRO 6000"),
        ("NVIDIA GeForce GTX 1080", 8.0, None),
        ("Tesla T4", 14.7, "T4"),
        ("Tesla V100-SXM2-16GB", 15.8, None),
    ],
)
def test_a_card_is_known_by_what_torch_calls_it(device: str, memory_gib: float, name: str | None):
    found = hardware.gpu_of_device(device, memory_gib)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
    ],
)
def test_a_card_may_be_named_as_nvidia_smi_names_it(named: str, name: str):
    assert hardware.find_gpu(named).name == name


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--price", "inf"], "--price inf: give an amount"),
        (["--gpu", ""], "--gpu : not a known GPU"),
        (["--diff", "tiny", "--gpu", "L4"], "--diff only compares two recipes"),
        (["--diff", "tiny", "--price", "2"], "--diff only compares two recipes"),
        (["--diff", "tiny", "--engine", "ray"], "--diff only compares two recipes"),
        (["--diff", "tiny", "--samples", "2"], "--diff only compares two recipes"),
    ],
)
def test_an_option_of_the_plan_that_means_nothing_is_refused(options: list[str], problem: str) -> None:
    done = CliRunner().invoke(cli.app, ["plan", "tiny", *options])
    assert done.exit_code == 2 and problem in done.stderr, done.output
