"""Data sets of questions from schoolbooks."""

import random
from pathlib import Path
from typing import Final

from datasets import List
from layouts.package import (
    IMAGE,
    INT8,
    STRING,
    Made,
    Record,
    Row,
    data_files,
    image_cell,
    layout,
    letter,
    row,
    save_image,
    write_card,
    write_json,
    write_parquet,
)
from layouts.scenes import Scene

SCIENCEQA: Final = {
    "task": "closed choice",
    "grade": "grade4",
    "subject": "natural science",
    "topic": "physics",
    "category": "Materials",
    "skill": "Compare",
    "lecture": "A lecture about shapes.",
}


@layout("heldout")
def scienceqa_hf(folder: Path, rng: random.Random) -> Made:
    """The answer is the index of a choice.

    Some rows have no image. The column `hint` belongs to the question, and `solution` is a rationale.
    Source: https://huggingface.co/datasets/derek-thomas/ScienceQA
    """
    write_card(folder, {"default": data_files("train", "validation")}, "ScienceQA")
    rows = []
    for split, count in (("train", 8), ("validation", 4)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            question, choices, right = scene.ask_closed(rng.choice([2, 3, 4]))
            cell, image = image_cell(scene.image)
            hint = f"The picture was taken near the {scene.word}." if i % 3 == 0 else ""
            text_only = i % 4 == 3
            if text_only:
                question, choices, right = "Which of these is a colour?", ["table", "green", "river"], 1
            records.append(
                {
                    "image": None if text_only else cell,
                    "question": question,
                    "choices": choices,
                    "answer": right,
                    "hint": hint,
                    "solution": f"Look at the picture. The answer is {choices[right]}.",
                    **SCIENCEQA,
                }
            )
            rows.append(row(question, None, [] if text_only else [image], choices=choices, idx=right, split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001-1028f23e353fbe3e.parquet",
            records,
            {
                "image": IMAGE,
                "question": STRING,
                "choices": List(STRING),
                "answer": INT8,
                "hint": STRING,
                "task": STRING,
                "grade": STRING,
                "subject": STRING,
                "topic": STRING,
                "category": STRING,
                "skill": STRING,
                "lecture": STRING,
                "solution": STRING,
            },
        )
    return "", rows


@layout("heldout")
def scienceqa_original(folder: Path, rng: random.Random) -> Made:
    """One object has all questions, keyed by their ids.

    Each image is called image.png and lies in the folder of its split and id; some are null. Two other JSON files
    hold no questions.
    Source: https://github.com/lupantech/ScienceQA (data/scienceqa/problems.json, tools/download.sh)
    """
    problems: Record = {}
    rows = []
    names = ("train", "val", "test", "trainval", "minitrain", "minival", "minitest")
    splits: dict[str, list[str]] = {name: [] for name in names}
    for i in range(1, 13):
        scene = Scene(rng)
        question, choices, right = scene.ask_closed(rng.choice([2, 3, 4]))
        split = ["train", "train", "val", "test"][i % 4]
        text_only = i % 5 == 0
        if text_only:
            question, choices, right = "Which of these is a colour?", ["table", "green"], 1
        images = [] if text_only else [save_image(scene.image, folder / "images" / split / str(i) / "image.png")]
        problems[str(i)] = {
            "question": question,
            "choices": choices,
            "answer": right,
            "hint": "",
            "image": None if text_only else "image.png",
            **SCIENCEQA,
            "solution": f"The answer is {choices[right]}.",
            "split": split,
        }
        splits[split].append(str(i))
        rows.append(row(question, None, images, choices=choices, idx=right, split=split))
    write_json(folder / "problems.json", problems, 2)
    write_json(folder / "pid_splits.json", splits, 2)
    write_json(folder / "captions.json", {"url": "x", "captions": {"1": "a sign"}})
    return "", rows


@layout("dev")
def ai2d_lmms(folder: Path, rng: random.Random) -> Made:
    """The answer is the index of a choice, from 0, written as text.

    Some choices are numbers too.
    Source: https://huggingface.co/datasets/lmms-lab/ai2d
    """
    write_card(folder, {"default": {"test": "data/test-*"}}, "ai2d")
    records, rows = [], []
    for i in range(10):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        question, choices, right = scene.ask_closed(4, "count" if i % 3 == 0 else "word")
        records.append({"question": question, "options": choices, "answer": str(right), "image": cell})
        entry = row(question, None, [image], choices=choices, idx=right)
        rows.append(entry)
    write_parquet(
        folder / "data/test-00000-of-00001.parquet",
        records,
        {"question": STRING, "options": List(STRING), "answer": STRING, "image": IMAGE},
    )
    return "", rows


@layout("heldout")
def ai2d_original(folder: Path, rng: random.Random) -> Made:
    """Each image has a JSON file, in which the text of the question is the key.

    The answer is the index of a choice, from 0. Annotations and a list of categories lie beside it.
    Source: https://prior.allenai.org/projects/diagram-understanding (ai2d-all.zip)
    """
    rows, top = [], folder / "ai2d"
    for i in range(5):
        scene = Scene(rng)
        file_name = f"{i * 7}.png"
        image = save_image(scene.image, top / "images" / file_name)
        questions = {}
        for j, kind in enumerate(("word", "colour")):
            question, choices, right = scene.ask_closed(4, kind)
            questions[question] = {
                "abcLabel": False,
                "answerTexts": choices,
                "correctAnswer": right,
                "questionId": f"{file_name}-{j}",
            }
            rows.append(row(question, None, [image], choices=choices, idx=right))
        write_json(top / "questions" / f"{file_name}.json", {"questions": questions, "imageName": file_name})
        write_json(
            top / "annotations" / f"{file_name}.json",
            {
                "text": {"T0": {"rectangle": [[1, 2], [3, 4]], "value": scene.word}},
                "arrows": {},
                "blobs": {},
                "relationships": {},
            },
        )
    write_json(top / "categories.json", {f"{i * 7}.png": "foodChainsWebs" for i in range(5)})
    return "ai2d", rows


@layout("heldout")
def tqa_original(folder: Path, rng: random.Random) -> Made:
    """A list of lessons has the questions four levels deep, keyed by their ids.

    The choices are an object of objects. Questions without an image stand between them and are to be left out.
    Source: https://prior.allenai.org/projects/tqa (tqa_train_val_test.zip)
    """
    rows: list[Row] = []
    top = folder / "tqa_train_val_test"
    for split in ("train", "val"):
        entries = []
        for lesson in range(2):
            diagram_questions, text_questions = {}, {}
            for j in range(3):
                scene = Scene(rng)
                file_name = f"{scene.word}_{rng.randrange(10**4)}.png"
                image = save_image(scene.image, top / split / "question_images" / file_name)
                question, choices, right = scene.ask_closed(4, "word" if j else "count")
                question_id = f"DQ_{len(rows):06d}"
                diagram_questions[question_id] = {
                    "answerChoices": {
                        "abcd"[index]: {
                            "idStructural": f"{'abcd'[index]}.",
                            "processedText": choice,
                            "rawText": f"{'abcd'[index]}. {choice}",
                        }
                        for index, choice in enumerate(choices)
                    },
                    "beingAsked": {"processedText": question, "rawText": question},
                    "correctAnswer": {"processedText": "abcd"[right], "rawText": "abcd"[right]},
                    "globalID": question_id,
                    "imageName": file_name,
                    "imagePath": f"question_images/{file_name}",
                    "questionSubType": "Multiple Choice",
                    "questionType": "Diagram Multiple Choice",
                }
                rows.append(
                    row(question, None, [image], choices=choices, idx=right, split=split, accept=["abcd"[right]])
                )
            text_questions[f"NDQ_{lesson:06d}"] = {
                "answerChoices": {
                    "a": {"idStructural": "a.", "processedText": "true", "rawText": "a. true"},
                    "b": {"idStructural": "b.", "processedText": "false", "rawText": "b. false"},
                },
                "beingAsked": {"processedText": "Ice is cold.", "rawText": "1. Ice is cold."},
                "correctAnswer": {"processedText": "a", "rawText": "a"},
                "globalID": f"NDQ_{lesson:06d}",
                "idStructural": "1.",
                "questionSubType": "True or False",
                "questionType": "True or False",
            }
            entries.append(
                {
                    "globalID": f"L_{lesson:04d}",
                    "lessonName": "shapes",
                    "metaLessonID": "m",
                    "adjunctTopics": {},
                    "topics": {
                        "T_0001": {
                            "content": {"figures": [], "mediaLinks": [], "text": "Shapes have colours."},
                            "globalID": "T_0001",
                            "topicName": "shapes",
                        }
                    },
                    "instructionalDiagrams": {},
                    "questions": {"diagramQuestions": diagram_questions, "nonDiagramQuestions": text_questions},
                }
            )
        write_json(top / split / f"tqa_v1_{split}.json", entries)
    return "tqa_train_val_test", rows


@layout("heldout")
def iconqa_original(folder: Path, rng: random.Random) -> Made:
    """Each question has a folder with data.json and image.png.

    The choices may be image files in the same folder. The answer is an index, or a text if there are no choices.
    Written from memory: the names of the outer folders.
    Source: https://iconqa.github.io (iconqa_data.zip)
    """
    rows, top = [], folder / "iconqa_data" / "iconqa"
    for split, count in (("train", 3), ("val", 1)):
        for kind in ("choose_txt", "choose_img", "fill_in_blank"):
            for _ in range(count):
                scene = Scene(rng)
                place = top / split / kind / str(rng.randrange(10**5))
                image = save_image(scene.image, place / "image.png")
                entry: Record = {
                    "question": None,
                    "choices": None,
                    "answer": None,
                    "ques_type": kind,
                    "grade": "grade1",
                    "label": "S5",
                }
                if kind == "choose_txt":
                    question, choices, right = scene.ask_closed(3)
                    entry |= {"question": question, "choices": choices, "answer": right}
                    rows.append(row(question, None, [image], choices=choices, idx=right, split=split))
                elif kind == "fill_in_blank":
                    question, answer = scene.ask("count")
                    entry |= {"question": question, "answer": answer}
                    entry.pop("choices")
                    rows.append(row(question, answer, [image], split=split))
                else:
                    others = [Scene(rng) for _ in range(2)]
                    images = [save_image(other.image, place / f"choice_{j}.png") for j, other in enumerate(others)]
                    right = rng.randrange(2)
                    gold = others[right]
                    question = f"Which of the pictures has {gold.count} {gold.colour} {gold.shape}s?"
                    choices = ["choice_0.png", "choice_1.png"]
                    entry |= {"question": question, "choices": choices, "answer": right}
                    rows.append(
                        row(
                            question,
                            letter(right),
                            [image, *images],
                            choices=choices,
                            split=split,
                            accept=[letter(right), choices[right], str(right)],
                        )
                    )
                write_json(place / "data.json", entry)
    write_json(folder / "iconqa_data" / "pid_splits.json", {"train": [], "val": []})
    return "iconqa_data", rows
