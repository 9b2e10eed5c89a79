"""GGUF files hold the student: its linear layer in llama.cpp's projectors, its decoder, its words; or are refused."""

from pathlib import Path
from typing import Any

import pytest

gguf = pytest.importorskip("gguf")

import numpy as np
import torch
from jinja2 import Template
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from typer.testing import CliRunner
from worlds import student_worlds as worlds

from distill.cli import app
from distill.errors import ModelError, RecipeError
from student.export.gguf.files import MMPROJ, MODEL, tensors_of, write_gguf
from student.export.gguf.tokenizer import chat_template, tokenizer_settings, tokens_around
from student.export.gguf.verify import compare_tensors
from student.export.gguf.vision import Tensors, swapped_name, vision_tensors
from student.models import siq_vl
from teacher.engines.llama_cpp.llama_server import find_llama_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return worlds.parts(tmp_path_factory.mktemp("world"))


def student(folder: Path, shuffle: int = 2) -> tuple[PreTrainedModel, Any]:
    """A random student whose biases and norms are not the zeros and ones that would hide a forgotten weight."""
    model, processor = siq_vl.build(str(folder / "vision"), str(folder / "language"), shuffle)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_(1.0, 0.5)
    return model.eval(), processor


def normalised(hidden: torch.Tensor, tensors: Tensors, epsilon: float) -> torch.Tensor:
    weight, bias = tensors["v.post_ln.weight"], tensors["v.post_ln.bias"]
    return functional.layer_norm(hidden, hidden.shape[-1:], weight, bias, epsilon)


def adapter(features: torch.Tensor, tensors: Tensors, epsilon: float) -> torch.Tensor:
    """GLM-Edge's projector, as llama.cpp computes it from `adapter.*`, without the tokens around it."""
    side = int(features.shape[1] ** 0.5)
    grid = features.transpose(1, 2).reshape(1, -1, side, side)
    value = functional.conv2d(grid, tensors["adapter.conv.weight"], tensors["adapter.conv.bias"], stride=2)
    value = value.flatten(2).transpose(1, 2) @ tensors["adapter.linear.linear.weight"].T
    norm, bias = (tensors[f"adapter.linear.norm1.{kind}"] for kind in ("weight", "bias"))
    value = functional.gelu(functional.layer_norm(value, value.shape[-1:], norm, bias, epsilon), approximate="tanh")
    gate, up = (value @ tensors[f"adapter.linear.{name}.weight"].T for name in ("gate", "dense_h_to_4h"))
    return functional.silu(gate) * up @ tensors["adapter.linear.dense_4h_to_h.weight"].T


def janus(features: torch.Tensor, tensors: Tensors) -> torch.Tensor:
    """Janus-Pro's projector, as llama.cpp computes it from `mm.*`."""
    value = functional.linear(features, tensors["mm.0.weight"], tensors["mm.0.bias"])
    return functional.linear(functional.gelu(value, approximate="tanh"), tensors["mm.1.weight"], tensors["mm.1.bias"])


@pytest.mark.parametrize("shuffle", [1, 2])
@torch.inference_mode()
def test_the_projector_of_llama_cpp_computes_the_linear_layer(folder: Path, shuffle: int) -> None:
    model, processor = student(folder, shuffle)
    epsilon = model.config.vision_config.layer_norm_eps
    tensors = vision_tensors(model, tokens_around(processor))
    hidden = 3 * torch.randn(1, 16, 16)
    expected = model.model.connector(model.model.vision_model.post_layernorm(hidden))
    features = normalised(hidden, tensors, epsilon)
    result = adapter(features, tensors, epsilon) if shuffle == 2 else janus(features, tensors)
    assert result.shape == expected.shape and expected.abs().mean() > 0.1
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def test_a_tower_whose_layers_are_as_wide_as_it_is_survives_the_swap_that_llama_cpp_does(folder: Path) -> None:
    model, _ = student(folder)
    weights = {f"model.vision_model.encoder.layers.0.mlp.fc{place}.weight": torch.zeros(16, 16) for place in (1, 2)}
    assert swapped_name("ffn_up", weights, "model.vision_model") == "ffn_down"
    assert swapped_name("ffn_up", model.state_dict(), "model.vision_model") == "ffn_up"


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_transformers_reads_the_decoder_back_with_the_same_logits(folder: Path, tmp_path: Path, kind: str) -> None:
    parts = worlds.parts(tmp_path / "parts")
    if kind == "llama":
        config = LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=len(worlds.tokenizer()), rope_theta=1e4,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(parts / "language")
    model, processor = student(parts)
    write_gguf(model, processor, tmp_path, name="student", weight_type="f32")
    read = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=MODEL, dtype=torch.float32).eval()
    assert read.config.model_type == kind
    ids = torch.tensor([[5, 9, 33, 7, 12, 40]])
    with torch.inference_mode():
        expected = model(input_ids=ids, use_cache=False).logits
        torch.testing.assert_close(read(input_ids=ids, use_cache=False).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weight_type", ["f32", "f16", "q8_0"])
def test_every_tensor_is_read_back_as_it_was_written(folder: Path, tmp_path: Path, weight_type: str) -> None:
    model, processor = student(folder)
    write_gguf(model, processor, tmp_path, name="student", weight_type=weight_type)
    expected = tensors_of(model, processor)
    assert all(compare_tensors(tmp_path / name, expected[name]).passed for name in (MODEL, MMPROJ))
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tmp_path / MODEL).tensors}
    assert types["blk.0.attn_q.weight"] == weight_type.upper() and types["blk.0.attn_q.bias"] == "F32"


