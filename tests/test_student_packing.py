"""Rows that share a line don't see each other, and packing changes neither loss nor gradients nor the steps."""

from pathlib import Path

import pytest
import student_worlds as worlds
import torch

from student import collate, encode, packing, pictures, stage

KINDS = ("siq-vl", "llava", "internvl", "smolvlm")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def collator(model, processor, rows, *, line_tokens: int | None) -> collate.Collator:
    encoder = encode.Encoder(processor, stage.end_ids(model))
    store = pictures.ImageStore(processor, torch.float32)
    examples = encode.encode(rows, encoder, store, max_length=500, max_pixels=10**6)
    return collate.Collator(
        examples,
        store,
        image_id=encoder.image_id,
        pad_id=processor.tokenizer.pad_token_id,
        max_pixels=10**6,
        line_tokens=line_tokens,
    )


def loss_and_gradients(model, batch):
    batch = dict(batch)
    batch.pop("lengths")
    labels = batch.pop("labels")
    model.zero_grad()
    logits = model(**batch, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    loss.backward()
    return loss.item(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_packed_and_separate_rows_give_the_same_loss_and_gradients(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    rows = worlds.rows(tmp_path, 9)
    items = [{"row": row} for row in range(9)]
    packed = collator(model, processor, rows, line_tokens=250)(items)
    assert 1 < packed["input_ids"].shape[0] < 9
    loss, gradients = loss_and_gradients(model, packed)
    expected, theirs = loss_and_gradients(model, collator(model, processor, rows, line_tokens=None)(items))
    assert loss == pytest.approx(expected, abs=1e-5)
    assert gradients.keys() == theirs.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, theirs[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_changing_one_row_moves_the_others_by_exactly_nothing(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    batch = collator(model, processor, worlds.rows(tmp_path, 9), line_tokens=250)([{"row": row} for row in range(9)])
    batch.pop("lengths"), batch.pop("labels")
    line = next(line for line, positions in enumerate(batch["position_ids"]) if int((positions == 0).sum()) > 2)
    second = int((batch["position_ids"][line] == 0).nonzero()[1])
    before = model(**batch, use_cache=False).logits[line]
    poisoned = batch["input_ids"].clone()
    poisoned[line, second - 3 : second] = 5
    after = model(**{**batch, "input_ids": poisoned}, use_cache=False).logits[line]
    assert not torch.equal(before[:second], after[:second])
    assert torch.equal(before[second:], after[second:])


def test_a_student_with_spatial_positions_is_not_packed(world: Path):
    for kind, packs in (("qwen3-vl", False), ("llava", True)):
        model, _ = worlds.other(kind)
        assert packing.can_pack(model.config, stage.type_name(model)) == packs


def test_best_fit_loses_no_place_and_overfills_no_bin():
    lengths = [5, 3, 9, 2, 2, 7, 1, 10, 4, 30]
    bins = packing.best_fit(lengths, 10)
    assert sorted(place for places in bins for place in places) == list(range(10))
    assert all(sum(lengths[place] for place in places) <= 10 for places in bins if places != [9])
    assert [9] in bins
    assert len(bins) == 6


def test_the_rows_of_a_step_depend_on_seed_and_epoch_and_not_on_lengths():
    def steps(lengths, seed=0, epoch=0):
        sampler = packing.StepSampler(lengths, batch_size=4, seed=seed)
        sampler.set_epoch(epoch)
        order = list(sampler)
        return [set(order[start : start + 4]) for start in range(0, len(order), 4)], order

    falling, rising = list(range(10, 0, -1)), list(range(1, 11))
    assert steps(falling)[0] == steps(rising)[0]
    assert steps(falling)[0] != steps(falling, epoch=1)[0]
    assert steps(falling)[0] != steps(falling, seed=1)[0]
    assert steps(falling) == steps(falling)
    found, order = steps(falling)
    assert sorted(order) == list(range(10))
    lengths = [[falling[row] for row in order[start : start + 4]] for start in range(0, 10, 4)]
    assert all(step == sorted(step) for step in lengths)
    assert [len(step) for step in found] == [4, 4, 2]


def test_a_curriculum_is_followed_step_by_step():
    sampler = packing.StepSampler([5, 1, 4, 2, 9, 3], batch_size=2, seed=3, shuffle=False)
    sampler.set_epoch(1)
    assert list(sampler) == [1, 0, 3, 2, 5, 4]
