"""The figures that the diagnosis of a run's traces and its dataset reads (filters/decisions/diagnosis.py)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import duckdb
import orjson

from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.filter import Select
from distill.reports import gold_faults
from distill.types import Sample
from filters.decisions.funnel import Funnel
from filters.decisions.odd_traces import JudgedTrace, judged_traces
from filters.decisions.row_steps import Steps, planned_samples, steps_of
from filters.signals.base import ERROR
from filters.tables.trace_index import PlannedTraces
from filters.tables.workers import SERIAL, Workers

SURE: Final = 0.8
"""Confidence of the signal `ocr` from which an unsupported claim counts."""
_LOOKED_AT: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenValues:
    """Complete traces, not judged wrong, whose values could be compared with a table or the text of the image."""

    teachers: tuple[str, ...]
    checked: int
    unseen: int
    """Those of them that state values which are not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPart:
    """A signal, or an answer type of the user, that failed on some traces."""

    what: str
    count: int
    of: int
    effect: str
    change: str
    """What corrects it, in the words of a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFacts:
    """The figures that the rules read."""

    recipe: Recipe
    funnel: Funnel
    teachers: Mapping[str, Mapping[str, int]]
    """Counts of each teacher: asked, complete, cut, declined, spoken (rationales with a known language),
    foreign_language (neither that of the question nor English), unformed, untold (no rationale), judged, correct,
    agreed (wrong or undecided with a majority of their own answers).
    """
    same_text: tuple[int, int]
    """Answers judged wrong or undecided whose text is the gold answer, and the number of answers that were compared.
    """
    wrongly_typed: tuple[str, ...] = ()
    told: str = ""
    """This and `wrongly_typed`: what `distill.reports.gold_faults` finds in the first questions."""
    speaks_of_hint: tuple[int, int] = (0, 0)
    """How many of the first rationales with a hint speak of the given answer, and how many there are."""
    weightless: int = 0
    """Selected traces whose weight is 0."""
    correct_alone: Mapping[str, int]
    """Correct traces that a rule alone drops."""
    questions: Mapping[str, int]
    """Questions asked, with a kept trace, leaked into test data, and asked twice about the same images."""
    leaked_from: tuple[str, ...] = ()
    """The test sets that hold leaked questions."""
    unseen: Mapping[bool, "UnseenValues"] = field(default_factory=dict)
    """Counts for teachers with and without the gold answer, in the domains where some have it."""
    outcomes: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Teacher to its most frequent outcome without an answer, limits of tokens and refusals aside, with its count."""
    copies: Mapping[str, int] = field(default_factory=dict)
    """Teacher to its traces that are, word for word, an earlier one of their question."""
    judged: Sequence[JudgedTrace] = ()
    """Some traces with their questions."""
    failed: Sequence[FailedPart] = ()
    """Signals and answer types that failed on traces."""
    steps: Steps = ()
    """The rows before and after each step, by group."""
    answers: tuple[str, int, int]
    """The most frequent answer of the dataset, how many of its traces gave it, the size of the dataset."""


def read_facts(
    recipe: Recipe,
    database: duckdb.DuckDBPyConnection,
    traces: PlannedTraces,
    funnel: Funnel,
    workers: Workers = SERIAL,
) -> TraceFacts:
    """The facts of a database with `signals`, `decisions` and `samples`. `workers` look at the gold answers."""
    rows = database.execute(_TEACHERS)
    names = [column[0] for column in rows.description or ()][1:]
    teachers = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows.fetchall()}
    ((asked, kept, leaked, doubled),) = database.execute(_QUESTIONS).fetchall()
    if "question" not in recipe.filter.signals:
        ((doubled,),) = database.execute(_REPEATED).fetchall()
    answer = database.execute(_ANSWERS).fetchall()
    leaked_from = database.execute(_LEAKED_FROM).fetchall()
    alone = database.execute(
        """SELECT reasons[1].rule, count(*) FROM decisions JOIN local USING (id)
        WHERE len(reasons) = 1 AND NOT kept AND answer_verdict = 'correct' GROUP BY 1"""
    ).fetchall()
    judged = judged_traces(database, traces)
    ((types, told),) = workers.map(gold_faults.find, [_first_samples(database, traces)])
    return TraceFacts(
        recipe=recipe,
        funnel=funnel,
        teachers=teachers,
        same_text=_same_text(database, traces),
        wrongly_typed=types,
        told=told,
        speaks_of_hint=_speaks_of_hint(database, traces),
        weightless=_weightless(database, recipe.filter.select.weight),
        correct_alone=dict(alone),
        unseen={
            hinted: UnseenValues(teachers=tuple(names), checked=checked, unseen=unseen)
            for hinted, names, checked, unseen in database.execute(_UNSEEN).fetchall()
        },
        questions={"asked": asked, "kept": kept, "leaked": leaked, "doubled": doubled},
        leaked_from=tuple(name for (name,) in leaked_from),
        outcomes={teacher: (outcome, n) for teacher, outcome, n in database.execute(_OUTCOMES).fetchall()},
        copies=dict(database.execute(_COPIES).fetchall()),
        judged=judged,
        failed=[*_failed_signals(database, funnel), *_failed_types(database)],
        steps=steps_of(recipe, planned_samples(database), judged),
        answers=answer[0] if answer else ("", 0, 0),
    )


