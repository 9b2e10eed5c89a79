"""Folders in which a person keeps images and texts side by side."""

import random
import sqlite3
from collections import Counter
from pathlib import Path

from layouts.package import Made, row, save_image, write_json

from .drawing import COLOURS, draw, held_out, offer, other


@held_out()
def photo_notes_txt(folder: Path, rng: random.Random) -> Made:
    """A text file of the same stem has two questions with the marks `Q:` and `A:`; suffixes are upper-case."""
    rows = []
    for i in range(5):
        shown = draw(rng)
        stem = f"DSC_{4410 + i * 3}"
        image = save_image(shown.image, folder / f"{stem}.JPG")
        asked = [
            (f"How many {shown.shape}s are painted on the wall?", shown.count),
            ("What colour are the shapes?", shown.colour),
            ("Which code is on the plate at the bottom left?", shown.code),
        ]
        pairs = [asked[i % 3], asked[(i + 1) % 3]]
        text = "\n\n".join(f"Q: {question}\nA: {answer}" for question, answer in pairs)
        (folder / f"{stem}.txt").write_text(text + "\n", encoding="utf-8")
        rows += [row(question, answer, [image]) for question, answer in pairs]
    return "", rows


@held_out()
def receipt_json_each(folder: Path, rng: random.Random) -> Made:
    """Each image has a JSON file of the same stem, with a list of questions below a key; no file names an image."""
    rows = []
    for i in range(4):
        shown = draw(rng)
        image = save_image(shown.image, folder / "receipts" / f"receipt_{i + 1:02}.png")
        pairs = [
            ("What is the receipt number?", shown.code),
            ("How many items were bought?", shown.count),
            ("What colour is the logo of the shop?", shown.colour),
        ][: 2 + i % 2]
        write_json(
            folder / "receipts" / f"receipt_{i + 1:02}.json",
            {
                "scanned": f"2026-01-{11 + i}T10:32:00",
                "scanner": "Epson DS-530",
                "qa": [{"question": question, "answer": answer} for question, answer in pairs],
            },
            indent=2,
        )
        rows += [row(question, answer, [image]) for question, answer in pairs]
    return "", rows


@held_out()
def case_folders(folder: Path, rng: random.Random) -> Made:
    """Each case is a folder with one image, `question.txt`, `answer.txt` and `notes.txt`, which is not asked."""
    rows = []
    for i in range(9):
        shown = draw(rng)
        case = folder / f"case_{i + 1:03}"
        image = save_image(shown.image, case / ("photo.jpg" if i % 3 else "photo.png"))
        question, answer = [
            ("How many tiles are broken?", shown.count),
            ("Which colour has the damaged area?", shown.colour),
            ("What is the number on the tag?", shown.code),
        ][i % 3]
        (case / "question.txt").write_text(question + "\n", encoding="utf-8")
        (case / "answer.txt").write_text(answer + "\n", encoding="utf-8")
        (case / "notes.txt").write_text(f"visited on {3 + i} May, light was poor\n", encoding="utf-8")
        rows.append(row(question, answer, [image]))
    return "", rows


