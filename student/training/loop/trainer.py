"""One stage through TRL's SFTTrainer: our rows, order, loss and checkpoints; its loop and optimizer.

A checkpoint holds the trainable tensors only (the frozen ones are the start model's), optimizer, schedule and random
states. Does not know about runs or manifests (student/train.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader
from transformers import PrinterCallback, TrainerState, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from trl import SFTTrainer

from distill.artifacts.files import make_folder, storage_errors
from distill.artifacts.layout import CHECKPOINTS
from distill.recipe.sections.stages import Stage
from student.distributed import fsdp, own_disks, processes
from student.distributed.step_watch import StepWatch
from student.loss.preference import PairLoss
from student.loss.teacher_divergence import from_teacher
from student.loss.training_loss import Scored
from student.models.flops import product_rates
from student.models.freeze import plain_model
from student.models.library_output import hide_library_output
from student.training.checkpoints.checkpoint_files import (
    OPTIMIZER,
    PREFIX,
    SCHEDULER,
    WEIGHTS,
    last_checkpoint,
    readable_checkpoint,
    write_checkpoint,
    write_files,
)
from student.training.checkpoints.checkpoint_writer import CheckpointWriter, write_together
from student.training.loop import sft_config
from student.training.loop.callbacks import FreezeChecks, LogBeforeSave, MeasureWhenDue, StopWhenAsked
from student.training.loop.finite_checks import require_finite_loss, require_finite_weights
from student.training.loop.halving import Halving, sum_in_float32
from student.training.loop.interrupts import Interrupts, leave_to_parent
from student.training.loop.metrics_log import MetricsLog, OnLog, StepLog, flat
from student.training.optimizer.compensated_adamw import CompensatedAdamW
from student.training.step_dataset import FACTS, FAILED, PAIR, TEACHER, StepDataset
from student.validation.early_stopping import EarlyStopping, Measured

if TYPE_CHECKING:
    from student.training.stage_run import StageRun


def fit(
    work: "StageRun",
    *,
    workers: int,
    on_log: OnLog,
    on_notice: Callable[[str], None],
    early_stopping: EarlyStopping | None = None,
) -> StepLog:
    """Train the student in place, from the last complete checkpoint of the stage if there is one; the last log.

    A first SIGINT or SIGTERM meanwhile writes a checkpoint after the step and raises KeyboardInterrupt. `on_notice`
    gets a sentence for each step that is made in smaller passes (student/training/loop/halving.py). With
    `early_stopping` the stage may end early, and the saved weights may be the weights of the best measurement.
    """
    with hide_library_output():
        model, parts, steps, stage = work.student, work.parts, work.steps, work.stage
        folder, step_count = work.folder / CHECKPOINTS, len(steps.plan)
        if stage.sharding == "fsdp2" and processes.count() > 1:
            fsdp.shard(model, parts, work.device, processes.count())
        with sft_config.tracker_files(work.folder):
            trainer = StageTrainer(
                model=model,
                args=sft_config.settings(stage, folder, steps=step_count, seed=work.recipe.seed, workers=workers),
                train_dataset=Dataset.from_dict({"step": list(range(step_count))}),
                data_collator=_only,
                processing_class=work.processor,
                steps=steps,
                stage=stage,
                on_notice=on_notice,
                projector=nn.ModuleList(plain_model(model).get_submodule(name) for name in parts.projectors),
                metrics_log=MetricsLog(on_log, steps.groups, **product_rates(work.device, work.dtype)),
                early_stopping=early_stopping,
            )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(trainer.stopper)
        trainer.add_callback(LogBeforeSave())
        trainer.add_callback(MeasureWhenDue(early_stopping))
        trainer.add_callback(FreezeChecks(parts, stage.train, work.dtype, model))
        return trainer.run(folder)


def _only(items: Sequence[Any]) -> Any:
    """The one item of a batch."""
    (item,) = items
    return item


class StageTrainer(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer with rows prepared elsewhere, an order of its own, and checkpoints that survive a kill."""

    control: Any

    def __init__(
        self,
        *,
        steps: StepDataset,
        stage: Stage,
        metrics_log: MetricsLog,
        projector: nn.Module,
        on_notice: Callable[[str], None],
        early_stopping: EarlyStopping | None,
        **kwargs: Any,
    ) -> None:
        self._steps, self._stage, self._projector = steps, stage, projector
        self._halving = Halving(steps, on_notice)
        self._metrics_log, self._early_stopping = metrics_log, early_stopping
        self._writer, self._watch = CheckpointWriter(), StepWatch()
        self._interrupts = Interrupts(lambda: self._writer.busy)
        self._steps_made: Any = None
        self.stopper = StopWhenAsked(self._interrupts)
        # One process trains on one device; several need a launcher, and nn.DataParallel is no choice for TRL.
        kwargs["args"]._n_gpu = min(1, kwargs["args"].n_gpu)
        super().__init__(**kwargs)

    def run(self, folder: Path) -> StepLog:
        """Train to the end of the stage, unless a signal asks to stop: KeyboardInterrupt after a checkpoint."""
        with self._interrupts:
            try:
                with self._writer, self._watch:
                    self._train_on(folder)
            finally:
                self._end_workers()
            if self.stopper.stopped or self._interrupts.asked():
                raise KeyboardInterrupt
        best = own_disks.bring_chosen(folder, self._early_stopping.best) if self._early_stopping is not None else None
        if best is not None:
            self._load_from_checkpoint(str(best))
        assert self._metrics_log.last is not None
        return self._metrics_log.last

    def _train_on(self, folder: Path) -> None:
        # Incomplete checkpoints are removed by one process, and all go on from the same one.
        checkpoint = own_disks.bring_chosen(folder, last_checkpoint(folder) if processes.is_main() else None)
        step, over = 0, False
        if checkpoint is not None:
            with readable_checkpoint(checkpoint):
                TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
                last = self._metrics_log.restore(checkpoint)
            step, over = last.step, last.step >= last.steps
        if self._early_stopping is not None:
            if processes.is_main():
                self._early_stopping.start(checkpoint, step)
            if processes.share(self._early_stopping.measurement_pending):
                self._load_from_checkpoint(str(checkpoint))
                assert self._metrics_log.last is not None
                self.state.global_step, self.state.max_steps = step, self._metrics_log.last.steps
                self.evaluate()
                if self.stopper.stopped:
                    return
            over = processes.share(over or self._early_stopping.stopped)
        if over:
            self._load_from_checkpoint(str(checkpoint))
        else:
            # Dropout differs from process to process.
            set_seed(self.args.seed + processes.rank())
            self._metrics_log.start(step)
            self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def get_optimizer_cls_and_kwargs(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """TRL's choice, but for weights of few bits one that does not round small updates away."""
        kind, options = super().get_optimizer_cls_and_kwargs(*args, **kwargs)
        if all(weight.dtype == torch.float32 for _, weight in self._trainable()):
            return kind, options
        return CompensatedAdamW, {name: options[name] for name in ("lr", "betas", "eps")}

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The steps in order. A resumed run does not make the steps before its own: the loop skips their numbers."""
        return DataLoader(
            self._steps,
            batch_size=1,
            collate_fn=_only,
            num_workers=self.args.dataloader_num_workers,
            # The plan, the rows and the images in memory are shared, not sent.
            multiprocessing_context="fork" if self.args.dataloader_num_workers else None,
            persistent_workers=self.args.dataloader_persistent_workers,
            worker_init_fn=leave_to_parent,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def _end_workers(self) -> None:
        """End the processes that decode images. They ignore SIGTERM, so Python would wait for them at exit."""
        if hasattr(self._steps_made, "_shutdown_workers"):
            self._steps_made._shutdown_workers()

    def get_batch_samples(self, epoch_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        # In a resumed run, this is the loader that transformers makes to skip steps.
        self._steps_made = epoch_iterator
        started = time.perf_counter()
        result = super().get_batch_samples(epoch_iterator, *args, **kwargs)
        self._metrics_log.waited(time.perf_counter() - started)
        return result

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        wrapped: nn.Module = super()._wrap_model(model, training, dataloader)
        return fsdp.Sharded(model) if fsdp.is_sharded(model) else wrapped

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Forward and backward of all micro-batches of a step; gradients are exchanged once, after the last."""
        if FAILED in inputs:
            raise inputs[FAILED]
        self._writer.check()
        self._watch.begin_step(self.state.global_step + 1)
        model.train()
        before = self._metrics_log.sums_now()

        def undo() -> None:
            model.zero_grad(set_to_none=True)
            self._metrics_log.undo(dict(before))

        total = self._halving.run(inputs, lambda micro_batches: self._all_passes(model, micro_batches), undo)
        self._metrics_log.step(inputs[FACTS])
        return total

    def _all_passes(self, model: nn.Module, micro_batches: list[dict[str, Any]]) -> torch.Tensor:
        sum_in_float32(model, len(micro_batches))
        total = torch.zeros((), device=self.args.device)
        for number, micro_batch in enumerate(micro_batches, 1):
            if last := number == len(micro_batches):
                self._watch.begin_exchange(self.state.global_step + 1)
            with nullcontext() if last else self.accelerator.no_sync(model):
                loss = self.compute_loss(model, self._steps.on_device(micro_batch, self.args.device))
                self.accelerator.backward(loss)
            total += loss.detach()
        return total

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """The micro-batch's part of the step's loss: its tokens' weights sum to one over the whole step."""
        cells, weights = inputs.pop("cells"), inputs["weights"]
        teacher = {name.removeprefix(TEACHER): inputs.pop(name) for name in list(inputs) if name.startswith(TEACHER)}
        pairs = {name.removeprefix(PAIR): inputs.pop(name) for name in list(inputs) if name.startswith(PAIR)}
        joint = PairLoss(**pairs) if pairs else None  # type: ignore[arg-type]
        scored: Scored = model(**inputs, extra=from_teacher(**teacher) if teacher else None, joint=joint)
        self._metrics_log.add(loss=scored.loss.detach())
        if teacher:
            self._metrics_log.add(divergence=scored.loss.detach() - scored.nll @ weights)
        if joint is not None:
            self._metrics_log.add(**joint.measures(scored.nll))
        self._metrics_log.cells(scored.nll, scored.right, cells)
        # Gradients are averaged over the processes, weights sum to one over all of them.
        loss: torch.Tensor = scored.loss * self.accelerator.num_processes
        if "pixel_values" not in inputs:
            # The projector is no part of this pass, but the processes wait for each other's gradients.
            loss = loss + 0.0 * sum(each.sum() for each in self._projector.parameters() if each.requires_grad)
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            step = self.state.global_step
            report = self._metrics_log.log(
                step=step,
                steps=self.state.max_steps,
                epoch=self._steps.plan.epoch(step),
                learning_rate=logs["learning_rate"],
                reduce=lambda sums: self.accelerator.reduce(sums, "sum"),
            )
            logs.update(flat(asdict(report)))
            # Before a save: the checkpoint that is there is from when all was well.
            require_finite_loss(report, self._stage)
        super().log(logs, start_time)
        # The whole history would be written with every checkpoint, and metrics.jsonl already has it.
        self.state.log_history.clear()

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        with self._watch.paused():
            return self._evaluated()

    def _evaluated(self) -> dict[str, float]:
        """Measure in the main process; the others wait, or compute along where each has a share of the layers.

        What a signal broke off is left to the resumed run.
        """
        assert self._early_stopping is not None
        started, decided = time.perf_counter(), None
        measured = None if self.stopper.stopped else self._measured()
        if measured is not None and processes.is_main():
            metrics = self._early_stopping.record(measured)
            decided = metrics, self._early_stopping.best if metrics.best else None, self._early_stopping.stopped
        shared = processes.share(decided)
        if shared is None:
            self._early_stopping.measurement_pending = self.stopper.stopped = True
            self.control.should_training_stop = self.control.should_save = True
            # transformers asks again at the end of its epoch, and would write the whole checkpoint once more.
            self.control.should_evaluate = False
            return {}
        metrics, best, stopped = shared
        if best is not None:
            self._writer.wait()
            weights = self._writer.weights(self._trainable())
            if processes.is_main():
                self._writer.start(partial(write_files, best, {WEIGHTS: weights}))
        self._metrics_log.leave_out(time.perf_counter() - started)
        values = {f"eval_{name}": value for name, value in metrics.scalars().items()}
        self.log(values)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, values)
        if stopped:
            self.control.should_training_stop = self.control.should_save = True
        return values

    def _measured(self) -> Measured | None:
        """None in a process that takes no part, or when a signal breaks it off."""
        assert self._early_stopping is not None
        position = (self.state.global_step, self.state.max_steps)
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        if fsdp.is_sharded(model):
            # All processes measure to the end together: one that left would make the others hang.
            return self._early_stopping.measure(model, *position)
        if not processes.is_main():
            return None
        try:
            return self._early_stopping.measure(model, *position, within=self._interrupts.breaking_off())
        except KeyboardInterrupt:
            if self._interrupts.over:
                raise
            return None

    def floating_point_ops(self, inputs: Mapping[str, Any]) -> int:
        """Not counted: walking all parameters at every step costs more than the number is worth."""
        return 0

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """A checkpoint is not published."""

    def _send_telemetry(self) -> None:
        """Nothing leaves the machine."""

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"{PREFIX}{self.state.global_step}"
        with self._watch.paused():
            require_finite_weights(self._trainable(), self.state.global_step, self._stage)
            self._writer.wait()
            weights, optimizer = self._writer.weights(self._trainable()), self._writer.optimizer(self.optimizer)
            with storage_errors(folder):
                if processes.is_main():
                    make_folder(folder)
                super()._save_checkpoint(model, trial)
                if not processes.is_main():
                    return
                self._metrics_log.save(folder)
                if self._early_stopping is not None:
                    self._early_stopping.save(folder)
        # The best weights may change while this checkpoint is written; it names those that are the best now.
        obsolete = self._early_stopping.obsolete() if self._early_stopping is not None else []
        self._writer.start(partial(write_checkpoint, folder, {WEIGHTS: weights, OPTIMIZER: optimizer}, obsolete))

    def save_model(self, *_: Any, **__: Any) -> None:
        """A checkpoint's weights and optimizer are written by a thread."""

    def _save_rng_state(self, output_dir: str) -> None:
        write_together(super()._save_rng_state, Path(output_dir))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if processes.is_main():
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        with readable_checkpoint(Path(checkpoint)):
            fsdp.fill_state(self.optimizer, torch.load(Path(checkpoint) / OPTIMIZER, map_location="cpu"))
            self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint) / SCHEDULER))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with readable_checkpoint(Path(resume_from_checkpoint)):
            saved = load_file(Path(resume_from_checkpoint) / WEIGHTS)
            for name, parameter in self._trainable():
                fsdp.fill(parameter, saved[name])

    def _trainable(self) -> list[tuple[str, nn.Parameter]]:
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
