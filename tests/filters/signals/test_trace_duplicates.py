import time
from itertools import permutations

import numpy as np
import pytest
from worlds.run_fixtures import default, sample, trace

from filters.signals.families import trace_duplicates
from filters.signals.families.trace_duplicates import Duplicates, components, similarities
from filters.text.words import words

FOUR = sample("How many apples?", "4", answer_type="number")
WORDS = ["word" + chr(97 + number // 26) + chr(97 + number % 26) for number in range(60)]


def jaccard(one, other, size=3):
    """What the family computes, from the definition."""
    first, second = (set(zip(*(words(text)[start:] for start in range(size)), strict=False)) for text in (one, other))
    return len(first & second) / len(first | second)


def edited(*places):
    """The sixty words with some more; the first has a capital, because in a text without any, each may be a name."""
    text = " ".join(f"other{word} {word}" if place in places else word for place, word in enumerate(WORDS))
    return text.replace(f" {WORDS[1]} ", f" {WORDS[1].title()} ")


def measured(traces, **parameters):
    return {
        row_of.id: row
        for row_of, row in zip(traces, default(Duplicates, **parameters).measure(FOUR, traces), strict=True)
    }


def test_equal_texts_are_exact_duplicates_of_one_of_them():
    traces = [trace(FOUR, "4", "same  text\nhere", id=id) for id in "cab"]
    rows = measured(traces)
    assert [rows[id]["exact_duplicate"] for id in "abc"] == [False, True, True]
    assert rows["b"]["duplicate_of"] == "a" and rows["b"]["duplicate_jaccard"] == 1.0
    assert rows["b"]["near_duplicate"] and not rows["a"]["near_duplicate"]
    assert rows["a"]["duplicate_of"] is None


def test_small_edits_are_near_duplicates_and_others_are_not():
    rows = measured(
        [
            trace(FOUR, "4", edited(), id="a"),
            trace(FOUR, "4", edited(59), id="b"),
            trace(FOUR, "4", edited(*range(30)), id="c"),
        ]
    )
    assert rows["b"]["near_duplicate"] and not rows["b"]["exact_duplicate"]
    assert rows["b"]["duplicate_of"] == "a"
    assert rows["b"]["duplicate_jaccard"] == jaccard(edited() + " 4", edited(59) + " 4")
    assert not rows["c"]["near_duplicate"]


@pytest.mark.parametrize(("answer", "other"), [("✓", "✗"), ("🔴", "🔵"), ("↑", "↓"), ("👍", "👎"), ("🇫🇷", "🇩🇪")])
def test_answers_that_differ_in_a_sign_are_not_the_same(answer, other):
    traces = [trace(FOUR, text, edited(), id=id) for id, text in (("a", answer), ("b", other), ("c", f"{answer} "))]
    rows = measured(traces)
    assert [rows[id]["near_duplicate"] for id in "abc"] == [False, False, True]


def test_the_preferred_trace_is_complete_then_of_the_smallest_id():
    texts = {"b": ("4", "truncated_answer"), "c": ("4", "complete"), "d": ("4", "complete")}
    traces = [trace(FOUR, answer, edited(), id=id, outcome=outcome) for id, (answer, outcome) in texts.items()]
    rows = measured(traces)
    assert [id for id in texts if not rows[id]["near_duplicate"]] == ["c"]
    assert {rows[id]["duplicate_of"] for id in "bd"} == {"c"}


def test_a_chain_of_edits_is_one_component_whatever_the_order():
    chain = {"a": edited(), "b": edited(0), "c": edited(0, 20), "d": edited(0, 20, 40), "z": edited(*range(60))}
    assert jaccard(chain["a"], chain["d"]) < 0.85
    results = []
    for order in permutations(chain):
        results.append(measured([trace(FOUR, "", chain[id], id=id) for id in order], threshold=0.85))
    assert all(result == results[0] for result in results)
    assert [id for id in chain if not results[0][id]["near_duplicate"]] == ["a", "z"]


def test_similarities_agree_with_sets_of_any_size(monkeypatch):
    source = np.random.default_rng(0)
    sets = [source.integers(0, 30, size, np.uint64) for size in (1, 2, 5, 20, 40, 100)]
    expected = [
        [len({*one.tolist()} & {*other.tolist()}) / len({*one.tolist(), *other.tolist()}) for other in sets]
        for one in sets
    ]
    assert similarities(sets).tolist() == expected
    monkeypatch.setattr(trace_duplicates, "_KINDS", 7)
    assert similarities(sets).tolist() == expected


def test_components_agree_with_joining_every_near_pair_in_turn():
    near = np.random.default_rng(0).random((40, 40)) < 0.02
    near |= near.T
    group = list(range(40))
    changed = True
    while changed:
        changed = False
        for one, other in np.argwhere(near).tolist():
            if group[one] != group[other]:
                group[one] = group[other] = min(group[one], group[other])
                changed = True
    assert components(near).tolist() == group and 1 < len(set(group)) < 40


def test_other_white_space_makes_no_other_text():
    texts = {"a": "un café noir", "b": "un\u3000café\u00a0noir\n", "c": "un cafe\u0301 noir", "d": "un cafénoir"}
    rows = measured([trace(FOUR, "4", text, id=id) for id, text in texts.items()])
    assert [rows[id]["exact_duplicate"] for id in texts] == [False, True, True, False]


def test_white_space_between_characters_that_are_words_makes_a_near_duplicate():
    rows = measured([trace(FOUR, "4", text, id=id) for id, text in {"a": "红色方块", "b": "红色 方块"}.items()])
    assert not rows["b"]["exact_duplicate"] and rows["b"]["duplicate_jaccard"] == 1.0


def test_short_texts_equal_only_themselves():
    rows = measured([trace(FOUR, "4", "", id="a"), trace(FOUR, "5", "", id="b")])
    assert not rows["b"]["near_duplicate"]


def test_a_trace_without_text_is_no_duplicate():
    rows = measured([trace(FOUR, "", "", id="a", outcome="error"), trace(FOUR, "", "", id="b", outcome="error")])
    assert rows["b"] == {"duplicates_state": "not_applicable"}


def test_the_order_of_diversity_takes_what_is_least_like_all_before():
    texts = {"a": edited(), "b": edited(0), "c": edited(*range(20)), "d": edited(*range(40)), "e": edited(1)}
    traces = [trace(FOUR, "4", text, id=id) for id, text in texts.items()]
    rows = measured(traces)
    order = sorted(texts, key=lambda id: rows[id]["diversity_rank"])
    assert order[:3] == ["a", "d", "c"] and sorted(row["diversity_rank"] for row in rows.values()) == [1, 2, 3, 4, 5]


def test_only_usable_traces_have_a_place_in_the_order_of_diversity():
    traces = [
        trace(FOUR, "5", edited(), id="wrong"),
        trace(FOUR, "4", edited(1), id="cut", outcome="truncated_answer"),
        trace(FOUR, "4", edited(2), id="good"),
        trace(FOUR, "4", edited(2), id="same"),
    ]
    rows = measured(traces)
    assert {id: row["diversity_rank"] for id, row in rows.items()} == {
        "wrong": None,
        "cut": None,
        "good": 1,
        "same": None,
    }


def test_a_line_of_dashes_without_end_takes_no_time_that_grows_with_its_square():
    before = time.thread_time()
    rows = default(Duplicates).measure(sample(), [trace(sample(), reasoning="It is 7 > 6. " + "-" * 65_000)])
    assert rows[0]["duplicates_state"] == "ok"
    assert time.thread_time() - before < 1.0
