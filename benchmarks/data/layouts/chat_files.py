"""Files of turns, as trainers and services read them."""

import base64
import random
from pathlib import Path

from layouts.package import Made, Record, layout, row, save_image, write_json, write_jsonl
from layouts.scenes import Scene, digest, encoded


@layout("heldout")
def llamafactory_messages(folder: Path, rng: random.Random) -> Made:
    """Turns have a role and a content.

    The images are a list of paths relative to the file. A description of the data set lies beside it. One row has
    two images.
    Source: https://github.com/hiyouga/LLaMA-Factory/blob/main/data/mllm_demo.json
    """
    entries, rows = [], []
    for i in range(7):
        scene = Scene(rng)
        path = f"mllm_demo_data/{i}.jpg"
        images = [save_image(scene.image, folder / path)]
        paths = [path]
        messages = []
        count = 1 + i % 3
        if i == 4:
            second = Scene(rng)
            paths.append("mllm_demo_data/4b.jpg")
            images.append(save_image(second.image, folder / paths[1]))
            question = "Which word is printed in the second image?"
            messages = [
                {"content": f"<image><image>{question}", "role": "user"},
                {"content": second.word, "role": "assistant"},
            ]
            rows.append(row(question, second.word, images))
        else:
            for j, kind in enumerate(("count", "colour", "word")[:count]):
                question, answer = scene.ask(kind)
                messages += [
                    {"content": ("<image>" if j == 0 else "") + question, "role": "user"},
                    {"content": answer, "role": "assistant"},
                ]
                rows.append(row(question, answer, images))
        entries.append({"messages": messages, "images": paths})
    write_json(folder / "mllm_demo.json", entries, 2)
    write_json(
        folder / "dataset_info.json",
        {
            "mllm_demo": {
                "file_name": "mllm_demo.json",
                "formatting": "sharegpt",
                "columns": {"messages": "messages", "images": "images"},
                "tags": {
                    "role_tag": "role",
                    "content_tag": "content",
                    "user_tag": "user",
                    "assistant_tag": "assistant",
                },
            }
        },
        2,
    )
    return "mllm_demo.json", rows


@layout("heldout")
def openai_chat_datauri(folder: Path, rng: random.Random) -> Made:
    """Images are data URIs in parts of a turn, before or after the text.

    A system turn comes first.
    Source: https://platform.openai.com/docs/guides/vision-fine-tuning
    """
    entries, rows = [], []
    for i in range(8):
        scene = Scene(rng)
        data = encoded(scene.image, "JPEG")
        question, answer = scene.ask()
        parts = [
            {"type": "text", "text": question},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + base64.b64encode(data).decode()}},
        ]
        if i % 2:
            parts.reverse()
        entries.append(
            {
                "messages": [
                    {"role": "system", "content": "You are an assistant that looks at pictures."},
                    {"role": "user", "content": parts},
                    {"role": "assistant", "content": answer},
                ]
            }
        )
        rows.append(row(question, answer, [digest(data)]))
    write_jsonl(folder / "train.jsonl", entries)
    return "train.jsonl", rows


@layout("heldout")
def msswift_query_response(folder: Path, rng: random.Random) -> Made:
    """Earlier turns stand in a list of pairs, so a row has several questions.

    A system text lies beside them.
    Source: https://swift.readthedocs.io/en/latest/Customization/Custom-dataset.html (query / response / history /
    images)
    """
    entries, rows = [], []
    for i in range(7):
        scene = Scene(rng)
        path = f"images/{i}.jpg"
        image = save_image(scene.image, folder / path)
        turns = 1 + i % 3
        pairs = [scene.ask(kind) for kind in ("count", "colour", "word")[:turns]]
        users = [("<image>" if j == 0 else "") + question for j, (question, _) in enumerate(pairs)]
        entry: Record = {
            "system": "You are a helpful assistant.",
            "query": users[-1],
            "response": pairs[-1][1],
            "images": [path],
        }
        if turns > 1:
            entry["history"] = [[users[j], pairs[j][1]] for j in range(turns - 1)]
        entries.append(entry)
        rows += [row(question, answer, [image]) for question, answer in pairs]
    write_jsonl(folder / "train.jsonl", entries)
    return "train.jsonl", rows
