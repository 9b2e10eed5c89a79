"""Files in the forms of chats that tools for fine-tuning read."""

import base64
import random
from pathlib import Path
from typing import Final

from datasets import List
from layouts.package import (
    IMAGE,
    STRING,
    Made,
    conversation,
    image_cell,
    row,
    save_image,
    write_json,
    write_jsonl,
    write_parquet,
)
from layouts.scenes import digest, encoded

from .drawing import Picture, draw, held_out

SYSTEM: Final = "You are a careful assistant. Answer with one word."


def asked(shown: Picture, number: int, what: str) -> tuple[str, str]:
    """A question about a picture of something, and its answer."""
    return [
        (f"How many {shown.shape}s are on the {what}?", shown.count),
        (f"What colour are the {shown.shape}s on the {what}?", shown.colour),
        (f"Which code is written on the {what}?", shown.code),
    ][number % 3]


@held_out()
def sharegpt_own(folder: Path, rng: random.Random) -> Made:
    """ShareGPT with a system turn and tags of images; some rows have two images, in the order of the tags."""
    rows, records = [], []
    for i in range(10):
        shown = draw(rng)
        names = [f"images/box_{i:03}_a.jpg"]
        images = [save_image(shown.image, folder / names[0])]
        question, answer = asked(shown, i, "box")
        text = f"<image>\n{question}"
        if i % 4 == 1:
            second = draw(rng)
            names.append(f"images/box_{i:03}_b.jpg")
            images.append(save_image(second.image, folder / names[1]))
            question, answer = "Which code is written on the second box?", second.code
            text = f"<image><image>{question}"
        turns = [{"from": "system", "value": SYSTEM}, *conversation(text, answer)]
        records.append({"conversations": turns, "images": names})
        rows.append(row(question, answer, images))
    write_json(folder / "train_sharegpt.json", records, indent=2)
    return "", rows


