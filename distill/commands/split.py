"""`distill split`: a table of questions into training and test rows that share no image.

Rows with the same image stay together, also if it was saved or resized again. Rows without an image (or with an image
of one colour) stay together if they ask the same question. Which rows become the test set depends on their content
and the seed alone, not on their order. Rows are written as they are; those that cannot be used are left out and
counted.
"""

import hashlib
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from distill.artifacts.files import storage_errors
from distill.artifacts.journal import write_jsonl
from distill.commands import split_files
from distill.data import formats, reader, sources
from distill.data.images.base64_images import is_base64
from distill.data.images.image_cells import BYTE_RANGE
from distill.data.source_parts import DisjointSets
from distill.data.sources import SourceRow, SourceTable
from distill.errors import DataError, RecipeError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import DataSource
from distill.recipe.sections.eval import FEW_QUESTIONS
from distill.types import BadRow, ImageRef, Sample
from distill.word_tables import counted
from filters.matching import image_match
from filters.run_signals import question_duplicates

TRAIN, TEST = "train", "test"
NAME = "questions"
HUB = "hub:"
LEFT_OUT = "left_out.jsonl"
_EMPTY = {"reason": "no_question", "detail": "the row holds no question"}
_OF_THE_WHOLE = ("source", "images_root", "subset", "split", "limit", "part")
"""Keys of a source that say where its rows lie and how many of them are read: the new files have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What was written."""

    files: Mapping[str, Path]
    rows: Mapping[str, int]
    pictures: Mapping[str, int]
    """Different images; those that were saved again count once."""
    plain: int
    """Pictures of one colour that are in both files."""
    golds: Mapping[str, int]
    """Rows with a right answer."""
    left_out: Mapping[str, int]
    """Rows that cannot be used, by reason."""
    root: str
    """The images_root of both files."""
    settings: Sequence[str] = ()
    """Lines of a data section that say how the table is read."""
    unused: Sequence[str] = ()
    """Settings of the source that read fewer rows than all."""

    def __str__(self) -> str:
        lines = [
            f"{path}: {counted(self.rows[name], 'row')}, {counted(self.pictures[name], 'image')}"
            for name, path in self.files.items()
        ]
        if self.left_out:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in self.left_out.items())
            total = sum(self.left_out.values())
            lines.append(f"left out: {counted(total, 'row')} that cannot be used ({reasons}); {LEFT_OUT} lists them")
        plain = f", except {self.plain:,} of one colour, which show nothing" if self.plain else ""
        if self.unused:
            lines.append(f"all rows of the source are split: {', '.join(self.unused)} of the recipe is not used")
        lines.append(f"no image is in both{plain}; for a recipe:")
        for name, path in zip(("questions", TEST), self.files.values(), strict=True):
            lines += [f"[data.{name}]", _setting("source", str(path.resolve()))]
            if self.root != str(path.resolve().parent):
                lines.append(_setting("images_root", self.root))
            lines += self.settings
        return "\n".join(lines)


@dataclass(slots=True, kw_only=True)
class _Rows:
    """What is known of the rows of a table, by their number from 1."""

    images: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Digests of a row's images."""
    asked: dict[int, str] = field(default_factory=dict)
    """A digest of a row's questions."""
    golds: set[int] = field(default_factory=set)
    """Those with a right answer."""
    refs: dict[str, ImageRef] = field(default_factory=dict)
    left_out: list[BadRow] = field(default_factory=list)
    by_links: bool = False
    """Whether the path of an image leads over a symbolic link."""


