"""Which file an image cell means, and in which folder: paths, names without their suffix, numbers of COCO images."""

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from distill.data.images.image_suffixes import has_image_suffix

_USUAL_SUFFIXES = (".jpg", ".png", ".jpeg", ".webp")
_COCO_DIGITS = 12
_MOST_FILES = 500_000
"""A larger folder is searched in part."""


@lru_cache(maxsize=1 << 12, typed=True)  # several rows in a row ask about one image
def possible_names(cell: str | int) -> tuple[str, ...]:
    """The files that a cell may mean, the likeliest first."""
    text = str(cell).removeprefix("file://")
    has_suffix = has_image_suffix(text)
    if has_suffix and "\\" not in text:  # nearly every cell
        return (text,)
    # A table written on Windows has \ in its paths; here that is a letter like any other.
    names = [text, text.replace("\\", "/")] if "\\" in text else [text]
    if not has_suffix:
        names += [f"{name}{suffix}" for name in names for suffix in _USUAL_SUFFIXES]
    if text.isdecimal() and text.isascii() and len(text) <= _COCO_DIGITS:
        names += _coco_names(int(text))
    return tuple(names)


def _coco_names(number: int) -> list[str]:
    """An image of COCO, under any of the names and folders that COCO has used."""
    names = [f"{number:012d}.jpg"]
    for split in ("train2014", "val2014"):
        names += [f"COCO_{split}_{number:012d}.jpg", f"{split}/COCO_{split}_{number:012d}.jpg"]
    return names + [f"{split}/{number:012d}.jpg" for split in ("train2017", "val2017")]


class ImageIndex:
    """The files in and below a folder, to find the folder that image cells are relative to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths: dict[str, list[str]] = {}
        count = 0
        for base, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            below = os.path.relpath(base, folder).replace(os.sep, "/")
            for name in names:
                if has_image_suffix(name) or "." not in name:
                    self._paths.setdefault(name, []).append(name if below == "." else f"{below}/{name}")
                    count += 1
            if count > _MOST_FILES:
                break

    def roots(self, cell: str | int) -> list[str]:
        """The folders below this one, "" for itself, from which a cell names a file."""
        for name in map(posixpath.normpath, possible_names(cell)):
            ending = f"/{name}"
            paths = self._paths.get(posixpath.basename(name), ())
            if found := [f"/{path}"[: -len(ending)].lstrip("/") for path in paths if f"/{path}".endswith(ending)]:
                return found
        return []

    def best_roots(self, cells: Iterable[str | int]) -> tuple[list[Path], int]:
        """The folders from which most of the cells name a file, and the number of these cells."""
        counts = Counter(root for cell in cells for root in self.roots(cell))
        most = max(counts.values(), default=0)
        return [self.folder / root for root in sorted(counts) if counts[root] == most], most


def index_near(folders: Sequence[Path], cells: Sequence[str | int]) -> ImageIndex:
    """The index of the first folder that holds files for the cells; of the last one when none does."""
    for folder in folders:
        index = ImageIndex(folder)
        if index.best_roots(cells)[1]:
            break
    return index
