"""Recipes: one TOML file read once into frozen, strict models.

Every default of the toolkit lives here and nowhere else. Loading touches the recipe file only: no data source,
model or server, so a typo is reported within a second. Paths stay as written; `Recipe.local()` resolves
one against the recipe's folder.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

import orjson
import tomli_w
from pydantic import Field, ValidationError, model_validator

from distill import redact
from distill.errors import RecipeError
from distill.local_paths import refuse_address
from distill.recipe.ablate import Ablate as Ablate
from distill.recipe.base import LocalOrHub, Name, Section, Share
from distill.recipe.eval import BASE
from distill.recipe.eval import Eval as Eval
from distill.recipe.filter import ARMS, DEFAULT_RULES
from distill.recipe.filter import Filter as Filter
from distill.recipe.filter import Rule as Rule
from distill.recipe.filter import Select as Select
from distill.recipe.stages import Lora as Lora
from distill.recipe.stages import Stage as Stage
from distill.recipe.stages import Student as Student
from distill.recipe.teachers import Generate as Generate
from distill.recipe.teachers import Sampling as Sampling
from distill.recipe.teachers import Teacher as Teacher

AnswerType = Literal["number", "year", "percent", "money", "time", "ratio", "choice", "list", "date", "text"]


class Columns(Section):
    """Which column of a source holds what; a column that is not there leaves its default."""

    image: str = "image"
    question: str = "question"
    answer: str = "answer"
    answer_type: str = "answer_type"
    domain: str = "domain"
    difficulty: str = "difficulty"


class DataSource(Section):
    """A named source of samples."""

    source: LocalOrHub
    """File (.jsonl, .json, .csv, .parquet), directory, image folder with a table, or hub name."""
    subset: str | None = None
    split: str = "train"
    format: Literal["plain", "finevision", "llava", "chartqa", "cocoqa", "scienceqa"] = "plain"
    images_root: LocalOrHub | None = None
    """Folder that image paths are relative to; default: the folder of the source."""
    columns: Columns = Columns()
    domain: str = ""
    """Domain of rows whose domain column is absent or empty."""
    answer_type: AnswerType | None = None
    limit: int | None = Field(default=None, ge=1)
    allow_outside_root: bool = False
    max_pixels: int = Field(default=50_000_000, ge=1)
    max_bad_share: Share = 0.2
    """More unusable rows than this share stop the run: a wrong images_root is not a few bad rows."""


class Recipe(Section):
    """A whole run. A command needs only the sections that it uses."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    data: Mapping[Name, DataSource] = Field(default_factory=dict)
    teachers: tuple[Teacher, ...] = Field(default=(), strict=False)
    generate: Generate = Generate()
    filter: Filter = Filter()
    student: Student | None = None
    stages: tuple[Stage, ...] = Field(default=(), strict=False)
    eval: Eval = Eval()
    ablate: Ablate = Ablate()

    _path: Path = Path("recipe.toml")

    @model_validator(mode="after")
    def _references(self) -> Self:
        for kind, names in (
            ("teachers", [teacher.name for teacher in self.teachers]),
            ("stages", [stage.name for stage in self.stages]),
        ):
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise ValueError(f"{kind} must have distinct names; repeated: {', '.join(repeated)}")
        names = [teacher.name for teacher in self.teachers]
        if self.filter.judge.teacher is not None and self.filter.judge.teacher not in names:
            raise ValueError(_unknown("filter.judge.teacher", self.filter.judge.teacher, names))
        for key, licences, known in (
            ("sources", self.filter.card.sources, list(self.data)),
            ("teachers", self.filter.card.teachers, names),
        ):
            for name in licences:
                if name not in known:
                    raise ValueError(_unknown(f"filter.card.{key}", name, known))
        asked: list[str] = []
        for teacher in self.teachers:
            if teacher.after is not None and teacher.after not in asked:
                raise ValueError(_unknown(f"teachers.{teacher.name}.after", teacher.after, asked))
            asked.append(teacher.name)
        seen: list[str] = []
        for stage in self.stages:
            known = ["traces", *(f"traces:{arm}" for arm in ARMS), *self.data]
            if stage.data not in known:
                raise ValueError(_unknown(f"stages.{stage.name}.data", stage.data, known))
            for source in stage.replay:
                if source not in self.data:
                    raise ValueError(_unknown(f"stages.{stage.name}.replay", source, list(self.data)))
            for teacher_name in stage.teachers:
                if teacher_name not in names:
                    raise ValueError(_unknown(f"stages.{stage.name}.teachers", teacher_name, names))
            if stage.distill and self.teachers and not any(teacher.logprobs for teacher in self.teachers):
                raise ValueError(
                    f"stages.{stage.name}.distill learns the distributions that teachers store; set logprobs under "
                    "[[teachers]]"
                )
            asked_of = stage.validation.data if stage.validation is not None else None
            if asked_of is not None and asked_of not in self.data:
                raise ValueError(_unknown(f"stages.{stage.name}.validation.data", asked_of, list(self.data)))
            if stage.name == BASE:
                raise ValueError(f"stages.{BASE}: {BASE} means the student before any stage; choose another name")
            if stage.start is not None and stage.start not in seen:
                raise ValueError(_unknown(f"stages.{stage.name}.start", stage.start, seen))
            seen.append(stage.name)
        for arm, stage_name in self.eval.arms.items():
            if stage_name not in (BASE, *seen):
                raise ValueError(_unknown(f"eval.arms.{arm}", stage_name, [BASE, *seen]))
        return self

    @property
    def path(self) -> Path:
        """The file this recipe was read from."""
        return self._path

    @property
    def name(self) -> str:
        return self._path.parent.name if self._path.stem == "recipe" else self._path.stem

    def local(self, value: str) -> Path:
        """A path of the recipe, relative ones taken from the recipe's folder; it may not exist."""
        return (self._path.parent / Path(value).expanduser()).resolve()

    def local_or_hub(self, value: str) -> str:
        """A directory beside the recipe if there is one, else the value itself: a hub name."""
        local = self.local(value)
        return str(local) if local.exists() else value

    def derived(self, values: dict[str, Any], what: str) -> "Recipe":
        """The recipe of other values, such as an arm of an ablation, as if the same file held them.

        Raises RecipeError that names `what`.
        """
        return _parse(values, self._path, what)

    def to_toml(self) -> str:
        """This recipe with every default written out, local paths absolute and secrets masked.

        It serves to look up what a run was made with; a server whose address or options are masked cannot be asked.
        """
        values = redact.settings(self.model_dump(mode="json", exclude_none=True))
        for name, source in values["data"].items():
            # A column that is named must be there; one of the same name by default need not.
            source["columns"] = self.data[name].columns.model_dump(mode="json", exclude_unset=True)
            for key in ("source", "images_root"):
                if key in source:
                    source[key] = self.local_or_hub(source[key])
        for teacher in values["teachers"]:
            teacher["model"] = self.local_or_hub(teacher["model"])
        for key in ("model", "vision", "language"):
            if key in values.get("student", {}):
                values["student"][key] = self.local_or_hub(values["student"][key])
        for student in values["eval"]["students"].values():
            for key in ("model", "adapter") if "base_url" not in student else ():
                if key in student:
                    student[key] = self.local_or_hub(student[key])
        of_student = values["filter"]["student"]
        if "checkpoint" in of_student:
            of_student["checkpoint"] = self.local_or_hub(of_student["checkpoint"])
        return tomli_w.dumps(values)


