"""Memory foretold without weights is what a real step holds; checkpointing, adapters and four bits count."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Idefics3Config
from worlds import student_worlds as worlds

from distill.machine import hardware
from distill.recipe.sections.stages import Lora, Stage
from student.loss import training_loss
from student.models import attention, freeze, siq_vl
from student.models.parts import find_parts
from student.training.cost import memory

TEXT = {
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 600,
    "tie_word_embeddings": True,
}
SIGHT = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
LENGTH, ROWS, IMAGE_TOKENS, IMAGE_ID = 256, 4, 4, 7
TRAINED = {
    "projector": (("projector",), None),
    "full": (("projector", "language"), None),
    "adapters": (("language",), Lora(rank=4, alpha=8, dropout=0.0)),
}


def outline(dtype: str = "float32"):
    sight = {**SIGHT, "image_size": 32, "patch_size": 8}
    joined = {"scale_factor": 2, "image_token_id": IMAGE_ID, "tie_word_embeddings": True}
    return siq_vl.without_weights(Idefics3Config(text_config=TEXT, vision_config=sight, **joined), dtype)


def stage(trained: str = "full", **more) -> Stage:
    train, lora = TRAINED[trained]
    return Stage(name="only", data="traces", train=train, lora=lora, micro_batch_tokens=ROWS * LENGTH, **more)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("trained", TRAINED)
def test_a_step_on_real_tensors_takes_the_estimated_memory(trained: str, checkpointing: bool):
    without = outline()
    roles = find_parts(without)
    found = memory.of_stage(without, roles, stage(trained))
    foretold = found.needed(tokens=ROWS * LENGTH, patches=ROWS * 16, checkpointing=checkpointing) - found.static

    model = type(without)(without.config)
    attention.use(model, attention.PACKED)
    training_loss.attach(model)
    student = freeze.prepare(model, roles, *TRAINED[trained]).train()
    for parameter in student.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    ids = torch.randint(8, 600, (ROWS, LENGTH))
    ids[:, :IMAGE_TOKENS] = IMAGE_ID
    with memory.Alive(student) as alive:
        pixels = torch.randn(ROWS, 1, 3, 32, 32)
        inputs = {"input_ids": ids, "pixel_values": pixels, "labels": ids.flatten()}
        at = torch.arange(ROWS * LENGTH)
        student(**inputs, at=at, weights=torch.ones(ROWS * LENGTH)).loss.backward()
    assert foretold == pytest.approx(alive.peak, rel=0.1)


@pytest.mark.parametrize("kind", (*worlds.CLASSES, "qwen2-vl", "mistral3"))
def test_every_class_of_student_can_be_estimated_and_stays_as_it_is(kind: str, tmp_path: Path):
    model, _ = worlds.student(kind, worlds.parts(tmp_path))
    before = {name: (p.requires_grad, p.device) for name, p in model.named_parameters()}
    few = stage().model_copy(update={"micro_batch_tokens": 512})  # recurrent layers go chunk by chunk
    found = memory.of_stage(model, find_parts(model), few)
    assert 0 < found.gradients <= found.weights
    assert found.optimizer == 2 * found.gradients
    assert found.weights >= 4 * sum(p.numel() for p in model.parameters())
    less = found.needed(tokens=1024, patches=64, checkpointing=True)
    assert less < found.needed(tokens=1024, patches=64, checkpointing=False)
    assert {name: (p.requires_grad, p.device) for name, p in model.named_parameters()} == before


def test_the_largest_micro_batch_takes_what_there_is_and_no_more():
    without = outline("bfloat16")
    found = memory.of_stage(without, find_parts(without), stage())
    for checkpointing in (False, True):
        most = found.most_tokens(1 << 30, patches_per_token=0.5, checkpointing=checkpointing)
        at_most = found.needed(tokens=most, patches=most / 2, checkpointing=checkpointing)
        assert 0.999 * (1 << 30) < at_most <= 1 << 30
    assert found.most_tokens(found.static, patches_per_token=0.5, checkpointing=True) == 0


def test_four_bits_shrink_the_weights_under_adapters_alone():
    without = outline("bfloat16")
    lora = Lora(rank=4, alpha=8)
    found, quantized = (
        memory.of_stage(
            without, find_parts(without), stage().model_copy(update={"train": ("language",), "lora": each})
        )
        for each in (lora, lora.model_copy(update={"quantize": "nf4"}))
    )
    per_layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256
    assert found.weights - quantized.weights == pytest.approx(6 * per_layer * (2 - 0.516), rel=0.01)
    assert quantized.gradients == found.gradients
    assert quantized.micro_batch(False) == found.micro_batch(False)


def test_checkpointing_is_switched_on_where_a_stage_does_not_fit_without_it():
    model, _ = worlds.other("llava")
    stage = Stage(name="s", data="traces", train=("language",), micro_batch_tokens=512)
    roles = find_parts(model)
    without, with_it = (
        memory.of_stage(model, roles, stage).needed(tokens=512, patches=512, checkpointing=checkpointing)
        for checkpointing in (False, True)
    )
    assert with_it < without

    def settled(available: float | None, asked: bool | str = "auto") -> bool:
        found = stage.model_copy(update={"gradient_checkpointing": asked})
        return memory.settled(found, model, roles, patches_per_token=1.0, available=available).gradient_checkpointing

    assert settled(without - 1) and not settled(without) and not settled(None)
    assert settled(None, True) and not settled(0, False)


def test_a_device_with_room_takes_wider_passes_unless_the_recipe_names_their_tokens():
    model, _ = worlds.other("llava")
    roles = find_parts(model)

    def settled(available: float | None, **keys: Any) -> Stage:
        stage = Stage(name="s", data="traces", train=("language",), **keys)
        return memory.settled(stage, model, roles, patches_per_token=1.0, available=available)

    assert settled(None).pass_tokens == settled(0).pass_tokens == 8192
    assert settled(2**50).pass_tokens == memory.WIDEST_PASS
    assert settled(2**50, micro_batch_tokens=512).pass_tokens == 512
    # Steps of so many tokens are packed by the tokens of a pass: another card must make the same steps.
    assert settled(2**50, batch_tokens=65_536).pass_tokens == 8192
    assert settled(2**50, batch_tokens=4096).pass_tokens == 4096
    narrow = settled(None)
    needed = memory.of_stage(model, roles, narrow).needed
    middle = needed(tokens=20_000, patches=20_000, checkpointing=False)
    found = settled(middle / memory.WIDENED_SHARE)
    assert not found.gradient_checkpointing
    assert found.pass_tokens == pytest.approx(20_000, rel=0.01)


def test_a_stage_that_goes_on_has_the_passes_with_which_it_began():
    def tokens(now: int, begun: int | None, **keys: Any) -> int:
        asked = Stage(name="s", data="traces", train=("language",), **keys)
        settled = asked.model_copy(update={"micro_batch_tokens": now})
        return memory.as_begun(settled, asked, {} if begun is None else {"micro_batch_tokens": begun})

    assert tokens(32_768, None) == 32_768
    assert tokens(32_768, 20_000) == 20_000, "a card with more free memory than at the start"
    assert tokens(16_384, 20_000) == 16_384, "a card with less"
    assert tokens(32_768, 512) == 8192, "of an earlier setting of the recipe"
    assert tokens(512, 20_000, micro_batch_tokens=512) == 512


def test_a_card_that_others_use_has_what_they_leave(monkeypatch: pytest.MonkeyPatch):
    def available(free: float, reserved: float = 0.0) -> float:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free * 2**30), 24 * 2**30))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: int(reserved * 2**30))
        found = memory.available(torch.device("cuda"))
        assert found is not None
        return found

    assert available(23.5) == hardware.usable_bytes(24 * 2**30)
    assert available(10) == 0.5 * available(20)
    assert available(20) < available(23.5)
    assert available(10, reserved=4) == available(14)
    assert memory.available(torch.device("cpu")) is None
