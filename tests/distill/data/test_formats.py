"""Formats of data sources: plain columns, FineVision, LLaVA, ChartQA, COCO-QA, ScienceQA, formats from a file."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from worlds.source_rows import (
    folder_of_images,
    make_image,
    plain_rows,
    read_one,
    read_rows,
    recipe_for,
    write_jsonl,
    write_table,
)

import distill
from distill.data import reader
from distill.data.gold_answers import RowError, read_votes
from distill.data.images import image_files
from distill.data.row_values import Choices
from distill.errors import DataError, DistillError, RecipeError
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Sample


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_images(tmp_path)


# --- formats ----------------------------------------------------------------------------------------------------


def test_plain_columns_are_mapped_and_extra_facts_kept(folder: Path) -> None:
    row = {
        "picture": ["0.png", "1.png"],
        "ask": " <image><image>\nWhich? ",
        "gold": ["A cat", "cat", "A cat"],
        "kind": "text",
        "field": "animals",
        "meta": {"source": 7},
    }
    columns = 'image = "picture"\nquestion = "ask"\nanswer = "gold"\nanswer_type = "kind"\ndomain = "field"'
    sample = read_one(folder, row, columns=columns)
    assert isinstance(sample, Sample)
    assert (sample.question, sample.answers, sample.answer_type) == ("Which?", ("A cat", "cat"), "text")
    assert (sample.domain, sample.meta) == ("animals", {"source": 7})
    assert [image_files.read_bytes(ref) for ref in sample.images] == [make_image(0), make_image(1)]


def test_further_facts_may_be_an_object_or_its_json_text(folder: Path) -> None:
    for meta in ({"options": ["a", "b"]}, '{"options": ["a", "b"]}'):
        sample = read_one(folder, {**plain_rows()[0], "meta": meta})
        assert isinstance(sample, Sample) and sample.meta == {"options": ["a", "b"]}
    for meta in (None, "words", "{torn", [1]):
        sample = read_one(folder, {**plain_rows()[0], "meta": meta})
        assert isinstance(sample, Sample) and sample.meta == {}


def test_a_source_may_give_the_domain_and_answer_type_of_all_its_rows(folder: Path) -> None:
    rows = [plain_rows()[0], {**plain_rows()[1], "domain": "own", "answer_type": "number"}]
    found = read_rows(folder, rows, domain="charts", answer_type="text")
    assert [(sample.domain, sample.answer_type) for sample in found if isinstance(sample, Sample)] == [
        ("charts", "text"),
        ("own", "number"),
    ]


def test_questions_without_images_are_read_when_asked_for(folder: Path) -> None:
    sample = read_one(folder, {"question": "Why?", "answer": "So."}, columns='image = ""')
    assert isinstance(sample, Sample) and sample.images == ()


@pytest.mark.parametrize("answer", [None, "", " ", []])
def test_a_gold_answer_is_optional(folder: Path, answer: Any) -> None:
    sample = read_one(folder, {**plain_rows()[0], "answer": answer})
    assert isinstance(sample, Sample) and sample.answers == () and sample.answer is None


@pytest.mark.parametrize(
    ("answer", "gold"),
    [(Decimal("12.50"), ("12.50",)), (date(2024, 2, 29), ("2024-02-29",)), (float("nan"), ()), (float("inf"), ())],
)
def test_a_column_of_numbers_or_dates_holds_gold_answers_and_nan_is_none(
    folder: Path, answer: Any, gold: tuple[str, ...]
) -> None:
    rows = [{**row, "answer": answer} for row in plain_rows()]
    found = list(reader.read(recipe_for(folder, write_table(folder, "parquet", rows), images_root="images")))
    assert [sample.answers for sample in found if isinstance(sample, Sample)] == [gold] * 4


def test_finevision_gives_a_sample_a_turn(folder: Path) -> None:
    row = {
        "images": ["0.png"],
        "texts": [{"user": "What?", "assistant": "A cat."}, {"user": "Where?", "assistant": "Here."}],
        "source": "x",
    }
    found = read_rows(folder, [row], format="finevision")
    assert [(sample.question, sample.answer) for sample in found if isinstance(sample, Sample)] == [
        ("What?", "A cat."),
        ("Where?", "Here."),
    ]
    stored_as_lists = {"images": ["0.png"], "texts": {"user": ["What?", "Where?"], "assistant": ["A cat.", "Here."]}}
    assert read_rows(folder, [stored_as_lists], format="finevision") == found


def test_a_question_may_come_with_the_turns_before_it(folder: Path) -> None:
    turns = [("Which?", "A cat."), ("Where?", None), ("Why?", "So.")]
    spoken = [{"from": "human", "value": f"<image><image>{turns[0][0]}"}, {"from": "gpt", "value": "A cat."}]
    spoken += [{"from": "human", "value": text} for text, _ in turns[1:]] + [{"from": "gpt", "value": "So."}]
    found = read_rows(
        folder, [{"images": ["0.png", "1.png"], "conversations": spoken}], format="llava", earlier_turns=True
    )
    samples = [sample for sample in found if isinstance(sample, Sample)]
    assert [sample.question for sample in samples] == [
        "Which?",
        "User: Which?\nAssistant: A cat.\nUser: Where?",
        "User: Which?\nAssistant: A cat.\nUser: Where?\nUser: Why?",
    ]
    assert [sample.answer for sample in samples] == ["A cat.", None, "So."]
    assert {len(sample.images) for sample in samples} == {2}


def test_llava_and_sharegpt_spellings_give_the_same_samples(folder: Path) -> None:
    pairs = [("<image>\nWhat?", "A cat."), ("Where?", "Here.")]
    spoken = [turn for ask, say in pairs for turn in ({"from": "human", "value": ask}, {"from": "gpt", "value": say})]
    roles = [
        turn
        for ask, say in pairs
        for turn in ({"role": "user", "content": ask}, {"role": "assistant", "content": say})
    ]
    parts = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        *roles[2:],
    ]
    llava = read_rows(folder, [{"image": "0.png", "conversations": spoken}], format="llava")
    assert [(sample.question, sample.answer) for sample in llava if isinstance(sample, Sample)] == [
        ("What?", "A cat."),
        ("Where?", "Here."),
    ]
    assert read_rows(folder, [{"images": ["0.png"], "messages": roles}], format="llava") == llava
    assert read_rows(folder, [{"images": ["0.png"], "messages": parts}], format="llava") == llava
    text_only = read_rows(folder, [{"conversations": [{"from": "human", "value": "Why?"}]}], format="llava")
    assert [sample.images for sample in text_only if isinstance(sample, Sample)] == [()]


def test_chartqa_is_read_from_the_hub_layout_and_from_the_original_files(folder: Path) -> None:
    (folder / "images" / "png").mkdir()
    (folder / "images" / "png" / "c.png").write_bytes(make_image(1))
    hub = read_one(folder, {"image": "1.png", "query": "How many?", "label": ["14", "fourteen"]}, format="chartqa")
    original = read_one(folder, {"imgname": "c.png", "query": "How many?", "label": "14"}, format="chartqa")
    assert isinstance(hub, Sample) and isinstance(original, Sample)
    assert hub.id == original.id
    assert (hub.answers, original.answers) == (("14", "fourteen"), ("14",))


def test_cocoqa_is_read_from_tables_and_from_the_published_text_files(folder: Path) -> None:
    name = "COCO_train2014_000000000042.jpg"
    (folder / "images" / "train2014").mkdir()
    (folder / "images" / "train2014" / name).write_bytes(make_image(3))
    by_number = read_one(
        folder, {"image_id": 42, "question": "what is it", "answer": "cat", "type": 0}, format="cocoqa"
    )
    assert isinstance(by_number, Sample) and by_number.meta == {"type": 0}
    assert image_files.read_bytes(by_number.images[0]) == make_image(3)
    (folder / "coco" / "train").mkdir(parents=True)
    for file, line in (("questions", "what is it"), ("answers", "cat"), ("img_ids", "42"), ("types", "0")):
        (folder / "coco" / "train" / f"{file}.txt").write_text(line + "\n")
    (from_text,) = reader.samples(recipe_for(folder, "coco", format="cocoqa", images_root="images"))
    assert (from_text.id, from_text.answer) == (by_number.id, "cat")
    turns = read_one(
        folder, {"images": ["3.png"], "texts": [{"user": "what is it", "assistant": "cat"}]}, format="cocoqa"
    )
    assert isinstance(turns, Sample) and turns.id == by_number.id


def test_scienceqa_becomes_a_lettered_choice(folder: Path) -> None:
    row = {"image": "0.png", "question": "Which?", "choices": ["red", "blue"], "answer": 1, "hint": "Look."}
    sample = read_one(folder, row, format="scienceqa")
    assert isinstance(sample, Sample)
    assert sample.question == "Look.\n\nWhich?\nA. red\nB. blue"
    assert (sample.answers, sample.answer_type, sample.meta) == (("B",), "choice", {"options": ["red", "blue"]})
    without = read_one(folder, {**row, "image": None, "hint": ""}, format="scienceqa")
    assert isinstance(without, Sample) and without.images == ()


COLOURS = ["red", "blue", "green"]


@pytest.mark.parametrize(
    ("choices", "answer", "letter"),
    [
        ({"A": "red", "B": "blue", "C": "green"}, "B", "B"),
        ({"A": "red", "B": "blue", "C": "green", "D": None}, "green", "C"),
        ({"1": "red", "2": "blue", "3": "green"}, 2, "B"),
        ({"label": ["1", "2", "3"], "text": COLOURS}, "3", "C"),
        ('{"A": "red", "B": "blue", "C": "green"}', "A", "A"),
        ("['red', 'blue', 'green']", "blue", "B"),
        (COLOURS, 2.0, "C"),
        (COLOURS, None, None),
    ],
)
def test_choices_may_be_a_list_or_labels_with_texts(
    folder: Path, choices: Any, answer: Any, letter: str | None
) -> None:
    row = {"image": "0.png", "question": "Which?", "choices": choices, "answer": answer}
    sample = read_one(folder, row, format="scienceqa")
    assert isinstance(sample, Sample)
    assert sample.question == "Which?\nA. red\nB. blue\nC. green"
    assert (sample.answer, sample.meta) == (letter, {"options": COLOURS})


def test_a_row_without_choices_in_a_table_of_choices_is_a_plain_question(folder: Path) -> None:
    chosen = {"image": "0.png", "question": "Which?", "choices": ["red", "blue"], "answer": "B"}
    plain = {"image": "1.png", "question": "How many?", "answer": ["7", "seven"]}
    first, second = read_rows(folder, [chosen, plain], format="scienceqa")
    assert isinstance(first, Sample) and isinstance(second, Sample)
    assert (second.question, second.answers, second.meta) == ("How many?", ("7", "seven"), {})


INVOICES = """
from distill.data.formats import ImageCell, ParsedRow, RowError, RowQuestion

