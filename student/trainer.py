"""One stage through TRL's SFTTrainer: our rows, our order, our checkpoints; its loop, optimizer and fused head.

A checkpoint holds the trainable tensors only (the frozen ones are the start model's), optimizer, schedule and random
states. It counts once the marker file is in it, so a save that was interrupted is recognised and removed. Does not
know about runs or manifests (student/train.py).
"""

import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from datasets import Dataset
from datasets import logging as datasets_logging
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel, PrinterCallback, ProcessorMixin, TrainerCallback, set_seed
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as transformers_logging
from trl import SFTConfig, SFTTrainer

from distill.artifacts import storage_errors, write_json, write_text
from distill.errors import StorageError
from distill.recipe import Stage
from student.collate import Collator
from student.freeze import TowerWatch, prove
from student.model import Parts
from student.packing import StepSampler

COMPLETE = "complete"
"""Marker file of a checkpoint, written when everything else is on disk."""
WEIGHTS = "trainable.safetensors"
_PREFIX = "checkpoint-"
_METER = "meter.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """What one log step says; counts are totals since the stage began."""

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
    seconds: float
    """In the training loop, over all runs that led here."""


OnLog = Callable[[StepLog], None]


def fit(
    model: PreTrainedModel | PeftModel,
    processor: ProcessorMixin,
    parts: Parts,
    lengths: list[int],
    collator: Collator,
    stage: Stage,
    *,
    folder: Path,
    seed: int,
    dtype: torch.dtype,
    workers: int = 0,
    on_log: OnLog,
) -> StepLog:
    """Train in place, from the last complete checkpoint under `folder` if there is one; what the last step said."""
    with quiet():
        if stage.kernels == "compile":
            compile_layers(model, parts)
        trainer = StageTrainer(
            model=model,
            args=settings(stage, folder, seed=seed, workers=workers),
            train_dataset=Dataset.from_dict({"row": list(range(len(lengths)))}),
            data_collator=collator,
            processing_class=processor,
            order=StepSampler(lengths, batch_size=stage.batch_size, seed=seed, shuffle=stage.order == "shuffle"),
            meter=Meter(on_log),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_LogBeforeSave())
        trainer.add_callback(_Proof(parts, stage.train, dtype, model))
        return trainer.run(folder)


def compile_layers(model: nn.Module, parts: Parts) -> int:
    """Compile the layers of the language model one by one; how many.

    All layers share one compilation, and the joining of images and text, which breaks graphs, stays outside.
    """
    plain = model.get_base_model() if isinstance(model, PeftModel) else model
    layers = [
        module
        for module in plain.get_submodule(parts.language).modules()
        if isinstance(module, GradientCheckpointingLayer)
    ]
    for layer in layers:
        layer.compile(dynamic=True)
    return len(layers)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; incomplete ones, left by a kill during a save, are removed."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob(f"{_PREFIX}*"):
        if (path / COMPLETE).is_file():
            found.append((int(path.name.removeprefix(_PREFIX)), path))
        else:
            shutil.rmtree(path)
    return max(found)[1] if found else None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep progress bars, banners and advice of the libraries off the user's terminal."""
    bars = transformers_logging.is_progress_bar_enabled()
    levels = transformers_logging.get_verbosity(), datasets_logging.get_verbosity()
    others = [logging.getLogger(name) for name in ("trl", "accelerate", "peft", "torch.distributed", "torch._dynamo")]
    kept = [logger.level for logger in others]
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    datasets_logging.set_verbosity_error()
    for logger in others:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(others, kept, strict=True):
            logger.setLevel(level)
        transformers_logging.set_verbosity(levels[0])
        datasets_logging.set_verbosity(levels[1])
        if bars:
            transformers_logging.enable_progress_bar()


def settings(stage: Stage, folder: Path, *, seed: int, workers: int) -> SFTConfig:
    """The stage in TRL's words."""
    micro = stage.batch_size
    schedule = "constant_with_warmup" if stage.schedule == "constant" else stage.schedule
    return SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=stage.batch_size // micro,
        num_train_epochs=stage.epochs,
        max_steps=stage.max_steps or -1,
        learning_rate=stage.learning_rate,
        lr_scheduler_type=schedule,
        warmup_steps=stage.warmup_share,
        weight_decay=stage.weight_decay,
        max_grad_norm=stage.max_grad_norm,
        gradient_checkpointing=stage.gradient_checkpointing,
        # The weights themselves lie in the asked dtype; autocast would cast them again at every use.
        bf16=False,
        fp16=False,
        seed=seed,
        use_cpu=not torch.cuda.is_available(),
        logging_steps=stage.log_every_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=stage.save_every_steps,
        report_to=list(stage.report_to) or "none",
        disable_tqdm=True,
        max_length=None,
        remove_unused_columns=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0,
        dataloader_pin_memory=torch.cuda.is_available(),
        average_tokens_across_devices=True,
    )


