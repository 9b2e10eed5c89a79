"""What is frozen has no gradient, graph, adapter, state or other dtype; a broken freeze names the tensor."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from worlds import student_worlds as worlds

from distill.errors import DistillError, ModelError
from distill.recipe.sections.stages import Lora
from student.models import freeze
from student.models.parts import find_parts
from student.training import freeze_checks

ADAPTED_LAYERS = {
    "qwen3.5": 2 * (5 + 3) + 7,
    "gemma4": 2 * (7 + 2) + 2 * (5 + 2) + 1,
    "lfm2-vl": 2 * (2 + 3) + 7,
}
"""Linear layers of the language models that are not two layers of attention (4) and a gated MLP (3)."""
LORA = Lora(rank=2, alpha=4, dropout=0.0)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def checkpointed(model):
    """As trainers do it: checkpoint every layer, and make every input embedding ask for gradients."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    return model.train()


def frozen(world: Path, train=("projector",), lora=None, kind="siq-vl"):
    """A student that a stage is about to train, with its parts."""
    model, _ = worlds.student(kind, world)
    roles = find_parts(model)
    return freeze.prepare(model, roles, train, lora), roles


def prove(model, roles, train=("projector",), *, dtype=torch.float32, watch=None, optimizer=None):
    freeze_checks.check_frozen(model, roles, train, dtype=dtype, tower_watch=watch, optimizer=optimizer)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("train", [("projector",), ("projector", "language"), ("language",)])
