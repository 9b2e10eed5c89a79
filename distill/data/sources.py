"""Finds the rows of a data source and reads them one by one.

A source is a file, a directory or a hub name; each becomes a `SourceTable`: files of one kind, read in order. Rows
are plain mappings; `distill.data.formats` reads their columns. A row that cannot be read is a BadRow; a source that
cannot be read is a DataError.
"""

import csv
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from distill.artifacts.layout import RECIPE
from distill.data.images.base64_images import located
from distill.data.images.image_suffixes import image_suffixes
from distill.data.images.lfs_pointers import explain_pointers
from distill.data.images.stored_images import images_folder
from distill.data.tables import stored_tables
from distill.data.tables.hub_datasets import dataset_files, is_hub_name
from distill.data.tables.stored_tables import StoredFile
from distill.data.tables.table_kinds import KINDS, SHARDS, suffix_of
from distill.data.tables.table_rows import READERS, jsonl
from distill.data.tables.tar_shards import tar_rows
from distill.errors import DataError
from distill.local_paths import is_store_address, real_path
from distill.object_store.recipe_stores import prepare_stores
from distill.recipe.messages import did_you_mean
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import DataSource
from distill.types import BadRow


class NoSplitError(DataError):
    """A source has no rows of the wanted split; `splits` are those that it has."""

    def __init__(self, message: str, splits: Sequence[str]) -> None:
        super().__init__(message)
        self.splits = splits


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """The files of one source. `root` is the folder image paths are relative to, symbolic links resolved.

    Where it is in a store, `root_address` is its address, and `root` the folder that gets what is fetched.
    """

    label: str
    kind: str
    files: tuple[Path, ...]
    root: Path
    hub: str = ""
    """Hub name when the files are a cache of it."""
    root_address: str = ""
    stored: Mapping[Path, StoredFile] = field(default_factory=dict)
    """The objects that files are copies of, where they lie in a store."""

    def fetch(self, path: Path | None = None) -> None:
        """Copy files to this machine: all, one, or the files of a folder."""
        for file, stored in self.stored.items():
            if path is None or file.is_relative_to(path):
                stored_tables.fetch(file, stored)

    def name_of(self, file: Path) -> str:
        """Where a file lies: its path, or the address of its object."""
        return self.stored[file].address if file in self.stored else str(file)

    def name_below_root(self, file: Path) -> str:
        """The path of a file as an image cell would have it."""
        if file in self.stored:
            return self.name_of(file).removeprefix(f"{self.root_address}/")
        return os.path.relpath(file, self.root)


@dataclass(slots=True, kw_only=True)
class SourceRow:
    """One row. `number` counts from 1 over the source; `table` and `table_row` (from 0) are set when image bytes lie
    in the file itself and can be referred to."""

    number: int
    values: Mapping[str, Any]
    table: str = ""
    table_row: int = 0


def settings(recipe: Recipe, name: str) -> DataSource:
    """The source named `name` in the recipe. Raises DataError naming the nearest one."""
    if name in recipe.data:
        return recipe.data[name]
    names = ", ".join(recipe.data) or "none"
    raise DataError(f"{recipe.path}: no data source [data.{name}]{did_you_mean(name, recipe.data)} (known: {names})")


