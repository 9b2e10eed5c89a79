"""Data sets with answers that a program can check, as reinforcement learning uses them."""

import base64
import random
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict, Features
from layouts.package import (
    IMAGE,
    STRING,
    Made,
    conversation,
    data_files,
    image_cell,
    layout,
    letter,
    row,
    save_image,
    write_card,
    write_jsonl,
    write_parquet,
)
from layouts.scenes import Scene, digest, encoded


@layout("dev")
def mm_eureka_jsonl(folder: Path, rng: random.Random) -> Made:
    """A conversation has no reply: the gold answer stands in a column.

    The system turn is no question. Images are file addresses with absolute paths.
    Source: https://github.com/ModalMinds/MM-EUREKA README (Data Preparation, Custom dataset)
    """
    entries, rows = [], []
    for i in range(8):
        scene = Scene(rng)
        path = folder / "images" / f"{i}.png"
        image = save_image(scene.image, path)
        question, answer = scene.ask("count")
        entries.append(
            {
                "id": str(i),
                "conversations": [
                    {
                        "role": "system",
                        "content": "Solve the question. The user asks a question, and you solve it. "
                        "You first think, then answer in \\boxed{}.",
                    },
                    {"role": "user", "content": question},
                ],
                "answer": answer,
                "image_urls": [f"file://{path}"],
            }
        )
        rows.append(row(question, answer, [image]))
    write_jsonl(folder / "dataset.jsonl", entries)
    return "dataset.jsonl", rows


@layout("dev")
def virl39k_hf(folder: Path, rng: random.Random) -> Made:
    """The images lie in a zip file only.

    A row has a list of one or two paths. The gold answer is boxed.
    Source: https://huggingface.co/datasets/TIGER-Lab/ViRL39K (39Krelease.parquet, images.zip)
    """
    records, rows = [], []
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for i in range(9):
            scenes = [Scene(rng) for _ in range(2 if i % 4 == 3 else 1)]
            paths, images = [], []
            for j, scene in enumerate(scenes):
                encoded(scene.image)
                path = f"images/Processed-{i:05d}-{j}.jpg"
                jpeg = encoded(scene.image, "JPEG")
                archive.writestr(zipfile.ZipInfo(path), jpeg)
                paths.append(path)
                images.append(digest(jpeg))
            scene = scenes[-1]
            question, answer = scene.ask("word")
            question = question if len(scenes) == 1 else "Which word is printed in the second image?"
            records.append(
                {
                    "question": "<image>" * len(scenes) + ("\n" if i % 2 else "") + question,
                    "answer": f"\\boxed{{{answer}}}",
                    "PassRate_32BTrained": 0.5,
                    "PassRate_7BBase": -1.0,
                    "category": "Broader STEM Topics",
                    "source": "Processed",
                    "qid": f"Processed-{i:05d}",
                    "image": paths,
                }
            )
            rows.append(row(question, answer, images, accept=[answer, f"\\boxed{{{answer}}}"]))
    pq.write_table(pa.Table.from_pylist(records), folder / "39Krelease.parquet")
    write_card(folder, {"default": {"train": "39Krelease.parquet"}}, "ViRL39K")
    return "", rows


