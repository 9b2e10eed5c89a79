"""Data sets of turns between a person and a model, as LLaVA writes them."""

import random
from pathlib import Path

from datasets import List
from layouts.package import (
    IMAGE,
    STRING,
    Made,
    conversation,
    image_cell,
    layout,
    letter,
    row,
    save_image,
    write_card,
    write_json,
    write_jsonl,
    write_parquet,
)
from layouts.scenes import Scene


@layout("heldout")
def llava_instruct_150k(folder: Path, rng: random.Random) -> Made:
    """An image has several turns.

    The image tag stands before or after the first question. The image is a bare file name in a folder that the
    file does not name.
    Source: https://huggingface.co/datasets/liuhaotian/LLaVA-Instruct-150K (llava_instruct_150k.json) with COCO
    train2017 beside it
    """
    entries, rows = [], []
    for i in range(8):
        scene = Scene(rng)
        image_id = f"{rng.randrange(100, 580000):012d}"
        image = save_image(scene.image, folder / "train2017" / f"{image_id}.jpg")
        turns = []
        count = rng.choice([1, 2, 3])
        for j, kind in enumerate(rng.sample(["count", "colour", "word"], count)):
            question, answer = scene.ask(kind)
            full = f"The picture shows it: {answer}."
            turns += [(f"<image>\n{question}" if i % 2 else f"{question}\n<image>") if j == 0 else question, full]
            rows.append(row(question, full, [image]))
        entries.append({"id": image_id, "image": f"{image_id}.jpg", "conversations": conversation(*turns)})
    write_json(folder / "llava_instruct_150k.json", entries)
    return "", rows


@layout("heldout")
def the_cauldron_ai2d(folder: Path, rng: random.Random) -> Made:
    """Each row has a list of images and a list of turns, and each turn is a question.

    The choices and an instruction stand in the text of the user, `Answer: B` in the reply.
    Source: https://huggingface.co/datasets/HuggingFaceM4/the_cauldron (ai2d)
    """
    records, rows = [], []
    for _ in range(6):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        turns = []
        count = rng.choice([1, 2, 3])
        for kind in rng.sample(["count", "colour", "word"], count):
            question, choices, right = scene.ask_closed(4, kind)
            asked = (
                f"Question: {question}\nChoices:\n"
                + "\n".join(f"{letter(index)}. {choice}" for index, choice in enumerate(choices))
                + "\nAnswer with the letter."
            )
            turns.append({"user": asked, "assistant": f"Answer: {letter(right)}", "source": "AI2D"})
            rows.append(row(asked, f"Answer: {letter(right)}", [image], accept=[letter(right), choices[right]]))
        records.append({"images": [cell], "texts": turns})
    write_parquet(
        folder / "ai2d/train-00000-of-00001-2ce340398c113b79.parquet",
        records,
        {"images": List(IMAGE), "texts": List({"user": STRING, "assistant": STRING, "source": STRING})},
    )
    write_card(folder, {"ai2d": {"train": "ai2d/train-*"}}, "the_cauldron")
    return "ai2d", rows


@layout("heldout")
def llava_v1_5_mix665k(folder: Path, rng: random.Random) -> Made:
    """Images lie in six folders.

    An instruction stands in the first turn only. Two conversations have no image and are to be left out.
    Source: https://huggingface.co/datasets/liuhaotian/LLaVA-Instruct-150K (llava_v1_5_mix665k.json) and LLaVA
    README, folder playground/data
    """
    entries, rows = [], []
    suffix = "\nAnswer the question using a single word or phrase."
    for i, pattern in enumerate(
        [
            "coco/train2017/{n:012d}.jpg",
            "gqa/images/{n}.jpg",
            "ocr_vqa/images/{n:010d}.jpg",
            "textvqa/train_images/{n:016x}.jpg",
            "vg/VG_100K_2/{n}.jpg",
            "vg/VG_100K/{n}.jpg",
            "coco/train2017/{n:012d}.jpg",
        ]
    ):
        scene = Scene(rng)
        number = rng.randrange(1000, 500000)
        path = pattern.format(n=number)
        image = save_image(scene.image, folder / path)
        turns = []
        for j, kind in enumerate(("count", "colour", "word")[: 1 + i % 3]):
            question, answer = scene.ask(kind)
            turns += [("<image>\n" if j == 0 else "") + question + (suffix if j == 0 else ""), answer]
            rows.append(row(question + (suffix if j == 0 else ""), answer, [image]))
        entries.append({"id": path.split("/")[-1][:-4], "image": path, "conversations": conversation(*turns)})
    for i in range(2):
        entries.insert(
            3 * i,
            {"id": f"wgByO4Y_{i}", "model": "", "conversations": conversation("How can I cook rice?", "Boil it.")},
        )
    write_json(folder / "llava_v1_5_mix665k.json", entries)
    return "", rows


