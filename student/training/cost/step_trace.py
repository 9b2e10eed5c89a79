"""Lists the kernels of a training step without weights: what each reads, writes and computes.

The language model and the head run on the meta device (student/training/cost/outlined_step.py); every operation that
a device would launch is noted. `fused` joins neighbouring pointwise operations of the layers as a compiler does. Does
not say how long a kernel takes (student/training/cost/roofline.py).
"""

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from student.models import freeze
from student.models.parts import Parts
from student.training.cost import outlined_step

MATRICES, ATTENTION, POINTWISE = "matrix products", "attention", "pointwise operations"
_LAYERS = 2
_FACTORIES = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_LOOKUPS = ("embedding", "index", "gather", "index_select")
"""Operations that read no more of a table than they write."""
_OVERWRITES = ("copy_", "zero_", "fill_")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWork:
    """The shape of a pass."""

    tokens: float
    squared_lengths: float
    """Sum over rows of their tokens squared."""
    response_tokens: float
    patches: float
    squared_patches: float


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch on a device."""

    part: str
    kind: str
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class _Operation:
    """One kernel as it was noted; storages by number, with their bytes."""

    part: str
    kind: str
    flops: float
    reads: dict[int, int]
    writes: dict[int, int]
    backward: bool

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.part, self.kind, self.flops, sum(self.reads.values()) + sum(self.writes.values()))


@dataclass(frozen=True, slots=True)
class DecoderTrace:
    """Operations of decoder and head in one pass: with two layers, with three, and how many layers there are.

    Every further layer is as the third. Where layers differ, both have all of them.
    """

    two: list[_Operation]
    three: list[_Operation]
    further: int

    def kernels(self, *, compiled: bool) -> Counter[Kernel]:
        """The kernels by number. `compiled`: neighbouring pointwise operations are one (`_fused`)."""
        two, three = (
            Counter(_fused(operations) if compiled else (operation.kernel for operation in operations))
            for operations in (self.two, self.three)
        )
        return Counter({kernel: two[kernel] + self.further * (three[kernel] - two[kernel]) for kernel in two | three})


def trace(
    student: Any, parts: Parts, work: PassWork, *, checkpointing: bool, fused_layers: bool = False
) -> DecoderTrace:
    """Run a student that is prepared for its stage; it stays as it is. `fused_layers`: with Liger's kernels."""
    language: Any = freeze.plain_model(student).get_submodule(parts.language)
    layers = outlined_step.decoder_layers(student, parts)

    def traced(count: int) -> list[_Operation]:
        with outlined_step.first_layers(layers, count):
            return _operations(student, parts, work, checkpointing=checkpointing, fused_layers=fused_layers)

    kinds = getattr(language.config, "layer_types", None) or ()
    alike = len({type(layer) for layer in layers}) == 1 and len(set(kinds)) <= 1
    if not alike or len(layers) <= _LAYERS:
        whole = traced(len(layers))
        return DecoderTrace(whole, whole, 0)
    return DecoderTrace(traced(_LAYERS), traced(_LAYERS + 1), len(layers) - _LAYERS)


def _operations(
    student: Any, parts: Parts, work: PassWork, *, checkpointing: bool, fused_layers: bool
) -> list[_Operation]:
    tokens = max(2, round(work.tokens))
    outlined = outlined_step.outlined(
        student, checkpointing=checkpointing, gradients=False, fused_layers=fused_layers
    )
    with outlined, _Noted(work) as noted:
        outlined_step.run(
            student,
            parts,
            tokens=tokens,
            labelled=min(tokens, max(1, round(work.response_tokens))),
            checkpointing=checkpointing,
            fused_head=True,
            on_part=noted.enter,
        )
    operations: list[_Operation] = noted.operations
    return operations


