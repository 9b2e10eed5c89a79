"""One file, or a few, for each image: a record of the same name, or the only files beside an image in its folder."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from distill.data import guessed_columns
from distill.data.images.image_suffixes import has_image_suffix, image_suffixes
from distill.data.trees.labelled_texts import read_labelled
from distill.data.trees.tree_files import TEXTS, read_trees

_FILES: Final = frozenset({".json", ".xml", *TEXTS})
_PART: Final = re.compile(r"(?P<stem>.+)[._-](?P<part>[^\W\d_]+)")
_PAIR: Final = re.compile(r"([^\t]*[^\t\s])\t+([^\t]*[^\t\s])")
_FEWEST: Final = 2


class UnclearImageError(Exception):
    """Files that belong to an image, and it is not clear to which one."""


def records_of_images(folder: Path, files: Sequence[Path]) -> tuple[list[dict[str, Any]], set[Path]]:
    """A record for each image that has files of its own, and these files. Raises UnclearImageError."""
    images = guessed_columns.files_below(folder, image_suffixes())
    named = [file for file in files if file.suffix.lower() in _FILES]
    found = _by_name(named, images, folder) or _in_folders(named, images)
    if len(found) < _FEWEST:
        return [], set()
    records = [_record(image, parts, folder) for image, parts in sorted(found.items())]
    return records, {file for parts in found.values() for _, file in parts}


_Found = Mapping[Path, list[tuple[str, Path]]]
"""Images with their files, and what each file holds where its name says it: `question` of 7.question.txt."""


def _by_name(files: Sequence[Path], images: Sequence[Path], folder: Path) -> _Found:
    """Images with the files of their names."""
    by_stem: dict[str, list[Path]] = defaultdict(list)
    for image in images:
        by_stem[image.stem].append(image)
    found: dict[Path, list[tuple[str, Path]]] = defaultdict(list)
    for file in files:
        stem, part = file.stem, file.parent.name
        match = _PART.fullmatch(stem)
        if stem not in by_stem and match and _is_role(match["part"]):
            stem, part = match["stem"], match["part"]
        if stem in by_stem:
            found[_nearest(file, by_stem[stem], folder)].append((part if _is_role(part) else "", file))
    parts = Counter(tuple(sorted((part, file.suffix) for part, file in held)) for held in found.values())
    if len(parts) > 1:
        raise UnclearImageError("some images have other files than the others")
    if any(count > 1 for held in parts for count in Counter(held).values()):
        raise UnclearImageError("an image has several files of one name")
    return found


def _nearest(file: Path, images: Sequence[Path], folder: Path) -> Path:
    """The image of a file's name in the nearest folder. Raises UnclearImageError if two are as near."""
    shared = {image: len(Path(os.path.commonpath([file.parent, image.parent])).parts) for image in images}
    nearest = [image for image in images if shared[image] == max(shared.values())]
    beside = [image for image in nearest if image.parent == file.parent]
    if len(beside or nearest) > 1:
        names = " and ".join(str(image.relative_to(folder)) for image in nearest[:2])
        raise UnclearImageError(f"{file.relative_to(folder)} may be about {names}")
    return (beside or nearest)[0]


def _in_folders(files: Sequence[Path], images: Sequence[Path]) -> _Found:
    """The images of folders that have one image each, and files of the same names."""
    inside: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        inside[file.parent].append(file)
    pictures: dict[Path, list[Path]] = defaultdict(list)
    for image in images:
        pictures[image.parent].append(image)
    shared = {place: held for place, held in inside.items() if place in pictures}
    if len({tuple(sorted(file.name for file in held)) for held in shared.values()}) != 1:
        return {}
    if any(len(pictures[place]) > 1 for place in shared):
        return {}
    return {
        pictures[place][0]: [(file.stem if _is_role(file.stem) else "", file) for file in held]
        for place, held in shared.items()
    }


def _is_role(name: str) -> bool:
    return any(guessed_columns.is_usual(role, name) for role in ("question", "answer"))


def _record(image: Path, parts: Sequence[tuple[str, Path]], folder: Path) -> dict[str, Any]:
    """The fields of an image's files. Raises UnclearImageError where two have one, or one names another image."""
    record: dict[str, Any] = {}
    for part, file in parts:
        for name, value in _fields(part, file).items():
            if isinstance(value, str) and has_image_suffix(value) and "\n" not in value:
                if Path(value.replace("\\", "/")).stem != image.stem:
                    raise UnclearImageError(f"{file.relative_to(folder)} names {value!r}, not {image.name}")
            elif name in record:
                raise UnclearImageError(f"several files of {image.relative_to(folder)} have a field {name!r}")
            else:
                record[name] = value
    return {**record, "image": image.relative_to(folder).as_posix()}


def _fields(part: str, file: Path) -> Mapping[str, Any]:
    """What a file says of its image. Raises UnclearImageError for one that cannot be read."""
    if file.suffix.lower() not in TEXTS:
        trees = list(read_trees(file, file.parent))
        if not trees:
            raise UnclearImageError(f"{file.name} cannot be read")
        ((_, tree),) = trees
        return tree if isinstance(tree, Mapping) else {part or "records": tree}
    text = file.read_bytes().decode("utf-8-sig", errors="replace").strip()
    if "\ufffd" in text:
        raise UnclearImageError(f"{file.name} is no UTF-8 text")
    if (records := read_labelled(text)) is not None:
        return {"records": records}
    if part and text:
        return {part: text}
    pairs = [_PAIR.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    asked = [pair for pair in pairs if pair and "?" in pair[1]]
    if not asked or len(asked) != len(pairs):
        raise UnclearImageError(f"{file.name} has no labels such as Q: and A:")
    return {"records": [{"question": pair[1], "answer": pair[2]} for pair in asked]}
