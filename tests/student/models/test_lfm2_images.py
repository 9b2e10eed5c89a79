"""LFM2-VL's images on PIL: whole or in tiles as transformers cuts them, and as many tokens as the model makes."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from servers import vllm_server
from worlds import student_worlds as worlds

from student.models.lfm2_images import Lfm2VlImageProcessorPil

SIZES = [(16, 16), (40, 24), (33, 47), (64, 64), (130, 40), (100, 300), (1, 1), (224, 126)]
NARROW = (5, 90)
"""Such an image has more patches than the most that transformers allows for."""
SETTINGS = {"encoder_patch_size": 4, "tile_size": 16, "min_image_tokens": 2, "max_image_tokens": 6, "max_tiles": 6}
REAL = """
import sys
import numpy as np
from PIL import Image
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
processor = Lfm2VlImageProcessor(**{settings})
for index in range({count}):
    image = Image.open(f"{folder}/{{index}}.png")
    made = processor(images=[image], return_row_col_info=True, return_tensors="np")
    np.savez(f"{folder}/{{index}}.npz", **{{name: np.asarray(value) for name, value in made.items()}})
"""


def make_images(*sizes: tuple[int, int]) -> list[Image.Image]:
    """Smooth ones: where colours jump, two ways to resize differ more."""
    made = []
    for width, height in sizes:
        across, down = np.meshgrid(np.linspace(0, 3, width), np.linspace(0, 2, height))
        channels = [np.sin(across + shift) * np.cos(down) for shift in range(3)]
        made.append(Image.fromarray((127 + 120 * np.stack(channels, -1)).astype(np.uint8)))
    return made


def test_an_image_has_as_many_tokens_as_the_model_makes_of_it():
    model, processor = worlds.other("lfm2-vl")
    for image in make_images(*SIZES, NARROW):
        made = processor(text="<image>", images=[image], return_tensors="pt")
        tokens = int((made["input_ids"] == model.config.image_token_id).sum())
        with torch.no_grad():
            states = model.model.get_image_features(
                **{name: made[name] for name in ("pixel_values", "spatial_shapes", "pixel_attention_mask")}
            ).pooler_output
        assert sum(len(each) for each in states) == tokens


def test_a_large_image_is_cut_into_tiles_and_keeps_a_thumbnail():
    made = Lfm2VlImageProcessorPil(**SETTINGS)(
        images=[Image.new("RGB", (96, 32), (255, 0, 0))], return_row_col_info=True, return_tensors="np"
    )
    assert (made["image_rows"], made["image_cols"]) == ([1], [3])
    assert made["pixel_values"].shape == (4, 24, 48)  # three tiles and the whole, padded to one number of patches
    assert made["spatial_shapes"].tolist() == [[4, 4]] * 3 + [[2, 8]]
    assert made["pixel_attention_mask"].sum(1).tolist() == [16] * 4
    red = made["pixel_values"][0, :16].reshape(-1, 3)
    assert np.allclose(red, [1, -1, -1]) and not made["pixel_values"][0, 16:].any()


@pytest.mark.vllm
@pytest.mark.skipif(bool(vllm_server.why_not()), reason=vllm_server.why_not() or "-")
def test_it_cuts_and_counts_as_the_class_of_transformers_that_needs_torchvision(tmp_path: Path):
    for index, image in enumerate(make_images(*SIZES)):
        image.save(tmp_path / f"{index}.png")
    code = REAL.format(settings=SETTINGS, count=len(SIZES), folder=tmp_path)
    subprocess.run([str(vllm_server.interpreter()), "-c", code], check=True, timeout=120)
    for index, image in enumerate(make_images(*SIZES)):
        expected = np.load(tmp_path / f"{index}.npz")
        found = Lfm2VlImageProcessorPil(**SETTINGS)(images=[image], return_row_col_info=True, return_tensors="np")
        for name in expected.files:
            mine = np.asarray(found[name])
            if name == "pixel_values":
                assert np.abs(mine - expected[name]).max() <= 2.5 / 127.5
            else:
                assert mine.reshape(-1).tolist() == expected[name].reshape(-1).tolist(), (name, SIZES[index])