def locate(recipe: Recipe, name: str) -> SourceTable:
    """The files a source consists of. Raises DataError with the next step when there are none."""
    source = settings(recipe, name)
    where = f"[data.{name}] source = {source.source!r}"
    stored: Mapping[Path, StoredFile] = {}
    folder, pattern = _folder_and_pattern(recipe, source.source)
    path = recipe.local(folder)
    if any(is_store_address(place or "") for place in (source.source, source.images_root)):
        prepare_stores(recipe)
    if is_store_address(source.source):
        try:
            path, stored = stored_tables.look_up(folder)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
    if pattern:
        table = _matching(path, pattern, stored, where)
    elif path.is_file():
        table = SourceTable(label=str(path), kind=_kind(path, where), files=(path,), root=path.parent)
    elif path.is_dir():
        try:
            table = _directory(path, source, where)
        except DataError as error:
            if not stored:
                raise
            raise DataError(str(error).replace(str(path), source.source)) from None
    elif is_hub_name(source):
        files = tuple(dataset_files(source, path, where, _nearest_path(path)))
        table = SourceTable(label=source.source, kind="arrow", files=files, root=files[0].parent, hub=source.source)
    else:
        fault = "is no file or folder" if path.exists() else f"does not exist{_nearest_path(path)}"
        raise DataError(f"{where}: {path} {fault}; paths are relative to the recipe")
    if stored:
        address_of = stored_tables.address_of
        label, root = address_of(Path(table.label)), address_of(table.root)
        table = replace(table, stored=stored, label=label, root_address=root)
    return _with_root(table, recipe, source, name)


def is_there(recipe: Recipe, name: str) -> bool:
    """Whether a source can be read without a download from the hub: on this machine, or in a store."""
    source = settings(recipe, name).source
    return is_store_address(source) or recipe.local(_folder_and_pattern(recipe, source)[0]).exists()


def require_there(recipe: Recipe, name: str) -> None:
    """Raises DataError for a source that is not there and no name of the hub, without a download."""
    if not is_there(recipe, name) and not is_hub_name(settings(recipe, name)):
        locate(recipe, name)


def _folder_and_pattern(recipe: Recipe, source: str) -> tuple[str, str]:
    """A source such as shards/*.tar as the folder before the first wildcard and what follows; else no pattern."""
    wildcard = re.search(r"[*?]", source)
    if wildcard is None or (not is_store_address(source) and recipe.local(source).exists()):
        return source, ""
    cut = source.rfind("/", 0, wildcard.start()) + 1
    return source[:cut] or ".", source[cut:]


def _matching(folder: Path, pattern: str, stored: Mapping[Path, StoredFile], where: str) -> SourceTable:
    """The table of all files of a folder that match a pattern, which must be of one kind."""
    try:
        matched = sorted(folder.glob(pattern))
    except ValueError as error:
        raise DataError(f"{where}: {error}; correct the pattern") from None
    found = (file for file in matched if file.is_file() and _is_visible(file, folder))
    files = tuple(file for file in found if not stored or file in stored)
    kinds = sorted({_kind(file, where) for file in files})
    if len(kinds) != 1:
        problem = f"matches files of several kinds ({', '.join(kinds)})" if kinds else "matches no file"
        raise DataError(f"{where}: {problem}; correct the pattern")
    return SourceTable(label=str(folder / pattern), kind=kinds[0], files=files, root=folder)


def _with_root(table: SourceTable, recipe: Recipe, source: DataSource, name: str) -> SourceTable:
    if source.images_root is not None:
        if table.kind == SHARDS:
            raise DataError(f"[data.{name}] images_root: tar shards hold their images; leave images_root out")
        table = replace(table, root_address=source.images_root if is_store_address(source.images_root) else "")
    if table.root_address:
        return replace(table, root=images_folder())
    root = table.root if source.images_root is None else recipe.local(source.images_root)
    if not root.is_dir():
        raise DataError(
            f"[data.{name}] images_root = {source.images_root!r}: {root} is not a directory{_nearest_path(root)}; "
            "paths are relative to the recipe"
        )
    return replace(table, root=real_path(root))


def _nearest_path(path: Path) -> str:
    if path.exists():
        return ""
    try:
        return did_you_mean(path.name, [item.name for item in path.parent.iterdir()])
    except OSError:
        return f" (nor does its folder {path.parent})"


