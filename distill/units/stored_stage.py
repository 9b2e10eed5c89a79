"""A finished stage in the store of a run: its files by their content, and one object that names them.

    run/<stage>/files/<sha256>   a file of the stage's folder
    run/<stage>/stage.json       the names of the files that count, with their digests

`stage.json` is put last and is one object, so a reader finds one result as a whole, also while another one is made.
Files of earlier results stay.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from distill.artifacts.files import Output, atomic_path, describe, remembered_sha256
from distill.artifacts.manifest import MANIFEST, Manifest, canonical
from distill.errors import DataError
from distill.local_paths import leads_outside
from distill.object_store.interface import ObjectStore

_UNFINISHED = ".tmp"
_READ_BYTES = 32 << 20

Place = Callable[[str, Output], str]
"""The object that holds a file, by its name and its digest."""


def push_stage(store: ObjectStore, stage: str, folder: Path, known: Mapping[str, Output] | None = None) -> None:
    """Put the files of a finished stage's folder, in the place of an earlier result.

    `known` are files of the stage whose digests are known; those that are not in the folder are in their place.
    """
    known = known or {}
    files = {name: known.get(name) or describe(folder / name) for name in file_names(folder)}
    put_files(store, f"{stage_folder(stage)}/files", folder, files, place=finished_place(stage))
    store.put(_stage(stage), canonical({**known, **files}))


def file_names(folder: Path) -> list[str]:
    """The files of a folder, but no unfinished ones and no caches, whose names begin with a dot."""
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path.as_posix()
        for path in paths
        if path.suffix != _UNFINISHED and not any(part.startswith(".") for part in path.parts)
    ]


def put_files(store: ObjectStore, there: str, folder: Path, files: Mapping[str, Output], *, place: Place) -> None:
    """Put files of a folder, unless their objects are `there` already."""
    sizes = {stored.key: stored.bytes for stored in store.list_objects(there)}
    for name, output in files.items():
        if sizes.get(key := place(name, output)) != output.bytes:
            store.put(key, folder / name)
            sizes[key] = output.bytes


def stage_files(store: ObjectStore, stage: str) -> dict[str, Output]:
    """The files of a finished stage by name; none where it is unfinished."""
    try:
        return parse_files(orjson.loads(store.read(_stage(stage))))
    except FileNotFoundError:
        return {}


def parse_files(names: Mapping[str, Mapping[str, object]]) -> dict[str, Output]:
    """The files that an object names. DataError for a name that leads out of the folder of its stage."""
    if outside := sorted(filter(leads_outside, names)):
        raise DataError(f"a file of a stage in the store is named {outside[0]!r}, which is no name of a run's file")
    return {name: Output(**output) for name, output in names.items()}  # type: ignore[arg-type]


def stage_counts(store: ObjectStore, stage: str) -> dict[str, int]:
    """What a finished stage counted; nothing while it is unfinished."""
    files = stage_files(store, stage)
    if MANIFEST not in files:
        return {}
    key = finished_place(stage)(MANIFEST, files[MANIFEST])
    return dict(orjson.loads(store.read(key))["counts"])


def pull_file(store: ObjectStore, stage: str, output: Output, path: Path) -> None:
    """Write one file of a finished stage. Raises DataError for a file that was changed in the store."""
    _pull(store, finished_place(stage)("", output), output, path)


def _pull(store: ObjectStore, key: str, output: Output, path: Path) -> None:
    digest = hashlib.sha256()
    with atomic_path(path) as temporary:
        with temporary.open("wb") as file:
            for start in range(0, output.bytes, _READ_BYTES):
                try:
                    data = store.read(key, start, min(start + _READ_BYTES, output.bytes))
                except FileNotFoundError:
                    break
                digest.update(data)
                file.write(data)
        if digest.hexdigest() != output.sha256:
            raise DataError(
                f"{store.address}/{key}: missing or changed since it was written; delete the object that names it, "
                f"{key.rsplit('/', 2)[0]}/stage.json, and make the stage again"
            )


def pull_stage(store: ObjectStore, stage: str, folder: Path) -> Manifest | None:
    """Write a finished stage to a new folder, its manifest last; None where it is unfinished."""
    make_equal(store, folder, stage_files(store, stage), place=finished_place(stage))
    return Manifest.read(folder)


def make_equal(store: ObjectStore, folder: Path, files: Mapping[str, Output], *, place: Place) -> None:
    """Make a folder contain exactly these files; manifests are written last. Files that are there already are not
    read again.

    Caches, whose names begin with a dot, stay. DataError for a file that is not the one that was put.
    """
    for name in file_names(folder):
        kept = files.get(name) if Path(name).name != MANIFEST else None
        if kept is None or remembered_sha256(folder / name) != kept.sha256:
            (folder / name).unlink()
    for name, output in sorted(files.items(), key=_manifests_last):
        if not (folder / name).is_file():
            _pull(store, place(name, output), output, folder / name)


def _manifests_last(file: tuple[str, Output]) -> tuple[bool, int]:
    """A sort key: the manifest of the whole stage comes after the manifests of its parts."""
    return Path(file[0]).name == MANIFEST, -file[0].count("/")


def stage_folder(stage: str) -> str:
    """Where the objects of a stage lie."""
    return f"run/{stage}"


def finished_place(stage: str) -> Place:
    """Where the files of finished stages lie."""
    return lambda name, output: f"{stage_folder(stage)}/files/{output.sha256}"


def _stage(stage: str) -> str:
    return f"{stage_folder(stage)}/stage.json"
