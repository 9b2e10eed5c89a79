"""The metrics of a stage: losses by part and teacher, real tokens a second, MFU, waiting, memory.

Sums of a step stay tensors until a log asks, so no step waits for the device; counts come from the plan and cost
nothing. Does not train (student/training/loop/trainer.py).
"""

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson
import torch

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.files import write_json
from distill.artifacts.journal import Journal, write_jsonl
from distill.artifacts.json_lines import requiring
from student.data.responses import KINDS
from student.training.checkpoints.checkpoint_files import last_checkpoint, readable_checkpoint

_FILE = "meter.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """The values of one log step; counts are totals since the stage began."""

    step: int
    steps: int
    epoch: float
    loss: float
    learning_rate: float
    token_accuracy: float
    tokens: int
    """Real tokens: padding does not count."""
    response_tokens: int
    images: int
    tokens_per_s: float
    """Over the time since the last log, saving included."""
    padding_share: float
    mfu: float
    """Share of the card's nominal bf16 rate that the model's own work needs, the tower's included; where there is no
    such rate (a CPU, float32, an unknown card) of the measured one."""
    waiting_share: float
    """Share of the time in which the step waited for data."""
    memory_bytes: int
    """The most that was held: of the GPU's memory, or by the process."""
    seconds: float
    """In the training loop, over all runs that led here."""
    responses: int = 0
    """Rows learned from, each as often as it came."""
    hfu: float = 0.0
    """As `mfu`, but layers that gradient checkpointing computes twice count twice."""
    mfu_measured: float = 0.0
    """The model's work as a share of the rate of matrix products that was measured here."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Realised share of the tokens by teacher, and by source for rows of none."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Nats a token since the last log, by part of the response and by teacher."""
    accuracies: Mapping[str, float] = field(default_factory=dict)
    """Share of tokens since the last log for which the right one was the likeliest."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Means over the steps since the last log of further parts of the loss, such as the divergence from teachers."""


