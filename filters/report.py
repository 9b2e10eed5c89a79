"""The report page of the filter stage: funnel, rules, distributions and examples with their pictures."""

from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import orjson

from distill import pages
from distill.artifacts import write_text
from distill.recipe import Recipe
from filters.conditions import NOT_SELECTED, UNREADABLE_IMAGE, Condition
from filters.funnel import STEPS, Funnel
from filters.registry import FAMILIES
from filters.traces import Index

_SELECTED_EXAMPLES = 9
_DROPPED_EXAMPLES = 3
_RATIONALE_CHARACTERS = 4000


def write(
    recipe: Recipe,
    rules: list[Condition],
    database: duckdb.DuckDBPyConnection,
    index: Index,
    found: Funnel,
    path: Path,
) -> None:
    """Write the page of a database with `signals` and `decisions`."""
    unit, lengths, clipped = _lengths(database)
    total = found.total
    figures = [
        ("traces asked for", f"{total['asked']:,}"),
        ("kept by the rules", _share(total["kept"], total["asked"])),
        ("examples selected", f"{total['selected']:,}"),
        ("questions covered", _share(found.questions["selected"], found.questions["asked"])),
    ]
    every = [value for values in lengths.values() for value in values]
    if every:
        figures.append((f"median rationale, {unit}", f"{median(every):,.0f}"))
    page = pages.render(
        "filter_report.html",
        kicker="distill filter",
        title=f"{recipe.name}: what the teachers wrote, and what is worth learning from",
        lead="Every trace was measured, judged by the rules of the recipe, and kept or dropped for reasons that are "
        "listed here.",
        footer=[
            "“distill explain RUN ID” shows everything that is known of one trace; its id may be shortened.",
            "Distillation does not correct what teachers see or reason wrongly, inherits their biases and creates no "
            "new perception.",
        ],
        figures=figures,
        steps=STEPS,
        funnel=[(step, total[step]) for step in STEPS],
        groups=[("teacher", list(found.by_teacher.items())), ("domain", list(found.by_domain.items()))],
        rules=_rules(recipe, rules, found),
        errors=found.errors,
        unit=unit,
        clipped=clipped,
        lengths=_plots(lengths),
        difficulty=_difficulty(database),
        selected=_selected(database, index),
        dropped=[
            {"name": name, "count": count, "examples": _dropped(database, index, name)}
            for name, count in found.rules.items()
            if name != NOT_SELECTED
        ],
    )
    write_text(path, page)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "none"


def _rules(recipe: Recipe, rules: list[Condition], found: Funnel) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"name": rule.name, "condition": rule.sql, "unmeasured": _unmeasured(recipe, rule.columns)} for rule in rules
    ]
    if UNREADABLE_IMAGE in found.rules:
        rows.append({"name": UNREADABLE_IMAGE, "condition": "an image cannot be read any more", "unmeasured": ""})
    asked = found.total["asked"] or 1
    for row in rows:
        count = found.rules.get(row["name"], 0)
        row |= {"count": count, "alone": found.only.get(row["name"], 0), "share": count / asked}
    return rows


def _unmeasured(recipe: Recipe, columns: tuple[str, ...]) -> str:
    """Columns of a rule that nobody asked to measure: the rule never applies."""
    families = (name for name in FAMILIES if name not in recipe.filter.signals)
    absent = {column for name in families for column in FAMILIES[name].columns.names}
    return ", ".join(column for column in columns if column in absent)


def _lengths(database: duckdb.DuckDBPyConnection) -> tuple[str, dict[str, list[int]], bool]:
    """Unit, and rationale lengths of the selected traces by teacher."""
    words = database.execute("SELECT count(*) FROM signals WHERE length_state = 'words'").fetchall()[0][0]
    found: dict[str, list[int]] = {}
    rows = database.execute(
        """SELECT signals.teacher, rationale_tokens FROM signals JOIN decisions USING (id)
        WHERE selected AND rationale_tokens IS NOT NULL ORDER BY 1, 2"""
    ).fetchall()
    for teacher, tokens in rows:
        found.setdefault(teacher, []).append(tokens)
    return ("words" if words else "student tokens"), found, bool(rows)