class Meter:
    """Sums over the steps of a stage. They stay tensors until a log asks, so no step waits for the device."""

    def __init__(self, on_log: OnLog) -> None:
        self._on_log = on_log
        self.last: StepLog | None = None
        self.totals = dict.fromkeys(("tokens", "response_tokens", "images", "padding"), 0)
        self.seconds = 0.0
        self._since: dict[str, Any] = {}
        self._logged_step = 0
        self._clock = time.perf_counter()
        self._begun = self._clock

    def start(self, step: int) -> None:
        self._logged_step = step
        self._clock = self._begun = time.perf_counter()
        self._since = {}

    def add(self, **amounts: torch.Tensor | int) -> None:
        for name, amount in amounts.items():
            self._since[name] = self._since.get(name, 0) + amount

    def log(self, *, step: int, steps: int, epoch: float, learning_rate: float) -> StepLog:
        """Report the steps since the last report."""
        now = time.perf_counter()
        since = {name: float(value) for name, value in self._since.items()}
        for name in self.totals:
            self.totals[name] += int(since[name])
        self.last = StepLog(
            step=step,
            steps=steps,
            epoch=round(epoch, 4),
            loss=since["loss"] / (step - self._logged_step),
            learning_rate=learning_rate,
            token_accuracy=since["right"] / max(1.0, since["response_tokens"]),
            tokens=self.totals["tokens"],
            response_tokens=self.totals["response_tokens"],
            images=self.totals["images"],
            tokens_per_s=since["tokens"] / (now - self._clock),
            padding_share=since["padding"] / max(1.0, since["padding"] + since["tokens"]),
            seconds=self.seconds + now - self._begun,
        )
        self._logged_step, self._clock, self._since = step, now, {}
        self._on_log(self.last)
        return self.last

    def save(self, folder: Path) -> None:
        assert self.last is not None
        write_json(folder / _METER, {"totals": self.totals, "last": asdict(self.last)})

    def restore(self, folder: Path) -> StepLog:
        kept = orjson.loads((folder / _METER).read_bytes())
        self.last = StepLog(**kept["last"])
        self.totals = kept["totals"]
        self.seconds = self.last.seconds
        return self.last


class StageTrainer(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer with rows prepared elsewhere, an order of its own, and checkpoints that survive a kill."""

    def __init__(self, *, order: StepSampler, meter: Meter, **kwargs: Any) -> None:
        self._order = order
        self._meter = meter
        # One process trains on one device; several need a launcher, and nn.DataParallel is no choice for TRL.
        kwargs["args"]._n_gpu = min(1, kwargs["args"].n_gpu)
        super().__init__(**kwargs)

    def run(self, folder: Path) -> StepLog:
        """Train to the end of the stage."""
        checkpoint = last_checkpoint(folder)
        step = 0
        if checkpoint is not None:
            last = self._meter.restore(checkpoint)
            step = last.step
            if step >= last.steps:
                self._load_from_checkpoint(str(checkpoint))
                return last
        set_seed(self.args.seed)
        self._meter.start(step)
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        assert self._meter.last is not None
        return self._meter.last

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Mean negative log-likelihood of the response tokens of the whole step, whatever its micro-batches."""
        lengths = inputs.pop("lengths")
        outputs = model(**inputs, use_cache=False, fused_lm_head=True)
        responses = outputs.label_mask.sum()
        count = responses if num_items_in_batch is None else num_items_in_batch
        loss: torch.Tensor = -outputs.log_probs.sum() / count
        if num_items_in_batch is not None:
            # The count covers all processes, and gradients are averaged over them.
            loss = loss * self.accelerator.num_processes
        tokens = lengths.sum()
        self._meter.add(
            loss=loss.detach(),
            right=outputs.is_top1.sum(),
            response_tokens=responses,
            tokens=tokens,
            padding=inputs["input_ids"].numel() - tokens,
            images=inputs["pixel_values"].shape[0] if "pixel_values" in inputs else 0,
        )
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            report = self._meter.log(
                step=self.state.global_step,
                steps=self.state.max_steps,
                epoch=self.state.epoch or 0.0,
                learning_rate=logs["learning_rate"],
            )
            logs.update(asdict(report))
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Mapping[str, Any]) -> int:
        """Not counted: walking all parameters at every step costs more than the number is worth."""
        return 0

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """A checkpoint is not published."""

    def _send_telemetry(self) -> None:
        """Nothing leaves the machine."""

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> StepSampler:
        return self._order

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"{_PREFIX}{self.state.global_step}"
        with refused_writes(folder):
            super()._save_checkpoint(model, trial)
            if not self.args.should_save:
                return
            self._meter.save(folder)
            for file in folder.iterdir():
                _sync(file)
            write_text(folder / COMPLETE, "")
        for path in folder.parent.glob(f"{_PREFIX}*"):
            if path != folder:
                shutil.rmtree(path)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({name: value.detach().contiguous() for name, value in self._trainable()}, folder / WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        saved = load_file(Path(resume_from_checkpoint) / WEIGHTS)
        with torch.no_grad():
            for name, parameter in self._trainable():
                parameter.copy_(saved[name])

    def _trainable(self) -> list[tuple[str, nn.Parameter]]:
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


class _LogBeforeSave(TrainerCallback):  # type: ignore[misc]
    """Log at every save, so that the averages of a resumed run cover the same steps as those of an unbroken one."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_save:
            control.should_log = True


class _Proof(TrainerCallback):  # type: ignore[misc]
    """At the first step of this process: nothing frozen has a gradient, a graph, optimizer state or another dtype."""

    def __init__(self, parts: Parts, train: Sequence[str], dtype: torch.dtype, model: nn.Module) -> None:
        self._parts = parts
        self._train = train
        self._dtype = dtype
        self._watch: TowerWatch | None = TowerWatch(model, parts)

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Any, **_: Any
    ) -> None:
        if self._watch is not None:
            prove(model, self._parts, self._train, dtype=self._dtype, watch=self._watch, optimizer=optimizer)
            self._watch.close()
            self._watch = None


@contextmanager
def refused_writes(path: Path) -> Iterator[None]:
    """StorageError for a full disk, also where a library hides the operating system's reason."""
    try:
        with storage_errors(path):
            yield
    except (RuntimeError, SafetensorError) as error:
        text = str(error)
        if not any(sign in text for sign in ("os error", "file write failed", "PytorchStreamWriter")):
            raise
        raise StorageError(
            f"{path}: cannot write: {text.splitlines()[0]}; finished work is intact, "
            "free space and run the same command again"
        ) from error


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