def _kind(path: Path, where: str) -> str:
    kind = KINDS.get(suffix_of(path))
    if kind is None:
        remedy = "save the sheet as CSV; " if path.suffix.lower() in (".xlsx", ".xls", ".ods") else ""
        remedy = (
            f"it is an image: give its folder, {path.parent}; " if path.suffix.lower() in image_suffixes() else remedy
        )
        raise DataError(
            f"{where}: cannot read a {suffix_of(path) or 'suffixless'} file; {remedy}known: {', '.join(KINDS)}"
        )
    return kind


def _directory(path: Path, source: DataSource, where: str) -> SourceTable:
    """The table inside a directory: a saved datasets directory, Parquet files, or an image folder's table."""
    base = path / source.subset if source.subset and (path / source.subset).is_dir() else path
    if (base / "dataset_dict.json").is_file():
        splits = _described(base / "dataset_dict.json", where, lambda described: list(described["splits"]))
        if source.split not in splits:
            raise NoSplitError(f"{where}: {base} has no split {source.split!r} (splits: {', '.join(splits)})", splits)
        base = base / source.split
    if (base / "state.json").is_file():
        names = _described(
            base / "state.json", where, lambda described: [str(item["filename"]) for item in described["_data_files"]]
        )
        return SourceTable(label=str(base), kind="arrow", files=tuple(base / name for name in names), root=base)
    folders = [folder for folder in (base / source.split, base) if folder.is_dir()]
    if source.format == "cocoqa":
        for folder in folders:
            if all((folder / file).is_file() for file in ("questions.txt", "answers.txt", "img_ids.txt")):
                return SourceTable(label=str(folder), kind="cocoqa", files=(folder,), root=folder)
    for suffix in ("jsonl", "jsonl.gz", "jsonl.zst", "csv", "parquet"):
        for folder in folders:
            file = folder / f"metadata.{suffix}"
            if file.is_file():
                return SourceTable(label=str(file), kind=KINDS[suffix_of(file)], files=(file,), root=folder)
    if shards := _shards(base, "parquet", source, where):
        return SourceTable(label=str(base), kind="parquet", files=shards, root=base)
    beside = [file for folder in folders[-1:] for file in files_beside(folder)]
    tables = [file for file in beside if KINDS.get(suffix_of(file), SHARDS) != SHARDS]
    if not tables and (shards := _shards(base, SHARDS, source, where)):
        return SourceTable(label=str(base), kind=SHARDS, files=shards, root=base)
    split_tables = [file for file in tables if split_of(file, base) == source.split] or tables
    if len(split_tables) == 1:
        return SourceTable(
            label=str(split_tables[0]), kind=_kind(split_tables[0], where), files=(split_tables[0],), root=base
        )
    problem = f"several tables ({', '.join(file.name for file in split_tables)})" if split_tables else "no table"
    raise DataError(
        f"{where}: {base} holds {problem}; name one file as source, or add metadata.jsonl with one row an image"
    )


def _described(file: Path, where: str, read: Callable[[Any], list[str]]) -> list[str]:
    """What a file of a saved dataset says of it. Raises DataError for a damaged one."""
    try:
        return read(orjson.loads(file.read_bytes()))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(
            f"{where}: {file} does not describe a saved dataset ({type(error).__name__}: {error}); save it again, or "
            "name its files as source"
        ) from None


def _shards(base: Path, kind: str, source: DataSource, where: str) -> tuple[Path, ...]:
    """The files of a kind below a folder, only of the wanted split."""
    return tuple(_of_split(base, _files_below(base, kind), source, where))


def _files_below(base: Path, kind: str) -> list[Path]:
    """The files of a kind below a folder, in order; nothing hidden, and nothing of a run that lies there, too."""
    files = sorted(base.rglob(f"*.{kind}"))
    return [file for file in files if file.is_file() and _is_visible(file, base) and not _is_of_run(file, base)]


