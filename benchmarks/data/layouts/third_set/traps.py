"""Folders that a careful person would not read but ask about; the only right thing is a refusal."""

import random
from pathlib import Path

from layouts.package import Made, save_image, write_json

from .drawing import COLOURS, draw, held_out, offer
from .tables import write_table


@held_out(refusable=True)
def trap_two_questions(folder: Path, rng: random.Random) -> Made:
    """Two questions that can both be answered with yes or no, one answer, and no word about which one it is for."""
    records = [["image", "question_1", "question_2", "answer"]]
    for i in range(10):
        save_image(draw(rng).image, folder / "images" / f"valve_{i + 1:02}.jpg")
        first = ["Is the valve open?", "Is the handle turned to the left?"][i % 2]
        second = ["Is the gauge in the green range?", "Is the seal broken?"][i // 2 % 2]
        records.append([f"valve_{i + 1:02}.jpg", first, second, rng.choice(["yes", "no"])])
    write_table(folder / "valves.csv", records)
    return "", []


@held_out(refusable=True)
def trap_same_names(folder: Path, rng: random.Random) -> Made:
    """Each file name of the table is in two folders, with different images; nothing says which one is meant."""
    records = [["file", "question", "answer"]]
    for i in range(9):
        for place in ("site_a", "site_b"):
            save_image(draw(rng).image, folder / place / f"{i + 1:04}.jpg")
        question, answer = [
            ("How many cones are on the road?", str(rng.randrange(1, 7))),
            ("What colour is the barrier?", rng.choice(list(COLOURS))),
        ][i % 2]
        records.append([f"{i + 1:04}.jpg", question, answer])
    write_table(folder / "questions.csv", records)
    return "", []


@held_out(refusable=True)
def trap_shifted_answers(folder: Path, rng: random.Random) -> Made:
    """The answer files are numbered one too high.

    The first task has no answer and the last answer no task; an answer of the same number is never a choice.
    """
    for i in range(1, 11):
        shown = draw(rng)
        save_image(shown.image, folder / "tasks" / f"{i:04}.jpg")
        if i % 2:
            question = "What colour are the shapes?"
            choices, right = offer(rng, shown.colour, list(COLOURS))
        else:
            question = "How many shapes are there?"
            choices, right = offer(rng, shown.count, [str(n) for n in range(1, 9)])
        write_json(folder / "tasks" / f"{i:04}.json", {"question": question, "choices": choices}, indent=2)
        (folder / "answers").mkdir(exist_ok=True)
        (folder / "answers" / f"{i + 1:04}.txt").write_text(choices[right] + "\n", encoding="utf-8")
    return "", []


@held_out(refusable=True)
def trap_ids_in_part(folder: Path, rng: random.Random) -> Made:
    """Four of twelve ids of the questions are ids of images: the numbers are of two different counts."""
    images, questions = [["id", "file"]], [["question_id", "image_id", "question", "answer"]]
    for i in range(12):
        name = f"{rng.randrange(16**8):08x}.jpg"
        save_image(draw(rng).image, folder / "photos" / name)
        images.append([str(101 + i), name])
        question, answer = [
            ("How many chairs are in the room?", str(rng.randrange(1, 7))),
            ("What colour is the carpet?", rng.choice(list(COLOURS))),
        ][i % 2]
        questions.append([str(1 + i), str(109 + i), question, answer])
    write_table(folder / "images.csv", images)
    write_table(folder / "questions.csv", questions)
    return "", []


@held_out(refusable=True)
def trap_other_images(folder: Path, rng: random.Random) -> Made:
    """The table is about ten scans, the folder has ten photos of other names."""
    records = [["image", "question", "answer"]]
    for i in range(10):
        save_image(draw(rng).image, folder / "photos" / f"DSC_{rng.randrange(40 * i, 40 * i + 40) + 412:04}.jpg")
        question, answer = [
            ("What is the date on the letter?", f"{rng.randrange(1, 29)} May 1931"),
            ("How many stamps are on the envelope?", str(rng.randrange(1, 6))),
        ][i % 2]
        records.append([f"letters_scan_{i + 1:03}.png", question, answer])
    write_table(folder / "letters.csv", records)
    return "", []
