"""Writes the results of `distill filter` from the signals: decisions, dataset, card, ablation arms, checks, report.

Other processes write the dataset while this one makes the rest. The manifest is written by `filters.apply`.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.artifacts.files import Output, describe, write_json, write_text
from distill.artifacts.layout import ARM_DATASETS, DATASET, DECISIONS, HEALTH, REPORT
from distill.artifacts.manifest import Manifest
from distill.diagnosis.row_groups import as_fields
from distill.errors import NothingKept, RecipeError, require_rows
from distill.machine.memory import give_back_memory
from distill.recipe.recipe import Recipe
from distill.reports import findings
from distill.trace_records.human_labels import TraceLabel, compare_with_judge
from distill.word_tables import counted
from filters.dataset import ablation_sets, card_facts, exports, writer
from filters.dataset.card import Described, render_card
from filters.decisions import dataset_checks, decide, diagnosis, diagnosis_facts, funnel
from filters.decisions.funnel import Funnel
from filters.decisions.rules import UNREADABLE_IMAGE, Condition
from filters.tables.signal_database import Tables
from filters.tables.trace_index import PlannedTraces
from filters.tables.workers import Workers

_TEMPORARY = ".dataset.tmp"


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Makes the result of one filter stage in its folder."""

    recipe: Recipe
    rules: list[Condition]
    traces: PlannedTraces
    tables: Tables
    labels: Mapping[str, TraceLabel]
    folder: Path
    workers: Workers
    dataset: writer.DatasetWriter
    known: Mapping[Path, Output] = field(default_factory=dict)
    """Digests of tables that are known."""
    write_decisions: Callable[[Path], int] | None = None
    """Writes the decision table where others have decided, and all images can be read."""
    _shared: list[duckdb.DuckDBPyConnection] = field(default_factory=list)
    """The database of the decisions that are there, for all steps of one process."""

    def write(self) -> tuple[dict[str, int], dict[str, Output], RecipeError | None]:
        """Decisions, dataset and report from the signals; returns counts and outputs of the stage, and the error of
        exports that are missing.

        Decided again without them where images of chosen questions cannot be read.
        """
        folder, temporary = self.folder, self.folder / _TEMPORARY
        unreadable: dict[str, str] = {}
        while True:
            shutil.rmtree(temporary, ignore_errors=True)
            self._decide(unreadable)
            writing = self.dataset.start(
                writer.DatasetTask(
                    open_database=self._database,
                    tables=self.tables,
                    decisions=self.folder / DECISIONS,
                    index=self.traces,
                    folder=temporary,
                    workers=self.workers,
                    unreadable=dict(unreadable),
                )
            )
            described, health, arm_rows = self._describe()
            written = writing.result()
            if not written.unreadable:
                break
            unreadable |= written.unreadable
        generated = Manifest.read(folder.parent / "generate")
        card = render_card(self.recipe, described, written.files, self.traces.makers, generated)
        write_text(temporary / "README.md", card)
        writer.replace(temporary, folder / DATASET)
        tables = {path: pq.read_metadata(path).num_rows for path in self.tables.files() if path not in self.known}
        exported, failure = exports.write_stage_exports(self.recipe, folder)
        files = {
            "dataset/README.md": None,
            DECISIONS: self.traces.count,
            REPORT: None,
            HEALTH: None,
            **exported,
            **{path.relative_to(folder).as_posix(): rows for path, rows in (arm_rows | tables).items()},
        }
        outputs = {name: describe(folder / name, count) for name, count in files.items()}
        outputs |= {path.relative_to(folder).as_posix(): output for path, output in self.known.items()}
        outputs |= {f"dataset/{name}": part for name, part in written.files.items()}
        counts = _counts(described.funnel, self.traces, self.recipe) | health.counts()
        return counts, dict(sorted(outputs.items())), failure

    def _decide(self, unreadable: Mapping[str, str]) -> None:
        """Write the decisions. NothingKept where nothing is selected."""
        self._shared.clear()
        if self.write_decisions is not None and not unreadable:
            rows = self.write_decisions(self.folder / DECISIONS)
        else:
            rows = decide.decide(
                self.rules,
                self.recipe.filter.select,
                self.tables,
                self.folder / DECISIONS,
                unreadable,
                seed=self.recipe.seed,
                threads=self.workers.count,
            )
        count = self.traces.count
        require_rows(
            rows == count, f"{self.folder / DECISIONS}: {counted(rows, 'decision')} for {counted(count, 'trace')}"
        )
        give_back_memory()
        if not pc.any(pq.read_table(self.folder / DECISIONS, columns=["selected"])["selected"]).as_py():
            database = self._database()
            counts = funnel.measure(database)
            found = findings.as_text(_findings(self._facts(database, counts)))
            raise NothingKept(f"{_nothing_kept(counts, self.recipe, self.folder)}\n{found}".rstrip())

    def _describe(self) -> tuple[Described, dataset_checks.Health, dict[Path, int]]:
        """Count the decisions, and write arms, checks and the report of them, while processes write the dataset.

        Each step has its own memory peak; its freed memory goes back to the system before the next step begins.
        """
        from filters.report import page

        give_back_memory()
        checking = self.workers.beside(
            lambda: dataset_checks.measure(self._database(), self.traces, self.recipe.filter.select, self.workers)
        )
        database = self._database()
        counts = funnel.measure(database)
        give_back_memory()
        facts = self._facts(database, counts)
        found = _findings(facts)
        arm_rows = ablation_sets.write(database, self.folder / ARM_DATASETS, self.recipe.seed)
        give_back_memory()
        known = card_facts.facts(database)
        give_back_memory()
        decided = page.Decided(self.recipe, self.rules, database, self.traces, counts)
        page.write(decided, self.folder / REPORT, checking.result, found)
        health = checking.result()
        write_json(
            self.folder / HEALTH,
            health.as_fields() | {"diagnosis": found} | as_fields(after for _, after in facts.steps),
        )
        agreement = compare_with_judge(self.labels, _verdicts(database, self.labels))
        described = Described(funnel=counts, known=known, health=health, agreement=agreement)
        return described, health, arm_rows

    def _facts(self, database: duckdb.DuckDBPyConnection, counts: Funnel) -> diagnosis_facts.TraceFacts:
        return diagnosis_facts.read_facts(self.recipe, database, self.traces, counts, self.workers)

    def _database(self) -> duckdb.DuckDBPyConnection:
        """A database of the decisions. With one process all steps share it: opening one takes 30 ms, as a tenth of a
        small run does. With several, steps run in threads, and each has its own.
        """
        if self._shared:
            return self._shared[0]
        samples, threads = self.traces.sample_file, self.workers.count
        database = decide.database(self.tables, self.folder / DECISIONS, threads=threads, samples=samples)
        if threads == 1:
            self._shared.append(database)
        return database


