"""Whether another path in a recipe leads to the same content: models and data are what they hold."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distill.artifacts.files import directory_sha256
from distill.artifacts.manifest import Manifest
from distill.errors import DistillError
from distill.recipe.recipe import Recipe

_MODEL = re.compile(r"(teachers\.[^.]+|student|eval\.students\.[^.]+)\.(model|vision|language|adapter)")
_SOURCE = re.compile(r"data\.([^.]+)\.source")


def is_moved(path: str, before: tuple[Recipe, Any], now: tuple[Recipe, Any], run: Path | None) -> bool:
    """Whether the values of a key, each with its recipe, lead to one content.

    Where the old path is gone, what `run` noted of it counts; without a note the content counts as another one.
    """
    source = _SOURCE.fullmatch(path)
    if not (source or _MODEL.fullmatch(path)) or not all(isinstance(value, str) for _, value in (before, now)):
        return False
    name = source and source[1]
    content = _content(*now, name)
    if not content:
        return False
    return content == _content(*before, name) or (run is not None and content in _notes(run, path, name))


def _content(recipe: Recipe, value: str, source: str | None) -> str:
    """Digest of what lies on this machine at the path; empty for a hub name, and where nothing can be read."""
    try:
        if source:
            from distill.data import reader

            return str(reader.source_fields(recipe, source).get("content", ""))
        folder = recipe.local(value)
        return directory_sha256(folder) if folder.is_dir() else ""
    except DistillError:
        return ""


def _notes(run: Path, path: str, source: str | None) -> Iterator[str]:
    """The digests that the finished stages of a run noted."""
    stages = [run / "generate", run / "eval", *sorted((run / "train").glob("*/"))]
    for manifest in filter(None, map(Manifest.read, stages)):
        if source:
            yield manifest.inputs.get(source, "")
            yield str(manifest.fields.get(f"data.{source}.content"))
        else:
            yield str(manifest.fields.get(path)).removeprefix("sha256:")
