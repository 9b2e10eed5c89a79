"""The device memory that a stage takes: weights, gradients, optimizer, and the activations of a micro-batch.

Activations are measured, not estimated by a formula: one training step of the language model and the head runs on the
meta device, where tensors have sizes but no content. The result is the largest number of bytes that are allocated at
once. So adapters, dtypes, frozen parts and gradient checkpointing have the cost of torch's own kernels. Attention
counts as a flash kernel would. Does not cover what lies outside of tensors (the device's context, what its allocator
cannot use) and compiled kernels, which keep less.
"""

import copy
import functools
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import PreTrainedModel

from distill.machine.hardware import USABLE_SHARE, usable_bytes
from distill.recipe.sections.stages import AUTO, Stage
from student.models import freeze
from student.models.flops import patch_values, tower_widths
from student.models.parts import Parts
from student.models.siq_vl import without_weights
from student.training.cost import outlined_step
from student.training.optimizer.compensated_adamw import STATE_BYTES

_ADAM_STATES = 2
_FOUR_BITS = 0.516
"""Bytes of a weight in NF4: 4 bits, and a scale in 8 for every 64 of them."""
_LAYERS = 2
_MOST_TOKENS = 1 << 24
WIDEST_PASS = 32_768
"""Tokens; beyond them a pass gains little (docs/log.md, the roofline of a training step)."""
WIDENED_SHARE = 0.75
"""Of the memory that a pass may take when it is widened: losses with teachers' distributions are not counted."""
_LABELLED_TOKENS = 1 << 13
"""At most, in a run: more of them keep two hidden states each, and take the time of this module."""


