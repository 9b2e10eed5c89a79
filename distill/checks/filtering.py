"""Checks of the filter: rules, selection, lists, judges and the student that measures traces."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, fine, problem, warning
from distill.checks.student import require_checkpoint
from distill.errors import DistillError, RecipeError
from distill.grounding.charts.chart_table import find_table
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.filter import DEFAULT_RULES, Filter
from distill.wiring.model_signals import JUDGE, STUDENT, untuned_student
from distill.word_tables import counted
from filters.decisions import rules
from filters.signals import registry
from teacher.checks import require_placeholders

_JUDGE_PLACEHOLDERS = ("question", "gold", "prediction")


def check_rules(context: CheckContext) -> Iterator[CheckResult]:
    """Rules and selection are conditions over signals, every one of them tried by itself."""
    settings = context.recipe.filter
    try:
        columns = registry.columns(context.recipe)
    except RecipeError:
        return  # check_extractors says so
    bad = 0
    for rule in settings.rules:
        try:
            rules.check(_only(settings, rules=(rule,)), columns)
        except RecipeError as error:
            bad += 1
            yield problem(f"filter.rules.{rule.name}", str(error), f"correct filter.rules.{rule.name}.drop")
    try:
        rules.check(settings.model_copy(update={"rules": ()}), columns)
    except RecipeError as error:
        bad += 1
        key = str(error).partition(" ")[0].rstrip(":")
        yield problem(key, str(error), f"correct {key}")
    if not bad:
        yield fine(
            "filter.rules", f"{counted(len(settings.rules), 'rule')} and the selection are conditions over signals"
        )
        yield from _unmeasured(context.recipe, columns)
        yield from _without_tables(context, columns)


def _without_tables(context: CheckContext, columns: pa.Schema) -> Iterator[CheckResult]:
    """Rules on `grounding` where no question has a table: they never drop a trace."""
    recipe, survey = context.recipe, context.readable(ASKED)
    if survey is None or "grounding" not in registry.signal_names(recipe):
        return
    key = recipe.filter.grounding.table
    if any(sample.meta and find_table(sample.meta, key) is not None for sample in survey.kept):
        return
    family_of = registry.family_of(recipe)
    whole = survey.whole and len(survey.kept) == survey.samples
    which = "no question" if whole else f"none of the first {len(survey.kept):,} questions"
    for rule in rules.check(recipe.filter, columns):
        column = next((name for name in rule.columns if family_of.get(name) == "grounding"), None)
        if column is not None:
            yield warning(
                f"filter.rules.{rule.name}",
                f"reads {column}, and {which} of [data.{ASKED}] has a table in its meta; it drops no trace of these "
                "samples",
                "give the rows a table (filter.grounding.table names its key), or leave the rule out",
            )


def _only(settings: Filter, **update: object) -> Filter:
    """The settings with these rules and a selection that names nothing."""
    plain = settings.select.model_copy(update={"order": (), "curriculum": (), "mix": (), "weight": "1.0"})
    return settings.model_copy(update={"select": plain, **update})


def _unmeasured(recipe: Recipe, columns: pa.Schema) -> Iterator[CheckResult]:
    """Rules and selection that read what filter.signals does not measure: they would do nothing, in silence."""
    settings = recipe.filter
    own = [rule for rule in settings.rules if rule not in DEFAULT_RULES]
    for rule in rules.check(_only(settings, rules=tuple(own)), columns):
        yield from _without_values(recipe, f"filter.rules.{rule.name}", rule.columns, "never drops a trace")
    ordered = settings.select.order if settings.select.order != type(settings.select)().order else ()
    ordered_columns = [entry.removeprefix("-").lower() for entry in (*ordered, *settings.select.curriculum)]
    yield from _without_values(recipe, "filter.select", tuple(ordered_columns), "orders nothing")


def _without_values(recipe: Recipe, key: str, columns: tuple[str, ...], effect: str) -> Iterator[CheckResult]:
    family_of, measured = registry.family_of(recipe), registry.signal_names(recipe)
    for column in columns:
        family = family_of.get(column)
        if family is not None and family not in measured:
            yield warning(
                key,
                f"reads {column}, which filter.signals does not measure, so it {effect}",
                f"add {family!r} to filter.signals",
            )


def check_extractors(context: CheckContext) -> Iterator[CheckResult]:
    """Check that the data that signals compare with exists: word lists, names of test sets."""
    try:
        registry.build(context.recipe)
    except DistillError as error:
        # The lengths of traces are counted with the tokenizer of the student.
        student = "student.model" if context.recipe.student and context.recipe.student.model else "student.language"
        keys = (student, "filter.signals", "filter.sensitive.words", "filter.contamination.sources")
        key = next((name for name in keys if name in str(error)), keys[-1])
        yield problem(key, str(error), f"correct {key}")
        return
    yield fine(
        "filter.signals",
        f"{counted(len(registry.signal_names(context.recipe)), 'family', 'families')} can be measured",
    )


def check_judge(context: CheckContext) -> Iterator[CheckResult]:
    settings = context.recipe.filter
    if JUDGE not in settings.signals:
        return
    key = "filter.judge.prompt"
    try:
        require_placeholders(settings.judge.prompt, _JUDGE_PLACEHOLDERS, key)
    except RecipeError as error:
        yield problem(key, str(error), f"correct {key}")
    unknown = re.findall(r"{(?:answer|draft)}", settings.judge.prompt)
    if unknown:
        yield problem(
            key,
            f"{unknown[0]} is not a placeholder of the judge's prompt; known: {{question}}, {{gold}} and "
            "{prediction}",
            f"correct {key}",
        )


def check_likelihood_student(context: CheckContext) -> Iterator[CheckResult]:
    """The untuned student that measures how well traces fit it."""
    recipe = context.recipe
    if STUDENT not in recipe.filter.signals:
        return
    key = "filter.student.checkpoint"
    try:
        name, revision = untuned_student(recipe)
    except RecipeError as error:
        yield problem(key, str(error), f"name a checkpoint in {key}")
        return
    local = Path(recipe.local_or_hub(name))
    if not local.exists():
        yield context.hub.look(key, name, "model", revision)
        return
    require_checkpoint(local, trust_remote_code=recipe.trusts_student_code)
    yield fine(key, f"{local} is a whole checkpoint")


def check_mix(context: CheckContext) -> Iterator[CheckResult]:
    """Check that the shares of the selection name existing teachers and domains."""
    survey = context.readable(ASKED)
    groups = {"teacher": {teacher.name for teacher in context.recipe.teachers}}
    if survey is not None and survey.whole:
        groups["domain"] = set(survey.domains)
    for mix in context.recipe.filter.select.mix:
        present = groups.get(mix.by.strip().lower())
        lacking = sorted(name for name, share in mix.shares.items() if share and present and name not in present)
        if present and lacking:
            yield problem(
                "filter.select.mix",
                f"by = {mix.by!r} gives a share to {', '.join(lacking)}, but no trace will have this value (values: "
                f"{', '.join(sorted(present))})",
                "correct the names in filter.select.mix",
            )
