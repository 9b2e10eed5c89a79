"""Check of rules on traces that answer right and are short, longer and long: a rule may not drop all of them."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa

from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, warning
from distill.errors import DistillError
from distill.rationale import enclose
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.filter import Rule
from distill.types import Outcome, Sample, Trace, Usage
from filters.signals import registry
from filters.tables.signal_database import closed_database

_SENTENCES = (2, 12, 60)
_QUESTIONS = 8


def check_rules_keep_something(context: CheckContext) -> Iterator[CheckResult]:
    """Every rule keeps at least one of the traces that answer right."""
    survey = context.readable(ASKED)
    asked = [sample for sample in survey.kept if sample.answers][:_QUESTIONS] if survey is not None else []
    if not asked:
        return
    rows = [row for sample in asked for row in _measured(context, sample)]
    connection = closed_database()
    connection.register("signals", pa.Table.from_pylist(rows, schema=registry.columns(context.recipe)))
    for rule in context.recipe.filter.rules:
        if _drops_all(connection, rule):
            yield warning(
                f"filter.rules.{rule.name}",
                f"drop = {rule.drop!r} is true of all of {len(rows)} made-up right traces, so it may keep none",
                f"look at filter.rules.{rule.name}.drop",
            )


def _drops_all(connection: duckdb.DuckDBPyConnection, rule: Rule) -> bool:
    try:
        row = connection.execute(f"SELECT bool_and(coalesce((\n{rule.drop}\n), false)) FROM signals").fetchone()
    except duckdb.Error:
        return False  # said of the rule
    return bool(row and row[0])


def _measured(context: CheckContext, sample: Sample) -> list[dict[str, object]]:
    try:
        built = tuple(each for each in registry.build(context.recipe) if each.name not in context.slow_parts)
        return registry.rows(built, sample, [ideal_trace(sample, count) for count in _SENTENCES])
    except DistillError:
        return []


def ideal_trace(sample: Sample, sentences: int, teacher: str = "made up") -> Trace:
    """A trace with the gold answer and this number of different sentences."""
    lines = [f"Step {number}: part {number} of it shows item {number * 7 % 11}." for number in range(sentences)]
    reasoning, answer = " ".join(lines), sample.answer or ""
    words = len(reasoning.split())
    return Trace(
        id=f"{sample.id}-{sentences}",
        sample_id=sample.id,
        teacher=teacher,
        k=sentences,
        seed=0,
        reasoning=reasoning,
        answer=answer,
        text=enclose(reasoning, answer),
        outcome=Outcome.COMPLETE,
        finish_reason="stop",
        usage=Usage(prompt=64, image=49, reasoning=words, answer=2),
        params={"temperature": 1.0, "top_p": 1.0, "max_tokens": 4096},
        model=teacher,
        revision="1",
        engine={"name": "made up", "version": "1"},
        prompt_sha="0" * 64,
        latency_s=1.0,
        created="2026-01-01T00:00:00+00:00",
    )
