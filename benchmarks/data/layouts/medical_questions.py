"""Data sets of questions about medical images."""

import random
from pathlib import Path

from layouts.package import (
    IMAGE,
    STRING,
    Made,
    Row,
    data_files,
    image_cell,
    layout,
    row,
    save_image,
    write_card,
    write_json,
    write_parquet,
)
from layouts.scenes import Scene


@layout("dev")
def vqa_rad_original(folder: Path, rng: random.Random) -> Made:
    """Names of files and folders have spaces.

    Some answers are integers. Other columns look like questions.
    Source: https://osf.io/89kps/ (VQA_RAD Dataset Public.json, VQA_RAD Image Folder)
    """
    entries, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        file_name = f"synpic{rng.randrange(10000, 70000)}.jpg"
        image = save_image(scene.image, folder / "VQA_RAD Image Folder" / file_name)
        question, answer = scene.ask("count" if i % 3 == 0 else "word")
        entries.append(
            {
                "qid": i,
                "phrase_type": "freeform",
                "qid_linked_id": f"03f{i}",
                "image_case_url": "https://medpix.nlm.nih.gov/case?id=1",
                "image_name": file_name,
                "image_organ": "HEAD",
                "evaluation": "not evaluated",
                "question": question,
                "question_rephrase": "NULL",
                "question_relation": "NULL",
                "question_frame": "NULL",
                "question_type": "PRES",
                "answer": int(answer) if i % 3 == 0 else answer,
                "answer_type": "OPEN",
            }
        )
        rows.append(row(question, answer, [image]))
    write_json(folder / "VQA_RAD Dataset Public.json", entries)
    return "", rows


@layout("dev")
def vqa_rad_hf(folder: Path, rng: random.Random) -> Made:
    """Image, question and answer are three columns.

    Source: https://huggingface.co/datasets/flaviagiammarino/vqa-rad
    """
    write_card(folder, {"default": data_files("train", "test")}, "vqa-rad")
    rows = []
    for split, count in (("train", 7), ("test", 3)):
        records = []
        for _ in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image, kind="JPEG")
            question, answer = scene.ask()
            records.append({"image": cell, "question": question.lower(), "answer": answer})
            rows.append(row(question.lower(), answer, [image], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001-eb8844602202be60.parquet",
            records,
            {"image": IMAGE, "question": STRING, "answer": STRING},
        )
    return "", rows


@layout("heldout")
def slake_original(folder: Path, rng: random.Random) -> Made:
    """Each image is called source.jpg and lies in a folder of its own, beside a mask and other files.

    The questions have two languages.
    Source: https://www.med-vqa.com/slake/ (Slake1.0.zip)
    """
    rows: list[Row] = []
    top = folder / "Slake1.0"
    images = []
    for i in range(5):
        scene = Scene(rng)
        image = save_image(scene.image, top / "imgs" / f"xmlab{i}" / "source.jpg")
        save_image(Scene(rng).image, top / "imgs" / f"xmlab{i}" / "mask.png")
        write_json(top / "imgs" / f"xmlab{i}" / "detection.json", [{scene.shape: [1.0, 2.0, 3.0, 4.0]}])
        write_json(top / "imgs" / f"xmlab{i}" / "question.json", [])
        images.append((scene, image))
    for split, count in (("train", 6), ("validate", 2), ("test", 2)):
        entries = []
        for j in range(count):
            i = (j + count) % 5
            scene, image = images[i]
            question, answer = scene.ask("word")
            chinese = j % 3 == 2
            question = "图片底部写的是什么词?" if chinese else question
            question_id = len(rows)
            entries.append(
                {
                    "img_id": i,
                    "img_name": f"xmlab{i}/source.jpg",
                    "question": question,
                    "answer": answer,
                    "q_lang": "zh" if chinese else "en",
                    "location": "Abdomen",
                    "modality": "MRI",
                    "answer_type": "OPEN",
                    "base_type": "vqa",
                    "content_type": "Modality",
                    "triple": ["vhead", "_", "_"],
                    "qid": question_id,
                }
            )
            rows.append(row(question, answer, [image], split=split))
        write_json(top / f"{split}.json", entries)
    (top / "KG").mkdir()
    (top / "KG" / "en_disease.csv").write_text("disease#attribute#value\n")
    return "Slake1.0", rows
