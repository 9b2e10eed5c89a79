"""A stage that one agent of a run makes in a folder of its machine, and that the store keeps while it is unfinished.

    run/<stage>/attempts/<agent>/<sha256>   a file of the agent's folder, as it was some seconds ago
    run/<stage>/attempts/<agent>.json       the names of the files that count, put after them; what it was begun from

A file of lines that grows is copied in chunks of 4 MB, so only its last one is put again.

`train` and `eval` are made in this way: by one agent at a time, in a folder, with their own checkpoints and journals.
The store has a copy of this folder, so another machine continues from the last copied checkpoint or reply. A finished
stage is stored like every other one (distill/units/stored_stage.py) and ends all earlier attempts.
"""

import hashlib
import logging
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import orjson

from distill.artifacts.files import Output, atomic_path, link_or_copy, remembered_sha256
from distill.artifacts.manifest import MANIFEST, canonical
from distill.errors import DataError
from distill.object_store.interface import ObjectStore
from distill.units.agent_record import AgentRecord
from distill.units.stored_stage import (
    Place,
    file_names,
    finished_place,
    make_equal,
    parse_files,
    push_stage,
    put_files,
    stage_files,
    stage_folder,
)

_GROWING, _CHUNK = ".jsonl", ".chunk-"
_CHUNK_BYTES = 4 << 20
_TRIES = 20

Listing = Mapping[str, tuple[int, int, int]]
"""Size, time and inode of each file."""


@contextmanager
def copied_to_store(agent: AgentRecord, stage: str, folder: Path, *, every_s: float) -> Iterator[None]:
    """Make a stage in `folder`, which one agent of a run does at a time; others wait.

    The folder begins as the newest copy that the store has. It is copied to the store every `every_s` seconds and
    when the block ends. If it holds a manifest then, the stage is finished and put as such.
    """
    with agent.alone(stage):
        begun_from = pull_newest(agent.store, stage, folder)
        copy = FolderCopy(store=agent.store, stage=stage, folder=folder, agent=agent.name, begun_from=begun_from)
        with _copying(copy, every_s):
            yield
        if copy.is_finished:
            push_stage(agent.store, stage, folder)
            agent.store.delete(stored.key for stored in agent.store.list_objects(_attempts(stage)))


def pull_newest(store: ObjectStore, stage: str, folder: Path) -> str:
    """Let a folder be what is newest of a stage, finished or not; it is empty where the store has nothing.

    Returns the digest of the finished stage that the store has; "" for none. DataError where it is damaged.
    """
    finished = stage_files(store, stage)
    begun_from = _digest(finished)
    listed = [stored for stored in store.list_objects(_attempts(stage)) if stored.key.endswith(".json")]
    for stored in sorted(listed, key=lambda each: each.modified_s, reverse=True):
        try:
            attempt = orjson.loads(store.read(stored.key))
            if attempt["begun_from"] == begun_from:
                place = _place(stage, Path(stored.key).stem, attempt["files"])
                make_equal(store, folder, parse_files(attempt["files"]), place=place)
                _join_chunks(folder, attempt["files"])
                return begun_from
        except (FileNotFoundError, DataError) as error:
            logging.getLogger(__name__).warning(f"a copy of stage {stage} is left out: {error}")
    make_equal(store, folder, finished, place=finished_place(stage))
    return begun_from


