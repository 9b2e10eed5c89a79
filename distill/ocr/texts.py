"""The text of images as a run keeps it: read once for each distinct image, and found again by its digest.

One append-only file for each version of the reader. An image that cannot be decoded, takes too long or crashes the
reader has a reason instead of lines. Only an image that could not be decoded is tried again the next time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.journal import Journal
from distill.artifacts.json_lines import Damaged, read_record, requiring, scan
from distill.artifacts.layout import OCR
from distill.artifacts.manifest import fingerprint
from distill.data.images import image_files
from distill.errors import ImageError, StorageError
from distill.machine.processor_time import OutOfTime, processor_time
from distill.ocr import reader
from distill.ocr.reader import TextLine
from distill.types import ImageRef

MOST_SECONDS: Final = 60.0
"""Limit of processor time for an image: a full page of text takes ten."""
TIMED_OUT: Final = "timed_out"
CRASHED: Final = "reader_crashed"
_NAMES: Final = tuple(field.name for field in fields(TextLine))

ReadImage = Callable[["ImageTask"], dict[str, Any]]
RunTasks = Callable[[ReadImage, Iterable["ImageTask"], ReadImage], Iterator[dict[str, Any]]]
"""`map` over processes, in the order of the tasks; the last function is for a task that ended its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTask:
    """An image that is to be read."""

    ref: ImageRef
    max_pixels: int


class UnreadImage(Exception):
    """The text of an image is not known; the message is the reason."""


def texts_file(run: Path, *, max_pixels: int) -> Path:
    """Where a run directory keeps the text of its images."""
    return run / OCR / f"texts-{fingerprint({'reader': reader.identity(), 'max_pixels': max_pixels})[:16]}.jsonl"


def read_missing(
    refs: Mapping[str, ImageRef],
    path: Path,
    *,
    max_pixels: int,
    run_tasks: RunTasks,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Read the images, by digest, that `path` does not hold. Each is on disk before the next ones are counted.

    `on_done` is called with the images that are known, and all of them.
    """
    known = {
        record["image"]
        for record in recovered(path, requiring("image"))
        if "lines" in record or record.get("reason") in (TIMED_OUT, CRASHED)
    }
    # In the order of their files, so that a table with images is read once.
    missing = sorted(
        (ref for digest, ref in refs.items() if digest not in known),
        key=lambda ref: (ref.path, ref.column, ref.row, ref.index),
    )
    if not missing:
        return
    tasks = (ImageTask(ref=ref, max_pixels=max_pixels) for ref in missing)
    with Journal(path) as journal:
        for done, record in enumerate(run_tasks(read_image, tasks, _crashed), start=len(refs) - len(missing) + 1):
            journal.append(record)
            on_done(done, len(refs))


def read_image(task: ImageTask) -> dict[str, Any]:
    """The record of one image: its lines, or the reason why there are none."""
    record: dict[str, Any] = {"image": task.ref.sha256}
    try:
        image = image_files.load(task.ref, max_pixels=task.max_pixels)
        with processor_time(MOST_SECONDS):
            return record | {"lines": [astuple(line) for line in reader.read_lines(image)]}
    except ImageError as error:
        return record | {"reason": error.reason}
    except OutOfTime:
        return record | {"reason": TIMED_OUT}
    except (StorageError, MemoryError):  # a store that stays away, or full memory, is no image's fault
        raise
    # The reader may fail on a strange image: that costs this image alone.
    except Exception as error:
        return record | {"reason": f"{type(error).__name__}: {error}"[:200]}


def _crashed(task: ImageTask) -> dict[str, Any]:
    return {"image": task.ref.sha256, "reason": CRASHED}


def find_lines(path: Path, digest: str) -> tuple[TextLine, ...]:
    """The lines of an image that was read; none where it has no text. Raises UnreadImage."""
    status = path.stat() if path.exists() else None
    start = _starts(path, (status.st_size, status.st_mtime_ns)).get(digest) if status else None
    if start is None:
        raise UnreadImage("the text of the image was not read")
    record = read_record(path, start)
    if record is None or "lines" not in record:
        raise UnreadImage(f"OCR could not read the text of the image: {(record or {}).get('reason', 'damaged')}")
    return tuple(TextLine(**dict(zip(_NAMES, line, strict=True))) for line in record["lines"])


@lru_cache(maxsize=4)
def _starts(path: Path, state: tuple[int, int]) -> dict[str, int]:
    """The byte at which the last record of each image begins, of a file in this state."""
    pieces = scan(path, requiring("image"))
    return {piece[1]["image"]: piece[0] for piece in pieces if not isinstance(piece, Damaged)}
