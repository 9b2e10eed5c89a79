"""`distill init`: a first recipe for the user's images and the card of this machine.

Guesses what the data holds and says what it guessed, splits it by image, and fills in the shipped recipe
`own-images`. Reads no row by itself: that is for the readers of distill/data.
"""

import json
import os
import random
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from distill.artifacts.files import write_text
from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.commands import split
from distill.data import guessed_columns, reader, sources
from distill.data.guessed_columns import ROLES, GuessedSource
from distill.data.images.image_suffixes import OTHER_IMAGES, image_suffixes
from distill.data.tables.table_kinds import KINDS, SHARDS, suffix_of
from distill.errors import DataError, RecipeError, StorageError
from distill.local_paths import from_home
from distill.planning import first_models
from distill.recipe.loading import derived_recipe, find, load, schema
from distill.recipe.messages import unknown_value
from distill.recipe.recipe import Recipe
from distill.recipe.recipe_text import edit_recipe_text
from distill.recipe.sections.data import Columns
from distill.types import BadRow, Sample
from teacher.checks import require_url

RECIPE, SCHEMA, TEMPLATE = "recipe.toml", "recipe.schema.json", "own-images"
HUB = split.HUB
QUESTIONS = (
    "What does this image show? Name the main things and say where they are.",
    "How many things of each kind can you count in this image?",
    "What most likely happened just before this moment, and what in the image tells you?",
)
"""Asked about every image of a folder that comes without questions."""
MOST_IMAGES = 5_000
_EXAMPLES = 2
_SURROGATES = re.compile(r"[\ud800-\udfff]")
"""What Python writes for bytes of a file name that are no UTF-8."""
_SHOWN = 5
_WRITTEN = (RECIPE, SCHEMA, split.LEFT_OUT, *(f"{part}{suffix}" for part in ("train", "test") for suffix in KINDS))

AskColumn = Callable[[str, Sequence[str]], str]
"""Asks a person for the column of a role, among these columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSettings:
    """Options of `distill init`. A missing option is guessed."""

    columns: Mapping[str, str]
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


def init_recipe(source: str, out: Path, settings: FirstSettings) -> str:
    """Write recipe, schema, training and test rows to `out`; what was guessed and chosen, as text.

    Nothing is written before the data could be read and split and the recipe is valid. Raises DataError, RecipeError,
    StorageError.
    """
    if not source.strip():  # as an unset variable of a shell gives it
        raise RecipeError("the SOURCE is empty; give a folder of images, a table, or hub:OWNER/NAME")
    local = from_home(source)
    unknown = [name for name in settings.columns if name not in Columns.model_fields]
    if unknown:
        raise RecipeError(unknown_value("--column", unknown[0], list(Columns.model_fields)))
    if not all(text.strip() for text in settings.questions):
        raise RecipeError("--question: the question has no visible character")
    with _plain_errors(out):
        if out.exists() and not out.is_dir():
            raise DataError(f"{out}: --out is a file; give a folder")
        _require_free(out, local, force=settings.force)
    lines: list[str] = []
    models, comments, lines_of_models = _models(settings)
    with TemporaryDirectory() as folder:
        table, root = _table(source, local, Path(folder), settings, lines)
        guessed, values = _guessed(table, root, settings, lines)
        recipe = derived_recipe(Recipe(), {"data": {split.NAME: values}}, f"the data of {source}")
        parts = Path(folder) / "parts"
        try:
            divided = split.split_source(recipe, parts, test=settings.test, seed=settings.seed)
        except DataError as error:  # the rows of a folder of images lie in a file that is gone afterwards
            raise DataError(str(error).replace(str(Path(folder) / "questions.jsonl"), source)) from None
        if root is not None and (parts / split.LEFT_OUT).is_file():  # of a file that is gone afterwards
            bad_rows = [{**row, "source": str(root)} for row in read_jsonl(parts / split.LEFT_OUT)]
            write_jsonl(parts / split.LEFT_OUT, bad_rows)
        has_gold, column = divided.golds[split.TEST] > 0, guessed.columns.get("answer")
        lines += [f"no test row has a right answer in the column {column!r}"] if column and not has_gold else []
        for name, file in zip((split.NAME, split.TEST), divided.files.values(), strict=True):
            images_root = None if source.startswith(HUB) else str(guessed.images_root)
            here = {"columns": None, **values, "source": file.name, "images_root": images_root}
            models |= {f"data.{name}.{key}": value for key, value in here.items() if key != "subset"}
        unused = {"teachers.server", "teachers.server.arguments"} if models.get("teachers.base_url") else set()
        unused |= set() if has_gold else {"data.test", "eval"}
        if has_gold:
            comments[f"data.{split.NAME}.columns"] = "what each column of the table holds"
        body = find(TEMPLATE).read_text(encoding="utf-8").partition("\nseed")[2]
        text = edit_recipe_text(f"seed{body}", models, unused, comments)
        write_text(parts / SCHEMA, json.dumps(schema(), indent=1))
        write_text(parts / RECIPE, _header(source, lines_of_models) + text)
        try:
            written = load(parts / RECIPE)
        except RecipeError as error:
            raise RecipeError(str(error).replace(str(parts / RECIPE), "the recipe, which was not written")) from None
        examples = _examples(written)
        _place(parts, out, force=settings.force)
    lines += (
        str(divided).replace(f"{parts}{os.sep}", f"{out}{os.sep}").partition("no image is in both")[0].splitlines()
    )
    return "\n".join([*lines, "", *lines_of_models, "", *examples, "", *_next(out, written, has_gold)])


@contextmanager
def _plain_errors(out: Path) -> Iterator[None]:
    """Turn a path that cannot be a folder, or cannot be written, into one plain message."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"{out}: cannot write there: {reason}; give another folder with --out") from error


