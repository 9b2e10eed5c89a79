"""What is frozen has no gradient, no graph, no adapter and no other dtype; a broken freeze names the tensor."""

from pathlib import Path

import pytest
import student_worlds as worlds
import torch

from distill.errors import DistillError
from distill.recipe import Lora
from student import collate, encode, freeze, pictures, stage
from student.model import parts

LORA = Lora(rank=2, alpha=4, dropout=0.0)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def batch_of(model, processor, folder: Path):
    encoder = encode.Encoder(processor, stage.end_ids(model))
    store = pictures.ImageStore(processor, torch.float32)
    examples = encode.encode(worlds.rows(folder, 3), encoder, store, max_length=500, max_pixels=10**6)
    make = collate.Collator(
        examples,
        store,
        image_id=encoder.image_id,
        pad_id=processor.tokenizer.pad_token_id,
        max_pixels=10**6,
        type_name=stage.type_name(model),
    )
    batch = make([{"row": row} for row in range(3)])
    batch.pop("lengths")
    return batch


def checkpointed(model):
    """As trainers do it: checkpoint every layer, and make every input embedding ask for gradients."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    return model.train()


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("train", [("projector",), ("projector", "language"), ("language",)])
@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_no_gradient_and_no_graph_reaches_the_tower(kind, train, checkpointing, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    roles = parts(model)
    prepared = freeze.prepare(model, roles, train, None)
    if checkpointing:
        checkpointed(prepared)
    watch = freeze.TowerWatch(model, roles)
    prepared(**batch_of(model, processor, tmp_path), use_cache=False).loss.backward()
    freeze.prove(prepared, roles, train, dtype=torch.float32, watch=watch, optimizer=None)
    assert watch.calls > 0
    trained = {freeze.role_of(name, roles) for name, p in model.named_parameters() if p.grad is not None}
    assert trained == set(train)


def test_a_frozen_tower_is_tracked_where_nobody_guards_it(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    roles = parts(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(freeze.role_of(name, roles) == "projector")
    watch = freeze.TowerWatch(model, roles)
    checkpointed(model)(**batch_of(model, processor, tmp_path), use_cache=False).loss.backward()
    with pytest.raises(DistillError, match=r"vision tower \(model.vision_model\) requires a gradient"):
        freeze.prove(model, roles, ["projector"], dtype=torch.float32, watch=watch, optimizer=None)


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_adapters_lie_in_the_language_model_only(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    roles = parts(model)
    prepared = freeze.prepare(model, roles, ["language"], LORA)
    adapted = [name for name, _ in prepared.named_parameters() if "lora_" in name]
    assert len(adapted) == 2 * 2 * 7
    assert all(f"{roles.language}.layers." in name for name in adapted)
    prepared(**batch_of(model, processor, tmp_path), use_cache=False).loss.backward()
    freeze.prove(prepared, roles, ["language"], dtype=torch.float32, watch=None, optimizer=None)
    assert {name for name, p in prepared.named_parameters() if p.requires_grad} == set(adapted)


def test_a_projector_can_be_trained_in_full_beside_adapters(world: Path):
    model, _ = worlds.student("siq-vl", world)
    prepared = freeze.prepare(model, parts(model), ["projector", "language"], LORA)
    whole = [name for name, p in prepared.named_parameters() if p.requires_grad and "lora_" not in name]
    assert whole == ["base_model.model.model.connector.modality_projection.proj.weight"]


def test_the_tower_stays_in_eval_mode(world: Path):
    model, _ = worlds.student("siq-vl", world)
    freeze.prepare(model, parts(model), ["language"], None).train()
    assert model.model.text_model.training
    assert not any(module.training for module in model.model.vision_model.modules())


def test_the_table_of_parts_counts_every_tensor_once_and_names_its_dtype(world: Path):
    model, _ = worlds.student("siq-vl", world)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    prepared = freeze.prepare(model.to(torch.bfloat16), parts(model), ["language"], LORA)
    table = {row.part: row for row in freeze.table(prepared, parts(model))}
    assert sum(row.parameters for row in table.values()) == sum(p.numel() for p in prepared.parameters())
    assert {name: row.dtype for name, row in table.items()} == {
        "tower": "bfloat16",
        "projector": "bfloat16",
        "language": "bfloat16",
        "adapters": "float32",
    }
    assert {name for name, row in table.items() if row.trainable} == {"adapters"}
    assert table["tower"].bytes == 2 * table["tower"].parameters


def test_a_gradient_of_a_frozen_tensor_is_named(world: Path):
    model, _ = worlds.student("siq-vl", world)
    freeze.prepare(model, parts(model), ["projector"], None)
    embedding = model.get_input_embeddings().weight
    embedding.grad = torch.zeros_like(embedding)
    with pytest.raises(DistillError, match=r"model.text_model.embed_tokens.weight is frozen but has a gradient"):
        freeze.prove(model, parts(model), ["projector"], dtype=torch.float32, watch=None, optimizer=None)


def test_a_frozen_tensor_in_the_optimizer_or_in_another_dtype_is_named(world: Path):
    model, _ = worlds.student("siq-vl", world)
    roles = parts(model)
    freeze.prepare(model, roles, ["projector"], None)
    everything = torch.optim.SGD(model.parameters())
    with pytest.raises(DistillError, match=r"vision_model\S+ is frozen but the optimizer holds it"):
        freeze.prove(model, roles, ["projector"], dtype=torch.float32, watch=None, optimizer=everything)
    with pytest.raises(
        DistillError, match=r"vision_model\S+ is frozen in torch.float32, the recipe asks for torch.bf"
    ):
        freeze.prove(model, roles, ["projector"], dtype=torch.bfloat16, watch=None, optimizer=None)


def test_a_trainable_tower_is_refused(world: Path):
    model, _ = worlds.student("siq-vl", world)
    freeze.prepare(model, parts(model), ["projector"], None)
    model.model.vision_model.post_layernorm.weight.requires_grad_(True)
    with pytest.raises(DistillError, match=r"vision_model.post_layernorm.weight belongs to the tower"):
        freeze.prove(model, parts(model), ["projector"], dtype=torch.float32, watch=None, optimizer=None)


def test_a_changed_frozen_tensor_shows_in_the_digest_of_its_part(world: Path):
    model, _ = worlds.student("siq-vl", world)
    roles = parts(model)
    freeze.prepare(model, roles, ["projector"], None)
    before = freeze.frozen_sha256(model, roles)
    assert set(before) == {"tower", "language"}
    freeze.require_equal(before, freeze.frozen_sha256(model, roles))
    with torch.no_grad():
        model.model.vision_model.post_layernorm.bias[0] += 1e-7
    with pytest.raises(DistillError, match="frozen tensors of the tower changed"):
        freeze.require_equal(before, freeze.frozen_sha256(model, roles))
