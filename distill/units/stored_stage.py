"""A finished stage in the store of a run: its files by their content, and one object that names them.

    run/<stage>/files/<sha256>   a file of the stage's folder
    run/<stage>/stage.json       the names of the files that count, with their digests

`stage.json` is put last and is one object, so a reader finds one result as a whole, also while another one is made.
Files of earlier results stay.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import orjson

from distill.artifacts.files import Output, atomic_path, describe
from distill.artifacts.manifest import MANIFEST, Manifest, canonical
from distill.errors import DataError
from distill.object_store.interface import ObjectStore

_UNFINISHED = ".tmp"


def push_stage(store: ObjectStore, stage: str, folder: Path) -> None:
    """Put the files of a finished stage's folder, in the place of an earlier result."""
    files = {
        path.relative_to(folder).as_posix(): describe(path, None)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != _UNFINISHED
    }
    there = {stored.key for stored in store.list_objects(_files(stage))}
    for name, output in files.items():
        if (key := _file(stage, output)) not in there:
            store.put(key, (folder / name).read_bytes())
            there.add(key)
    store.put(_stage(stage), canonical(files))


def stage_files(store: ObjectStore, stage: str) -> dict[str, Output]:
    """The files of a finished stage by name; none where it is unfinished."""
    try:
        names: Mapping[str, Mapping[str, object]] = orjson.loads(store.read(_stage(stage)))
    except FileNotFoundError:
        return {}
    return {name: Output(**output) for name, output in names.items()}  # type: ignore[arg-type]


def stage_counts(store: ObjectStore, stage: str) -> dict[str, int]:
    """What a finished stage counted; nothing while it is unfinished."""
    files = stage_files(store, stage)
    return dict(orjson.loads(_read(store, stage, files[MANIFEST]))["counts"]) if MANIFEST in files else {}


def pull_file(store: ObjectStore, stage: str, output: Output, path: Path) -> None:
    """Write one file of a finished stage. DataError where it is not the one that was put."""
    data = _read(store, stage, output)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def _read(store: ObjectStore, stage: str, output: Output) -> bytes:
    try:
        data = store.read(_file(stage, output))
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != output.sha256:
        raise DataError(
            f"{store.address}/{_file(stage, output)}: missing or changed since it was written; delete "
            f"{_stage(stage)} and run `distill {stage}` again"
        )
    return data


def pull_stage(store: ObjectStore, stage: str, folder: Path) -> Manifest | None:
    """Write a finished stage to a new folder, its manifest last; None where it is unfinished."""
    files = stage_files(store, stage)
    for name, output in sorted(files.items(), key=lambda each: each[0] == MANIFEST):
        pull_file(store, stage, output, folder / name)
    return Manifest.read(folder)


def _files(stage: str) -> str:
    return f"run/{stage}/files"


def _file(stage: str, output: Output) -> str:
    return f"{_files(stage)}/{output.sha256}"


def _stage(stage: str) -> str:
    return f"run/{stage}/stage.json"
