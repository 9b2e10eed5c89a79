"""Science, mathematics, medicine and exams."""

import csv
import random
from pathlib import Path

from datasets import List
from layouts.package import (
    IMAGE,
    INT64,
    STRING,
    Made,
    data_files,
    image_cell,
    letter,
    row,
    save_image,
    write_card,
    write_json,
    write_jsonl,
    write_parquet,
)
from layouts.scenes import COLOURS, Scene
from layouts.second_set.languages import COLOUR_NAMES, blind, closed_in, distinct, kind_of


@blind("whole")
def puzzlevqa_original(folder: Path, rng: random.Random) -> Made:
    """JSON lines with the ending `.json`, one file a kind of puzzle; choices are numbers, the answer is a text.

    Source: declare-lab/LLM-PuzzleTest, folder PuzzleVQA/data (files read).
    """
    rows = []
    for name, kind in (("circle_size_number", "count"), ("color_grid", "colour"), ("grid_number", "count")):
        records = []
        for i in range(4):
            scene = Scene(rng)
            path = f"images/{name}/{name}_{i:04d}.png"
            image = save_image(scene.image, folder / "data" / path)
            question, choices, right = scene.ask_closed(4, kind)
            records.append(
                {
                    "image": path,
                    "question": question,
                    "options": [int(each) for each in choices] if kind == "count" else choices,
                    "answer": choices[right],
                    "caption": f"There are {scene.count} shapes.",
                    "explanation": "We observe that the shapes are alike.",
                    "deduction": f"Based on the pattern, the answer should be {choices[right]}.",
                }
            )
            rows.append(row(question, None, [image], choices, right))
        write_jsonl(folder / "data" / f"{name}.json", records)
    return "data", rows


