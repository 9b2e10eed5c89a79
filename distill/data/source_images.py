"""Whether the images that a finished stage read are still the same.

A stage's fingerprint covers the tables of its sources, with all that lies in them. Images beside a table are files of
their own, maybe millions. A stage leaves a record of those that it read: place and sha256 of each, and size and time
of change of its file. A later start compares sizes and times, and reads only the files in which one of them differs.
The record does not cover sources of the hub, rows with unreadable images, files with other content but the same size
and time, and objects that change in their store while a stage reads them.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.artifacts.layout import COMPARED_IMAGES, IMAGES
from distill.data import sources
from distill.data.arrow import read_columns, table_of
from distill.data.grown_sources import content_files
from distill.data.images import image_files
from distill.data.images.file_statuses import file_statuses
from distill.errors import ImageError, StaleError
from distill.local_paths import is_store_address, real_path
from distill.machine.thread_map import thread_map
from distill.recipe.recipe import Recipe
from distill.types import ImageRef

_SCHEMA: Final = pa.schema(
    [
        ("source", pa.string()),
        ("path", pa.string()),
        ("column", pa.string()),
        ("row", pa.int64()),
        ("index", pa.int64()),
        ("sha256", pa.string()),
    ]
)
_STATUS: Final = pa.schema([("bytes", pa.int64()), ("modified_ns", pa.int64())])
_ROOTS, _MADE = b"roots", b"made"
_OF_REF: Final = tuple(_SCHEMA.names[1:])
_UNKNOWN: Final = (-1, -1)
_ROWS: Final = 4096
_THREADS: Final = 4
_MOST: Final = 100
"""Changed images of a source after which no more are looked for."""
_CLOCK_NS: Final = 2_000_000_000
"""The clock of a file system may be coarse or slow: a file that changed so shortly before it was read may have
changed afterwards."""


class _HasImages(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def images(self) -> Sequence[ImageRef]: ...


_Row = TypeVar("_Row", bound=_HasImages)


class ImagesRead:
    """The images that a stage reads, each once, for its record."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._begun_ns = time.time_ns()
        self._roots: dict[str, str] = {}
        self._files: dict[str, Collection[str] | None] = {}
        self._seen: set[int] = set()
        self._rows: list[dict[str, Any]] = []
        self._tables: list[pa.Table] = []

    def noting(self, rows: Iterable[_Row]) -> Iterator[_Row]:
        """The rows as they are; their images are noted."""
        for row in rows:
            self.add(row.source, row.images)
            yield row

    def add(self, source: str, images: Iterable[ImageRef]) -> None:
        """Note images of a source, except images that its fingerprint covers (in the dataset or in its table)."""
        if source not in self._files:
            self._files[source] = self._files_with_rows(source)
        if (covered := self._files[source]) is None:
            return
        for ref in images:
            key = hash((source, ref.path, ref.column, ref.row, ref.index))
            if key in self._seen or ref.path in covered:
                continue
            self._seen.add(key)
            self._rows.append({"source": source} | {name: getattr(ref, name) for name in _OF_REF})
            if len(self._rows) == _ROWS:
                self._pack()

    def write(self, folder: Path) -> None:
        """Write the record into the folder of a stage; without images none is left there."""
        self._pack()
        for name in (IMAGES, COMPARED_IMAGES):
            (folder / name).unlink(missing_ok=True)
        if self._tables:
            table = pa.concat_tables(self._tables)
            paths = table["path"].to_pylist()
            statuses = file_statuses({*paths}, until_ns=self._begun_ns - _CLOCK_NS)
            noted = [statuses.get(path, _UNKNOWN) for path in paths]
            _write(folder / IMAGES, table, noted, self._roots, str(self._begun_ns))

    def _pack(self) -> None:
        if self._rows:
            self._tables.append(table_of(self._rows, _SCHEMA))
            self._rows = []

    def _files_with_rows(self, source: str) -> Collection[str] | None:
        """The files of a source that its fingerprint covers; None where no image of it is compared."""
        if source not in self._recipe.data or not sources.is_there(self._recipe, source):
            return None
        table = sources.locate(self._recipe, source)
        self._roots[source] = images_root(self._recipe, source)
        return frozenset(map(table.name_of, content_files(table)))


@dataclass(slots=True, kw_only=True)
class ComparedImages:
    """The present images of a source, compared with a record."""

    noted: int = 0
    """Images that were compared: all of the record, or those that were looked at."""
    changed: list[str] = field(default_factory=list)
    """Places of images of another content; at most the first hundred."""
    missing: int = 0
    """Images that cannot be read now."""

    @property
    def are_same(self) -> bool:
        return not self.changed and not self.missing


def require_same_images(recipe: Recipe, folder: Path, *, looked: int | None = None) -> None:
    """Raises StaleError where a source has other images than a finished stage read. Images that are away are no
    other ones. `looked` as in `compare_images`."""
    for name, compared in compare_images(recipe, folder, remember=looked is None, looked=looked).items():
        if compared.changed:
            count = len(compared.changed)
            counted = f"{count:,} or more" if count == _MOST else f"{count:,}"
            raise StaleError(
                f"{folder} was made from other images of [data.{name}]: {counted} of the {compared.noted:,} that "
                f"were compared have another content now, such as {compared.changed[0]}",
                f"put them back, or make this stage again: `{command_again(folder)}`",
            )


