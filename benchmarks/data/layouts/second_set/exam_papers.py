"""Questions of examinations."""

import random
from pathlib import Path

from datasets import List
from layouts.package import (
    BOOL,
    IMAGE,
    INT64,
    STRING,
    Made,
    data_files,
    image_cell,
    letter,
    row,
    write_card,
    write_parquet,
)
from layouts.scenes import WORDS, Scene, digest, encoded
from layouts.second_set.languages import blind, closed_in, distinct, kind_of
from PIL import Image, ImageDraw


@blind("in part")
def exams_v_hf(folder: Path, rng: random.Random) -> Made:
    """The question and its choices are drawn in the picture; there is only the letter of the answer.

    Source: https://huggingface.co/datasets/MBZUAI/EXAMS-V (image, sample_id, answer_key, language, subject, type
    confirmed by loaders).
    """
    write_card(folder, {"default": data_files("train", "validation", "test")}, "EXAMS-V")
    rows, number = [], 0
    for split, count in (("train", 6), ("validation", 2), ("test", 2)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            question, choices, right = scene.ask_closed(4, kind_of(i))
            page = Image.new("RGB", (320, 120 + scene.image.height), (255, 255, 255))
            draw = ImageDraw.Draw(page)
            draw.text((8, 6), f"{number + 1}. {question}", fill=(0, 0, 0))
            page.paste(scene.image, (8, 26))
            for j, each in enumerate(choices):
                draw.text((8, 32 + scene.image.height + 18 * j), f"({letter(j)}) {each}", fill=(0, 0, 0))
            data = encoded(page)
            records.append(
                {
                    "image": {"bytes": data, "path": None},
                    "sample_id": f"{split}_{number}",
                    "subject": "Physics",
                    "type": "image_text",
                    "grade": 12,
                    "answer_key": letter(right),
                    "language": "English",
                    "level": "High School",
                }
            )
            number += 1
            rows.append(row("", letter(right), [digest(data)], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {
                "image": IMAGE,
                "sample_id": STRING,
                "subject": STRING,
                "type": STRING,
                "grade": INT64,
                "answer_key": STRING,
                "language": STRING,
                "level": STRING,
            },
        )
    return "", rows


@blind("in part")
def olympiadbench_hf(folder: Path, rng: random.Random) -> Made:
    """Columns for up to five pictures, answers are a list; a subset has its own folder.

    Source: https://huggingface.co/datasets/Hothan/OlympiadBench, lmms-eval olympiadbench (question, final_answer,
    subfield, is_multiple_answer,
    image_1.. confirmed).
    """
    name = "OE_MM_maths_en_COMP"
    write_card(folder, {name: {"train": f"OlympiadBench/{name}/{name}.parquet"}}, "OlympiadBench")
    rows, records = [], []
    for i in range(9):
        scenes = distinct(rng, 1 + i % 2)
        cells = [image_cell(scene.image) for scene in scenes]
        asked, answer = scenes[0].ask("count")
        question = f"{asked[:-1]} that has the word {scenes[0].word}?" if len(scenes) > 1 else asked
        tags = " ".join(f"<image_{j + 1}>" for j in range(len(scenes)))
        records.append(
            {f"image_{j + 1}": cell for j, (cell, _) in enumerate(cells)}
            | {
                "id": 2200 + i,
                "question": f"{question}\n\n{tags}",
                "solution": [f"We count {answer}."],
                "final_answer": [answer],
                "context": None,
                "modality": "Multimodal",
                "difficulty": "Competition",
                "is_multiple_answer": False,
                "unit": None,
                "answer_type": "Numerical",
                "error": None,
                "question_type": "Open-ended",
                "subfield": "Geometry",
                "subject": "Math",
                "language": "English",
            }
        )
        rows.append(row(question, answer, [image for _, image in cells]))
    text = (
        "context",
        "modality",
        "difficulty",
        "unit",
        "answer_type",
        "error",
        "question_type",
        "subfield",
        "subject",
        "language",
    )
    write_parquet(
        folder / f"OlympiadBench/{name}/{name}.parquet",
        records,
        {
            "id": INT64,
            "question": STRING,
            "solution": List(STRING),
            "final_answer": List(STRING),
            **{f"image_{j}": IMAGE for j in range(1, 6)},
            "is_multiple_answer": BOOL,
            **dict.fromkeys(text, STRING),
        },
    )
    return "", rows


@blind("in part")
def cmmmu_hf(folder: Path, rng: random.Random) -> Made:
    """Chinese questions of three types with marks of pictures; `-` stands for a choice that is not there.

    Source: https://huggingface.co/datasets/lmms-lab/CMMMU, lmms-eval cmmmu.
    """
    write_card(folder, {"default": data_files("dev", "val")}, "CMMMU")
    rows, number = [], 0
    types = {"colour": "选择", "count": "填空", "word": "判断"}
    for split, count in (("dev", 3), ("val", 7)):
        records = []
        for i in range(count):
            scene, kind = Scene(rng), kind_of(i)
            cell, image = image_cell(scene.image)
            name = f"art_and_design/{number}_1.png"
            question, choices, right = closed_in(scene, "zh", kind)
            shown = scene.word if number % 2 else WORDS[WORDS.index(scene.word) - 1]
            answer = {"选择": letter(right), "填空": choices[right], "判断": "对" if shown == scene.word else "错"}[
                types[kind]
            ]
            if kind == "word":
                question = f"图片下方印的单词是{shown}。"
            options = choices if kind == "colour" else ["-"] * 4
            records.append(
                {
                    "id": number,
                    "type": types[kind],
                    "source_type": "website",
                    "source": "",
                    "question": f'{question}<img="{name}">',
                    **{f"option{j + 1}": each for j, each in enumerate(options)},
                    "image_1": cell,
                    "image_1_filename": name,
                    "answer": answer,
                    "analysis": None,
                    "distribution": "本科",
                    "difficulty_level": "easy",
                    "subcategory": "艺术",
                    "category": "艺术与设计",
                    "subfield": '["绘画"]',
                    "img_type": '["绘画作品"]',
                }
            )
            number += 1
            rows.append(
                row(question, None, [image], choices, right, split=split)
                if kind == "colour"
                else row(question, answer, [image], split=split)
            )
        text = [
            "type",
            "source_type",
            "source",
            "question",
            *(f"option{j}" for j in range(1, 5)),
            "answer",
            "analysis",
            "distribution",
            "difficulty_level",
        ]
        text += ["subcategory", "category", "subfield", "img_type", *(f"image_{j}_filename" for j in range(1, 6))]
        features = {"id": INT64, **dict.fromkeys(text, STRING), **{f"image_{j}": IMAGE for j in range(1, 6)}}
        write_parquet(folder / f"data/{split}-00000-of-00001.parquet", records, features)
    return "", rows
