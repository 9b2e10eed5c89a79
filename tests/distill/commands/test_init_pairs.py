"""`distill init` on pairs of files as VQA has them, with numbers of images, and on tables in Markdown."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from worlds.init_data import asked, photos


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Ten images named kitchen_000012, kitchen_000017, ..., in the folder `data/photos`."""
    monkeypatch.chdir(tmp_path)
    names = photos(tmp_path / "all")[:10]
    Path("data/photos").mkdir(parents=True)
    images = [Path("data/photos", f"kitchen_{12 + 5 * at:06}{Path(name).suffix}") for at, name in enumerate(names)]
    for name, image in zip(names, images, strict=True):
        Path("all", name).rename(image)
    return images


def pair(images: list[Path]) -> None:
    ids = [{"image_id": 12 + 5 * at, "question_id": 12000 + 5000 * at} for at in range(len(images))]
    questions = [{**each, "question": f"What is {at}?"} for at, each in enumerate(ids)]
    said = [[f"a{at}"] * 7 + ["no"] * 3 for at in range(len(ids))]
    notes = [
        {**each, "answers": [{"answer": text, "answer_id": number} for number, text in enumerate(texts)]}
        for each, texts in zip(ids, said, strict=True)
    ]
    Path("data/kitchen_questions.json").write_text(json.dumps({"info": {}, "questions": questions}))
    Path("data/kitchen_annotations.json").write_text(json.dumps({"info": {}, "annotations": notes[::-1]}))


def test_a_pair_of_questions_and_annotations_is_read_with_images_by_their_numbers(images: list[Path]) -> None:
    pair(images)
    assert asked() == {(image.name, f"What is {at}?", f"a{at}") for at, image in enumerate(images)}


def a_second_image_of_a_number(images: list[Path]) -> None:
    (images[0].parent / f"kitchen_12{images[0].suffix}").write_bytes(images[1].read_bytes())


def another_name_with_the_number(images: list[Path]) -> None:
    images[3].rename(images[3].with_stem("garden_000027"))


def two_numbers_in_the_names(images: list[Path]) -> None:
    for at, image in enumerate(images):
        image.rename(image.with_stem(f"room{at}_{12 + 5 * at:06}"))


def a_missing_number(images: list[Path]) -> None:
    images[3].rename(images[3].with_stem("kitchen_000999"))


def annotations_of_other_images(images: list[Path]) -> None:
    path = Path("data/kitchen_annotations.json")
    held = json.loads(path.read_text())
    ids = [each["image_id"] for each in held["annotations"]]
    for each, number in zip(held["annotations"], [*ids[1:], ids[0]], strict=True):
        each["image_id"] = number
    path.write_text(json.dumps(held))


def answers_that_name_questions_of_their_own(images: list[Path]) -> None:
    path = Path("data/kitchen_annotations.json")
    held = json.loads(path.read_text())
    for each in held["annotations"]:
        each["answers"] = [{**answer, "question_id": each["question_id"] + 1} for answer in each["answers"]]
        del each["question_id"]
    path.write_text(json.dumps(held))


@pytest.mark.parametrize(
    "change",
    [
        answers_that_name_questions_of_their_own,
        a_second_image_of_a_number,
        another_name_with_the_number,
        two_numbers_in_the_names,
        a_missing_number,
        annotations_of_other_images,
    ],
    ids=lambda change: change.__name__,
)
def test_numbers_that_may_be_of_other_images_are_refused(
    images: list[Path], change: Callable[[list[Path]], None]
) -> None:
    pair(images)
    change(images)
    assert not asked()


def markdown(images: list[Path], columns: str = "", cells: str = "") -> str:
    lines = [
        f"| {at} | ![one](photos/{image.name}) | What is {at}? | a{at} |{cells}" for at, image in enumerate(images)
    ]
    head = f"| No. | Picture | Question | Expected answer |{columns}"
    rule = "|---:|" + "---|" * (head.count("|") - 2)
    return "\n".join(["# Lab", "", "Please do not edit.", "", head, rule, *lines, ""])


def test_a_table_in_markdown_below_prose_is_read(images: list[Path]) -> None:
    Path("data/questions.md").write_text(markdown(images))
    assert asked() == {(image.name, f"What is {at}?", f"a{at}") for at, image in enumerate(images)}


def test_tables_in_markdown_with_choices_in_a_cell_and_two_tables_are_refused(images: list[Path]) -> None:
    Path("data/questions.md").write_text(markdown(images, " Options |", " red; blue |"))
    assert not asked()
    Path("data/questions.md").write_text(markdown(images) + markdown(images))
    assert not asked()
