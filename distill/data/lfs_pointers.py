"""Files that git-lfs has not fetched: a few lines of text in the place of the content."""

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


def explanation(place: Path) -> str:
    """What is wrong with a file or folder that git-lfs has not fetched, and what to do; empty where nothing is."""
    found = pointers(place) if place.is_dir() else [place] if is_pointer(place) else []
    if not found:
        return ""
    names = ", ".join(file.name for file in found[:3])
    return f"{names}: a pointer of git-lfs and not the content; fetch it with `git lfs pull` in {place}"
