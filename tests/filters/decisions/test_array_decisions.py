"""Decisions by arrays are those of the filter stage, for policies and tables at random."""

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.artifacts.layout import DECISIONS, SIGNALS, part_path
from distill.errors import DataError
from distill.recipe.sections.filter import Filter, Mix, Rule, Select
from filters.decisions import trace_arrays
from filters.decisions.array_decisions import PolicyArrays
from filters.decisions.decide import decide
from filters.decisions.rules import UNREADABLE_IMAGE, check
from filters.decisions.trace_arrays import TraceArrays
from filters.signals.registry import LOCAL
from filters.signals.schema import CORPUS, QUESTION
from filters.tables.signal_database import Tables, project_columns

RULES = {
    "weak": "teacher = 'weak'",
    "wrong": "answer_verdict = 'wrong'",
    "late": "signals.k > 1",
    "repeats": "repetition_ngram > 0.5",
    "exact": "exact_duplicate",
    "near": "near_duplicate AND duplicate_jaccard < 0.95",
    "named": "duplicate_of IS NOT NULL AND rationale_tokens > 3",
    "again": "question_duplicate_of IS NOT NULL",
    "everywhere": "corpus_duplicate",
    "both": "corpus_duplicate AND exact_duplicate",
    "neither": "NOT coalesce(corpus_duplicate, false) AND NOT exact_duplicate AND k = 0",
    "judged": "judge_verdict = 'wrong'",
    "human": "human_verdict = 'wrong'",
    "alone": "corpus_cluster_size IS NULL",
}
ORDERS = (
    (),
    ("-self_consistency", "near_duplicate", "rationale_tokens"),
    ("duplicate_of", "-repetition_ngram"),
    ("-duplicate_jaccard", "-exact_duplicate", "domain"),
    ("-domain", "corpus_jaccard"),
    ("question_duplicate_of", "-k"),
)
MIXES = (
    (Mix(by="domain", shares={"charts": 0.5}),),
    (Mix(by="exact_duplicate", shares={"false": 0.6}), Mix(by="k = 0", shares={"true": 0.5})),
    (Mix(by="coalesce(corpus_duplicate, false) OR question_duplicate_of IS NOT NULL", shares={"false": 0.7}),),
)