@dataclass(frozen=True, slots=True)
class MicroBatchMemory:
    """Bytes that a micro-batch takes at its peak, beyond what is there at all times, for some numbers of tokens.

    In between it is nearly linear. The head works on a fixed number of positions at once, and a layer works on all.
    So the peak of small micro-batches is in the head, and the peak of large ones is in a layer.
    """

    tokens: tuple[int, ...]
    bytes: tuple[float, ...]

    def at(self, tokens: float) -> float:
        index = min(max(1, bisect_left(self.tokens, tokens)), len(self.tokens) - 1)
        (left, right), (low, high) = self.tokens[index - 1 : index + 1], self.bytes[index - 1 : index + 1]
        return low + (high - low) * (tokens - left) / (right - left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of tensors on the device of a training process."""

    weights: int
    gradients: int
    optimizer: int
    checkpoint: int
    """Not on the device: what a checkpoint takes on disk, and in host memory while it is written."""
    micro_batch: Callable[[bool], MicroBatchMemory]
    """Without gradient checkpointing, and with it: measured when it is asked for, in a second each."""
    tower_per_patch: int
    """While the tower works, before the language model begins."""
    kept_per_patch: int
    """Pixels and the tower's output, for the whole step."""

    def needed(self, *, tokens: float, patches: float, checkpointing: bool) -> int:
        """The peak in bytes for micro-batches of `tokens`, padding included, and `patches` of images."""
        step = self.micro_batch(checkpointing).at(tokens)
        return int(self.static + self.kept_per_patch * patches + max(step, self.tower_per_patch * patches))

    def most_tokens(self, available: float, *, patches_per_token: float, checkpointing: bool) -> int:
        """The largest micro-batch, in tokens, whose peak stays within `available` bytes; 0 when none does."""

        def needed(tokens: int) -> int:
            return self.needed(tokens=tokens, patches=patches_per_token * tokens, checkpointing=checkpointing)

        return max(0, bisect_right(range(_MOST_TOKENS), available, key=needed) - 1)

    @property
    def static(self) -> int:
        """Bytes that are allocated all the time."""
        return self.weights + self.gradients + self.optimizer


def of_stage(model: PreTrainedModel, parts: Parts, stage: Any) -> Memory:
    """The memory of a stage with this student, which does not change; `stage` as in the recipe. Up to two seconds."""
    return of(prepared(model, parts, stage), parts, stage)


def prepared(model: PreTrainedModel, parts: Parts, stage: Any) -> PreTrainedModel | PeftModel:
    """A student of the same shape without weights, as the stage trains it; adapters lie over unpacked weights."""
    twin = without_weights(copy.deepcopy(model.config), str(model.dtype).removeprefix("torch."))
    lora = stage.lora and stage.lora.model_copy(update={"quantize": None})
    return freeze.prepare(twin, parts, stage.train, lora)


def of(student: PreTrainedModel | PeftModel, parts: Parts, stage: Any) -> Memory:
    """The memory of training a student that is `prepared` for its stage."""
    # Outlined at half of it too, which has to be a token at least.
    tokens, quantized = max(2, stage.pass_tokens), stage.lora is not None and stage.lora.quantize is not None
    trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
    # With several passes, gradients of 16-bit weights are summed in float32 (student/training/loop/halving.py).
    width = torch.float32.itemsize if may_take_passes(stage) else 0
    gradients = sum(weight.numel() * max(width, weight.element_size()) for weight in trained)
    optimizer = sum(
        _ADAM_STATES * _bytes(weight) if weight.dtype == torch.float32 else STATE_BYTES * weight.numel()
        for weight in trained
    )
    plain: Any = freeze.plain_model(student)
    tower, sight = plain.get_submodule(parts.tower), plain.config.vision_config
    size, (width_of_tower, inner) = next(tower.parameters()).element_size(), tower_widths(sight)
    return Memory(
        weights=sum(
            int(_FOUR_BITS * tensor.numel()) if quantized and ".base_layer.weight" in name else _bytes(tensor)
            for name, tensor in (*student.named_parameters(), *student.named_buffers())
        ),
        gradients=gradients,
        optimizer=optimizer,
        checkpoint=optimizer + sum(map(_bytes, trained)),
        micro_batch=functools.cache(lambda checkpointing: _step(student, parts, tokens, checkpointing=checkpointing)),
        # Of a block, alive at once: its input and its normed input, and the inner layer before and after its bend.
        tower_per_patch=2 * (width_of_tower + inner) * size,
        kept_per_patch=(patch_values(tower) + width_of_tower) * size,
    )


def may_take_passes(stage: Any) -> bool:
    """Whether a step of this stage may be more than one pass."""
    tokens = stage.batch_tokens or stage.batch_size * stage.group_rows * stage.max_length
    return bool(tokens > stage.pass_tokens)


def _step(student: nn.Module, parts: Parts, tokens: int, *, checkpointing: bool) -> MicroBatchMemory:
    """From runs of two layers, and one of three: every layer keeps as much as the third."""
    layers = outlined_step.decoder_layers(student, parts)

    @functools.cache
    def peak(count: int, tokens: int) -> int:
        with outlined_step.first_layers(layers, count):
            return _peak(student, parts, tokens, checkpointing=checkpointing)

    further = max(0, len(layers) - _LAYERS)
    kept = (peak(_LAYERS + 1, tokens) - peak(_LAYERS, tokens)) / tokens if further else 0.0
    knots = (tokens // 2, tokens, 4 * tokens, 8 * tokens)
    return MicroBatchMemory(knots, tuple(peak(_LAYERS, knot) + further * kept * knot for knot in knots))


def _peak(student: nn.Module, parts: Parts, tokens: int, *, checkpointing: bool) -> int:
    """Largest number of bytes that are allocated at once in a step of one packed line, with all tokens labelled if it
    is not very long."""
    with outlined_step.outlined(student, checkpointing=checkpointing), Alive(student) as alive:
        labelled = min(tokens, _LABELLED_TOKENS)
        outlined_step.run(student, parts, tokens=tokens, labelled=labelled, checkpointing=checkpointing)
    return int(alive.peak)


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that operations make, as long as these live; `peak` is the most there was."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak: int = 0
        self._now = 0
        self._living: dict[int, weakref.ref[Any]] = {}
        for tensor in (*student.parameters(), *student.buffers()):
            for known in (tensor, tensor.grad):
                if known is not None:
                    self._hold(known.untyped_storage(), 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_iter(out):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                self._hold(storage, storage.nbytes())
        return out

    def _hold(self, storage: Any, size: int) -> None:
        key = storage._cdata
        if key in self._living:
            return

        def on_release(_: Any) -> None:
            if self._living.pop(key, None) is not None:
                self._now -= size

        self._living[key] = weakref.ref(storage, on_release)
        self._now += size
        self.peak = max(self.peak, self._now)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def settled(
    stage: Stage, model: PreTrainedModel, parts: Parts, *, patches_per_token: float, available: float | None
) -> Stage:
    """The stage with gradient checkpointing on or off, and with the tokens in memory at once.

    Checkpointing "auto" is on where the stage would not fit otherwise. `available`: bytes for tensors on the device;
    None: no limit is known, as on a CPU, where wider passes gain nothing.
    """
    if available is None or AUTO not in (stage.gradient_checkpointing, stage.micro_batch_tokens):
        checkpointing = stage.gradient_checkpointing is True
        return stage.model_copy(update={"gradient_checkpointing": checkpointing})
    memory = of_stage(model, parts, stage)
    patches = patches_per_token * stage.pass_tokens
    checkpointing = stage.gradient_checkpointing is True or (
        stage.gradient_checkpointing == AUTO
        and memory.needed(tokens=stage.pass_tokens, patches=patches, checkpointing=False) > available
    )
    stage = stage.model_copy(update={"gradient_checkpointing": checkpointing})
    return widened(
        stage, memory, patches_per_token=patches_per_token, available=available, checkpointing=checkpointing
    )


def widened(
    stage: Stage, memory: Memory, *, patches_per_token: float, available: float, checkpointing: bool
) -> Stage:
    """The stage with as many tokens in memory at once as `available` bytes allow, where the recipe leaves that open.

    A pass starts thousands of kernels, however small they are: few wide passes keep a GPU busy, many narrow ones
    wait for the host. Steps of `batch_tokens` are packed by the tokens of a pass, so these must not depend on a card.
    """
    if stage.micro_batch_tokens != AUTO or stage.batch_tokens is not None:
        return stage
    most = memory.most_tokens(
        WIDENED_SHARE * available, patches_per_token=patches_per_token, checkpointing=checkpointing
    )
    return stage.model_copy(update={"micro_batch_tokens": max(stage.pass_tokens, min(most, WIDEST_PASS))})


def as_begun(settled: Stage, stage: Stage, begun: Mapping[str, Any]) -> int:
    """The tokens in memory at once of a `settled` stage that has `begun` (`note_parts` of StageRun).

    Passes are not larger than at the start of the stage, even if more memory is free now: other passes change the
    rounding of gradients and the random numbers of dropout.
    """
    if stage.micro_batch_tokens != AUTO:
        return settled.pass_tokens
    most: int = begun.get("micro_batch_tokens", settled.pass_tokens)
    return max(stage.pass_tokens, min(settled.pass_tokens, most))


def available(device: torch.device) -> float | None:
    """Bytes that tensors may take of a GPU's memory; None for a CPU, whose memory others use too.

    What other programs hold on the card is not there; what torch keeps in this process is.
    """
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return min(usable_bytes(total), USABLE_SHARE * (free + torch.cuda.memory_reserved(device)))
