"""Pointer files of git-lfs: a few lines of text instead of a file that was not fetched."""

from pathlib import Path

_BEGIN = b"version https://git-lfs"
_LARGEST = 1024
"""Bytes; a pointer has some 130."""


def is_pointer(file: Path) -> bool:
    """Whether a file is a pointer of git-lfs."""
    try:
        if file.stat().st_size > _LARGEST:
            return False
        with file.open("rb") as opened:
            return opened.read(len(_BEGIN)) == _BEGIN
    except OSError:
        return False


def pointers(folder: Path) -> list[Path]:
    """The files of a folder that are pointers, sorted."""
    return sorted(file for file in folder.glob("*") if file.is_file() and is_pointer(file))


def explain_pointers(path: Path) -> str:
    """Message and next step for a file or folder that git-lfs has not fetched; empty if nothing is missing."""
    pointer_files = pointers(path) if path.is_dir() else [path] if is_pointer(path) else []
    if not pointer_files:
        return ""
    names, folder = ", ".join(file.name for file in pointer_files[:3]), pointer_files[0].parent
    return f"{names}: a pointer of git-lfs and not the content; fetch it with `git lfs pull` in {folder}"