@dataclass(slots=True, kw_only=True)
class FolderCopy:
    """The copy of a stage's folder that an agent keeps in the store."""

    store: ObjectStore
    stage: str
    folder: Path
    agent: str
    begun_from: str
    _earlier: list[str] = field(init=False)
    """Objects of agents that worked on the stage before; they end with the first copy of this one."""
    _copied: Listing = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._earlier = [stored.key for stored in self.store.list_objects(_attempts(self.stage))]

    @property
    def is_finished(self) -> bool:
        return (self.folder / MANIFEST).is_file()

    @property
    def _held(self) -> Path:
        """Links to the files that are copied: the stage itself may remove its old checkpoints meanwhile."""
        return self.folder.parent / f".{self.stage}.held"

    def renew(self) -> None:
        """Copy the folder in its present state, if it has changed.

        A file that changes meanwhile is left to the next copy.
        """
        listing = self._hold()
        if listing is None or listing == self._copied:
            return
        own, store = f"{_attempts(self.stage)}/{self.agent}", self.store
        files = {
            name: Output(sha256=remembered_sha256(self._held / name), bytes=(self._held / name).stat().st_size)
            for name in file_names(self._held)
        }
        place = _place(self.stage, self.agent, files)
        for finished in (True, False):
            group = {name: files[name] for name in files if _is_finished(name, files) == finished}
            put_files(store, f"{stage_folder(self.stage)}/files" if finished else own, self._held, group, place=place)
        changed = [name for name in listing if not _is_growing(name) and _status(self._held / name) != listing[name]]
        if changed:
            store.delete(place(name, files[name]) for name in changed)
            return
        store.put(f"{own}.json", canonical({"begun_from": self.begun_from, "files": files}))
        self._copied = listing
        named = {place(name, output) for name, output in files.items()}
        store.delete(stored.key for stored in store.list_objects(own) if stored.key not in named)
        store.delete(self._earlier)
        self._earlier = []

    def _hold(self) -> Listing | None:
        """Link the files of the folder in their state at one moment; None if they keep changing."""
        for _ in range(_TRIES):
            try:
                listing = _listing(self.folder)
                for name in file_names(self._held) if self._held.is_dir() else ():
                    (self._held / name).unlink()
                for name in listing:
                    target = self._held / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if not _is_growing(name):
                        link_or_copy(self.folder / name, target)
                    elif _is_finished(name, listing):
                        shutil.copyfile(self.folder / name, target)
                    else:
                        _copy_in_chunks(self.folder / name, target)
                if _listing(self.folder) == listing:
                    return listing
            except FileNotFoundError:  # removed since the listing
                continue
        return None


@contextmanager
def _copying(copy: FolderCopy, every_s: float) -> Iterator[None]:
    """Renew a copy every few seconds inside the block, and once more where the block leaves the stage unfinished."""
    closed = threading.Event()

    def work() -> None:
        while not closed.wait(every_s):
            _try_renew(copy)

    thread = threading.Thread(target=work, name="copy", daemon=True)
    thread.start()
    failed = True
    try:
        yield
        failed = False
    finally:
        closed.set()
        thread.join()
        try:
            if failed:
                _try_renew(copy)
            elif not copy.is_finished:
                copy.renew()
        finally:
            shutil.rmtree(copy._held, ignore_errors=True)


def _try_renew(copy: FolderCopy) -> None:
    try:
        copy.renew()
    except Exception as error:  # a thread that ended here would leave no message; the next copy tries again
        logging.getLogger(__name__).warning(f"stage {copy.stage} is not copied: {error}")


def _listing(folder: Path) -> Listing:
    return {name: _status(folder / name) for name in file_names(folder)} if folder.is_dir() else {}


def _status(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _copy_in_chunks(source: Path, target: Path) -> None:
    """Copy a file of one chunk, or copy its chunks to files whose names `_join_chunks` knows."""
    with source.open("rb") as file:
        data = file.read(_CHUNK_BYTES)
        if len(data) < _CHUNK_BYTES:
            target.write_bytes(data)
            return
        for number in count():
            target.with_name(f"{target.name}{_CHUNK}{number:06d}").write_bytes(data)
            if not (data := file.read(_CHUNK_BYTES)):
                return


def _join_chunks(folder: Path, names: Iterable[str]) -> None:
    """Put the chunks among some files together again."""
    whole: dict[str, list[Path]] = {}
    for name in sorted(name for name in names if _CHUNK in name):
        whole.setdefault(name.partition(_CHUNK)[0], []).append(folder / name)
    for name, chunks in whole.items():
        with atomic_path(folder / name) as temporary, temporary.open("wb") as file:
            for chunk in chunks:
                file.write(chunk.read_bytes())
        for chunk in chunks:
            chunk.unlink()


def _is_growing(name: str) -> bool:
    return name.endswith(_GROWING)


def _is_finished(name: str, files: Mapping[str, object]) -> bool:
    """Whether a file is of a training stage that is finished, which the whole result will hold as it is."""
    return f"{name.partition('/')[0]}/{MANIFEST}" in files


def _place(stage: str, agent: str, files: Mapping[str, object]) -> Place:
    done = finished_place(stage)
    return lambda name, output: (
        done(name, output) if _is_finished(name, files) else f"{_attempts(stage)}/{agent}/{output.sha256}"
    )


def attempts(store: ObjectStore, stage: str) -> set[str]:
    """The names of the copies of an unfinished stage."""
    return {stored.key for stored in store.list_objects(_attempts(stage)) if stored.key.endswith(".json")}


def _attempts(stage: str) -> str:
    return f"{stage_folder(stage)}/attempts"


def _digest(files: Mapping[str, Output]) -> str:
    return hashlib.sha256(canonical(files)).hexdigest() if files else ""
