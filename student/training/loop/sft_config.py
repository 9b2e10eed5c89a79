"""A stage's settings as TRL's SFTConfig, and the experiment trackers that it may report to."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from distill import packages
from distill.artifacts.layout import TRACKERS
from distill.errors import MissingExtra, RecipeError
from distill.recipe.sections.stages import Stage

if TYPE_CHECKING:
    from trl import SFTConfig

_TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
"""Transformers reads it when the tracker begins."""


def require(stage: Stage) -> None:
    """Raise, before anything is loaded, where a stage reports to a tracker that is not known or not installed."""
    if not stage.report_to:
        return  # before the trackers' packages are looked for
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    for name in stage.report_to:
        where = f"stages.{stage.name}.report_to = {name!r}"
        if name not in INTEGRATION_TO_CALLBACK:
            raise RecipeError(f"{where} is not known; trackio, wandb and tensorboard are")
        if name not in get_available_reporting_integrations():
            raise MissingExtra(f"{where}: it is not installed; `{packages.install_line(name)}`, or leave it out")


@contextmanager
def tracker_files(stage: Path) -> Iterator[None]:
    """Let TensorBoard, if it begins in the block, write to `trackers` of the run, as for the other stages.

    Its own place is the folder of the checkpoints, which is removed when the stage ends.
    """
    if _TENSORBOARD in os.environ:  # the user's place
        yield
        return
    run = stage.parents[1]
    os.environ[_TENSORBOARD] = str(run / TRACKERS / "tensorboard" / stage.relative_to(run))
    try:
        yield
    finally:
        del os.environ[_TENSORBOARD]


def settings(stage: Stage, folder: Path, *, steps: int, seed: int, workers: int) -> "SFTConfig":
    """The stage in TRL's words: the trainer sees a single epoch of ready steps."""
    import torch
    from trl import SFTConfig  # takes 0.4 s to load, and a check of the recipe does not need it

    schedule = "constant_with_warmup" if stage.schedule == "constant" else stage.schedule
    return SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=1,
        max_steps=steps,
        learning_rate=stage.learning_rate,
        lr_scheduler_type=schedule,
        # As a whole number: a share of 1.0 would be taken for one step. The rate rises from 0, at which a single step
        # would learn nothing.
        warmup_steps=math.ceil(steps * stage.warmup_share) if steps > 1 else 0,
        weight_decay=stage.weight_decay,
        max_grad_norm=stage.max_grad_norm,
        gradient_checkpointing=stage.gradient_checkpointing is True,
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
        # Every pass reaches every trained tensor (compute_loss), and no buffer changes.
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,
    )