@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_no_gradient_and_no_graph_reaches_what_is_frozen(kind, train, checkpointing, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    roles = find_parts(model)
    prepared = freeze.prepare(model, roles, train, None)
    if checkpointing:
        checkpointed(prepared)
    watch = freeze_checks.TowerWatch(model, roles)
    outputs: list[torch.Tensor] = []
    model.get_submodule(roles.projector).register_forward_hook(lambda _, __, output: outputs.append(output))
    prepared(**worlds.batch(processor, tmp_path), use_cache=False).loss.backward()
    prove(prepared, roles, train, watch=watch)
    assert watch.calls > 0
    assert outputs and all(output.requires_grad == ("projector" in train) for output in outputs)
    trained = {freeze.role_of(name, roles) for name, p in model.named_parameters() if p.grad is not None}
    assert trained == set(train)


def test_every_projector_of_a_student_with_deep_features_is_trained(world: Path, tmp_path: Path):
    model, processor = worlds.student("qwen3-vl", world)
    roles = find_parts(model)
    assert roles.further_projectors == ("model.visual.deepstack_merger_list.0",)
    freeze.prepare(model, roles, ("projector",), None)
    model(**worlds.batch(processor, tmp_path), use_cache=False).loss.backward()
    for name in roles.projectors:
        module = model.get_submodule(name)
        assert module.training and all(float(weight.grad.abs().sum()) for weight in module.parameters())
    assert not any(block.training for block in model.get_submodule("model.visual.blocks"))
    assert freeze.role_of("model.visual.deepstack_merger_list.0.norm.weight", roles) == "projector"


def test_a_frozen_tower_is_tracked_where_nobody_guards_it(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    roles = find_parts(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(freeze.role_of(name, roles) == "projector")
    watch = freeze_checks.TowerWatch(model, roles)
    checkpointed(model)
    model.get_submodule(roles.tower).eval()
    model(**worlds.batch(processor, tmp_path), use_cache=False).loss.backward()
    with pytest.raises(DistillError, match=r"the output of the frozen model.vision_model\S+ requires a gradient"):
        prove(model, roles, watch=watch)


def test_a_graph_through_a_tower_that_is_not_called_itself_is_found(world: Path, tmp_path: Path):
    model, roles = frozen(world)
    tower = model.get_submodule(roles.tower)
    watch = freeze_checks.TowerWatch(model, roles)
    pixels = torch.randn(1, 3, 16, 16)
    mask = torch.ones(1, 4, 4, dtype=torch.bool)
    checkpointed(model)
    tower.encoder(inputs_embeds=tower.embeddings(pixel_values=pixels, patch_attention_mask=mask))
    assert watch.calls == 0 and any("vision_model.encoder.layers.0" in name for name in watch.tracked)


def test_an_output_made_to_ask_for_gradients_is_found(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    roles = find_parts(model)
    freeze.prepare(model, roles, ["language"], None)

    def ask(_module, _inputs, output):
        output.last_hidden_state.requires_grad_(True)

    model.get_submodule(roles.tower).register_forward_hook(ask)
    watch = freeze_checks.TowerWatch(model, roles)
    model(**worlds.batch(processor, tmp_path), use_cache=False).loss.backward()
    with pytest.raises(DistillError, match=r"the output of the frozen model.vision_model requires a gradient"):
        prove(model, roles, ["language"], watch=watch)


@pytest.mark.parametrize("kind", worlds.CLASSES)
def test_adapters_lie_in_the_language_model_only(kind: str, world: Path, tmp_path: Path):
    model, processor = worlds.student(kind, world)
    roles = find_parts(model)
    prepared = freeze.prepare(model, roles, ["language"], LORA)
    adapted = [name for name, _ in prepared.named_parameters() if "lora_" in name]
    assert len(adapted) == 2 * ADAPTED_LAYERS.get(kind, 2 * 7)
    assert all(f"{roles.language}." in name for name in adapted)
    prepared(**worlds.batch(processor, tmp_path), use_cache=False).loss.backward()
    prove(prepared, roles, ["language"])
    assert {name for name, p in prepared.named_parameters() if p.requires_grad} == set(adapted)


def test_a_projector_can_be_trained_in_full_beside_adapters(world: Path):
    prepared, _ = frozen(world, ["projector", "language"], LORA)
    whole = [name for name, p in prepared.named_parameters() if p.requires_grad and "lora_" not in name]
    assert whole == ["base_model.model.model.connector.modality_projection.proj.weight"]


@pytest.mark.parametrize(("train", "lora"), [("language", None), ("language", LORA), ("projector", None)])
def test_tied_embeddings_are_one_tensor_with_one_fate(train, lora, world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    embedding = model.get_input_embeddings().weight
    assert model.lm_head.weight is embedding
    roles = find_parts(model)
    before = embedding.detach().clone()
    prepared = freeze.prepare(model, roles, [train], lora)
    digests = freeze_checks.frozen_digests(prepared, roles)
    trainable = [p for p in prepared.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=0.1)
    prepared(**worlds.batch(processor, tmp_path), use_cache=False).loss.backward()
    prove(prepared, roles, [train], optimizer=optimizer)
    optimizer.step()
    freeze_checks.check_optimizer_state(prepared, optimizer)
    freeze_checks.require_equal(digests, freeze_checks.frozen_digests(prepared, roles))
    whole = train == "language" and lora is None
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert sum(p is embedding for p in trainable) == whole
    assert torch.equal(embedding, before) != whole


def test_a_tensor_that_two_parts_share_is_not_trained_and_frozen_at_once(world: Path):
    model, _ = worlds.student("siq-vl", world)
    model.model.connector.modality_projection.proj.weight = model.model.text_model.layers[0].mlp.up_proj.weight
    with pytest.raises(ModelError, match=r"proj.weight and \S+up_proj.weight are one tensor"):
        freeze.prepare(model, find_parts(model), ["projector"], None)


def test_the_tower_and_a_frozen_projector_stay_in_eval_mode(world: Path):
    model, roles = frozen(world, ["language"])
    model.train()
    assert model.model.text_model.training
    for part in (roles.tower, roles.projector):
        assert not any(module.training for module in model.get_submodule(part).modules())
    model.model.vision_model.encoder.layers[1].mlp.train()
    for parameter in model.model.text_model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(DistillError, match=r"vision_model.encoder.layers.1.mlp is frozen but in training mode"):
        prove(model, roles, ["language"])


def test_the_same_model_can_be_prepared_for_one_stage_after_another(world: Path, tmp_path: Path):
    model, processor = worlds.student("siq-vl", world)
    roles = find_parts(model)
    for train in (["language"], ["projector"], ["language"]):
        model.zero_grad()
        freeze.prepare(model, roles, train, None).train()
        assert model.get_submodule(roles.projector).training == ("projector" in train)
        model(**worlds.batch(processor, tmp_path), use_cache=False).loss.backward()
        prove(model, roles, train)


def test_a_copy_of_a_guarded_model_uses_its_own_tower(world: Path):
    model, roles = frozen(world)
    twin = copy.deepcopy(model)
    tower = twin.get_submodule(roles.tower)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter.zero_()
    pixels = torch.randn(1, 3, 16, 16)
    mask = torch.ones(1, 4, 4, dtype=torch.bool)
    states = [m.get_submodule(roles.tower)(pixels, patch_attention_mask=mask)[0] for m in (model, twin)]
    assert states[0].abs().sum() > 0 and states[1].abs().sum() == 0 and not states[1].requires_grad


def test_the_table_of_parts_counts_every_tensor_once_and_names_its_dtype(world: Path):
    model, _ = worlds.student("siq-vl", world)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    prepared = freeze.prepare(model.to(torch.bfloat16), find_parts(model), ["language"], LORA)
    table = {row.part: row for row in freeze.table(prepared, find_parts(model))}
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
    model, roles = frozen(world)
    embedding = model.get_input_embeddings().weight
    embedding.grad = torch.zeros_like(embedding)
    with pytest.raises(DistillError, match=r"model.text_model.embed_tokens.weight is frozen but has a gradient"):
        prove(model, roles)


def test_a_frozen_tensor_in_the_optimizer_or_in_another_dtype_is_named(world: Path):
    model, roles = frozen(world)
    everything = torch.optim.SGD(model.parameters())
    with pytest.raises(DistillError, match=r"vision_model\S+ is frozen but the optimizer holds it"):
        prove(model, roles, optimizer=everything)
    with pytest.raises(
        DistillError, match=r"vision_model\S+ is frozen in torch.float32, the recipe asks for torch.bf"
    ):
        prove(model, roles, dtype=torch.bfloat16)


def test_what_is_to_be_trained_and_is_not_in_the_optimizer_is_named(world: Path):
    model, roles = frozen(world, ["language"])
    some = torch.optim.SGD([model.get_input_embeddings().weight])
    with pytest.raises(DistillError, match=r"text_model.layers.0\S+ is to be trained but the optimizer doesn't hold"):
        prove(model, roles, ["language"], optimizer=some)


def test_optimizer_state_of_a_frozen_tensor_is_named(world: Path):
    model, _ = frozen(world)
    norm = model.model.vision_model.post_layernorm.weight
    norm.requires_grad_(True)
    norm.grad = torch.ones_like(norm)
    optimizer = torch.optim.AdamW([norm])
    optimizer.step()
    norm.requires_grad_(False)
    # The tensor has left the groups, its moments have not.
    optimizer.param_groups[0]["params"] = [model.model.connector.modality_projection.proj.weight]
    with pytest.raises(DistillError, match=r"post_layernorm.weight is frozen but the optimizer keeps state of it"):
        freeze_checks.check_optimizer_state(model, optimizer)


def test_a_trainable_tower_is_refused(world: Path):
    model, roles = frozen(world)
    model.model.vision_model.post_layernorm.weight.requires_grad_(True)
    with pytest.raises(DistillError, match=r"vision_model.post_layernorm.weight belongs to the tower"):
        prove(model, roles)


def test_a_trainable_buffer_is_refused(world: Path):
    model, roles = frozen(world)
    model.model.text_model.register_buffer("temperature", torch.ones(1, requires_grad=True))
    with pytest.raises(DistillError, match=r"text_model.temperature is a buffer but asks for a gradient"):
        prove(model, roles)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"target_modules": ["q_proj"]}, r"vision_model\S+q_proj.lora_A.default.weight"),
        ({"target_modules": ["up_proj", "proj"]}, r"connector\S+lora_A.default.weight is an adapter outside"),
        ({"target_modules": ["up_proj", "lm_head"]}, r"lm_head.lora_A.default.weight is an adapter outside"),
        (
            {"target_modules": ["up_proj"], "modules_to_save": ["embed_tokens"]},
            r"embed_tokens.modules_to_save.default.weight is trained in full",
        ),
        (
            {"target_modules": ["up_proj"], "modules_to_save": ["post_layernorm"]},
            r"post_layernorm.modules_to_save.default.weight belongs to the tower",
        ),
    ],
    ids=["by name", "projector", "head", "embedding", "tower norm"],
)
def test_adapters_that_peft_puts_in_other_places_are_refused(config, message, world: Path):
    from peft import LoraConfig, get_peft_model

    model, roles = frozen(world, ["projector", "language"])
    wrapped = get_peft_model(model, LoraConfig(r=2, **config))
    with pytest.raises(DistillError, match=message):
        prove(wrapped, roles, ["projector", "language"])


def test_an_adapted_output_head_is_refused_and_never_a_target(world: Path, monkeypatch: pytest.MonkeyPatch):
    from peft import LoraConfig, get_peft_model

    model, roles = frozen(world, ["language"])
    # A head inside the language model, as some models of other people have it.
    head = model.model.text_model.layers[0].mlp.up_proj
    monkeypatch.setattr(model, "get_output_embeddings", lambda: model.model.text_model.layers[0].mlp.up_proj)
    assert model.get_output_embeddings() is head
    assert "model.text_model.layers.0.mlp.up_proj" not in freeze.lora_targets(model, roles)
    wrapped = get_peft_model(model, LoraConfig(r=2, target_modules=[f"{roles.language}.layers.0.mlp.up_proj"]))
    with pytest.raises(
        DistillError, match=r"the output head has an adapter or lies in 4 bits \(lora_A.default.weight"
    ):
        prove(wrapped, roles, ["language"])


def test_a_changed_frozen_tensor_or_buffer_is_named(world: Path):
    model, roles = frozen(world)
    model.model.connector.register_buffer("scale_of_trained_part", torch.ones(1))
    model.model.vision_model.register_buffer("running_mean", torch.zeros(4))
    before = freeze_checks.frozen_digests(model, roles)
    assert set(freeze_checks.by_role(before, roles)) == {"tower", "language"}
    model.model.connector.scale_of_trained_part += 1
    freeze_checks.require_equal(before, freeze_checks.frozen_digests(model, roles))
    for name in ("post_layernorm.bias", "running_mean"):
        tensor = dict(model.model.vision_model.state_dict())[name]
        tensor[0] += 1e-7
        after = freeze_checks.frozen_digests(model, roles)
        with pytest.raises(DistillError, match=f"model.vision_model.{name} is frozen but changed during the stage"):
            freeze_checks.require_equal(before, after)
        assert freeze_checks.by_role(before, roles)["tower"] != freeze_checks.by_role(after, roles)["tower"]
        before = after


def test_running_statistics_of_a_frozen_tower_stand_still(world: Path, tmp_path: Path):
    model, _ = worlds.student("siq-vl", world)
    norm = nn.BatchNorm1d(16)
    model.model.vision_model.add_module("statistics", norm)
    roles = find_parts(model)
    freeze.prepare(model, roles, ["projector"], None)
    before = freeze_checks.frozen_digests(model, roles)
    assert "model.vision_model.statistics.running_mean" in before
    model.train()
    norm(torch.randn(4, 16))
    freeze_checks.require_equal(before, freeze_checks.frozen_digests(model, roles))


@pytest.mark.parametrize("checkpointing", [True, False])
def test_plain_trl_tracks_a_frozen_tower_once_it_checkpoints_and_a_guarded_one_stays_out(
    checkpointing: bool, tmp_path: Path
):
    """TRL checkpoints by default: the tower's graph then costs a recomputation and a backward pass for nothing."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    tracked = {}
    for guarded in (False, True):
        model, processor = worlds.other("smolvlm")
        roles = find_parts(model)
        if guarded:
            freeze.prepare(model, roles, ["projector"], None)
        else:
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(freeze.role_of(name, roles) == "projector")
        outputs: list[torch.Tensor] = []
        tower = model.get_submodule(roles.tower)
        tower.register_forward_hook(lambda _, __, output, seen=outputs: seen.append(output.last_hidden_state))
        more = {} if checkpointing else {"gradient_checkpointing": False}
        settings = SFTConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=2,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataset_kwargs={"skip_prepare_dataset": True},
            **more,
        )
        assert settings.gradient_checkpointing == checkpointing
        before = freeze_checks.frozen_digests(model, roles)
        SFTTrainer(
            model,
            settings,
            data_collator=lambda rows, processor=processor: worlds.batch(processor, tmp_path, len(rows)),
            train_dataset=Dataset.from_dict({"row": [0, 1]}),
            processing_class=processor,
        ).train()
        freeze_checks.require_equal(before, freeze_checks.frozen_digests(model, roles))
        tracked[guarded] = [output.requires_grad for output in outputs]
    assert tracked == {False: [checkpointing], True: [False]}
