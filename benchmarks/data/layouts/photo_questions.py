"""Data sets of open questions about photographs and scenes."""

import random
from pathlib import Path

from datasets import List
from layouts.package import (
    BOOL,
    IMAGE,
    INT32,
    INT64,
    STRING,
    Made,
    Record,
    Row,
    image_cell,
    layout,
    row,
    save_image,
    write_card,
    write_json,
    write_parquet,
)
from layouts.scenes import Scene


def vqa_entries(folder: Path, rng: random.Random) -> tuple[list[Record], list[Record], list[Row]]:
    """Questions, their annotations in the same order, and the rows expected of both."""
    questions, annotations, rows = [], [], []
    for _ in range(5):
        scene = Scene(rng)
        image_id = rng.randrange(100, 580000)
        image = save_image(scene.image, folder / f"val2014/COCO_val2014_{image_id:012d}.jpg")
        kinds = rng.sample(["count", "colour", "word"], 2)
        for number, kind in enumerate(kinds):
            question, answer = scene.ask(kind)
            question_id = image_id * 1000 + number
            answers = [answer] * 7 + ["many" if kind == "count" else "grey"] * 2 + [answer]
            questions.append({"image_id": image_id, "question": question, "question_id": question_id})
            annotations.append(
                {
                    "question_type": "how many" if kind == "count" else "what",
                    "multiple_choice_answer": answer,
                    "answers": [
                        {"answer": each, "answer_confidence": rng.choice(["yes", "maybe"]), "answer_id": j + 1}
                        for j, each in enumerate(answers)
                    ],
                    "image_id": image_id,
                    "answer_type": "number" if kind == "count" else "other",
                    "question_id": question_id,
                }
            )
            rows.append(row(question, answer, [image]))
    return questions, annotations, rows


@layout("heldout")
def vqav2_original(folder: Path, rng: random.Random) -> Made:
    """Questions and answers are two files with the same question ids, in another order.

    The image name follows from the image id only.
    Source: https://visualqa.org/download.html
    """
    questions, annotations, rows = vqa_entries(folder, rng)
    rng.shuffle(annotations)
    info = {
        "description": "This is v2.0 of the VQA dataset.",
        "url": "http://visualqa.org",
        "version": "2.0",
        "year": 2017,
        "contributor": "VQA Team",
        "date_created": "2017-04-26 17:00:44",
    }
    licence = {
        "url": "http://creativecommons.org/licenses/by/4.0/",
        "name": "Creative Commons Attribution 4.0 International License",
    }
    write_json(
        folder / "v2_OpenEnded_mscoco_val2014_questions.json",
        {
            "info": info,
            "task_type": "Open-Ended",
            "data_type": "mscoco",
            "license": licence,
            "data_subtype": "val2014",
            "questions": questions,
        },
    )
    write_json(
        folder / "v2_mscoco_val2014_annotations.json",
        {
            "info": info,
            "license": licence,
            "data_subtype": "val2014",
            "annotations": annotations,
            "data_type": "mscoco",
        },
    )
    return "", rows


@layout("heldout")
def vqav2_lmms(folder: Path, rng: random.Random) -> Made:
    """Ten answers are structs.

    The gold answer stands in `multiple_choice_answer`.
    Source: https://huggingface.co/datasets/lmms-lab/VQAv2
    """
    write_card(folder, {"default": {"validation": "data/validation-*"}}, "VQAv2")
    records, rows = [], []
    for _ in range(10):
        scene = Scene(rng)
        question, answer = scene.ask()
        cell, image = image_cell(scene.image, kind="JPEG")
        image_id = rng.randrange(100, 580000)
        records.append(
            {
                "question_type": "what",
                "multiple_choice_answer": answer,
                "answers": [
                    {"answer": each, "answer_confidence": "yes", "answer_id": j + 1}
                    for j, each in enumerate([answer] * 8 + ["none", "red and " + answer])
                ],
                "image_id": image_id,
                "answer_type": "other",
                "question_id": image_id * 1000,
                "question": question,
                "image": cell,
            }
        )
        rows.append(row(question, answer, [image]))
    write_parquet(
        folder / "data/validation-00000-of-00068.parquet",
        records,
        {
            "question_type": STRING,
            "multiple_choice_answer": STRING,
            "answers": List({"answer": STRING, "answer_confidence": STRING, "answer_id": INT64}),
            "image_id": INT64,
            "answer_type": STRING,
            "question_id": INT64,
            "question": STRING,
            "image": IMAGE,
        },
    )
    return "", rows