def files_beside(folder: Path) -> list[Path]:
    """The files in a folder, in order; nothing hidden."""
    return [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")]


def _is_visible(file: Path, base: Path) -> bool:
    return not any(part.startswith(".") for part in file.relative_to(base).parts)


def _is_of_run(file: Path, base: Path) -> bool:
    """Whether a file lies in a run somewhere below a folder."""
    folders = [base / folder for folder in file.relative_to(base).parents[:-1]]
    return any((folder / RECIPE).is_file() and (folder / "generate").is_dir() for folder in folders)


def _of_split(base: Path, files: list[Path], source: DataSource, where: str) -> list[Path]:
    """The files of the wanted split, by the names of the hub: `train-00`, `charts-train`, or a folder `train`."""
    splits = {file: split_of(file, base) for file in files}
    split_names = sorted({split for split in splits.values() if split})
    if not split_names:
        return files
    chosen = [file for file in files if splits[file] == source.split]
    if not chosen:
        found = ", ".join(split_names)
        raise NoSplitError(f"{where}: no files of split {source.split!r}; found: {found}", split_names)
    return chosen


_SPLIT = r"(train|training|validation|valid|val|dev|test|testmini)(?=$|[-_.\d])"


def split_of(file: Path, base: Path) -> str | None:
    """The split that the name of a file, or of the nearest folder, says."""
    folders = file.relative_to(base).parent.parts[::-1] or (base.name,)
    named = re.search(rf"(?<![^-_.]){_SPLIT}", file.stem)
    found = [named, *(re.match(_SPLIT, folder) for folder in folders)]
    return next((match[1] for match in found if match), None)


def describe_other_splits(table: SourceTable, folder: Path) -> list[str]:
    """A line about the tables of a folder that are not read, because their names state another split; else none."""
    others = _files_of_other_splits(table, folder)
    if not others:
        return []
    names = ", ".join(str(file.relative_to(folder)) for file in others[:3])
    return [
        f"not used: {len(others):,} of the tables, of other splits ({names}{', ...' if others[3:] else ''}). The "
        "test rows come from the rows that are used; to test on such a table, name it under [data.test] in the recipe"
    ]


def _files_of_other_splits(table: SourceTable, folder: Path) -> list[Path]:
    if not folder.is_dir() or table.kind == "arrow":
        return []
    below = table.kind in ("parquet", SHARDS)  # as `_shards` looks for them
    files = _files_below(folder, table.kind) if below else files_beside(folder)
    return [
        file
        for file in files
        if file not in table.files and KINDS.get(suffix_of(file)) == table.kind and split_of(file, folder)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStart:
    """The rows at the start of a table that are not read: whole files, and bytes of the one after them."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


def rows(table: SourceTable, start: SourceStart = SourceStart()) -> Iterator[SourceRow | BadRow]:
    """The rows of a table in order, from `start` on. Raises DataError when a file cannot be read at all."""
    number = start.rows
    for position, file in enumerate(table.files[start.files :]):
        table.fetch(file)
        if pointer := explain_pointers(file):
            raise DataError(f"{file}: {pointer}")
        try:
            for item in _items(table, file, 0 if position else start.bytes):
                number += 1
                if isinstance(item, str):
                    yield BadRow(source=table.name_of(file), row=number, reason="malformed_row", detail=item)
                elif table.kind in ("parquet", "arrow"):
                    values, table_row = item
                    yield SourceRow(number=number, values=values, table=table.name_of(file), table_row=table_row)
                else:
                    yield SourceRow(number=number, values=item)
        except (OSError, pa.ArrowException, csv.Error, tarfile.TarError, UnicodeError) as error:
            raise DataError(f"{table.name_of(file)}: cannot be read after row {number}: {error}") from None


def _items(table: SourceTable, file: Path, begin: int) -> Iterator[Any]:
    """The rows of one file as its kind is read."""
    if table.kind == SHARDS:
        return tar_rows(file, table.name_below_root(file))
    items: Iterator[Any] = jsonl(file, begin) if begin else READERS[table.kind](file)
    return located(items, file, table.name_of(file), begin) if table.kind in ("jsonl", "json", "csv") else items
