"""Questions about several pictures, or several questions in a row."""

import base64
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
    write_parquet,
)
from layouts.scenes import Digest, Scene, digest, encoded
from layouts.second_set.languages import blind, distinct


@blind("in part")
def muirbench_hf(folder: Path, rng: random.Random) -> Made:
    """A list of pictures with a mark for each in the question.

    Source: https://huggingface.co/datasets/MUIRBENCH/MUIRBENCH, lmms-eval muirbench (idx, task, image_relation,
    image_type, question, options, answer,
    image_list); the column counterpart_idx from memory.
    """
    write_card(folder, {"default": data_files("test")}, "MuirBench")
    rows, records = [], []
    for i in range(10):
        scenes = distinct(rng, rng.randrange(2, 5))
        cells = [image_cell(scene.image, kind="JPEG") for scene in scenes]
        at = rng.randrange(len(scenes))
        question = f"Which of the following images has the word {scenes[at].word} in it?"
        options = [f"The {name} image" for name in ("first", "second", "third", "fourth")[: len(scenes)]] + [
            "None of the choices provided"
        ]
        records.append(
            {
                "idx": str(i),
                "task": "Visual Retrieval",
                "image_relation": "Partial Similarity",
                "image_type": "Photography",
                "question": f"{question}{'<image>' * len(scenes)}",
                "options": options,
                "answer": letter(at),
                "image_list": [cell for cell, _ in cells],
                "counterpart_idx": str(9 - i),
            }
        )
        rows.append(row(question, None, [image for _, image in cells], options, at))
    text = ("idx", "task", "image_relation", "image_type", "question", "answer", "counterpart_idx")
    write_parquet(
        folder / "data/test-00000-of-00001.parquet",
        records,
        dict.fromkeys(text, STRING) | {"options": List(STRING), "image_list": List(IMAGE)},
    )
    return "", rows


@blind("in part")
def naturalbench_hf(folder: Path, rng: random.Random) -> Made:
    """Two pictures and two questions make four samples; the answer to each pair has a column.

    Source: https://huggingface.co/datasets/BaiqiL/NaturalBench (from its card; the pairs q0_i0 .. q1_i1 confirmed
    in lmms-eval naturalbench).
    """
    write_card(folder, {"default": data_files("train")}, "NaturalBench")
    rows, records = [], []
    for number in range(4):
        while True:
            scenes = distinct(rng, 2)
            if scenes[0].shape != scenes[1].shape and scenes[0].colour != scenes[1].colour:
                break
        cells = [image_cell(scene.image, kind="JPEG") for scene in scenes]
        questions = [f"Is there a {scenes[0].shape} in the image?", f"Are the shapes {scenes[1].colour}?"]
        answers = {(image, 0): "Yes" if image == 0 else "No" for image in range(2)} | {
            (image, 1): "No" if image == 0 else "Yes" for image in range(2)
        }
        record = {"Index": number, "Question_Type": "yes_no", "Source": "Flickr30K"}
        for k in range(2):
            record |= {f"Image_{k}": cells[k][0], f"Question_{k}": questions[k]}
        for (image, question), answer in answers.items():
            record[f"Image_{image}_Question_{question}"] = answer
            rows.append(row(questions[question], answer, [cells[image][1]]))
        records.append(record)
    pairs = [f"Image_{image}_Question_{question}" for image in range(2) for question in range(2)]
    write_parquet(
        folder / "data/train-00000-of-00001.parquet",
        records,
        {
            "Index": INT64,
            "Image_0": IMAGE,
            "Image_1": IMAGE,
            **dict.fromkeys(["Question_0", "Question_1", *pairs, "Question_Type", "Source"], STRING),
        },
    )
    return "", rows


@blind("in part")
def mmvet_v2_original(folder: Path, rng: random.Random) -> Made:
    """Names of the pictures stand in the question after `<IMG>`; some answers have alternatives.

    Source: yuweihao/MM-Vet v2, https://huggingface.co/datasets/whyu/mm-vet-v2 (`<IMG>` in lmms-eval mmvetv2; file
    from knowledge).
    """
    rows, records = [], {}
    for i in range(10):
        scenes = distinct(rng, 1 + (i % 3 == 0))
        names = [
            f"v2_{i}_{j}.png" if len(scenes) > 1 else f"v2_{i}.{'jpg' if i % 2 else 'png'}"
            for j in range(len(scenes))
        ]
        images = [
            save_image(scene.image, folder / "images" / name) for scene, name in zip(scenes, names, strict=True)
        ]
        if len(scenes) > 1:
            question, answer = (
                "How many shapes are there in both images together?",
                str(sum(scene.count for scene in scenes)),
            )
        else:
            question, answer = scenes[0].ask("count" if i % 2 else "colour")
        written = f"{answer}<OR>{answer} of them" if i % 2 else answer
        records[f"v2_{i}"] = {
            "question": question + "".join(f"<IMG>{name}" for name in names),
            "answer": written,
            "capability": ["rec"],
            "added_in": "v2",
        }
        rows.append(row(question, answer, images, accept=[written, f"{answer} of them"]))
    write_json(folder / "mm-vet-v2.json", records, 4)
    return "", rows


