"""What a stage reads: parts of responses, replayed sources, two modes, difficulty."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import student_worlds as worlds

from distill.rationale import NO_THINK
from distill.recipe.loading import load
from student.data import rows


@pytest.fixture
def place(tmp_path: Path) -> Path:
    worlds.data(tmp_path)
    return tmp_path


def read(place: Path, more: str = "", overrides: dict[str, str] | None = None) -> list[rows.TrainingRow]:
    recipe = load(worlds.recipe(place, worlds.stage("reason", more=more)).path, overrides)
    return list(rows.read(recipe, place / "run", recipe.stages[0], Counter()))


def test_the_parts_of_a_response_are_where_their_texts_are(place: Path):
    for row in read(place):
        rationale, answer = row.response[slice(*row.rationale)], row.response[slice(*row.answer)]
        assert row.response == f"<think>\n{rationale}\n</think>\n\n{answer}"
        assert rationale.startswith("row 1: ") and answer.isdigit()


def test_blanks_after_a_reply_are_no_part_of_its_answer(place: Path):
    (file,) = (place / "run" / "filter" / "dataset" / "train").glob("*.parquet")
    table = pq.read_table(file).to_pylist()
    for row in table:
        row["messages"][-1]["content"] += " \n"
    pq.write_table(pa.Table.from_pylist(table), file)
    for row, values in zip(read(place), table, strict=True):
        assert row.response[slice(*row.answer)] == values["answer"]


def test_blanks_before_a_reply_are_left_out_for_they_would_join_the_end_of_the_prompt(place: Path):
    (file,) = (place / "run" / "filter" / "dataset" / "train").glob("*.parquet")
    table, before = pq.read_table(file).to_pylist(), read(place)
    for row in table:
        row["messages"][-1]["content"] = "\n " + row["messages"][-1]["content"]
    pq.write_table(pa.Table.from_pylist(table), file)
    after = read(place)
    assert [(row.response, row.rationale, row.answer) for row in after] == [
        (row.response, row.rationale, row.answer) for row in before
    ]


def test_a_student_that_learns_answers_alone_has_no_rationale(place: Path):
    for row in read(place, more='target = "answer"'):
        assert row.response[slice(*row.answer)] == row.response and row.rationale == (0, 0)


def test_replayed_rows_come_after_the_stages_own_and_say_where_they_are_from(place: Path):
    found = read(place, more="replay = { questions = 0.2 }")
    assert [row.source for row in found] == ["traces"] * 40 + ["questions"] * 40


def test_a_limit_holds_for_the_stages_own_rows(place: Path):
    found = read(place, more="limit = 5\nreplay = { questions = 0.2 }")
    assert Counter(row.source for row in found) == {"traces": 5, "questions": 40}


def test_a_share_of_the_traces_is_learned_without_their_rationale_and_asked_for_in_words(place: Path):
    whole, some = read(place), read(place, more="no_think = 0.5")
    short = [row for row in some if row.question.endswith(NO_THINK)]
    assert 10 < len(short) < 30
    for before, row in zip(whole, some, strict=True):
        answer = row.response[slice(*row.answer)]
        assert answer == before.response[slice(*before.answer)]
        if row in short:
            assert row.question == f"{before.question}{NO_THINK}"
            assert row.response == f"<think>\n\n</think>\n\n{answer}"
        else:
            assert row == before
    more = read(place, more="no_think = 0.8")
    assert {row.id for row in short} < {row.id for row in more if row.question.endswith(NO_THINK)}
    plain = read(place, more="no_think = 1.0", overrides={"filter.rationale": "plain"})
    assert all(row.response == row.response[slice(*row.answer)] for row in plain)


def test_difficulty_is_the_share_of_wrong_answers_and_a_half_where_unknown(place: Path):
    file = place / "run" / "filter" / "dataset" / "train" / "part-00000.parquet"
    table = pq.read_table(file)
    signals = [json.dumps({"question_pass_rate": rate} if rate is not None else {}) for rate in (1.0, 0.25, None)]
    pq.write_table(table.append_column("signals", pa.array((signals * 14)[:40])), file)
    assert [row.difficulty for row in read(place)[:3]] == [0.0, 0.75, 0.5]
