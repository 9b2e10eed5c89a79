"""Tower and projector of a SiQ-VL student as tensors of llama.cpp's `mmproj` file.

llama.cpp reads Idefics3, but always shows such a model each image twice: whole, and as a tile. Two other projector
types show it once, in a square of the tower's size, and they compute the same linear layer if their weights are
chosen for it:

- `janus_pro`, without pixel shuffle: linear, GELU, linear. GELU(x) - GELU(-x) = x, so the rows W and -W before the
  GELU, and their difference after it, are the layer W.
- `adapter` (GLM-Edge), for a pixel shuffle of 2: convolution with stride 2, linear, LayerNorm, GELU, gated linear,
  linear. The convolution copies the four patches of an image token. The tower ends in a LayerNorm, whose scale and
  shift are moved into W, so what the projector sees has a known length: its own LayerNorm is a constant factor. The
  gate is constant, because one channel after the LayerNorm is its bias alone.

Does not write files (student/export/gguf/files.py).
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from distill.errors import ModelError

Tensors = dict[str, torch.Tensor]
PROJECTORS = {1: "janus_pro", 2: "adapter"}
"""llama.cpp's projector type by the factor of the pixel shuffle."""

_CONSTANT = 16.0  # large enough that GELU does not change it; a power of two, so exact in float16
_PADDING = 32  # channels beside those that carry the image: the constant one, and zeros up to a round number


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Token ids that the student sees around the image tokens of an image."""

    inside: int
    """Stands directly before the first image token."""
    after: int


def vision_tensors(model: PreTrainedModel, around: Around) -> Tensors:
    """All tensors of the mmproj file in float32, by llama.cpp's names. Raises ModelError for another shuffle."""
    weights = {name: value.detach().float() for name, value in model.state_dict().items()}
    factor = model.config.scale_factor
    if factor not in PROJECTORS:
        raise ModelError(
            f"llama.cpp has no projector for a pixel shuffle of {factor}; it has some for "
            f"{' and '.join(map(str, PROJECTORS))}"
        )
    tower = _tower(weights, model.config.vision_config.num_hidden_layers)
    matrix = weights["model.connector.modality_projection.proj.weight"]
    if factor == 1:
        return tower | _plain_projector(matrix)
    embeddings = weights["model.text_model.embed_tokens.weight"]
    scale, shift = tower["v.post_ln.weight"].repeat(factor**2), tower["v.post_ln.bias"].repeat(factor**2)
    tower["v.post_ln.weight"], tower["v.post_ln.bias"] = (make(scale.numel() // factor**2) for make in _UNIT)
    return (
        tower
        | _shuffled_projector(matrix * scale, matrix @ shift, model.config.vision_config.layer_norm_eps)
        # llama.cpp itself puts these two around the image tokens.
        | {"adapter.boi": embeddings[around.inside : around.inside + 1]}
        | {"adapter.eoi": embeddings[around.after : around.after + 1]}
    )


_UNIT = (torch.ones, torch.zeros)
_LAYER = {
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}


def _tower(weights: Tensors, layers: int) -> Tensors:
    source = "model.vision_model"
    result = {"v.position_embd.weight": weights[f"{source}.embeddings.position_embedding.weight"]}
    for kind in ("weight", "bias"):
        result[f"v.patch_embd.{kind}"] = weights[f"{source}.embeddings.patch_embedding.{kind}"]
        result[f"v.post_ln.{kind}"] = weights[f"{source}.post_layernorm.{kind}"]
        for layer in range(layers):
            for theirs, ours in _LAYER.items():
                value = weights[f"{source}.encoder.layers.{layer}.{theirs}.{kind}"]
                result[f"v.blk.{layer}.{swapped_name(ours, weights, source)}.{kind}"] = value
    return result


def swapped_name(name: str, weights: Tensors, source: str) -> str:
    """llama.cpp takes a file whose `ffn_down` has rows of the hidden size for an old one, and swaps the two."""
    wide, hidden = weights[f"{source}.encoder.layers.0.mlp.fc1.weight"].shape
    swapped = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"} if wide == hidden else {}
    return swapped.get(name, name)


def _plain_projector(matrix: torch.Tensor) -> Tensors:
    size = matrix.shape[0]
    identity = torch.eye(size)
    return {
        "mm.0.weight": torch.cat([matrix, -matrix]),
        "mm.0.bias": torch.zeros(2 * size),
        "mm.1.weight": torch.cat([identity, -identity], dim=1),
        "mm.1.bias": torch.zeros(size),
    }


def _shuffled_projector(matrix: torch.Tensor, shift: torch.Tensor, epsilon: float) -> Tensors:
    """`matrix` and `shift` take the tower's normalised features: four patches, each of mean 0 and variance 1."""
    size, inputs = matrix.shape
    width = inputs // 4
    copies = torch.zeros(inputs, width, 2, 2)
    for row in range(2):
        for column in range(2):
            start = (2 * row + column) * width
            copies[start : start + width, :, row, column] = torch.eye(width)
    channels = 2 * inputs + _PADDING
    constant = 2 * inputs
    both = torch.zeros(channels, inputs)
    both[:inputs], both[inputs:constant] = torch.eye(inputs), -torch.eye(inputs)
    norm, bias = torch.zeros(channels), torch.zeros(channels)
    norm[:constant] = (constant / channels + epsilon) ** 0.5
    bias[constant] = _CONSTANT
    gate, up = torch.zeros(size, channels), torch.zeros(size, channels)
    gate[:, constant] = 1.0
    up[:, :inputs], up[:, inputs:constant], up[:, constant] = matrix, -matrix, shift / _CONSTANT
    return {
        "adapter.conv.weight": copies,
        "adapter.conv.bias": torch.zeros(inputs),
        "adapter.linear.linear.weight": both,
        "adapter.linear.norm1.weight": norm,
        "adapter.linear.norm1.bias": bias,
        "adapter.linear.gate.weight": gate,
        "adapter.linear.dense_h_to_4h.weight": up,
        "adapter.linear.dense_4h_to_h.weight": torch.eye(size) / _CONSTANT,
    }


def vision_settings(model: PreTrainedModel, image_processor: Any) -> dict[str, Any]:
    """Metadata of the mmproj file. Raises ModelError for an activation that llama.cpp's tower does not have."""
    tower = model.config.vision_config
    if tower.hidden_act not in _ACTIVATIONS:
        raise ModelError(f"llama.cpp's vision tower has no activation {tower.hidden_act!r}; it has {_ACTIVATIONS}")
    return {
        "clip.has_vision_encoder": True,
        "clip.projector_type": PROJECTORS[model.config.scale_factor],
        "clip.use_gelu": True,
        "clip.vision.image_size": tower.image_size,
        "clip.vision.patch_size": tower.patch_size,
        "clip.vision.embedding_length": tower.hidden_size,
        "clip.vision.feed_forward_length": tower.intermediate_size,
        "clip.vision.block_count": tower.num_hidden_layers,
        "clip.vision.attention.head_count": tower.num_attention_heads,
        "clip.vision.attention.layer_norm_epsilon": float(tower.layer_norm_eps),
        "clip.vision.projection_dim": model.config.get_text_config().hidden_size,
        "clip.vision.image_mean": [float(value) for value in image_processor.image_mean],
        "clip.vision.image_std": [float(value) for value in image_processor.image_std],
    }


_ACTIVATIONS = ("gelu_pytorch_tanh",)
