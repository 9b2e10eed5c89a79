"""Tests of models with choices for each question."""

import base64
import csv
import random
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import List
from layouts.package import (
    IMAGE,
    INT64,
    STRING,
    Made,
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
from layouts.scenes import WORDS, Scene, digest, encoded
from PIL import ImageDraw

MMMU_FEATURES: Final = {
    **dict.fromkeys(("id", "question", "options", "explanation"), STRING),
    **{f"image_{i}": IMAGE for i in range(1, 8)},
    **dict.fromkeys(("img_type", "answer", "topic_difficulty", "question_type", "subfield"), STRING),
}


@layout("heldout")
def mmmu_hf(folder: Path, rng: random.Random) -> Made:
    """Each subject is a config.

    The choices are the text of a Python list, which is `[]` for open questions. The columns `image_1` to
    `image_7` are mostly null; tags name them in the question and in the choices. The answers of the test split
    are `?`.
    Source: https://huggingface.co/datasets/MMMU/MMMU
    """
    rows, subjects = [], ["Accounting", "Art_Theory"]
    write_card(folder, {each: data_files("dev", "validation", "test", folder=each) for each in subjects}, "MMMU")
    for subject in subjects:
        for split, count in (("dev", 1), ("validation", 4), ("test", 1)):
            records = []
            for i in range(count):
                scene = Scene(rng)
                cell, image = image_cell(scene.image, f"image_{i}.png")
                second = Scene(rng)
                second_cell, second_image = image_cell(second.image)
                question_id = f"{split}_{subject}_{i + 1}"
                entry = {
                    "id": question_id,
                    "explanation": "",
                    "img_type": "['Tables']",
                    "topic_difficulty": "Easy",
                    "question_type": "multiple-choice",
                    "subfield": "Managerial",
                    "image_1": cell,
                }
                images = [image]
                if i == 1:
                    question, answer = scene.ask("count")
                    entry |= {
                        "question": f"{question} <image 1>",
                        "options": "[]",
                        "answer": answer,
                        "question_type": "open",
                    }
                    expected = row(question, answer, images, split=split)
                elif i == 2:
                    images = [image, second_image]
                    entry["image_2"] = second_cell
                    choices = ["<image 1>", "<image 2>"]
                    question = f"Which picture has the word {second.word} at the bottom?"
                    entry |= {"question": question, "options": repr(choices), "answer": "B"}
                    expected = row(question, None, images, choices=choices, idx=1, split=split)
                else:
                    question, choices, right = scene.ask_closed(4)
                    entry |= {
                        "question": f"<image 1> {question}",
                        "options": repr(choices),
                        "answer": letter(right) if split != "test" else "?",
                    }
                    expected = row(
                        question, None, images, choices=choices, idx=None if split == "test" else right, split=split
                    )
                records.append(entry)
                rows.append(expected)
            write_parquet(folder / f"{subject}/{split}-00000-of-00001.parquet", records, MMMU_FEATURES)
    return "", rows


@layout("dev")
def mmmu_pro_vision(folder: Path, rng: random.Random) -> Made:
    """No column has the question: it is drawn in the picture.

    Any request to answer it is right. The choices are the text of a list.
    Source: https://huggingface.co/datasets/MMMU/MMMU_Pro (config vision)
    """
    write_card(folder, {"vision": {"test": "vision/test-*"}}, "MMMU_Pro")
    records, rows = [], []
    for i in range(8):
        scene = Scene(rng)
        question, choices, right = scene.ask_closed(4, "word")
        ImageDraw.Draw(scene.image).text((2, 2), question, fill=(0, 0, 0))
        cell, image = image_cell(scene.image)
        records.append(
            {
                "id": f"test_History_{i}",
                "image": cell,
                "options": repr(choices),
                "answer": letter(right),
                "subject": "History",
            }
        )
        rows.append(row("", None, [image], choices=choices, idx=right))
    write_parquet(
        folder / "vision/test-00000-of-00001.parquet",
        records,
        {"id": STRING, "image": IMAGE, "options": STRING, "answer": STRING, "subject": STRING},
    )
    return "vision", rows


@layout("heldout")
def mmmu_pro_standard(folder: Path, rng: random.Random) -> Made:
    """The folder name has spaces and brackets.

    Ten choices are the text of a list. The answer is a letter up to J.
    Source: https://huggingface.co/datasets/MMMU/MMMU_Pro (config 'standard (10 options)')
    """
    config = "standard (10 options)"
    write_card(folder, {config: {"test": f"{config}/test-*"}}, "MMMU_Pro")
    records, rows = [], []
    for i in range(8):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        question, answer = scene.ask("word")
        choices = list(WORDS)
        choices.remove(answer)
        choices = [*rng.sample(choices, 9), answer]
        rng.shuffle(choices)
        right = choices.index(answer)
        records.append(
            {
                "id": f"test_Art_{i}",
                "question": f"{question} <image 1>",
                "options": repr(choices),
                "explanation": "?",
                "image_1": cell,
                "img_type": "['Photographs']",
                "answer": letter(right),
                "topic_difficulty": "Medium",
                "subject": "Art",
            }
        )
        rows.append(row(question, None, [image], choices=choices, idx=right))
    write_parquet(
        folder / config / "test-00000-of-00002.parquet",
        records,
        {
            "id": STRING,
            "question": STRING,
            "options": STRING,
            "explanation": STRING,
            **{f"image_{i}": IMAGE for i in range(1, 8)},
            "img_type": STRING,
            "answer": STRING,
            "topic_difficulty": STRING,
            "subject": STRING,
        },
    )
    return config, rows


@layout("dev")
def mmbench_tsv(folder: Path, rng: random.Random) -> Made:
    """A TSV has JPEG files in base64.

    The choices stand in the columns A to D, and the last ones may be empty. The column `hint` belongs to the
    question.
    Source: https://github.com/open-compass/MMBench (mmbench_dev_en_20231003.tsv)
    """
    columns = [
        "index",
        "question",
        "hint",
        "A",
        "B",
        "C",
        "D",
        "answer",
        "category",
        "image",
        "source",
        "l2-category",
        "comment",
        "split",
    ]
    rows = []
    with (folder / "mmbench_dev_en_20231003.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(columns)
        for i in range(10):
            scene = Scene(rng)
            question, choices, right = scene.ask_closed(rng.choice([2, 3, 4, 4]))
            data = encoded(scene.image, "JPEG")
            hint = f"The passage below says that shapes can be counted.\nFigure: {scene.word}." if i % 3 == 0 else ""
            writer.writerow(
                [241 + i, question, hint]
                + choices
                + [""] * (4 - len(choices))
                + [
                    letter(right),
                    "identity_reasoning",
                    base64.b64encode(data).decode(),
                    "scienceqa",
                    "attribute_reasoning",
                    "",
                    "dev",
                ]
            )
            rows.append(row(question, None, [digest(data)], choices=choices, idx=right))
    return "mmbench_dev_en_20231003.tsv", rows


@layout("heldout")
def mmstar_hf(folder: Path, rng: random.Random) -> Made:
    """The image is plain binary, no struct.

    The choices stand in the text of the question. Written from memory: the image as plain binary.
    Source: https://huggingface.co/datasets/Lin-Chen/MMStar (mmstar.parquet)
    """
    records, rows = [], []
    for i in range(10):
        scene = Scene(rng)
        data = encoded(scene.image, "JPEG")
        question, choices, right = scene.ask_closed(4)
        text = question + "\nOptions: " + ", ".join(f"{letter(j)}: {choice}" for j, choice in enumerate(choices))
        records.append(
            {
                "index": i,
                "question": text,
                "image": data,
                "answer": letter(right),
                "category": "coarse perception",
                "l2_category": "image scene and topic",
                "meta_info": {"source": "MMBench", "split": "val", "image_path": f"images/{i}.jpg"},
            }
        )
        rows.append(row(text, letter(right), [digest(data)], accept=[letter(right), choices[right]]))
    pq.write_table(pa.Table.from_pylist(records), folder / "mmstar.parquet")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: val\n  data_files:\n  - split: val\n    path: mmstar.parquet\n---\n# MMStar\n"
    )
    return "", rows


@layout("dev")
def seedbench_original(folder: Path, rng: random.Random) -> Made:
    """The choices stand in `choice_a` to `choice_d`.

    The image files have no suffix. Rows of videos, which are not in the package, are to be left out.
    Source: https://huggingface.co/datasets/AILab-CVC/SEED-Bench (SEED-Bench.json, SEED-Bench-image.zip)
    """
    questions, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        data_id = f"{rng.randrange(10**6)}_{rng.randrange(10**9)}"
        image = save_image(scene.image, folder / "SEED-Bench-image" / data_id, "JPEG")
        question, choices, right = scene.ask_closed(4)
        questions.append(
            {
                "answer": letter(right),
                **{f"choice_{'abcd'[j]}": choice for j, choice in enumerate(choices)},
                "data_id": data_id,
                "data_type": "image",
                "question": question,
                "question_id": str(101669 + i),
                "question_type_id": 1,
            }
        )
        rows.append(row(question, None, [image], choices=choices, idx=right))
    for i in range(2):
        questions.append(
            {
                "answer": "A",
                "choice_a": "x",
                "choice_b": "y",
                "choice_c": "z",
                "choice_d": "w",
                "data_id": f"{i}.mp4",
                "data_type": "video",
                "question": "What is done in the video?",
                "question_id": str(200 + i),
                "question_type_id": 10,
                "segment": [1.0, 2.5],
            }
        )
    write_json(
        folder / "SEED-Bench.json",
        {"questions": questions, "question_type": {"Scene Understanding": 1, "Action Recognition": 10}},
    )
    return "", rows


@layout("heldout")
def seedbench_lmms(folder: Path, rng: random.Random) -> Made:
    """The column `image` is a list of pictures.

    The choices stand in `choice_a` to `choice_d`.
    Source: https://huggingface.co/datasets/lmms-lab/SEED-Bench
    """
    records, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        question, choices, right = scene.ask_closed(4)
        records.append(
            {
                "answer": letter(right),
                **{f"choice_{'abcd'[j]}": choice for j, choice in enumerate(choices)},
                "data_id": f"{i}_12",
                "data_type": "image",
                "question": question,
                "question_id": str(i),
                "question_type_id": 1,
                "image": [cell],
                "segment": None,
            }
        )
        rows.append(row(question, None, [image], choices=choices, idx=right))
    write_parquet(
        folder / "data/test-00000-of-00055.parquet",
        records,
        {
            "answer": STRING,
            "choice_a": STRING,
            "choice_b": STRING,
            "choice_c": STRING,
            "choice_d": STRING,
            "data_id": STRING,
            "data_type": STRING,
            "question": STRING,
            "question_id": STRING,
            "question_type_id": INT64,
            "image": List(IMAGE),
            "segment": List(INT64),
        },
    )
    write_card(folder, {"default": {"test": "data/test-*"}}, "SEED-Bench")
    return "", rows


@layout("dev")
def mmvp_original(folder: Path, rng: random.Random) -> Made:
    """The image name is the number in a column whose name is misspelt.

    Two choices stand in one text. The answer is a letter in brackets. Written from memory: the misspelt column
    `lndex`.
    Source: https://huggingface.co/datasets/MMVP/MMVP (Questions.csv, 'MMVP Images')
    """
    rows = []
    with (folder / "Questions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["lndex", "Question", "Options", "Correct Answer"])
        for i in range(1, 11):
            scene = Scene(rng)
            image = save_image(scene.image, folder / "MMVP Images" / f"{i}.jpg")
            question, choices, right = scene.ask_closed(2)
            writer.writerow([i, question, f"(a) {choices[0]} (b) {choices[1]}", f"({'ab'[right]})"])
            rows.append(
                row(question, None, [image], choices=choices, idx=right, accept=[f"({'ab'[right]})", "ab"[right]])
            )
    return "", rows
