"""The reference of all keys of a recipe, as Markdown, from the section models: docs/recipe.md."""

import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from distill.machine.bytecode import docstring
from distill.recipe.base import EFFECTS, NameOrCode, Section
from distill.recipe.effects import RecipeKey, inner_sections
from distill.recipe.recipe import Recipe
from distill.recipe.usual_values import usual_text

_HEAD = """# Recipe keys

This page is written by `distill recipes reference > docs/recipe.md` from the models in `distill/recipe/`; a test
compares it with them. `distill recipes schema` prints the same as a JSON schema for editors. `NAME` stands for a name
of your own.

The last column names what a change of the key makes stale. `distill plan RECIPE --diff RUN` says it for two recipes:

{effects}

A stage that runs again makes the stages after it stale. Where nothing is stale, the column says why. `source` (not
`train`): trained stages do not read the key and stay. `train` (nothing with `max_steps`): the key decides nothing
while that one is set.
"""
_TABLE = ("| key | type | default | meaning | makes stale |", "| --- | --- | --- | --- | --- |")
_DEFAULT_CHARACTERS = 60
"""A longer default is not shown."""


def reference() -> str:
    """Every key by section: type, default, description, and what a change of it makes stale."""
    effects = "\n".join(f"- `{name}`: {meaning}" for name, meaning in EFFECTS.items())
    return "\n".join([_HEAD.format(effects=effects), *_sections(Recipe, "")]).rstrip()


def _sections(model: type[Section], path: str) -> Iterator[str]:
    title = f"## `{path}`" if path else "## Top level"
    rows = [_row(name, field) for name, field in model.model_fields.items()]
    yield f"{title}\n\n{_text(docstring(model))}\n"
    yield "\n".join([*_TABLE, *rows]) + "\n"
    for name, field in model.model_fields.items():
        for section, stars in dict.fromkeys(inner_sections(field.annotation)):
            yield from _sections(section, _header(path, name, stars, field))


def _header(path: str, name: str, stars: str, field: FieldInfo) -> str:
    """The heading of a section as a recipe writes it, such as [data.NAME] or [[teachers]]."""
    inner = f"{path.strip('[]')}.{name}" if path else name
    if typing.get_origin(field.annotation) is tuple:
        return f"[[{inner}]]"
    return f"[{inner}{'.NAME' if stars else ''}]"


def _row(name: str, field: FieldInfo) -> str:
    key = RecipeKey(name, field)
    held = list(inner_sections(field.annotation))
    if held:
        changes = "see below"
    else:
        changes = ", ".join(f"`{effect}`" for effect in key.affects) or f"nothing: {key.because}"
        changes += f" (compared by {key.compared_by})" if key.compared_by else ""
        changes += f" (not `{'`, `'.join(key.spares)}`)" if key.spares else ""
        changes += (
            f" (nothing with {' or '.join(f'`{name}`' for name in key.overridden_by)})" if key.overridden_by else ""
        )
    default = "required" if field.is_required() else _default(field, is_section=bool(held))
    meaning = _text(field.description) + (f" Usual: {usual_text(key.usual)}." if key.usual else "")
    cells = (f"`{name}`", _type(field), default, meaning, changes)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo, *, is_section: bool) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if is_section:
        return "none" if not value else "its defaults" if isinstance(value, Section) else f"{len(value)} of them"
    text = json.dumps(value)
    return f"`{text}`" if len(text) <= _DEFAULT_CHARACTERS else "a longer value: `distill recipes schema`"


def _type(field: FieldInfo) -> str:
    """The kind of value, with its limits."""
    limits = [f"{sign} {limit:,}" for sign, limit in _limits(field.metadata)]
    kind = _named(field.metadata) or _kind(field.annotation)
    return " ".join([kind, *([f"({', '.join(limits)})"] if limits else [])])


def _named(metadata: Iterable[Any]) -> str:
    """The names that a value can be, where code from outside can be named instead of them; else nothing."""
    for each in metadata:
        if isinstance(each, NameOrCode) and each.known:
            return ", ".join(f"`{name}`" for name in each.known) + ", code"
    return ""


def _limits(metadata: list[Any]) -> Iterator[tuple[str, float]]:
    for each in metadata:
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            if getattr(each, name, None) is not None:
                yield sign, getattr(each, name)


_KINDS: Mapping[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any value"}


def _kind(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _named(arguments[1:]) or _kind(arguments[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_kind(each) for each in arguments if each is not type(None)))
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin in (dict, Mapping):
        return f"table of {_kind(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return "section"
    return _KINDS[annotation]


def _text(text: str | None) -> str:
    return " ".join((text or "").split())
