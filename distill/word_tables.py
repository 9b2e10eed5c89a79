"""Tables of words and units: each is a TOML file beside the module that reads it, and has its name."""

import tomllib
from pathlib import Path
from typing import Any


def read_table(module_file: str) -> dict[str, Any]:
    """The table of a module, which gives its `__file__`: spelling.toml for spelling.py."""
    return tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))


def word_set(listed: str) -> frozenset[str]:
    """The words of a text that lists them."""
    return frozenset(listed.split())
