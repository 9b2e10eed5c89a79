"""Reading a recipe: from a TOML file or by the name of a shipped one, with overrides of single keys.

Loading touches the recipe file only: no data source, model or server, so a typo is reported within a second.
"""

import tomllib
from collections.abc import Collection, Mapping
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from distill import redact
from distill.errors import RecipeError
from distill.local_paths import as_argument, from_home, refuse_address
from distill.recipe.messages import explain_problems, nearest_name, unknown_value, unreadable_values, unusable
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import DEFAULT_RULES
from distill.recipe.sections.rounds import with_held_out


def load(path_or_name: str | Path, overrides: Mapping[str, str] | None = None) -> Recipe:
    """Read a recipe from a TOML file or by the name of a shipped one.

    `overrides` maps dotted keys to TOML values as text (`{"filter.select.per_question": "2"}`); a value that
    is not TOML is taken as a string. List items are addressed by name or position (`stages.reason.epochs`).

    Raises RecipeError naming file, key, nearest known key and allowed values.
    """
    path = find(path_or_name)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows editors write a mark
    except ValueError as error:  # also a number of thousands of digits, and bytes that are no text
        raise RecipeError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise RecipeError(f"{path}: lists or tables are nested too deeply") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None
    if not isinstance(overrides, Mapping | None):
        raise RecipeError(f"overrides = {overrides!r:.80}: give a mapping of dotted keys to values")
    for key, text in (overrides or {}).items():
        _override(values, key, text)
    return _parse(values, path)


def given_values(recipe: Recipe, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The values that a recipe was given, as its file holds them, but for the sections `without`."""
    values: dict[str, Any] = recipe.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return {name: value for name, value in values.items() if name not in without}


def derived_recipe(recipe: Recipe, values: dict[str, Any], purpose: str) -> Recipe:
    """The recipe with other values, such as the values of an ablation arm, as if the file of `recipe` held them.

    Raises RecipeError that names `purpose`.
    """
    return _parse(values, recipe.path, purpose)


def _with_trackers(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stages that name no tracker report to the trackers of the recipe."""
    trackers, stages = values.get("report_to"), values.get("stages")
    if not trackers or not isinstance(stages, list):
        return values
    named = [{"report_to": trackers, **each} if isinstance(each, Mapping) else each for each in stages]
    return {**values, "stages": named}


def _parse(values: dict[str, Any], path: Path, part: str = "") -> Recipe:
    """The recipe of these values. Errors name the file at `path`, and the `part` that the values were made for."""
    where = f"{path}: {part}" if part else f"{path}"
    redact.know_environment()
    redact.know_recipe(values)
    if unreadable := list(unreadable_values(values)):
        raise RecipeError(unusable(where, unreadable))
    try:
        whole = with_held_out(_with_trackers(values))
        recipe = Recipe.model_validate_json(orjson.dumps(whole), strict=True)
    except ValidationError as error:
        told = unusable(where, explain_problems(error, whole, Recipe))
        if path.name == "recipe.toml" and (path.parent / "generate").is_dir():
            told += (
                "\nThis file is the copy in a run. If an earlier version wrote it, correct these keys in it to go on."
            )
        raise RecipeError(told) from None
    except TypeError as error:
        raise RecipeError(f"{where}: {error}") from None
    return recipe.read_from(path)


def schema() -> dict[str, Any]:
    """The JSON schema of a recipe, for editors."""
    return Recipe.model_json_schema(schema_generator=_Schema)


class _Schema(GenerateJsonSchema):
    """Every key keeps its description: pydantic leaves out what a section says in the same words."""

    def handle_ref_overrides(self, json_schema: JsonSchemaValue) -> JsonSchemaValue:
        return json_schema


def shipped() -> dict[str, Path]:
    """The shipped recipes, by name."""
    folder = recipes_folder()
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def recipes_folder() -> Path:
    """The folder of shipped recipes: package data in a wheel, beside the package in a checkout."""
    packaged = Path(str(files("distill") / "_recipes"))
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "recipes"


def find(path_or_name: str | Path) -> Path:
    """The file that a recipe argument means: an existing path first, then a shipped name."""
    if not isinstance(path_or_name, str | PathLike) or not str(path_or_name):
        raise RecipeError(
            f"the recipe is {path_or_name!r:.80} ({type(path_or_name).__name__}); give a TOML file or a shipped name"
        )
    refuse_address(path_or_name)
    path = from_home(path_or_name)
    try:
        if path.is_file():
            return path
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise RecipeError(f"{path}: cannot be read as a recipe: {error.strerror}; correct the path") from None
    names = shipped()
    if str(path_or_name) in names:
        return names[str(path_or_name)]
    if path.is_dir():
        inside = sorted(path.glob("*.toml"), key=lambda file: (file.name != "recipe.toml", file.name))
        hint = f"did you mean {as_argument(inside[0])}? Otherwise " if inside else ""
        raise RecipeError(f"{path} is a directory; {hint}give a TOML file or one of: {', '.join(names)}")
    if path.exists():
        raise RecipeError(f"{path} is a pipe or a device; save the recipe as a file: its paths are relative to it")
    nearest = nearest_name(str(path_or_name), list(names))
    hint = f"; did you mean {nearest!r}?" if nearest else ""
    raise RecipeError(
        f"no recipe at {path} and none shipped under that name{hint} (shipped: {', '.join(names) or 'none'})"
    )


def _override(values: dict[str, Any], key: str, text: str) -> None:
    if not isinstance(key, str):
        raise RecipeError(f'overrides: {key!r:.80} is no dotted key, such as "filter.select.per_question"')
    if isinstance(text, PathLike):
        text = str(text)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    put(values, key, value)


def put(values: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key in a recipe's values; the key of a list item is its name or position."""
    parent, parts = "", key.split(".")
    if not all(part.strip() for part in parts):
        raise RecipeError(f"--set {key}: a part of the key is empty; write e.g. filter.select.per_question=2")
    if key.startswith("filter.rules."):  # one of the rules that hold when the recipe has none of its own
        section = values.setdefault("filter", {})
        if isinstance(section, dict):
            section.setdefault("rules", [rule.model_dump() for rule in DEFAULT_RULES])
    node: Any = values
    while len(parts) > 1:
        parent, parts = _next_part(node, parts)
        node = _child(node, parent, key)
    if isinstance(node, list):
        raise RecipeError(f"--set {key}: {parent} is a list; name one of its items, then a key")
    node[parts[0]] = value


def _next_part(node: Any, parts: list[str]) -> tuple[str, list[str]]:
    """The next part of a dotted key and those after it; the name of an item may hold dots itself."""
    names = {item.get("name") for item in node if isinstance(item, dict)} if isinstance(node, list) else node.keys()
    for length in range(len(parts) - 1, 1, -1):
        if (name := ".".join(parts[:length])) in names:
            return name, parts[length:]
    return parts[0], parts[1:]


def _child(node: Any, part: str, key: str) -> Any:
    if isinstance(node, list):
        names = [
            str(item.get("name", position)) if isinstance(item, dict) else str(position)
            for position, item in enumerate(node)
        ]
        positions = [str(position) for position in range(len(node))]
        found = next((known.index(part) for known in (names, positions) if part in known), None)  # names first
        if found is None:
            raise RecipeError(f"--set {unknown_value(key, part, names)}")
        if not isinstance(node[found], dict | list):
            raise RecipeError(f"--set {key}: item {found} of the list is {node[found]!r:.60}, and holds no keys")
        return node[found]
    if not isinstance(node.setdefault(part, {}), dict | list):
        raise RecipeError(f"--set {key}: {part} holds a value, not a section")
    return node[part]