def write_run(folder: Path, chance: random.Random, count: int = 60) -> None:
    """A filter folder of traces with copies of all kinds, also of traces and questions that are not there."""
    ids = [f"{chance.getrandbits(32):08x}" for _ in range(count)]
    questions = [f"{chance.getrandbits(32):08x}" for _ in range(count // 4)]
    numbers = (None, math.nan, math.inf, -math.inf, -0.0, 0.0, 0.3, -2.5, 0.7)
    rows: list[dict[str, Any]] = []
    for identity in ids:
        original = chance.choice([*ids, "not there"]) if chance.random() < 0.6 else None
        rows.append(
            {
                "id": identity,
                "sample_id": chance.choice(questions),
                "teacher": chance.choice(["weak", "strong"]),
                "k": chance.randrange(3),
                "domain": chance.choice(["charts", "scenes", "", None]),
                "outcome": chance.choice(["complete", "complete", "truncated_thinking"]),
                "answer_verdict": chance.choice(["correct", "wrong", "undecided", None]),
                "rationale_tokens": chance.choice([None, 1, 5, 7]),
                "repetition_ngram": chance.choice(numbers),
                "self_consistency": chance.choice(numbers),
                "exact_duplicate": original is not None and chance.random() < 0.5,
                "near_duplicate": original is not None,
                "duplicate_of": original,
                "duplicate_jaccard": original and chance.choice([0.9, 1.0]),
            }
        )
    rows.sort(key=lambda row: row["id"])
    (folder / SIGNALS).mkdir(parents=True)
    for part in range(3):
        own = [row for row in rows if questions.index(row["sample_id"]) % 3 == part]
        pq.write_table(pa.Table.from_pylist(own, schema=LOCAL), part_path(folder / SIGNALS, part, ".parquet"))
    repeated = [
        {"sample_id": name, "question_duplicate_of": chance.choice([*questions, "gone"])}
        for name in sorted(questions)
        if chance.random() < 0.4
    ]
    corpus = [
        {"id": name, "corpus_duplicate": True, "corpus_duplicate_of": chance.choice(ids), "corpus_jaccard": 0.9}
        for name in sorted(ids)
        if chance.random() < 0.4
    ]
    for name, key, schema, values in (
        ("question", "sample_id", QUESTION, repeated),
        ("corpus", "id", CORPUS, corpus),
    ):
        (folder / name).mkdir()
        table = pa.Table.from_pylist(values, schema=pa.schema([(key, pa.string()), *schema]))
        pq.write_table(table, part_path(folder / name, 0, ".parquet"))


def policy(chance: random.Random) -> Filter:
    names = chance.sample(sorted(RULES), chance.randrange(6))
    select = Select(
        per_question=chance.choice([None, 1, 2]),
        per_teacher=chance.choice([None, None, 1]),
        order=chance.choice(ORDERS),
        mix=chance.choice([(), (), *MIXES]),
        limit=chance.choice([None, None, 7]),
    )
    return Filter(rules=tuple(Rule(name=name, drop=RULES[name]) for name in names), select=select)


def decided(
    folder: Path, settings: Filter, unreadable: dict[str, str], seed: int, path: Path
) -> list[dict[str, Any]]:
    """The rows of the decision table that the filter stage writes."""
    decide(check(settings), settings.select, Tables.of(folder), path, unreadable, seed=seed)
    return pq.read_table(path).to_pylist()


@pytest.mark.parametrize("start", range(3))
def test_decisions_are_those_of_the_filter_stage(tmp_path: Path, start: int) -> None:
    chance = random.Random(start)
    write_run(tmp_path, chance)
    first = decided(tmp_path, Filter(), {}, 0, tmp_path / DECISIONS)
    policies = PolicyArrays(traces := TraceArrays(tmp_path, project_columns()))
    samples = np.array([row["sample_id"] for row in first])
    chosen = refused = 0
    for _ in range(16):
        settings, seed = policy(chance), chance.randrange(3)
        unreadable = {name: "gone" for name in set(samples.tolist()) if chance.random() < 0.1}
        others = {UNREADABLE_IMAGE: np.isin(samples, list(unreadable))}
        try:
            rows = decided(tmp_path, settings, unreadable, seed, tmp_path / "other.parquet")
        except DataError as error:
            with pytest.raises(DataError) as caught:
                policies.decide(check(settings), settings.select, seed, others)
            assert str(caught.value) == str(error)
            refused += 1
            continue
        found = policies.decide(check(settings), settings.select, seed, others)
        assert found.kept.tolist() == [row["kept"] for row in rows], settings
        assert found.selected.tolist() == [row["selected"] for row in rows], settings
        reasons = [{reason["rule"] for reason in row["reasons"]} for row in rows]
        for name, flags in found.dropped.items():
            assert flags.tolist() == [name in names for names in reasons], (name, settings)
        chosen += sum(sum(flags) for flags in found.dropped.values())
    assert chosen and refused < 12 and traces.was_kept.tolist() == [row["kept"] for row in first]


def test_groups_that_begin_after_the_first_rows_are_found(tmp_path: Path, monkeypatch) -> None:
    write_run(tmp_path, random.Random(0))
    first = decided(tmp_path, Filter(), {}, 0, tmp_path / DECISIONS)
    monkeypatch.setattr(trace_arrays, "_FIRST_ROWS", 1)
    traces = TraceArrays(tmp_path, project_columns())
    names = [traces.groups[code][:2] for code in traces.group]
    assert names == [(row["teacher"], row["domain"] or "(none)") for row in first] and len(set(names)) > 1


def test_signals_of_other_traces_than_the_decisions_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, random.Random(0))
    decided(tmp_path, Filter(), {}, 0, tmp_path / DECISIONS)
    table = pq.read_table(tmp_path / DECISIONS)
    pq.write_table(table.slice(2), tmp_path / DECISIONS)
    with pytest.raises(DataError, match="signals of 60 traces and decisions on 58, of which 58 are the same"):
        TraceArrays(tmp_path, project_columns())


def test_a_new_rule_alone_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, random.Random(0))
    decided(tmp_path, Filter(), {}, 0, tmp_path / DECISIONS)
    policies = PolicyArrays(traces := TraceArrays(tmp_path, project_columns()))
    settings = Filter(rules=tuple(Rule(name=name, drop=RULES[name]) for name in ("weak", "wrong", "near", "again")))
    conditions = check(settings)
    policies.decide(conditions, settings.select, 0, {})
    asked = []
    traces._read = lambda expressions, *_, **__: asked.extend(expressions) or [np.zeros(60, bool)] * len(expressions)
    policies.decide(conditions[1:], settings.select, 0, {})
    assert not asked
    late = check(Filter(rules=(Rule(name="late", drop=RULES["late"]),)))
    policies.decide([*conditions, *late], settings.select, 0, {})
    assert [RULES["late"] in sql for sql in asked] == [True]