OnLog = Callable[[StepLog], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """Facts of a step that the plan gives before the model runs."""

    tokens: int
    """Over all processes, as are responses and their tokens, images, and the tokens by teacher or source."""
    responses: int
    response_tokens: int
    images: int
    by_group: Mapping[str, int]
    own_tokens: int
    """Tokens of this process; padding and FLOPs are of this process, too."""
    padding: int
    flops: float
    """FLOPs that learning needs."""
    hardware_flops: float
    """FLOPs with layers that are computed twice."""


class MetricsLog:
    """Sums over the steps of a stage, of which `groups` are the teachers and sources."""

    def __init__(self, on_log: OnLog, groups: Sequence[str], *, rate: float, nominal: float | None = None) -> None:
        """`rate`: the matrix products that this process's device does, FLOP/s (student/models/flops.py); `nominal`:
        the maker's."""
        self._on_log = on_log
        self._groups = list(groups)
        self._rate, self._nominal = rate, nominal or rate
        self.last: StepLog | None = None
        self.counts: dict[str, int] = dict.fromkeys(("tokens", "responses", "response_tokens", "images"), 0)
        self.by_group: dict[str, int] = dict.fromkeys(groups, 0)
        self.seconds = 0.0
        self._begun = time.perf_counter()
        self._reset(0)

    def start(self, step: int) -> None:
        self._begun = time.perf_counter()
        self._reset(step)

    def _reset(self, step: int) -> None:
        self._logged_step, self._clock = step, time.perf_counter()
        self._waited = self._flops = self._hardware_flops = 0.0
        self._tokens = self._own_tokens = self._padding = 0
        self._sums: dict[str, torch.Tensor] = {}

    def leave_out(self, seconds: float) -> None:
        """Time that was no training, such as measuring the student, and does not count for the speed."""
        self._clock += seconds

    def waited(self, seconds: float) -> None:
        self._waited += seconds

    def step(self, facts: StepFacts) -> None:
        """One step's counts."""
        for name in self.counts:
            self.counts[name] += getattr(facts, name)
        for name, tokens in facts.by_group.items():
            self.by_group[name] += tokens
        self._tokens += facts.tokens
        self._own_tokens += facts.own_tokens
        self._padding += facts.padding
        self._flops += facts.flops
        self._hardware_flops += facts.hardware_flops

    def add(self, **sums: torch.Tensor) -> None:
        """Amounts of one pass on this process."""
        for name, amount in sums.items():
            self._sums[name] = self._sums[name] + amount if name in self._sums else amount

    def undo(self, sums: dict[str, torch.Tensor]) -> None:
        """Forget the passes since `sums`, which `sums_now` gave."""
        self._sums = sums

    def sums_now(self) -> dict[str, torch.Tensor]:
        return dict(self._sums)

    def cells(self, nll: torch.Tensor, right: torch.Tensor, cells: torch.Tensor) -> None:
        """Likelihoods and hits of one pass by cell: a token's group times the number of parts, plus its part.

        What lies in the cell after the last is left out.
        """
        size = len(self._groups) * len(KINDS)
        result = torch.zeros(3, size + 1, dtype=torch.float64, device=nll.device)
        values = torch.stack([nll.double(), right.double(), torch.ones_like(nll, dtype=torch.float64)])
        self.add(cells=result.index_add_(1, cells, values))

    def log(
        self,
        *,
        step: int,
        steps: int,
        epoch: float,
        learning_rate: float,
        reduce: Callable[[torch.Tensor], torch.Tensor] = lambda sums: sums,
    ) -> StepLog:
        """Report the steps since the last report; `reduce` adds a tensor up over all processes."""
        sums = {name: reduce(value).cpu() for name, value in sorted(self._sums.items())}
        cells = sums.pop("cells")[:, :-1].reshape(3, len(self._groups), len(KINDS))
        _, right, count = cells.sum((1, 2)).tolist()
        loss = float(sums.pop("loss"))
        now = time.perf_counter()
        passed, taken = now - self._clock, step - self._logged_step
        total_tokens = max(1, self.counts["tokens"])
        self.last = StepLog(
            step=step,
            steps=steps,
            epoch=round(epoch, 4),
            loss=loss / taken,
            learning_rate=learning_rate,
            token_accuracy=right / max(1.0, count),
            **self.counts,
            tokens_per_s=self._tokens / passed,
            padding_share=self._padding / max(1, self._padding + self._own_tokens),
            mfu=self._flops / passed / self._nominal,
            hfu=self._hardware_flops / passed / self._nominal,
            mfu_measured=self._flops / passed / self._rate,
            waiting_share=self._waited / passed,
            memory_bytes=peak_memory(),
            seconds=self.seconds + now - self._begun,
            shares={name: tokens / total_tokens for name, tokens in self.by_group.items()},
            losses=self._means(cells[0], cells[2]),
            accuracies=self._means(cells[1], cells[2]),
            extra={name: float(value) / taken for name, value in sums.items()},
        )
        self._reset(step)
        self._on_log(self.last)
        return self.last

    def _means(self, sums: torch.Tensor, counts: torch.Tensor) -> dict[str, float]:
        """Means by part and by group, and by both where there are several groups; what had no token is left out."""
        tables: list[tuple[Sequence[str], torch.Tensor, torch.Tensor]] = [(KINDS, sums.sum(0), counts.sum(0))]
        if len(self._groups) > 1:
            tables.append((self._groups, sums.sum(1), counts.sum(1)))
            names = [f"{group}.{kind}" for group in self._groups for kind in KINDS]
            tables.append((names, sums.flatten(), counts.flatten()))
        return {
            name: total / count
            for names, totals, number in tables
            for name, total, count in zip(names, totals.tolist(), number.tolist(), strict=True)
            if count
        }

    def save(self, folder: Path) -> None:
        assert self.last is not None
        write_json(folder / _FILE, {"counts": self.counts, "by_group": self.by_group, "last": asdict(self.last)})

    def restore(self, folder: Path) -> StepLog:
        kept: dict[str, Any] = orjson.loads((folder / _FILE).read_bytes())
        self.last = StepLog(**kept["last"])
        self.counts, self.by_group = kept["counts"], kept["by_group"]
        self.seconds = self.last.seconds
        return self.last


def seconds_before(checkpoints: Path) -> float:
    """Seconds in the training loop of the runs that led to the newest checkpoint; 0 without one."""
    checkpoint = last_checkpoint(checkpoints)
    if checkpoint is None:
        return 0.0
    with readable_checkpoint(checkpoint):
        return float(orjson.loads((checkpoint / _FILE).read_bytes())["last"]["seconds"])


def journal(path: Path, step: int) -> Journal:
    """The lines of the steps up to `step`, open for more: what came after the last checkpoint will come again."""
    write_jsonl(path, [line for line in recovered(path, requiring("step")) if line["step"] <= step])
    return Journal(path)


def peak_memory() -> int:
    """Bytes."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2) of macOS and of Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def flat(values: Mapping[str, Any]) -> dict[str, float]:
    """Nested metrics under joined names, as experiment trackers take them."""
    result: dict[str, float] = {}
    for name, value in values.items():
        result |= (
            {f"{name}/{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {name: value}
        )
    return result
