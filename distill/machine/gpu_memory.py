"""A GPU whose memory is full: batches are halved until they fit, and what does not fit at all is one plain error."""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

from distill.errors import DistillError, OutOfMemory, first_line

Item = TypeVar("Item")
Result = TypeVar("Result")

_REMEDY = (
    "Lower what is held at once: stages.max_length, stages.micro_batch_tokens or stages.lora for `distill train`, "
    "eval.batch_size, eval.max_new_tokens or max_pixels of the data for `distill eval`, max_in_flight of an embedded "
    "teacher, filter.student.batch_tokens; `distill plan` says what fits, `nvidia-smi` which program holds memory"
)


class FittingBatches:
    """Calls a function with batches, and with halves of those that the GPU's memory does not hold.

    Later batches have no more items than one that fits, because each attempt costs the time until memory is full.
    """

    def __init__(self, on_notice: Callable[[str], None] = lambda text: None) -> None:
        """`on_notice` gets a sentence each time batches become smaller."""
        self._on_notice = on_notice
        self._most: int | None = None

    def run(self, items: Sequence[Item], call: Callable[[Sequence[Item]], Sequence[Result]]) -> list[Result]:
        """The results of `call` for all items. Raises OutOfMemory where one item alone does not fit."""
        results: list[Result] = []
        start = 0
        while start < len(items):
            batch = items[start : start + (self._most or len(items))]
            try:
                results += call(batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise explained(error) from None
            else:
                start += len(batch)
                continue
            # Only here is the error gone, and with it the tensors of the batch that failed.
            free_unused()
            self._most = len(batch) // 2
            self._on_notice(f"out of memory with {len(batch)} in a batch: from here on {self._most}")
        return results


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch says that the memory of a device is full."""
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)


def explained(error: BaseException) -> DistillError:
    """The error for a user."""
    return OutOfMemory(
        f"the GPU's memory does not hold this: {first_line(error)}\nWhat was finished is kept. {_REMEDY}. Then run "
        "the same command again"
    )


def free_unused() -> None:
    """Free tensors that nothing holds, so that a smaller batch finds the memory whole."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
