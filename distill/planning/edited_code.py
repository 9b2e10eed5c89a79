"""Whether files of the user's code are those that a run was made with, by the digests that its stages noted.

Covers signals, metrics, prompts, and format and answer type of sources. Exports note no digest and are written
again. Code of packages counts by name and version, which this does not compare.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from distill.artifacts.manifest import Manifest
from distill.extensions import file_and_name

_NOTES = (
    (r"filter\.signals", "filter", r"extractors\..+\.code"),
    (r"eval\.metrics", "eval", r"metrics\..+"),
    (r"teachers\..+\.prompt", "generate", r"teachers\..+\.prompt"),
)
"""Keys of the recipe, the stage that notes their code, and its fields."""
_OF_SOURCE = re.compile(r"data\..+\.(format|answer_type)")
"""Keys that several stages may note, under the name of the key."""
_DIGITS = 16
"""An answer type notes the beginning of a digest."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The finished stages of a run that noted what lies at the path of a key, by what lies there now.

    Stages are named as results are: `generate`, `filter`, `eval`, `train:STAGE`.
    """

    same: frozenset[str] = frozenset()
    other: frozenset[str] = frozenset()


def manifests(run: Path) -> Iterator[tuple[str, Manifest]]:
    """The manifests of the finished stages of a run, by the names of their results."""
    folders = {name: run / name for name in ("generate", "filter", "eval")}
    folders |= {f"train:{folder.name}": folder for folder in sorted((run / "train").glob("*/"))}
    for name, folder in folders.items():
        if (manifest := Manifest.read(folder)) is not None:
            yield name, manifest


def is_edited(path: str, value: Any, run: Path) -> bool:
    """Whether a key, with whole paths, names a file with other content than a stage of the run noted.

    Of code of a source `code_of_source` says it by stage.
    """
    if _OF_SOURCE.fullmatch(path):
        return False
    noted, files = _noted(path, run), _files(value)
    return bool(noted and files) and any(_digest(file) not in noted for file, _ in files)


def is_same_code(path: str, before: Any, now: Any, run: Path) -> bool:
    """Whether a key only names other files with the content that the run noted."""
    noted, files = _noted(path, run), _files(now)
    same_files = bool(noted and files) and all(_digest(file) in noted for file, _ in files)
    return same_files and _other_parts(before) == _other_parts(now)


def code_of_source(path: str, value: Any, run: Path) -> Noted:
    """The stages that noted the code of a source, its format or answer type, by what the file is now."""
    if not _OF_SOURCE.fullmatch(path) or not (files := _files(value)):
        return Noted()
    noted = {stage: digests for stage, made in manifests(run) if (digests := _digests(made, re.escape(path)))}
    same = {stage for stage, digests in noted.items() if all(_digest(file) in digests for file, _ in files)}
    return Noted(frozenset(same), frozenset(noted.keys() - same))


def _noted(path: str, run: Path) -> set[str]:
    if _OF_SOURCE.fullmatch(path):
        return {digest for _, made in manifests(run) for digest in _digests(made, re.escape(path))}
    for key, stage, field in _NOTES:
        if re.fullmatch(key, path):
            made = Manifest.read(run / stage)
            return _digests(made, field) if made is not None else set()
    return set()


def _digests(made: Manifest, field: str) -> set[str]:
    """Of the files of code that a stage noted in fields of this pattern."""
    texts = [str(value) for name, value in made.fields.items() if re.fullmatch(field, name)]
    digests = [text.removeprefix("sha256:") for text in texts if text.startswith("sha256:")]
    digests += [text.rpartition("@")[2] for text in texts if "@" in text]
    return {digest[:_DIGITS] for digest in digests}


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
