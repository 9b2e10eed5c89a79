"""Packages that the base install leaves out: the extra of each, and the command that installs it.

Finds missing packages without importing them; it does not test that an installed package works.
"""

import importlib.util
from collections.abc import Mapping

from distill.errors import MissingExtra

TRAIN = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors")
"""What training, evaluation, exports and embedded teachers need."""
_TRACKERS = ("trackio", "wandb", "tensorboard")
_EXTRA_OF: Mapping[str, str] = {
    **dict.fromkeys(TRAIN, "train"),
    **{name: name for name in _TRACKERS},
    "bitsandbytes": "qlora",
    "gguf": "gguf",
    "obstore": "store",
    "ray": "ray",
    "rapidocr": "ocr",
    "onnxruntime": "ocr",
}


def missing(*packages: str) -> list[str]:
    """The packages among `packages` that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


def require(purpose: str, *packages: str) -> None:
    """Raise MissingExtra, which says what needs the packages and how they are installed, unless all are there."""
    lacking = missing(*packages)
    if lacking:
        raise MissingExtra(_message(purpose, *lacking))


def explained(error: ImportError, purpose: str) -> MissingExtra | None:
    """The error of an import as a plain message of what needs it; None where no extra of ours brings the package."""
    name = (error.name or "").partition(".")[0]
    return MissingExtra(_message(purpose, name)) if name in _EXTRA_OF else None


def install_line(*packages: str) -> str:
    """The command that installs some packages: by our extras where these bring them, else by their own names."""
    extras = sorted({_EXTRA_OF[name] for name in packages if name in _EXTRA_OF})
    requirements = [f"'cot-distill[{','.join(extras)}]'"] if extras else []
    return " ".join(["pip install", *requirements, *(name for name in packages if name not in _EXTRA_OF)])


def _message(purpose: str, *lacking: str) -> str:
    names, verb = ", ".join(lacking), "is" if len(lacking) == 1 else "are"
    return f"{purpose} needs {names}, which {verb} not installed: {install_line(*lacking)}"
