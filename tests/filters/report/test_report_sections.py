"""What the report's sections count is what filtering again, or counting by hand, gives."""

from collections import Counter
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from worlds.run_fixtures import generate_folder, make_image, recipe, sample, small_world, trace

from distill.artifacts.manifest import Manifest
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import Filter, Mix, Rule, Select
from filters.apply import apply
from filters.decisions import decide
from filters.decisions.rules import check
from filters.report import overlap, page, teachers, thresholds
from filters.report import table as report_table
from filters.signals import registry, schema
from filters.tables import run_signal_tables
from filters.tables.signal_database import Tables

SCHEMAS = registry.schemas(Recipe())
RULES = """
[[filter.rules]]
name = "incomplete"
drop = "outcome <> 'complete'"
[[filter.rules]]
name = "wrong"
drop = "answer_verdict = 'wrong'"
[[filter.rules]]
name = "long"
drop = "rationale_tokens >= 35"
"""
SELECT = Select(per_question=2, per_teacher=1, limit=9)


@pytest.fixture
def run(tmp_path):
    samples, traces = small_world(tmp_path / "pictures", questions=12)
    # Rationales of many lengths: of each question twice the same.
    traces = [
        replace(one, reasoning=" ".join(one.reasoning.split()[: 10 + 3 * (place // 4) + one.k % 2]))
        for place, one in enumerate(traces)
    ]
    generate_folder(tmp_path / "run", samples, traces)
    apply(recipe(tmp_path, RULES), tmp_path / "run")
    return tmp_path / "run"


def rules(long="rationale_tokens >= 35", leave_out=""):
    found = {"incomplete": "outcome <> 'complete'", "wrong": "answer_verdict = 'wrong'", "long": long}
    return [Rule(name=name, drop=drop) for name, drop in found.items() if name != leave_out]


def decided(run, chosen, select):
    """Kept and selected traces when the policy is this one, and the page's table."""
    path = run / "decisions.parquet"
    tables = Tables.of(run / "filter")
    decide.decide(check(Filter(rules=tuple(chosen))), select, tables, path)
    rows = pq.read_table(path).to_pylist()
    facts = report_table.gather(decide.database(tables, path), SCHEMAS)
    return sum(row["kept"] for row in rows), sum(row["selected"] for row in rows), facts


def test_a_table_that_is_copied_in_parts_has_the_same_rows(run, monkeypatch):
    query = "SELECT * FROM page ORDER BY id"
    *_, whole = decided(run, rules(), SELECT)
    monkeypatch.setattr(report_table, "_COPIED_AT_ONCE", 5)
    *_, in_parts = decided(run, rules(), SELECT)
    expected = whole.rows(query)
    assert len(expected) > 20 and in_parts.rows(query) == expected


@pytest.mark.parametrize("select", [Select(), Select(per_question=1), SELECT])
def test_every_threshold_says_what_filtering_with_it_keeps_and_selects(run, select):
    *_, facts = decided(run, rules(), select)
    (curve,) = thresholds.curves(facts, check(Filter(rules=tuple(rules()))), select)
    assert (curve.rule, curve.number, len(curve.table) > 2) == ("long", 35, True)
    for step in curve.table:
        kept, selected, _ = decided(run, rules(f"rationale_tokens >= {step.number}"), select)
        assert (step.kept, step.selected) == (kept, selected)
    for number, kept in curve.points[::7]:
        assert decided(run, rules(f"rationale_tokens >= {number}"), select)[0] == kept
    (present,) = [step for step in curve.table if step.present]
    assert present.number == 35 and present.change == 0


@pytest.mark.parametrize("select", [Select(), SELECT])
def test_without_a_rule_so_many_more_are_kept_and_selected(run, select):
    kept, selected, facts = decided(run, rules(), select)
    for row in thresholds.without(facts, check(Filter(rules=tuple(rules()))), select):
        more, chosen, _ = decided(run, rules(leave_out=row.rule), select)
        assert (row.kept, row.selected) == (more - kept, chosen - selected)


@pytest.mark.parametrize(("first", "said"), [("k = 0", "3 kept copies stand in for"), ("k = 7", "")])
def test_the_page_says_which_numbers_count_a_copy_and_the_trace_for_which_it_stands(tmp_path, first, said):
    asked = [sample(f"Question {number}?", "4") for number in range(3)]
    generate_folder(
        tmp_path / "run",
        asked,
        [trace(one, "4", "It shows four.", k=k, id=f"{k}{one.id:0>31.31}") for one in asked for k in range(3)],
    )
    policy = [("first", first), ("copy", "exact_duplicate"), ("long", "rationale_tokens > 90")]
    blocks = "".join(f'[[filter.rules]]\nname = "{name}"\ndrop = "{drop}"\n' for name, drop in policy)
    settings = f'[filter]\nsignals = ["answer", "length", "duplicates"]\n{blocks}'
    assert apply(recipe(tmp_path, settings), tmp_path / "run").counts["kept"] == 3
    page = (tmp_path / "run/filter/report.html").read_text()
    assert page.count("in for preferred traces that another rule drops") == (2 if said else 0) and said in page


def test_with_a_mix_the_number_of_selected_traces_is_not_predicted(run):
    select = Select(mix=(Mix(by="domain", shares={"scenes": 0.5}),))
    *_, facts = decided(run, rules(), select)
    checked = check(Filter(rules=tuple(rules())))
    assert all(row.selected is None for row in thresholds.without(facts, checked, select))
    assert all(step.selected is None for step in thresholds.curves(facts, checked, select)[0].table)


def compare(run, values, tmp_path):
    """The comparison of teachers when the student's values are these, by trace id."""
    rows = [
        {"id": name, "student_state": "ok", "student_rank_surprisal": value, "student_nll": 1.0}
        for name, value in values.items()
    ]
    part = run_signal_tables.part(run / "filter/student", 0)
    run_signal_tables.write(part, rows, schema.STUDENT, {})
    tables = replace(Tables.of(run / "filter"), side={"student": (part,)})
    database = decide.database(tables, run / "filter/decisions.parquet")
    return teachers.compare(report_table.gather(database, SCHEMAS), {}, "words")


def two_teachers(tmp_path, questions=40):
    samples = [sample(f"How many dots, {n}?", "4", images=[make_image(tmp_path, n)]) for n in range(questions)]
    traces = [trace(one, "4", f"Four of them, {one.id}.", teacher=name) for one in samples for name in ("a", "b")]
    generate_folder(tmp_path / "run", samples, traces)
    apply(recipe(tmp_path, "[filter]\nrules = []\n"), tmp_path / "run")
    return tmp_path / "run", traces


def test_the_teacher_that_fits_better_on_shared_questions_is_named_as_sure(tmp_path):
    run, traces = two_teachers(tmp_path)
    values = {one.id: (2.0 if one.teacher == "a" else 3.0) + n % 7 / 100 for n, one in enumerate(traces)}
    found = compare(run, values, tmp_path)
    assert found.verdict.startswith("a fits this student best: median rank over surprisal 2.03")
    assert (
        "On the 40 questions of both it is lower by" in found.verdict
        and "not due to the choice of the questions" in found.verdict
    )


def test_few_questions_give_no_interval_and_no_sure_teacher(tmp_path):
    run, traces = two_teachers(tmp_path, questions=10)
    # No question is measured of both.
    of = {"a": traces[:10:2], "b": traces[11::2]}
    values = {one.id: number for name, number in (("a", 2.0), ("b", 3.0)) for one in of[name]}
    found = compare(run, values, tmp_path)
    assert found.verdict.startswith(
        "a fits this student best: median rank over surprisal 2.00 (too few questions for an interval) on 5 questions"
    )
    assert "Too few questions were measured, so it is not certain which of the two fits better" in found.verdict
    assert "do not overlap" not in found.verdict


def test_teachers_that_differ_by_chance_are_not_ranked_as_sure(tmp_path):
    run, traces = two_teachers(tmp_path)
    found = compare(run, {one.id: 2.0 + (n * 7919 % 101) / 100 for n, one in enumerate(traces)}, tmp_path)
    assert "it is not certain which of the two fits better" in found.verdict


def test_a_teacher_that_is_worse_on_the_shared_questions_is_not_called_better_there(tmp_path):
    run, traces = two_teachers(tmp_path)
    # Only the first 25 questions were measured of b; a has further ones, and easier.
    values = {
        one.id: (3.0 if n < 50 else 1.0) + n % 7 / 1000 if one.teacher == "a" else 2.0 + n % 7 / 1000
        for n, one in enumerate(traces)
        if one.teacher == "a" or n < 50
    }
    values |= {one.id: 1.0 for n, one in enumerate(traces) if one.teacher == "a" and n < 16}
    values |= {one.id: 0.5 for n, one in enumerate(traces) if one.teacher == "b" and n < 16}
    found = compare(run, values, tmp_path)
    assert found.verdict.startswith("a fits this student best: median rank over surprisal 1.00")
    assert "But on the 25 questions of both it is higher by 1.00" in found.verdict
    assert "there b fits better" in found.verdict and "holds 0" not in found.verdict


def test_without_fit_the_page_says_how_to_get_it(run):
    database = decide.database(Tables.of(run / "filter"), run / "filter/decisions.parquet")
    tokens = Manifest.read(run / "generate").tokens
    found = teachers.compare(report_table.gather(database, SCHEMAS), tokens, "words")
    assert "was not measured" in found.verdict and "filter.student.per_teacher" in found.verdict
    shown = {label: cells for label, _, cells in found.rows}
    assert found.teachers == ["brief", "structured"] and shown["traces"] == ["12", "36"]
    # Thirteen tokens a trace; of 36 traces 18 are right, twelve of them the same text twice but of no rule.
    assert shown["teacher tokens a trace"] == ["13.0", "13.0"]


def test_tokens_for_a_kept_trace_are_those_of_all_replies_of_the_teacher(tmp_path):
    samples = [sample(f"How many dots, {n}?", "4", images=[make_image(tmp_path, n)]) for n in range(6)]
    traces = [trace(one, "4", f"Four of them, {one.id}.") for one in samples]
    traces = [replace(one, outcome="error") if place < 4 else one for place, one in enumerate(traces)]
    generate_folder(tmp_path / "run", samples, traces)
    apply(recipe(tmp_path, RULES), tmp_path / "run")
    database = decide.database(Tables.of(tmp_path / "run/filter"), tmp_path / "run/filter/decisions.parquet")
    facts = report_table.gather(database, SCHEMAS)
    shown = {label: cells for label, _, cells in teachers.compare(facts, {"structured.output": 51}, "words").rows}
    assert shown["traces"] == ["6"] and shown["kept"] == ["33.3 %"]
    # Four requests failed and cost nothing.
    assert shown["teacher tokens a trace"] == shown["teacher tokens for a kept trace"] == ["25.5"]
    unknown = {label for label, *_ in teachers.compare(facts, {"reasoning": 51}, "words").rows}
    assert "traces" in unknown and not any("tokens a trace" in label for label in unknown)


def test_an_answer_of_an_incomplete_trace_is_not_counted_as_correct(run):
    database = decide.database(Tables.of(run / "filter"), run / "filter/decisions.parquet")
    facts = report_table.gather(database, SCHEMAS)
    facts.database.execute(
        "UPDATE page SET outcome = 'truncated_answer' WHERE id IN (SELECT min(id) FROM page "
        "WHERE outcome = 'complete' AND answer_verdict IN ('correct', 'wrong') GROUP BY teacher, answer_verdict)"
    )
    shares = facts.rows(
        "SELECT count(*) FILTER (answer_verdict = 'correct') / count(*) FROM page "
        "WHERE outcome = 'complete' AND teacher = 'structured' AND answer_verdict IS NOT NULL"
    )
    shown = {label: cells for label, _, cells in teachers.compare(facts, {}, "words").rows}
    assert shown["correct"][-1] == f"{100 * shares[0][0]:.1f} %"
    assert len(facts.rows("SELECT 1 FROM page WHERE outcome <> 'complete' AND answer_verdict = 'correct'")) > 0


def test_a_rationale_without_values_is_none_that_a_table_could_judge(run):
    database = decide.database(Tables.of(run / "filter"), run / "filter/decisions.parquet")
    facts = report_table.gather(database, SCHEMAS)
    places = "grounding_checked = rowid % 2, unsupported_values = (rowid % 4 = 1)::INTEGER"
    facts.database.execute(f"UPDATE page SET {places}")
    judged = facts.rows(
        "SELECT teacher, sum(unsupported_values), sum(grounding_checked) FROM page GROUP BY 1 ORDER BY 1"
    )
    shown = {label: cells for label, _, cells in teachers.compare(facts, {}, "words").rows}
    assert shown["traces with unsupported values"] == [f"{100 * found / of:.1f} %" for _, found, of in judged]


def test_groups_of_near_duplicates_are_counted_by_size(run):
    database = decide.database(Tables.of(run / "filter"), run / "filter/decisions.parquet")
    found = overlap.duplicates(report_table.gather(database, SCHEMAS))
    table = pq.read_table(run / "filter/corpus/part-00000.parquet").to_pylist()
    sizes = Counter(row["corpus_cluster_size"] for row in table if row["corpus_duplicate"] is False)
    assert found.clusters == sum(count for size, count in sizes.items() if size > 1)
    assert found.duplicates == sum(bool(row["corpus_duplicate"]) for row in table) > 0
    assert sum(traces for *_, traces in found.sizes) == sum(size * count for size, count in sizes.items() if size > 1)


LEAKS = """
[data.test]
source = "test.jsonl"
images_root = "."
[eval]
data = "test"
"""


def test_only_a_question_with_its_image_is_called_a_leak(tmp_path):
    shown = [make_image(tmp_path, n, size=48) for n in range(3)]
    samples = [
        sample("How many red dots are there?", "4", images=[shown[0]]),
        sample("How many red dots are there?", "4", images=[shown[1]]),
    ]
    generate_folder(tmp_path / "run", samples, [trace(one) for one in samples])
    (tmp_path / "test.jsonl").write_text(
        '{"image": "00000.png", "question": "How many red dots are there?", "answer": "4"}\n'
    )
    read = recipe(tmp_path, f"{LEAKS}[filter]\nrules = []\n")
    apply(read, tmp_path / "run")
    database = decide.database(Tables.of(tmp_path / "run/filter"), tmp_path / "run/filter/decisions.parquet")
    found = overlap.contamination(report_table.gather(database, SCHEMAS))
    assert (found.checked, found.leaks, found.selected, len(found.examples)) == (2, 1, 1, 1)
    text = (tmp_path / "run/filter/report.html").read_text()
    assert "1 selected trace is about a question and image of a test set" in text
    apply(recipe(tmp_path, LEAKS), tmp_path / "run", fresh=True)
    assert "none is selected" in (tmp_path / "run/filter/report.html").read_text()


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 0, "none"), (0, 9, "0 %"), (1, 900, "under 1 %"), (899, 900, "over 99 %"), (9, 9, "100 %"), (1, 2, "50 %")],
)
def test_a_share_of_almost_none_or_all_is_not_rounded_to_it(part, whole, said):
    assert page._share(part, whole) == said


ODD = """
from dataclasses import dataclass
from filters.signals.base import family


@dataclass(frozen=True)
class Odd:
    name = "odd"
    version = "1"
    scope = "trace"
    columns = family("odd", odd_value=("number", "odd"))

    @classmethod
    def from_recipe(cls, recipe):
        return cls()

    def measure(self, sample, traces):
        return [{"odd_state": "ok", "odd_value": VALUES[(t.k + int(t.id[0], 16)) % len(VALUES)]} for t in traces]
"""


@pytest.mark.parametrize("values", [[1e308, -1e308, 0.0], [0.0, 5e-324, 1e-310], [-1.7e308, 1.7e308], [1e-323, 0.5]])
def test_the_largest_and_the_smallest_numbers_of_a_signal_are_drawn(tmp_path, values):
    samples, traces = small_world(tmp_path / "pictures")
    generate_folder(tmp_path / "run", samples, traces)
    (tmp_path / "odd.py").write_text(f"{ODD}\n\nVALUES = {values}\n")
    rule = '{ name = "o", drop = "odd_value > 0.25" }, { name = "far", drop = "odd_value > 1e400" }'
    settings = f'[filter]\nsignals = ["odd.py:Odd"]\nrules = [{rule}]\n'
    counts = apply(recipe(tmp_path, settings), tmp_path / "run").counts
    assert counts["selected"] > 0 and (counts["rule.o"] > 0) == (max(values) > 0.25)
    shown = (tmp_path / "run/filter/report.html").read_text()
    assert "odd_value" in shown and "inf" not in shown.split("<style")[0] and ">inf<" not in shown
