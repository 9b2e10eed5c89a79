"""What is wrong with a recipe, in words that name the key, the nearest known key and the allowed values."""

import difflib
import math
from collections.abc import Iterable, Iterator
from datetime import date, time
from typing import Any

from pydantic import ValidationError

from distill.recipe.base import Section
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
    for problem in error.errors(include_url=False):
        where, model = _locate(problem["loc"], values, root)
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            valid_names = sorted(model.model_fields) if model else []
            nearest = nearest_name(str(problem["loc"][-1]), valid_names)
            hint = f"; did you mean {nearest!r}?" if nearest else f" (known: {', '.join(valid_names)})"
            yield f"{where}: unknown key{hint}"
        elif problem["type"] == "missing":
            yield f"{where}: required key is missing"
        elif problem["type"] == "value_error":
            yield f"{where}: {message}" if where else message
        elif problem["type"] == "tuple_type" and isinstance(problem["input"], dict) and model is not None:
            yield f"{where}: write [[{where}]], in double brackets: there may be several"
        elif problem["type"] == "model_type" and isinstance(problem["input"], list):
            yield f"{where}: write [{where}], in single brackets: there is only one"
        else:
            field = model.model_fields.get(str(problem["loc"][-1])) if model else None
            # A pattern alone does not say what a good value is.
            about = field.description if field and problem["type"] == "string_pattern_mismatch" else None
            yield f"{where} = {problem['input']!r}: {message}{f'. {about}' if about else ''}"


def _locate(location: tuple[int | str, ...], values: Any, root: type[Section]) -> tuple[str, type[Section] | None]:
    """The dotted name of a place in the recipe (list items by name) and the section model it lies in."""
    parts: list[str] = []
    model: Any = root
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
        model = _unwrap(argument)
        if model is not None:
            return model
    return None
