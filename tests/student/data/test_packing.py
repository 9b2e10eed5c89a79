"""Rows that share a line don't see each other, and packing changes neither loss nor gradients nor the steps."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds import student_worlds as worlds

from student.data import collate, encode, packing
from student.data import images as student_images
from student.loss import training_loss
from student.models import attention, inputs, recurrent

WAYS = {"rows": (None, "sdpa"), "masked lines": (250, "sdpa"), "one line": (None, attention.PACKED)}
"""How rows may share a pass: a line each; several lines and a mask; one line whose bounds attention is told."""
RECURRENT = ("qwen3.5", "lfm2-vl")
PADDED = ("gemma3",)
PACKED = [
    *(
        (kind, way)
        for kind in worlds.CLASSES
        for way in ("masked lines", "one line")
        if not (kind in RECURRENT and way == "masked lines")
    ),
    *((kind, "one line") for kind in worlds.ALL_CLASSES[len(worlds.CLASSES) :] if kind not in PADDED),
]
"""Classes that pack, and how; layers with a state read no masks."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def collator(model, processor, rows, *, line_tokens: int | None = None, bounds: bool = False) -> collate.Collator:
    encoder = encode.Encoder.of(model, processor)
    store = student_images.ImageStore(processor, torch.float32)
    examples = encode.encode(rows, encoder, store, encode.RowLimits(500, 10**6))
    return collate.Collator(
        examples,
        store,
        collate.InputForm.of(model, encoder),
        max_pixels=10**6,
        line_tokens=line_tokens,
        bounds=bounds,
        positions=collate.spatial_positions(model),
    )


def layout_of(model, processor, rows, way: str) -> collate.Layout:
    line_tokens, name = WAYS[way]
    attention.use(model, name)
    return collator(model, processor, rows, line_tokens=line_tokens, bounds=name == attention.PACKED)(
        range(len(rows))
    )


def loss_and_gradients(model, layout: collate.Layout):
    model.zero_grad()
    logits = model(**layout.inputs, use_cache=False).logits.flatten(0, 1)[layout.at]
    found = torch.nn.functional.cross_entropy(logits, torch.from_numpy(layout.labels))
    found.backward()
    return found.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def mixed_rows(kind: str, folder: Path):
    """Rows with one image, with two and with none."""
    most = 1 if kind == "llava-onevision" else 2
    return (
        worlds.rows(folder / "a", 5)
        + worlds.rows(folder / "b", 2, images=0)
        + worlds.rows(folder / "c", 2, images=most)
    )