@blind("whole")
def vlmevalkit_multi_image_tsv(folder: Path, rng: random.Random) -> Made:
    """A TSV with base64: one picture, the text of a list of pictures, or the index of the row whose picture is meant.

    Source: VLMEvalKit vlmeval/dataset/image_base.py (BLINK.tsv, MMT-Bench_VAL_MI.tsv).
    """
    rows, lines = [], []
    shown: list[Scene] = []
    images: list[Digest] = []
    for i in range(10):
        scenes, cell = distinct(rng, 1 if i % 3 == 0 else 2), str(i - 1)
        if i in (4, 8):
            scenes = shown
        else:
            data = [encoded(scene.image, "JPEG") for scene in scenes]
            texts = [base64.b64encode(each).decode() for each in data]
            cell = texts[0] if len(texts) == 1 else str(texts)
            shown, images = scenes, [digest(each) for each in data]
        at = rng.randrange(len(scenes))
        asked, choices, right = scenes[at].ask_closed(4, "count")
        question = f"{asked[:-1]} with the word {scenes[at].word}?"
        lines.append([i, question, *choices, letter(right), "counting", "synthetic", cell])
        rows.append(row(question, None, images, choices, right))
    with (folder / "BLINK.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["index", "question", "A", "B", "C", "D", "answer", "category", "source", "image"])
        writer.writerows(lines)
    return "BLINK.tsv", rows


@blind("whole")
def mantis_chat(folder: Path, rng: random.Random) -> Made:
    """Chats with `role` and `content` in a field `conversation`, two or three pictures, sometimes two turns.

    Source: TIGER-AI-Lab/Mantis data/README.md and data/examples/chat/train.json.
    """
    rows, records = [], []
    for i in range(8):
        scenes = distinct(rng, 2 + i % 2)
        paths = [f"train_images/sharegpt4v/{rng.randrange(10**8):09d}.jpg" for _ in scenes]
        images = [save_image(scene.image, folder / path) for scene, path in zip(scenes, paths, strict=True)]
        chat = []
        for turn in range(1 + i % 2):
            at = rng.randrange(len(scenes))
            question, answer = (
                f"What color are the shapes in the image {at + 1}, the one with the word {scenes[at].word}?",
                f"They are {scenes[at].colour}.",
            )
            chat += [
                {"role": "user", "content": ("<image>" * len(scenes) if not turn else "") + question},
                {"role": "assistant", "content": answer},
            ]
            rows.append(row(question, answer, images))
        records.append({"id": f"sharegpt4v-pt_{i}", "images": paths, "conversation": chat})
    write_json(folder / "train.json", records, 4)
    (folder / "data_config.yaml").write_text(
        "datasets:\n  - path: ./train.json\n    format: chat\n    split: train\n"
    )
    return "", rows


@blind("whole")
def mimicit_dense_captions(folder: Path, rng: random.Random) -> Made:
    """Frames of videos as base64 in one object, questions in another, each with the ids of its frames.

    Source: the page of the format of MIMIC-IT in Luodian/Otter.
    """
    rows, frames, asked = [], {}, {}
    for video in range(5):
        scenes = distinct(rng, 3)
        ids = [f"DC_IMG_v_{scenes[0].word}{video}_{i:04d}" for i in range(3)]
        images = []
        for scene, name in zip(scenes, ids, strict=True):
            data = encoded(scene.image, "JPEG")
            frames[name] = base64.b64encode(data).decode()
            images.append(digest(data))
        for kind in ("first", "last"):
            scene = scenes[0 if kind == "first" else -1]
            question, answer = f"Which word is shown in the {kind} frame of the video?", f"The word is {scene.word}."
            asked[f"DC_INS_{len(asked) + 1:05d}"] = {
                "instruction": question,
                "answer": answer,
                "image_ids": ids,
                "rel_ins_ids": [],
            }
            rows.append(row(question, answer, images))
    for number, each in asked.items():
        each["rel_ins_ids"] = [
            other for other in asked if other != number and asked[other]["image_ids"] == each["image_ids"]
        ]
    top = folder / "mimicit_data" / "DC"
    write_json(top / "DC.json", frames)
    write_json(
        top / "DC_instructions.json",
        {"meta": {"version": "0.0.1", "time": "2023-06", "author": "ntu"}, "data": asked},
    )
    write_json(top / "DC_train.json", {number: each["rel_ins_ids"] for number, each in asked.items()})
    return "", rows
