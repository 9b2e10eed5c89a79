"""What the keys of a recipe make stale, read from the section models: the values in a fingerprint, and lists of keys.

Each key names its effects where it is declared (`distill.recipe.base.key`); no other place repeats them.
"""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic.fields import FieldInfo

from distill.recipe.base import Section


@dataclass(frozen=True, slots=True)
class RecipeKey:
    """One key of a recipe, such as teachers.*.sampling.top_p; a star means the name of any item."""

    path: str
    field: FieldInfo

    @property
    def affects(self) -> tuple[str, ...]:
        """Entries of EFFECTS."""
        return tuple(_noted(self.field).get("affects", ()))

    @property
    def because(self) -> str:
        """Why no result depends on it."""
        return str(_noted(self.field).get("because", ""))

    @property
    def compared_by(self) -> str:
        """What a fingerprint holds instead of its value."""
        return str(_noted(self.field).get("compared_by", ""))

    @property
    def spares(self) -> tuple[str, ...]:
        """Stages that read its section and not the key."""
        return tuple(_noted(self.field).get("spares", ()))

    @property
    def overridden_by(self) -> tuple[str, ...]:
        """Keys beside it that decide alone where they are set."""
        return tuple(_noted(self.field).get("overridden_by", ()))

    @property
    def usual(self) -> tuple[Any, ...]:
        """The two ends of its usual range, or its usual values; empty where every value is usual."""
        return tuple(_noted(self.field).get("usual", ()))


def recipe_keys(model: type[Section], before: str = "") -> Iterator[RecipeKey]:
    """Every key below a section that holds a value and no section."""
    for name, field in model.model_fields.items():
        inner = list(dict.fromkeys(inner_sections(field.annotation)))
        for section, stars in inner:
            yield from recipe_keys(section, f"{before}{name}{stars}.")
        if not inner or _noted(field).get("affects"):
            yield RecipeKey(f"{before}{name}", field)


def inner_sections(annotation: Any) -> Iterator[tuple[type[Section], str]]:
    """The sections that a key can hold, each with a star for every list or table around it."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, ""
    items = typing.get_origin(annotation) in (tuple, list, dict, Mapping)
    for argument in typing.get_args(annotation):
        yield from ((section, f".*{stars}" if items else stars) for section, stars in inner_sections(argument))


def key_values(
    model: type[Section], values: Mapping[str, Any], path: str = "", stars: str = ""
) -> Iterator[tuple[str, RecipeKey, Any]]:
    """Every key that holds a value, by its own path (items by name), and the value."""
    for name, field in model.model_fields.items():
        value, inner = values.get(name), list(inner_sections(field.annotation))
        if not inner:
            yield f"{path}{name}", RecipeKey(f"{stars}{name}", field), value
        elif value and inner[0][1]:
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            for name_or_index, item in items:
                own = name_or_index if isinstance(value, Mapping) else item.get("name", name_or_index)
                yield from key_values(inner[0][0], item, f"{path}{name}.{own}.", f"{stars}{name}.*.")
        elif value:
            yield from key_values(inner[0][0], value, f"{path}{name}.", f"{stars}{name}.")


def path_parts(path: str, key: RecipeKey) -> tuple[str, ...]:
    """The parts of a key's own path; the name of an item, such as a teacher, is one part and may hold dots."""
    before, star, after = key.path.partition("*")
    if not star or "*" in after:
        return tuple(path.split("."))
    name = path[len(before) : len(path) - len(after)]
    return (*before.split(".")[:-1], name, *after.split(".")[1:])


def affecting(section: Section, effect: str) -> dict[str, Any]:
    """The settings of a section that a fingerprint of `effect` holds, as plain values.

    Left out are keys that are compared by something else, and keys that were added later and have their default.
    """
    values = section.model_dump(mode="json")
    affected: dict[str, Any] = {}
    for name in _names(type(section), effect):
        field, held = type(section).model_fields[name], getattr(section, name)
        if effect in _noted(field).get("omit_default", ()) and held == field.default:
            continue
        if isinstance(held, Section):
            affected[name] = affecting(held, effect)
        elif held and isinstance(held, tuple) and isinstance(held[0], Section):
            affected[name] = [affecting(item, effect) for item in held]
        elif held and isinstance(held, Mapping) and list(inner_sections(field.annotation)):
            affected[name] = {item: affecting(value, effect) for item, value in held.items()}
        else:
            affected[name] = values[name]
    return affected


@cache
def _names(model: type[Section], effect: str) -> tuple[str, ...]:
    """The fields of a section that a fingerprint of `effect` holds, wholly or in part."""
    return tuple(
        name
        for name, field in model.model_fields.items()
        if not _noted(field).get("compared_by")
        and (
            effect in _noted(field).get("affects", ())
            or any(_names(section, effect) for section, _ in inner_sections(field.annotation))
        )
    )


def _noted(field: FieldInfo) -> Mapping[str, Any]:
    """What `key` noted about a field."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