@layout("dev")
def mmk12_hf(folder: Path, rng: random.Random) -> Made:
    """An image tag stands inside of the question.

    Some answers are LaTeX.
    Source: https://huggingface.co/datasets/FanqingM/MMK12
    """
    write_card(folder, {"default": data_files("train", "test")}, "MMK12")
    rows = []
    for split, count in (("train", 6), ("test", 4)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image)
            question, answer = scene.ask("count")
            text = f"As shown in the figure, <image> {question}" if i % 2 else f"{question}<image>"
            answer = f"${answer}$" if i % 3 == 0 else answer
            records.append(
                {"id": f"{split}-{i}", "question": text, "answer": answer, "subject": "math", "image": cell}
            )
            rows.append(row(text.replace("<image>", "").replace("  ", " ").strip(), answer, [image], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {"id": STRING, "question": STRING, "answer": STRING, "subject": STRING, "image": IMAGE},
        )
    return "", rows


@layout("heldout")
def r1_onevision_hf(folder: Path, rng: random.Random) -> Made:
    """The image is base64 text in Parquet.

    The reply is a rationale in a tag, and then the boxed answer. Written from memory: the form of the reply.
    Source: https://huggingface.co/datasets/Fancy-MLLM/R1-Onevision (Parquet: id, image as base64 text,
    conversations)
    """
    records, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        data = encoded(scene.image, "JPEG")
        question, answer = scene.ask()
        reply = (
            f"<think>\nThere is a picture with {scene.count} {scene.shape}s, {scene.colour}, and {scene.word}.\n"
            f"</think>\n\n**Answer:** \\boxed{{{answer}}}"
        )
        records.append(
            {
                "id": f"chartqa/{i}.png",
                "image": base64.b64encode(data).decode(),
                "conversations": conversation(question + "<image>" if i % 2 else "<image>" + question, reply),
            }
        )
        rows.append(row(question, answer, [digest(data)], accept=[answer, reply, f"\\boxed{{{answer}}}"]))
    (folder / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(records), folder / "data/train-00000-of-00001.parquet")
    write_card(folder, {"default": {"train": "data/train-*"}}, "R1-Onevision")
    return "", rows


@layout("heldout")
def multimodal_open_r1_8k(folder: Path, rng: random.Random) -> Made:
    """The gold answer stands in a tag after a rationale.

    Two other columns repeat question and answer. Written from memory: the exact text of the solution.
    Source: https://huggingface.co/datasets/lmms-lab/multimodal-open-r1-8k-verified
    """
    records, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        if i % 2:
            question, choices, right = scene.ask_closed(4, "count")
            text = (
                question + "\nChoices:\n" + "\n".join(f"({letter(j)}) {choice}" for j, choice in enumerate(choices))
            )
            answer = letter(right)
            accepted = [answer, choices[right]]
        else:
            text, answer = scene.ask("word")
            question, accepted, choices = text, [answer], None
        records.append(
            {
                "image": cell,
                "problem": text,
                "solution": f"<think>I look at the {scene.shape}s.</think>\n\n<answer>{answer}</answer>",
                "original_question": text,
                "original_answer": f"The answer is {answer}.",
            }
        )
        rows.append(row(text, answer, [image], accept=accepted))
    write_parquet(
        folder / "data/train-00000-of-00004.parquet",
        records,
        {
            "image": IMAGE,
            "problem": STRING,
            "solution": STRING,
            "original_question": STRING,
            "original_answer": STRING,
        },
    )
    write_card(folder, {"default": {"train": "data/train-*"}}, "multimodal-open-r1-8k-verified")
    return "", rows


@layout("dev")
def save_to_disk_clevr_r1v(folder: Path, rng: random.Random) -> Made:
    """Arrow files of `save_to_disk` come with JSON files of their state.

    The gold answer stands in a tag.
    Source: https://huggingface.co/datasets/leonardPKU/clevr_cogen_a_train (R1-V), kept with
    datasets.DatasetDict.save_to_disk
    """
    rows, splits = [], {}
    for split, count in (("train", 7), ("test", 3)):
        records = []
        for _ in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image)
            question, answer = scene.ask("count")
            records.append({"image": cell, "problem": question, "solution": f"<answer> {answer} </answer>"})
            rows.append(row(question, answer, [image], split=split))
        features = {"image": IMAGE, "problem": STRING, "solution": STRING}
        splits[split] = Dataset.from_dict(
            {name: [record[name] for record in records] for name in features}, features=Features(features)
        )
    DatasetDict(splits).save_to_disk(str(folder / "clevr_cogen"))
    return "clevr_cogen", rows
