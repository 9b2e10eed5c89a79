"""Limits that leave out many traces, and undecided answers, are shown in the summary, the manifest and the report."""

import orjson
import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, make_image, recipe, sample, trace

from distill.commands.status import warnings
from filters.apply import apply
from filters.decisions.limits import Limit

ALL = "[filter]\nrules = []\nsignals = ['answer', 'agreement']\n"


def apart(count, **settings):
    return [sample(f"Question {number}?", "4", **settings) for number in range(count)]


def filtered(folder, samples, traces, text):
    run = folder / "run"
    generate_folder(run, samples, traces)
    manifest = apply(recipe(folder, text), run)
    card, page = (run / "filter/dataset/README.md").read_text(), (run / "filter/report.html").read_text()
    return manifest, warnings(run), card, page


def test_a_mix_that_leaves_few_traces_warns_with_the_kind_that_binds(tmp_path):
    asked = apart(60)
    traces = [trace(one, teacher="brief" if place < 3 else "structured") for place, one in enumerate(asked)]
    mix = '[[filter.select.mix]]\nby = "teacher"\nshares = { structured = 0.5, brief = 0.5 }\n'
    manifest, summary, card, page = filtered(tmp_path, asked, traces, ALL + mix)
    assert manifest.counts["selected"] == 6 and manifest.counts["left_out.mix"] == 54
    sentence = (
        "filter.select: the mix by teacher leaves 6 of 60 kept traces: teacher = brief has only 3 traces for 50 % of "
        "the dataset"
    )
    assert f"warning: {sentence}" in summary
    assert sentence in card and sentence in page


def test_every_limit_that_leaves_out_more_than_a_tenth_says_so_in_the_order_in_which_they_hold(tmp_path):
    asked = apart(10)
    traces = [trace(one, k=k, teacher=name) for one in asked for name in ("structured", "brief") for k in (0, 1, 2)]
    select = "[filter.select]\nper_teacher = 2\nper_question = 3\nlimit = 20\n"
    manifest, summary, _, _ = filtered(tmp_path, asked, traces, ALL + select)
    assert [line for line in summary.splitlines() if line.startswith("note: filter.select")] == [
        "note: filter.select: per_teacher = 2 leaves 40 of 60 kept traces",
        "note: filter.select: per_question = 3 leaves 30 of the 40 traces that the limits before it left",
        "note: filter.select: limit = 20 leaves 20 of the 30 traces that the limits before it left",
    ]
    left_out = {name: count for name, count in manifest.counts.items() if name.startswith("left_out.")}
    assert left_out == {"left_out.per_teacher": 20, "left_out.per_question": 10, "left_out.limit": 10}
    assert sum(left_out.values()) == manifest.counts["kept"] - manifest.counts["selected"]


def test_a_limit_that_leaves_out_a_tenth_or_less_says_nothing(tmp_path):
    asked = apart(20)
    manifest, summary, _, _ = filtered(
        tmp_path, asked, list(map(trace, asked)), ALL + "[filter.select]\nlimit = 18\n"
    )
    assert manifest.counts["selected"] == 18 and "filter.select" not in summary


HEDGED = ("not 16", "16 or 18", "It is not 16.")


def test_undecided_answers_are_dropped_unless_agreement_speaks_for_them(tmp_path):
    asked = [sample(f"How many of {number}?", "16", answer_type="number") for number in range(30)]
    traces = []
    for place, one in enumerate(asked):
        if place < 10:  # alone
            traces.append(trace(one, HEDGED[place % 3], f"It must be this, {place}.", k=0))
        elif place < 20:  # against a majority of its own teacher
            traces += [trace(one, "16", f"Four fours, {place}, row {k}.", k=k) for k in (0, 1)]
            traces.append(trace(one, "16 or 18", f"It must be one of these, {place}.", k=2))
        else:  # both teachers, every time
            names = ("structured", "brief")
            traces += [trace(one, "16 or 18", f"{name} sees {place}.", teacher=name) for name in names]
    manifest, summary, _, _ = filtered(tmp_path, asked, traces, "")
    rows = pq.read_table(tmp_path / "run/filter/decisions.parquet").to_pylist()
    dropped = {row["id"] for row in rows if any(each["rule"] == "undecided_answer" for each in row["reasons"])}
    hedging = [one for one in traces if one.answer in HEDGED]
    assert dropped == {one.id for one in hedging if one.sample_id not in {other.id for other in asked[20:]}}
    assert manifest.counts["rule.undecided_answer"] == 20 and manifest.counts["selected.undecided"] == 20
    assert (
        "of 40 answers undecided against the gold answer, 20 in the dataset (0 by the judge, 20 by "
        "agreement, 0 by neither), rules dropped 20"
    ) in summary


def test_a_dataset_of_undecided_answers_warns_whatever_the_rules_are(tmp_path):
    asked = [sample(f"How many of {number}?", "16", answer_type="number") for number in range(30)]
    traces = [trace(one, HEDGED[place % 3], f"Seen in {place}.") for place, one in enumerate(asked)]
    manifest, summary, card, _ = filtered(tmp_path, asked, traces, ALL)
    assert manifest.counts["selected.undecided"] == 30 and manifest.counts["warnings"] >= 1
    assert (
        "100 % of the selected answers to questions with a gold answer are undecided against it (30 of 30)" in summary
    )
    assert "30 in the dataset (0 by the judge, 0 by agreement, 30 by neither), rules dropped 0" in summary
    assert "| answer is undecided against the gold answer | 100.0 % |" in card
    checks = orjson.loads((tmp_path / "run/filter/health.json").read_bytes())["checks"]
    assert next(check for check in checks if check["name"] == "undecided")["count"] == 30


@pytest.mark.parametrize("signals", ["", "[filter]\nsignals = ['answer']\n"])
def test_questions_without_a_gold_answer_have_no_undecided_answers(tmp_path, signals):
    asked = [sample(f"What is this, number {number}?") for number in range(5)]
    traces = [trace(one, f"thing {one.id}", f"It looks like {one.id}.") for one in asked]
    manifest, summary, _, _ = filtered(tmp_path, asked, traces, signals)
    assert manifest.counts["selected"] == 5 and manifest.counts["rule.undecided_answer"] == 0
    assert "undecided" not in summary


def test_test_images_under_other_questions_are_noted_with_what_follows(tmp_path):
    shown = [make_image(tmp_path / "images", number, 48) for number in range(3)]
    rows = [{"image": one.path, "question": "What is to the left of it?", "answer": "x"} for one in shown[:2]]
    (tmp_path / "test.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    asked = [sample("How many towers are red?", "4", images=[one]) for one in shown]
    text = '[data.test]\nsource = "test.jsonl"\nallow_outside_root = true\n[filter]\nrules = []\n'
    _, summary, _, _ = filtered(tmp_path, asked, list(map(trace, asked)), text)
    assert "note: 2 questions of the dataset with an image of [data.test] under another question" in summary


@pytest.mark.parametrize(
    ("before", "after", "large"), [(100, 90, False), (100, 89, True), (10, 9, False), (10, 8, True), (0, 0, False)]
)
def test_a_limit_is_large_where_it_leaves_out_more_than_a_tenth(before, after, large):
    limit = Limit(name="limit", setting="limit = 5", before=before, after=after, kept=before)
    assert limit.is_large is large and limit.left_out == before - after
    assert str(limit) == f"filter.select: limit = 5 leaves {after} of {before} kept traces"
