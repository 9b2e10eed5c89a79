"""Whether another path in a recipe leads to the same model or data, and the same path to other data, by content."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distill.artifacts.files import directory_sha256
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import QUARANTINE, SAMPLES
from distill.artifacts.manifest import Manifest
from distill.errors import DistillError
from distill.planning.edited_code import is_same_code
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.types import BadRow

# Names of teachers, students and sources may hold dots.
_MODEL = re.compile(r"(teachers\..+|student|eval\.students\..+)\.(model|vision|language|adapter)")
_SOURCE = re.compile(r"data\.(.+)\.source")
_IMAGES = re.compile(r"data\.(.+)\.images_root")


def is_moved(path: str, before: tuple[Recipe, Any], now: tuple[Recipe, Any], run: Path | None) -> bool:
    """Whether the values of a key, each with its recipe, lead to one content.

    Where the old path is gone, what `run` noted of it counts; without a note the content counts as another one. A
    folder of images is compared as the stages do that read it: all images for the questions of teachers, else the
    first ones.
    """
    if images := _IMAGES.fullmatch(path):
        return (_are_same_questions if images[1] == ASKED else _are_same_images)(before[0], now[0], images[1], run)
    if run is not None and is_same_code(path, before[1], now[1], run):
        return True
    source = _SOURCE.fullmatch(path)
    if not (source or _MODEL.fullmatch(path)) or not all(isinstance(value, str) for _, value in (before, now)):
        return False
    name = source and source[1]
    content = _content(*now, name)
    if not content:
        return False
    return content == _content(*before, name) or (run is not None and content in _notes(run, path, name))


def is_other_source(path: str, recipe: Recipe, value: Any, run: Path) -> bool:
    """Whether the files of a source have other content than the stages of `run` noted. Images are not compared."""
    source = _SOURCE.fullmatch(path)
    if not source:
        return False
    noted = {note for note in _notes(run, path, source[1]) if note not in ("", str(None))}
    content = _content(recipe, value, source[1]) if noted else ""
    return bool(content) and content not in noted


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


def _are_same_questions(before: Recipe, now: Recipe, source: str, run: Path | None) -> bool:
    rows = _rows(now, source)
    return rows is not None and (rows == _rows(before, source) or (run is not None and rows == _noted_rows(run)))


def _rows(recipe: Recipe, source: str) -> tuple[int, int] | None:
    """What the samples of a source sum up to, with the bytes of their images, and how many rows are set aside."""
    from distill.data import reader
    from distill.data.sample_files import content_number

    content = bad = 0
    try:
        for row in reader.read(recipe, source):
            if isinstance(row, BadRow):
                bad += 1
            else:
                content += content_number({"id": row.id})
    except DistillError:
        return None
    return content, bad


def _noted_rows(run: Path) -> tuple[int, int] | None:
    """`_rows` of the questions that a run was planned from."""
    from distill.data.sample_files import content_number, read_samples

    folder = run / "generate"
    try:
        set_aside = list(read_jsonl(folder / QUARANTINE))
        ids = [each["sample_id"] for each in set_aside if "sample_id" in each]
        content = sum(
            content_number({"id": id}) for id in (*ids, *(each.id for each in read_samples(folder / SAMPLES)))
        )
    except DistillError:
        return None
    return content, len(set_aside) - len(ids)


def _are_same_images(before: Recipe, now: Recipe, source: str, run: Path | None) -> bool:
    from distill.data.source_images import NOTED, pictures_digest

    def digest(recipe: Recipe) -> str:
        try:
            return pictures_digest(recipe, source)
        except DistillError:
            return ""

    there = digest(now)
    if not there:
        return False
    noted = (manifest.inputs.get(f"{NOTED}{source}") for manifest in _manifests(run)) if run else ()
    return there == digest(before) or there in noted


def _manifests(run: Path) -> Iterator[Manifest]:
    """Those of the finished stages of a run."""
    stages = [run / "generate", run / "eval", *sorted((run / "train").glob("*/"))]
    return filter(None, map(Manifest.read, stages))


def _notes(run: Path, path: str, source: str | None) -> Iterator[str]:
    """The digests that the finished stages of a run noted."""
    for manifest in _manifests(run):
        if source:
            yield manifest.inputs.get(source, "")
            yield str(manifest.fields.get(f"data.{source}.content"))
        else:
            yield str(manifest.fields.get(path)).removeprefix("sha256:")
