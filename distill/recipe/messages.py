"""What is wrong with a recipe, in words that name the key, the nearest known key and the allowed values."""

import difflib
import math
import types
import typing
from collections.abc import Iterable, Iterator
from datetime import date, time
from typing import Any

from pydantic import ValidationError

from distill.recipe.base import Section
from distill.recipe.effects import inner_sections
from distill.redact import encodable


def unknown_value(where: str, value: str, valid_names: list[str]) -> str:
    nearest = nearest_name(value, valid_names)
    hint = f"did you mean {nearest!r}? " if nearest else ""
    return f"{where} = {value!r} is not known; {hint}known: {', '.join(valid_names) or 'none'}"


def nearest_name(value: str, valid_names: list[str]) -> str | None:
    """The name that was probably meant: one that is nearly equal, else the longest that `value` begins with
    (evaluate: eval), else a similar one."""
    equal = difflib.get_close_matches(value, valid_names, n=1, cutoff=0.9)
    begun = sorted((name for name in valid_names if value.startswith(name)), key=len, reverse=True)
    return next(iter(equal or begun or difflib.get_close_matches(value, valid_names, n=1)), None)


def did_you_mean(name: str, known_names: Iterable[str]) -> str:
    """A hint at the most similar of the known names, to be put after a message; empty where none is similar."""
    near = difflib.get_close_matches(name, list(known_names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unusable(where: str, problems: Iterable[str]) -> str:
    return f"{where}: this recipe cannot be used:\n" + "\n".join(f"  {line}" for line in problems)


def unreadable_values(value: Any, where: str = "") -> Iterator[str]:
    """A message for each value that a recipe cannot hold because JSON has no text for it.

    Without this check nan and inf would be read as keys that are not set.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            yield from unreadable_values(item, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            name = item.get("name", position) if isinstance(item, dict) else position
            yield from unreadable_values(item, f"{where}.{name}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{where} = {value}: give a number; a key that is left out has its default"
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        yield f"{where}: the number has more than 64 bits; give a smaller one"
    elif isinstance(value, str) and encodable(value) != value:
        yield f"{where} = {value!r}: not valid UTF-8; write it in UTF-8"
    elif isinstance(value, str) and "\0" in value:
        yield f"{where} = {value!r}: holds the character NUL, which no path, program or file can hold; remove it"
    elif not isinstance(value, str | int | float | date | time | None):
        yield f"{where} = {value!r:.60} ({type(value).__name__}): give a value that TOML can hold"


def explain_problems(error: ValidationError, values: Any, root: type[Section]) -> Iterator[str]:
    lines: dict[str, list[str]] = {}  # a value that fits no type of its key has an error for each type
    for problem in error.errors(include_url=False):
        where, section, annotation = _locate(problem["loc"], values, root)
        message = problem["msg"].removeprefix("Value error, ")
        name = where.rpartition(".")[2]
        if problem["type"] == "extra_forbidden":
            valid_names = sorted(section.model_fields) if section else []
            nearest = nearest_name(name, valid_names)
            hint = f"; did you mean {nearest!r}?" if nearest else f" (known: {', '.join(valid_names)})"
            lines[f"{where}: unknown key{hint}"] = []
        elif problem["type"] == "missing":
            lines[f"{where}.{problem['loc'][-1]}: required key is missing".removeprefix(".")] = []
        elif problem["type"] == "value_error":
            lines[f"{where}: {message}" if where else message] = []
        elif problem["type"] == "tuple_type" and isinstance(problem["input"], dict) and _section_in(annotation):
            lines[f"{where}: write [[{where}]], in double brackets: there may be several"] = []
        elif problem["type"] == "model_type" and isinstance(problem["input"], list):
            lines[f"{where}: write [{where}], in single brackets: there is only one"] = []
        else:
            field = section.model_fields.get(name) if section else None
            # A pattern alone does not say what a good value is.
            about = field.description if field and problem["type"] == "string_pattern_mismatch" else None
            reasons = lines.setdefault(f"{where} = {problem['input']!r}: ", [])
            reasons.append(f"{message}. {about}" if about else message)
    for line, reasons in lines.items():
        yield line + " or ".join([*reasons[:1], *(each.removeprefix("Input should be ") for each in reasons[1:])])


def _locate(
    location: tuple[int | str, ...], values: Any, root: type[Section]
) -> tuple[str, type[Section] | None, Any]:
    """The dotted name of a value of the recipe (list items by name), the section whose key it is, and its annotation.

    Parts of the location that lead to no value, such as the kinds of values that a key takes, are left out.
    """
    parts: list[str] = []
    section: type[Section] | None = root
    annotation: Any = root
    for item in location:
        if isinstance(values, list) and isinstance(item, int) and item < len(values):
            values = values[item]
            parts.append(str(values.get("name", item)) if isinstance(values, dict) else str(item))
        elif isinstance(values, dict) and item in values:
            section, values = _section_in(annotation), values[item]
            parts.append(str(item))
        else:
            continue
        annotation = _below(annotation, item)
    return ".".join(parts), section, annotation


def _below(annotation: Any, item: int | str) -> Any:
    """The annotation of a key of a section, or of an item of a table or a list; None where there is no such key."""
    arguments = typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        field = annotation.model_fields.get(str(item))
        return field.annotation if field else None
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return next((inner for each in arguments if (inner := _below(each, item)) is not None), None)
    return arguments[isinstance(item, str)] if len(arguments) == 2 else None


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that a value with this annotation is, or holds."""
    return next((section for section, _ in inner_sections(annotation)), None)