@held_out()
def markdown_table(folder: Path, rng: random.Random) -> Made:
    """A Markdown file has a table with image links, below some prose."""
    rows = []
    lines = [
        "# Lab questions",
        "",
        "Collected by Ines in week 12. Please do not edit the numbers.",
        "",
        "| No. | Picture | Question | Expected answer |",
        "|----:|---------|----------|-----------------|",
    ]
    for i in range(10):
        shown = draw(rng)
        name = f"slide-{rng.randrange(10**4):04}-{i}.png"
        image = save_image(shown.image, folder / "pics" / name)
        question, answer = [
            (f"How many {shown.shape}s lie on the tray?", shown.count),
            ("What colour is the sample?", shown.colour),
            ("Which code has the slide?", shown.code),
        ][i % 3]
        lines.append(f"| {i + 1} | ![slide {i + 1}](pics/{name}) | {question} | {answer} |")
        rows.append(row(question, answer, [image]))
    (folder / "questions.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return "", rows


@held_out()
def sqlite_two_tables(folder: Path, rng: random.Random) -> Made:
    """An SQLite file has images and questions in two tables with a foreign key, and a table of users."""
    rows = []
    connection = sqlite3.connect(folder / "survey.db")
    connection.executescript(
        """
        CREATE TABLE users (user_id INTEGER PRIMARY KEY, name TEXT);
        CREATE TABLE images (image_id INTEGER PRIMARY KEY, filename TEXT NOT NULL, taken_at TEXT);
        CREATE TABLE questions (question_id INTEGER PRIMARY KEY, image_id INTEGER NOT NULL \
REFERENCES images(image_id),
            question TEXT NOT NULL, answer TEXT, user_id INTEGER REFERENCES users(user_id));
        """
    )
    connection.executemany("INSERT INTO users VALUES (?, ?)", [(1, "Aylin"), (2, "Jonas")])
    asked = []
    for i in range(4):
        shown = draw(rng)
        name, image_id = f"{rng.randrange(16**8):08x}.jpg", 31 + 7 * i
        image = save_image(shown.image, folder / "media" / name)
        connection.execute("INSERT INTO images VALUES (?, ?, ?)", (image_id, name, f"2026-02-0{i + 1} 08:15:00"))
        for question, answer in (
            ("How many boats are in the harbour?", shown.count),
            ("What colour are the boats?", shown.colour),
            ("What is the number of the pier?", shown.code),
        ):
            asked.append((image_id, question, answer, 1 + i % 2))
            rows.append(row(question, answer, [image]))
    rng.shuffle(asked)
    connection.executemany("INSERT INTO questions (image_id, question, answer, user_id) VALUES (?, ?, ?, ?)", asked)
    connection.commit()
    connection.close()
    return "", rows


@held_out()
def two_lists_by_id(folder: Path, rng: random.Random) -> Made:
    """One JSON has images and questions in two lists; the id is a number in one and a string in the other."""
    rows, images, questions = [], [], []
    for i in range(6):
        shown = draw(rng)
        name = f"{other(rng, '', ['north', 'south', 'east'])}_{rng.randrange(10**5):05}.jpg"
        image = save_image(shown.image, folder / "frames" / name)
        image_id = 900 + 13 * i
        images.append({"id": image_id, "file_name": name, "width": shown.image.width, "height": shown.image.height})
        for question, answer in (
            ("How many cars wait at the light?", shown.count),
            ("What colour is the first car?", shown.colour),
        )[: 1 + i % 2 if i < 2 else 2]:
            questions.append({"image_id": str(image_id), "question": question, "answer": answer})
            rows.append(row(question, answer, [image]))
    rng.shuffle(images)
    rng.shuffle(questions)
    for number, question in enumerate(questions):
        question["question_id"] = f"q{number}"
    write_json(folder / "dataset.json", {"version": 2, "images": images, "questions": questions}, indent=1)
    return "", rows


@held_out()
def ten_answers_own(folder: Path, rng: random.Random) -> Made:
    """Questions and annotations with the answers of ten people lie in two files; no file says which one won.

    Seven or eight of the ten agree. The first one of the ten is often another answer.
    """
    rows, questions, annotations = [], [], []
    for i in range(10):
        shown = draw(rng)
        image_id = 12 + 5 * i
        image = save_image(shown.image, folder / "photos" / f"kitchen_{image_id:06}.jpg")
        question, answer, pool = [
            ("How many cups are on the shelf?", shown.count, [str(n) for n in range(1, 8)]),
            ("What colour is the shelf?", shown.colour, list(COLOURS)),
        ][i % 2]
        given = [answer] * (7 + i % 2)
        given = [other(rng, answer, pool) for _ in range(10 - len(given))] + given
        if i % 3 == 0:
            rng.shuffle(given)
        assert Counter(given).most_common(1)[0][0] == answer
        questions.append({"image_id": image_id, "question": question, "question_id": image_id * 1000})
        annotations.append(
            {
                "image_id": image_id,
                "question_id": image_id * 1000,
                "answer_type": "number" if i % 2 == 0 else "other",
                "answers": [
                    {"answer": each, "answer_confidence": "yes", "answer_id": j} for j, each in enumerate(given, 1)
                ],
            }
        )
        rows.append(row(question, answer, [image]))
    rng.shuffle(annotations)
    write_json(folder / "kitchen_questions.json", {"info": {"version": "0.3"}, "questions": questions})
    write_json(folder / "kitchen_annotations.json", {"info": {"version": "0.3"}, "annotations": annotations})
    return "", rows


@held_out()
def html_quiz_pages(folder: Path, rng: random.Random) -> Made:
    """Three HTML pages have questions with an image, a lettered list and the solution; a logo is on each page."""
    rows = []
    save_image(draw(rng, (60, 60)).image, folder / "img" / "logo.png")
    number = 0
    for page in range(1, 4):
        parts = []
        for _ in range(3):
            number += 1
            shown = draw(rng)
            image = save_image(shown.image, folder / "img" / f"q{number:02}.jpg")
            if number % 2:
                question = "Which colour do the shapes on this flag have?"
                choices, right = offer(rng, shown.colour, list(COLOURS))
            else:
                question = f"How many {shown.shape}s does this flag have?"
                choices, right = offer(rng, shown.count, [str(n) for n in range(1, 9)])
            items = "".join(f"<li>{choice}</li>" for choice in choices)
            parts.append(
                f'<div class="question" id="q{number}">\n  <h3>Question {number}</h3>\n'
                f'  <p class="stem">{question}</p>\n  <img src="img/q{number:02}.jpg" alt="flag" width="300">\n'
                f'  <ol type="A">{items}</ol>\n  <p class="solution">Answer: {"ABCD"[right]}</p>\n</div>'
            )
            rows.append(row(question, None, [image], choices=choices, idx=right))
        (folder / f"page{page}.html").write_text(
            "<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title>Flag quiz</title></head>\n<body>\n"
            f'<img class="logo" src="img/logo.png" alt="Our school"><h1>Flag quiz, page {page}</h1>\n'
            + "\n".join(parts)
            + "\n</body></html>\n",
            encoding="utf-8",
        )
    return "", rows
