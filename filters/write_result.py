"""What `distill filter` makes of the signals: decisions, dataset, card, ablation arms, checks and the report.

Processes write the dataset while this one makes the rest. The manifest is written by `filters.apply`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from distill.artifacts import manifest
from distill.artifacts.files import Output, describe, write_json, write_text
from distill.artifacts.layout import ARM_DATASETS, DATASET, DECISIONS, HEALTH, REPORT
from distill.artifacts.manifest import Manifest
from distill.errors import DataError
from distill.machine.memory import give_back_memory
from distill.recipe.recipe import Recipe
from distill.reports import findings
from distill.trace_records.human_labels import TraceLabel, compare_with_judge
from filters.dataset import ablation_sets, card_facts, exports, writer
from filters.dataset.card import render_card
from filters.decisions import dataset_checks, decide, diagnosis, funnel
from filters.decisions.funnel import Funnel
from filters.decisions.rules import UNREADABLE_IMAGE, Condition
from filters.tables.signal_database import Tables
from filters.tables.trace_index import PlannedTraces
from filters.tables.workers import Workers

_TEMPORARY = ".dataset.tmp"


def write_result(
    recipe: Recipe,
    rules: list[Condition],
    traces: PlannedTraces,
    tables: Tables,
    labels: Mapping[str, TraceLabel],
    folder: Path,
    workers: Workers,
) -> tuple[dict[str, int], dict[str, Output]]:
    """Decisions, dataset and report from the signals; returns counts and outputs of the stage.

    Decided again without them where images of chosen questions cannot be read.
    """
    temporary = folder / _TEMPORARY
    unreadable: dict[str, str] = {}
    while True:
        shutil.rmtree(temporary, ignore_errors=True)
        rows = decide.decide(
            rules,
            recipe.filter.select,
            tables,
            folder / DECISIONS,
            unreadable,
            seed=recipe.seed,
            threads=workers.count,
        )
        assert rows == traces.count, "a trace has no decision"
        give_back_memory()
        database = decide.database(tables, folder / DECISIONS, threads=workers.count)
        counted_funnel = funnel.measure(database)
        give_back_memory()
        if not counted_funnel.total["selected"]:
            found = _diagnose(recipe, database, traces, counted_funnel)
            raise DataError(f"{_nothing_kept(counted_funnel, recipe, folder)}\n{findings.as_text(found)}".rstrip())
        writing = workers.beside(partial(_write_dataset, recipe, traces, tables, folder, workers))
        described = _describe(recipe, rules, database, traces, counted_funnel, labels, folder, workers)
        written = writing.result()
        if not written.unreadable:
            break
        unreadable |= written.unreadable
    health, arm_rows = described.health, described.arm_rows
    parts = {name: describe(temporary / name, rows) for name, rows in written.files.items()}
    digest = manifest.fingerprint({name: part.sha256 for name, part in parts.items()})
    generated = Manifest.read(folder.parent / "generate")
    known, agreement = described.known, described.agreement
    text = render_card(
        recipe, counted_funnel, known, traces.makers, written.rows, generated, health, digest, agreement
    )
    write_text(temporary / "README.md", text)
    writer.replace(temporary, folder / DATASET)
    files = {
        "dataset/README.md": None,
        DECISIONS: traces.count,
        REPORT: None,
        HEALTH: None,
        **exports.write_stage_exports(recipe, folder),
        **{path.relative_to(folder).as_posix(): rows for path, rows in arm_rows.items()},
        **{path.relative_to(folder).as_posix(): pq.read_metadata(path).num_rows for path in tables.files()},
    }
    outputs = {name: describe(folder / name, count) for name, count in files.items()}
    outputs |= {f"dataset/{name}": part for name, part in parts.items()}
    return _counts(counted_funnel, traces, recipe) | health.counts(), dict(sorted(outputs.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """What is known of the decisions besides the dataset that they make."""

    health: dataset_checks.Health
    arm_rows: dict[Path, int]
    known: card_facts.CardFacts
    agreement: Mapping[str, Any]


def _describe(
    recipe: Recipe,
    rules: list[Condition],
    database: duckdb.DuckDBPyConnection,
    traces: PlannedTraces,
    counted_funnel: Funnel,
    labels: Mapping[str, TraceLabel],
    folder: Path,
    workers: Workers,
) -> _Described:
    """Write arms, checks and the report of decisions, while processes write the dataset.

    Each step reads the signals with a peak of its own: what it freed goes back before the next one begins.
    """
    from filters.report import page

    give_back_memory()
    found = _diagnose(recipe, database, traces, counted_funnel)
    arm_rows = ablation_sets.write(database, folder / ARM_DATASETS, recipe.seed)
    give_back_memory()
    health = dataset_checks.measure(database, traces, recipe.filter.select, workers)
    write_json(folder / HEALTH, health.as_fields() | {"diagnosis": found})
    known = card_facts.facts(database)
    give_back_memory()
    page.write(recipe, rules, database, traces, counted_funnel, folder / REPORT, health, found)
    agreement = compare_with_judge(labels, _verdicts(database, labels))
    return _Described(health=health, arm_rows=arm_rows, known=known, agreement=agreement)


def _diagnose(
    recipe: Recipe, database: duckdb.DuckDBPyConnection, traces: PlannedTraces, counted_funnel: Funnel
) -> list[dict[str, Any]]:
    return findings.chosen(diagnosis.diagnose(diagnosis.read_facts(recipe, database, traces, counted_funnel)))


def _verdicts(database: duckdb.DuckDBPyConnection, labels: Mapping[str, TraceLabel]) -> dict[str, str]:
    """The judge's verdicts on labelled traces."""
    if not labels:
        return {}
    query = "SELECT id, answer_verdict FROM signals WHERE id IN (SELECT unnest(?)) AND answer_verdict IS NOT NULL"
    return dict(database.execute(query, [list(labels)]).fetchall())


