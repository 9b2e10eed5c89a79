"""Tables of words, units and phrases: each is a TOML file beside the module that reads it, and has its name. And a
number with its noun, as messages, summaries, reports and pages print it."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def read_table(module_file: str) -> dict[str, Any]:
    """The table of a module, which gives its `__file__`: spelling.toml for spelling.py."""
    return tomllib.loads(Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))


def word_set(listed: str) -> frozenset[str]:
    """The words of a text that lists them."""
    return frozenset(listed.split())


def longest_first(words: Iterable[str]) -> str:
    """The words as alternatives of a pattern: of two that begin alike, the longer one is tried first."""
    return "|".join(sorted(words, key=len, reverse=True))


def compile_listed(pattern: str, parts: Mapping[str, str] | None = None) -> re.Pattern[str]:
    """A pattern of a table. A name in braces is replaced by one of the `parts`; line breaks are removed from a
    pattern."""
    for name, part in (parts or {}).items():
        pattern = pattern.replace(f"{{{name}}}", part)
    return re.compile(pattern.replace("\n", ""))


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun, in the singular for one; `plural` where it takes no s, or brings its verb with it."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
