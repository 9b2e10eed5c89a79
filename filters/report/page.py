"""The report page of the filter stage: which traces came in, which are kept and why, and what other rules would keep.

A module for each section (`filters.report.*`) computes its numbers in the database; this one renders the page. No
decision is made here.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from distill.artifacts.manifest import Manifest
from distill.recipe.recipe import Recipe
from distill.reports import html
from distill.word_tables import counted
from filters.decisions.dataset_checks import Health
from filters.decisions.funnel import STEPS, Funnel
from filters.decisions.rules import NOT_SELECTED, UNREADABLE_IMAGE, Condition
from filters.report import distributions, examples, table, teachers, thresholds
from filters.report import overlap as report_overlap
from filters.report.table import TableFacts
from filters.signals import registry
from filters.signals.base import WORDS
from filters.tables.trace_index import PlannedTraces

_FIRST = "id IN (SELECT min(id) FROM page GROUP BY sample_id)"
"""One trace of each question."""


class Decided(NamedTuple):
    """What a page is about; the database has `signals` and `decisions`."""

    recipe: Recipe
    rules: list[Condition]
    database: duckdb.DuckDBPyConnection
    traces: PlannedTraces
    funnel: Funnel


def write(
    decided: Decided, path: Path, health: Callable[[], Health], findings: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Write the page. The template calls `health`, which may wait."""
    recipe, rules, database, index, funnel = decided
    facts = table.gather(database, registry.schemas(recipe))
    select = recipe.filter.select
    unit = _unit(facts)
    overlap, leaks = report_overlap.duplicates(facts), report_overlap.contamination(facts)
    generated = Manifest.read(path.parent.parent / "generate")
    selected = examples.selected(facts)
    dropped = _dropped(facts, rules, funnel)
    ids = [*selected, *leaks.examples, *(name for row in dropped for name in row["ids"])]
    ids += [name for cluster in overlap.biggest for name in (cluster.preferred, cluster.other) if name]
    page = html.render(
        "filter_report.html",
        kicker="distill filter",
        title=f"{recipe.name}: traces of the teachers, and which of them are selected",
        lead="Every trace was measured, judged by the rules of the recipe, and kept or dropped for reasons that are "
        "listed here.",
        footer=[
            "“distill explain RUN ID” shows everything about one trace; the first characters of its id are enough.",
            "Distillation does not correct errors of the teachers. The student inherits their biases and gains no "
            "new perception.",
        ],
        other_pages=html.other_pages(path, path.parent.parent),
        figures=_figures(facts, funnel, unit),
        findings=findings,
        steps=STEPS,
        funnel=[(step, funnel.total[step]) for step in STEPS],
        groups=[("teacher", list(funnel.by_teacher.items())), ("domain", list(funnel.by_domain.items()))],
        rules=_rules(facts, rules, funnel),
        without={row.rule: row for row in thresholds.without(facts, rules, select)},
        curves=[_draw_curve(curve) for curve in thresholds.curves(facts, rules, select)],
        mixed=bool(select.mix),
        stand_ins=thresholds.stand_ins(facts, rules),
        states=table.states(facts),
        absent=facts.absent,
        unit=unit,
        distributions=distributions.measure(facts),
        lengths=_histograms(facts, "rationale_tokens", "teacher", "selected", ("trace", "median {:,.0f}")),
        difficulty=_histograms(
            facts, "question_pass_rate", "domain", _FIRST, ("question", "median {:.0f} %"), bins=10, scale=100
        ),
        teachers=teachers.compare(facts, generated.tokens if generated else {}, unit),
        overlap=overlap,
        leaks=leaks,
        selected=selected,
        dropped=dropped,
        examples=examples.load(facts, index, ids),
        health=health,
    )
    html.write_page(path, path.parent.parent, page)


