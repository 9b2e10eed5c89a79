"""Adapters learn, merge and load again to the same logits; 4-bit weights stay in the stage that trains on them."""

import copy
import json
import sys
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText
from worlds import student_worlds as worlds

from distill.errors import DistillError, MissingExtra
from distill.recipe.sections.stages import Lora
from student.models import freeze, lora
from student.models.parts import find_parts
from student.train import train
from student.training import freeze_checks

PLAIN = Lora(rank=4, alpha=8, dropout=0.0)
KINDS = {
    "lora": PLAIN,
    "dora": PLAIN.model_copy(update={"dora": True}),
    "rslora": PLAIN.model_copy(update={"rslora": True}),
}
QLORA = PLAIN.model_copy(update={"quantize": "nf4"})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def learn(student, roles, train, batch, steps=3):
    """A few large steps, proven."""
    optimizer = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(steps):
        loss = student(**batch, use_cache=False).loss
        loss.backward()
        freeze_checks.check_frozen(student, roles, train, dtype=torch.float32, tower_watch=None, optimizer=optimizer)
        optimizer.step()
        freeze_checks.check_optimizer_state(student, optimizer)
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]


@torch.no_grad()
def logits(model, batch):
    return model.eval()(**batch, use_cache=False).logits


@pytest.mark.parametrize(
    ("kind", "adapter"), [*((kind, "lora") for kind in worlds.CLASSES), ("siq-vl", "dora"), ("siq-vl", "rslora")]
)
@pytest.mark.parametrize("train", [("language",), ("projector", "language")])
def test_merged_student_and_adapter_folder_say_the_same(kind, adapter, train, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    roles, batch = find_parts(model), worlds.batch(processor, tmp_path)
    start = logits(model, batch)
    model.save_pretrained(tmp_path / "start")
    student = freeze.prepare(model, roles, train, KINDS[adapter])
    learn(student, roles, train, batch)
    learned = logits(student, batch)
    lora.save(student, tmp_path / "adapter", roles.projectors)
    merged = lora.merge(student)
    assert not [name for name, _ in merged.named_parameters() if lora.ADAPTER_MARK in name]
    torch.testing.assert_close(logits(merged, batch), learned, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(learned, start, atol=1e-2)
    again = AutoModelForImageTextToText.from_pretrained(tmp_path / "start")
    torch.testing.assert_close(logits(again, batch), start, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        logits(PeftModel.from_pretrained(again, tmp_path / "adapter"), batch), learned, atol=1e-4, rtol=1e-4
    )


def adapted_layer(dtype: torch.dtype, adapter: Lora = PLAIN) -> tuple[PeftModel, torch.nn.Module]:
    """A linear layer with an adapter that has learned something, in a model of its own."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96)).to(dtype)
    model.config = {}
    adapted = lora.adapt(model, adapter, ["0"])
    layer = adapted.get_submodule("base_model.model.0")
    torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.1)
    return adapted, layer


def pulled(layer: torch.nn.Module, states: torch.Tensor) -> list[torch.Tensor]:
    """Output and gradients of the states and of both matrices, in float64."""
    layer.zero_grad()
    leaf = states.detach().clone().requires_grad_()
    out = layer(leaf)
    out.backward(torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out).to(out.dtype))
    found = [out.detach(), leaf.grad, *(layer.get_submodule(f"lora_{name}.default").weight.grad for name in "AB")]
    return [each.double() for each in found]


@pytest.mark.parametrize("kind", ["lora", "rslora"])
def test_products_of_adapters_over_16_bits_are_right_within_two_roundings(kind: str):
    states = torch.randn(2, 50, 64, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    _, layer = adapted_layer(torch.bfloat16, KINDS[kind])
    ours = pulled(layer, states)
    assert layer(states).dtype == torch.bfloat16
    assert {p.dtype for n, p in layer.named_parameters() if lora.ADAPTER_MARK in n} == {torch.float32}
    del layer.forward
    peft, truth = pulled(layer, states), pulled(layer.double(), states.double())
    for name, found, theirs, right in zip(("output", "states", "A", "B"), ours, peft, truth, strict=True):
        error, theirs_error = ((each - right).norm() / right.norm() for each in (found, theirs))
        assert error < 2**-7 and error < 2 * theirs_error, (name, error, theirs_error)


def test_adapters_over_16_bits_can_be_switched_off_and_have_dropout():
    states = torch.randn(1, 8, 64).to(torch.bfloat16)
    adapted, layer = adapted_layer(torch.bfloat16, PLAIN.model_copy(update={"dropout": 0.5}))
    plain = layer.get_base_layer()(states)
    with adapted.disable_adapter():
        assert torch.equal(adapted(states), plain)
    first, second = (adapted.train()(states) for _ in range(2))
    assert not torch.equal(first, second)
    adapted.eval()
    assert torch.equal(adapted(states), adapted(states)) and not torch.equal(adapted(states), plain)
    assert torch.equal(copy.deepcopy(adapted)(states), adapted(states))


@pytest.mark.parametrize(("dtype", "kind"), [(torch.float32, "lora"), (torch.bfloat16, "dora")])
def test_adapters_over_float32_and_those_of_dora_work_as_peft_has_them(dtype: torch.dtype, kind: str):
    _, layer = adapted_layer(dtype, KINDS[kind])
    assert "forward" not in vars(layer)


def test_the_kinds_of_adapters_differ(world: Path, tmp_path: Path):
    found = {}
    for name, settings in KINDS.items():
        model, _ = worlds.student("siq-vl", world)
        student = freeze.prepare(model, find_parts(model), ["language"], settings)
        layer = model.model.text_model.layers[0].mlp.up_proj
        found[name] = layer.scaling["default"], layer.use_dora["default"]
        assert {p.dtype for n, p in student.named_parameters() if p.requires_grad} == {torch.float32}
    assert found == {"lora": (2.0, False), "dora": (2.0, True), "rslora": (4.0, False)}


def test_adapters_over_bfloat16_are_float32(world: Path):
    model, _ = worlds.student("siq-vl", world)
    student = freeze.prepare(model.to(torch.bfloat16), find_parts(model), ["language"], KINDS["dora"])
    dtypes = {p.dtype for name, p in student.named_parameters() if lora.ADAPTER_MARK in name}
    assert dtypes == {torch.float32}


def test_four_bits_without_bitsandbytes_name_the_extra(world: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    lora.require(PLAIN)
    for ask in (lambda: lora.require(QLORA), lambda: prepared(world)):
        with pytest.raises(MissingExtra, match=r"stages.lora.quantize.*pip install 'cot-distill\[qlora\]'"):
            ask()


def prepared(world: Path, dtype=torch.float32, train=("language",), kind="siq-vl", settings=QLORA):
    model, processor = worlds.student(kind, world)
    roles = find_parts(model)
    return freeze.prepare(model.to(dtype), roles, train, settings), roles, processor


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_only_adapted_layers_of_the_language_model_lie_in_four_bits(kind: str, world: Path):
    pytest.importorskip("bitsandbytes")
    student, roles, _ = prepared(world, torch.bfloat16, kind=kind)
    small = [name for name, p in student.named_parameters() if lora.is_quantized(p)]
    assert len(small) == 2 * 7
    assert all(f".{roles.language}.layers." in name and name.endswith("_proj.base_layer.weight") for name in small)
    rest = {p.dtype for name, p in student.named_parameters() if name not in small and "lora_" not in name}
    assert rest == {torch.bfloat16}


def test_the_table_of_parts_counts_the_numbers_that_four_bits_stand_for(world: Path):
    pytest.importorskip("bitsandbytes")
    rows = {}
    for settings in (PLAIN, QLORA):
        student, roles, _ = prepared(world, torch.bfloat16, settings=settings)
        rows[settings.quantize] = next(row for row in freeze.table(student, roles) if row.part == "language")
    plain, small = rows[None], rows["nf4"]
    assert (plain.parameters, plain.dtype, small.dtype) == (small.parameters, "bfloat16", "bfloat16, nf4")
    layers = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32)
    # Four bits a number; the tables that the scales of tiny layers need are what is beyond that.
    assert small.bytes - (plain.bytes - 2 * layers) >= layers // 2
    tables = 14 * 2 * 256 * 4
    assert small.bytes - (plain.bytes - 2 * layers) - layers // 2 < tables + 14 * 400


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dora", [False, True])
def test_a_student_trained_over_four_bits_is_merged_to_plain_weights(dora, dtype, world: Path, tmp_path: Path):
    pytest.importorskip("bitsandbytes")
    settings = QLORA.model_copy(update={"dora": dora})
    train = ("projector", "language")
    student, roles, processor = prepared(world, dtype, train, settings=settings)
    batch = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in worlds.batch(processor, tmp_path).items()
    }
    before = freeze_checks.frozen_digests(student, roles)
    assert any(name.endswith("up_proj.base_layer.weight.absmax") for name in before)
    optimizer = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], lr=0.02)
    losses = []
    for _ in range(3):
        loss = student.train()(**batch, use_cache=False).loss
        loss.backward()
        freeze_checks.check_frozen(student, roles, train, dtype=dtype, tower_watch=None, optimizer=optimizer)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
        logits(student, batch)
    assert losses[-1] < losses[0]
    freeze_checks.require_equal(before, freeze_checks.frozen_digests(student, roles))
    learned = logits(student, batch)
    merged = lora.merge(student)
    assert type(merged.model.text_model.layers[0].mlp.up_proj) is torch.nn.Linear
    assert {p.dtype for p in merged.parameters()} == {dtype}
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(logits(merged, batch), learned, atol=tolerance, rtol=tolerance)
    merged.save_pretrained(tmp_path / "merged")
    again, found = AutoModelForImageTextToText.from_pretrained(
        tmp_path / "merged", dtype=dtype, output_loading_info=True
    )
    assert not found["missing_keys"] and not found["unexpected_keys"]
    assert "quantization_config" not in again.config.to_dict()
    weights = again.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in merged.state_dict().items())


FOUR_BITS = worlds.stage("reason", steps=3, more='[stages.lora]\nrank = 4\nquantize = "nf4"\n')


def test_a_stage_without_bitsandbytes_stops_before_it_reads_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    worlds.parts(tmp_path)
    worlds.data(tmp_path)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    seen: list[str] = []
    with pytest.raises(MissingExtra, match="cot-distill"):
        train(
            worlds.recipe(tmp_path, FOUR_BITS),
            tmp_path / "run",
            on_progress=lambda progress: seen.append(progress.stage),
        )
    assert seen == [] and not (tmp_path / "run" / "train" / "reason" / "settings.json").exists()


def test_a_recipe_with_four_bits_leaves_a_plain_student(tmp_path: Path):
    pytest.importorskip("bitsandbytes")
    worlds.parts(tmp_path)
    worlds.data(tmp_path)
    train(worlds.recipe(tmp_path, FOUR_BITS), tmp_path / "run")
    folder = tmp_path / "run" / "train" / "reason"
    rows = {row["part"]: row for row in json.loads((folder / "parts.json").read_text())["parts"]}
    assert (rows["tower"]["dtype"], rows["language"]["dtype"]) == ("float32", "float32, nf4")
    assert {value.dtype for value in load_file(folder / "model" / "model.safetensors").values()} == {torch.float32}
    assert "quantization_config" not in json.loads((folder / "model" / "config.json").read_text())


def test_a_changed_scale_of_four_bit_weights_is_named(world: Path):
    pytest.importorskip("bitsandbytes")
    student, roles, _ = prepared(world)
    before = freeze_checks.frozen_digests(student, roles)
    layer = student.get_base_model().model.text_model.layers[1].mlp.down_proj.base_layer
    layer.weight.quant_state.absmax[0] += 1
    with pytest.raises(DistillError, match=r"layers.1.mlp.down_proj.base_layer.weight.absmax is frozen but changed"):
        freeze_checks.require_equal(before, freeze_checks.frozen_digests(student, roles))


def test_four_bits_in_the_tower_are_refused(world: Path):
    pytest.importorskip("bitsandbytes")
    model, _ = worlds.student("siq-vl", world)
    roles = find_parts(model)
    freeze.prepare(model, roles, ["projector"], None)
    lora.quantize(model, [f"{roles.tower}.encoder.layers.0.mlp.fc1"], "nf4")
    with pytest.raises(
        DistillError, match=r"encoder.layers.0.mlp.fc1.weight is in 4 bits outside the language model"
    ):
        freeze_checks.check_frozen(model, roles, ["projector"], dtype=torch.float32, tower_watch=None, optimizer=None)