def _place(parts: Path, out: Path, *, force: bool) -> None:
    """Move the finished files to `out`. Files of an earlier init go when all new ones are on its disk."""
    with _plain_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".init-", dir=out) as near:
            for file in parts.iterdir():
                shutil.move(file, Path(near, file.name))
            for name in _WRITTEN if force else ():
                (out / name).unlink(missing_ok=True)
            for file in Path(near).iterdir():
                file.replace(out / file.name)


def _require_free(out: Path, source: Path, *, force: bool) -> None:
    present = [out / name for name in _WRITTEN if (out / name).exists()]
    if source.is_file() and any(path.samefile(source) for path in present):
        raise DataError(f"{source}: this file would be overwritten; give another --out")
    if present and not force:
        names = ", ".join(path.name for path in present)
        raise DataError(f"{out}: {names} already there; nothing was written. Give another --out, or --force")


def _table(
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
        return given, None
    file = folder / "questions.jsonl"
    asked = settings.questions or QUESTIONS
    closed: list[str] = []
    files = guessed_columns.files_below(local, image_suffixes(), lambda error: closed.append(str(error.filename)))
    if closed:
        lines.append(f"left out: {len(closed):,} folders that may not be read, such as {min(closed)}")
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
    names = [str(path.relative_to(local)) for path in files]
    usable = [name for name in names if not _SURROGATES.search(name)]
    if len(usable) < len(names):
        lines.append(
            f"left out: {len(names) - len(usable):,} images whose names hold bytes that are no text, "
            f"such as {next(filter(_SURROGATES.search, names))!r}; rename them"
        )
    taken = usable
    most_images = MOST_IMAGES if settings.most_images is None else settings.most_images
    if 0 < most_images < len(usable):
        taken = sorted(random.Random(settings.seed).sample(usable, most_images))
        lines.append(f"uses {len(taken):,} of {len(usable):,} images, chosen at random (--images 0 uses all)")
    rows = ({"image": name, "question": text} for name in taken for text in asked)
    file.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    whose = "each gets these questions" if settings.questions else "the folder has no questions, so each gets these"
    lines.append(f"{local}: {len(taken):,} images; {whose}:")
    lines += [f"  {text}" for text in asked]
    if not settings.questions:
        lines.append("  (--question TEXT sets yours; a CSV or JSONL file with image, question and answer is better)")
    return {"source": str(file)}, local.resolve()


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
        if not holds_table:
            return None
    return {"source": str(local.resolve())}


def _guessed(
    values: dict[str, Any], root: Path | None, settings: FirstSettings, lines: list[str]
) -> tuple[GuessedSource, dict[str, Any]]:
    """The whole data section of a table, with what was guessed said in `lines`."""
    recipe = derived_recipe(Recipe(), {"data": {split.NAME: values}}, "the data")
    try:
        table = sources.locate(recipe, split.NAME)
    except DataError as error:
        hint = "; --question TEXT asks about the images of a folder, without its tables"
        message = str(error).removeprefix(f"[data.{split.NAME}] source = {values['source']!r}: ")
        message = message.replace("; paths are relative to the recipe", "")  # SOURCE is not in a recipe
        local = recipe.local(values["source"])
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
    guessed = guessed_columns.guess(table, settings.columns)
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
    elif guessed.format != "chartqa":
        columns = {role: name for role, name in columns.items() if role == "image"}
    else:
        columns = {}
    columns |= {role: name for role, name in settings.columns.items() if role not in ROLES}
    values = {**values, "format": guessed.format, "allow_outside_root": guessed.outside}
    if columns:
        values["columns"] = columns
    if not table.hub and table.kind != SHARDS:
        values["images_root"] = str(guessed.images_root)
    if root is None:
        said = [f"{role} = {name!r}" for role, name in columns.items()]
        lines.append(f"{table.label}: columns {', '.join(map(repr, guessed.names))}")
        lines += guessed_columns.unread_tables(table, Path(values["source"]))
        lines.append(f"guessed: format {guessed.format}; {', '.join(said)} (--column image=NAME changes one)")
        if not columns.get("answer") and guessed.format in ("plain", "scienceqa"):
            rest = [name for name in guessed.names if name not in columns.values()]
            columns_left = " or ".join(map(repr, rest[:_SHOWN]))
            hint = f"; if {columns_left} holds them, give --column answer=NAME" if rest else ""
            lines.append(f"guessed: no column of right answers, so traces are kept by their agreement alone{hint}")
        lines += guessed_columns.left_out(table, guessed)
        if not table.hub:
            lines.append(f"images: in {guessed.images_root}")
    if guessed.outside:
        lines.append("images: some paths or links lead out of that folder; allow_outside_root = true reads them")
    return GuessedSource(
        format=guessed.format, columns=columns, names=guessed.names, images_root=guessed.images_root, outside=False
    ), values


def _refuse_own_work(table: sources.SourceTable, source: Path) -> None:
    """Raise DataError where a table found in a folder is what an earlier init or a run wrote: it has not all rows."""
    below = {folder for file in table.files for folder in file.parents if folder.is_relative_to(source)}
    for folder in sorted(below) if source.is_dir() else ():
        if (folder / SCHEMA).is_file() or ((folder / RECIPE).is_file() and (folder / "generate").is_dir()):
            raise DataError(
                f"{source}: the table that would be read, {table.files[0]}, was written by an earlier `distill init` "
                f"or by a run. Give your table itself as SOURCE, move {folder} elsewhere, or give --question"
            )


def _asked_column(role: str, guessed: GuessedSource, settings: FirstSettings, label: str) -> str:
    if settings.ask is not None:
        return settings.ask(role, guessed.names)
    raise RecipeError(
        f"{label}: which column holds the {role}? None looks like it among {', '.join(map(repr, guessed.names))}; "
        f"give it with --column {role}=NAME (--question TEXT asks about the images of a folder, without its table)"
    )


def _models(settings: FirstSettings) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Recipe values of teacher and student, the comments that are not those of the template, and why these."""
    for option, given in (("--teacher", settings.teacher), ("--student", settings.student)):
        if given is not None and not given.strip():
            raise RecipeError(f"{option}: the name of the model is empty")
    card, why = first_models.chosen_card(settings.gpu, settings.memory_gib)
    teacher, teacher_fits = first_models.teacher_for(card)
    student, student_fits = first_models.student_for(card)
    lines = [f"GPU: {card.name}, {card.memory_gib:.1f} GiB ({why})"]
    values: dict[str, Any] = {"teachers.model": teacher.name, "student.model": settings.student or student.name}
    comments: dict[str, str] = {}
    url, _, model = (settings.teacher or "").partition("#")
    if url.startswith(("http://", "https://")):
        if not model.strip():
            raise RecipeError(f"--teacher {settings.teacher}: write URL#MODEL, as http://127.0.0.1:8000/v1#NAME")
        require_url(url, "--teacher")
        values |= {"teachers.backend": "openai", "teachers.model": model, "teachers.base_url": url}
        comments["teachers.backend"] = "a running server answers; the run starts none"
        lines.append(f"teacher: {model}, which {url} serves")
    elif settings.teacher is not None:
        here = from_home(settings.teacher)
        values["teachers.model"] = str(here.resolve()) if here.is_dir() else settings.teacher
        lines.append(f"teacher: {settings.teacher}, as --teacher names it")
    elif teacher_fits:
        lines.append(
            f"teacher: {teacher.name}, {teacher.needs_gib:.1f} GiB of weights, on a vLLM that the run starts"
        )
    else:
        comments["teachers.model"] = "the smallest of its family; it needs more memory than the GPU has"
        lines.append(
            f"teacher: warning: the smallest, {teacher.name}, needs more memory than the GPU has; --teacher "
            "URL#MODEL uses a model on a server"
        )
    if settings.student is not None:
        here = from_home(settings.student)
        comments["student.model"] = "as --student names it"
        values["student.model"] = str(here.resolve()) if here.is_dir() else settings.student
        lines.append(f"student: {settings.student}, as --student names it; `distill plan` says whether it fits")
    else:
        fits = "" if student_fits else "warning: more than the GPU has; "
        lines.append(f"student: {student.name}, {fits}{student.needs_gib:.1f} GiB to train adapters of rank 32")
    if settings.teacher is not None:
        comments["teachers.model"] = "as --teacher names it"
    return values, comments, lines


def _header(source: str, lines: Sequence[str]) -> str:
    told = "\n".join(f"# {' '.join(line.split())}" for line in lines)  # a name may hold a line feed
    return f"#:schema ./{SCHEMA}\n# Made by `distill init` from {json.dumps(source)}.\n#\n{told}\n"


def _examples(recipe: Recipe) -> list[str]:
    samples = (item for item in reader.read(recipe, split.NAME) if isinstance(item, Sample))
    lines = ["the first rows, as the teacher gets them:"]
    for sample in islice(samples, _EXAMPLES):
        answer = f" -> {sample.answer}" if sample.answers else ""
        names = ", ".join(Path(ref.path).name for ref in sample.images) or "no image"
        lines.append(f"  [{names}] {sample.question}{answer}")
    return lines


def _next(out: Path, recipe: Recipe, has_gold: bool) -> list[str]:
    served = any(teacher.managed for teacher in recipe.teachers)
    lines = [f"wrote {out / RECIPE}; next:"]
    lines += [] if str(out) == "." else [f"  cd {shlex.quote(str(out))}"]
    if served:
        lines.append("  python3.11 -m venv ~/vllm && ~/vllm/bin/pip install vllm     # once, for the teacher")
    lines += [f"  distill check {RECIPE}", f"  distill generate {RECIPE} --limit 20"]
    if has_gold:
        return [*lines, f"  distill run {RECIPE}"]
    return [
        *lines,
        f"  distill filter {RECIPE} && distill train {RECIPE}",
        "  (accuracy needs right answers: write them into the test rows, then uncomment [data.test] and [eval])",
    ]
