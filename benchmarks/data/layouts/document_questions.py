"""Data sets of questions about scanned documents."""

import io
import json
import random
import tarfile
from pathlib import Path

from datasets import List
from layouts.package import (
    IMAGE,
    INT64,
    STRING,
    Made,
    Row,
    image_cell,
    layout,
    row,
    save_image,
    write_card,
    write_json,
    write_parquet,
)
from layouts.scenes import Scene, digest, encoded


@layout("dev")
def docvqa_lmms(folder: Path, rng: random.Random) -> Made:
    """A question has several accepted answers, in a list; those of the test split are null.

    A second config lies in the same repository.
    Source: https://huggingface.co/datasets/lmms-lab/DocVQA
    """
    write_card(
        folder,
        {
            "DocVQA": {"validation": "DocVQA/validation-*", "test": "DocVQA/test-*"},
            "InfographicVQA": {"validation": "InfographicVQA/validation-*"},
        },
        "DocVQA",
    )
    rows = []
    features = {
        "questionId": STRING,
        "question": STRING,
        "question_types": List(STRING),
        "image": IMAGE,
        "docId": INT64,
        "ucsf_document_id": STRING,
        "ucsf_document_page_no": STRING,
        "answers": List(STRING),
        "data_split": STRING,
    }
    for split, count in (("validation", 6), ("test", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            question, answer = scene.ask()
            cell, image = image_cell(scene.image)
            answers = [answer, answer.upper()] if i % 2 else [answer]
            records.append(
                {
                    "questionId": str(49153 + 7 * i),
                    "question": question,
                    "question_types": ["handwritten", "form"],
                    "image": cell,
                    "docId": 14465 + i,
                    "ucsf_document_id": "pybv0228",
                    "ucsf_document_page_no": "81",
                    "answers": answers if split != "test" else None,
                    "data_split": split[:3],
                }
            )
            rows.append(
                row(
                    question,
                    answer if split != "test" else None,
                    [image],
                    split=split,
                    accept=answers if split != "test" else None,
                )
            )
        write_parquet(folder / f"DocVQA/{split}-00000-of-00006.parquet", records, features)
    _write_infographics(folder, rng)
    return "DocVQA", rows


def _write_infographics(folder: Path, rng: random.Random) -> None:
    records = []
    for i in range(3):
        scene = Scene(rng)
        question, answer = scene.ask()
        cell, _ = image_cell(scene.image)
        records.append(
            {
                "questionId": str(98313 + i),
                "question": question,
                "answers": [answer],
                "answer_type": ["single span"],
                "image": cell,
                "image_url": "http://example.com/a.jpg",
                "operation_reasoning": ["counting"],
                "ocr": "[]",
                "data_split": "val",
            }
        )
    write_parquet(
        folder / "InfographicVQA/validation-00000-of-00002.parquet",
        records,
        {
            "questionId": STRING,
            "question": STRING,
            "answers": List(STRING),
            "answer_type": List(STRING),
            "image": IMAGE,
            "image_url": STRING,
            "operation_reasoning": List(STRING),
            "ocr": STRING,
            "data_split": STRING,
        },
    )


@layout("dev")
def docvqa_original(folder: Path, rng: random.Random) -> Made:
    """The rows stand under `data`.

    They name images in `documents`, but the folder of the images is `spdocvqa_images`. A folder of OCR files lies
    beside it. The test file has no answers.
    Source: https://rrc.cvc.uab.es/?ch=17&com=downloads (Task 1: spdocvqa_qas, spdocvqa_images)
    """
    rows = []
    images = []
    for i in range(6):
        scene = Scene(rng)
        file_name = (
            f"{rng.choice('abcdefgnprst')}{rng.choice('nkxyz')}bl"
            f"{rng.randrange(10, 99)}{i:02d}_{rng.randrange(1, 60)}.png"
        )
        images.append((file_name, scene, save_image(scene.image, folder / "spdocvqa_images" / file_name)))
        write_json(
            folder / "spdocvqa_ocr" / file_name.replace("png", "json"),
            {
                "status": "Succeeded",
                "recognitionResults": [
                    {"page": 1, "lines": [{"boundingBox": [1, 2, 3, 4, 5, 6, 7, 8], "text": scene.word}]}
                ],
            },
        )
    for split, table_name, count in (
        ("train", "train_v1.0_withQT.json", 6),
        ("val", "val_v1.0_withQT.json", 3),
        ("test", "test_v1.0.json", 2),
    ):
        data = []
        for i in range(count):
            file_name, scene, image = images[(i * 2 + count) % 6]
            question, answer = scene.ask()
            question_id = rng.randrange(300, 65000)
            entry = {"questionId": question_id, "question": question}
            if split != "test":
                entry["question_types"] = ["layout"]
            entry |= {
                "image": f"documents/{file_name}",
                "docId": rng.randrange(100, 9999),
                "ucsf_document_id": file_name.split("_")[0],
                "ucsf_document_page_no": file_name.split("_")[1][:-4],
            }
            if split != "test":
                entry["answers"] = [answer]
            data.append(entry | {"data_split": split})
            rows.append(row(question, answer if split != "test" else None, [image], split=split))
        write_json(
            folder / "spdocvqa_qas" / table_name,
            {"dataset_name": "docvqa", "dataset_split": split, "dataset_version": "1.0", "data": data},
        )
    return "", rows


@layout("dev")
def wds_docvqa(folder: Path, rng: random.Random) -> Made:
    """Two tar shards have an image and a JSON file for each key.

    Written from memory: the names of the members.
    Source: https://huggingface.co/datasets/pixparse/docvqa-single-page-questions and docs of webdataset (shards
    of KEY.png + KEY.json)
    """
    rows: list[Row] = []
    for shard in range(2):
        with tarfile.open(folder / f"docvqa-train-{shard:03d}.tar", "w") as archive:
            for i in range(5):
                scene = Scene(rng)
                data = encoded(scene.image)
                question, answer = scene.ask()
                key = f"{shard}{i:05d}"
                described = json.dumps(
                    {
                        "questionId": 300 + len(rows),
                        "question": question,
                        "question_types": ["layout"],
                        "image": f"documents/{key}.png",
                        "docId": i,
                        "answers": [answer, answer.upper()],
                        "data_split": "train",
                    }
                ).encode()
                for ext, content in (("json", described), ("png", data)):
                    member = tarfile.TarInfo(f"{key}.{ext}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
                rows.append(row(question, answer, [digest(data)], accept=[answer, answer.upper()]))
    return "", rows


@layout("heldout")
def ocrbench_hf(folder: Path, rng: random.Random) -> Made:
    """The answer is a list of accepted texts.

    Other columns look like questions.
    Source: https://huggingface.co/datasets/echo840/OCRBench
    """
    records, rows = [], []
    for i in range(10):
        scene = Scene(rng)
        cell, image = image_cell(scene.image, kind="JPEG")
        answer = scene.word
        question = "what is written in the image?" if i % 2 else scene.ask("word")[0]
        answers = [answer, answer.upper()] if i % 3 == 0 else [answer]
        records.append(
            {
                "dataset": "IIIT5K",
                "question": question,
                "question_type": "Regular Text Recognition",
                "answer": answers,
                "image": cell,
            }
        )
        rows.append(row(question, answer, [image], accept=answers))
    write_parquet(
        folder / "data/test-00000-of-00001.parquet",
        records,
        {"dataset": STRING, "question": STRING, "question_type": STRING, "answer": List(STRING), "image": IMAGE},
    )
    write_card(folder, {"default": {"test": "data/test-*"}}, "OCRBench")
    return "", rows
