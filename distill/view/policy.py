"""The policy bench: what other rules and another number of traces a question would keep.

Nothing is written but the rules of one recipe, where a person asks for it.
"""

import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import tomli_w

from distill.artifacts.files import atomic_path
from distill.artifacts.layout import RECIPE
from distill.errors import DataError
from distill.recipe.loading import derived_recipe, load, put
from distill.recipe.recipe import Recipe
from distill.recipe.recipe_text import edit_recipe_text
from distill.view.trace_table import TraceTable
from filters.decisions.rules import check
from filters.what_if import LastTraces, what_if

_RULES, _PER_QUESTION = "filter.rules", "filter.select.per_question"
_RULE: Final = re.compile(r"(?P<body>\[\[filter\.rules\]\].*?)(?P<rest>(?:\n(?:[ \t]*#[^\n]*|[ \t]*))*)\Z", re.DOTALL)
"""A rule of a recipe, and the comments after it, which belong to what follows."""


def policy(table: TraceTable) -> dict[str, Any]:
    """The run's own rules and traces a question. A rule of the form `column > number` comes with the column's range.

    Raises DataError where the run has no recipe or no decisions.
    """
    recipe = _recipe(table)
    rules = []
    for condition in check(recipe.filter, table.signal_columns):
        rule: dict[str, Any] = {"name": condition.name, "drop": condition.sql}
        if condition.threshold is not None:
            low, high = table.value_range(condition.threshold.column)
            rule["threshold"] = asdict(condition.threshold) | {"low": low, "high": high}
        rules.append(rule)
    return {"rules": rules, "per_question": recipe.filter.select.per_question}


def compare_policy(table: TraceTable, asked: Mapping[str, Any], last: LastTraces | None = None) -> dict[str, Any]:
    """What the rules and `per_question` that are asked for would change, and their lines for the recipe.

    `last` keeps the traces for the next policy. Raises RecipeError for a policy that cannot be right.
    """
    recipe = _recipe(table)
    section, changed = _changed(recipe, table.run / RECIPE, asked)
    result = what_if(recipe.model_copy(update={"filter": changed.filter}), table.run, last=last)
    return {
        "total": result.total._asdict(),
        "groups": {
            name: {value: counts._asdict() for value, counts in rows.items()} for name, rows in result.groups.items()
        },
        "reasons": {name: list(both) for name, both in result.reasons.items()},
        "moved": {name: {"count": count, "ids": list(ids)} for name, (count, ids) in result.moved.items()},
        "notes": list(result.notes),
        "recipe": _lines(section),
    }


def write_policy(table: TraceTable, asked: Mapping[str, Any], target: Path) -> None:
    """Put the rules and `per_question` that are asked for into a recipe; all other lines stay as they are.

    Raises RecipeError for a policy that cannot be right, DataError for a recipe in which more would change.
    """
    section, changed = _changed(_recipe(table), table.run / RECIPE, asked)
    check(changed.filter, table.signal_columns)
    path = target.resolve()
    with path.open(encoding="utf-8", newline="") as file:
        original = file.read()
    own = load(path)
    mark = "\ufeff" if original.startswith("\ufeff") else ""  # of Windows editors
    ending = "\r\n" if "\r\n" in original else "\n"
    text = original.removeprefix(mark).replace("\r\n", "\n")
    new = _with_rules(text, section["rules"])
    if changed.filter.select.per_question != own.filter.select.per_question:
        if not re.search(r"^\[filter\.select\]", new, flags=re.MULTILINE):
            new = f"{new.rstrip()}\n\n[filter.select]\n"
        new = edit_recipe_text(new, {_PER_QUESTION: changed.filter.select.per_question})
    if not _changes_only_policy(text, new) or _policy_of(derived_recipe(own, tomllib.loads(new), "it")) != _policy_of(
        changed
    ):
        raise DataError(
            f"{path}: the rules cannot be written without a change of other lines; copy the lines for the recipe by "
            "hand"
        )
    with atomic_path(path) as temporary:  # unchanged: a secret in the file must not be masked in the file
        temporary.write_bytes((mark + new.replace("\n", ending)).encode())
        shutil.copymode(path, temporary)


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
    matches = {index: match for index, block in enumerate(blocks) if (match := _RULE.match(block))}
    own = {rule["name"]: match["body"] for match in matches.values() if (rule := _rule_of(match["body"]))}
    bodies = [_body(rule, own.get(rule["name"], "")) for rule in rules]
    joined = "\n\n".join([*bodies, ""])
    if not matches:
        return f"{text.rstrip()}\n\n{joined}".rstrip() + "\n"
    first = min(matches)
    parts = [
        block if index not in matches else (joined if index == first else "") + matches[index]["rest"].lstrip("\n")
        for index, block in enumerate(blocks)
    ]
    return "".join(parts).rstrip() + "\n"


def _rule_of(body: str) -> dict[str, Any] | None:
    """The rule of a block; None for a block that ends within a text of several lines."""
    try:
        rule: dict[str, Any] = tomllib.loads(body)["filter"]["rules"][0]
    except tomllib.TOMLDecodeError:
        return None
    return rule


def _body(rule: Mapping[str, str], own: str) -> str:
    """The lines of a rule: its `own` ones with their comments, where another condition fits into them."""
    for lines in (own, edit_recipe_text(own, {f"{_RULES}.drop": rule["drop"]}).rstrip("\n")):
        if own and _rule_of(lines) == rule:
            return lines
    return f"[[{_RULES}]]\n{tomli_w.dumps(dict(rule)).strip()}"


def _lines(section: Mapping[str, Any]) -> str:
    """The lines of a policy for a recipe, which may have a section [filter] already."""
    blocks = [_body(rule, "") for rule in section["rules"]] or ["[filter]\nrules = []"]
    for limit in section.get("select", {}).values():
        line = "# remove per_question" if limit is None else f"per_question = {limit}"
        blocks.append(f"[filter.select]\n{line}")
    return "\n\n".join(blocks) + "\n"


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
    if not table.filtered:
        raise DataError(f"{table.run}: not filtered yet; run `distill filter` first, then policies can be compared")
    recipe = table.recipe()
    if recipe is None:
        raise DataError(f"{table.run / RECIPE}: missing, so the policy of this run is not known")
    return recipe