def _failed_signals(database: duckdb.DuckDBPyConnection, funnel: Funnel) -> Iterator[FailedPart]:
    for name, count in funnel.errors.items():
        first = f"SELECT min(id), arg_min(signal_errors, id) FROM signals WHERE {name}_state = '{ERROR}'"
        ((trace, reasons),) = database.execute(first).fetchall()
        reason = orjson.loads(reasons or "{}").get(name, "no reason is stored")
        yield FailedPart(
            what=f"The signal {name!r}",
            count=count,
            of=funnel.total["asked"],
            effect=f"and rules that read it do not drop them; the first: trace {trace}: {' '.join(reason.split())}",
            change="filter.signals: correct the signal; `distill explain` shows the error of a trace",
        )


def _failed_types(database: duckdb.DuckDBPyConnection) -> Iterator[FailedPart]:
    """Answer types of the user whose function raised, or returned what is no verdict."""
    for name, count, of in database.execute(_OWN_TYPES).fetchall():
        yield FailedPart(
            what=f"The answer type {name!r}",
            count=count,
            of=of,
            effect="whose answers count as undecided",
            change=f"data.{ASKED}.answer_type: correct its function; `distill check` tells the first error",
        )


_OWN_TYPES = """
    SELECT split_part(answer_type, '@', 1), count(*) FILTER (answer_reason = 'own_type_failed'), count(*)
    FROM local GROUP BY 1 HAVING count(*) FILTER (
        answer_reason = 'own_type_failed') > 0 ORDER BY 1"""
_TEACHERS = """
    SELECT teacher, count(*) AS asked, count(*) FILTER (outcome = 'complete') AS complete,
        count(*) FILTER (outcome LIKE 'truncated%') AS cut, count(*) FILTER (refusal) AS declined,
        count(language_differs) AS spoken,
        count(*) FILTER (language_differs AND language <> 'en') AS foreign_language,
        count(*) FILTER (outcome = 'complete' AND NOT format_valid) AS unformed,
        count(*) FILTER (outcome = 'complete' AND NOT has_reasoning) AS untold,
        count(*) FILTER (outcome = 'complete' AND answer_verdict IS NOT NULL) AS judged,
        count(*) FILTER (outcome = 'complete' AND answer_verdict = 'correct') AS correct,
        count(*) FILTER (outcome = 'complete' AND answer_verdict <> 'correct' AND self_consistency > 0.5) AS agreed
    FROM local GROUP BY 1 ORDER BY 1"""
_UNSEEN = f"""
    SELECT hinted, list(DISTINCT teacher ORDER BY teacher), count(*), count(*) FILTER (
        coalesce(unsupported_values > 0, false)
        OR coalesce(ocr_verdict = 'unsupported' AND ocr_confidence > {SURE}, false))
    FROM local WHERE outcome = 'complete' AND answer_verdict IS DISTINCT FROM 'wrong'
        AND (coalesce(grounding_checked, 0) > 0 OR coalesce(ocr_checked, 0) > 0)
        AND domain IN (SELECT domain FROM local WHERE hinted)
    GROUP BY 1"""
