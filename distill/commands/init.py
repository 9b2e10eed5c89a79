"""`distill init`: a first recipe for the user's images and the card of this machine.

Guesses the content of the columns and prints the guesses, splits the rows by image, and fills in the shipped recipe
`own-images`. Reads no row by itself: that is for the readers of distill/data.
"""

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distill.artifacts.files import write_text
from distill.artifacts.journal import read_jsonl, write_jsonl
from distill.artifacts.layout import RECIPE
from distill.commands import split
from distill.commands.init_sources import HUB, SCHEMA, FirstSettings, packed_hint, read_source
from distill.data import reader
from distill.data.tables.table_kinds import KINDS
from distill.errors import DataError, RecipeError, StorageError
from distill.local_paths import from_home
from distill.planning import first_models
from distill.recipe.loading import derived_recipe, find, load, schema
from distill.recipe.messages import unknown_value
from distill.recipe.recipe import Recipe
from distill.recipe.recipe_text import edit_recipe_text
from distill.recipe.sections.data import Columns
from distill.types import Sample
from teacher.checks import require_url

TEMPLATE = "own-images"
_EXAMPLES = 2
_WRITTEN = (RECIPE, SCHEMA, split.LEFT_OUT, *(f"{part}{suffix}" for part in ("train", "test") for suffix in KINDS))


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
    with TemporaryDirectory() as folder, _named_as_given(folder, source):
        guessed, values, root = read_source(source, local, Path(folder), settings, lines)
        made = Path(values["source"]).parent == Path(folder)  # it is gone afterwards
        recipe = derived_recipe(Recipe(), {"data": {split.NAME: values}}, f"the data of {source}")
        parts = Path(folder) / "parts"
        try:
            divided = split.split_source(recipe, parts, test=settings.test, seed=settings.seed)
        except DataError as error:  # the rows of a folder of images lie in a file that is gone afterwards
            message = str(error).replace(values["source"], source) if made else str(error)
            raise DataError(f"{message}{packed_hint(local) if 'missing_image' in message else ''}") from None
        if made and (parts / split.LEFT_OUT).is_file():
            bad_rows = [{**row, "source": str(root or source)} for row in read_jsonl(parts / split.LEFT_OUT)]
            write_jsonl(parts / split.LEFT_OUT, bad_rows)
        has_gold, column = divided.golds[split.TEST] > 0, guessed.columns.get("answer")
        lines += [f"no test row has a right answer in the column {column!r}"] if column and not has_gold else []
        for name, file in zip((split.NAME, split.TEST), divided.files.values(), strict=True):
            images_root = None if source.startswith(HUB) else str(guessed.images_root)
            here = {"columns": None, **values, "source": file.name, "images_root": images_root}
            models |= {f"data.{name}.{key}": value for key, value in here.items() if key not in ("subset", "split")}
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
    lines = [_as_given(line, folder, source) for line in lines]
    return "\n".join([*lines, "", *lines_of_models, "", *examples, "", *_next(out, written, has_gold)])


@contextmanager
def _named_as_given(folder: str, source: str) -> Iterator[None]:
    """Errors name the data that the user gave, not a file that was made of it and is gone afterwards."""
    try:
        yield
    except (DataError, RecipeError) as error:
        kind = DataError if isinstance(error, DataError) else RecipeError
        if (message := _as_given(str(error), folder, source)) == str(error):
            raise
        raise kind(message) from None


def _as_given(text: str, folder: str, source: str) -> str:
    """A text with SOURCE in the place of files in the folder of temporary files."""
    return re.sub(
        rf"({re.escape(str(Path(folder).resolve()))}|{re.escape(folder)})(/[\w.-]+)*", lambda _: source, text
    )


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


def _models(settings: FirstSettings) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Recipe values of teacher and student, comments that replace the template's, and the reasons for the choice."""
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
