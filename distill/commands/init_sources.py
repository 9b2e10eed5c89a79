"""The data of `distill init`: the table that is read, what its columns most likely hold, images without a table."""

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.layout import RECIPE
from distill.commands import split
from distill.data import guessed_choices, guessed_columns, image_search, image_tables, reader, sources, table_search
from distill.data.guessed_columns import ROLES, GuessedSource
from distill.data.images.image_suffixes import OTHER_IMAGES, image_suffixes
from distill.data.sources import NoSplitError, SourceTable
from distill.data.tables.table_kinds import KINDS, SHARDS, suffix_of
from distill.data.trees.found_rows import UnclearRowsError, require_no_unread_choices, write_found
from distill.data.trees.tree_files import SUFFIXES
from distill.errors import DataError, RecipeError
from distill.recipe.loading import derived_recipe
from distill.recipe.recipe import Recipe
from distill.types import BadRow
from distill.word_tables import counted

SCHEMA = "recipe.schema.json"
HUB = split.HUB
QUESTIONS = (
    "What does this image show? Name the main things and say where they are.",
    "How many things of each kind can you count in this image?",
    "What most likely happened just before this moment, and what in the image tells you?",
)
"""Asked about every image of a folder that comes without questions."""
MOST_IMAGES = 5_000
_SURROGATES = re.compile(r"[\ud800-\udfff]")
"""What Python writes for bytes of a file name that are no UTF-8."""
_SHOWN = 5
_OTHER_TABLES = frozenset(
    {".txt", ".md", ".xml", ".xlsx", ".xls", ".ods", ".db", ".sqlite", ".sqlite3", ".html", ".htm", ".gift", ".apkg"}
    | {".colpkg", ".mbz", ".yaml", ".yml", ".doc", ".docx", ".odt", ".rtf", ".tex"}
)
"""Files that may hold questions, and are not read."""
_NOTES = re.compile(r"readme|licen[cs]e|notice|copying|changelog|citation", re.IGNORECASE)
_ARCHIVES = frozenset({".zip", ".gz", ".tgz", ".7z", ".rar", ".bz2", ".xz"})