# Each from the table that has it: a join of both would hold the ids of all traces.
_QUESTIONS = """
    SELECT count(DISTINCT sample_id), count(DISTINCT sample_id) FILTER (kept),
        (SELECT count(DISTINCT sample_id) FROM local WHERE contamination = 'pair'),
        (SELECT count(DISTINCT sample_id) FROM signals WHERE question_duplicate_of IS NOT NULL)
    FROM decisions"""
_LEAKED_FROM = """
    SELECT DISTINCT contamination_source FROM local
    WHERE contamination = 'pair' AND contamination_source IS NOT NULL ORDER BY 1"""
_REPEATED = r"""
    SELECT count(*) - count(DISTINCT hash(
        rtrim(regexp_replace(lower(trim(question)), '\s+', ' ', 'g'), ' .?!:;,…？！。'),
        list_transform(images, lambda image: image.sha256), meta))
    FROM samples"""
"""Questions that repeat another one about the same images, but for case, layout and closing punctuation.

By the bytes of the images: the signal `question` also finds images that were saved again, and decodes each.
"""
_OUTCOMES = """
    SELECT teacher, outcome, count(*) AS n FROM local
    WHERE outcome NOT IN ('complete', 'refusal') AND outcome NOT LIKE 'truncated%'
    GROUP BY 1, 2 QUALIFY row_number() OVER (PARTITION BY teacher ORDER BY n DESC, outcome) = 1"""
_COPIES = "SELECT teacher, count(*) FROM local WHERE exact_duplicate GROUP BY 1"
_WEIGHTLESS = """
    SELECT count(*) FILTER (TRY_CAST(({weight}) AS DOUBLE) <= 0)
    FROM signals WHERE id IN (SELECT id FROM decisions WHERE selected)"""
_OF_HINT = re.compile(
    r"\b(?:given|provided|stated|supplied|correct|reference|expected|known)\s+answer\b"
    r"|\banswer\s+(?:is|was)\s+(?:already\s+)?(?:given|provided|stated|known)\b|\b(?:we|i)\s+(?:are|am|were|was)\s+told\b",
    re.IGNORECASE,
)
# The majority answer of a question may differ from the answer of the selected trace.
_ANSWERS = """
    SELECT majority_answer, count(*) AS n, (SELECT count(*) FROM decisions WHERE selected)
    FROM local JOIN decisions USING (id) WHERE selected AND in_majority GROUP BY 1 ORDER BY n DESC, 1 LIMIT 1"""


def _same_text(database: duckdb.DuckDBPyConnection, traces: PlannedTraces) -> tuple[int, int]:
    ids = database.execute(
        "SELECT id FROM local WHERE outcome = 'complete' AND answer_verdict <> 'correct' ORDER BY id LIMIT ?",
        [_LOOKED_AT],
    ).fetchall()
    refused = list(traces.traces([name for (name,) in ids]))
    samples = traces.samples_of(trace.sample_id for trace in refused)
    same = sum(
        trace.answer.strip().casefold() in {gold.strip().casefold() for gold in samples[trace.sample_id].answers}
        for trace in refused
    )
    return same, len(refused)


def _weightless(database: duckdb.DuckDBPyConnection, weight: str) -> int:
    if weight == Select().weight:
        return 0  # the join would hold the ids of all traces
    ((count,),) = database.execute(_WEIGHTLESS.format(weight=weight)).fetchall()
    return int(count)


def _speaks_of_hint(database: duckdb.DuckDBPyConnection, traces: PlannedTraces) -> tuple[int, int]:
    ids = database.execute("SELECT id FROM local WHERE hinted ORDER BY id LIMIT ?", [_LOOKED_AT]).fetchall()
    hinted = list(traces.traces([name for (name,) in ids]))
    return sum(_OF_HINT.search(trace.reasoning) is not None for trace in hinted), len(hinted)


def _first_samples(database: duckdb.DuckDBPyConnection, traces: PlannedTraces) -> list[Sample]:
    rows = database.execute("SELECT sample_id FROM decisions ORDER BY id LIMIT ?", [_LOOKED_AT]).fetchall()
    return list(traces.samples_of({name for (name,) in rows}).values())
