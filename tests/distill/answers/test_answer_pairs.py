"""The answer judge on labelled pairs: every pair of each family, error budgets, what no presentation may change.

docs/answers.md says where the pairs are from and what their columns mean. `judged` is there where the judge says
something else than the label, so that a change is seen either way.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from judged import judgements
from judged.labelled_pairs import pairs_version

from distill.answers import verdicts

CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"
Pair = Mapping[str, Any]
ALL_PAIRS: list[Pair] = judgements.PAIRS
PAIRS = [pair for pair in ALL_PAIRS if pair["source"] == "suite"]
ADVERSARIAL = [pair for pair in ALL_PAIRS if pair["source"] == "adversarial"]
PARTS = sorted({(pair["source"], pair["part"]) for pair in ALL_PAIRS})
FALSE_ACCEPTS = 0.005
"""Of the wrong pairs, the share that may be called correct."""
FALSE_REJECTS = 0.02
"""Of the right pairs, the share that may be called wrong."""
NEEDLESSLY_OPEN = 0.06
"""Of the right pairs, the share that may be left undecided."""


@cache
def verdict_at(index: int) -> str:
    judged, asks_voter = judgements.without_vote(index)
    return (judgements.judge_pair(ALL_PAIRS[index]) if asks_voter else judged).verdict


def shares(source: str, part: str) -> Counter[str]:
    """Shares of the pairs of one part that are judged otherwise than labelled."""
    chosen = [index for index, pair in enumerate(ALL_PAIRS) if (pair["source"], pair["part"]) == (source, part)]
    counts = Counter((ALL_PAIRS[index]["label"], verdict_at(index)) for index in chosen)
    right, wrong = (sum(counts[label, said] for said in (CORRECT, WRONG, UNDECIDED)) for label in (CORRECT, WRONG))
    return Counter(
        {
            "false accepts": counts[WRONG, CORRECT] / wrong,
            "false rejects": counts[CORRECT, WRONG] / right,
            "needlessly open": counts[CORRECT, UNDECIDED] / right,
        }
    )


def test_the_page_of_the_judge_names_the_number_and_the_version_of_the_pairs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "answers.md").read_text(encoding="utf-8")
    assert f"{len(ALL_PAIRS):,} labelled pairs" in page and f"version `{pairs_version()}`" in page


def test_the_labelled_pairs_are_many_distinct_and_of_every_family() -> None:
    assert len(PAIRS) >= 2500
    keys = {
        (
            pair["source"],
            pair["part"],
            str(pair["gold"]),
            pair["prediction"],
            pair["type"],
            *pair.get("options", ()),
            pair.get("question"),
        )
        for pair in ALL_PAIRS
    }
    assert len(keys) == len(ALL_PAIRS)
    kinds = {"numbers", "percent", "money", "units", "years", "times", "ratios", "dates", "scale words", "text"}
    ways = {"choices", "lists", "unicode", "locale", "mathematics", "prose", "traps"}
    assert {pair["family"] for pair in PAIRS} == kinds | ways
    assert min(Counter(pair["family"] for pair in PAIRS).values()) >= 40
    assert {pair["type"] for pair in PAIRS} == {*verdicts.TYPES, None}
    for benchmark in {pair["benchmark"] for pair in ADVERSARIAL if "benchmark" in pair}:
        labels = Counter(pair["label"] for pair in ADVERSARIAL if pair.get("benchmark") == benchmark)
        assert min(labels[CORRECT], labels[WRONG]) >= 50, (benchmark, labels)


def test_every_row_of_the_benchmark_file_has_its_columns() -> None:
    for pair in ALL_PAIRS:
        assert {"version", "source", "part", "split", "family", "type", "gold", "prediction", "label"} <= set(pair)
        assert pair["split"] in ("tuned", "held-out")
        assert {pair["label"], pair.get("judged", CORRECT)} <= {CORRECT, WRONG, UNDECIDED}
        assert pair["label"] != pair.get("judged"), "judged is for what the judge says otherwise"


def assert_judged_as_recorded(indices: Iterable[int]) -> None:
    changed = [
        f"{pair['family']}: {pair['gold']!r} said {pair['prediction']!r}: {said}, was {recorded}"
        for index in indices
        if (said := verdict_at(index)) != (recorded := (pair := ALL_PAIRS[index]).get("judged", pair["label"]))
    ]
    assert not changed, "\n" + "\n".join(changed)


@pytest.mark.parametrize("family", sorted({pair["family"] for pair in PAIRS}))
def test_every_pair_of_a_family_gets_its_verdict(family: str) -> None:
    assert_judged_as_recorded(
        index for index, pair in enumerate(ALL_PAIRS) if pair["source"] == "suite" and pair["family"] == family
    )


@pytest.mark.parametrize(("source", "part"), [item for item in PARTS if item[0] != "suite"])
def test_every_pair_of_a_later_part_gets_its_verdict(source: str, part: str) -> None:
    assert_judged_as_recorded(
        index for index, pair in enumerate(ALL_PAIRS) if (pair["source"], pair["part"]) == (source, part)
    )


BUDGETS = {
    ("adversarial", "held out"): (0.005, 0.03, 0.06),
    ("adversarial", "held out 2"): (0.005, 0.02, 0.12),
    ("blind 3", "blind 3"): (0.005, 0.02, 0.072),
    ("blind 3", "blind 3 held out"): (0.005, 0.0, 0.105),
    ("adversarial", "dev 2"): (0.005, 0.03, 0.06),
    ("blind 5", "blind 5 tune"): (0.0, 0.025, 0.076),
    ("blind 5", "blind 5 held"): (0.0, 0.037, 0.13),
    ("blind 6", "blind 6 held"): (0.0, 0.02, 0.125),
    ("blind 6", "blind 6 tune"): (0.0, 0.02, 0.066),
    ("blind 7", "blind 7 tune"): (0.0, 0.03, 0.081),
    ("blind 7", "blind 7 held"): (0.0, 0.02, 0.165),
    ("blind 8", "blind 8 tune"): (0.0, 0.02, 0.188),
    ("blind 8", "blind 8 held"): (0.0, 0.027, 0.344),
    ("blind 9", "blind 9 tune"): (0.027, 0.028, 0.32),
    ("blind 9", "blind 9 held"): (0.037, 0.033, 0.35),
    ("blind 10", "blind 10 tune"): (0.005, 0.02, 0.247),
    ("blind 10", "blind 10 held"): (0.005, 0.051, 0.23),
    ("blind 11", "blind 11 held"): (0.008, 0.02, 0.12),
    ("blind 12", "blind 12 held"): (0.0, 0.0, 0.147),
    ("blind 13", "blind 13 held"): (0.0, 0.03, 0.06),
    ("blind 14", "blind 14"): (0.0, 0.025, 0.067),
    ("blind 15", "blind 15 tune"): (0.0, 0.0, 0.23),
    ("blind 15", "blind 15 held"): (0.015, 0.028, 0.223),
    ("blind 16", "blind 16"): (0.0, 0.0, 0.131),
    ("blind 18", "blind 18 held"): (0.0, 0.015, 0.155),
    ("blind 19", "blind 19 held"): (0.034, 0.0, 0.084),
    ("blind 20", "blind 20 tune"): (0.0, 0.0, 0.117),
    ("blind 20", "blind 20 held"): (0.017, 0.0, 0.15),
    ("blind 21", "blind 21 tune"): (0.0, 0.0, 0.063),
    ("blind 21", "blind 21 held"): (0.025, 0.0125, 0.1),
}
"""False accepts, false rejects, needlessly open of the parts that are above the targets."""


@pytest.mark.parametrize(("source", "part"), PARTS)
def test_each_part_stays_within_its_budget_the_held_out_ones_too(source: str, part: str) -> None:
    accepts, rejects, is_open = BUDGETS.get((source, part), (FALSE_ACCEPTS, FALSE_REJECTS, NEEDLESSLY_OPEN))
    found = shares(source, part)
    assert found["false accepts"] <= accepts, found
    assert found["false rejects"] <= rejects, found
    assert found["needlessly open"] <= is_open, found


def test_what_careful_readers_leave_open_is_seldom_decided() -> None:
    open_pairs = [
        index for index, pair in enumerate(ALL_PAIRS) if (pair["source"], pair["label"]) == ("suite", UNDECIDED)
    ]
    decided = [index for index in open_pairs if verdict_at(index) != UNDECIDED]
    assert len(decided) <= 0.06 * len(open_pairs), [ALL_PAIRS[index] for index in decided]


def test_equivalence_is_symmetric_and_is_what_the_judge_says_in_either_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verdicts, "_judge", cache(verdicts._judge))  # each direction is judged once
    for pair in PAIRS:
        one, other, kind = pair["gold"], pair["prediction"], pair["type"]
        there, back = verdicts.equivalent(one, other, kind), verdicts.equivalent(other, one, kind)
        directions = ((one, other), (other, one))
        agreed = any(
            verdicts._judge(said, meant, kind, 0.0, None, ask_worker=False).verdict == CORRECT
            for said, meant in directions
        )
        assert there == back == agreed, pair


WRAPPINGS = [
    "The answer is {}.",
    "**Answer:** {}",
    "Final answer: **{}**",
    "<think>first 3, then 4</think>\n\n{}",
    "First 3, then 4.\n\nAnswer: {}",
    "<answer>{}</answer>",
    "3, then 4.\n#### {}",
    "\\boxed{{{}}}",
]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_how_an_answer_is_presented_does_not_change_its_verdict(wrapping: str) -> None:
    for pair in PAIRS:
        family, said = pair["family"], pair["prediction"]
        if family in ("numbers", "percent", "money", "units", "years", "ratios") and re.fullmatch(
            r"[-$€]?[\w.,:%/ ]+", said
        ):
            judged = verdicts._judge(wrapping.format(said), pair["gold"], pair["type"], 0.0, None, ask_worker=False)
            assert judged.verdict == pair.get("judged", pair["label"]), (pair, judged)


def test_judgements_change_only_with_the_versions_of_the_signals_that_keep_them() -> None:
    record = orjson.loads(judgements.FILE.read_bytes())
    now = list(judgements.judgements())
    recorded = [record["judgements"][index] for index in record["order"]]
    assert len(now) == len(recorded), "the pairs are others: run tests/support/judged/judgements.py"
    changed = [
        f"{text[:200]}: {before} -> {after}"
        for (text, after), before in zip(now, recorded, strict=True)
        if after != before
    ]
    step = "raise the versions of these signals, then run tests/support/judged/judgements.py"
    assert not changed, f"{len(changed)} judgements changed: {step}\n" + "\n".join(changed[:20])
    assert judgements.signal_versions() == record["versions"], "run tests/support/judged/judgements.py"