def split_source(recipe: Recipe, out: Path, *, name: str = NAME, test: float | None = 0.1, seed: int = 0) -> Split:
    """Write the rows of a recipe's source to train and test files in `out`, some `test` of them to the latter.

    Without `test` these are a tenth, and up to a third of a small table with answers, for FEW_QUESTIONS rows.

    Images that lie beside the table are linked into `out`, so that relative paths hold there too. Raises DataError
    when the source cannot be read or split, or when such files are in `out`.
    """
    if test is not None and not 0 < test < 1:
        raise DataError(f"--test {test}: give the share of the test set as a number between 0 and 1, such as 0.1")
    table = sources.locate(recipe, name)
    files = {part: out / f"{part}{split_files.suffix_of(table)}" for part in (TRAIN, TEST)}
    for path in files.values():
        if path.exists():
            raise DataError(f"{path}: it already exists; give another --out, or remove it")
    rows = _read(recipe, name, table)
    left_out = Counter(row.reason for row in rows.left_out)
    if not rows.images:
        if not rows.left_out:
            raise DataError(f"{table.label} holds no rows; give another table")
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.most_common())
        first = f"row {rows.left_out[0].row}: {rows.left_out[0].detail}"
        raise DataError(f"{table.label}: no row can be used ({reasons}; {first}); check format, columns, images")
    cluster = _clusters(rows, recipe.data[name].max_pixels)
    share_of_few = min(1 / 3, FEW_QUESTIONS / len(rows.images)) if rows.golds else 0.0
    groups = _groups(rows, cluster)
    smallest = min(len(numbers) for _, numbers in groups) / len(rows.images)
    share = test or max(0.1, share_of_few, smallest if smallest <= 1 / 3 else 0)
    chosen = _chosen(groups, share, seed, table.label, len(set(cluster.values())))
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    if rows.left_out:
        write_jsonl(out / LEFT_OUT, map(asdict, rows.left_out))
    root = _link(rows, table, recipe, name, out)
    split_files.write(table, files, {number: TEST if number in chosen else TRAIN for number in rows.images})
    shown: dict[str, set[str]] = {TRAIN: set(), TEST: set()}
    for number, digests in rows.images.items():
        shown[TEST if number in chosen else TRAIN] |= {cluster[digest] or digest for digest in digests}
    return Split(
        files=files,
        rows={TRAIN: len(rows.images) - len(chosen), TEST: len(chosen)},
        pictures={part: len(shown_digests) for part, shown_digests in shown.items()},
        plain=len(shown[TRAIN] & shown[TEST]),
        golds={TRAIN: len(rows.golds - chosen), TEST: len(rows.golds & chosen)},
        left_out=dict(left_out.most_common()),
        root=root,
        settings=_settings(recipe, name),
        unused=[key for key in ("limit", "part") if key in recipe.data[name].model_dump(exclude_defaults=True)],
    )


def _settings(recipe: Recipe, name: str) -> list[str]:
    """How the rows are read, where that is not by default, as lines of TOML."""
    source = recipe.data[name]
    values = source.model_dump(exclude_defaults=True, exclude={*_OF_THE_WHOLE, "columns"})
    values |= {key: recipe.whole_name(values[key]) for key in ("format", "answer_type") if values.get(key)}
    lines = [_setting(key, value) for key, value in values.items()]
    columns = source.columns.model_dump(exclude_defaults=True)
    pairs = (_setting(key, value) for key, value in columns.items())
    return [*lines, f"columns = {{ {', '.join(pairs)} }}"] if columns else lines


def _setting(key: str, value: Any) -> str:
    return tomli_w.dumps({key: value}).strip()


def _read(recipe: Recipe, name: str, table: SourceTable) -> _Rows:
    rows = _Rows()
    for row, items in reader.read_rows(recipe, name, table):
        samples = [item for item in items if isinstance(item, Sample)]
        if not samples or not isinstance(row, SourceRow):
            nothing = BadRow(source=table.label, row=row.row if isinstance(row, BadRow) else row.number, **_EMPTY)
            rows.left_out.append(next((item for item in items if isinstance(item, BadRow)), nothing))
            continue
        refs = {ref.sha256: ref for sample in samples for ref in sample.images}
        rows.refs |= refs
        rows.images[row.number] = tuple(refs)
        if any(sample.answers for sample in samples):
            rows.golds.add(row.number)
        rows.by_links = rows.by_links or _has_links(row, recipe.data[name], table.root)
        asked = b"".join(sorted(question_duplicates.key(sample) for sample in samples))
        rows.asked[row.number] = hashlib.sha256(asked).hexdigest()
    return rows


def _has_links(row: SourceRow, source: DataSource, root: Path) -> bool:
    values = [cell.value for cell in formats.parse(row.values, source).images]
    named = [value.get("path") if isinstance(value, dict) else value for value in values]
    names = [name for each in named for name in (each if isinstance(each, tuple) else (each,))]
    paths = [root / name for name in names if isinstance(name, str) and not is_base64(name)]
    return any(os.path.realpath(path) != os.path.normpath(path) for path in paths)


def _clusters(rows: _Rows, max_pixels: int) -> dict[str, str]:
    """For each image the smallest digest of those that show the same; empty for an image of one colour."""
    digests = sorted(rows.refs)
    hashes, clusters = image_match.cluster_refs([rows.refs[digest] for digest in digests], max_pixels=max_pixels)
    return {
        digest: "" if image.one_colour else digests[first]
        for digest, image, first in zip(digests, hashes, clusters, strict=True)
    }


def _groups(rows: _Rows, cluster: Mapping[str, str]) -> list[tuple[str, list[int]]]:
    """Rows that must stay together, under a name made from their content."""
    images = DisjointSets()
    first: dict[int, str] = {}
    for number, digests in rows.images.items():
        # An image of one colour keeps no rows together; their question does.
        keys = sorted({cluster[digest] for digest in digests} - {""}) or [rows.asked[number]]
        first[number] = keys[0]
        images.join(keys)
    groups: dict[str, list[int]] = {}
    for number, key in first.items():
        groups.setdefault(images.smallest(key), []).append(number)
    return list(groups.items())