@layout("dev")
def gqa_original(folder: Path, rng: random.Random) -> Made:
    """One object has all questions, keyed by their ids.

    The image id has no suffix. Each question has a short and a full answer.
    Source: https://cs.stanford.edu/people/dorarad/gqa/download.html (questions1.2.zip, images.zip)
    """
    rows = []
    for split, count in (("train", 8), ("val", 3)):
        entries = {}
        for i in range(count):
            if i % 2 == 0:
                scene = Scene(rng)
                image_id = str(rng.randrange(2300000, 2420000)) if i else f"n{rng.randrange(10000, 600000)}"
                image = save_image(scene.image, folder / "images" / f"{image_id}.jpg")
            question, answer = scene.ask("colour" if i % 2 else "word")
            question_id = f"{rng.randrange(10**6, 10**8):08d}"
            entries[question_id] = {
                "semantic": [
                    {"operation": "select", "dependencies": [], "argument": f"{scene.shape} (1003)"},
                    {"operation": "query", "dependencies": [0], "argument": "color"},
                ],
                "entailed": [],
                "equivalent": [question_id],
                "question": question,
                "imageId": image_id,
                "isBalanced": True,
                "groups": {"global": "color", "local": f"14-{scene.shape}_color"},
                "answer": answer,
                "semanticStr": f"select: {scene.shape} (1003)->query: color [0]",
                "annotations": {"answer": {"0": "1003"}, "question": {"4": "1003"}, "fullAnswer": {"1": "1003"}},
                "types": {"detailed": "directOf", "semantic": "attr", "structural": "query"},
                "fullAnswer": f"It is {answer}.",
            }
            rows.append(row(question, answer, [image], split=split, accept=[answer, f"It is {answer}."]))
        write_json(folder / f"questions1.2/{split}_balanced_questions.json", entries)
    return "", rows


@layout("dev")
def gqa_lmms(folder: Path, rng: random.Random) -> Made:
    """Images and questions are two configs.

    The image id of a question is the id of an image.
    Source: https://huggingface.co/datasets/lmms-lab/GQA
    """
    write_card(
        folder,
        {
            f"testdev_balanced_{part}": {"testdev": f"testdev_balanced_{part}/testdev-*"}
            for part in ("images", "instructions")
        },
        "GQA",
    )
    images, questions, rows = [], [], []
    for _ in range(5):
        scene = Scene(rng)
        image_id = f"n{rng.randrange(10000, 600000)}"
        cell, image = image_cell(scene.image, f"{image_id}.jpg", "JPEG")
        images.append({"id": image_id, "image": cell})
        for kind in ("word", "colour"):
            question, answer = scene.ask(kind)
            question_id = str(rng.randrange(10**6, 10**9))
            questions.append(
                {
                    "id": question_id,
                    "imageId": image_id,
                    "question": question,
                    "answer": answer,
                    "fullAnswer": f"It is {answer}.",
                    "isBalanced": True,
                    "groups": {"global": "color", "local": "x"},
                    "entailed": "",
                    "equivalent": f"['{question_id}']",
                    "types": {"structural": "query", "semantic": "attr", "detailed": "directOf"},
                    "annotations": {"question": [], "answer": [], "fullAnswer": []},
                    "semantic": [{"operation": "select", "argument": "x (0)", "dependencies": []}],
                    "semanticStr": "select: x (0)",
                }
            )
            rows.append(row(question, answer, [image], accept=[answer, f"It is {answer}."]))
    write_parquet(
        folder / "testdev_balanced_images/testdev-00000-of-00001.parquet", images, {"id": STRING, "image": IMAGE}
    )
    annotations = List({"objectId": STRING, "value": STRING})
    write_parquet(
        folder / "testdev_balanced_instructions/testdev-00000-of-00001.parquet",
        questions,
        {
            "id": STRING,
            "imageId": STRING,
            "question": STRING,
            "answer": STRING,
            "fullAnswer": STRING,
            "isBalanced": BOOL,
            "groups": {"global": STRING, "local": STRING},
            "entailed": STRING,
            "equivalent": STRING,
            "types": {"structural": STRING, "semantic": STRING, "detailed": STRING},
            "annotations": {"question": annotations, "answer": annotations, "fullAnswer": annotations},
            "semantic": List({"operation": STRING, "argument": STRING, "dependencies": List(INT32)}),
            "semanticStr": STRING,
        },
    )
    return "", rows