def load(path_or_name: str | Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe from a TOML file or by the name of a shipped one.

    `overrides` maps dotted keys to TOML values as text (`{"filter.select.per_question": "2"}`); a value that
    is not TOML is taken as a string. List items are addressed by name or position (`stages.reason.epochs`).

    Raises RecipeError naming file, key, nearest known key and allowed values.
    """
    path = find(path_or_name)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None
    for key, text in (overrides or {}).items():
        _override(values, key, text)
    return _parse(values, path)


def _parse(values: dict[str, Any], path: Path, part: str = "") -> Recipe:
    """A recipe of values that stand for the file at `path`, or for a `part` of it that is made of them."""
    where = f"{path}: {part}" if part else f"{path}"
    redact.know_environment()
    redact.know_recipe(values)
    try:
        recipe = Recipe.model_validate_json(orjson.dumps(values), strict=True)
    except ValidationError as error:
        problems = "\n".join(f"  {line}" for line in _explain(error, values))
        raise RecipeError(f"{where}: this recipe cannot be used:\n{problems}") from None
    except TypeError as error:
        raise RecipeError(f"{where}: {error}") from None
    recipe._path = path.resolve()
    return recipe


def schema() -> dict[str, Any]:
    """The JSON schema of a recipe, for editors."""
    return Recipe.model_json_schema()


def shipped() -> dict[str, Path]:
    """The recipes that come with the toolkit, by name, wherever it is installed."""
    folder = recipes_folder()
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def recipes_folder() -> Path:
    """The folder of shipped recipes: package data in a wheel, beside the package in a checkout."""
    packaged = Path(str(files("distill") / "_recipes"))
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "recipes"


def find(path_or_name: str | Path) -> Path:
    """The file that a recipe argument means: an existing path first, then a shipped name."""
    refuse_address(path_or_name)
    path = Path(path_or_name).expanduser()
    if path.is_file():
        return path
    known = shipped()
    if str(path_or_name) in known:
        return known[str(path_or_name)]
    if path.is_dir():
        raise RecipeError(f"{path} is a directory; give a TOML file or one of: {', '.join(known)}")
    nearest = _nearest(str(path_or_name), list(known))
    hint = f"; did you mean {nearest!r}?" if nearest else ""
    raise RecipeError(
        f"no recipe at {path} and none shipped under that name{hint} (shipped: {', '.join(known) or 'none'})"
    )


def _unknown(where: str, value: str, known: list[str]) -> str:
    nearest = _nearest(value, known)
    hint = f"did you mean {nearest!r}? " if nearest else ""
    return f"{where} = {value!r} is not known; {hint}known: {', '.join(known) or 'none'}"


def _nearest(value: str, known: list[str]) -> str | None:
    """The name that was probably meant: one that is nearly equal, else the longest that `value` begins with
    (evaluate: eval), else a similar one."""
    equal = difflib.get_close_matches(value, known, n=1, cutoff=0.9)
    begun = sorted((name for name in known if value.startswith(name)), key=len, reverse=True)
    return next(iter(equal or begun or difflib.get_close_matches(value, known, n=1)), None)


def _override(values: dict[str, Any], key: str, text: str) -> None:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    put(values, key, value)


def put(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key in a recipe's values; list items go by name or position."""
    if key.startswith("filter.rules."):  # one of the rules that hold when the recipe has none of its own
        values.setdefault("filter", {}).setdefault("rules", [rule.model_dump() for rule in DEFAULT_RULES])
    *parents, last = key.split(".")
    node: Any = values
    for part in parents:
        node = _child(node, part, key)
    if isinstance(node, list):
        raise RecipeError(f"--set {key}: {parents[-1]} is a list; name one of its items, then a key")
    node[last] = value


def _child(node: Any, part: str, key: str) -> Any:
    if isinstance(node, list):
        for position, item in enumerate(node):
            if part in (item.get("name"), str(position)):
                return item
        names = [str(item.get("name", position)) for position, item in enumerate(node)]
        raise RecipeError(f"--set {_unknown(key, part, names)}")
    if not isinstance(node.setdefault(part, {}), dict | list):
        raise RecipeError(f"--set {key}: {part} holds a value, not a section")
    return node[part]


def _explain(error: ValidationError, values: Any) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        where, model = _locate(problem["loc"], values)
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            known = sorted(model.model_fields) if model else []
            nearest = _nearest(str(problem["loc"][-1]), known)
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            yield f"{where}: unknown key{hint} (known: {', '.join(known)})"
        elif problem["type"] == "missing":
            yield f"{where}: required key is missing"
        elif problem["type"] == "value_error":
            yield f"{where}: {message}" if where else message
        else:
            yield f"{where} = {problem['input']!r}: {message}"


def _locate(location: tuple[int | str, ...], values: Any) -> tuple[str, type[Section] | None]:
    """The dotted name of a place in the recipe (list items by name) and the section model it lies in."""
    parts: list[str] = []
    model: Any = Recipe
    for item in location:
        name: str | None = None
        if isinstance(item, int) and isinstance(values, list) and item < len(values):
            values = values[item]
            name = str(values.get("name", item)) if isinstance(values, dict) else str(item)
        else:
            values = values.get(item) if isinstance(values, dict) else None
        if item != location[-1] or isinstance(values, dict):
            model = _section_of(model, item)
        parts.append(name or str(item))
    return ".".join(parts), model


def _section_of(model: Any, item: int | str) -> Any:
    """The section model found under `item` of `model`, walking through mappings and tuples."""
    if isinstance(model, type) and issubclass(model, Section):
        field = model.model_fields.get(str(item))
        return _unwrap(field.annotation) if field else model
    return model


def _unwrap(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _unwrap(argument)
        if found is not None:
            return found
    return None
