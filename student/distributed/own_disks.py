"""Sends files of the main process to machines that share no disk with it.

Inside `own_disks` the first process of every machine writes what its machine needs. Outside it all processes see the
same files, which the main process writes, and `bring` has nothing to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from distill.artifacts.files import Output, atomic_path, describe, remembered_sha256, storage_errors
from student.distributed import processes

_PATIENCE = timedelta(days=7)
_SENT_BYTES = 64 << 20
_own = False
_leaders: Any = None
"""The first processes of all machines; None where there is one machine."""


@contextmanager
def own_disks() -> Iterator[None]:
    """Let every machine have its own files inside the block; the processes are connected already."""
    global _own, _leaders
    firsts = sorted({rank - local for rank, local in processes.gather((processes.rank(), processes.local_rank()))})
    if len(firsts) > 1:
        from torch import distributed

        _leaders = distributed.new_group(firsts, backend="gloo", timeout=_PATIENCE)
    _own = True
    try:
        yield
    finally:
        _own, _leaders = False, None


def writes() -> bool:
    """Whether this process writes the files of its disk."""
    return processes.local_rank() == 0 if _own else processes.is_main()


@contextmanager
def writer_first() -> Iterator[None]:
    """Let the process that writes the files of a disk go through the block before the others of the disk."""
    if not writes():
        processes.wait()
    yield
    if writes():
        processes.wait()


def share_on_disk(value: Any) -> Any:
    """What the process gave that writes the files of this disk; a small object that can be pickled."""
    values = processes.gather(value)
    return values[processes.rank() - processes.local_rank() if _own else 0]


def bring(path: Path) -> None:
    """Copy a file or folder of the main process to every machine. Each process gives its own path.

    Files whose names begin with a dot are left out, and stay. Raises StorageError.
    """
    if _leaders is None:
        return
    names: dict[str, Output] = processes.share(_digests(path) if processes.is_main() else None)
    own = _digests(path) if writes() else names
    with storage_errors(path):
        for name in own.keys() - names.keys():
            (path / name).unlink()
    lacking = {name for name, output in names.items() if own.get(name) != output}
    sent = sorted(set().union(*processes.gather(lacking)))
    for name in sent if writes() else ():
        _send(path / name, names[name].bytes, wanted=name in lacking)
    processes.wait()


def bring_chosen(folder: Path, chosen: Path | None) -> Path | None:
    """Below `folder`, what the main process has chosen there; it is brought. None where it has chosen nothing."""
    name: str | None = processes.share(chosen.name if chosen is not None else None)
    if name is None:
        return None
    bring(folder / name)
    return folder / name


def _digests(path: Path) -> dict[str, Output]:
    """The files of a folder by name, or a single file."""
    if path.is_file():
        return {"": describe(path)}
    files = ((file, file.relative_to(path)) for file in sorted(path.rglob("*")) if file.is_file())
    return {
        name.as_posix(): Output(sha256=remembered_sha256(file), bytes=file.stat().st_size)
        for file, name in files
        if not any(part.startswith(".") for part in name.parts)
    }


def _send(path: Path, size: int, *, wanted: bool) -> None:
    """Send a file of the main process to the first processes of all machines; those that want it write it."""
    if processes.is_main():
        with path.open("rb") as file:
            for length in _lengths(size):
                _exchange(bytearray(file.read(length)))
    elif wanted:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            for length in _lengths(size):
                file.write(_exchange(bytearray(length)))
    else:
        for length in _lengths(size):
            _exchange(bytearray(length))


def _lengths(size: int) -> Iterator[int]:
    return (min(_SENT_BYTES, size - start) for start in range(0, size, _SENT_BYTES))


def _exchange(data: bytearray) -> bytearray:
    """What the main process gave; every process gives as many bytes."""
    import torch
    from torch import distributed

    distributed.broadcast(torch.frombuffer(data, dtype=torch.uint8), src=0, group=_leaders)
    return data
