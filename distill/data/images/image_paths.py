"""Where a row's path to an image leads: nowhere outside the folder of the images, unless the recipe allows it."""

import unicodedata
from pathlib import Path

from distill.data.images.base64_images import is_base64
from distill.errors import ImageError

_PATH_CHARACTERS = 4096
"""Longest path; a longer cell holds something else."""


def path_within(root: Path, name: str, *, allow_outside: bool) -> Path:
    """The path that `name` means below `root`, symbolic links resolved.

    Raises ImageError unsupported_image_cell for what is no path, and path_outside_root when it leaves `root` and
    `allow_outside` is false. Links of a snapshot in the hub's cache may lead to the blobs of its repository.
    """
    if name.startswith("data:") or is_base64(name):
        raise ImageError(
            "unsupported_image_cell",
            f"{name:.40}... ({len(name):,} characters) is an image in the text; base64 is read from Parquet and from "
            "unpacked files in UTF-8: unpack the file, or write the images into files",
        )
    if name.startswith(("http://", "https://")):
        raise ImageError("unsupported_image_cell", f"{name:.60}: images must be files; download them first")
    if len(name) > _PATH_CHARACTERS:
        raise ImageError(
            "unsupported_image_cell",
            f"{name:.40}... ({len(name):,} characters) is no path; write the images into files or Parquet",
        )
    try:
        path = (root / name.removeprefix("file://")).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ImageError("unreadable_image", f"{name!r} is not a path: {error}") from None
    if not (allow_outside or path.is_relative_to(root) or _is_blob_of(root, path)):
        raise ImageError("path_outside_root", f"{name!r} leads out of {root}; allow_outside_root = true permits it")
    return path


def _is_blob_of(root: Path, path: Path) -> bool:
    """Whether a file is a blob of the hub's cache and `root` lies in a snapshot of the same repository."""
    repositories = [folder.parent for folder in (root, *root.parents) if folder.name == "snapshots"]
    return any(path.is_relative_to(repository / "blobs") for repository in repositories)


def similar_name(path: Path) -> str:
    """What to say of a missing file that is there under a name that looks the same or nearly so; else nothing.

    Some file systems treat such names as equal, so a table written there may have the other name.
    """
    if path_exists(path):
        return ""
    stem, suffix = path.stem, path.suffix
    names = (f"{stem}{suffix.lower()}", f"{stem}{suffix.upper()}", path.name.lower(), path.name.upper())
    for name in names:
        if name != path.name and path_exists(path.with_name(name)):
            return f"{name!r} is there: upper case matters"
    if path.name.strip() != path.name and path.name.strip() and path_exists(path.with_name(path.name.strip())):
        return f"{path.name.strip()!r} is there: remove the blanks around the name"
    for form in ("NFC", "NFD"):
        for text in (
            str(path.with_name(unicodedata.normalize(form, path.name))),
            unicodedata.normalize(form, str(path)),
        ):
            if text != str(path) and path_exists(Path(text)):
                return (
                    f"it is there with its accents written in another way (Unicode {form}); rename the file or folder"
                )
    return ""


def path_exists(path: Path) -> bool:
    """Whether a path leads to something; a name that is too long or in a locked folder does not."""
    try:
        return path.exists()
    except OSError:
        return False
