"""The policy bench: what other rules and another number of traces a question would keep.

Nothing is written but the rules of one recipe, where a person asks for it.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import tomli_w

from distill.artifacts.files import write_text
from distill.artifacts.layout import RECIPE
from distill.errors import DataError
from distill.recipe.filling import filled
from distill.recipe.loading import derived_recipe, load, put
from distill.recipe.recipe import Recipe
from distill.view.trace_table import TraceTable
from filters.decisions.rules import check
from filters.what_if import what_if

_RULES, _PER_QUESTION = "filter.rules", "filter.select.per_question"
_RULE: Final = re.compile(r"(?P<body>\[\[filter\.rules\]\].*?)(?P<rest>(?:\n(?:[ \t]*#[^\n]*|[ \t]*))*)\Z", re.DOTALL)
"""A rule of a recipe, and the comments after it, which belong to what follows."""


def policy(table: TraceTable) -> dict[str, Any]:
    """The run's own rules and traces a question. A rule of the form `column > number` comes with the column's range.

    Raises DataError where the run has no recipe or no decisions.
    """
    recipe = _recipe(table)
    if not table.filtered:
        raise DataError(f"{table.run}: not filtered yet; run `distill filter` first, then policies can be compared")
    rules = []
    for condition in check(recipe.filter, table.signal_columns):
        rule: dict[str, Any] = {"name": condition.name, "drop": condition.sql}
        if condition.threshold is not None:
            low, high = table.value_range(condition.threshold.column)
            rule["threshold"] = asdict(condition.threshold) | {"low": low, "high": high}
        rules.append(rule)
    return {"rules": rules, "per_question": recipe.filter.select.per_question}


def compare_policy(table: TraceTable, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the rules and `per_question` that are asked for would change, and their lines for the recipe.

    Raises RecipeError for a policy that cannot be right.
    """
    recipe = _recipe(table)
    section, changed = _changed(recipe, table.run / RECIPE, asked)
    found = what_if(recipe.model_copy(update={"filter": changed.filter}), table.run)
    return {
        "total": found.total._asdict(),
        "groups": {
            name: {value: counts._asdict() for value, counts in rows.items()} for name, rows in found.groups.items()
        },
        "reasons": {name: list(both) for name, both in found.reasons.items()},
        "moved": {name: {"count": count, "ids": list(ids)} for name, (count, ids) in found.moved.items()},
        "notes": list(found.notes),
        "recipe": tomli_w.dumps({"filter": section}),
    }


def write_policy(table: TraceTable, asked: Mapping[str, Any], target: Path) -> None:
    """Put the rules and `per_question` that are asked for into a recipe; all other lines stay as they are.

    Raises RecipeError for a policy that cannot be right, DataError for a recipe in which more would change.
    """
    section, changed = _changed(_recipe(table), table.run / RECIPE, asked)
    check(changed.filter, table.signal_columns)
    path = target.resolve()
    text = path.read_text(encoding="utf-8")
    own = load(path)
    new = _with_rules(text, section["rules"])
    if changed.filter.select.per_question != own.filter.select.per_question:
        if not re.search(r"^\[filter\.select\]", new, flags=re.MULTILINE):
            new = f"{new.rstrip()}\n\n[filter.select]\n"
        new = filled(new, {_PER_QUESTION: changed.filter.select.per_question})
    if not _changes_only_policy(text, new) or _policy_of(derived_recipe(own, tomllib.loads(new), "it")) != _policy_of(
        changed
    ):
        raise DataError(f"{path}: its rules are not [[filter.rules]] blocks; copy the lines for the recipe by hand")
    write_text(path, new)


def _policy_of(recipe: Recipe) -> tuple[Any, int | None]:
    return recipe.filter.rules, recipe.filter.select.per_question


def _changes_only_policy(before: str, after: str) -> bool:
    """Whether two texts of a recipe have the same values but for rules and traces a question."""
    rest = []
    for text in (before, after):
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return False
        section = values.pop("filter", {})
        select = section.pop("select", {})
        rest.append((values, {**section, "rules": 0}, {**select, "per_question": 0}))
    return rest[0] == rest[1]


def _with_rules(text: str, rules: Sequence[Mapping[str, str]]) -> str:
    """A recipe's text with these rules where its own stood, or at its end. A rule that stays keeps its lines."""
    blocks = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    found = {place: match for place, block in enumerate(blocks) if (match := _RULE.match(block))}
    own = {
        tuple(tomllib.loads(match["body"])["filter"]["rules"][0].values()): match["body"] for match in found.values()
    }
    bodies = [
        own.get((rule["name"], rule["drop"])) or f"[[filter.rules]]\n{tomli_w.dumps(dict(rule)).strip()}"
        for rule in rules
    ]
    joined = "\n\n".join([*bodies, ""])
    if not found:
        return f"{text.rstrip()}\n\n{joined}".rstrip() + "\n"
    first = min(found)
    parts = [
        block if place not in found else (joined if place == first else "") + found[place]["rest"].lstrip("\n")
        for place, block in enumerate(blocks)
    ]
    return "".join(parts).rstrip() + "\n"


def _changed(recipe: Recipe, path: Path, asked: Mapping[str, Any]) -> tuple[dict[str, Any], Recipe]:
    """The lines of the policy that is asked for, and the run's recipe with it."""
    rules, per_question = asked.get("rules"), asked.get("per_question")
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise DataError("rules: a list of rules, each with name and drop")
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    section: dict[str, Any] = {"rules": [{"name": rule.get("name"), "drop": rule.get("drop")} for rule in rules]}
    put(values, _RULES, section["rules"])
    if per_question != recipe.filter.select.per_question:
        put(values, _PER_QUESTION, per_question)
        section["select"] = {"per_question": per_question}
    return section, derived_recipe(recipe, values, "the policy of the page")


def _recipe(table: TraceTable) -> Recipe:
    recipe = table.recipe()
    if recipe is None:
        raise DataError(f"{table.run / RECIPE}: not there, so the policy of this run is not known")
    return recipe
