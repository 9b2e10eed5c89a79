"""Estimates: intervals that hold, time that counts busy seconds only, policies that are in them as they happened."""

import math
import random
from collections import Counter
from pathlib import Path

import orjson
import pytest
from servers import stub_server

from distill.artifacts.journal import Journal, read_jsonl
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.generate import Outcomes
from distill.recipe.sections.teachers import Teacher
from teacher.estimate import Amount, Moments, attempt_growth, extrapolate, summarize_journals
from teacher.generate import generate
from teacher.preflight import preflight


def moments(values: list[float]) -> Moments:
    found = Moments()
    for value in values:
        found.add(value)
    return found


def test_nineteen_of_twenty_intervals_hold_what_a_run_then_takes() -> None:
    chance = random.Random(0)
    shapes = {"charts": (6.0, 0.5, 300), "scenes": (5.0, 0.9, 600), "seldom": (4.0, 0.3, 9)}
    held = trials = 0
    for _ in range(400):
        takes = {
            domain: [chance.lognormvariate(mean, spread) for _ in range(count)]
            for domain, (mean, spread, count) in shapes.items()
        }
        probed = {domain: 16 if domain != "seldom" else 1 for domain in shapes}
        seen = {domain: moments(takes[domain][: probed[domain]]) for domain in shapes}
        left = {domain: len(takes[domain]) - probed[domain] for domain in shapes}
        expected = extrapolate(seen, left)
        truth = sum(sum(takes[domain][probed[domain] :]) for domain in shapes)
        held += expected.low <= truth <= expected.high
        trials += 1
    assert 0.88 <= held / trials <= 0.985


def test_domains_count_by_what_is_left_of_them_not_by_what_was_seen() -> None:
    seen = {"long": moments([100.0] * 9), "short": moments([10.0] * 9)}
    assert extrapolate(seen, {"long": 1, "short": 1000}) == Amount(mean=10_100, low=10_100, high=10_100)
    assert extrapolate(seen, {"never seen": 10}).mean == 550


def test_the_interval_of_two_samples_is_as_wide_as_students_t_says() -> None:
    expected = extrapolate({"": moments([4.0, 6.0])}, {"": 2})
    # The mean is 5 with a variance of 2: 2 left samples cost 10, and their sum has a variance of 2 (4 / 2 + 2) = 8.
    assert expected.mean == 10 and expected.low == 0
    assert expected.high == pytest.approx(10 + 12.7062 * math.sqrt(8), rel=1e-5)


def test_nothing_left_is_nothing_and_a_single_sample_bounds_nothing() -> None:
    assert extrapolate({"": moments([5.0])}, {}) == Amount()
    assert extrapolate({"": moments([5.0])}, {"": 3}) == Amount(mean=15.0, low=0.0, high=math.inf)


_TRACE = dict.fromkeys(
    ("id", "teacher", "reasoning", "answer", "text", "finish_reason", "model", "revision"), "aa"
) | {
    **dict.fromkeys(("prompt_sha", "created", "draft", "error"), ""),
    **dict.fromkeys(("k", "seed", "latency_s", "attempt"), 0),
    "hinted": False,
    "usage": dict.fromkeys(("prompt", "image", "reasoning", "answer"), 0),
    "params": {},
    "engine": {"name": "stub", "version": ""},
}


def test_the_rate_counts_the_seconds_in_which_something_was_under_way(tmp_path: Path) -> None:
    with Journal(tmp_path / "part-00000.jsonl") as file:
        for minute, latency_s in ((0, 10.0), (0, 5.0), (30, 10.0)):  # a pause of half an hour between two sessions
            usage = {"prompt": 1, "image": 0, "reasoning": 90, "answer": 10}
            record = {"sample_id": f"s{minute}", "outcome": "complete", "usage": usage, "latency_s": latency_s}
            file.append(_TRACE | record | {"id": "aa", "created": f"2026-01-01T00:{minute:02}:50+00:00"})
        file.append(_TRACE | {"outcome": "error", "sample_id": "x"})
    found = summarize_journals(tmp_path)
    assert found.samples == {"s0", "s30"} and found.records == 3
    assert found.tokens_per_s == pytest.approx(300 / 20)


def test_the_most_counts_every_attempt_and_every_draft() -> None:
    assert attempt_growth(Outcomes(empty_answer="keep", repetition="keep", malformed="keep", attempts=5)) == (1, 1.0)
    assert attempt_growth(Outcomes(attempts=3)) == (3, 3.0)
    assert attempt_growth(Outcomes(truncated_answer="raise_cap", attempts=3, cap_factor=2.0)) == (3, 7.0)
    first = Teacher(name="first", model="m", samples=3)
    second = Teacher(name="second", model="m", samples=2, after="first", prompt="{question} {draft}")
    both = Recipe(teachers=(first, second))
    assert both.most_traces(first) == 3 and both.most_traces(second) == 6


def test_a_teacher_that_was_hardly_needed_is_expected_to_be_hardly_needed(tmp_path: Path) -> None:
    rows = [{"question": f"How many? {n}", "domain": "easy"} for n in range(40)]
    rows += [{"question": f"fault=empty How many? {n}", "domain": "hard"} for n in range(40)]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    with stub_server.serve() as url:
        (tmp_path / "recipe.toml").write_text(
            '[data.questions]\nsource = "rows.jsonl"\n[data.questions.columns]\nimage = ""\n'
            "[generate.outcomes]\nattempts = 3\n"
            f'[[teachers]]\nname = "small"\nmodel = "stub"\nbase_url = "{url}"\n'
            f'[[teachers]]\nname = "large"\nmodel = "stub"\nbase_url = "{url}"\nsystem = "Think."\nafter = "small"\n'
            'when = "failed"\n'
        )
        chosen = load(tmp_path / "recipe.toml")
        text = preflight(chosen, tmp_path / "run", probe=16)
        lines = {line.split()[0]: line.split() for line in text.splitlines() if line}
        # The small one wrote one trace for each of eight easy questions and three for each of eight hard ones; the
        # large one three for each hard one.
        assert lines["small"][3] == "32" and lines["large"][3] == "24"
        before = written(tmp_path / "run")
        generate(chosen, tmp_path / "run")
        for name, tokens in written(tmp_path / "run").items():
            number = lines[name][5]
            expected = float(number.removesuffix("k")) * (1000 if number.endswith("k") else 1)
            assert expected == pytest.approx(tokens - before[name], rel=0.01)


def written(run: Path) -> Counter[str]:
    """Output tokens in the journals of each teacher."""
    found: Counter[str] = Counter()
    for part in run.rglob("part-*"):
        for record in read_jsonl(part):
            found[record["teacher"]] += record["usage"]["reasoning"] + record["usage"]["answer"]
    return found
