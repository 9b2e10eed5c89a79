"""The plan of a stage: step -> process -> micro-batches -> rows, from lengths alone, before anything is decoded.

Any step is found without computing the steps before it, so a resumed stage starts at once. With `batch_size` the rows
of a step depend on seed and epoch only, so memory settings change speed and not the optimisation. With `batch_tokens`
rows are packed best-fit over stretches of the epoch and steps are equal in tokens. The rows of a step never depend on
the number of processes, so a stage may be resumed by more of them or fewer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from distill.errors import RecipeError
from distill.recipe.sections.stages import MOST_EPOCHS, MOST_STEPS, Stage
from student.data import packing

MicroBatch = list[int]
Step = list[list[MicroBatch]]
"""Micro-batches by process, as many for each; an empty one where a step has fewer rows than processes."""
_WINDOW = 64
"""Micro-batches that are packed together where the order of rows matters."""


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The rows of an epoch in the order of training."""

    rows: np.ndarray
    ends: np.ndarray
    """Where each bin ends among `rows`."""
    bins_a_step: int

    def __len__(self) -> int:
        return -(-len(self.ends) // self.bins_a_step)

    def bins(self, step: int) -> list[MicroBatch]:
        """The rows of the bins of one step."""
        first = step * self.bins_a_step
        ends = self.ends[first : first + self.bins_a_step].tolist()
        starts = [int(self.ends[first - 1]) if first else 0, *ends]
        return [self.rows[start:end].tolist() for start, end in zip(starts, ends, strict=False)]


class BatchPlan:
    """The steps of a stage. `epoch_rows(epoch)` gives an epoch's rows in order.

    An epoch is kept as the numbers of its rows; a step becomes lists when it is looked up.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        images: np.ndarray,
        stage: Stage,
        *,
        epoch_rows: Callable[[int], np.ndarray],
        seed: int,
        processes: int = 1,
    ) -> None:
        self._lengths, self._images = lengths, images
        self._stage, self._seed, self._processes = stage, seed, processes
        # A step of `batch_tokens` has the same rows for any number of processes.
        self._bins, self._budget = 1, stage.pass_tokens
        if stage.batch_tokens is not None:
            self._bins = math.ceil(stage.batch_tokens / stage.pass_tokens)
            self._budget = max(1, stage.batch_tokens // self._bins)
        self._rows = epoch_rows
        self._epoch = lru_cache(maxsize=2)(self._plan_epoch)
        # Epochs differ in their number of steps, so each is planned once to know where it begins.
        self._ends: list[int] = []
        self._require_plannable(stage)
        self._steps = self._for_tokens(stage.max_tokens) if stage.max_tokens is not None else self._for_epochs(stage)

    def _require_plannable(self, stage: Stage) -> None:
        """Refuse a stage that is so long that its plan alone would take hours: each epoch is planned at the start."""
        epoch = self._epoch(0)
        key, epochs = "epochs", float(stage.epochs)
        if stage.max_tokens is not None:
            key, epochs = "max_tokens", stage.max_tokens / max(1, int(self._lengths[epoch.rows].sum()))
        elif stage.max_steps is not None:
            key, epochs = "max_steps", stage.max_steps / len(epoch)
        steps = epochs * len(epoch)
        if epochs > MOST_EPOCHS or steps > MOST_STEPS:
            raise RecipeError(
                f"stage '{stage.name}': {key} = {getattr(stage, key):,} would be about {steps:,.0f} steps and "
                f"{epochs:,.0f} epochs of its {len(self._lengths):,} rows; a stage may have {MOST_STEPS:,} steps "
                f"and {MOST_EPOCHS:,} epochs at most: lower {key}"
            )

    def _for_epochs(self, stage: Stage) -> int:
        """Plan the epochs of a stage, or of its `max_steps`, and count their steps."""
        full_epochs, partial_epoch = int(stage.epochs), stage.epochs % 1
        step_count = stage.max_steps if stage.max_steps is not None else math.inf
        while (self._ends[-1] if self._ends else 0) < step_count:
            epoch = len(self._ends)
            if stage.max_steps is None and epoch >= full_epochs + (partial_epoch > 0):
                break
            count = len(self._epoch(epoch))
            if stage.max_steps is None and epoch == full_epochs:
                count = max(1, round(count * partial_epoch))
            self._ends.append((self._ends[-1] if self._ends else 0) + count)
        return min(self._ends[-1], stage.max_steps or self._ends[-1])

    def _for_tokens(self, tokens: int) -> int:
        """Plan epochs until they hold so many tokens, and count the steps that come nearest to them; at least one."""
        while True:
            epoch, begin = self._epoch(len(self._ends)), self._ends[-1] if self._ends else 0
            self._ends.append(begin + len(epoch))
            last_rows = epoch.ends[epoch.bins_a_step - 1 :: epoch.bins_a_step]
            reached = np.cumsum(self._lengths[epoch.rows])[np.append(last_rows, len(epoch.rows))[: len(epoch)] - 1]
            if reached[-1] < tokens:
                tokens -= int(reached[-1])
                continue
            step = int(np.searchsorted(reached, tokens))
            before = int(reached[step - 1]) if step else 0
            return max(1, begin + step + int(reached[step] - tokens <= tokens - before))

    def __len__(self) -> int:
        """Optimisation steps."""
        return self._steps

    def __getitem__(self, step: int) -> Step:
        if not 0 <= step < self._steps:
            raise IndexError(step)
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        return self._step(self._epoch(epoch), step - (self._ends[epoch - 1] if epoch else 0))

    def epoch(self, steps: int) -> float:
        """The number of epochs that these steps are."""
        index = min(int(np.searchsorted(self._ends, steps, side="left")), len(self._ends) - 1)
        begin = self._ends[index - 1] if index else 0
        return index + (steps - begin) / len(self._epoch(index))

    def fill(self) -> float:
        """Share of the token budget of the first epoch's micro-batches that holds tokens."""
        epoch = self._epoch(0)
        steps = (self._step(epoch, number) for number in range(len(epoch)))
        bins = sum(len(process) for step in steps for process in step)
        return int(self._lengths[epoch.rows].sum()) / (bins * self._budget)

    def _step(self, epoch: "_Epoch", number: int) -> Step:
        bins = epoch.bins(number)
        return self._divided(bins) if self._stage.batch_tokens else self._dealt(bins[0])

    def _plan_epoch(self, epoch: int) -> "_Epoch":
        rows = self._rows(epoch)
        if not self._stage.batch_tokens:
            size = self._stage.batch_size
            return _Epoch(rows, np.minimum(np.arange(size, len(rows) + size, size), len(rows)), bins_a_step=1)
        order: list[np.ndarray] = []
        lengths: list[int] = []
        rng = np.random.default_rng((self._seed, epoch, 1))
        for window in self._windows(rows):
            packed = packing.best_fit(
                self._lengths[window].tolist(),
                self._budget,
                images=self._images[window].tolist(),
                max_images=self._stage.micro_batch_images,
            )
            # Best fit puts the long rows into the first bins and the remaining rows into the last.
            for number in rng.permutation(len(packed)):
                order.append(window[packed[number]])
                lengths.append(len(packed[number]))
        return _Epoch(np.concatenate(order), np.cumsum(lengths), bins_a_step=self._bins)

    def _dealt(self, rows: list[int]) -> Step:
        bins = packing.balanced(
            self._lengths[rows].tolist(),
            self._stage.pass_tokens,
            images=self._images[rows].tolist(),
            max_images=self._stage.micro_batch_images,
            multiple=self._processes,
        )
        return self._shared([[rows[index] for index in indexes] for indexes in bins])

    def _divided(self, bins: list[MicroBatch]) -> Step:
        """The bins of a step for the processes; packed again where their number does not give each as many."""
        if len(bins) % self._processes == 0:
            return self._shared(bins)
        return self._dealt([row for rows in bins for row in rows])

    def _windows(self, rows: np.ndarray) -> list[np.ndarray]:
        """The rows that are packed together: all of a shuffled epoch, stretches of an ordered one."""
        if self._stage.order == "shuffle":
            return [rows]
        tokens = np.cumsum(self._lengths[rows])
        stretch = _WINDOW * self._budget
        ends = [*np.searchsorted(tokens, np.arange(stretch, tokens[-1], stretch)), len(rows)]
        return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]

    def _shared(self, bins: list[MicroBatch]) -> Step:
        """Bins dealt to the processes, the longest with the shortest, so that all have about as many tokens."""
        bins = bins + [[] for _ in range(-len(bins) % self._processes)]
        bins.sort(key=lambda rows: -int(self._lengths[rows].sum()) if rows else 0)
        processes: Step = [[] for _ in range(self._processes)]
        for turn in range(0, len(bins), self._processes):
            dealt = bins[turn : turn + self._processes]
            for process, rows in zip(processes, dealt if turn % (2 * self._processes) else dealt[::-1], strict=True):
                process.append(rows)
        return processes