@layout("heldout")
def okvqa_lmms(folder: Path, rng: random.Random) -> Made:
    """Ten answers stand in a list.

    The gold answer is the most frequent one.
    Source: https://huggingface.co/datasets/lmms-lab/OK-VQA
    """
    write_card(folder, {"default": {"val2014": "data/val2014-*"}}, "OK-VQA")
    records, rows = [], []
    for _ in range(10):
        scene = Scene(rng)
        cell, image = image_cell(scene.image, kind="JPEG")
        question, answer = scene.ask()
        records.append(
            {
                "question_id": str(rng.randrange(10**6, 10**7)),
                "image": cell,
                "question": question,
                "answers": ["unsure", "unsure"] + [answer] * 6 + ["thing"] * 2,
                "question_type": "one",
                "answer_type": "other",
            }
        )
        rows.append(row(question, answer, [image], split="val2014"))
    write_parquet(
        folder / "data/val2014-00000-of-00002.parquet",
        records,
        {
            "question_id": STRING,
            "image": IMAGE,
            "question": STRING,
            "answers": List(STRING),
            "question_type": STRING,
            "answer_type": STRING,
        },
    )
    return "", rows


@layout("heldout")
def tallyqa_original(folder: Path, rng: random.Random) -> Made:
    """The answers are integers.

    The images lie in three folders.
    Source: https://github.com/manoja328/TallyQA_dataset (tallyqa.zip: train.json, test.json)
    """
    rows = []
    for split, count in (("train", 7), ("test", 3)):
        entries = []
        for i in range(count):
            scene = Scene(rng)
            image_id = rng.randrange(1000, 500000)
            path = [
                f"train2014/COCO_train2014_{image_id:012d}.jpg",
                f"VG_100K_2/{image_id}.jpg",
                f"VG_100K/{image_id}.jpg",
            ][i % 3]
            image = save_image(scene.image, folder / path)
            question, answer = scene.ask("count")
            entries.append(
                {
                    "image": path,
                    "answer": int(answer),
                    "data_source": "imported_vqa",
                    "question": question,
                    "image_id": image_id,
                    "question_id": 10118000 + i,
                }
                | ({"issimple": True} if split == "test" else {})
            )
            rows.append(row(question, answer, [image], split=split))
        write_json(folder / f"{split}.json", entries)
    return "", rows


@layout("heldout")
def clevr_original(folder: Path, rng: random.Random) -> Made:
    """The rows stand under `questions`.

    The images lie in a folder of their split. Files of scenes hold no questions. The test split has no answers.
    Source: https://cs.stanford.edu/people/jcjohns/clevr/ (CLEVR_v1.0.zip)
    """
    rows, top = [], folder / "CLEVR_v1.0"
    for split, count in (("train", 4), ("val", 3), ("test", 2)):
        questions, scenes, qi = [], [], 0
        for i in range(count):
            scene = Scene(rng)
            file_name = f"CLEVR_{split}_{i:06d}.png"
            image = save_image(scene.image, top / "images" / split / file_name)
            scenes.append(
                {
                    "image_index": i,
                    "objects": [
                        {
                            "color": scene.colour,
                            "size": "large",
                            "rotation": 1.0,
                            "shape": scene.shape,
                            "3d_coords": [1, 2, 3],
                            "material": "rubber",
                            "pixel_coords": [1, 2, 3],
                        }
                    ]
                    * scene.count,
                    "relationships": {"right": [[]], "behind": [[]], "front": [[]], "left": [[]]},
                    "image_filename": file_name,
                    "split": split,
                    "directions": {},
                }
            )
            for kind in ("count", "colour")[: 1 + i % 2]:
                question, answer = scene.ask(kind)
                entry = {
                    "question_index": qi,
                    "image_filename": file_name,
                    "image_index": i,
                    "question": question,
                    "split": split,
                }
                if split != "test":
                    entry |= {
                        "program": [{"inputs": [], "function": "scene", "value_inputs": []}],
                        "answer": answer,
                        "question_family_index": 2,
                    }
                questions.append(entry)
                rows.append(row(question, answer if split != "test" else None, [image], split=split))
                qi += 1
        info = {
            "split": split,
            "license": "Creative Commons Attribution (CC BY 4.0)",
            "version": "1.0",
            "date": "2/14/2017",
        }
        write_json(top / f"questions/CLEVR_{split}_questions.json", {"info": info, "questions": questions})
        if split != "test":
            write_json(top / f"scenes/CLEVR_{split}_scenes.json", {"info": info, "scenes": scenes})
    for name in ("README.txt", "LICENSE.txt", "COPYRIGHT.txt"):
        (top / name).write_text("CLEVR\n")
    return "CLEVR_v1.0", rows
