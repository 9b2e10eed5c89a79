"""From which checkpoint a stage resumes, and the error of a write to a full disk.

A checkpoint counts once the marker file is in it, so a save that was interrupted is recognised and removed. The last
two are kept: a stage resumes from the older one, or begins again, where the newest one is damaged. What a
checkpoint holds is the business of student/training/loop/trainer.py, when it is written of
student/training/checkpoints/checkpoint_writer.py.
"""

import logging
import shutil
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from distill.artifacts.files import file_sha256, make_folder, remembered_sha256, storage_errors, sync, write_text
from distill.artifacts.integrity import CHANGED, MISSING
from distill.artifacts.layout import CHECKPOINTS, PARTS
from distill.errors import DataError, DistillError
from student.distributed import processes

COMPLETE = "complete"
"""Marker file of a checkpoint, written when everything else is on disk."""
DIGESTS = "digests.json"
"""The SHA-256 of each other file: torch and safetensors read a flipped bit as if it had been written."""
WEIGHTS, OPTIMIZER, SCHEDULER = "trainable.safetensors", "optimizer.pt", "scheduler.pt"
PREFIX = "checkpoint-"
DAMAGED = ".damaged-"
"""Before the name of a checkpoint that is set aside. With its dot it is not copied to a store."""
_UNREADABLE = (OSError, SafetensorError, LookupError, ValueError, TypeError, RuntimeError, EOFError, struct.error)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint. Incomplete ones, left by a kill during a save, are removed.

    Damaged ones get another name, with a warning: a resume from the one before it, or from the start of the stage,
    ends with the same student.
    """
    for path in _checkpoints(folder):
        if not (path / COMPLETE).is_file():
            shutil.rmtree(path)
    for path in reversed(complete_checkpoints(folder)):
        fault = ""
        with suppress(OSError):  # of a disk that does not answer now; what reads the checkpoint raises it again
            fault = _changed_file(path)
        if not fault:
            return path
        _set_aside(path, fault)
    return None


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints that were written to their end, the oldest first; their files may be damaged since."""
    return sorted((path for path in _checkpoints(folder) if (path / COMPLETE).is_file()), key=_step)


def _set_aside(checkpoint: Path, fault: str) -> None:
    """Give a damaged checkpoint another name, in the place of an older damaged one."""
    aside = checkpoint.with_name(f"{DAMAGED}{checkpoint.name}")
    if aside.exists():
        shutil.rmtree(aside)
    checkpoint.rename(aside)
    before = complete_checkpoints(checkpoint.parent)
    then = f"resumes from {before[-1].name}" if before else "starts again"
    logging.getLogger(__name__).warning(
        f"{checkpoint}: this checkpoint is damaged ({fault}); it is renamed to {aside.name}, and the stage {then}"
    )


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints below a folder, also incomplete ones; not copies and archives made by hand."""
    return [path for path in folder.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdecimal()]


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(PREFIX))


def last_step(folder: Path) -> int:
    """The step of the newest complete checkpoint; 0 without one."""
    checkpoint = last_checkpoint(folder)
    return _step(checkpoint) if checkpoint else 0


def begun_parts(stage: Path) -> dict[str, Any]:
    """In the main process what a stage under way noted in PARTS before its checkpoint; in others, and for one not
    begun, nothing."""
    checkpoint = last_checkpoint(stage / CHECKPOINTS) if processes.is_main() else None
    if checkpoint is None:
        return {}
    with readable_checkpoint(checkpoint):
        # Checkpoints of earlier versions have no copy.
        found = [path for path in (checkpoint / PARTS, stage / PARTS) if path.is_file()]
        noted: dict[str, Any] = orjson.loads(found[0].read_bytes()) if found else {}
        return noted


def require_same_rows(stage: Path, rows: Mapping[str, Any]) -> None:
    """Raise DataError where a stage has other `rows` than its checkpoint, on any machine: its steps would differ."""
    processes.require_same(
        rows,
        f"stage '{stage.name}': the machines of this training read different rows, so their steps would differ; give "
        "each of them all sources and images",
    )
    before = begun_parts(stage).get("rows", rows)
    if before != rows:
        raise DataError(
            f"{stage}: it started with other rows ({before['count']:,} then, {rows['count']:,} now); restore the "
            f"missing data, such as images, or start it again: `distill train --stage {stage.name} --fresh`"
        )


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Write tensors by name, as safetensors or as torch does by the file's name, then the digests of all files there.

    All is on disk when it returns.
    """
    with storage_errors(folder):
        make_folder(folder)
        for name, content in files.items():
            (save_file if name == WEIGHTS else torch.save)(content, folder / name)
        give_usual_modes(folder)
        digests = {file.name: file_sha256(file) for file in sorted(folder.iterdir()) if file.name != DIGESTS}
        (folder / DIGESTS).write_bytes(orjson.dumps(digests))
        for file in folder.iterdir():
            sync(file)
        sync(folder)


def write_checkpoint(folder: Path, files: Mapping[str, Any], obsolete: Iterable[Path]) -> None:
    """Write the last files of a checkpoint, PARTS of its stage among them, and its marker; then remove `obsolete`.

    The one before it stays. Older ones are removed first, so that no more than two take space.
    """
    for path in [path for path in complete_checkpoints(folder.parent) if path != folder][:-1]:
        shutil.rmtree(path)
    with storage_errors(folder), suppress(FileNotFoundError):
        make_folder(folder)
        shutil.copyfile(folder.parent.parent / PARTS, folder / PARTS)
    write_files(folder, files)
    write_text(folder / COMPLETE, "")
    for path in obsolete:
        shutil.rmtree(path)


def give_usual_modes(folder: Path) -> None:
    """Give every file the permissions that a new one gets here (the umask: mostly 0644).

    safetensors writes for the owner alone (0600), so another user, or a server under another account, could not read
    an exported student. Folders have their usual permissions already.
    """
    probe = folder / ".new"
    probe.touch()
    usual = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) | usual)


@contextmanager
def readable_checkpoint(checkpoint: Path) -> Iterator[None]:
    """DataError for a checkpoint that is complete by its marker and yet damaged."""
    try:
        if fault := _changed_file(checkpoint):
            raise _damaged(checkpoint, fault)
        yield
    except _UNREADABLE as error:
        if isinstance(error, DistillError | torch.OutOfMemoryError):
            raise
        raise _damaged(checkpoint, type(error).__name__) from error


def _damaged(checkpoint: Path, fault: str) -> DataError:
    # Without its best weights a checkpoint is worth nothing.
    folder = checkpoint if checkpoint.name.startswith(PREFIX) else checkpoint.parent
    return DataError(
        f"{checkpoint}: this checkpoint is damaged ({fault}); remove the folder {folder} and run the same command "
        "again; it resumes from an older checkpoint if there is one, else it starts the stage again"
    )


def _changed_file(checkpoint: Path) -> str:
    """A file that is not as it was written; empty without one, and where an earlier version wrote no digests.

    Each file is read once a process.
    """
    path = checkpoint / DIGESTS
    try:
        digests: dict[str, str] = orjson.loads(path.read_bytes()) if path.is_file() else {}
    except orjson.JSONDecodeError:
        return f"{DIGESTS}: {CHANGED}"
    for name, digest in digests.items():
        file = checkpoint / name
        if not file.is_file() or remembered_sha256(file) != digest:
            return f"{name}: {CHANGED if file.is_file() else MISSING}"
    return ""
