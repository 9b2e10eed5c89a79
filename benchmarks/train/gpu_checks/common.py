"""What all checks of a GPU share: where they run, how they fail, and how they compare and time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


class Wrong(Exception):
    """A check that ran and found a difference."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where checks run: device, folder of the made students and data, sizes."""

    device: str
    folder: Path
    small: bool


def relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


def median_seconds(function: Callable[[], Any], repeats: int = 10) -> float:
    """The median of some calls after three to warm up."""
    times = []
    for _ in range(3 + repeats):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return sorted(times[3:])[repeats // 2]