def invoices(values, source):
    if "fields" not in values:
        raise RowError("no_fields", "the row holds no fields")
    asked = [RowQuestion(text=f"What is the {name}?", answers=(value,)) for name, value in values["fields"].items()]
    return ParsedRow(images=(ImageCell(column="scan", index=0, value=values["scan"]),), questions=tuple(asked))
"""


def test_a_format_from_a_file_beside_the_recipe_reads_rows_of_any_shape(folder: Path) -> None:
    (folder / "mine.py").write_text(INVOICES)
    rows = [{"scan": "0.png", "fields": {"sum": "7", "year": "1999"}}, {"scan": "1.png"}, {"fields": {"sum": "8"}}]
    found = read_rows(folder, rows, format="mine.py:invoices", max_bad_share=1.0)
    assert [(item.question, item.answer) for item in found if isinstance(item, Sample)] == [
        ("What is the sum?", "7"),
        ("What is the year?", "1999"),
    ]
    reasons = [(item.reason, item.detail) for item in found if isinstance(item, BadRow)]
    assert reasons[0] == ("no_fields", "the row holds no fields")
    assert reasons[1][0] == "format_failed" and "KeyError" in reasons[1][1]


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        ("[RowQuestion(text=5)]", None, ""),
        ("[RowQuestion(text=['q'])]", "malformed_row", "the question is list, not text"),
        ("[RowQuestion(text=' ')]", "empty_question", "no visible character"),
        ("[RowQuestion(text=float('nan'))]", "empty_question", "no visible character"),
        ("[RowQuestion(text='a\\ud800')]", "format_failed", "surrogates not allowed"),
        ("[RowQuestion(text='q', answers=({'a': 1},))]", "bad_answer", "neither text nor number"),
        ("[RowQuestion(text='q', answer_type='nmber')]", "unknown_answer_type", "did you mean 'number'"),
        ("['q']", "format_failed", "AttributeError"),
        ("[]", "empty_question", "the row asks no question"),
        ("sys.exit(2)", "format_failed", "SystemExit: 2"),
    ],
)
def test_a_row_of_a_format_from_a_file_is_held_to_the_rules_of_the_others(
    folder: Path, row: str, reason: str | None, detail: str
) -> None:
    imported = "import sys\nfrom distill.data.formats import ParsedRow, RowQuestion\n"
    (folder / "mine.py").write_text(
        f"{imported}def rows(values, source):\n    return ParsedRow(images=[], questions={row})"
    )
    (found,) = read_rows(folder, [{"scan": "0.png"}], format="mine.py:rows", max_bad_share=1.0)
    assert getattr(found, "reason", None) == reason and detail in getattr(found, "detail", "")


def test_an_answer_that_a_format_gives_as_a_text_is_one_answer(folder: Path) -> None:
    (folder / "mine.py").write_text(INVOICES.replace("answers=(value,)", "answers=value"))
    rows = [{"scan": "0.png", "fields": {"sum": "123", "year": 1999}}]
    found = read_rows(folder, rows, format="mine.py:invoices")
    assert [item.answers for item in found if isinstance(item, Sample)] == [("123",), ("1999",)]


def test_the_code_of_a_format_is_part_of_what_a_source_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = []
    for text in (INVOICES, INVOICES.replace("What is", "Read")):
        place = tmp_path_factory.mktemp("formats")
        (place / "mine.py").write_text(text)
        write_jsonl(place / "q.jsonl", plain_rows())
        found.append(reader.source_fields(recipe_for(place, format="mine.py:invoices"))["format"])
    assert found[0] != found[1] and all(value.startswith("sha256:") for value in found)


@pytest.mark.parametrize("verb", [distill.generate, distill.filter, distill.train, distill.evaluate])
def test_a_format_that_is_edited_while_the_process_lives_is_read_by_the_next_verb(
    folder: Path, verb: Callable[[Recipe, Path], Any]
) -> None:
    (folder / "mine.py").write_text(INVOICES)
    write_jsonl(folder / "q.jsonl", [{"scan": "0.png", "fields": {"sum": "123"}}])
    recipe = recipe_for(folder, images_root="images", format="mine.py:invoices")
    before = [sample.question for sample in reader.samples(recipe)]
    (folder / "mine.py").write_text(INVOICES.replace("What is", "Read"))
    assert [sample.question for sample in reader.samples(recipe)] == before  # one code in a stage
    with pytest.raises(DistillError):  # it has no teachers and no stages
        verb(recipe, folder / "run")
    assert [sample.question for sample in reader.samples(recipe)] != before


def test_a_format_that_is_not_there_is_refused(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", plain_rows())
    with pytest.raises(RecipeError, match="did you mean 'finevision'"):
        recipe_for(folder, format="finevison")
    with pytest.raises(RecipeError, match=r"nowhere\.py cannot be read"):
        list(reader.read(recipe_for(folder, images_root="images", format="nowhere.py:rows")))


TURNS: dict[str, dict[str, Any]] = {
    "finevision": {"image": "0.png", "texts": [{"user": "What?", "assistant": "a"}]},
    "llava": {
        "image": "0.png",
        "conversations": [{"from": "human", "value": "What?"}, {"from": "gpt", "value": "a"}],
    },
    "cocoqa": {"image": "0.png", "question": "What?", "answer": "a"},
    "chartqa": {"imgname": "0.png", "query": "What?", "label": "a"},
    "plain": {"image": "0.png", "question": "What?", "answer": "a"},
}


@pytest.mark.parametrize("name", TURNS)
def test_every_format_keeps_the_difficulty_and_blanks_around_a_domain_are_no_part_of_it(
    folder: Path, name: str
) -> None:
    row = {**TURNS[name], "grade": " hard", "domain": " charts "}
    sample = read_one(folder, row, format=name, columns='difficulty = "grade"')
    assert isinstance(sample, Sample)
    assert sample.meta["difficulty"] == "hard" and sample.domain == "charts"
    blank = read_one(folder, {**row, "grade": " ", "domain": " "}, format=name, domain="all")
    assert isinstance(blank, Sample) and "difficulty" not in blank.meta and blank.domain == "all"


def test_a_number_of_a_coco_image_may_have_the_point_that_data_frames_write(folder: Path) -> None:
    (folder / "images" / "000000000042.jpg").write_bytes(make_image(5))
    row = {"image_id": 42.0, "question": "what is it", "answer": "cat"}
    assert isinstance(read_one(folder, row, format="cocoqa"), Sample)


@pytest.mark.parametrize("votes", [12, "many", {"up": 3}, [1, 2]])
def test_what_a_row_keeps_under_the_name_of_votes_is_none(folder: Path, votes: Any) -> None:
    row = {"image": "0.png", "question": "What?", "answer": "a", "meta": {"votes": votes}}
    sample = read_one(folder, row)
    assert isinstance(sample, Sample) and read_votes(sample.meta) == []
    asked = read_one(folder, row | {"answer": ["a"] * 10})
    assert isinstance(asked, Sample) and read_votes(asked.meta) == ["a"] * 10


def test_images_in_several_columns_come_in_their_order_without_empty_cells(folder: Path) -> None:
    columns = {"image_1": "1.png", "image_2": "", "image_10": "0.png"}
    rows = [{"question": "Which?", "answer": "1", **columns}, {"question": "None?", **dict.fromkeys(columns, "")}]
    named = 'image = ["image_1", "image_2", "image_10"]'
    found, empty = read_rows(folder, rows, columns=named)
    assert isinstance(found, Sample)
    assert [Path(ref.path).name for ref in found.images] == ["1.png", "0.png"]
    assert isinstance(empty, BadRow) and empty.reason == "empty_image_cell"
    with pytest.raises(DataError, match=r"no column 'image_3' for the image.*image_10"):
        read_rows(folder, rows, columns='image = ["image_1", "image_3"]')


@pytest.mark.parametrize(
    ("cell", "gold"),
    [
        ("<answer> 5 </answer>", "5"),
        ("<think>2 + 3</think><answer>5</answer>", "5"),
        ("<SUMMARY> I look. </SUMMARY>\n<CONCLUSION> C </CONCLUSION>", "C"),
        ("5 < 6 </b>", "5 < 6 </b>"),
    ],
)
def test_the_gold_answer_within_a_solution_is_read(folder: Path, cell: str, gold: str) -> None:
    found = read_rows(folder, [{"image": "0.png", "question": "How many?", "answer": cell}])[0]
    assert isinstance(found, Sample) and found.answers == (gold,)


def test_the_gold_answer_beside_a_chat_without_a_reply_is_read(folder: Path) -> None:
    row = {"image": "0.png", "conversations": [{"from": "human", "value": "<image>How many?"}], "answer": "5"}
    found = read_rows(folder, [row], format="llava")[0]
    assert isinstance(found, Sample) and found.answers == ("5",)


@pytest.mark.parametrize(
    ("choices", "answer", "letter"),
    [(["4", "2", "7"], "4", "A"), (["4", "2", "7"], "7", "C"), (["0", "1"], "1", "B"), (["4", "2", "7"], 2, "C")],
)
def test_a_text_that_is_a_number_names_the_choice_of_that_text(choices: list[str], answer: Any, letter: str) -> None:
    assert Choices.read(choices).letter(answer) == letter


@pytest.mark.parametrize("answer", ["2", "1", "0", True, 3])
def test_an_answer_that_may_name_two_choices_or_none_is_refused(answer: Any) -> None:
    with pytest.raises(RowError) as raised:
        Choices.read(["1", "2", "7"]).letter(answer)
    assert raised.value.reason == "bad_answer"
