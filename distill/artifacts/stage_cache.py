"""Finished stages that several run directories share: each stage is made once, and the others link to it.

The key of a stage is a digest of all its inputs. Links are relative, so the whole folder can be moved.
"""

import errno
import os
import shutil
from pathlib import Path

from distill.artifacts.files import link_or_copy, storage_errors
from distill.artifacts.manifest import Manifest


class Shared:
    """A folder of finished stages by key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Path | None:
        """The finished stage of that key."""
        stage = self.folder / key
        return stage if Manifest.read(stage) is not None else None

    def link(self, key: str, path: Path) -> bool:
        """Put a link at `path` to the finished stage of that key; False where there is none, or a folder already."""
        stage = self.find(key)
        if stage is None or path.exists():
            return False
        make_link(stage, path)
        return True

    def copy(self, key: str, stage: Path) -> None:
        """Add a finished stage from another folder, by hard links if the file system has them; both folders are
        independent."""
        target = self.folder / key
        if self.find(key) is not None:
            return
        half = target.with_name(f".{key}.{os.urandom(8).hex()}")
        with storage_errors(target):
            shutil.copytree(stage, half, copy_function=link_or_copy)
            self._move(half, key)

    def keep(self, key: str, stage: Path) -> None:
        """Move the finished stage at `stage` here and leave a link; another of the same key takes its place."""
        target = self.folder / key
        if stage.is_symlink():
            return
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._move(stage, key)
        make_link(target, stage)

    def _move(self, stage: Path, key: str) -> None:
        """Move a finished stage here, or delete it where another process was faster: that one may be in use."""
        while True:
            try:
                stage.rename(self.folder / key)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            if self.find(key) is not None:
                shutil.rmtree(stage)
                return
            shutil.rmtree(self.folder / key, ignore_errors=True)


def make_link(target: Path, path: Path) -> None:
    """Make `path` a relative link to `target`, replacing a broken link."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.symlink_to(os.path.relpath(target, path.parent), target_is_directory=True)
