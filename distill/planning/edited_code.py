"""Whether files of the user's code are those that a run was made with, by the digests that its stages noted.

Covers signals, metrics, prompts, and format and answer type of the questions. Exports note no digest and are written
again. Code of packages counts by name and version, which this does not compare.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from distill.artifacts.manifest import Manifest
from distill.extensions import file_and_name
from distill.recipe.sections.data import ASKED

_NOTES = (
    (r"filter\.signals", "filter", r"extractors\..+\.code"),
    (r"eval\.metrics", "eval", r"metrics\..+"),
    (r"teachers\..+\.prompt", "generate", r"teachers\..+\.prompt"),
    (rf"data\.{ASKED}\.format", "generate", rf"data\.{ASKED}\.format"),
    (rf"data\.{ASKED}\.answer_type", "generate", rf"data\.{ASKED}\.answer_type"),
)
"""Keys of the recipe, the stage that notes their code, and its fields."""
_DIGITS = 16
"""An answer type notes the beginning of a digest."""


def is_edited(path: str, value: Any, run: Path) -> bool:
    """Whether a key, with whole paths, names a file with other content than a stage of the run noted."""
    noted, files = _noted(path, run), _files(value)
    return bool(noted and files) and any(_digest(file) not in noted for file, _ in files)


def is_same_code(path: str, before: Any, now: Any, run: Path) -> bool:
    """Whether a key only names other files with the content that the run noted."""
    noted, files = _noted(path, run), _files(now)
    same_files = bool(noted and files) and all(_digest(file) in noted for file, _ in files)
    return same_files and _other_parts(before) == _other_parts(now)


def _noted(path: str, run: Path) -> set[str]:
    for key, stage, field in _NOTES:
        if re.fullmatch(key, path):
            made = Manifest.read(run / stage)
            fields = made.fields if made is not None else {}
            texts = [str(value) for name, value in fields.items() if re.fullmatch(field, name)]
            digests = [text.removeprefix("sha256:") for text in texts if text.startswith("sha256:")]
            digests += [text.rpartition("@")[2] for text in texts if "@" in text]
            return {digest[:_DIGITS] for digest in digests}
    return set()


def _files(value: Any) -> list[tuple[str, str]]:
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    return [named for each in values if isinstance(each, str) and (named := file_and_name(each))]


def _other_parts(value: Any) -> list[Any]:
    """The values without the paths of their files."""
    values: Sequence[Any] = value if isinstance(value, list) else [value]
    parts = [(each, file_and_name(each) if isinstance(each, str) else None) for each in values]
    return [each if named is None else named[1] for each, named in parts]


def _digest(file: str) -> str:
    try:
        return sha256(Path(file).read_bytes()).hexdigest()[:_DIGITS]
    except OSError:
        return ""
