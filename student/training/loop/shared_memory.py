"""How many worker processes the shared memory of this machine has room for.

Workers hand whole steps over in /dev/shm, which in a Docker container has 64 MB unless it is started with more. Both
of torch's ways of sharing (file descriptors, files) take their memory there, so only fewer workers help. A worker
dies of a bus error when this memory is full.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from student.training.step_dataset import StepDataset

_FOLDER = Path("/dev/shm")
_PREFETCHED = 2
"""Steps that a DataLoader asks of each worker ahead."""
_MARGIN = 1.5
"""Steps are of different sizes, and only the first is looked at."""


def affordable(workers: int, steps: "StepDataset", on_notice: Callable[[str], None], folder: Path = _FOLDER) -> int:
    """At most `workers`: as many as there is room for. `on_notice` gets a sentence where these are fewer."""
    if not workers or not len(steps) or not folder.is_dir():
        return workers
    from torch.utils._pytree import tree_iter

    step_bytes = sum(value.nbytes for value in tree_iter(steps[0]) if hasattr(value, "element_size"))
    # One more is in use, and one on its way to the device.
    free = shutil.disk_usage(folder).free
    result = min(workers, int((free / (_MARGIN * max(1, step_bytes)) - 2) // _PREFETCHED))
    if result < workers:
        result = max(0, result)
        made = f"{result} instead of {workers} worker processes make" if result else "the trainer itself makes"
        on_notice(
            f"{folder} has {free / 1e6:,.0f} MB free, and a step takes {step_bytes / 1e6:,.1f} MB: {made} the steps; "
            "start a container with --shm-size=2g, or --ipc=host, for more"
        )
    return result