@pytest.mark.parametrize(("kind", "way"), PACKED)
def test_packed_rows_give_the_loss_and_gradients_of_rows_one_by_one(kind: str, way: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    rows = mixed_rows(kind, tmp_path)
    packed = layout_of(model, processor, rows, way)
    assert packed.inputs["input_ids"].shape[0] < len(rows)
    found, gradients = loss_and_gradients(model, packed)
    attention.use(model, "sdpa")
    one_by_one = collator(model, processor, rows)
    expected, theirs = 0.0, Counter()
    for row in range(len(rows)):
        layout = one_by_one([row])
        share = len(layout.labels) / len(packed.labels)
        single, slopes = loss_and_gradients(model, layout)
        expected += share * single
        for name, slope in slopes.items():
            theirs[name] = theirs[name] + share * slope
    assert found == pytest.approx(expected, abs=1e-5)
    assert gradients.keys() == theirs.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, theirs[name], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kind", "way"), PACKED)
def test_changing_one_row_moves_the_others_by_exactly_nothing(kind: str, way: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    layout = layout_of(model, processor, worlds.rows(tmp_path, 9), way)
    positions = layout.inputs["position_ids"]
    orders = positions[0] if positions.ndim == 3 else positions
    line = next(line for line, order in enumerate(orders) if int((order == 0).sum()) > 2)
    second = int((orders[line] == 0).nonzero()[1])
    before = model(**layout.inputs, use_cache=False).logits[line]
    poisoned = layout.inputs["input_ids"].clone()
    poisoned[line, second - 3 : second] = 5
    after = model(**{**layout.inputs, "input_ids": poisoned}, use_cache=False).logits[line]
    assert not torch.equal(before[:second], after[:second])
    assert torch.equal(before[second:], after[second:])


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_the_training_loss_gives_the_gradients_of_plain_cross_entropy(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    layout = layout_of(model, processor, mixed_rows(kind, tmp_path), "one line")
    expected, theirs = loss_and_gradients(model, layout)
    training_loss.attach(model)
    count = len(layout.labels)
    model.zero_grad()
    scored = model(
        **layout.inputs,
        at=torch.from_numpy(layout.at),
        labels=torch.from_numpy(layout.labels),
        weights=torch.full((count,), 1 / count),
    )
    scored.loss.backward()
    assert scored.loss.item() == pytest.approx(expected, abs=1e-5)
    assert scored.nll.mean().item() == pytest.approx(expected, abs=1e-5)
    for name, slope in theirs.items():
        torch.testing.assert_close(model.get_parameter(name).grad, slope, atol=1e-5, rtol=0)


def test_rows_share_a_line_where_every_layer_keeps_them_apart():
    for kind in worlds.CLASSES[1:]:
        model, _ = worlds.other(kind)
        types = inputs.type_name(model)
        assert not attention.why_not_packed(model.config, types, attention.PACKED)
        assert bool(attention.why_not_packed(model.config, types, "sdpa")) == (kind in RECURRENT)
    for kind in worlds.ALL_CLASSES[len(worlds.CLASSES) :]:
        model, _ = worlds.other(kind)
        reason = attention.why_not_packed(model.config, inputs.type_name(model), attention.PACKED)
        assert bool(reason) == (kind in PADDED)
    config = worlds.other("llava")[0].config
    assert attention.why_not_packed(config, "token_type_ids", attention.PACKED)
    config.text_config.layer_types = ["full_attention", "chunked_attention"]
    assert attention.why_not_packed(config, None, attention.PACKED).endswith("of the kind chunked_attention")


def test_students_whose_rows_cannot_share_a_line_are_padded_under_the_attention_that_has_masks():
    model, _ = worlds.other("gemma4")
    assert attention.use_fitting(model, attention.PACKED, "mm_token_type_ids") == ""
    assert attention.of(model) == attention.PACKED
    model.config.text_config.use_bidirectional_attention = "vision"
    assert "see later ones" in attention.use_fitting(model, attention.PACKED, "mm_token_type_ids")
    assert attention.of(model) == "sdpa"


@pytest.mark.parametrize("kind", RECURRENT)
def test_without_bounds_a_recurrent_layer_would_carry_one_row_into_the_next(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    layout = layout_of(model, processor, worlds.rows(tmp_path, 3), "one line")
    second = int((layout.inputs["position_ids"].flatten(0, -2)[0] == 0).nonzero()[1])
    poisoned = layout.inputs["input_ids"].clone()
    poisoned[0, second - 3 : second] = 5
    mixer = model.get_decoder().layers[0].get_submodule(recurrent.MIXERS[model.config.text_config.layer_types[0]])
    outputs = []
    mixer.register_forward_hook(lambda _, __, output: outputs.append(output[0, second:].detach()))
    mixer.forward = lambda *args, **more: _without_bounds(mixer._forward_of_row, *args, **more)
    for ids in (layout.inputs["input_ids"], poisoned):
        model(**{**layout.inputs, "input_ids": ids}, use_cache=False)
    assert not torch.equal(*outputs)


def test_rows_stay_apart_where_a_decoder_layer_passes_no_bounds_on(world: Path, tmp_path: Path):
    # As the layers of LFM2 in transformers 5.17.
    model, processor = worlds.student("lfm2-vl", world)
    layout = layout_of(model, processor, worlds.rows(tmp_path, 3), "one line")
    expected = model(**layout.inputs, use_cache=False).logits
    for layer in model.get_decoder().layers:
        if hasattr(layer, "conv"):
            layer.conv.forward = partial(_without_bounds, layer.conv.forward)
    assert torch.equal(model(**layout.inputs, use_cache=False).logits, expected)


def _without_bounds(forward: Any, *args: Any, **options: Any) -> torch.Tensor:
    return forward(*args, **{name: value for name, value in options.items() if name not in recurrent.OF_LINES})


def test_best_fit_loses_no_place_and_overfills_no_bin():
    lengths = [5, 3, 9, 2, 2, 7, 1, 10, 4, 30]
    bins = packing.best_fit(lengths, 10)
    assert sorted(place for places in bins for place in places) == list(range(10))
    assert all(sum(lengths[place] for place in places) <= 10 for places in bins if places != [9])
    assert [9] in bins
    assert len(bins) == 6


def test_best_fit_keeps_the_image_cap_and_still_fills_lines_with_text():
    lengths, images = [10] * 12, [1] * 6 + [0] * 6
    bins = packing.best_fit(lengths, 60, images=images, max_images=3)
    assert len(bins) == 2
    assert all(sum(images[place] for place in places) <= 3 and len(places) == 6 for places in bins)


def test_bins_without_room_for_the_images_of_a_row_are_not_looked_at_one_by_one():
    looks = []

    class Images(int):
        def __radd__(self, held: int) -> int:
            looks.append(held)
            return int(self) + held

    bins = packing.best_fit([100] * 500, 10_000, images=[Images(3)] * 500, max_images=4)
    assert [len(places) for places in bins] == [1] * 500 and len(looks) < 4 * 500


def test_best_fit_fills_97_percent_of_a_long_tailed_mix():
    chance = np.random.default_rng(0)
    lengths = np.clip(chance.lognormal(5.5, 0.9, 20_000), 20, 4096).astype(int).tolist()
    bins = packing.best_fit(lengths, 8192, images=[1] * len(lengths), max_images=64)
    assert sum(lengths) / (len(bins) * 8192) > 0.97


def test_balanced_bins_keep_both_budgets_and_are_about_equal():
    chance = np.random.default_rng(1)
    lengths = chance.integers(20, 400, 64).tolist()
    images = chance.integers(0, 3, 64).tolist()
    bins = packing.balanced(lengths, 3000, images=images, max_images=20, multiple=2)
    assert sorted(place for places in bins for place in places) == list(range(64))
    assert len(bins) % 2 == 0
    loads = [sum(lengths[place] for place in places) for places in bins]
    assert max(loads) <= 3000 and max(loads) < 1.05 * min(loads)
    assert all(sum(images[place] for place in places) <= 20 for places in bins)


def test_fewer_rows_than_processes_leave_some_bins_empty():
    assert packing.balanced([5], 100, images=[1], max_images=8, multiple=2) == [[0], []]


def test_rows_above_the_budget_have_a_bin_each_and_none_is_empty():
    bins = packing.balanced([500, 400, 300], 10, images=[1, 1, 1], max_images=8)
    assert sorted(bins) == [[0], [1], [2]]