AskColumn = Callable[[str, Sequence[str]], str]
"""Asks a person for the column of a role, among these columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSettings:
    """Options of `distill init`. A missing option is guessed."""

    columns: Mapping[str, str | Sequence[str]]
    questions: Sequence[str]
    most_images: int | None
    """How many images of a folder without a table are used; 0: all, None: at most MOST_IMAGES. Not for a table."""
    test: float | None
    seed: int
    teacher: str | None
    student: str | None
    gpu: str | None
    memory_gib: float | None
    force: bool
    ask: AskColumn | None


def read_source(
    source: str, local: Path, folder: Path, settings: FirstSettings, lines: list[str]
) -> tuple[GuessedSource, dict[str, Any], Path | None]:
    """What the columns of the user's table hold, its data section, and the folder of images without a table.

    Data that is no table is made into one in `folder` if questions, images and answers are found in it.
    """

    def read_given(settings: FirstSettings) -> tuple[GuessedSource, dict[str, Any], Path | None]:
        table, root = find_table(source, local, folder, settings, lines)
        return *read_table(table, root, local, folder, settings, lines), root

    given_lines = list(lines)
    read: tuple[GuessedSource, dict[str, Any], Path | None] | None = None
    refused: DataError | RecipeError | None = None
    try:
        read = read_given(replace(settings, ask=None))
        if source.startswith(HUB) or read[2] is not None or _is_whole(read, settings):
            return read
    except (DataError, RecipeError) as error:
        refused = error
    said, lines[:] = list(lines), given_lines
    unclear = ""
    if not settings.questions and settings.most_images is None and local.exists():
        try:
            if found := _read_found(local.resolve(), folder, settings, lines):
                return *found, None
        except UnclearRowsError as error:
            unclear = "" if str(error) in str(refused) else f". As records it cannot be read, too: {error}"
    lines[:] = said
    if read is not None:
        return read
    if settings.ask is not None:
        lines[:] = given_lines
        return read_given(settings)
    assert refused is not None  # nothing was read
    raise type(refused)(f"{refused}{unclear}") from None


def _is_whole(read: tuple[GuessedSource, dict[str, Any], Path | None], settings: FirstSettings) -> bool:
    """Whether the first rows of a table can be read, and it has right answers, or need have none."""
    answered = read[0].columns.get("answer") or read[0].format not in ("plain", "scienceqa")
    return bool(answered or "answer" in settings.columns) and not reader.first_fault(_recipe(read[1]), split.NAME)


def _read_found(
    local: Path, folder: Path, settings: FirstSettings, lines: list[str]
) -> tuple[GuessedSource, dict[str, Any]] | None:
    """As `read_source`, for records that are no table; None where no question, image or answer is found."""
    out = folder / "found.jsonl"
    below = guessed_columns.files_below(local, SUFFIXES) if local.is_dir() else [local]
    files = [file for file in below if not _NOTES.match(file.name) and _own_work(file, local) is None]
    said = write_found(local, files, out)
    if said is None:
        return None
    near = local if local.is_dir() else local.parent
    table_lines: list[str] = [said]
    try:
        asked = replace(settings, ask=None)
        guessed, values = read_table({"source": str(out)}, None, near, folder, asked, table_lines)
        if fault := reader.first_fault(_recipe(values), split.NAME):
            raise DataError(f"no row can be used ({fault})")
    except (DataError, RecipeError) as error:
        raise UnclearRowsError(str(error).replace(f"{out}: ", "")) from None
    lines += [line.replace(str(out), str(local)) for line in table_lines]
    answer = guessed.columns.get("answer")
    if guessed.format == "plain" and isinstance(answer, str):
        require_no_unread_choices(out, answer)
    answered = answer or guessed.format not in ("plain", "scienceqa")
    return (guessed, values) if answered or "answer" in settings.columns else None


def find_table(
    source: str, local: Path, folder: Path, settings: FirstSettings, lines: list[str]
) -> tuple[dict[str, Any], Path | None]:
    """The settings of the table to read, and the folder of its images where that is known."""
    if (given := _given_table(source, local, settings)) is not None:
        if settings.questions:
            raise RecipeError("--question is for a folder of images; a table has questions of its own")
        if settings.most_images is not None:
            raise RecipeError(
                f"--images {settings.most_images} is for a folder of images without a table; {source} is or holds a "
                "table, and all its rows are used. Leave --images out, or give a table with fewer rows"
            )
        table = Path(given["source"])
        joined = folder / "questions.jsonl"
        if local.is_dir() and table.is_file() and (said := table_search.write_joined(table, local.resolve(), joined)):
            lines.append(said)
            return {"source": str(joined)}, None
        return given, None
    file = folder / "questions.jsonl"
    asked = settings.questions or QUESTIONS
    closed: list[str] = []
    files = guessed_columns.files_below(local, image_suffixes(), lambda error: closed.append(str(error.filename)))
    if closed:
        lines.append(f"left out: {counted(len(closed), 'folder')} that may not be read, such as {min(closed)}")
    others = Counter(file.suffix.lower() for file in guessed_columns.files_below(local, OTHER_IMAGES))
    if others:
        kinds = ", ".join(f"{suffix}: {count:,}" for suffix, count in sorted(others.items()))
        lines.append(f"left out: images of kinds that are not read ({kinds}); save them as JPEG or PNG")
    if not files:
        if others:
            raise DataError(f"{local}: {lines[-1].removeprefix('left out: ')}")
        raise DataError(
            f"{local}: this folder has no image and no table of questions; images end in "
            f"{', '.join(sorted(image_suffixes()))}"
        )
    if not settings.questions:
        _refuse_unread(local)
    names = [str(path.relative_to(local)) for path in files]
    usable = [name for name in names if not _SURROGATES.search(name)]
    if len(usable) < len(names):
        lines.append(
            f"left out: {counted(len(names) - len(usable), 'image')} with bytes that are no text in the name, "
            f"such as {next(filter(_SURROGATES.search, names))!r}; rename them"
        )
    taken = usable
    most_images = MOST_IMAGES if settings.most_images is None else settings.most_images
    if 0 < most_images < len(usable):
        taken = sorted(random.Random(settings.seed).sample(usable, most_images))
        lines.append(
            f"uses {len(taken):,} of {counted(len(usable), 'image')}, chosen at random (--images 0 uses all)"
        )
    rows = ({"image": name, "question": text} for name in taken for text in asked)
    file.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    whose = "each gets these questions" if settings.questions else "the folder has no questions, so each gets these"
    lines.append(f"{local}: {counted(len(taken), 'image')}; {whose}:")
    lines += [f"  {text}" for text in asked]
    if not settings.questions:
        lines.append("  (--question TEXT sets yours; a CSV or JSONL file with image, question and answer is better)")
    return {"source": str(file)}, local.resolve()


def _refuse_unread(folder: Path) -> None:
    """Raise DataError where files below a folder of images may hold their questions, and none was found in them."""
    texts = [file for file in guessed_columns.files_below(folder, _OTHER_TABLES) if not _NOTES.match(file.name)]
    if unread := guessed_columns.files_below(folder, table_search.SUFFIXES) + texts:
        raise DataError(
            f"{folder}: {counted(len(unread), 'file')} such as {unread[0].relative_to(folder)} may be about the "
            "images, and no column of questions was found in them. Give a table as SOURCE with --column "
            "question=NAME, or --question TEXT to ask about the images alone"
        )


def packed_hint(given: Path) -> str:
    """What to do where images are missing and an archive lies beside the table; nothing without an archive."""
    folder = given if given.is_dir() else given.parent
    packed = [file for file in guessed_columns.files_below(folder, _ARCHIVES) if suffix_of(file) not in KINDS]
    return f"; {packed[0].relative_to(folder)} may hold the images: unpack it" if packed else ""


def _given_table(source: str, local: Path, settings: FirstSettings) -> dict[str, Any] | None:
    """The settings of a table of the hub, of a file, or in a folder; None for a folder whose images are used."""
    if source.startswith(HUB):
        name, _, subset = source.removeprefix(HUB).partition(":")
        return {"source": name, **({"subset": subset} if subset else {})}
    if local.is_dir():
        below = guessed_columns.files_below
        holds_table = not settings.questions and (
            any(KINDS.get(suffix_of(file), SHARDS) != SHARDS for file in sources.files_beside(local))
            or bool(below(local, {".parquet", ".arrow"}))
            or bool(below(local, {".tar"}) and not below(local, image_suffixes()))
        )
        if not holds_table or _is_unclear(local):
            found = None if settings.questions else table_search.find(local.resolve())
            if found or not holds_table:
                return {"source": found} if found else None
    return {"source": str(local.resolve())}


def _is_unclear(folder: Path) -> bool:
    """Whether a folder holds tables, and the reader of folders cannot choose one."""
    try:
        table = sources.locate(_recipe({"source": str(folder.resolve())}), split.NAME)
        return table.kind == "parquet" and len({frozenset(pq.read_schema(file).names) for file in table.files}) > 1
    except NoSplitError:
        return False
    except (DataError, pa.ArrowException, OSError):
        return True


def read_table(
    values: dict[str, Any],
    root: Path | None,
    given: Path,
    folder: Path,
    settings: FirstSettings,
    lines: list[str],
) -> tuple[GuessedSource, dict[str, Any]]:
    """The whole data section of a table within the `given` folder or file, with what was guessed said in `lines`."""
    try:
        table, values = _located(values, lines)
    except DataError as error:
        hint = "; --question TEXT asks about the images of a folder, without its tables"
        message = str(error).removeprefix(f"[data.{split.NAME}] source = {values['source']!r}: ")
        message = message.replace("; paths are relative to the recipe", "")  # SOURCE is not in a recipe
        local = _recipe(values).local(values["source"])
        if not Path(values["source"]).is_absolute():  # it was given as hub:NAME
            message = "; ".join(each for each in message.split("; ") if not each.startswith(f"{local} does not"))
        raise DataError(f"{message}{hint if Path(values['source']).is_dir() else ''}") from None
    _refuse_own_work(table, Path(values["source"]))
    lines += sources.describe_other_splits(table, Path(values["source"]))
    if root is not None:
        table = sources.SourceTable(label=table.label, kind=table.kind, files=table.files, root=root)
    cells = [] if settings.columns else guessed_columns.cells_for_names(table)
    if cells:
        raise DataError(
            f"{table.label}: the first line looks like a row, not like column names: {', '.join(map(repr, cells))}. "
            "It would be lost as a row: put a line such as image,question,answer above it; if the line has column "
            "names, give --column image=NAME"
        )
    table, guessed = _guess(table, given, folder / "questions.jsonl", settings, lines)
    answer = guessed.columns.get("answer")
    if guessed.format == "scienceqa" and isinstance(answer, str) and not table.hub and table.kind != SHARDS:
        table, notes = guessed_choices.with_letters(table, answer, folder / "answers.jsonl")
        lines += notes
    values = values if table.files[0].parent != folder else {"source": str(table.files[0])}
    if guessed.images_root == folder.resolve():  # the table was made here, and its rows hold their images
        guessed = replace(guessed, images_root=(given if given.is_dir() else given.parent).resolve())
    if not guessed.names:
        first = next(iter(sources.rows(table)), None)
        raise DataError(
            f"{table.label} holds no rows"
            + (f" that can be read: {first.detail}" if isinstance(first, BadRow) else "")
        )
    columns = dict(guessed.columns)
    if guessed.format in ("plain", "scienceqa"):
        for role in ("image", "question"):
            if role not in columns:
                columns[role] = _asked_column(role, guessed, settings, table.label)
    else:
        columns = {role: name for role, name in columns.items() if role == "image"}
    columns |= {role: name for role, name in settings.columns.items() if role not in ROLES}
    values = {**values, "format": guessed.format, "allow_outside_root": guessed.outside}
    if columns:
        values["columns"] = columns
    if not table.hub and table.kind != SHARDS:
        values["images_root"] = str(guessed.images_root)
    if root is None:
        named = [", ".join(f"{role} = {name!r}" for role, name in columns.items())] if columns else []
        read_as = "; ".join([guessed.format, *named])
        lines.append(f"{table.label}: columns {', '.join(map(repr, guessed.names))}")
        lines += guessed_columns.unread_tables(table, Path(values["source"]))
        lines.append(f"guessed: format {read_as} (--column image=NAME changes one)")
        if not columns.get("answer") and guessed.format in ("plain", "scienceqa"):
            columns_left = " or ".join(map(repr, guessed.rest[:_SHOWN]))
            hint = f"; if {columns_left} holds them, give --column answer=NAME" if columns_left else ""
            lines.append(f"guessed: no column of right answers, so traces are kept by their agreement alone{hint}")
        lines += guessed_columns.left_out(table, guessed)
        if not table.hub:
            lines.append(f"images: in {guessed.images_root}")
    if guessed.outside:
        lines.append("images: some paths or links lead out of that folder; allow_outside_root = true reads them")
    return replace(guessed, columns=columns), values


def _guess(
    table: SourceTable, given: Path, file: Path, settings: FirstSettings, lines: list[str]
) -> tuple[SourceTable, GuessedSource]:
    """The guess for a table. Rows whose images had to be searched are in `file`, which is then the table."""
    near = given.resolve() if given.is_dir() else None
    guessed = guessed_columns.guess(table, settings.columns, near)
    if near and len(guessed.roots) != 1:
        how = None
        if guessed.image_columns:
            how = image_search.write_found(table, guessed.image_columns, near, file)
        elif "image" not in guessed.columns:
            how = image_tables.write_joined(table, near, file)
        if how:
            lines.append(how)
            table = SourceTable(label=table.label, kind="jsonl", files=(file,), root=near)
            guessed = guessed_columns.guess(table, settings.columns)
    if len(guessed.roots) > 1:
        raise DataError(
            f"{table.label}: several folders have images of the same names "
            f"({', '.join(map(str, guessed.roots[:_SHOWN]))}); write the folder into the cells of the table, or move "
            "the other folders away"
        )
    return table, guessed


def _located(values: dict[str, Any], lines: list[str]) -> tuple[SourceTable, dict[str, Any]]:
    """The table of a data section; of another split where there is no train. Raises DataError."""
    try:
        return sources.locate(_recipe(values), split.NAME), values
    except NoSplitError as error:
        chosen = next((name for name in table_search.SPLITS if name in error.splits), None)
        if chosen is None:
            raise
        lines.append(f"split: {chosen}; the data has no split train (splits: {', '.join(error.splits)})")
        values = {**values, "split": chosen}
        return sources.locate(_recipe(values), split.NAME), values


def _recipe(values: Mapping[str, Any]) -> Recipe:
    return derived_recipe(Recipe(), {"data": {split.NAME: values}}, "the data")


def _refuse_own_work(table: sources.SourceTable, source: Path) -> None:
    """Raise DataError where a table found in a folder is what an earlier init or a run wrote: it has not all rows."""
    for folder in (_own_work(file, source) for file in table.files) if source.is_dir() else ():
        if folder is not None:
            raise DataError(
                f"{source}: the table that would be read, {table.files[0]}, was written by an earlier `distill init` "
                f"or by a run. Give your table itself as SOURCE, move {folder} elsewhere, or give --question"
            )


def _own_work(file: Path, source: Path) -> Path | None:
    """The folder of an earlier init or a run that a file below a folder lies in."""
    below = [folder for folder in file.parents if folder.is_relative_to(source)]
    return next(
        (
            folder
            for folder in below
            if (folder / SCHEMA).is_file() or ((folder / RECIPE).is_file() and (folder / "generate").is_dir())
        ),
        None,
    )


def _asked_column(role: str, guessed: GuessedSource, settings: FirstSettings, label: str) -> str:
    if settings.ask is not None:
        return settings.ask(role, guessed.names)
    raise RecipeError(
        f"{label}: which column holds the {role}? None looks like it among {', '.join(map(repr, guessed.names))}; "
        f"give it with --column {role}=NAME (--question TEXT asks about the images of a folder, without its table)"
    )
