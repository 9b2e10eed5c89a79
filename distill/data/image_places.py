"""In which folder near a table the images lie that its cells name."""

import os
from collections.abc import Sequence
from pathlib import Path

from distill.data.images.image_names import ImageIndex, index_near, possible_names
from distill.data.images.image_suffixes import has_image_suffix


class ImagePlaces:
    """The folders in which the images of a table may lie. They are searched once, and only where that is needed.

    In the folder above a single file, and in its folders, all cells must be whole file names: numbers, or only some
    of the names, may belong to another table there.
    """

    def __init__(self, folders: Sequence[Path], above: Path | None = None) -> None:
        self._folders, self._above = folders, above
        self._index: ImageIndex | None = None

    def found(self, cells: Sequence[str | int]) -> int:
        """The number of cells that name an image in one folder; 0 if several folders have the same number."""
        roots, count = self._best(cells)
        return count if len(roots) == 1 else 0

    def roots_of(self, cells: Sequence[str | int]) -> list[Path]:
        """The folder that most of the cells are relative to; several where they are as good, or none."""
        paths = [Path(cell.removeprefix("file://")) for cell in cells if isinstance(cell, str)]
        if paths and all(path.is_absolute() for path in paths):
            return [Path(os.path.commonpath([path.parent for path in paths])).resolve()]
        roots, count = self._best(cells)
        return roots if count else []

    def _best(self, cells: Sequence[str | int]) -> tuple[list[Path], int]:
        """The folders from which most cells name an image, and how many do. The table's own folder is alone."""
        first = self._folders[0]
        if (beside := _count_files(first, cells)) == len(cells):
            return [first], beside
        if self._index is None or not self._index.best_roots(cells)[1]:
            self._index = index_near(self._folders, cells)
        best = max(([first], beside), self._index.best_roots(cells), key=lambda found: found[1])
        if best[1] or not self._above or not all(isinstance(cell, str) and has_image_suffix(cell) for cell in cells):
            return best
        folders = (self._above, *_folders(self._above))
        whole = [folder for folder in folders if _count_files(folder, cells) == len(cells)]
        return (whole, len(cells)) if whole else best


def _count_files(folder: Path, cells: Sequence[str | int]) -> int:
    """How many cells name a file in a folder."""
    return sum(any(is_file(folder / name) for name in possible_names(cell)) for cell in cells)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder; none where it may not be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.name[:1] != "." and path.is_dir())
    except OSError:
        return []


def is_file(path: Path) -> bool:
    """Whether a file is there; no, where its folder may not be read."""
    try:
        return path.is_file()
    except OSError:
        return False
