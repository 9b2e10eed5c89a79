"""The kernels of a step are counted as a card runs them, and a card is as slow as they make it."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Idefics3Config
from worlds import student_worlds as worlds
from worlds.published_shapes import QWEN_HALF_BILLION, SIGLIP_BASE

from distill.machine import hardware
from distill.recipe.sections.stages import Lora
from student.models import freeze, siq_vl
from student.models.flops import Cost
from student.models.parts import find_parts
from student.training.cost import roofline, step_trace
from student.training.cost.roofline import Bound, StepKernels
from student.training.cost.step_trace import ATTENTION, MATRICES, POINTWISE, DecoderTrace, Kernel, PassWork

SMALL = {**QWEN_HALF_BILLION, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 6, "vocab_size": 600}
SMALL |= {"num_attention_heads": 4}
FULL, LANGUAGE = ("projector", "language"), ("language",)


def student(text: dict, train: tuple[str, ...] = FULL, lora: Lora | None = None, dtype: str = "bfloat16"):
    config = Idefics3Config(
        text_config=text,
        vision_config={**SIGLIP_BASE, "image_size": 224, "patch_size": 16},
        scale_factor=2,
        image_token_id=7,
        tie_word_embeddings=True,
    )
    model = siq_vl.without_weights(config, dtype)
    roles = find_parts(model)
    return freeze.prepare(model, roles, train, lora), roles


def work(tokens: int, rows: int, share: float = 0.5) -> PassWork:
    """Rows of equal length with an image of 196 patches each, of which a share of the tokens is labelled."""
    return PassWork(
        tokens=tokens,
        squared_lengths=tokens**2 / rows,
        response_tokens=share * tokens,
        patches=rows * 196,
        squared_patches=rows * 196**2,
    )


def step(prepared, roles, passed: PassWork, *, passes: int = 1, kernels: str = "none", checkpointing: bool = False):
    traced = step_trace.trace(
        prepared, roles, passed, checkpointing=checkpointing, fused_layers=kernels in roofline.FUSED
    )
    found = roofline.step_kernels(prepared, roles, passed, traced, passes=passes, kernels=kernels)
    amounts = {name: getattr(passed, name) for name in PassWork.__slots__}
    model, counted = (
        passes * Cost.of(prepared, roles, checkpointing=twice).flops(**amounts) for twice in (False, checkpointing)
    )
    return StepKernels(kernels=found, model_flops=model, hardware_flops=counted)


def flops(kernels: Counter[Kernel], *kinds: str) -> float:
    return sum(number * kernel.flops for kernel, number in kernels.items() if kernel.kind in kinds)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("lora", [None, Lora(rank=4, alpha=8, dropout=0.0)])
def test_matrix_products_are_those_that_torch_counts_on_real_tensors(lora: Lora | None, checkpointing: bool):
    prepared, roles = student(SMALL, FULL if lora is None else LANGUAGE, lora, "float32")
    traced = step_trace.trace(prepared, roles, work(256, 4), checkpointing=checkpointing)
    model = siq_vl.without_weights(freeze.plain_model(prepared).config, "float32").to_empty(device="cpu")
    model.set_attn_implementation("eager")
    freeze.prepare(model, roles, FULL if lora is None else LANGUAGE, lora).train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    states = torch.randn(1, 256, 64, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        hidden = model.get_submodule(roles.language)(inputs_embeds=states, use_cache=False).last_hidden_state
        model.get_output_embeddings()(hidden[0, ::2]).sum().backward()
    products = (torch.ops.aten.mm, torch.ops.aten.addmm)
    counted = sum(counter.get_flop_counts()["Global"].get(name, 0) for name in products)
    # The last product of a layer is not needed again in its second pass.
    assert flops(traced.kernels(compiled=False), MATRICES) == pytest.approx(counted, rel=0.02)


@pytest.mark.parametrize("kernels", ["none", "liger", "compile"])
def test_a_whole_step_costs_what_the_cost_model_says(kernels: str):
    prepared, roles = student(QWEN_HALF_BILLION)
    found = step(prepared, roles, work(8192, 40), kernels=kernels)
    # A flash kernel computes the scores again: seven products in the place of six.
    products = flops(found.kernels, MATRICES) + flops(found.kernels, ATTENTION) * 6 / 7
    assert products == pytest.approx(found.model_flops, rel=0.02)


def test_faster_layers_move_less_memory_and_checkpointing_more():
    prepared, roles = student(QWEN_HALF_BILLION)
    card, some = hardware.find_gpu("H100"), work(8192, 40)
    bounds = {
        kernels: step(prepared, roles, some, kernels=kernels).on(card) for kernels in ("none", "liger", "compile")
    }
    twice = step(prepared, roles, some, checkpointing=True).on(card)
    assert bounds["none"].total_s > bounds["liger"].total_s > bounds["compile"].total_s
    assert bounds["none"].launches > bounds["liger"].launches > bounds["compile"].launches
    assert twice.total_s > bounds["none"].total_s
    assert twice.mfu < bounds["none"].mfu and twice.hfu > twice.mfu
    assert bounds["none"].hfu == bounds["none"].mfu


def test_half_a_billion_parameters_reach_a_third_of_a_card_by_default_and_three_fifths_with_the_right_settings():
    prepared, roles = student(QWEN_HALF_BILLION)
    default = step(prepared, roles, work(8192, 8), passes=16)
    assert default.on(hardware.find_gpu("H100")).mfu == pytest.approx(0.39, abs=0.02)
    assert default.on(hardware.find_gpu("L40S")).mfu == pytest.approx(0.31, abs=0.02)
    assert default.on(hardware.find_gpu("H100")).largest()[:2] == ("decoder", POINTWISE)
    best = step(prepared, roles, work(49_152, 48), passes=4, kernels="compile")
    assert best.on(hardware.find_gpu("H100")).mfu > 0.60


ADAPTERS = Lora(rank=32, alpha=64, dropout=0.05)


@pytest.mark.parametrize(
    ("rows", "passes", "words", "kernels", "lora", "seconds"),
    [
        (128, 1, 18, "none", None, 0.1738),
        (128, 1, 18, "compile", None, 0.1159),
        (128, 1, 18, "liger", None, 0.1372),
        (270, 4, 462, "none", None, 1.634),
        (270, 4, 462, "compile", None, 0.9818),
        (32, 1, 462, "none", ADAPTERS, 0.3331),
    ],
)
def test_the_expected_time_is_near_what_an_h100_needed(rows, passes, words, kernels, lora, seconds):
    # docs/log.md, an H100 at full width: rows of so many labelled tokens, and of 16 and 79 more.
    tokens = rows * (words + (79 if words < 100 else 16 if lora is None else 67))
    prepared, roles = student(QWEN_HALF_BILLION, FULL if lora is None else LANGUAGE, lora)
    images = rows if lora is None else 0  # a stage that trains adapters alone has the image tokens already
    each = PassWork(
        tokens=tokens / passes,
        squared_lengths=1.05 * tokens**2 / rows / passes,
        response_tokens=words * rows / passes,
        patches=196 * images / passes,
        squared_patches=196**2 * images / passes,
    )
    bound = step(prepared, roles, each, passes=passes, kernels=kernels).on(hardware.find_gpu("H100"))
    assert bound.total_s < 0.7 * seconds
    assert bound.usual_s == pytest.approx(seconds, rel=0.15)


def test_a_kernel_takes_the_longer_of_its_bytes_and_its_flops():
    card = hardware.find_gpu("H100")
    kernels = Counter({Kernel("decoder", MATRICES, 989.4e12, 1.0): 1, Kernel("head", POINTWISE, 0.0, 3.35e12): 2})
    bound = StepKernels(kernels=kernels, model_flops=989.4e12, hardware_flops=2 * 989.4e12).on(card)
    assert isinstance(bound, Bound)
    assert bound.device_s == pytest.approx(3, abs=1e-5)
    assert bound.mfu == pytest.approx(1 / 3, abs=1e-5) and bound.hfu == pytest.approx(2 / 3, abs=1e-5)
    assert bound.largest() == ("head", POINTWISE, pytest.approx(2 / 3, abs=1e-5))


def test_what_is_fused_reads_its_inputs_and_writes_what_others_read():
    def operation(reads: list[int], writes: list[int], kind: str = POINTWISE, backward: bool = False):
        return step_trace._Operation(
            "decoder", kind, 0.0, dict.fromkeys(reads, 10), dict.fromkeys(writes, 10), backward
        )

    operations = [
        operation([0], [1]),  # 1 is read by the next alone, and by the way back
        operation([1, 0], [2]),  # 2 is read by the product
        operation([2], [3], MATRICES),
        operation([3, 1], [4], backward=True),
    ]
    fused = DecoderTrace(operations, operations, 0).kernels(compiled=True)
    assert sorted((kernel.kind, kernel.bytes) for kernel in fused.elements()) == [
        (MATRICES, 20),
        (POINTWISE, 20),
        (POINTWISE, 20),
    ]
    assert DecoderTrace(operations, operations, 0).kernels(compiled=False).total() == 4


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_every_class_of_student_is_counted_and_stays_as_it_is(kind: str, tmp_path: Path):
    model, _ = worlds.student(kind, worlds.parts(tmp_path))
    roles = find_parts(model)
    prepared = freeze.prepare(siq_vl.without_weights(model.config, "bfloat16"), roles, FULL, None)
    before = {name: vars(module).get("forward") for name, module in prepared.named_modules()}
    for kernels in ("none", "compile", "liger"):
        bound = step(prepared, roles, work(512, 4), kernels=kernels).on(hardware.find_gpu("L4"))
        assert 0 < bound.mfu < 1
    assert {name: vars(module).get("forward") for name, module in prepared.named_modules()} == before
