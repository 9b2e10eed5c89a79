"""Graphics cards by what planning needs of them: memory, its bandwidth, and the rate of bf16 matrix products.

Rates are the makers' for dense bf16 with float32 accumulation, no sparsity; memory is what the driver reports, less
than the name says where error correction takes some. A real run reaches a share of the rate (MFU).
"""

import difflib
import re
from dataclasses import dataclass

from distill.errors import RecipeError

_RESERVE_BYTES = 1 << 30
"""For the context and the libraries of a device; not yet measured on one."""
USABLE_SHARE = 0.95
"""The share of the memory that an allocator can use; also not measured yet."""


def usable_bytes(memory_bytes: float) -> float:
    """Share of a card's memory that tensors may take."""
    return USABLE_SHARE * memory_bytes - _RESERVE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card. `bf16` is FLOP/s, None where it has no bf16; `bandwidth` is bytes/s of its memory."""

    name: str
    memory_gib: float
    bf16: float | None
    bandwidth: float
    source: str

    @property
    def usable_bytes(self) -> float:
        return usable_bytes(self.memory_gib * 2**30)


_TABLE = (
    ("T4", 15.0, None, 0.3e12, "NVIDIA T4 datasheet: float16 only, 65 TFLOP/s"),
    ("RTX 3090", 24.0, 71e12, 0.936e12, "NVIDIA GA102 whitepaper, appendix A"),
    ("RTX 4090", 24.0, 165.2e12, 1.008e12, "NVIDIA Ada whitepaper, appendix A"),
    ("A10", 22.5, 125e12, 0.6e12, "NVIDIA A10 datasheet"),
    ("L4", 22.5, 121e12, 0.3e12, "NVIDIA L4 datasheet, half of the sparse rate"),
    ("L40S", 44.9, 362e12, 0.864e12, "NVIDIA L40S datasheet"),
    ("RTX A6000", 47.5, 154.8e12, 0.768e12, "NVIDIA RTX A6000 datasheet, half of the sparse rate"),
    ("RTX PRO 6000", 95.6, 503.8e12, 1.792e12, "NVIDIA RTX Blackwell PRO whitepaper, workstation edition"),
    ("A100 40GB", 39.6, 312e12, 1.555e12, "NVIDIA A100 datasheet"),
    ("A100 80GB", 79.3, 312e12, 2.039e12, "NVIDIA A100 datasheet"),
    ("H100", 79.6, 989.4e12, 3.35e12, "NVIDIA H100 datasheet, SXM, half of the sparse rate"),
    ("H200", 140.4, 989.4e12, 4.8e12, "NVIDIA H200 datasheet, SXM, half of the sparse rate"),
    ("B200", 179.1, 2250e12, 8e12, "NVIDIA DGX B200 datasheet, an eighth of the system's dense rate"),
)
GPUS = tuple(
    Gpu(name=name, memory_gib=memory, bf16=rate, bandwidth=bandwidth, source=source)
    for name, memory, rate, bandwidth, source in _TABLE
)
USUAL = ("RTX 4090", "L40S", "A100 80GB", "H100", "RTX PRO 6000")
"""Shown if no card is named and this machine has none."""


def find_gpu(name: str) -> Gpu:
    """The card of a name, in any spelling: "a100-80gb", "rtx4090". RecipeError names the nearest one."""
    keys = {_key(candidate.name): candidate for candidate in GPUS}
    key = _key(name)
    # The smaller of two sizes of a card, where a name has no size: "A100".
    gpu = keys.get(key) or next(
        (candidate for name_key, candidate in keys.items() if name_key.startswith(key) and len(key) > 2), None
    )
    if gpu is None and name.lower().startswith(("nvidia", "tesla")):  # as nvidia-smi names it
        memory = re.search(r"(\d+)\s?GB", name)
        gpu = gpu_of_device(name, float(memory[1]) if memory else 0.0)
    if gpu is None:
        near = difflib.get_close_matches(key, keys, n=1)
        hint = f"did you mean {keys[near[0]].name!r}? " if near else ""
        raise RecipeError(
            f"--gpu {name}: not a known GPU; {hint}known: {', '.join(candidate.name for candidate in GPUS)}"
        )
    return gpu


def gpu_of_device(device_name: str, memory_gib: float) -> Gpu | None:
    """The card with this name in torch, with its real memory; None when it is not in the table."""
    key = _key(device_name)
    candidates = [gpu for gpu in GPUS if _key(re.sub(r" \d+GB$", "", gpu.name)) in key]
    if not candidates:
        return None
    # "A100" is in the names of both sizes, and "A10" and "L4" are in the names of other cards.
    return max(candidates, key=lambda gpu: (len(_key(gpu.name)), -abs(gpu.memory_gib - memory_gib)))


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower().removeprefix("nvidia").strip())
