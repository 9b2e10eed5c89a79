"""FLOPs foretold by the cost model are those that torch counts; the published figures come out of the real shapes."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode
from transformers import Idefics3Config, Idefics3ForConditionalGeneration
from worlds import student_worlds as worlds
from worlds.published_shapes import QWEN_HALF_BILLION, SIGLIP_BASE

from distill.recipe.sections.stages import Lora
from student.data.images import image_token
from student.models import flops, freeze
from student.models.flops import Cost, matmul_rate
from student.models.parts import find_parts
from student.models.recurrent import MIXERS

LORA = Lora(rank=8, alpha=16, dropout=0.0)
RESPONSE = 7
STAGES = {
    "align": (("projector",), None, False),
    "full": (("projector", "language"), None, False),
    "full, checkpointed": (("projector", "language"), None, True),
    "language alone": (("language",), None, False),
    "adapters": (("language",), LORA, False),
    "adapters, checkpointed": (("language",), LORA, True),
    "adapters and projector": (("projector", "language"), LORA, False),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def inputs(kind: str, processor) -> dict[str, torch.Tensor]:
    """Two rows of equal length with an image each."""
    sizes = {"qwen3-vl": (32, 32), "qwen3.5": (32, 32), "gemma4": (60, 42)}  # no patch of Gemma 4's is padding
    image = Image.new("RGB", sizes.get(kind, (16, 16)), (200, 40, 40))
    mark = image_token(processor)
    mark = f"<|vision_start|>{mark}<|vision_end|>" if kind.startswith("qwen") else mark
    text = mark + "How many red green blue squares are there? " * 6
    if kind == "qwen3.5":  # gated delta rules work in chunks of 64 tokens, which this fills
        text = mark + ("How many red green blue squares are there? " * 5).removesuffix(" are there? ")
    made = processor(text=[text] * 2, images=[[image]] * 2, return_tensors="pt")
    return {name: value for name, value in made.items() if name != "attention_mask"}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", (*worlds.CLASSES, "qwen2-vl"))
def test_a_micro_batch_costs_what_torch_counts(kind: str, stage: str, world: Path):
    train, lora, checkpointing = STAGES[stage]
    model, processor = worlds.student(kind, world)
    # Fused attention is not counted on a CPU.
    model.set_attn_implementation("eager")
    roles = find_parts(model)
    student = freeze.prepare(model, roles, train, lora)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
        student.train()
    batch = inputs(kind, processor)
    rows, length = batch["input_ids"].shape
    with FlopCounterMode(display=False) as counter:
        hidden = model.base_model(**batch, use_cache=False).last_hidden_state
        model.get_output_embeddings()(hidden[:, -RESPONSE:]).sum().backward()
    cost = Cost.of(student, roles, checkpointing=checkpointing)
    patches, squared_patches = cost.patches(batch)
    foretold = cost.flops(
        tokens=rows * length,
        squared_lengths=2 * rows * length**2,  # eager attention multiplies the masked half too
        response_tokens=rows * RESPONSE,
        patches=patches,
        squared_patches=squared_patches,
    )
    counted = counter.get_total_flops()
    if set(getattr(model.config.text_config, "layer_types", None) or ()) & MIXERS.keys():
        # Torch counts the gradient of a short convolution's weights as if every channel met every other.
        counted -= counter.get_flop_counts()["Global"][torch.ops.aten.convolution_backward]
    # The first of two layers needs no gradient of its input where only adapters are trained, and torch ends a
    # checkpointed layer's second forward before its last product; both matter less in deeper models.
    assert foretold == pytest.approx(counted, rel=0.05 if checkpointing else 0.04)


def qwen_half_billion(image_size: int) -> Idefics3ForConditionalGeneration:
    """The shape of Qwen2.5-0.5B behind SigLIP2-base with patches of 16, without weights."""
    config = Idefics3Config(
        text_config=QWEN_HALF_BILLION,
        vision_config={**SIGLIP_BASE, "image_size": image_size, "patch_size": 16},
        scale_factor=2,
    )
    with torch.device("meta"):
        return Idefics3ForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("train", "checkpointing", "gflops_per_token"),
    [(("projector",), False, 2.0), (("projector", "language"), False, 2.8), (("projector", "language"), True, 3.6)],
)
def test_half_a_billion_parameters_cost_the_known_gflops_a_token(train, checkpointing, gflops_per_token):
    model = qwen_half_billion(512)
    roles = find_parts(model)
    cost = Cost.of(freeze.prepare(model, roles, train, None), roles, checkpointing=checkpointing)
    patches, squared = cost.patches({"pixel_values": torch.empty(1, 1, 3, 512, 512, device="meta")})
    assert (patches, squared) == (1024, 1024**2)
    # 256 image tokens and as many of text, half of which carry loss.
    flops = cost.flops(
        tokens=512, squared_lengths=512**2, response_tokens=128, patches=patches, squared_patches=squared
    )
    assert flops / 512 == pytest.approx(gflops_per_token * 1e9, rel=0.05)


@pytest.mark.parametrize(("image_size", "gflops"), [(224, 35), (512, 213)])
def test_the_tower_costs_the_known_gflops_an_image(image_size: int, gflops: float):
    model = qwen_half_billion(image_size)
    roles = find_parts(model)
    cost = Cost.of(freeze.prepare(model, roles, ("language",), None), roles)
    patches, squared = cost.patches({"pixel_values": torch.empty(1, 1, 3, image_size, image_size, device="meta")})
    flops = cost.flops(tokens=0, squared_lengths=0, response_tokens=0, patches=patches, squared_patches=squared)
    assert flops == pytest.approx(gflops * 1e9, rel=0.03)


def test_a_batch_without_images_has_no_patches(world: Path):
    model, _ = worlds.student("siq-vl", world)
    assert Cost.of(model, find_parts(model)).patches({"input_ids": torch.zeros(1, 3)}) == (0, 0)


def test_the_measured_matrix_rate_is_a_rate_of_this_machine():
    before = torch.get_rng_state()
    rate = matmul_rate("cpu", torch.float32)
    assert 1e9 < rate < 1e14
    assert matmul_rate(torch.device("cpu"), torch.float32) == rate
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("seconds", "sides"), [(1.0, [128]), (1e-6, [128, 256, 512, 1024])], ids=["a slow one", "a fast one"]
)
def test_a_core_that_multiplies_slowly_multiplies_small_matrices(
    seconds: float, sides: list[int], monkeypatch: pytest.MonkeyPatch
):
    timed: list[int] = []
    monkeypatch.setattr(flops, "_least_seconds", lambda work, device: timed.append(len(work.args[0])) or seconds)
    assert flops._matmul_rate.__wrapped__("cpu", torch.float32) == 2 * sides[-1] ** 3 / seconds
    assert timed == sides
