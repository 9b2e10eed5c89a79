"""Faults of a checkpoint that runs: pixels out of range, images too small, a tower with its initial weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from student.models.checkpoint_faults import find, unusual_pixels


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, ""),
        ({"do_normalize": False}, ""),
        ({"image_mean": [0.0] * 3, "image_std": [1.0] * 3}, ""),
        ({"do_rescale": False}, "from -1.85 to 979,"),
        ({"rescale_factor": 1 / 255**2}, "from -1.85 to -1.45,"),
        ({"image_mean": None}, ""),
    ],
)
def test_the_values_of_pixels_follow_from_the_settings_of_the_processor(changed: dict[str, Any], told: str) -> None:
    usual = {
        "do_rescale": True,
        "do_normalize": True,
        "image_mean": [0.48, 0.46, 0.41],
        "image_std": [0.26, 0.26, 0.28],
    }
    said = unusual_pixels({**usual, **changed})
    assert told in said and bool(said) == bool(told)


def checkpoint(folder: Path, size: dict[str, int], tower: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    images = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": size}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": images}), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"vision_config": {"image_size": 96}}), encoding="utf-8")
    language = {"language.norm.weight": torch.ones(4)}
    save_file({**language, **tower}, folder / "model.safetensors")
    return folder


def tower(bias: float, norm: float) -> dict[str, torch.Tensor]:
    layers = {f"vision_model.{n}.bias": torch.zeros(4) for n in range(3)}
    return {
        **layers,
        "vision_model.3.bias": torch.tensor([0.0, bias, 0.0]),
        "vision_model.norm.weight": torch.full((4,), norm),
        "vision_model.0.weight": torch.eye(4),
    }


@pytest.mark.parametrize(
    ("size", "weights", "names"),
    [
        ({"longest_edge": 96}, tower(0.1, 1.0), []),
        ({"longest_edge": 96}, tower(0.0, 1.1), []),
        ({"longest_edge": 96}, tower(0.0, 1.0), ["tower_untrained"]),
        ({"height": 6, "width": 6}, tower(0.1, 1.0), ["pixels_unusual"]),
        ({"shortest_edge": 60}, tower(0.1, 1.0), []),
        ({"longest_edge": 96}, {"vision_model.norm.weight": torch.ones(4)}, []),
    ],
)
def test_faults_of_a_checkpoint_are_named(
    size: dict[str, int], weights: dict[str, torch.Tensor], names: list[str], tmp_path: Path
) -> None:
    assert [fault.name for fault in find(checkpoint(tmp_path / "student", size, weights))] == names


def test_a_folder_without_files_has_no_fault(tmp_path: Path) -> None:
    assert list(find(tmp_path)) == []


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("USER: {{ messages[0]['content'] }} ASSISTANT:", True),
        ("<|im_start|>user\n{{ messages[0]['content'] }}<|im_end|>", False),
        ("[{{ messages[0]['content'] }}]{{ eos_token }}", False),
        ("", False),
    ],
)
def test_a_chat_template_that_writes_no_turn_token_of_its_tokenizer_is_of_other_models(
    template: str, named: bool, tmp_path: Path
) -> None:
    tokens = [{"content": token, "special": True} for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}), encoding="utf-8")
    if template:
        (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
    found = list(find(tmp_path))
    assert [fault.name for fault in found] == ["template_foreign"] * named
    if named:
        assert "(<|im_start|>, <|im_end|>)" in found[0].problem
