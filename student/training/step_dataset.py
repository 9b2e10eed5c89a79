"""The data set that the trainer sees: one item a step, with this process's micro-batches ready for the model.

Items are made from the plan when they are asked for, in worker processes if need be, and depend on their number
alone. Does not decide what a step holds (student/data/batch_plan.py).
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch.utils.data import Dataset
from transformers import PreTrainedModel

from distill.errors import DataError, DistillError
from distill.recipe.sections.stages import Stage
from distill.word_tables import counted
from student.data import mixture, packing
from student.data.batch_plan import BatchPlan, MicroBatch
from student.data.collate import Collator, Layout
from student.data.encode import Examples
from student.data.image_tokens import TokenStore
from student.data.images import ImageStore
from student.data.responses import KINDS
from student.data.teacher_logprobs import TopLogprobs
from student.distributed import processes
from student.loss.token_weights import StepWeights, counts
from student.models.flops import Cost
from student.models.parts import Parts
from student.models.recurrent import BOUNDS, with_row_sizes
from student.training.loop.metrics_log import StepFacts

MICRO_BATCHES, FACTS = "micro_batches", "facts"
STEP, PARTS = "step", "parts"
"""The number of a step, and into how many passes its micro-batches were divided."""
FAILED = "failed"
"""The only key of a step that cannot be made, with its error: worker processes would raise it as text only."""
TEACHER = "teacher_"
"""What the names of a micro-batch's distributions begin with, where the stage distils."""

PAIR = "pair_"
"""What the names of the inputs of `student.loss.preference.PairLoss` begin with, where the stage learns from pairs.
"""


def build_step_dataset(
    student: PreTrainedModel | PeftModel,
    parts: Parts,
    collator: Collator,
    stage: Stage,
    *,
    seed: int,
    distributions: TopLogprobs | None = None,
    process: int = 0,
    processes: int = 1,
) -> "StepDataset":
    """The steps of a stage for a `student` that is prepared for it (student/models/freeze.py).

    `collator` has the rows, with raw pixels; `distributions`: the teachers' for them, for a stage that distils.
    """
    columns = collator.examples.columns.in_groups(stage.group_rows)
    lengths = columns.lengths
    result = mixture.groups(
        lengths, columns.sources, columns.teachers, own=stage.data, replay=stage.replay, weights=stage.teachers
    )
    ranks = {"length": lengths, "difficulty": columns.difficulty}.get(stage.order, np.arange(len(lengths)))
    plan = BatchPlan(
        lengths,
        columns.images,
        stage,
        epoch_rows=lambda epoch: mixture.epoch_rows(
            result, lengths, seed=seed, epoch=epoch, order=stage.order, ranks=ranks
        ),
        seed=seed,
        processes=processes,
    )
    return StepDataset(
        plan,
        collator,
        stage,
        cost=Cost.of(student, parts),
        hardware_cost=Cost.of(student, parts, checkpointing=stage.gradient_checkpointing is True),
        distributions=distributions,
        process=process,
    )


def require_something_to_learn(examples: Examples, stage: Stage) -> None:
    """Raise DataError for a stage in which no step would change the student."""
    if stage.train == ("projector",) and not examples.columns.images.any():
        raise DataError(
            f"stage '{stage.name}': train = [\"projector\"], and none of its {counted(len(examples), 'row')} has an "
            "image to learn from; give it data with images, or train the language model"
        )
    if not any(counts(example, stage.loss) for example in examples.rows):
        raise DataError(
            f"stage '{stage.name}': every token of its {counted(len(examples), 'row')} has weight 0, so nothing "
            "would be learned; look at stages.loss (a source has answers and no rationales) and at the dataset's "
            "`weight`"
        )


