"""Data sets of questions about text in photographs."""

import random
from pathlib import Path

from datasets import List
from layouts.package import (
    IMAGE,
    INT32,
    STRING,
    Made,
    Record,
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
def textvqa_lmms(folder: Path, rng: random.Random) -> Made:
    """Ten people gave ten answers that differ.

    The gold answer is the most frequent one.
    Source: https://huggingface.co/datasets/lmms-lab/textvqa
    """
    write_card(folder, {"default": {"train": "data/train-*", "validation": "data/validation-*"}}, "textvqa")
    rows = []
    for split, count in (("train", 6), ("validation", 4)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            question, answer = scene.ask("word")
            cell, image = image_cell(scene.image, kind="JPEG")
            answers = [
                "unanswerable",
                answer,
                answer,
                answer + "s",
                answer,
                answer,
                answer,
                answer,
                "the " + answer,
                answer,
            ]
            image_id = f"{rng.getrandbits(64):016x}"
            records.append(
                {
                    "image_id": image_id,
                    "question_id": i,
                    "question": question.lower(),
                    "question_tokens": question.lower().rstrip("?").split(),
                    "image": cell,
                    "image_width": scene.image.width,
                    "image_height": scene.image.height,
                    "flickr_original_url": "https://farm3.staticflickr.com/1/1_o.jpg",
                    "flickr_300k_url": "https://c1.staticflickr.com/1/1_z.jpg",
                    "answers": answers,
                    "image_classes": ["Sign"],
                    "set_name": split[:5] if split == "train" else "val",
                    "ocr_tokens": [scene.word],
                }
            )
            rows.append(row(question.lower(), answer, [image], split=split, accept=[answer]))
        write_parquet(
            folder / f"data/{split}-00000-of-00003.parquet",
            records,
            {
                "image_id": STRING,
                "question_id": INT32,
                "question": STRING,
                "question_tokens": List(STRING),
                "image": IMAGE,
                "image_width": INT32,
                "image_height": INT32,
                "flickr_original_url": STRING,
                "flickr_300k_url": STRING,
                "answers": List(STRING),
                "image_classes": List(STRING),
                "set_name": STRING,
                "ocr_tokens": List(STRING),
            },
        )
    return "", rows


@layout("heldout")
def textvqa_original(folder: Path, rng: random.Random) -> Made:
    """The file has no image name: the image is the image id with a suffix.

    The rows stand under `data`. Ten answers differ.
    Source: https://textvqa.org/dataset/ (TextVQA_0.5.1_train.json, train_val_images.zip -> train_images)
    """
    rows = []
    for split, count in (("train", 7), ("val", 3)):
        data = []
        for i in range(count):
            if i % 2 == 0:
                scene = Scene(rng)
                image_id = f"{rng.getrandbits(64):016x}"
                image = save_image(scene.image, folder / "train_images" / f"{image_id}.jpg")
            question, answer = scene.ask("word" if i % 2 == 0 else "count")
            question = question.lower()
            data.append(
                {
                    "question": question,
                    "image_id": image_id,
                    "image_classes": ["Poster"],
                    "flickr_original_url": "https://farm1.staticflickr.com/a_o.jpg",
                    "flickr_300k_url": "https://c1.staticflickr.com/a_z.jpg",
                    "image_width": scene.image.width,
                    "image_height": scene.image.height,
                    "answers": [
                        answer,
                        answer,
                        answer,
                        "the " + answer,
                        answer,
                        answer,
                        answer,
                        "unanswerable",
                        answer,
                        answer,
                    ],
                    "question_tokens": question.rstrip("?").split(),
                    "question_id": i + (0 if split == "train" else 34602),
                    "set_name": split,
                }
            )
            rows.append(row(question, answer, [image], split=split))
        write_json(
            folder / f"TextVQA_0.5.1_{split}.json",
            {"dataset_type": split, "dataset_name": "textvqa", "dataset_version": "0.5.1", "data": data},
        )
    return "", rows


@layout("dev")
def stvqa_original(folder: Path, rng: random.Random) -> Made:
    """The rows stand under `data`.

    The path of an image is relative to the folder `train_imgs`. Some questions have two accepted answers. Written
    from memory: the fields that are not read.
    Source: https://rrc.cvc.uab.es/?ch=11 (train_task_3.json, train_imgs)
    """
    data, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        source = ["coco-text", "VizWiz", "icdar"][i % 3]
        file_name = f"COCO_train2014_{rng.randrange(10**6):012d}.jpg" if i % 3 == 0 else f"img_{i}.jpg"
        image = save_image(scene.image, folder / "train_imgs" / source / file_name)
        question, answer = scene.ask("word")
        answers = [answer, answer.capitalize()] if i % 2 else [answer]
        data.append(
            {
                "file_name": file_name,
                "file_path": f"{source}/{file_name}",
                "question": question,
                "question_id": i,
                "answers": answers,
                "set_name": "train",
                "dataset": source,
                "image_height": scene.image.height,
                "image_width": scene.image.width,
            }
        )
        rows.append(row(question, answer, [image], accept=answers))
    write_json(
        folder / "train_task_3.json",
        {
            "dataset_name": "st-vqa",
            "dataset_version": "1.0",
            "task_name": "task 3",
            "set_name": "train",
            "data": data,
        },
    )
    return "", rows


@layout("heldout")
def ocrvqa_original(folder: Path, rng: random.Random) -> Made:
    """One object has all books, keyed by the name of the image.

    Questions and answers are two parallel lists. The split is a number.
    Source: https://ocr-vqa.github.io/ (dataset.json + loadDataset.py, which downloads images/ID.jpg)
    """
    entries, rows = {}, []
    for i in range(4):
        scene = Scene(rng)
        key = f"{rng.randrange(10**8, 10**10):010d}"
        image = save_image(scene.image, folder / "images" / f"{key}.jpg")
        questions, annotations = [], []
        for kind in ("count", "colour", "word")[: 2 + i % 2]:
            question, answer = scene.ask(kind)
            questions.append(question)
            annotations.append(answer)
            rows.append(row(question, answer, [image], split=["train", "val", "test"][i % 3]))
        entries[key] = {
            "imageURL": f"http://ecx.images-amazon.com/images/I/{key}.jpg",
            "questions": questions,
            "answers": annotations,
            "title": f"The {scene.word} book",
            "authorName": "A. Writer",
            "genre": "Calendars",
            "split": i % 3 + 1,
        }
    write_json(folder / "dataset.json", entries)
    (folder / "loadDataset.py").write_text("# downloads the pictures\n")
    return "", rows


@layout("dev")
def vizwiz_original(folder: Path, rng: random.Random) -> Made:
    """The answers are objects with a confidence, and `unanswerable` is a gold answer.

    The images lie in a folder of their split. The test split has no answers.
    Source: https://vizwiz.org/tasks-and-datasets/vqa/ (Annotations.zip, train.zip, val.zip)
    """
    rows = []
    for split, count in (("train", 5), ("val", 3), ("test", 2)):
        entries = []
        for i in range(count):
            scene = Scene(rng)
            file_name = f"VizWiz_{split}_{i:08d}.jpg"
            image = save_image(scene.image, folder / split / file_name)
            question, answer = scene.ask()
            unanswerable = i == 2 and split != "test"
            if unanswerable:
                question, answer = "What is the expiry date on this, please?", "unanswerable"
            entry: Record = {"image": file_name, "question": question}
            if split != "test":
                entry = {
                    "answers": [{"answer_confidence": "yes", "answer": answer}] * 7
                    + [{"answer_confidence": "maybe", "answer": "unsuitable"}] * 3,
                    "answer_type": "unanswerable" if unanswerable else "other",
                    "answerable": 0 if unanswerable else 1,
                } | entry
            entries.append(entry)
            rows.append(row(question, answer if split != "test" else None, [image], split=split))
        write_json(folder / f"Annotations/{split}.json", entries)
    return "", rows
