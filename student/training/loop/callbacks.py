"""Callbacks of the trainer between steps: freeze checks, logs before saves, measurements when due, stopping."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback

from student.models.parts import Parts
from student.training.freeze_checks import TowerWatch, check_frozen, check_optimizer_state
from student.training.loop.interrupts import Interrupts
from student.validation.early_stopping import EarlyStopping


class LogBeforeSave(TrainerCallback):  # type: ignore[misc]
    """Log at every save, so the averages of a resumed run and of an uninterrupted run cover the same steps."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_save:
            control.should_log = True


class StopWhenAsked(TrainerCallback):  # type: ignore[misc]
    """End training after a step and a save when a signal has asked for it."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._interrupts.asked():
            self.stopped = control.should_training_stop = control.should_save = True


class MeasureWhenDue(TrainerCallback):  # type: ignore[misc]
    """Ask for a measurement when one is due, and for a log beside it."""

    def __init__(self, early_stopping: EarlyStopping | None) -> None:
        self._early_stopping = early_stopping

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._early_stopping is not None and self._early_stopping.due(state.global_step, state.max_steps):
            control.should_evaluate = control.should_log = True


class FreezeChecks(TrainerCallback):  # type: ignore[misc]
    """At the first step of this process: nothing frozen has a gradient, a graph, optimizer state or another dtype."""

    def __init__(self, parts: Parts, train: Sequence[str], dtype: torch.dtype, model: nn.Module) -> None:
        self._parts = parts
        self._train = train
        self._dtype = dtype
        self._tower_watch: TowerWatch | None = TowerWatch(model, parts)
        self._stepped = False

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Any, **_: Any
    ) -> None:
        if self._tower_watch is not None:
            check_frozen(
                model, self._parts, self._train, dtype=self._dtype, tower_watch=self._tower_watch, optimizer=optimizer
            )
            self._tower_watch.close()
            self._tower_watch = None

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Any, **_: Any) -> None:
        if not self._stepped:
            check_optimizer_state(model, optimizer)
            self._stepped = True
