"""Pairs for a preference stage: for each question the right and the wrong trace that are closest in length.

A right trace is one that no rule drops and that the judge calls correct; a wrong one is complete and called wrong.
The lengths of a pair differ by at most a tenth of the longer one, so the student cannot learn the right trace by its
length. The choice depends on the traces alone. Does not write rows (filters/dataset/ablation_sets.py).
"""

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.errors import DataError
from filters.decisions.rules import UNREADABLE_IMAGE

LONGEST_GAP = 0.1
"""Largest difference in length of a pair, as a share of the longer trace's tokens."""
TRACES = """
    SELECT chosen AS id, sample_id FROM chosen WHERE reason IS NULL
    UNION ALL SELECT rejected, sample_id FROM chosen WHERE reason IS NULL"""
"""SQL of the traces of all pairs in a table `chosen` that `write` wrote."""
TOKENS = "(coalesce(rationale_tokens, 0) + coalesce(answer_tokens, 0))"
"""SQL of a trace's length."""
UNREADABLE = f"list_contains([reason.rule for reason in reasons], '{UNREADABLE_IMAGE}')"
"""SQL of whether an image of a trace's question cannot be read."""
_PAIRS = f"""
    WITH traces AS (
        SELECT id, local.sample_id, kept, answer_verdict, {TOKENS} AS tokens,
            outcome = 'complete' AND NOT {UNREADABLE} AS whole
        FROM local JOIN decisions USING (id)
    ),
    rights AS (SELECT * FROM traces WHERE kept AND answer_verdict = 'correct'),
    wrongs AS (SELECT * FROM traces WHERE whole AND answer_verdict = 'wrong'),
    ranked AS (
        SELECT rights.sample_id, rights.id AS chosen, wrongs.id AS rejected, rights.tokens AS chosen_tokens,
            wrongs.tokens AS rejected_tokens,
            abs(rights.tokens - wrongs.tokens) / greatest(rights.tokens, wrongs.tokens, 1) AS gap,
            row_number() OVER (PARTITION BY rights.sample_id ORDER BY gap, rights.id, wrongs.id) AS place
        FROM rights JOIN wrongs USING (sample_id)
    )
    SELECT sample_id, chosen, rejected, chosen_tokens, rejected_tokens, gap,
        CASE
            WHEN gap <= {LONGEST_GAP} THEN NULL
            WHEN gap IS NOT NULL THEN 'lengths_differ'
            WHEN sample_id IN (SELECT sample_id FROM rights) THEN 'no_wrong_trace'
            ELSE 'no_right_trace'
        END AS reason
    FROM (SELECT DISTINCT sample_id FROM traces) LEFT JOIN (SELECT * FROM ranked WHERE place = 1) USING (sample_id)
    ORDER BY sample_id"""


def write(database: duckdb.DuckDBPyConnection, path: Path) -> dict[str, int]:
    """Write the pair of every question, or the reason why it has none, from a database with `local` and `decisions`.

    Columns: sample_id, chosen and rejected (ids of traces), their tokens, gap (share of the longer one), reason. A
    pair whose lengths differ too much is written with its reason. Returns `pairs`, the tokens of their right and of
    their wrong traces, and the questions by reason. Raises DataError where no lengths were measured.
    """
    ((measured,),) = database.execute(f"SELECT coalesce(sum({TOKENS}), 0) > 0 FROM local").fetchall()
    if not measured:
        raise DataError(
            f'{path.name}: pairs are matched by length, and no trace has one; add "length" to filter.signals and run '
            "the filter stage again"
        )
    table = database.sql(_PAIRS).to_arrow_table()
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    reasons = Counter(reason or "pairs" for reason in table["reason"].to_pylist())
    matched = table.filter(pc.is_null(table["reason"]))
    tokens = {name: pc.sum(matched[name]).as_py() or 0 for name in ("chosen_tokens", "rejected_tokens")}
    return {"pairs": 0, **dict(sorted(reasons.items())), **tokens}
