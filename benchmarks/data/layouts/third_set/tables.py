"""Tables of questions beside folders of images."""

import csv
import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from layouts.package import Made, row, save_image, write_jsonl

from .drawing import COLOURS, GERMAN, draw, held_out, offer, other, write_workbook


def write_table(
    path: Path, records: Sequence[Sequence[Any]], delimiter: str = ",", encoding: str = "utf-8", end: str = "\r\n"
) -> None:
    """Write a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(records)


@held_out()
def workbook_two_headers(folder: Path, rng: random.Random) -> Made:
    """An Excel sheet has merged group headers above the real header; a second sheet is a legend."""
    rows = []
    records: list[Sequence[str | int | None]] = [
        ["Picture", None, "Check", None, "Office"],
        ["File name", "Taken on", "Question", "Answer", "Remark"],
    ]
    for i in range(10):
        shown = draw(rng)
        name = f"weld_{i + 1:02}.jpg"
        image = save_image(shown.image, folder / "pictures" / name)
        question, answer = [
            ("How many seams are visible?", shown.count),
            ("What is the colour of the marker?", shown.colour),
            ("Which part number is stamped on the plate?", shown.code),
        ][i % 3]
        records.append([name, f"{i + 3:02}.02.2026", question, answer, "checked twice" if i % 4 == 0 else None])
        rows.append(row(question, answer, [image]))
    legend: list[Sequence[str | int | None]] = [["Term", "Meaning"], ["seam", "line where two plates meet"]]
    write_workbook(
        folder / "inspection 2026.xlsx",
        {"Inspection": records, "Legend": legend},
        {"Inspection": ["A1:B1", "C1:D1"]},
    )
    return "", rows


@held_out()
def german_csv_mac_names(folder: Path, rng: random.Random) -> Made:
    """A German Excel wrote a table with semicolons in Windows-1252; a Mac wrote the names of the images as NFD."""
    rows = []
    records = [["Nr.", "Bild", "Frage", "Antwort", "Bemerkung"]]
    for i, plant in enumerate(
        ["Schlüsselblume", "Gänseblümchen", "Löwenzahn", "Märzenbecher", "Königskerze", "Brombeere", "Färberdistel"]
    ):
        shown = draw(rng)
        name = f"{plant}_{i + 1}.jpg"
        image = save_image(shown.image, folder / "Bilder" / unicodedata.normalize("NFD", name))
        pairs = [
            ("Wie viele Blüten sind zu sehen?", shown.count),
            ("Welche Farbe hat die Blüte?", GERMAN[shown.colour]),
        ]
        for question, answer in pairs[: 2 if i < 4 else 1]:
            note = "Größe unklar; später prüfen" if i == 2 else ""
            records.append([str(len(records)), unicodedata.normalize("NFC", name), question, answer, note])
            rows.append(row(question, answer, [image]))
    write_table(folder / "Fragen.csv", records, ";", "cp1252")
    return "", rows


@held_out()
def notion_export(folder: Path, rng: random.Random) -> Made:
    """A Notion database as CSV, once for the view and once with all columns; links of images are percent-encoded."""
    rows = []
    page = "Barn quiz 3e1f0c9a7b5d4e2f8a6b1c0d9e8f7a6b"
    records = [["Name", "Question", "Answer", "Photo", "Tags"]]
    for i in range(9):
        shown = draw(rng)
        name = f"Old barn & yard {i + 1}.png" if i % 3 == 0 else f"Scheune grün {i + 1}.png"
        image = save_image(shown.image, folder / page / name)
        question, answer = [
            ("How many doors has the barn?", shown.count),
            ("What colour is the roof, seen from the yard?", shown.colour),
            ("Which sign hangs at the gate?", shown.code),
        ][i % 3]
        records.append([f"Card {i + 1}", question, answer, f"{quote(page)}/{quote(name)}", "farm, 2026"])
        rows.append(row(question, answer, [image]))
    write_table(folder / f"{page}.csv", records, encoding="utf-8-sig", end="\n")
    everything = [[*records[0], "Created"], *([*each, "March 3, 2026 9:12 AM"] for each in records[1:])]
    write_table(folder / f"{page}_all.csv", everything, encoding="utf-8-sig", end="\n")
    return "", rows


@held_out()
def species_folders(folder: Path, rng: random.Random) -> Made:
    """Images lie in folders by class, the table has file names; cells have a choice a line, answers are texts."""
    rows = []
    records = [["file", "question", "choices", "answer"]]
    for i in range(10):
        shown = draw(rng)
        name = f"IMG_{1201 + i}.jpg"
        image = save_image(shown.image, folder / "images" / ["oak", "birch", "maple"][i % 3] / name)
        if i % 2:
            question = "What colour are the leaves?"
            choices, right = offer(rng, shown.colour, list(COLOURS), 3 + i % 3 // 2)
        else:
            question = "Which number is on the label of the tree?"
            choices, right = offer(rng, shown.code, [f"{each}{rng.randrange(100, 1000)}" for each in "ABCDEF"])
        records.append([name, question, "\n".join(choices), choices[right]])
        rows.append(row(question, None, [image], choices=choices, idx=right))
    write_table(folder / "questions.csv", records)
    return "", rows


@held_out()
def windows_paths_thumbs(folder: Path, rng: random.Random) -> Made:
    """Two tables, of training and of test, have absolute paths of another computer.

    Thumbnails lie there too and have a column, as do captions and comments.
    """
    rows = []
    for split, start, count in (("train", 0, 8), ("test", 8, 4)):
        records = [["id", "thumbnail", "image", "caption", "question", "answer", "comment"]]
        for i in range(start, start + count):
            shown = draw(rng)
            image = save_image(shown.image, folder / "parts" / "full" / f"bolt_{i:02}.jpg")
            save_image(shown.image.resize((40, 30)), folder / "parts" / "thumbs" / f"bolt_{i:02}_s.jpg")
            question, answer = [
                ("How many bolts are in the box?", shown.count),
                ("What colour is the washer?", shown.colour),
                ("Which lot number is printed?", shown.code),
            ][i % 3]
            base = "C:\\Users\\mlang\\Desktop\\parts"
            records.append(
                [
                    str(7000 + i),
                    f"{base}\\thumbs\\bolt_{i:02}_s.jpg",
                    f"{base}\\full\\bolt_{i:02}.jpg",
                    f"A box with {shown.colour} parts on a table",
                    question,
                    answer,
                    "blurred?" if i % 5 == 0 else "",
                ]
            )
            rows.append(row(question, answer, [image], split=split))
        write_table(folder / f"{split}.csv", records)
    return "", rows


@held_out()
def addresses_and_downloads(folder: Path, rng: random.Random) -> Made:
    """Lines of JSON have addresses on a server; the last part is the name of a local file. Two rows have no image."""
    rows, records = [], []
    for i in range(11):
        if i in (3, 8):
            question, answer = [
                ("What does AED stand for?", "automated external defibrillator"),
                ("Is 112 free?", "yes"),
            ][i == 8]
            records.append({"qid": f"k{i}", "image_url": None, "question": question, "answer": answer})
            rows.append(row(question, answer, []))
            continue
        shown = draw(rng)
        name = f"{rng.randrange(16**12):012x}.jpg"
        image = save_image(shown.image, folder / "downloads" / name)
        question, answer = [
            ("How many people wear a helmet?", shown.count),
            ("What colour is the first-aid kit?", shown.colour),
        ][i % 2]
        url = f"https://cdn.safety-training.example/uploads/2025/{1 + i:02}/{name}?width=1280&format=auto"
        records.append({"qid": f"k{i}", "image_url": url, "question": question, "answer": answer})
        rows.append(row(question, answer, [image]))
    write_jsonl(folder / "cards.jsonl", records)
    return "", rows


@held_out()
def exam_with_key(folder: Path, rng: random.Random) -> Made:
    """The choices stand in the columns A to D; the letters of the right ones stand in another file, by number."""
    rows, key = [], [["nr", "solution"]]
    records = [["nr", "figure", "question", "A", "B", "C", "D", "points"]]
    for i in range(10):
        shown = draw(rng)
        name = f"fig{rng.randrange(100, 1000)}_{i}.png"
        image = save_image(shown.image, folder / "figures" / name)
        if i % 2:
            question = "Which reference number does the figure carry?"
            pool = [f"{each}{rng.randrange(100, 1000)}" for each in "ABCDEF"]
            choices, right = offer(rng, shown.code, pool)
        else:
            question = f"How many {shown.shape}s are drawn in the figure?"
            choices, right = offer(rng, shown.count, [str(n) for n in range(1, 10)])
        nr = str(101 + i)
        records.append([nr, name, question, *choices, "2"])
        key.append([nr, "ABCD"[right]])
        rows.append(row(question, None, [image], choices=choices, idx=right))
    key[1:] = rng.sample(key[1:], len(key) - 1)
    write_table(folder / "exam_2025.csv", records)
    write_table(folder / "solutions_2025.csv", key)
    return "", rows


@held_out()
def two_languages(folder: Path, rng: random.Random) -> Made:
    """Questions and answers stand in German and in English columns; either language is right, with its own answer."""
    rows = []
    records = [["image", "question_de", "question_en", "answer_de", "answer_en"]]
    for i in range(9):
        shown = draw(rng)
        image = save_image(shown.image, folder / "bilder" / f"schild_{i + 1}.jpg")
        german, english = [
            (("Welche Farbe hat das Schild?", GERMAN[shown.colour]), ("What colour is the sign?", shown.colour)),
            (
                ("Sind mehr als drei Schilder zu sehen?", "ja" if int(shown.count) > 3 else "nein"),
                ("Can you see more than three signs?", "yes" if int(shown.count) > 3 else "no"),
            ),
        ][i % 2]
        records.append([f"schild_{i + 1}.jpg", german[0], english[0], german[1], english[1]])
        rows.append(row(german[0], german[1], [image], split="de"))
        rows.append(row(english[0], english[1], [image], split="en"))
    write_table(folder / "schilder.csv", records, encoding="utf-8-sig")
    return "", rows


@held_out()
def before_and_after(folder: Path, rng: random.Random) -> Made:
    """Each row has two images, in this order; the choices stand in one cell with bars, the answer as text."""
    rows = []
    records = [["pair", "image_before", "image_after", "question", "options", "answer"]]
    for i in range(8):
        first, second = draw(rng), draw(rng)
        images = [
            save_image(first.image, folder / "before" / f"site{i + 1}_0412.jpg"),
            save_image(second.image, folder / "after" / f"site{i + 1}_0930.jpg"),
        ]
        question = "Are there more, fewer or as many shapes after the work?"
        old, new = int(first.count), int(second.count)
        choices = ["more", "fewer", "as many"]
        right = 0 if new > old else 1 if new < old else 2
        if i % 2:
            question = "Which colour do the shapes have after the work?"
            choices, right = offer(rng, second.colour, list(COLOURS), 3)
        records.append(
            [
                f"P{i + 1}",
                f"before/site{i + 1}_0412.jpg",
                f"after/site{i + 1}_0930.jpg",
                question,
                " | ".join(choices),
                choices[right],
            ]
        )
        rows.append(row(question, None, images, choices=choices, idx=right))
    write_table(folder / "pairs.csv", records)
    return "", rows


@held_out()
def form_answers(folder: Path, rng: random.Random) -> Made:
    """A form exported one line for each photo; the header of a column is the question, its cells are the answers."""
    rows = []
    questions = ["How many birds are in the photo?", "What colour is the bird?", "Which ring number can you read?"]
    records = [["Timestamp", "Photo file name", *questions]]
    for i in range(4):
        shown = draw(rng)
        name = f"nest_{rng.randrange(100, 1000)}.jpg"
        image = save_image(shown.image, folder / "photos" / name)
        answers = [shown.count, shown.colour, shown.code]
        records.append([f"2026/03/0{i + 1} 9:1{i}:2{i} AM GMT+1", name, *answers])
        rows += [row(question, answer, [image]) for question, answer in zip(questions, answers, strict=True)]
    write_table(folder / "Nest boxes (Responses) - Form Responses 1.csv", records)
    return "", rows


@held_out()
def kahoot_sheet(folder: Path, rng: random.Random) -> Made:
    """The sheet of a quiz site has lines of help above the header; the right answer is the number of its column."""
    rows = []
    records: list[Sequence[str | int | None]] = [
        [None, "Quiz template"],
        [None, "Add questions, at least two answer alternatives, time limit and choose correct answers."],
        [None, "Remember: questions have a limit of 120 characters and answers can have 75 characters max."],
        [],
        [
            None,
            "Question - max 120 characters",
            *(f"Answer {n} - max 75 characters" for n in range(1, 5)),
            "Time limit (sec)",
            "Correct answer(s) - choose at least one",
            "Image",
        ],
    ]
    for i in range(10):
        shown = draw(rng)
        image = save_image(shown.image, folder / "quiz pictures" / f"planet{i + 1}.png")
        if i % 2:
            question = "Which colour has this planet?"
            choices, right = offer(rng, shown.colour, list(COLOURS), 4 if i % 3 else 2)
        else:
            question = f"Which mission code is on picture {i + 1}?"
            choices, right = offer(rng, shown.code, [f"{each}{rng.randrange(100, 1000)}" for each in "ABCDEF"])
        padded = [*choices, *[None] * (4 - len(choices))]
        records.append([i + 1, question, *padded, 20, right + 1, f"planet{i + 1}.png"])
        rows.append(row(question, None, [image], choices=choices, idx=right))
    write_workbook(folder / "KahootQuizTemplate.xlsx", {"Sheet1": records})
    return "", rows


@held_out()
def anki_notes(folder: Path, rng: random.Random) -> Made:
    """Notes of Anki as text: no header but directives, the image in the HTML of the front, and tags at the end."""
    rows = []
    records = []
    for i in range(10):
        shown = draw(rng)
        name = f"leaf-{rng.randrange(16**6):06x}.jpg"
        image = save_image(shown.image, folder / "collection.media" / name)
        question, answer = [
            ("How many lobes has this leaf?", shown.count),
            ("Which colour has this leaf in autumn?", shown.colour),
            ("Which herbarium number is on the sheet?", shown.code),
        ][i % 3]
        front = f'<img src="{name}"><br>{question}' if i % 2 else f'{question}<br><img src="{name}">'
        records.append([front, answer, f"botany leaf::{other(rng, '', ['easy', 'hard'])}"])
        rows.append(row(question, answer, [image]))
    path = folder / "Botany.txt"
    write_table(path, records, "\t", end="\n")
    text = path.read_text(encoding="utf-8")
    path.write_text(f"#separator:tab\n#html:true\n#tags column:3\n{text}", encoding="utf-8")
    return "", rows
