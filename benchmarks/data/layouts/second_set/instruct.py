"""Rows for training: instructions and preferences."""

import json
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
    row,
    save_image,
    write_card,
    write_json,
    write_jsonl,
    write_parquet,
)
from layouts.scenes import Scene, digest
from layouts.second_set.languages import base64_of, blind, distinct, kind_of


def sentence(answer: str) -> str:
    return f"The answer is {answer}."


@blind("whole")
def qwen_vl_finetune(folder: Path, rng: random.Random) -> Made:
    """Paths of pictures stand in the text between `<img>` and `</img>`.

    Source: QwenLM/Qwen-VL README, section Finetuning.
    """
    rows, records = [], []
    for i in range(9):
        scenes = distinct(rng, 1 + (i % 3 == 0))
        paths = [f"assets/{rng.randrange(10**6)}_{scene.word}.jpeg" for scene in scenes]
        images = [save_image(scene.image, folder / path) for scene, path in zip(scenes, paths, strict=True)]
        marks = "".join(f"Picture {j + 1}: <img>{path}</img>\n" for j, path in enumerate(paths))
        if len(scenes) > 1:
            question, answer = (
                "Which words are printed in the two pictures?",
                sentence(f"{scenes[0].word} and {scenes[1].word}"),
            )
        else:
            asked = scenes[0].ask(kind_of(i))
            question, answer = asked[0], sentence(asked[1])
        turns = [{"from": "user", "value": marks + question}, {"from": "assistant", "value": answer}]
        records.append({"id": f"identity_{i}", "conversations": turns})
        rows.append(row(question, answer, images))
    write_json(folder / "finetune.json", records, 2)
    return "finetune.json", rows


@blind("whole")
def msswift_rlhf(folder: Path, rng: random.Random) -> Made:
    """Messages with a rejected reply beside them, and a system message.

    Source: the page "Custom dataset" of the documentation of modelscope/ms-swift.
    """
    rows, records = [], []
    for i in range(10):
        scene = Scene(rng)
        path = f"pics/{i:03d}_{scene.word}.png"
        image = save_image(scene.image, folder / path)
        question, answer = scene.ask(kind_of(i))
        good, bad = sentence(answer), "I see nothing of the kind in this picture."
        messages = [{"role": "user", "content": f"<image>{question}"}, {"role": "assistant", "content": good}]
        if i % 2:
            messages.insert(0, {"role": "system", "content": "You are a helpful and harmless assistant"})
        records.append({"messages": messages, "images": [path], "rejected_response": bad})
        rows.append(row(question, good, [image]))
    write_jsonl(folder / "rlhf.jsonl", records)
    return "", rows


PART = {"type": STRING, "text": STRING}


@blind("whole")
def trl_prompt_completion(folder: Path, rng: random.Random) -> Made:
    """Prompt and completion are chats whose content is a list of parts; pictures are a column of lists.

    Source: the page "Dataset formats" of the documentation of huggingface/trl, vision datasets.
    """
    write_card(folder, {"default": data_files("train", "test")}, "llava-instruct-mix")
    message = List({"role": STRING, "content": List(PART)})
    rows = []
    for split, count in (("train", 8), ("test", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image, kind="JPEG")
            question, answer = scene.ask(kind_of(i))
            asked = [
                {"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": question}]}
            ]
            replied = [{"role": "assistant", "content": [{"type": "text", "text": sentence(answer)}]}]
            records.append({"images": [cell], "prompt": asked, "completion": replied})
            rows.append(row(question, sentence(answer), [image], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {"images": List(IMAGE), "prompt": message, "completion": message},
        )
    return "", rows


@blind("in part")
def rlaif_v_trl(folder: Path, rng: random.Random) -> Made:
    """A preference pair as TRL reads it; the chosen reply is the gold answer.

    Source: https://huggingface.co/datasets/trl-lib/rlaif-v (named in TRL's documentation; columns from knowledge).
    """
    write_card(folder, {"default": data_files("train", "test")}, "rlaif-v")
    message = List({"role": STRING, "content": List(PART)})
    rows = []
    for split, count in (("train", 7), ("test", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image, kind="JPEG")
            question, answer = scene.ask(kind_of(i))
            asked = [
                {"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": question}]}
            ]
            replies = [
                [{"role": "assistant", "content": [{"type": "text", "text": text}]}]
                for text in (sentence(answer), "It is hard to say, perhaps nothing.")
            ]
            records.append({"images": [cell], "prompt": asked, "chosen": replies[0], "rejected": replies[1]})
            rows.append(row(question, sentence(answer), [image], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {"images": List(IMAGE), "prompt": message, "chosen": message, "rejected": message},
        )
    return "", rows


@blind("in part")
def rlhf_v_hf(folder: Path, rng: random.Random) -> Made:
    """Question and both replies are JSON in one column of text.

    Source: https://huggingface.co/datasets/openbmb/RLHF-V-Dataset, script/convert_parquet_to_tsv_demo.py of
    RLHF-V/RLHF-V.
    """
    rows, records = [], []
    for i in range(10):
        scene = Scene(rng)
        cell, image = image_cell(scene.image, kind="JPEG")
        question, answer = scene.ask(kind_of(i))
        text = json.dumps(
            {"question": question, "chosen": sentence(answer), "rejected": "The picture shows a street with cars."}
        )
        records.append(
            {
                "ds_name": "RLHF-V",
                "image": cell,
                "text": text,
                "origin_dataset": "LLaVA-Instruct-150K",
                "origin_split": '{"model": "Muffin", "type": "question_answering"}',
                "idx": i,
                "image_path": f"rlhfv/{i}.jpg",
            }
        )
        rows.append(row(question, sentence(answer), [image]))
    text = ("ds_name", "text", "origin_dataset", "origin_split", "image_path")
    write_parquet(
        folder / "RLHF-V-Dataset.parquet", records, {"image": IMAGE, "idx": INT64, **dict.fromkeys(text, STRING)}
    )
    return "", rows


@blind("in part")
def m3it_jsonl(folder: Path, rng: random.Random) -> Made:
    """An instruction for the task, the question in `inputs`, pictures as a list of base64.

    Source: https://huggingface.co/datasets/MMInstruction/M3IT (fields of its card; as JSON lines).
    """
    rows = []
    for split, count in (("train", 7), ("val", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            text, data = base64_of(scene, "JPEG")
            question, answer = scene.ask(kind_of(i))
            records.append(
                {
                    "instruction": "Look at the image and answer the question that follows in a few words.",
                    "inputs": question,
                    "image_base64_str": [text],
                    "outputs": answer,
                    "meta_data": {"source": "synthetic", "index": i},
                }
            )
            rows.append(row(question, answer, [digest(data)], split=split))
        write_jsonl(folder / "data" / "vqa" / "vqa-v2" / f"{split}.jsonl", records)
    return "", rows
