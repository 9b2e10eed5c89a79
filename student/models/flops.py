"""What training costs in floating-point operations, counted by role: tower, projector, language model, head.

A cost model is read once from a prepared student (on any device, the meta device included); after that a
micro-batch is priced by plain numbers. Counted are the multiplications that learning needs: linear layers, patch
embeddings, attention, the causal one at half, and gated delta rules, as a multiply and an add each. Norms,
activations and embedding look-ups are left out (about 1 %). Experts (MoE) and windows of attention are counted as if
always whole.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from distill.machine.hardware import gpu_of_device
from student.models.freeze import LANGUAGE, PROJECTOR, TOWER, plain_name, role_of
from student.models.parts import Parts
from student.models.recurrent import MIXERS

_PIXEL_AXES = 5
"""Most dimensions of a tensor of pixels."""
_COUNTS_OF_PATCHES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "image_grid_thw": lambda grids: grids.prod(dim=-1),
    "spatial_shapes": lambda shapes: shapes.prod(dim=-1),
    "image_position_ids": lambda positions: (positions[..., 0] >= 0).sum(dim=-1),
}
"""Inputs that say how many patches each image or tile has, where pixels have the shape of all (int[images])."""
_CLASS_TOKENS = ("cls_token", "class_embedding")
_BOTH_WAYS = 3
"""Products of two activations: once forward, twice backward."""
_CHUNK = 64
"""Tokens that kernels of the gated delta rule take at once."""
_RATE_SIDES = {"cuda": (8192,), "cpu": (128, 256, 512, 1024)}
"""Sides of the matrices whose product is timed, until one takes `_RATE_SECONDS`: 1.1 TFLOP takes milliseconds on a
GPU. A core that has no instructions for bfloat16 takes 13 s for the largest, and 0.02 s for the least."""
_RATE_SECONDS = 0.001
_RATE_REPEATS = 5
_COPIED_BYTES = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """FLOPs of training, forward and backward, per unit of what a micro-batch holds."""

    per_token: float
    """FLOPs of layers and adapters of the language model for a real token; padding does no useful work."""
    per_squared_length: float
    """FLOPs of causal attention, to be multiplied by the sum of the rows' squared lengths."""
    per_response_token: float
    """FLOPs of the head for a labelled token; only those pass the head."""
    per_patch: float
    """FLOPs of tower and projector for a patch."""
    per_squared_patches: float
    """FLOPs of the tower's attention, to be multiplied by the sum of the images' squared numbers of patches."""
    patch_side: int
    """Pixels."""
    class_tokens: int
    """Tokens that the tower puts before the patches of each image."""
    patches_per_token: int
    """Patches that the projector joins to one token."""

    @classmethod
    def of(cls, model: nn.Module, parts: Parts, *, checkpointing: bool = False) -> "Cost":
        """The cost of a student prepared for its stage (student/models/freeze.py): trained is what asks for
        gradients.

        `checkpointing` adds the layers' second forward pass, which is work but not progress: leave it out for MFU,
        set it to estimate time.
        """
        config: Any = model.config
        sight, speech = config.vision_config, config.get_text_config()
        head = model.get_output_embeddings()  # type: ignore[operator]
        sight_matrices = list(matrices_of_sight(model, parts))
        merged = max((matrix.joined for matrix in sight_matrices), default=1)
        per_token = _recurrence(speech, checkpointing=checkpointing) + sum(
            2 * weights * (_passes(module, reached=True) + checkpointing)
            for name, module, weights in _matrices(model)
            if module is not head and role_of(name, parts) == LANGUAGE and _works(name, parts)
        )
        per_patch = sum(2 * matrix.weights * matrix.products / matrix.joined for matrix in sight_matrices)
        # Both products of attention, forward once and backward twice; half of the square is masked.
        width = sum(speech.num_attention_heads * size for size in _head_sizes(speech))
        depth = getattr(sight, "num_hidden_layers", None) or sight.depth
        return cls(
            per_token=per_token,
            per_squared_length=2 * width * (_BOTH_WAYS + checkpointing),
            per_response_token=2 * head.weight.shape[0] * head.weight.shape[1] * _passes(head, reached=True),
            per_patch=per_patch,
            per_squared_patches=4 * tower_widths(sight)[0] * depth,
            patch_side=_first(sight.patch_size),
            patches_per_token=merged,
            class_tokens=sum(
                role_of(name, parts) == TOWER and name.endswith(_CLASS_TOKENS) for name, _ in model.named_parameters()
            ),
        )

    def flops(
        self, *, tokens: float, squared_lengths: float, response_tokens: float, patches: float, squared_patches: float
    ) -> float:
        """FLOPs of a micro-batch. `squared_lengths`: the sum over rows of tokens squared; patches: see `patches`."""
        return (
            self.per_token * tokens
            + self.per_squared_length * squared_lengths
            + self.per_response_token * response_tokens
            + self.per_patch * patches
            + self.per_squared_patches * squared_patches
        )

    def patches(self, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """Patches in a batch's images, and the sum of their squares; of shapes alone where images have one shape.

        Reads the values of `image_grid_thw`, so call it before a batch goes to the device.
        """
        if "pixel_values" not in inputs:
            return 0, 0
        if inputs["pixel_values"].ndim > _PIXEL_AXES:
            return 0, 0  # tokens that the tower made before (student/data/image_tokens.py)
        for name, count in _COUNTS_OF_PATCHES.items():
            if name in inputs:
                counts = count(inputs[name])
                return int(counts.sum()), int((counts * counts).sum())
        *images, _, height, width = inputs["pixel_values"].shape
        number = 1
        for size in images:
            number *= size
        each = (height // self.patch_side) * (width // self.patch_side) + self.class_tokens
        return number * each, number * each * each


@dataclass(frozen=True, slots=True)
class SightMatrix:
    """A matrix of tower or projector."""

    role: str
    module: Any
    weights: int
    products: int
    """Matrix products that a training step makes with it."""
    joined: int
    """Patches that it takes as one."""


def matrices_of_sight(model: nn.Module, parts: Parts) -> Iterator[SightMatrix]:
    """What multiplies patches, for a student prepared for its stage."""
    sight: Any = model.config.vision_config  # type: ignore[union-attr]
    matrices = [
        (role, name, module, weights)
        for name, module, weights in _matrices(model)
        if (role := role_of(name, parts)) in (TOWER, PROJECTOR) and _works(name, parts)
    ]
    first = [
        next((m for _, name, m, _ in matrices if plain_name(name).startswith(f"{path}.")), None)
        for path in parts.projectors
    ]
    # Gemma 4 averages patches before its projector; others join them in it.
    pooled = getattr(sight, "pooling_kernel_size", 1) ** 2
    projector = [module for role, _, module, _ in matrices if role == PROJECTOR]
    merged = _patches_per_token(projector, tower_widths(sight)[0]) * pooled
    for role, name, module, weights in matrices:
        # Nothing before a projector is trained, so its first layer owes its input no gradient.
        reached = role == PROJECTOR and module.weight.requires_grad and module not in first
        joined = merged if role == PROJECTOR or "merger" in name else 1
        yield SightMatrix(role, module, weights, _passes(module, reached=reached), joined)


def tower_widths(sight: Any) -> tuple[int, int]:
    """Widths of a tower's states and of the inner layer of its blocks, by its configuration.

    In Qwen2-VL's tower, `hidden_size` is the width of the output.
    """
    width = int(getattr(sight, "embed_dim", None) or sight.hidden_size)
    return width, int(getattr(sight, "intermediate_size", None) or sight.mlp_ratio * width)


def patch_values(tower: nn.Module) -> int:
    """Numbers of an image that one patch is made of."""
    for _, module, weights in _matrices(tower):
        if not isinstance(module, nn.Linear):
            return int(weights // module.out_channels)
    return 0


def matmul_rate(device: torch.device | str, dtype: torch.dtype) -> float:
    """FLOP/s that a square matrix product reaches here, the best of a few."""
    return _matmul_rate(str(device), dtype)


def product_rates(device: torch.device | str, dtype: torch.dtype) -> dict[str, float]:
    """`rate`: `matmul_rate`; `nominal`: the maker's, for 16-bit weights on a card that is known."""
    result = {"rate": matmul_rate(device, dtype)}
    if torch.device(device).type == "cuda" and dtype in (torch.bfloat16, torch.float16):
        properties = torch.cuda.get_device_properties(device)
        gpu = gpu_of_device(properties.name, properties.total_memory / 2**30)
        if gpu is not None and gpu.bf16:
            result["nominal"] = gpu.bf16
    return result


@functools.cache
def _matmul_rate(device: str, dtype: torch.dtype) -> float:
    # A separate generator, so the generator of the training does not advance.
    rng = torch.Generator(device).manual_seed(0)
    for side in _RATE_SIDES.get(torch.device(device).type, _RATE_SIDES["cpu"]):
        left, right = (torch.randn(side, side, device=device, generator=rng).to(dtype) for _ in range(2))
        out = left @ right
        seconds = _least_seconds(functools.partial(torch.matmul, left, right, out=out), device)
        if seconds >= _RATE_SECONDS:
            break
    return 2 * side**3 / seconds


def copy_rate(device: str) -> float:
    """Bytes/s that a large copy on a device reads and writes, the best of a few."""
    source = torch.zeros(_COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * _COPIED_BYTES / _least_seconds(lambda: target.copy_(source), device)


def _least_seconds(work: Callable[[], object], device: str) -> float:
    """The time that work on a device takes, the best of a few."""

    def wait() -> None:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)

    best = float("inf")
    for _ in range(_RATE_REPEATS):
        wait()
        started = time.perf_counter()
        work()
        wait()
        best = min(best, time.perf_counter() - started)
    return best


def _matrices(model: nn.Module) -> Iterator[tuple[str, Any, int]]:
    """Name, module and number of weights of all that multiplies a token or a patch by a matrix."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            # Not the size of the weight, which four-bit layers pack.
            yield name, module, module.in_features * module.out_features
        elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            yield name, module, module.weight.numel()


def _passes(module: nn.Module, *, reached: bool) -> int:
    """Number of products with a matrix in a training step: forward, gradient of its input, gradient of its
    weights."""
    return 1 + reached + bool(module.weight.requires_grad)


def _works(name: str, parts: Parts) -> bool:
    """Whether a layer takes part: not the pooling head of a SigLIP tower, whose output no student reads."""
    return ".head." not in name and not plain_name(name).startswith(parts.unused)


def _patches_per_token(projector: list[Any], width: int) -> int:
    """Patches that the projector joins: its first layer is as many times wider than the tower."""
    return max(1, projector[0].in_features // width) if projector else 1


def _head_sizes(speech: Any) -> Iterator[int]:
    """The width of a head in each layer that attends."""
    kinds = getattr(speech, "layer_types", None) or ("full_attention",) * speech.num_hidden_layers
    by_layer = getattr(speech, "per_layer_config", None)
    for index, kind in enumerate(kinds):
        if kind not in MIXERS:
            own = by_layer[index] if by_layer else speech
            yield int(getattr(own, "head_dim", None) or speech.hidden_size // speech.num_attention_heads)


def _recurrence(speech: Any, *, checkpointing: bool) -> float:
    """FLOPs a token of the products of gated delta rules, beside those with weights; chunk by chunk.

    Triangular systems are counted by the product that their gradient takes.
    """
    layers = list(getattr(speech, "layer_types", None) or ()).count("linear_attention")
    if not layers:
        return 0.0
    key, value = speech.linear_key_head_dim, speech.linear_value_head_dim
    products = _CHUNK * (2 * key + value) + 3 * key * value
    of_head = (_BOTH_WAYS + checkpointing) * products + _CHUNK * (key + value)
    return float(2 * layers * speech.linear_num_value_heads * of_head)


def _first(size: Any) -> int:
    return int(size if isinstance(size, int) else size[-1])