@held_out()
def openai_data_uris(folder: Path, rng: random.Random) -> Made:
    """The form of OpenAI's fine-tuning: parts of text and image, the image as a data URI, text first in some."""
    rows, records = [], []
    for i in range(9):
        shown = draw(rng)
        kind = "JPEG" if i % 2 else "PNG"
        data = encoded(shown.image, kind)
        question, answer = asked(shown, i, "invoice")
        url = f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode()}"
        parts = [
            {"type": "text", "text": question},
            {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        ]
        if i % 3 == 0:
            parts.reverse()
        records.append(
            {
                "messages": [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": parts},
                    {"role": "assistant", "content": answer},
                ]
            }
        )
        rows.append(row(question, answer, [digest(data)]))
    write_jsonl(folder / "finetune_train.jsonl", records)
    return "", rows


@held_out()
def llava_three_turns(folder: Path, rng: random.Random) -> Made:
    """LLaVA with three questions an image, each of which stands by itself; only the first has the tag."""
    rows, records = [], []
    for i in range(4):
        shown = draw(rng)
        name = f"shelf/{rng.randrange(10**9):012}.jpg"
        image = save_image(shown.image, folder / "images" / name)
        pairs = [asked(shown, i + j, "shelf") for j in range(3)]
        turns = [text for pair in pairs for text in pair]
        turns[0] = f"{turns[0]}\n<image>" if i % 2 else f"<image>\n{turns[0]}"
        records.append({"id": Path(name).stem, "image": name, "conversations": conversation(*turns)})
        rows += [row(question, answer, [image]) for question, answer in pairs]
    write_json(folder / "shelf_instruct.json", records)
    return "", rows


@held_out()
def trl_lists_of_messages(folder: Path, rng: random.Random) -> Made:
    """TRL: prompt and completion are lists of messages, the images are a list beside them, two in some rows."""
    rows, records = [], []
    for i in range(9):
        shown = draw(rng)
        cell, image = image_cell(shown.image, f"{i}.png")
        cells, images = [cell], [image]
        question, answer = asked(shown, i, "poster")
        if i % 4 == 3:
            second = draw(rng)
            cell, image = image_cell(second.image, f"{i}_second.png")
            cells.append(cell)
            images.append(image)
            question, answer = "Which code is written on the second poster?", second.code
        records.append(
            {
                "images": cells,
                "prompt": [{"role": "user", "content": question}],
                "completion": [{"role": "assistant", "content": answer}],
            }
        )
        rows.append(row(question, answer, images))
    message = List({"role": STRING, "content": STRING})
    write_parquet(
        folder / "data" / "train-00000-of-00001.parquet",
        records,
        {"images": List(IMAGE), "prompt": message, "completion": message},
    )
    return "", rows


@held_out()
def swift_query_response(folder: Path, rng: random.Random) -> Made:
    """The older form of ms-swift: query, response and a list of images, with an empty history."""
    rows, records = [], []
    for i in range(10):
        shown = draw(rng)
        name = f"img/ticket_{i}.png"
        image = save_image(shown.image, folder / name)
        question, answer = asked(shown, i, "ticket")
        records.append(
            {"system": SYSTEM, "query": f"<image>{question}", "response": answer, "history": [], "images": [name]}
        )
        rows.append(row(question, answer, [image]))
    write_jsonl(folder / "tickets.jsonl", records)
    return "", rows


@held_out()
def llama_factory_own_names(folder: Path, rng: random.Random) -> Made:
    """LLaMA-Factory: `dataset_info.json` says which keys of the file are turns and images."""
    rows, records = [], []
    for i in range(10):
        shown = draw(rng)
        name = f"door_pics/d{i:02}.jpg"
        image = save_image(shown.image, folder / "data" / name)
        question, answer = asked(shown, i, "door")
        records.append(
            {
                "dialog": [
                    {"role": "user", "content": f"<image>{question}"},
                    {"role": "assistant", "content": answer},
                ],
                "pics": [name],
            }
        )
        rows.append(row(question, answer, [image]))
    write_json(folder / "data" / "doors.json", records, indent=2)
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    columns = {"messages": "dialog", "images": "pics"}
    info = {"doors": {"file_name": "doors.json", "formatting": "sharegpt", "columns": columns, "tags": tags}}
    write_json(folder / "data" / "dataset_info.json", info, indent=2)
    return "", rows


@held_out()
def qwen_vl_img_tags(folder: Path, rng: random.Random) -> Made:
    """The first Qwen-VL: the path stands between tags in the text, behind the number of the picture."""
    rows, records = [], []
    for i in range(9):
        shown = draw(rng)
        name = f"assets/menu_{i + 1}.jpg"
        images = [save_image(shown.image, folder / name)]
        question, answer = asked(shown, i, "menu")
        text = f"Picture 1: <img>{name}</img>\n{question}"
        if i % 4 == 2:
            second = draw(rng)
            name = f"assets/menu_{i + 1}_back.jpg"
            images.append(save_image(second.image, folder / name))
            question, answer = "What colour are the shapes in the second picture?", second.colour
            text = f"{text.splitlines()[0]}\nPicture 2: <img>{name}</img>\n{question}"
        records.append(
            {
                "id": f"identity_{i}",
                "conversations": [{"from": "user", "value": text}, {"from": "assistant", "value": answer}],
            }
        )
        rows.append(row(question, answer, images))
    write_json(folder / "menus.json", records, indent=1)
    return "", rows


@held_out()
def internvl_meta(folder: Path, rng: random.Random) -> Made:
    """InternVL: a meta file names the folder of the images and the lines with the turns."""
    rows, records = [], []
    for i in range(10):
        shown = draw(rng)
        name = f"cam{1 + i % 2}/{i:05}.jpg"
        image = save_image(shown.image, folder / "yard_images" / name)
        question, answer = asked(shown, i, "truck")
        records.append(
            {
                "id": i,
                "image": name,
                "width": shown.image.width,
                "height": shown.image.height,
                "conversations": conversation(f"<image>\n{question}", answer),
            }
        )
        rows.append(row(question, answer, [image]))
    write_jsonl(folder / "annotations" / "yard_train.jsonl", records)
    entry = {"root": "yard_images/", "annotation": "annotations/yard_train.jsonl", "data_augment": False}
    write_json(folder / "meta.json", {"yard": {**entry, "repeat_time": 1, "length": len(records)}}, indent=2)
    return "", rows


@held_out()
def axolotl_parts(folder: Path, rng: random.Random) -> Made:
    """Axolotl: all contents are lists of parts, an image has a `path`; the settings lie beside."""
    rows, records = [], []
    for i in range(9):
        shown = draw(rng)
        name = f"images/crate_{i}.png"
        image = save_image(shown.image, folder / name)
        question, answer = asked(shown, i, "crate")
        records.append(
            {
                "messages": [
                    {"role": "system", "content": [{"type": "text", "text": SYSTEM}]},
                    {
                        "role": "user",
                        "content": [{"type": "image", "path": name}, {"type": "text", "text": question}],
                    },
                    {"role": "assistant", "content": [{"type": "text", "text": answer}]},
                ]
            }
        )
        rows.append(row(question, answer, [image]))
    write_jsonl(folder / "crates.jsonl", records)
    (folder / "config.yml").write_text(
        "base_model: HuggingFaceTB/SmolVLM-500M-Instruct\nprocessor_type: AutoProcessor\n"
        "chat_template: tokenizer_default\n"
        "datasets:\n  - path: crates.jsonl\n    type: chat_template\n    field_messages: messages\n"
        "skip_prepare_dataset: true\nremove_unused_columns: false\nsequence_len: 2048\n",
        encoding="utf-8",
    )
    return "", rows


@held_out()
def unsloth_messages(folder: Path, rng: random.Random) -> Made:
    """Unsloth: text first, then an image whose key `image` is a path; one JSON list."""
    rows, records = [], []
    for i in range(9):
        shown = draw(rng)
        name = f"scans/card{i:02}.png"
        image = save_image(shown.image, folder / name)
        question, answer = asked(shown, i, "card")
        records.append(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": question}, {"type": "image", "image": name}],
                    },
                    {"role": "assistant", "content": [{"type": "text", "text": answer}]},
                ]
            }
        )
        rows.append(row(question, answer, [image]))
    write_json(folder / "converted_dataset.json", records)
    return "", rows