def _plots(lengths: dict[str, list[int]]) -> list[dict[str, Any]]:
    """One histogram a teacher on a common axis, so that the teachers can be compared."""
    every = sorted(value for values in lengths.values() for value in values)
    if not every:
        return []
    low, high = every[0], every[int(0.99 * (len(every) - 1))]
    return [
        {
            "caption": teacher,
            "detail": f"{len(values):,} traces, median {median(values):,.0f}",
            "bins": pages.histogram(values, low=low, high=high),
        }
        for teacher, values in lengths.items()
    ]


def _difficulty(database: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    rows = database.execute(
        """SELECT domain, question_pass_rate FROM signals WHERE question_pass_rate IS NOT NULL
        GROUP BY sample_id, domain, question_pass_rate ORDER BY 1, 2"""
    ).fetchall()
    domains: dict[str, list[float]] = {}
    for domain, rate in rows:
        domains.setdefault(domain, []).append(rate)
    return [
        {
            "caption": domain or "(no domain)",
            "detail": f"{len(rates):,} questions, mean {100 * sum(rates) / len(rates):.0f} %",
            "bins": pages.histogram(rates, bins=10, low=0.0, high=0.999),
        }
        for domain, rates in domains.items()
    ]


def _selected(database: duckdb.DuckDBPyConnection, index: Index) -> list[dict[str, Any]]:
    """Selected traces, each teacher and domain in turn; ids are hashes, so the smallest ones are a fair sample."""
    return _examples(
        database,
        index,
        f"""SELECT id FROM decisions WHERE selected
        ORDER BY row_number() OVER (PARTITION BY teacher, domain ORDER BY id), id LIMIT {_SELECTED_EXAMPLES}""",
    )


def _dropped(database: duckdb.DuckDBPyConnection, index: Index, rule: str) -> list[dict[str, Any]]:
    return _examples(
        database,
        index,
        f"""SELECT id FROM decisions WHERE list_contains(list_transform(reasons, lambda reason: reason.rule), ?)
        ORDER BY len(reasons), row_number() OVER (PARTITION BY teacher, domain ORDER BY id), id
        LIMIT {_DROPPED_EXAMPLES}""",
        [rule],
    )


def _examples(
    database: duckdb.DuckDBPyConnection, index: Index, query: str, values: list[str] | None = None
) -> list[dict[str, Any]]:
    ids = [row[0] for row in database.execute(query, values or []).fetchall()]
    rows = database.execute(
        """SELECT id, signals.sample_id, answer_verdict, rationale_tokens, reasons
        FROM signals JOIN decisions USING (id) WHERE list_contains(?, id)""",
        [ids],
    ).fetchall()
    known = {row[0]: row for row in rows}
    samples = index.samples_of(row[1] for row in rows)
    found = []
    for trace in index.traces(ids):
        _, sample_id, verdict, tokens, reasons = known[trace.id]
        sample = samples[sample_id]
        rationale = trace.reasoning.strip() or ("" if trace.answer else trace.text)
        found.append(
            {
                "id": trace.id,
                "question": sample.question,
                "pictures": pages.pictures(sample),
                "gold": sample.answer,
                "teacher": trace.teacher,
                "domain": sample.domain,
                "answer": trace.answer,
                "verdict": verdict,
                "tokens": tokens,
                "rationale": _clip(rationale),
                "reasons": [{**reason, "values": orjson.loads(reason["values"])} for reason in reasons],
            }
        )
    return found


def _clip(text: str) -> str:
    return text if len(text) <= _RATIONALE_CHARACTERS else f"{text[:_RATIONALE_CHARACTERS]} …"