def test_a_changed_tensor_is_named(folder: Path, tmp_path: Path) -> None:
    model, processor = student(folder)
    write_gguf(model, processor, tmp_path, name="student", weight_type="f16")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / MODEL, "r+").tensors}
    stored["blk.1.ffn_up.weight"].data[0, 0] += np.float16(1)
    del stored
    check = compare_tensors(tmp_path / MODEL, tensors_of(model, processor)[MODEL])
    assert not check.passed and check.note == "model.gguf: blk.1.ffn_up.weight differs"


def test_what_llama_cpp_cannot_run_is_refused(folder: Path, tmp_path: Path) -> None:
    model, processor = student(folder, 4)
    with pytest.raises(ModelError, match="no projector for a pixel shuffle of 4; it has some for 1 and 2"):
        write_gguf(model, processor, tmp_path, name="student", weight_type="f16")
    model, processor = student(folder)
    processor.image_processor.do_image_splitting = True
    with pytest.raises(ModelError, match=r"idefics3 with images in tiles; .* convert_hf_to_gguf\.py"):
        write_gguf(model, processor, tmp_path, name="student", weight_type="f16")
    processor.image_processor.do_image_splitting = False
    processor.chat_template = "{{ messages }}"
    with pytest.raises(ModelError, match="another chat template"):
        write_gguf(model, processor, tmp_path, name="student", weight_type="f16")
    model.config.get_text_config().hidden_act = "gelu"
    with pytest.raises(ModelError, match="has no activation 'gelu'; it has silu"):
        write_gguf(model, processor, tmp_path, name="student", weight_type="f16")
    assert not list(tmp_path.iterdir())


def test_the_tokens_around_an_image_are_in_the_prompt_or_in_the_file(folder: Path) -> None:
    chat = [{"role": "user", "content": "<__media_x1__>How many?"}]
    fake, inside = "<fake_token_around_image>", "<global-img>"
    shown = {
        number: Template(chat_template(number)).render(messages=chat, add_generation_prompt=True) for number in (1, 2)
    }
    assert shown[1] == (
        f"<|im_start|>user\n{fake}{inside}<__media_x1__>{fake}How many?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert shown[2] == f"<|im_start|>user\n{fake}<__media_x1__>How many?<|im_end|>\n<|im_start|>assistant\n"
    model, processor = student(folder)
    embeddings = model.get_input_embeddings().weight.detach()
    tensors = vision_tensors(model, tokens_around(processor))
    ids = processor.tokenizer.convert_tokens_to_ids([inside, fake])
    assert torch.equal(torch.cat([tensors["adapter.boi"], tensors["adapter.eoi"]]), embeddings[ids])


def test_tokens_have_the_types_that_llama_cpp_tells_apart(folder: Path) -> None:
    _, processor = student(folder)
    size = len(processor.tokenizer)
    settings = tokenizer_settings(processor, size + 2, 2)
    tokens, types = settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.token_type"]
    assert tokens[-2:] == [f"[PAD{size}]", f"[PAD{size + 1}]"] and types[-2:] == [5, 5]
    assert types[tokens.index("<image>")] == 3 and types[tokens.index("a")] == 1
    assert tokens[settings["tokenizer.ggml.eos_token_id"]] == "<|im_end|>"


def test_a_tokenizer_without_a_token_for_padding_is_written_and_one_without_an_end_is_refused(folder: Path) -> None:
    _, processor = student(folder)
    size = len(processor.tokenizer)
    processor.tokenizer.pad_token = None
    assert "tokenizer.ggml.padding_token_id" not in tokenizer_settings(processor, size, 2)
    processor.tokenizer.eos_token = None
    with pytest.raises(ModelError, match="no end-of-turn token"):
        tokenizer_settings(processor, size, 2)


def test_the_command_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["export", "run", "--out", "out", "--gguf", "f16", "--plain"])
    assert done.exit_code != 0 and "--gguf writes another form" in done.output
    monkeypatch.setenv("DISTILL_LLAMA_SERVER", "/nowhere/llama-server --flash-attn off")
    with pytest.raises(RecipeError, match="no program '/nowhere/llama-server'"):
        find_llama_server()