def _write_dataset(
    recipe: Recipe, traces: PlannedTraces, tables: Tables, folder: Path, workers: Workers
) -> writer.Written:
    """Write what was chosen. With a database of its own: it runs beside those who read the same decisions."""
    return writer.write(
        decide.database(tables, folder / DECISIONS, threads=workers.count),
        traces,
        folder / _TEMPORARY,
        style=recipe.filter.rationale,
        curriculum=recipe.filter.select.curriculum,
        weight=recipe.filter.select.weight,
        max_pixels=recipe.max_pixels,
        workers=workers,
    )


def _counts(counted_funnel: Funnel, traces: PlannedTraces, recipe: Recipe) -> dict[str, int]:
    return {
        "input": traces.count,
        "missing": traces.planned - traces.count,
        "complete": counted_funnel.total["complete"],
        "correct": counted_funnel.total["correct"],
        "kept": counted_funnel.total["kept"],
        "dropped": counted_funnel.dropped,
        "selected": counted_funnel.total["selected"],
        **{f"rule.{rule.name}": counted_funnel.rules.get(rule.name, 0) for rule in recipe.filter.rules},
        **{f"rule.{name}": count for name, count in counted_funnel.rules.items() if name == UNREADABLE_IMAGE},
        **{f"error.{name}": count for name, count in counted_funnel.errors.items()},
        **{f"timed_out.{name}": count for name, count in counted_funnel.timed_out.items()},
    }


def _nothing_kept(counted_funnel: Funnel, recipe: Recipe, folder: Path) -> str:
    rules = {rule.name: rule.drop for rule in recipe.filter.rules}
    lines = [f"  {name}: {count:,} ({rules.get(name, 'images')})" for name, count in counted_funnel.rules.items()]
    asked_count = counted_funnel.total["asked"]
    return (
        f"{folder}: no trace of {asked_count:,} is kept ({counted_funnel.total['complete']:,} complete, "
        f"{counted_funnel.total['correct']:,} correct). Dropped by:\n"
        + "\n".join(lines or ["  (there was no trace)"])
        + "\n"
        "Look at some with `distill explain`, then change filter.rules, or the teachers' prompts and limits"
    )
