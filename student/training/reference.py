"""Log-probabilities of a preference stage's replies under the student that it starts from: computed once, stored.

So no second model is held while the stage trains, and a resumed stage has the same numbers.
"""

import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from distill.artifacts.files import atomic_path
from distill.recipe.sections.stages import Stage
from student.training.step_dataset import StepDataset


def stored_or_computed(
    student: PreTrainedModel | PeftModel, steps: StepDataset, rows: int, stage: Stage, path: Path, fingerprint: str
) -> np.ndarray:
    """The log-probability of each row, float32[rows]; read from `path` if it is there for the same settings."""
    stored = _stored(path)
    if str(stored.get("fingerprint")) == fingerprint and len(stored["log_probs"]) == rows:
        return stored["log_probs"]
    log_probs = reference_log_probs(student, steps, rows, stage)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, log_probs=log_probs, fingerprint=np.array(fingerprint))
    return log_probs


def _stored(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file; none where it is not there or damaged."""
    try:
        with np.load(path) as stored:
            return dict(stored)
    except (OSError, EOFError, ValueError, NotImplementedError, BadZipFile, zlib.error):
        return {}


@torch.no_grad()
def reference_log_probs(
    student: PreTrainedModel | PeftModel, steps: StepDataset, rows: int, stage: Stage
) -> np.ndarray:
    """The log-probability of the reply of each of `rows` rows, float32[rows]; the student is in eval mode."""
    device = next(student.parameters()).device
    found = np.zeros(rows, np.float32)
    was_training = student.training
    student.eval()
    for layout in steps.passes(stage.pass_tokens, stage.micro_batch_images):
        tensors = {"at": torch.from_numpy(layout.at), "labels": torch.from_numpy(layout.labels)}
        inputs = steps.on_device(layout.inputs | tensors, device)
        nll = student(**inputs, weights=None)
        sizes = steps.reply_lengths(layout.rows)
        found[layout.rows] = [-float(part.sum()) for part in nll.split(sizes)]
    student.train(was_training)
    return found
