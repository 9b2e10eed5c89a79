"""Names of the files and folders of a run directory that more than one module reads or writes."""

from pathlib import Path

PLAN = "plan.parquet"
"""In `generate/`: every trace that is to be there, and its sample."""

MODEL, ADAPTER = "model", "adapter"
"""In the folder of a training stage: its student, and its adapters where it trained some."""
CHECKPOINTS = "checkpoints"
METRICS, PARTS, SETTINGS = "metrics.jsonl", "parts.json", "settings.json"
DISTRIBUTIONS, COVERAGE = "distributions", "distill.json"
"""Of a stage that learns from teachers' log-probabilities: what is kept of them, and how many tokens have some."""
CACHE = ".cache"
"""In `train/`: what can be computed again (student/data/images.py, student/data/image_tokens.py)."""


def model_folder(run: Path, stage: str) -> Path:
    """Where a finished training stage leaves its student."""
    return run / "train" / stage / MODEL