class StepDataset(Dataset[dict[str, Any]]):
    """Step number to `micro_batches` (dictionaries of tensors), `facts`, `step` and `parts`, or to `failed`."""

    def __init__(
        self,
        plan: BatchPlan,
        collator: Collator,
        stage: Stage,
        *,
        cost: Cost,
        hardware_cost: Cost,
        distributions: TopLogprobs | None = None,
        process: int = 0,
    ) -> None:
        self._distributions, self._distil = distributions, stage.divergence
        self._preference, self._group_rows = stage.preference, stage.group_rows
        self.reference: np.ndarray | None = None
        """Log-probabilities of the rows before the stage, float32[rows], for one that learns from pairs."""
        self.plan, self._examples, self._collator, self._store = plan, collator.examples, collator, collator.store
        self._loss, self._cost, self._hardware_cost, self._process = stage.loss, cost, hardware_cost, process
        columns = collator.examples.columns
        self._group_names = [
            teacher or source for teacher, source in zip(columns.teachers, columns.sources, strict=True)
        ]
        self.groups = sorted(set(self._group_names))
        """Teachers, and sources of rows without one: losses and tokens are reported for each."""
        self._groups = {name: index for index, name in enumerate(self.groups)}
        self._no_cell = len(self._groups) * len(KINDS)
        # Worker processes see it change.
        self._parts = torch.ones((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def parts(self) -> int:
        """The passes that each planned micro-batch is made into, where it has as many rows."""
        return int(self._parts)

    def on_device(self, micro_batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
        """What the model takes: tensors copied behind what the device still has to do, pixels normalised there."""
        moved = {
            name: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for name, value in micro_batch.items()
        }
        moved |= {name: with_row_sizes(micro_batch[name], device) for name in BOUNDS if name in micro_batch}
        return self._store.normalised(moved)

    def halve(self) -> None:
        """Make passes of half as many rows from now on (student/training/loop/halving.py)."""
        self._parts.mul_(2)

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, step: int) -> dict[str, Any]:
        try:
            return self.made(step)
        except DistillError as error:
            return {FAILED: error}

    def made(self, step: int) -> dict[str, Any]:
        """A step; raises the error of one that cannot be made."""
        planned, parts = self.plan[step], self.parts
        rows = self.rows_of([step])
        learned = (example for row in rows if not (example := self._examples.rows[row]).row.rejected)
        weights = StepWeights(learned, self._loss, step / max(1, len(self.plan) - 1))
        # A step of fewer rows than processes leaves some without one; they repeat a row that counts nothing.
        divided = [part for chosen in planned[self._process] for part in self._divided(chosen, parts)]
        own = [self._rows_of(groups) for groups in divided]
        spare, pairs = rows[: self._group_rows], len(rows) // self._group_rows
        micro_batches = [self._micro_batch(chosen or spare, weights if chosen else None, pairs) for chosen in own]
        facts = self._facts(rows, own, micro_batches)
        return {MICRO_BATCHES: micro_batches, FACTS: facts, STEP: step, PARTS: parts}

    def rows_of(self, steps: Iterable[int]) -> list[int]:
        """The rows of these steps, in order."""
        planned = (micro_batch for step in steps for process in self.plan[step] for micro_batch in process)
        return [row for micro_batch in planned for row in self._rows_of(micro_batch)]

    def _rows_of(self, groups: MicroBatch) -> list[int]:
        """The rows of what the plan counts: single rows, or pairs of them."""
        return [group * self._group_rows + place for group in groups for place in range(self._group_rows)]

    def _divided(self, groups: MicroBatch, parts: int) -> list[MicroBatch]:
        """A micro-batch split into `parts` of about equal length, or into one for each group where they are fewer."""
        parts = min(parts, len(groups))
        if parts < 2:
            return [groups]
        lengths = [sum(len(self._examples.rows[row].ids) for row in self._rows_of([group])) for group in groups]
        divided = packing.balanced(lengths, sum(lengths), images=[0] * len(groups), max_images=1, multiple=parts)
        return [[groups[index] for index in indexes] for indexes in divided]

    def passes(self, tokens: int, images: int) -> Iterator[Layout]:
        """All rows once, in passes of at most so many tokens and images."""
        columns = self._examples.columns
        bins = packing.best_fit(columns.lengths.tolist(), tokens, images=columns.images.tolist(), max_images=images)
        yield from map(self._collator, bins)

    def reply_lengths(self, rows: Sequence[int]) -> list[int]:
        """Labelled tokens of each of these rows."""
        return [len(self._examples.rows[row].kinds) for row in rows]

    def _micro_batch(self, rows: MicroBatch, weights: StepWeights | None, pairs: int) -> dict[str, Any]:
        layout = self._collator(rows)
        result = [self._examples.rows[row] for row in layout.rows]
        if weights is not None:
            share = 1.0 if self._preference is None else self._preference.sft
            counted = np.concatenate(
                [weights(each) * np.float32(0 if each.row.rejected else share) for each in result]
            )
            group_numbers = [self._groups[self._group_names[row]] for row in layout.rows]
            sizes = [len(example.kinds) for example in result]
            cells = np.repeat(group_numbers, sizes) * len(KINDS) + np.concatenate([each.kinds for each in result])
            cells[np.repeat([example.row.rejected for example in result], sizes)] = self._no_cell
        else:
            counted = np.zeros(len(layout.labels), np.float32)
            cells = np.full(len(layout.labels), self._no_cell)
        teacher = self._teacher(layout, counted) if self._distributions is not None else {}
        return {
            **layout.inputs,
            "at": torch.from_numpy(layout.at),
            "labels": torch.from_numpy(layout.labels),
            "weights": torch.from_numpy(counted - teacher["weights"] if teacher else counted),
            "cells": torch.from_numpy(cells),
            **{f"{TEACHER}{name}": torch.from_numpy(value) for name, value in teacher.items()},
            **(self._pairs(layout, 1 / pairs if weights is not None else 0.0) if self._preference else {}),
        }

    def _pairs(self, layout: Layout, weight: float) -> dict[str, Any]:
        """What `student.loss.preference.PairLoss` takes; each pair of the pass counts `weight`."""
        assert self._preference is not None and self.reference is not None
        pairs = sorted({row // 2 for row in layout.rows})
        replies = [2 * pairs.index(row // 2) + row % 2 for row in layout.rows]
        sizes = self.reply_lengths(layout.rows)
        reference = self.reference[[row for pair in pairs for row in (2 * pair, 2 * pair + 1)]]
        return {
            f"{PAIR}reply": torch.from_numpy(np.repeat(replies, sizes)),
            f"{PAIR}reference": torch.from_numpy(reference),
            f"{PAIR}weights": torch.full((len(pairs),), weight),
            f"{PAIR}beta": self._preference.beta,
        }

    def _teacher(self, layout: Layout, counted: np.ndarray) -> dict[str, np.ndarray]:
        """What `student.loss.teacher_divergence.from_teacher` takes.

        Where the teacher says nothing the likelihood counts whole, or the framing that only the student writes would
        be learned less than the rest.
        """
        assert self._distributions is not None and self._distil is not None
        tables_by_row = [self._distributions.of(row, len(self._examples.rows[row].kinds)) for row in layout.rows]
        ids, logprobs = (np.concatenate(tables) for tables in zip(*tables_by_row, strict=True))
        weights = counted * np.float32(self._distil.weight) * (ids >= 0).any(axis=1)
        return {"ids": ids.astype(np.int64), "logprobs": logprobs, "weights": weights}

    def _facts(
        self, rows: Sequence[int], own: Sequence[MicroBatch], inputs_of_batches: Sequence[dict[str, Any]]
    ) -> StepFacts:
        examples = self._examples.rows
        by_group: dict[str, int] = {}
        for row in rows:
            name = self._group_names[row]
            by_group[name] = by_group.get(name, 0) + len(examples[row].ids)
        mine = [examples[row] for micro_batch in own for row in micro_batch]
        own_tokens = sum(len(example.ids) for example in mine)
        patches = [self._cost.patches(inputs) for inputs in inputs_of_batches]
        work = {
            "tokens": own_tokens,
            "squared_lengths": sum(len(example.ids) ** 2 for example in mine),
            "response_tokens": sum(len(example.kinds) for example in mine),
            "patches": sum(number for number, _ in patches),
            "squared_patches": sum(squares for _, squares in patches),
        }
        return StepFacts(
            tokens=sum(by_group.values()),
            responses=len(rows),
            response_tokens=sum(len(examples[row].kinds) for row in rows),
            images=sum(len(examples[row].row.images) for row in rows),
            by_group=by_group,
            own_tokens=own_tokens,
            padding=sum(inputs["input_ids"].numel() for inputs in inputs_of_batches) - own_tokens,
            flops=self._cost.flops(**work),
            hardware_flops=self._hardware_cost.flops(**work),
        )


def decoding_processes(images: ImageStore | TokenStore) -> int:
    """Processes that make steps: a few while images have to be decoded; beside a GPU, which waits otherwise, one."""
    if images.full:
        return min(4, max(1, (os.cpu_count() or 1) // processes.local_count()))
    return int(torch.cuda.is_available())
