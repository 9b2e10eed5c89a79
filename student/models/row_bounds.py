"""Where the rows of a packed line begin and end, for layers that take them one by one."""

import torch

BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k")
_SIZES = "_row_sizes"
"""Attribute of bounds that holds the same as numbers of the host."""


def row_sizes(bounds: torch.Tensor) -> list[int]:
    """Tokens of each row. Reading them waits for the device, so that is done once for all layers."""
    known: list[int] | None = getattr(bounds, _SIZES, None)
    if known is None:
        known = bounds.diff().tolist()
        setattr(bounds, _SIZES, known)
    return known


def with_row_sizes(bounds: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Bounds on a device, which are not read back from there."""
    sizes = row_sizes(bounds)
    moved = bounds.to(device, non_blocking=True)
    setattr(moved, _SIZES, sizes)
    return moved
