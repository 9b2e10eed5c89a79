"""`distill init` on data that is no table: trees of records, files beside images, workbooks and databases.

Each form that is read has near cases that must be refused: a wrong question, image or answer is worse.
"""

import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from worlds.init_data import asked, distill, photos, read

from distill.recipe.loading import load

Pairs = list[tuple[str, str, str]]


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of 20 images in the folder `data`."""
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "data")
    return sorted(str(path.relative_to("data")) for path in Path("data").rglob("*.[Jj][Pp]*"))


def write(name: str, value: Any) -> None:
    path = Path("data", name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def expected(names: list[str]) -> set[tuple[str, str, str | None]]:
    return {(Path(name).name, f"What is {at}?", f"a{at}") for at, name in enumerate(names)}


def lists(names: list[str]) -> dict[str, Any]:
    images = [{"id": 40 + at, "file_name": name} for at, name in enumerate(names)]
    notes = [
        {"id": at, "image_id": 40 + at, "question": f"What is {at}?", "answer": f"a{at}"} for at in range(len(names))
    ]
    return {"info": {"year": 2026}, "images": images, "annotations": notes}


def in_one_file(names: list[str]) -> None:
    write("all.json", lists(names))


def in_two_files(names: list[str]) -> None:
    write("images.json", lists(names)["images"])
    write("questions.json", lists(names)["annotations"])


def with_ids_as_keys(names: list[str]) -> None:
    images = {str(40 + at): {"file_name": name, "width": 9} for at, name in enumerate(names)}
    write("all.json", {"images": images, "annotations": lists(names)["annotations"]})


def nested(names: list[str]) -> None:
    records = [
        {"photo": {"file": name, "width": 9}, "qas": [{"id": 1, "question": f"What is {at}?", "answer": f"a{at}"}]}
        for at, name in enumerate(names)
    ]
    write("all.json", {"version": 1, "data": {"records": records}})


def label_studio(names: list[str], *answers: str) -> None:
    tasks = [
        {
            "id": at,
            "data": {"image": name, "question": f"What is {at}?"},
            "annotations": [
                {"result": [{"from_name": "answer", "type": "textarea", "value": {"text": [answer or f"a{at}"]}}]}
                for answer in answers or [""]
            ],
            "predictions": [{"result": [{"from_name": "answer", "value": {"text": ["guess"]}}]}],
        }
        for at, name in enumerate(names)
    ]
    write("export.json", tasks)


def cvat(names: list[str]) -> None:
    images = "".join(
        f'<image id="{at}" name="{name}"><box label="dog"/><tag label="qa"><attribute name="question">What is {at}?'
        f'</attribute><attribute name="answer">a{at}</attribute></tag></image>'
        for at, name in enumerate(names)
    )
    write("annotations.xml", f"<annotations><version>1.1</version>{images}</annotations>")


def database(names: list[str]) -> None:
    with closing(sqlite3.connect("data/quiz.db")) as base, base:
        base.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY, file TEXT)")
        base.execute("CREATE TABLE questions (id INTEGER, photo_id INTEGER, question TEXT, answer TEXT)")
        for at, name in enumerate(names):
            base.execute("INSERT INTO photos VALUES (?, ?)", (at + 7, name))
            base.execute("INSERT INTO questions VALUES (?, ?, ?, ?)", (at, at + 7, f"What is {at}?", f"a{at}"))


def answers_apart(names: list[str]) -> None:
    rows = [{"id": at, "image": name, "question": f"What is {at}?"} for at, name in enumerate(names)]
    write("questions.json", {"questions": rows})
    write("gold.json", [{"question_id": at, "answer": f"a{at}"} for at in range(len(names))])


def markdown(names: list[str]) -> None:
    parts = [
        f"## {at}\n\n![x]({name})\n\n**Question:** What is {at}?\n\n**Answer:** a{at}\n"
        for at, name in enumerate(names)
    ]
    write("quiz.md", "# Quiz\n\nFor the party.\n\n" + "\n".join(parts))


def markdown_table(names: list[str]) -> None:
    lines = [f"| ![]({name}) | What is {at}? | a{at} |" for at, name in enumerate(names)]
    write("quiz.md", "# Quiz\n\n| Image | Question | Answer |\n| --- | :-: | --- |\n" + "\n".join(lines))


def labelled_texts(names: list[str]) -> None:
    for at, name in enumerate(names):
        write(str(Path(name).with_suffix(".txt")), f"Q: What is {at}?\nA: a{at}\n")


def records_beside(names: list[str]) -> None:
    for at, name in enumerate(names):
        write(str(Path(name).with_suffix(".json")), {"qa": {"question": f"What is {at}?", "answer": f"a{at}"}})


def texts_in_folders(names: list[str]) -> None:
    for at, name in enumerate(names):
        write(f"questions/{Path(name).stem}.txt", f"What is {at}?")
        write(f"answers/{Path(name).stem}.txt", f"a{at}")


FORMS: list[Callable[[list[str]], None]] = [
    *(in_one_file, in_two_files, with_ids_as_keys, nested, label_studio, cvat, database, answers_apart),
    *(markdown, markdown_table, labelled_texts, records_beside, texts_in_folders),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_each_question_has_its_own_image_and_answer(names: list[str], form: Callable[[list[str]], None]) -> None:
    form(names)
    assert asked() == expected(names)


def change(names: list[str], part: str, at: int, **fields: Any) -> None:
    """The lists of images and questions in one file, with other fields in a record."""
    value = lists(names)
    value[part][at] |= fields
    write("all.json", value)


def beside(names: list[str], extra: str, text: str) -> None:
    labelled_texts(names)
    write(extra, text)


def with_options_apart(names: list[str]) -> None:
    database(names)
    with closing(sqlite3.connect("data/quiz.db")) as base, base:
        base.execute("CREATE TABLE options (id INTEGER, question_id INTEGER, text TEXT)")
        base.executemany("INSERT INTO options VALUES (?, ?, ?)", [(at, at // 2, f"x{at}") for at in range(20)])


def two_lists(names: list[str]) -> None:
    value = lists(names)
    write("all.json", {**value, "photos": [{**image, "file_name": names[0]} for image in value["images"]]})


def another_image(names: list[str]) -> None:
    records_beside(names)
    path = Path("data", names[3]).with_suffix(".json")
    path.write_text(json.dumps({"image": names[4], "question": "What is 3?", "answer": "a3"}))


def an_image_twice(names: list[str]) -> None:
    labelled_texts(names)
    first = Path("data", names[0])
    Path("data/labels").mkdir()
    for name in names:
        text = Path("data", name).with_suffix(".txt")
        text.rename(Path("data/labels", text.name))
    Path("data/other").mkdir()
    Path("data/other", first.name).write_bytes(first.read_bytes())


def choices_in_a_list(names: list[str]) -> None:
    records = [
        {"question": f"What is {at}?", "texts": ["x", f"a{at}"], "answer": f"a{at}"} for at in range(len(names))
    ]
    write("all.json", {"data": [{"file": name, "qas": [each]} for name, each in zip(names, records, strict=True)]})


NEAR: dict[str, Callable[[list[str]], None]] = {
    "an id that no image has": lambda names: change(names, "annotations", 2, image_id=999),
    "an id that two images have": lambda names: change(names, "images", 2, id=41),
    "two lists with the same ids": two_lists,
    "ids whose names say nothing": lambda names: write(
        "all.json",
        {
            "pictures": [{"id": at, "file_name": name} for at, name in enumerate(names)],
            "annotations": [{"id": at, "question": f"What is {at}?", "answer": "a"} for at in range(len(names))],
        },
    ),
    "choices in a table that is not joined": with_options_apart,
    "two annotators who disagree": lambda names: label_studio(names, "red", "blue"),
    "two tables with questions": lambda names: (in_one_file(names), markdown(names))[0],
    "a record that names another image": another_image,
    "a file of a name that two images have": an_image_twice,
    "a text with a line that has no label": lambda names: beside(
        names, str(Path(names[1]).with_suffix(".txt")), "Q: What?\nA: red\n\n(the left one)\n"
    ),
    "a text without an answer": lambda names: beside(names, str(Path(names[1]).with_suffix(".txt")), "Q: What?\n"),
    "choices in a list of another name": choices_in_a_list,
}


@pytest.mark.parametrize("case", NEAR)
def test_what_is_not_clear_is_refused(names: list[str], case: str) -> None:
    NEAR[case](names)
    assert not asked()


def test_of_several_answers_in_another_table_none_is_taken(names: list[str]) -> None:
    answers_apart(names)
    write("gold.json", [{"question_id": at // 2, "answer": f"a{at}"} for at in range(2 * len(names))])
    assert {answer for _, _, answer in asked()} == {None}


def test_annotators_who_agree_count_as_one(names: list[str]) -> None:
    label_studio(names, "red", "red")
    assert {answer for _, _, answer in asked()} == {"red"}


def test_an_annotation_that_was_cancelled_is_no_question(names: list[str]) -> None:
    label_studio(names)
    tasks = json.loads(Path("data/export.json").read_text())
    tasks[0]["annotations"][0] |= {"was_cancelled": True}
    write("export.json", tasks)
    assert asked() == expected(names) - {(Path(names[0]).name, "What is 0?", "a0")}


def test_answers_that_are_texts_of_choices_are_no_positions(names: list[str]) -> None:
    """In the row alone, "2" may be the choice "2" or the third choice."""
    for at, name in enumerate(names):
        choices, answer = (["4", "2", "7"], "2") if at % 2 else (["red", "blue", "black"], "blue")
        write(
            str(Path(name).with_suffix(".json")), {"question": f"What is {at}?", "choices": choices, "answer": answer}
        )
    read_rows = asked()
    assert len(read_rows) == len(names)
    assert {answer for _, _, answer in read_rows} == {"B"}


def test_answers_that_may_all_be_positions_stay_unclear(names: list[str]) -> None:
    for name in names:
        write(str(Path(name).with_suffix(".json")), {"question": "What?", "choices": ["4", "2", "7"], "answer": "2"})
    assert not asked()


def columns(names: list[str]) -> None:
    texts = {
        "image": names,
        "question": [f"What is {at}?" for at in range(20)],
        "answer": [f"a{at}" for at in range(20)],
    }
    write("all.json", texts)


def columns_with_keys(names: list[str]) -> None:
    columns(names)
    value = json.loads(Path("data/all.json").read_text())
    write("all.json", {name: {str(at): cell for at, cell in enumerate(cells)} for name, cells in value.items()})


def lines_side_by_side(names: list[str]) -> None:
    columns(names)
    value = json.loads(Path("data/all.json").read_text())
    Path("data/all.json").unlink()
    for name, cells in value.items():
        write(f"train/{name}s.txt", "\n".join(cells) + "\n")


def qwen_chats(names: list[str]) -> None:
    turns = [
        [
            {"from": "user", "value": f"Picture 1: <img>{name}</img>\nWhat is {at}?"},
            {"from": "assistant", "value": f"a{at}"},
        ]
        for at, name in enumerate(names)
    ]
    write("chats.json", [{"id": at, "conversations": each} for at, each in enumerate(turns)])


def trl_chats(names: list[str]) -> None:
    write(
        "chats.json",
        [
            {
                "images": [name],
                "prompt": [
                    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": f"What is {at}?"}]}
                ],
                "completion": [{"role": "assistant", "content": [{"type": "text", "text": f"a{at}"}]}],
            }
            for at, name in enumerate(names)
        ],
    )


def a_table_for_each_folder(names: list[str]) -> None:
    """Both folders have images of the same names."""
    for part in ("one", "two"):
        for at, name in enumerate(names[:10] if part == "one" else names[10:]):
            path = Path("data", part, "img", f"{at}{Path(name).suffix}")
            path.parent.mkdir(parents=True, exist_ok=True)
            Path("data", name).rename(path)
        images = sorted(Path("data", part, "img").iterdir(), key=lambda path: int(path.stem))
        lines = [f"{path.name},What is {path.stem} of {part}?,{part}{path.stem}" for path in images]
        write(f"{part}/table_{part}.csv", "image,question,answer\n" + "\n".join(lines))


def lists_by_image(names: list[str]) -> None:
    write("all.json", {name: [{"question": f"What is {at}?", "answer": f"a{at}"}] for at, name in enumerate(names)})


MORE = [lists_by_image, columns, columns_with_keys, lines_side_by_side, qwen_chats, trl_chats]


@pytest.mark.parametrize("form", MORE, ids=lambda form: form.__name__)
def test_columns_lines_and_chats_are_read(names: list[str], form: Callable[[list[str]], None]) -> None:
    form(names)
    assert asked() == expected(names)


def test_tables_in_folders_of_their_own_get_the_images_beside_them(names: list[str]) -> None:
    a_table_for_each_folder(names)
    done = distill("data", "--out", "new")
    assert done.exit_code == 0, done.output
    recipe = load(Path("new/recipe.toml"))
    samples = [sample for name in recipe.data for sample in read(recipe.path, name)]
    assert len(samples) == len(names)
    for sample in samples:
        path = Path(sample.images[0].path)
        assert sample.question == f"What is {path.stem} of {path.parent.parent.name}?"


def frames(names: list[str], *, numbered: bool = True) -> None:
    for at, name in enumerate(names):
        clip = Path("data", f"clip_{at // 2}")
        clip.mkdir(exist_ok=True)
        frame = f"frame_{10 - at % 2}" if numbered else ("before", "after")[at % 2]
        Path("data", name).rename(clip / f"{frame}{Path(name).suffix}")
    write("questions.csv", "clip,question,answer\n" + "\n".join(f"clip_{at},What is {at}?,a{at}" for at in range(10)))


def test_a_question_about_a_folder_gets_its_images_in_the_order_of_their_numbers(names: list[str]) -> None:
    frames(names)
    assert distill("data", "--out", "new").exit_code == 0
    recipe = load(Path("new/recipe.toml"))
    shown = [
        [Path(ref.path).stem for ref in sample.images] for name in recipe.data for sample in read(recipe.path, name)
    ]
    assert shown == [["frame_9", "frame_10"]] * 10


def test_images_of_a_folder_without_an_order_are_refused(names: list[str]) -> None:
    frames(names, numbered=False)
    assert not asked()


def test_choices_that_say_which_is_right_lead_to_the_answer(names: list[str]) -> None:
    options = [{"text": "red", "correct": False}, {"text": "blue", "correct": True}]
    records = [
        {"file": name, "qas": [{"question": f"What is {at}?", "options": options}]} for at, name in enumerate(names)
    ]
    write("all.json", {"data": records})
    assert {answer for _, _, answer in asked()} == {"B"}


@pytest.mark.parametrize(
    "quiz",
    [
        {"question": "What?", "options": [{"text": "red", "correct": True}, {"text": "blue", "correct": True}]},
        {"question": "What?", "answers": ["red", "blue", "black"], "correct": 1},
        {"question": "What?", "answers": [{"text": "red", "right": True}, {"text": "blue", "right": False}]},
    ],
    ids=["two right choices", "choices called answers", "records called answers"],
)
def test_choices_that_may_be_taken_for_answers_are_refused(names: list[str], quiz: dict[str, Any]) -> None:
    write("all.json", {"data": [{"file": name, "qas": [quiz]} for name in names]})
    assert not asked()


@pytest.mark.parametrize("line", ["B: blue", "b) blue", "Correct: B"])
def test_a_text_whose_labels_are_letters_of_choices_is_refused(names: list[str], line: str) -> None:
    for name in names:
        write(str(Path(name).with_suffix(".txt")), f"Q: What?\nA: red\n{line}\n")
    assert not asked()


def test_several_columns_of_answers_are_refused_as_they_may_be_choices(names: list[str]) -> None:
    lines = [f"{name},What is {at}?,red,blue,2" for at, name in enumerate(names)]
    write("quiz.csv", "\n".join(["Image,Question,Answer 1,Answer 2,Which", *lines]))
    assert "several columns of answers" in distill("data", "--out", "new").output


def test_questions_of_a_split_beside_others_are_refused(names: list[str]) -> None:
    write("all.json", lists(names))
    write("test/all.json", lists(names))
    assert not asked()


def test_messages_name_the_folder_that_was_given_and_no_temporary_file(names: list[str]) -> None:
    """The table joined of two files is a file of init; it is gone when a person reads the message."""
    questions = [{"question_id": at, "image_id": 900 + at, "question": f"What is {at}?"} for at in range(8)]
    write("q.json", {"questions": questions})
    answers = [{**row, "answers": ["red"]} for row in questions]
    write("a.json", {"annotations": [{k: row[k] for k in ("question_id", "image_id", "answers")} for row in answers]})
    done = distill("data", "--out", "new")
    assert done.exit_code and "data: which column holds the image?" in done.output
    assert tempfile.gettempdir() + "/tmp" not in done.output


def test_what_init_prints_of_a_joined_table_names_the_folder_that_was_given(names: list[str]) -> None:
    questions = [{"question_id": at, "image": name, "question": f"What is {at}?"} for at, name in enumerate(names)]
    write("q.json", questions)
    write("a.json", [{"question_id": at, "answer": f"a{at}"} for at in range(len(names))])
    done = distill("data", "--out", "new")
    assert done.exit_code == 0 and "data: columns 'question_id'" in done.output, done.output
    assert tempfile.gettempdir() + "/tmp" not in done.output
