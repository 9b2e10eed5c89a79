"""The parts of a student are found by name; what is not made of them is refused with the reason."""

from typing import Any

import pytest
import torch
import transformers
from students.student_classes import more
from worlds import student_worlds as worlds

from distill.errors import ModelError
from student.models import freeze
from student.models.parts import find_parts
from student.models.siq_vl import without_weights

SPEECH = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def paligemma() -> Any:
    return more.paligemma(transformers, worlds.tokenizer()).config


def mllama() -> Any:
    speech = {**SPEECH, "num_key_value_heads": 2, "cross_attention_layers": [0], "vocab_size": 9, "pad_token_id": 0}
    sight = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_global_layers": 1,
        "attention_heads": 2,
        "image_size": 16,
    }
    return transformers.MllamaConfig(
        vision_config={**sight, "patch_size": 4, "vision_output_dim": 32, "intermediate_layers_indices": [0]},
        text_config=speech,
    )


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lambda: transformers.Florence2Config(), "has an encoder for the question"),
        (mllama, "has cross-attention to images"),
        (paligemma, "also attend to later tokens of the prompt"),
    ],
    ids=["florence2", "mllama", "paligemma"],
)
def test_a_model_that_is_no_text_with_images_is_refused_with_the_reason_and_another_model(config: Any, reason: str):
    with pytest.raises(ModelError, match=rf"{reason}[\s\S]*Qwen/Qwen2.5-VL-3B-Instruct"):
        find_parts(without_weights(config(), "float32"))


def test_weights_that_belong_to_no_part_are_named():
    model, _ = worlds.other("llava")
    model.model.glasses = torch.nn.Linear(2, 2)
    with pytest.raises(ModelError, match=r"2 of its weights are not in .*: model.glasses.bias, model.glasses.weight"):
        find_parts(model)


@pytest.mark.parametrize("kind", ["llava-next", "llava-onevision"])
def test_the_end_of_a_line_of_an_image_stays_with_the_tower(kind: str):
    model, _ = worlds.other(kind)
    parts = find_parts(model)
    assert parts.fixed == ("model.image_newline",)
    freeze.prepare(model, parts, ("projector", "language"), None)
    frozen = {freeze.role_of(name, parts) for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {freeze.TOWER} and not model.model.image_newline.requires_grad
