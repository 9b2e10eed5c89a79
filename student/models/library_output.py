"""Keeps the output of libraries away from the terminal."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

_QUIET = ("transformers", "datasets", "trl", "accelerate", "peft", "torch.distributed", "torch._dynamo")
"""Loggers by name: not all of these libraries are loaded where a model is only outlined."""


@contextmanager
def hide_library_output() -> Iterator[None]:
    """Keep progress bars, banners and advice of the libraries off the user's terminal."""
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        with errors_alone(*_QUIET), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if bars:
            transformers_logging.enable_progress_bar()


@contextmanager
def errors_alone(*names: str) -> Iterator[None]:
    """In this block the loggers with these names write errors alone."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