@blind("in part")
def smart101_original(folder: Path, rng: random.Random) -> Made:
    """A folder for each puzzle, each with a table and a folder of images.

    Source: merlresearch/SMART data_loader.py (Question, image, Answer, path of the table confirmed; columns A to E
    from memory).
    """
    rows, top = [], folder / "SMART101-Data"
    for puzzle in (1, 17, 62):
        lines = []
        for i in range(4):
            scene = Scene(rng)
            name = f"puzzle_{puzzle}_{i}.png"
            image = save_image(scene.image, top / str(puzzle) / "img" / name)
            question, choices, right = scene.ask_closed(5)
            lines.append([i, question, name, *choices, letter(right), ""])
            rows.append(row(question, None, [image], choices, right))
        with (top / str(puzzle) / f"puzzle_{puzzle}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "Question", "image", "A", "B", "C", "D", "E", "Answer", "Note"])
            writer.writerows(lines)
    (top.parent / "SMART_info_v2.csv").write_text("id,type,tool\n1,counting,\n17,logic,\n62,math,\n")
    return "", rows


@blind("in part")
def spiqa_test_a(folder: Path, rng: random.Random) -> Made:
    """One JSON object with a paper for each key; a question names the figure that it refers to.

    Source: google/spiqa README and evals/test-a (`qa`, `question`, `answer`, `reference`, `all_figures`, caption,
    figure_type confirmed).
    """
    rows, papers = [], {}
    for p in range(4):
        paper = f"{rng.randrange(1500, 1900)}.{rng.randrange(10000, 99999):05d}v{p + 1}"
        figures, asked = {}, []
        for i, scene in enumerate(distinct(rng, 3)):
            name = f"{paper}-{'Table' if i == 2 else 'Figure'}{i + 1}-1.png"
            image = save_image(scene.image, folder / "test-A" / "SPIQA_testA_Images" / paper / name)
            figures[name] = {
                "caption": f"Figure {i + 1}: shapes drawn for {scene.word}.",
                "content_type": "table" if i == 2 else "figure",
                "figure_type": "table" if i == 2 else "plot",
            }
            if i != 1:
                question, answer = scene.ask("count" if i else "colour")
                asked.append(
                    {
                        "question": question,
                        "answer": answer,
                        "explanation": f"The figure shows {answer}.",
                        "reference": name,
                    }
                )
                rows.append(row(question, answer, [image]))
        papers[paper] = {"paper_id": paper, "all_figures": figures, "qa": asked}
    write_json(folder / "test-A" / "SPIQA_testA.json", papers)
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# SPIQA\n")
    return "", rows


@blind("in part")
def arxivqa_original(folder: Path, rng: random.Random) -> Made:
    """Choices have their letters in front.

    Source: https://huggingface.co/datasets/MMInstruction/ArxivQA, files and fields as loaders on GitHub read them.
    """
    rows, records = [], []
    for i in range(10):
        scene = Scene(rng)
        path = f"images/{rng.randrange(1000, 2200)}.{rng.randrange(10000, 99999)}_{i}.jpg"
        image = save_image(scene.image, folder / path)
        question, choices, right = scene.ask_closed(4)
        options = [f"{letter(j)}) {each}" for j, each in enumerate(choices)]
        records.append(
            {
                "id": f"astro-ph-{rng.randrange(1000, 99999)}",
                "image": path,
                "options": options,
                "question": question,
                "label": letter(right),
                "rationale": f"The figure shows it: {choices[right]}.",
            }
        )
        rows.append(row(question, None, [image], choices, right, accept=[options[right]]))
    write_jsonl(folder / "arxivqa.jsonl", records)
    return "", rows


@blind("in part")
def wemath_hf(folder: Path, rng: random.Random) -> Made:
    """Choices are one text with semicolons; the column of the picture is called a path.

    Source: https://huggingface.co/datasets/We-Math/We-Math, fields in lmms-eval and VLMEvalKit.
    """
    write_card(folder, {"default": data_files("testmini")}, "We-Math")
    rows, records = [], []
    for i in range(10):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        question, choices, right = scene.ask_closed(3)
        choices = [*choices, "No correct answer"]
        records.append(
            {
                "ID": f"3steps_{i}",
                "split": "testmini",
                "knowledge concept": "Counting of shapes",
                "question": question,
                "option": "; ".join(f"{letter(j)}. {each}" for j, each in enumerate(choices)) + ";",
                "answer": letter(right),
                "image_path": cell,
                "key": f"3steps_{1 + i % 3}",
                "question number": i,
                "knowledge concept description": "A shape has a colour.",
            }
        )
        rows.append(row(question, None, [image], choices, right))
    text = (
        "ID",
        "split",
        "knowledge concept",
        "question",
        "option",
        "answer",
        "key",
        "knowledge concept description",
    )
    write_parquet(
        folder / "data/testmini-00000-of-00001.parquet",
        records,
        dict.fromkeys(text, STRING) | {"image_path": IMAGE, "question number": INT64},
    )
    return "", rows


@blind("in part")
def cvqa_hf(folder: Path, rng: random.Random) -> Made:
    """Each question in its language and in English; the label is the index of a choice.

    Source: https://huggingface.co/datasets/afaji/cvqa (image, ID, Subset, Question, Options, Label and translations
    confirmed by loaders).
    """
    write_card(folder, {"default": data_files("test")}, "CVQA")
    rows, records = [], []
    names = {
        "id": ("Indonesian", "Indonesia"),
        "es": ("Spanish", "Chile"),
        "zh": ("Chinese", "China"),
        "ru": ("Russian", "Russia"),
    }
    for i in range(10):
        scene, language, kind = Scene(rng), list(names)[i % 4], kind_of(i)
        cell, image = image_cell(scene.image, kind="JPEG")
        question, choices, right = closed_in(scene, language, kind)
        records.append(
            {
                "image": cell,
                "ID": f"{59000 + i}_{i % 4}",
                "Subset": str(names[language]),
                "Question": question,
                "Translated Question": scene.ask(kind)[0],
                "Options": choices,
                "Translated Options": [
                    dict(zip(COLOUR_NAMES[language], COLOURS, strict=True)).get(each, each) for each in choices
                ],
                "Label": right,
                "Category": "Geography / Buildings / Landmarks",
                "Image Type": "Self",
                "Image Source": "Self-open",
                "License": "CC BY-SA",
            }
        )
        rows.append(row(question, None, [image], choices, right))
    text = ("ID", "Subset", "Question", "Translated Question", "Category", "Image Type", "Image Source", "License")
    write_parquet(
        folder / "data/test-00000-of-00001.parquet",
        records,
        {
            "image": IMAGE,
            **dict.fromkeys(text, STRING),
            "Options": List(STRING),
            "Translated Options": List(STRING),
            "Label": INT64,
        },
    )
    return "", rows
