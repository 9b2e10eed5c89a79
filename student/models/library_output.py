"""Keeps the output of libraries away from the terminal."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

_QUIET = ("datasets", "trl", "accelerate", "peft", "torch.distributed", "torch._dynamo")
"""Loggers by name: not all of these libraries are loaded where a model is only outlined."""


@contextmanager
def hide_library_output() -> Iterator[None]:
    """Keep progress bars, banners and advice of the libraries off the user's terminal."""
    bars = transformers_logging.is_progress_bar_enabled()
    level = transformers_logging.get_verbosity()
    others = [logging.getLogger(name) for name in _QUIET]
    kept = [logger.level for logger in others]
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    for logger in others:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(others, kept, strict=True):
            logger.setLevel(level)
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