def _figures(facts: TableFacts, funnel: Funnel, unit: str) -> list[tuple[str, str]]:
    total = funnel.total
    figures = [
        ("traces asked for", f"{total['asked']:,}"),
        ("kept by the rules", _share(total["kept"], total["asked"])),
        ("examples selected", f"{total['selected']:,}"),
        ("questions covered", _share(funnel.questions["selected"], funnel.questions["asked"])),
    ]
    if facts.has("rationale_tokens"):
        (middle,) = facts.row("SELECT median(rationale_tokens) FROM page WHERE selected")
        if middle is not None:
            figures.append((f"median rationale, {unit}", f"{middle:,.0f}"))
    return figures


def _share(part: int, whole: int) -> str:
    """A share in percent."""
    return html.percent(part / whole, 0) if whole else "none"


def _unit(facts: TableFacts) -> str:
    if "length" not in facts.families:
        return "words"
    (words,) = facts.row(f"SELECT count(*) FROM page WHERE length_state = '{WORDS}'")
    return "words" if words else "student tokens"


def _rules(facts: TableFacts, rules: list[Condition], funnel: Funnel) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"name": rule.name, "condition": rule.sql, "unmeasured": _unmeasured(facts, rule.columns)} for rule in rules
    ]
    if UNREADABLE_IMAGE in funnel.rules:
        rows.append({"name": UNREADABLE_IMAGE, "condition": "an image cannot be read any more", "unmeasured": ""})
    asked = funnel.total["asked"] or 1
    for row in rows:
        count = funnel.rules.get(row["name"], 0)
        row |= {"count": count, "alone": funnel.only.get(row["name"], 0), "share": count / asked}
    return rows


def _unmeasured(facts: TableFacts, columns: tuple[str, ...]) -> str:
    """Columns of a rule that no requested signal measures: the rule never applies."""
    absent = {column for name in facts.absent for column in facts.schemas[name].names}
    return ", ".join(column for column in columns if column in absent)


def _dropped(facts: TableFacts, rules: list[Condition], funnel: Funnel) -> list[dict[str, Any]]:
    """Rules with the traces that they drop; the rule that drops most comes first."""
    conditions = {rule.name: rule for rule in rules}
    rows = []
    for name, count in funnel.rules.items():
        if name == NOT_SELECTED:
            continue
        rule = conditions.get(name)
        ids, order = examples.worst(facts, rule) if rule else (examples.dropped(facts, name), "")
        condition = rule.sql if rule else "an image cannot be read any more"
        rows.append({"name": name, "count": count, "condition": condition, "ids": ids, "order": order})
    return rows


def _histograms(
    facts: TableFacts,
    column: str,
    group: str,
    where: str,
    detail: tuple[str, str],
    *,
    bins: int = 24,
    scale: float = 1,
) -> list[dict[str, Any]]:
    """A histogram of a column for each teacher or domain.

    `detail`: what is counted, and a place for the median, times `scale`.
    """
    if not facts.has(column):
        return []
    plots = distributions.groups(facts, facts.columns[column], group, where, bins=bins)
    return [
        {
            "caption": name or f"(no {group})",
            "detail": f"{counted(count, detail[0])}, {detail[1].format(scale * middle)}",
            "bins": bars,
        }
        for name, (bars, count, middle) in plots.items()
    ]


def _draw_curve(curve: thresholds.ThresholdCurve) -> dict[str, Any]:
    """A curve with its points in a box of 100 by 40."""
    low, high = curve.points[0][0], curve.points[-1][0]
    span, highest = (high / 2 - low / 2) or 0.5, curve.passing or 1  # halves: a whole span may be no number

    def across(number: float) -> float:
        return 100 * (number / 2 - low / 2) / span

    points = [(across(number), 40 - 40 * kept / highest) for number, kept in curve.points]
    return {
        "curve": curve,
        "low": low,
        "high": high,
        "line": " ".join(f"{x:.2f},{y:.2f}" for x, y in points),
        "present": across(curve.number),
    }