def command_again(folder: Path) -> str:
    """The command that makes a stage of training or evaluation again."""
    stage = f"train --stage {folder.name}" if folder.parent.name == "train" else folder.name
    return f"distill {stage} --fresh"


def compare_images(
    recipe: Recipe, folder: Path, *, remember: bool = False, looked: int | None = None
) -> dict[str, ComparedImages]:
    """The images of sources beside the record of a stage; nothing where it has none, as in runs of earlier versions.

    Files of the same place, size and time are taken as the same. With `remember` those that had to be read, and are
    the same, are not read at the next comparison. With `looked` only so many images of all that lie on this machine
    are compared, spread over the record.
    """
    record = _read(folder)
    if record is None:
        return {}
    table, roots, made = record
    if looked is not None:
        table = _some(table, looked)
    now = {
        name: images_root(recipe, name) for name in roots if name in recipe.data and sources.is_there(recipe, name)
    }
    named = table["source"].to_pylist()
    paths = [
        _moved(path, roots[name], now.get(name, roots[name]))
        for name, path in zip(named, table["path"].to_pylist(), strict=True)
    ]
    noted = list(zip(*(table[name].to_pylist() for name in _STATUS.names), strict=True))
    statuses = file_statuses({*paths})
    found = {name: ComparedImages(noted=named.count(name)) for name in now}
    doubtful = []
    for row, (name, path) in enumerate(zip(named, paths, strict=True)):
        if name in now and path not in statuses:
            found[name].missing += 1
        elif name in now and (now[name] != roots[name] or statuses[path] != noted[row]):
            doubtful.append(row)
    for row, content in _contents(table, paths, doubtful):
        compared = found[named[row]]
        if content is None:
            compared.missing += 1
        elif content != table["sha256"][row].as_py():
            compared.changed.append(paths[row])
            if len(compared.changed) == _MOST:
                break
        else:
            noted[row] = statuses[paths[row]]
    if remember and doubtful and all(compared.are_same for compared in found.values()):
        table = table.set_column(1, _SCHEMA.field("path"), pa.array(paths, pa.string()))
        _write(folder / COMPARED_IMAGES, table.select(_SCHEMA.names), noted, roots | now, made)
    return found


def _some(table: pa.Table, count: int) -> pa.Table:
    """At most so many rows of a record, spread over it, of images that lie in no store."""
    import pyarrow.compute as pc

    table = table.filter(pc.invert(pc.match_substring(table["path"], "://")))
    step = max(1, -(-table.num_rows // count))
    return table.take(pa.array(range(0, table.num_rows, step), pa.int64()))


def _contents(table: pa.Table, paths: Sequence[str], rows: Sequence[int]) -> Iterator[tuple[int, str | None]]:
    """The sha256 of the images in some rows of a record as they are now; None for one that cannot be read."""

    def content(row: int) -> tuple[int, str | None]:
        place = {name: table[name][row].as_py() for name in ("column", "row", "index")}
        try:
            return row, image_files.sha256(image_files.read_bytes(ImageRef(sha256="", path=paths[row], **place)))
        except ImageError:
            return row, None

    return thread_map(content, rows, _THREADS, ahead=4 * _THREADS)


def _moved(path: str, root: str, now: str) -> str:
    """Where an image below a root lies below another one."""
    return f"{now}{path.removeprefix(root)}" if now != root and path.startswith(root) else path


def _read(folder: Path) -> tuple[pa.Table, dict[str, str], str] | None:
    """The record of a stage as it was compared last, its roots and when it was made; None where there is none, or a
    damaged one, which `distill repair` names."""
    found = None
    for name in (IMAGES, COMPARED_IMAGES):
        try:
            table = read_columns(folder / name)
            head = table.schema.metadata
            made = head[_MADE].decode()
            if table.column_names == [*_SCHEMA.names, *_STATUS.names] and (found is None or found[2] == made):
                found = table, orjson.loads(head[_ROOTS]), made
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            break
    return found


def _write(
    path: Path, table: pa.Table, statuses: Sequence[tuple[int, int]], roots: Mapping[str, str], made: str
) -> None:
    rows = [dict(zip(_STATUS.names, status, strict=True)) for status in statuses]
    for column in table_of(rows, _STATUS).itercolumns():
        table = table.append_column(_STATUS.field(table.num_columns - len(_SCHEMA.names)), column)
    head = {_ROOTS: orjson.dumps(roots), _MADE: made.encode()}
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata(head), temporary, compression="zstd")


def images_root(recipe: Recipe, name: str) -> str:
    """The folder that image paths of a source start from, links in it resolved: another one may hold other images.

    Empty for a hub name.
    """
    root = recipe.data[name].images_root
    if root is not None:
        place = recipe.place(root)
        return place if is_store_address(place) else str(real_path(Path(place)))
    if not sources.is_there(recipe, name):
        return ""
    table = sources.locate(recipe, name)
    return table.root_address or str(table.root)
