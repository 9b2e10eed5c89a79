"""A copy stays where the trace that it repeats is dropped by another rule."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distill.recipe.sections.filter import Filter, Rule, Select
from filters.decisions.decide import decide
from filters.decisions.rules import check
from filters.signals.registry import LOCAL
from filters.signals.schema import SIDE
from filters.tables.signal_database import Tables

WEAK = "teacher = 'weak'"


def kept(
    folder: Path,
    rows: list[dict[str, Any]],
    *,
    select: Select | None = None,
    unreadable: dict[str, str] | None = None,
    side: dict[str, list[dict[str, Any]]] | None = None,
    **rules: str,
) -> str:
    """The ids of the traces that these rules keep, or that the selection takes if it is given."""
    found = [{"sample_id": "s", "teacher": "t", "k": 0, "outcome": "complete", **row} for row in rows]
    pq.write_table(pa.Table.from_pylist(found, schema=LOCAL), folder / "signals.parquet")
    files = {}
    for name, values in (side or {}).items():
        key, schema = SIDE[name]
        files[name] = (folder / f"{name}.parquet",)
        table = pa.Table.from_pylist(values, schema=pa.schema([(key, pa.string()), *schema]))
        pq.write_table(table, folder / f"{name}.parquet")
    settings = Filter(
        rules=tuple(Rule(name=name, drop=drop) for name, drop in rules.items()), select=select or Select()
    )
    path = folder / "decisions.parquet"
    tables = Tables(signals=(folder / "signals.parquet",), side=files)
    decide(check(settings), settings.select, tables, path, unreadable)
    decided = pq.read_table(path).to_pylist()
    for row in decided:
        assert all(orjson.loads(reason["values"]) is not None for reason in row["reasons"])
    return "".join(row["id"] for row in decided if row["selected"])


def exact(identity: str, original: str, **values: Any) -> dict[str, Any]:
    flags = {"exact_duplicate": True, "near_duplicate": True, "duplicate_of": original, "duplicate_jaccard": 1.0}
    return {"id": identity, **flags, **values}


def near(identity: str, original: str, **values: Any) -> dict[str, Any]:
    return {"id": identity, "exact_duplicate": False, "near_duplicate": True, "duplicate_of": original, **values}


def test_the_next_copy_that_the_other_rules_keep_takes_the_place_of_a_dropped_one(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "teacher": "weak"},
        exact("b", "a", teacher="weak"),
        exact("c", "a", outcome="truncated_thinking"),
        exact("d", "a", answer_verdict="wrong"),
        exact("e", "a", answer_verdict="correct"),
        exact("f", "a", answer_verdict="correct"),
    ]
    assert kept(tmp_path, rows, weak=WEAK, copies="exact_duplicate") == "e"
    assert kept(tmp_path, rows, copies="exact_duplicate", weak=WEAK) == "e"  # in any order of the rules
    assert kept(tmp_path, rows, copies="exact_duplicate") == "a"
    assert kept(tmp_path, rows[:2], weak=WEAK, copies="exact_duplicate") == ""


def test_near_copies_of_a_group_have_one_place_among_them(tmp_path: Path) -> None:
    rows = [{"id": "a", "teacher": "weak"}, near("b", "a"), exact("c", "b"), exact("d", "a"), near("e", "a")]
    assert kept(tmp_path, rows, weak=WEAK, copies="near_duplicate") == "b"
    assert kept(tmp_path, rows, weak=WEAK, copies="duplicate_of IS NOT NULL") == "b"
    # Of equal words one is left, and the order puts the copy that took the place first.
    order = Select(order=("near_duplicate", "-id"), per_question=1)
    assert kept(tmp_path, rows, select=order, weak=WEAK, copies="exact_duplicate") == "b"


def test_copies_in_other_questions_and_repeated_questions_follow_in_this_order(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "sample_id": "p", "teacher": "weak"},
        {"id": "b", "sample_id": "q"},
        {"id": "c", "sample_id": "q", "teacher": "weak"},
        {"id": "d", "sample_id": "r"},
    ]
    question = [{"sample_id": name, "question_duplicate_of": "p"} for name in "qr"]
    repeated = "question_duplicate_of IS NOT NULL"
    side = {"question": question}
    assert kept(tmp_path, rows, side=side, copies=repeated) == "a"
    assert kept(tmp_path, rows, side=side, weak=WEAK, copies=repeated) == "b"
    assert kept(tmp_path, rows, side=side, unreadable={"q": "gone"}, weak=WEAK, copies=repeated) == "d"
    # The preferred trace of the run is one of a question that repeats another.
    corpus = [{"id": name, "corpus_duplicate": True, "corpus_duplicate_of": "b"} for name in "ad"]
    side = {"question": [{"sample_id": name, "question_duplicate_of": "p"} for name in "q"], "corpus": corpus}
    assert kept(tmp_path, rows, side=side, copies=repeated, everywhere="corpus_duplicate") == "a"
    assert kept(tmp_path, rows, side=side, weak=WEAK, copies=repeated, everywhere="corpus_duplicate") == "b"


@pytest.mark.parametrize("condition", ["exact_duplicate AND signals.k = 0", "not not exact_duplicate"])
def test_any_rule_that_asks_for_copies_counts_as_one(tmp_path: Path, condition: str) -> None:
    rows = [{"id": "a", "teacher": "weak"}, exact("b", "a"), exact("c", "a")]
    assert kept(tmp_path, rows, weak=WEAK, copies=condition) == "b"
