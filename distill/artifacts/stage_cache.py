"""Finished stages that several run directories share: each is made once, and the others hold a link to it.

A stage is known by a key of everything that it was made from. Links are relative, so the whole folder can be moved.
"""

import os
import shutil
from pathlib import Path

from distill.artifacts.files import storage_errors
from distill.artifacts.manifest import Manifest


class Shared:
    """A folder of finished stages by key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Path | None:
        """The finished stage of that key."""
        place = self.folder / key
        return place if Manifest.read(place) is not None else None

    def link(self, key: str, place: Path) -> bool:
        """Put a link at `place` to the finished stage of that key; False where there is none, or a folder already."""
        found = self.find(key)
        if found is None or place.exists():
            return False
        link(found, place)
        return True

    def copy(self, key: str, stage: Path) -> None:
        """Take in a finished stage from elsewhere, its files as hard links: neither place depends on the other."""
        target = self.folder / key
        if self.find(key) is not None:
            return
        half = target.with_name(f".{key}.{os.getpid()}")
        with storage_errors(target):
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(stage, half, copy_function=os.link)
            shutil.rmtree(target, ignore_errors=True)
            half.rename(target)

    def keep(self, key: str, place: Path) -> None:
        """Move the finished stage at `place` here and leave a link; another of the same key takes its place."""
        target = self.folder / key
        if place.is_symlink():
            return
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if self.find(key) is not None:
                shutil.rmtree(place)
            else:
                shutil.rmtree(target, ignore_errors=True)
                place.rename(target)
        link(target, place)


def link(target: Path, place: Path) -> None:
    """Make `place` a relative link to `target`, in the place of a link that leads nowhere."""
    with storage_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        place.symlink_to(os.path.relpath(target, place.parent), target_is_directory=True)