@layout("dev")
def llava_cot_100k(folder: Path, rng: random.Random) -> Made:
    """A reply has four parts in tags.

    The gold answer stands in the conclusion; the rest is a rationale. The question has no image tag. Written from
    memory: the names of the image folders.
    Source: https://huggingface.co/datasets/Xkev/LLaVA-CoT-100k (train.jsonl, image.zip.part-* put together and
    unzipped)
    """
    entries, rows = [], []
    for i, pattern in enumerate(
        [
            "chartqa/train/png/{n}.png",
            "CLEVR_v1.0/images/train/CLEVR_train_{n:06d}.png",
            "coco/train2017/{n:012d}.jpg",
            "docvqa/train/documents/{n}_1.png",
            "ai2d/abc_images/{n}.png",
            "sqa/train/{n}/image.png",
            "geoqa+/images/{n}.png",
            "pisc/image/{n:05d}.jpg",
        ]
    ):
        scene = Scene(rng)
        number = rng.randrange(1000, 99999)
        path = pattern.format(n=number)
        image = save_image(scene.image, folder / path)
        turns = []
        turn_count = 2 if i % 4 == 3 else 1
        for kind in ("word", "count")[:turn_count]:
            question, choices, right = scene.ask_closed(4, kind)
            asked = (
                question
                if i % 2
                else question
                + "\nA. "
                + choices[0]
                + "\nB. "
                + choices[1]
                + "\nC. "
                + choices[2]
                + "\nD. "
                + choices[3]
            )
            gold = choices[right] if i % 2 else letter(right)
            reply = (
                "<SUMMARY> I will look at the picture and answer. </SUMMARY>\n\n"
                f"<CAPTION> A picture with {scene.colour} shapes. </CAPTION>\n\n"
                f"<REASONING> There are {scene.count} {scene.shape}s and the word is {scene.word}. </REASONING>\n\n"
                f"<CONCLUSION> {gold} </CONCLUSION>"
            )
            turns += [asked, reply]
            rows.append(row(asked, gold, [image], accept=[gold, choices[right]]))
        entries.append({"id": path, "image": path, "conversations": conversation(*turns)})
    write_jsonl(folder / "train.jsonl", entries)
    return "", rows


@layout("heldout")
def llava_onevision_data(folder: Path, rng: random.Random) -> Made:
    """The folder name has brackets and a comma.

    A Parquet file has conversations of several turns.
    Source: https://huggingface.co/datasets/lmms-lab/LLaVA-OneVision-Data (config chartqa(cauldron,llava_format))
    """
    config = "chartqa(cauldron,llava_format)"
    records, rows = [], []
    for i in range(7):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        turns = []
        count = 1 + i % 2
        for j, kind in enumerate(("count", "colour")[:count]):
            question, answer = scene.ask(kind)
            asked = question + "\nAnswer the question with a single word."
            turns += [("<image>\n" if j == 0 else "") + asked, answer]
            rows.append(row(asked, answer, [image]))
        records.append(
            {"id": f"{config}_{i}", "image": cell, "conversations": conversation(*turns), "data_source": config}
        )
    write_parquet(
        folder / config / "train-00000-of-00002.parquet",
        records,
        {
            "id": STRING,
            "image": IMAGE,
            "conversations": List({"from": STRING, "value": STRING}),
            "data_source": STRING,
        },
    )
    write_card(folder, {config: {"train": f"{config}/train-*"}}, "LLaVA-OneVision-Data")
    return config, rows


@layout("heldout")
def llava_interleave_m4(folder: Path, rng: random.Random) -> Made:
    """The column `image` is a list of paths.

    Several image tags stand inside of the text. Written from memory: the names of the image folders.
    Source: https://huggingface.co/datasets/lmms-lab/M4-Instruct-Data (m4_instruct_annotations.json)
    """
    entries, rows = [], []
    for i in range(7):
        scenes = [Scene(rng) for _ in range(2 + i % 2)]
        paths = [f"spot-the-diff/{i}_{j}.png" for j in range(len(scenes))]
        images = [save_image(scene.image, folder / path) for scene, path in zip(scenes, paths, strict=False)]
        question = "Which word is printed in the last of these images?"
        txt = (
            ("Here are the pictures: " + " ".join("<image>" for _ in scenes) + " " + question)
            if i % 2
            else "<image>\n" * len(scenes) + question
        )
        entries.append(
            {
                "sample_id": f"std_{i}",
                "conversations": conversation(txt, scenes[-1].word),
                "image": paths,
                "choice_list": None,
                "metadata": {
                    "dataset": "spot-the-diff",
                    "split": "train",
                    "num_sample": 1,
                    "task_instruction": "",
                    "question_type": "open-ended",
                },
            }
        )
        rows.append(row(("Here are the pictures: " if i % 2 else "") + question, scenes[-1].word, images))
    write_json(folder / "m4_instruct_annotations.json", entries)
    return "", rows


@layout("dev")
def sharegpt4v_cap100k(folder: Path, rng: random.Random) -> Made:
    """The questions ask for a description, and the answers are long captions.

    Source: https://huggingface.co/datasets/Lin-Chen/ShareGPT4V (sharegpt4v_instruct_gpt4-vision_cap100k.json),
    its list of image folders
    """
    entries, rows = [], []
    for i, pattern in enumerate(
        [
            "coco/train2017/{n:012d}.jpg",
            "sam/images/sa_{n}.jpg",
            "wikiart/images/{n}.jpg",
            "web-celebrity/images/{n}.jpg",
        ]
        * 2
    ):
        scene = Scene(rng)
        path = pattern.format(n=rng.randrange(1000, 99999))
        image = save_image(scene.image, folder / path)
        question = rng.choice(
            [
                "What do you see happening in this image?",
                "Can you describe the main features of this image for me?",
                "What are the key elements in this picture?",
            ]
        )
        answer = (
            f"In the image there are {scene.count} {scene.colour} {scene.shape}s in a row. "
            f"Below them the word '{scene.word}' is printed."
        )
        entries.append(
            {
                "id": path.split("/")[-1][:-4],
                "image": path,
                "conversations": conversation(f"<image>\n{question}" if i % 2 else f"{question}\n<image>", answer),
            }
        )
        rows.append(row(question, answer, [image]))
    write_json(folder / "sharegpt4v_instruct_gpt4-vision_cap100k.json", entries)
    return "", rows