class _Noted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation that a device would run as a kernel."""

    def __init__(self, work: PassWork) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[_Operation] = []
        self._work, self._part, self._parts_seen = work, outlined_step.DECODER, 0
        # Storages stay alive, so that none gets the number of another; they take no memory.
        self._known: dict[int, tuple[int, Any]] = {}

    def enter(self, part: str) -> None:
        self._part = part
        self._parts_seen += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name, written, is_factory = _signature(func)
        inputs = {self._number(tensor): _touched(tensor) for tensor in _tensors((*args, *kwargs.values()))}
        writes = {}
        for tensor in _tensors((out,)):
            number = self._number(tensor)
            if number not in inputs:
                writes[number] = _touched(tensor)
        reads = dict(inputs)
        for index in written:
            target = args[index] if isinstance(index, int) else kwargs.get(index)
            if isinstance(target, torch.Tensor):
                number = self._number(target)
                writes[number] = inputs[number]
                if name in _OVERWRITES or index == "out":
                    reads.pop(number, None)
        if writes and not is_factory:
            self._note(func, name, args, kwargs, out, reads, writes)
        return out

    def _note(self, func: Any, name: str, args: Any, kwargs: Any, out: Any, reads: Any, writes: Any) -> None:
        kind, flops = POINTWISE, 0.0
        backward = self._parts_seen > 2 or "backward" in name
        if "scaled_dot_product" in name:
            kind = ATTENTION
            # Two products forward; five backward, as the scores are computed again. Half of them is masked.
            query = args[1] if "backward" in name else args[0]
            flops = (5 if "backward" in name else 2) * query.shape[1] * query.shape[3] * self._work.squared_lengths
        elif func._overloadpacket in flop_registry:
            kind, flops = MATRICES, flop_registry[func._overloadpacket](*args, **kwargs, out_val=out)
        elif name in _LOOKUPS:
            reads = {number: min(size, sum(writes.values())) for number, size in reads.items()}
        elif name == "slopes_":
            reads = {number: 2 * size for number, size in reads.items()}
        self.operations.append(_Operation(self._part, kind, flops, reads, writes, backward))

    def _number(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        return self._known.setdefault(storage._cdata, (len(self._known), storage))[0]


@functools.cache
def _signature(func: Any) -> tuple[str, tuple[int | str, ...], bool]:
    """Name of an operation, its arguments that it writes to, and whether it only takes memory."""
    name = func._opname
    written = tuple(
        argument.name if argument.kwarg_only else index
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return name, written, name in _FACTORIES


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (value for value in tree_iter(values) if isinstance(value, torch.Tensor))


def _touched(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; what is expanded is read once."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _fused(operations: list[_Operation]) -> Iterator[Kernel]:
    """The kernels where neighbouring pointwise operations of the decoder are one.

    A run of fused operations reads what others wrote and writes what others read. What only the other direction reads
    is computed again there in place of being kept.
    """
    runs: list[list[_Operation]] = []
    for operation in operations:
        fusible = _is_fusible(operation)
        if fusible and runs and _is_fusible(runs[-1][-1]) and runs[-1][-1].backward == operation.backward:
            runs[-1].append(operation)
        else:
            runs.append([operation])
    readers: dict[int, list[tuple[int, bool, bool]]] = {}
    for index, run in enumerate(runs):
        for operation in run:
            for number in operation.reads:
                readers.setdefault(number, []).append((index, _is_fusible(operation), operation.backward))
    never_written: set[int] = set()
    for index, run in enumerate(runs):
        if not _is_fusible(run[0]):
            yield run[0].kernel
            continue
        made = {number: size for operation in run for number, size in operation.writes.items()}
        taken = {number: size for operation in run for number, size in operation.reads.items()}
        backward, moved = run[0].backward, 0
        for number, size in made.items():
            outside = [reader for reader in readers.get(number, ()) if reader[0] != index]
            if not readers.get(number) or any(not fusible or back == backward for _, fusible, back in outside):
                moved += size
            else:
                never_written.add(number)
        moved += sum(size for number, size in taken.items() if number not in made and number not in never_written)
        yield Kernel(run[0].part, POINTWISE, 0, moved)


def _is_fusible(operation: _Operation) -> bool:
    return operation.part == outlined_step.DECODER and operation.kind == POINTWISE