def _chosen(groups: Iterable[tuple[str, list[int]]], test: float, seed: int, label: str, images: int) -> set[int]:
    """The rows of the test set: groups in a random order, as long as they fit into its share."""
    ordered = sorted(groups, key=lambda group: hashlib.sha256(f"{seed} {group[0]}".encode()).digest())
    total = sum(len(numbers) for _, numbers in ordered)
    chosen: set[int] = set()
    for _, numbers in ordered:
        if len(chosen) + len(numbers) <= round(test * total):
            chosen.update(numbers)
    if len(chosen) == total:
        raise DataError(
            f"{label}: --test {test:g} of {counted(total, 'row')} leaves no training row; give a smaller share"
        )
    if not chosen:
        smallest = min(len(numbers) for _, numbers in ordered)
        if len(ordered) == 1:
            cause = "show the same image" if images < 2 else f"are connected by images that they share ({images:,})"
            raise DataError(
                f"{label}: no test set can be made, because all its rows ({total:,}) {cause}; give rows about "
                "another image, or write a recipe without a test set (docs/recipe.md)"
            )
        digits = 1 - math.floor(math.log10(smallest / total))
        share = -(-smallest * 10**digits // total) / 10**digits  # rounded up: less would be refused again
        raise DataError(
            f"{label}: --test {test:g} of {counted(total, 'row')} is {counted(round(test * total), 'row')}, and the "
            f"rows of one image stay together, {smallest:,} at least. Give --test {share:g} or more, or more images"
        )
    return chosen


def _link(rows: _Rows, table: SourceTable, recipe: Recipe, name: str, out: Path) -> str:
    """The images_root of the new files: `out` when the images beside the table could be linked there."""
    named = [ref for ref in rows.refs.values() if ref.column == BYTE_RANGE or Path(ref.path) not in table.files]
    here, there = str(out.resolve()), table.root_address or str(table.root)
    if not named or here == there:
        return here
    paths = {Path(ref.path) for ref in named}
    own = recipe.data[name].images_root is None and not any(ref.column for ref in named)
    if table.root_address or rows.by_links or not own or not all(path.is_relative_to(table.root) for path in paths):
        return there
    try:
        for path in paths:
            target = out / path.relative_to(table.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                os.link(path, target)
            elif not target.samefile(path):  # it may be another image
                return there
    except OSError:  # another file system, or one without links: the images stay where they are
        return there
    return here


def column_pairs(texts: Sequence[str]) -> dict[str, str | list[str]]:
    """Role to column of --column KEY=COLUMN; an empty COLUMN means that there is none. Raises RecipeError.

    The key `image` may occur several times.
    """
    for text in texts:
        if "=" not in text:
            raise RecipeError(f"--column {text}: write KEY=COLUMN, e.g. --column image=photo")
    columns: dict[str, list[str]] = {}
    for key, _, column in (text.partition("=") for text in texts):
        columns.setdefault(key, []).append(column)
    if twice := [key for key, names in columns.items() if len(names) > 1 and key != "image"]:
        raise RecipeError(f"--column {twice[0]}: it is given twice; give one column for each key")
    return {key: names[0] if len(names) == 1 else names for key, names in columns.items()}


def source_of(
    source: str, *, name: str | None, settings: Mapping[str, Any], columns: Sequence[str]
) -> tuple[Recipe, str]:
    """The recipe that a SOURCE of the command line means, and the name of the source in it.

    A TOML file is a recipe, whose [data.NAME] is split; anything else is a table, with the settings of a data section
    and columns as KEY=COLUMN. Raises RecipeError.
    """
    from distill.recipe.loading import derived_recipe, load, shipped

    if Path(source).suffix == ".toml" or (source in shipped() and not Path(source).exists()):
        options = {"--format": settings.get("format"), "--images-root": settings.get("images_root")}
        given = [option for option, value in (options | {"--column": columns}).items() if value]
        if given:
            raise RecipeError(
                f"{', '.join(given)}: {source} is a recipe, whose [data.{name or NAME}] says it; edit that"
            )
        return load(source), name or NAME
    if name is not None:
        raise RecipeError(f"--data {name}: {source} is a table; --data names a source of a recipe")
    if source.startswith(HUB):
        raise RecipeError(f"{source}: split takes the name of the hub alone, {source.removeprefix(HUB)}, or a table")
    mapped = column_pairs(columns)
    values = {"source": source, **{key: value for key, value in settings.items() if value is not None}}
    if mapped:
        values["columns"] = mapped
    return derived_recipe(Recipe(), {"data": {NAME: values}}, "the source to split"), NAME
