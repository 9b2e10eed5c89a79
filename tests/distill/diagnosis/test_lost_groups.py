"""Groups that a step loses while others pass are found by their counts; chance and equal losses are no finding."""

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import orjson

from distill.diagnosis.lost_groups import LostGroup, findings_of, lost_groups
from distill.diagnosis.row_groups import StepRows, as_fields, groups_of, read_rows_left, settings_text
from distill.recipe.sections.filter import Select
from distill.types import ImageRef, Sample

DOMAINS = ("charts", "digits", "scenes")
Row = dict[str, str]


def rows(count: int = 300) -> list[Row]:
    drawn = random.Random(0)
    return [
        {
            "domain": DOMAINS[n % 3],
            "teacher": f"of {DOMAINS[n % 3]}",
            "meta.kind": drawn.choice("abcdefgh"),
            "answer type": "number" if n % 2 else "text",
        }
        for n in range(count)
    ]


def lost(before: Iterable[Row], passes: Callable[[Row], bool]) -> list[LostGroup]:
    whole = list(before)
    step = StepRows.of(filter(passes, whole), "the rule misread", "filter.rules")
    return lost_groups([(StepRows.of(whole), step)])


def test_a_group_that_a_step_loses_is_named_with_the_other_name_of_its_rows() -> None:
    (group,) = lost(rows(), lambda row: row["domain"] != "charts")
    assert (group.grouping, group.values, group.count, group.left) == ("domain", ("charts",), 100, 0)
    assert group.name == "the domain 'charts' (teacher 'of charts')"
    (finding,) = findings_of([group])
    assert finding.name == "rows_lost" and finding.certainty == "likely" and finding.change == "filter.rules"
    assert "they are 100 of 300 rows (33 %) before it and 0 of 200 rows (0 %) after it" in finding.problem


def test_most_groups_may_be_lost() -> None:
    (group,) = lost(rows(), lambda row: row["domain"] == "charts")
    assert group.values == ("digits", "scenes") and group.name.startswith("the domains 'digits' and 'scenes'")


def test_a_teacher_alone_may_be_replaced_by_others() -> None:
    (group,) = lost(
        ({"domain": row["domain"], "teacher": row["answer type"]} for row in rows()),
        lambda row: row["teacher"] == "text",
    )
    assert group.name == "the teacher 'number'" and next(findings_of([group])).certainty == "possible"


def _passes(drawn: Iterator[bool], _: Row) -> bool:
    return next(drawn)


def test_losses_of_all_groups_alike_and_by_chance_are_none() -> None:
    for seed in range(50):
        for passing in (0.02, 0.1, 0.5, 0.9):
            drawn = iter(random.Random(seed).choices((True, False), (passing, 1 - passing), k=300))
            assert lost(rows(), partial(_passes, drawn)) == []
    assert lost(rows(45), lambda row: row["domain"] != "charts") == []  # 15 rows say nothing
    assert lost(rows(), lambda row: row["domain"] != "charts" or row["answer type"] == "number") == []  # half


def test_a_group_is_named_at_the_step_that_takes_most_of_it() -> None:
    whole = rows()
    some = StepRows.of((r for n, r in enumerate(whole) if r["domain"] != "charts" or n % 10 == 0), "some")
    none = StepRows.of((r for r in whole if r["domain"] != "charts"), "none")
    assert [each.after.step for each in lost_groups([(StepRows.of(whole), step) for step in (some, none)])] == [
        "none"
    ]


def test_groupings_without_a_value_in_common_are_not_compared() -> None:
    other = StepRows.of({"domain": f"my {row['domain']}"} for row in rows())
    assert lost_groups([(StepRows.of(rows()), other)]) == []


def test_a_question_is_in_groups_by_what_its_row_says() -> None:
    image = ImageRef(sha256="0", path="/data/charts/7.png")
    asked = Sample(
        id="a",
        images=(image,),
        question="How many bars are red?",
        answers=("4",),
        answer_type="number",
        domain="charts",
        meta={"kind": "sum", "bars": {"red": 4}},
    )
    assert groups_of(asked, "analyst") == {
        "domain": "charts",
        "teacher": "analyst",
        "answer type": "number",
        "form of the gold answer": "a number",
        "number of images": "1",
        "file of the images": "charts/*.png",
        "length of the question": "up to 8 words",
        "meta.kind": "sum",
    }
    assert "domain" not in groups_of(Sample(id="a", images=(), question="?"))


def test_a_name_for_each_row_does_not_group() -> None:
    assert StepRows.of({"meta.id": str(n), "domain": "charts"} for n in range(60)).groups == {
        "domain": {"charts": 60}
    }


def test_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    steps = [StepRows.of(rows(), "the rule misread", "filter.rules")]
    (tmp_path / "health.json").write_bytes(orjson.dumps(as_fields(steps)))
    assert read_rows_left(tmp_path / "health.json") == steps
    (tmp_path / "old.json").write_text("{}")
    assert read_rows_left(tmp_path / "old.json") == read_rows_left(tmp_path / "none.json") == []


def test_settings_that_are_not_the_default_are_told() -> None:
    assert settings_text("filter.select", Select(), ("per_question", "order")) == ""
    assert settings_text("filter.select", Select(per_question=2, limit=9), ("per_question", "limit")) == (
        "filter.select.per_question, now 2 and filter.select.limit, now 9"
    )
