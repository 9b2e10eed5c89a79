"""Whether another path in a recipe leads to the same model or data, and the same path to other data, by content."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.artifacts.files import directory_sha256, file_sha256
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import IMAGES, QUARANTINE, SAMPLES
from distill.artifacts.manifest import Manifest
from distill.errors import DistillError
from distill.planning.edited_code import Noted, code_of_source, is_same_code, manifests
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.types import BadRow

if TYPE_CHECKING:
    from distill.data.source_images import ComparedImages

# Names of teachers, students and sources may hold dots.
_MODEL = re.compile(r"(teachers\..+|student|eval\.students\..+)\.(model|vision|language|adapter)")
_SOURCE = re.compile(r"data\.(.+)\.source")
_WORDS = "filter.sensitive.words"
_UNKNOWN = frozenset({"", str(None)})
_IMAGES = re.compile(r"data\.(.+)\.images_root")


def is_moved(path: str, before: tuple[Recipe, Any], now: tuple[Recipe, Any], run: Path | None) -> bool:
    """Whether the values of a key, each with its recipe, lead to one content.

    Where the old path is gone, what `run` noted of it counts; without a note the content counts as another one.
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


def noted_content(path: str, recipe: Recipe, value: Any, run: Path) -> Noted:
    """What the stages noted of a source with its code, a model or a list of words; of images where no teacher was
    asked about them."""
    if images := _IMAGES.fullmatch(path):
        return Noted() if images[1] == ASKED else _noted_images(recipe, images[1], run)
    if (code := code_of_source(path, value, run)).same or code.other:
        return code
    source = _SOURCE.fullmatch(path)
    name = source and source[1]
    if not (source or path == _WORDS or _MODEL.fullmatch(path)) or not isinstance(value, str):
        return Noted()
    made = dict(manifests(run))
    notes = {stage: {*_notes_of(manifest, path, name)} - _UNKNOWN for stage, manifest in made.items()}
    noting = [manifest for stage, manifest in made.items() if notes[stage]]
    if not noting or (_MODEL.fullmatch(path) and not _is_written_since(recipe.local(value), noting)):
        return Noted()
    content = _content(recipe, value, name)
    if not content:
        return Noted()
    same = {stage for stage, noted in notes.items() if content in noted}
    return Noted(frozenset(same), frozenset(stage for stage, noted in notes.items() if noted) - same)


def _noted_images(recipe: Recipe, name: str, run: Path) -> Noted:
    """What the stages noted of the images of a source. One that noted none compares none: it stays."""
    found = _compared_images(recipe, name, run)
    other = {stage for stage, compared in found.items() if compared.changed}
    stages = {"generate", "filter", "eval", "rounds", *(f"train:{stage.name}" for stage in recipe.stages)}
    return Noted(frozenset(stages - other), frozenset(other))


def _compared_images(recipe: Recipe, name: str, run: Path) -> dict[str, "ComparedImages"]:
    """The images of a source beside the records of the stages that read them; empty for an unusable source."""
    folders = {stage: run / stage.replace(":", "/") for stage, _ in manifests(run)}
    recorded = {stage: folder for stage, folder in folders.items() if (folder / IMAGES).is_file()}
    if not recorded:
        return {}
    from distill.data.source_images import compare_images

    try:
        found = {stage: compare_images(recipe, folder).get(name) for stage, folder in recorded.items()}
    except DistillError:
        return {}
    return {stage: compared for stage, compared in found.items() if compared is not None}


def _is_written_since(folder: Path, noting: list[Manifest]) -> bool:
    """Whether a file of a model came after a stage began that noted it: a digest of a model takes minutes."""
    begun = min(datetime.fromisoformat(made.created).timestamp() - made.seconds for made in noting)
    return any(file.stat().st_ctime >= begun for file in folder.rglob("*") if file.is_file())


def _content(recipe: Recipe, value: str, source: str | None) -> str:
    """Digest of what lies on this machine at the path; empty for a hub name, and where nothing can be read."""
    try:
        if source:
            from distill.data import reader

            return str(reader.source_fields(recipe, source).get("content", ""))
        place = recipe.local(value)
        return directory_sha256(place) if place.is_dir() else file_sha256(place) if place.is_file() else ""
    except (DistillError, OSError):
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
    noted = _compared_images(now, source, run) if run is not None else {}
    if any(compared.are_same for compared in noted.values()):
        return True
    rows = _rows(now, source)
    return rows is not None and rows == _rows(before, source)


def _notes(run: Path, path: str, source: str | None) -> Iterator[str]:
    """The digests that the finished stages of a run noted."""
    for _, manifest in manifests(run):
        yield from _notes_of(manifest, path, source)


def _notes_of(manifest: Manifest, path: str, source: str | None) -> Iterator[str]:
    if source:
        content = f"data.{source}.content"
        named = manifest.inputs.get(source, "") if manifest.stage == "generate" else ""
        yield from (named, manifest.inputs.get(content, ""), str(manifest.fields.get(content)))
    else:
        field = "extractors.sensitive.words_sha256" if path == _WORDS else path
        yield str(manifest.fields.get(field)).removeprefix("sha256:")
