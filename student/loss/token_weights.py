"""What each token of a step counts in the loss: by the part of the response that it is in, its row, and itself."""

from collections.abc import Iterable

import numpy as np

from distill.recipe.sections.stages import Loss
from student.data.encoded_rows import Example
from student.data.responses import KINDS


def kind_weights(loss: Loss, progress: float) -> np.ndarray:
    """Weight of a token of each kind at `progress` (0 to 1) of the stage; float64[kinds]."""
    first, last = ([getattr(weights, kind) for kind in KINDS] for weights in (loss, loss.final or loss))
    mixed: np.ndarray = np.array(first) + progress * np.subtract(last, first)
    return mixed


class StepWeights:
    """Weight of each labelled token of a step; the weights of a whole step sum to one."""

    def __init__(self, examples: Iterable[Example], loss: Loss, progress: float) -> None:
        self._by_kind = kind_weights(loss, progress)
        self._spans = loss.normalise == "spans"
        self._sampled = loss.sample_weights
        total = sum(self._of(example)[0] for example in examples)
        self._scale = 1 / total if total else 0.0

    def __call__(self, example: Example) -> np.ndarray:
        """float32, one for each token of the response."""
        _, by_kind = self._of(example)
        weights: np.ndarray = (by_kind * self._scale).astype(np.float32)[example.kinds]
        return weights if example.weights is None else weights * example.weights

    def _of(self, example: Example) -> tuple[float, np.ndarray]:
        """The weight of a row, and the weights of its tokens by kind, before scaling."""
        counts = np.bincount(example.kinds, weights=example.weights, minlength=len(KINDS))
        own = self._by_kind * (example.row.weight if self._sampled else 1.0)
        if self._spans:
            return float(own @ (counts > 0)), own / np.where(counts > 0, counts, 1)
        return float(own @ counts), own


def counts(example: Example, loss: Loss) -> bool:
    """Whether a row has a token that counts, at the first step or at the last."""
    return any(StepWeights([example], loss, progress)(example).any() for progress in (0, 1))
