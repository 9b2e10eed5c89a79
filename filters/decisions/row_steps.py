"""The rows that are left after each step of the filter, by group."""

from collections.abc import Sequence
from typing import Final

import duckdb

from distill.data.sample_files import from_record
from distill.diagnosis.row_groups import MOST_ROWS, SELECTION, StepRows, groups_of, settings_text
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.filter import Rule
from distill.types import Sample
from filters.decisions.odd_traces import JudgedTrace

_OF_SOURCE: Final = ("limit", "part", "split", "subset")
_OF_SELECTION: Final = ("per_question", "per_teacher", "order", "mix", "limit")
_VERDICTS: Final = ("answer_verdict", "judge_verdict")
Steps = Sequence[tuple[StepRows, StepRows]]
"""The rows before and after each step, in order."""


def planned_samples(database: duckdb.DuckDBPyConnection) -> list[tuple[Sample, bool]]:
    """Some questions of the plan, at random (ids are hashes), and whether each has a trace."""
    query = database.execute("SELECT * FROM samples ORDER BY id LIMIT ?", [MOST_ROWS])
    names = [column[0] for column in query.description or ()]
    samples = [from_record(dict(zip(names, row, strict=True))) for row in query.fetchall()]
    ids = [sample.id for sample in samples]
    rows = database.execute("SELECT DISTINCT sample_id FROM decisions WHERE sample_id IN (SELECT unnest(?))", [ids])
    asked = {name for (name,) in rows.fetchall()}
    return [(sample, sample.id in asked) for sample in samples]


def steps_of(recipe: Recipe, planned: Sequence[tuple[Sample, bool]], judged: Sequence[JudgedTrace]) -> Steps:
    """The steps from the questions of the plan to the dataset. Each rule is compared with all complete traces."""
    rows = [(each, groups_of(each.sample, each.trace.teacher)) for each in judged]
    source = settings_text(f"data.{ASKED}", recipe.data[ASKED], _OF_SOURCE) if ASKED in recipe.data else ""
    change = f"data.{ASKED}: add such questions" + (f" ({source})" if source else "")
    if all(teacher.domains for teacher in recipe.teachers):  # questions of other domains are not in the plan
        where, change = " or the domains of the teachers", f"teachers.domains, or {change}"
    else:
        where = ""
    questions = StepRows.of((groups_of(sample) for sample, _ in planned), f"the source [data.{ASKED}]{where}", change)
    asked = StepRows.of(
        (groups_of(sample) for sample, is_asked in planned if is_asked),
        "generate",
        "[[teachers]] and their domains; `distill status` shows what is missing",
    )
    whole = [(each, groups) for each, groups in rows if each.trace.outcome == "complete"]
    complete = StepRows.of(
        (groups for _, groups in whole),
        "the outcome of the reply",
        "[[teachers]]: what ends their replies (sampling, prompt); `distill explain` shows some",
    )
    rules = (
        StepRows.of(
            (groups for each, groups in whole if rule.name not in each.rules),
            rule_step(rule.name),
            _change_of(rule),
        )
        for rule in recipe.filter.rules
    )
    kept = StepRows.of((groups for each, groups in rows if each.is_kept), "the rules", "filter.rules")
    select = recipe.filter.select
    chosen = StepRows.of(
        (groups for each, groups in rows if each.is_selected),
        SELECTION,
        settings_text("filter.select", select, _OF_SELECTION) or "filter.select",
    )
    return [
        (questions, questions),
        (questions, asked),
        (StepRows.of(groups for _, groups in rows), complete),
        *((complete, rule) for rule in rules),
        (kept, kept),
        (kept, chosen),
    ]


def rule_step(rule: str) -> str:
    return f"the rule {rule}"


def _change_of(rule: Rule) -> str:
    """A rule on verdicts drops rows that are wrong because of earlier steps, so these steps are checked first."""
    setting = f'filter.rules, name = "{rule.name}", drop = "{rule.drop}"'
    if any(name in rule.drop for name in _VERDICTS):
        causes = "the gold answers, the images or the teacher's prompt of these rows"
        return f"{causes}, if the verdicts on them are right ({setting})"
    return f"{setting}, or what it reads of these rows"