def _findings(facts: diagnosis_facts.TraceFacts) -> list[dict[str, Any]]:
    return findings.chosen(diagnosis.diagnose(facts))


def _verdicts(database: duckdb.DuckDBPyConnection, labels: Mapping[str, TraceLabel]) -> dict[str, str]:
    """The judge's verdicts on labelled traces."""
    if not labels:
        return {}
    query = "SELECT id, answer_verdict FROM signals WHERE id IN (SELECT unnest(?)) AND answer_verdict IS NOT NULL"
    return dict(database.execute(query, [list(labels)]).fetchall())


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
    if not asked_count:
        return f"{folder}: there are no traces to filter; run `distill generate`, or check its questions"
    if counted_funnel.rules.get(UNREADABLE_IMAGE) == asked_count:
        next_step = (
            "No image can be read where `distill generate` noted it: bring the images back, or, if they moved, run "
            "`distill generate` again, which notes where they are now and asks nothing"
        )
    else:
        next_step = (
            "Look at some with `distill explain`, then change filter.rules, or the teachers' prompts and limits"
        )
    return (
        f"{folder}: no trace of {asked_count:,} is kept ({counted_funnel.total['complete']:,} complete, "
        f"{counted_funnel.total['correct']:,} correct). Dropped by:\n" + "\n".join(lines) + f"\n{next_step}"
    )
