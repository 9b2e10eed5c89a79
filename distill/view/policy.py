"""The policy bench: what other rules and another number of traces a question would keep, without writing anything."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from distill.artifacts.layout import RECIPE
from distill.errors import DataError
from distill.recipe.loading import derived_recipe, load, put
from distill.recipe.recipe import Recipe
from distill.view.trace_table import TraceTable
from filters.decisions.rules import check
from filters.what_if import what_if

_RULES, _PER_QUESTION = "filter.rules", "filter.select.per_question"


def policy(table: TraceTable) -> dict[str, Any]:
    """The run's own rules and traces a question. A rule of the form `column > number` comes with the column's range.

    Raises DataError where the run has no recipe or no decisions.
    """
    recipe = _recipe(table.run)
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
    rules, per_question = asked.get("rules"), asked.get("per_question")
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise DataError("rules: a list of rules, each with name and drop")
    recipe = _recipe(table.run)
    values = tomllib.loads((table.run / RECIPE).read_text(encoding="utf-8"))
    section: dict[str, Any] = {"rules": [{"name": rule.get("name"), "drop": rule.get("drop")} for rule in rules]}
    put(values, _RULES, section["rules"])
    if per_question != recipe.filter.select.per_question:
        put(values, _PER_QUESTION, per_question)
        section["select"] = {"per_question": per_question}
    changed = derived_recipe(recipe, values, "the policy of the page")
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


def _recipe(run: Path) -> Recipe:
    if not (run / RECIPE).is_file():
        raise DataError(f"{run / RECIPE}: not there, so the policy of this run is not known")
    return load(run / RECIPE)
