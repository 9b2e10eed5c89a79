"""Tests of models with yes or no, with a few choices, and with free answers."""

import random
from pathlib import Path

from datasets import List
from layouts.package import (
    IMAGE,
    STRING,
    Made,
    Record,
    data_files,
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
def mme_original(folder: Path, rng: random.Random) -> Made:
    """No file is a table.

    Beside each image lies a text file of the same name with two questions and their answers. In some folders
    images and texts lie in two folders.
    Source: https://github.com/BradyFu/Awesome-Multimodal-Large-Language-Models/tree/Evaluation
    (MME_Benchmark_release_version)
    """
    rows, top = [], folder / "MME_Benchmark_release_version"
    for category, sub in (("existence", False), ("color", False), ("artwork", True)):
        for _ in range(2):
            scene = Scene(rng)
            file_name = f"{rng.randrange(10**5):012d}"
            image = save_image(scene.image, top / category / ("images" if sub else "") / f"{file_name}.jpg")
            lines = []
            for holds in (True, False):
                phrase, _ = scene.claim(holds)
                question = f"Is there a {phrase} in this image? Please answer yes or no."
                answer = "Yes" if holds else "No"
                lines.append(f"{question}\t{answer}")
                rows.append(row(question, answer, [image]))
            file = top / category / ("questions_answers_YN" if sub else "") / f"{file_name}.txt"
            file.parent.mkdir(exist_ok=True, parents=True)
            file.write_text("\n".join(lines) + "\n")
    return "MME_Benchmark_release_version", rows


@layout("dev")
def mme_lmms(folder: Path, rng: random.Random) -> Made:
    """A question ends with `Please answer yes or no.` Two rows share an id, which is a file name.

    Source: https://huggingface.co/datasets/lmms-lab/MME
    """
    write_card(folder, {"default": {"test": "data/test-*"}}, "MME")
    records, rows = [], []
    for i in range(6):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        for holds in (True, False):
            phrase, _ = scene.claim(holds)
            question = f"Is there a {phrase} in this image? Please answer yes or no."
            question_id = f"existence/{i:04d}.png"
            records.append(
                {
                    "question_id": question_id,
                    "image": cell,
                    "question": question,
                    "answer": "Yes" if holds else "No",
                    "category": "existence",
                }
            )
            rows.append(row(question, "Yes" if holds else "No", [image]))
    write_parquet(
        folder / "data/test-00000-of-00004-a25dbe3b44c4fda6.parquet",
        records,
        {"question_id": STRING, "image": IMAGE, "question": STRING, "answer": STRING, "category": STRING},
    )
    return "", rows


@layout("dev")
def pope_original(folder: Path, rng: random.Random) -> Made:
    """A file with the suffix .json has JSON lines.

    The question is called `text` and the answer `label`. Three files have the same question ids.
    Source: https://github.com/AoiDragon/POPE (output/coco/coco_pope_random.json)
    """
    rows = []
    images = []
    for _ in range(4):
        scene = Scene(rng)
        file_name = f"COCO_val2014_{rng.randrange(100, 580000):012d}.jpg"
        images.append((file_name, scene, save_image(scene.image, folder / "val2014" / file_name)))
    for kind in ("random", "popular", "adversarial"):
        entries = []
        for i in range(4):
            file_name, scene, image = images[i]
            phrase, holds = scene.claim(i % 2 == 0)
            question = f"Is there a {phrase} in the image?"
            entries.append(
                {"question_id": i + 1, "image": file_name, "text": question, "label": "yes" if holds else "no"}
            )
            rows.append(row(question, "yes" if holds else "no", [image]))
        write_jsonl(folder / f"coco/coco_pope_{kind}.json", entries)
    return "", rows


@layout("dev")
def pope_lmms(folder: Path, rng: random.Random) -> Made:
    """Ids of questions repeat in each category.

    Several rows have the same image.
    Source: https://huggingface.co/datasets/lmms-lab/POPE
    """
    write_card(folder, {"default": {"test": "data/test-*"}}, "POPE")
    records: list[Record] = []
    rows = []
    for i in range(4):
        scene = Scene(rng)
        cell, image = image_cell(scene.image, kind="JPEG")
        for category in ("adversarial", "popular", "random"):
            phrase, holds = scene.claim()
            question = f"Is there a {phrase} in the image?"
            answer = "yes" if holds else "no"
            records.append(
                {
                    "id": str(len(records)),
                    "question_id": str(i + 1),
                    "question": question,
                    "answer": answer,
                    "image_source": f"COCO_val2014_{i:012d}",
                    "image": cell,
                    "category": category,
                }
            )
            rows.append(row(question, answer, [image]))
    write_parquet(
        folder / "data/test-00000-of-00003.parquet",
        records,
        {
            "id": STRING,
            "question_id": STRING,
            "question": STRING,
            "answer": STRING,
            "image_source": STRING,
            "image": IMAGE,
            "category": STRING,
        },
    )
    return "", rows


@layout("dev")
def hallusionbench_original(folder: Path, rng: random.Random) -> Made:
    """The answers 1 and 0 mean yes and no.

    Some rows have no image.
    Source: https://github.com/tianyi-lab/HallusionBench (HallusionBench.json, hallusion_bench.zip)
    """
    entries, rows = [], []
    for i in range(10):
        scene = Scene(rng)
        sub = ["illusion", "chart"][i % 2]
        category = ["VD", "VS"][i % 2]
        text_only = category == "VS" and i % 4 == 3
        path = f"{category}/{sub}/{i}_1.png"
        images = [] if text_only else [save_image(scene.image, folder / "hallusion_bench" / path)]
        phrase, holds = scene.claim()
        question = "Is Paris the capital of France?" if text_only else f"Is there a {phrase} in this image?"
        holds = True if text_only else holds
        entries.append(
            {
                "category": category,
                "subcategory": sub,
                "visual_input": "0" if text_only else "1",
                "set_id": str(i),
                "figure_id": "1",
                "sample_note": "shapes",
                "question_id": "0",
                "question": question,
                "gt_answer_details": f"{'Yes' if holds else 'No'}, look at the shapes.",
                "gt_answer": "1" if holds else "0",
                "filename": None if text_only else f"./{path}",
            }
        )
        rows.append(row(question, "yes" if holds else "no", images, accept=["yes", "1"] if holds else ["no", "0"]))
    write_json(folder / "HallusionBench.json", entries)
    return "", rows


@layout("dev")
def realworldqa_original(folder: Path, rng: random.Random) -> Made:
    """WebP images lie beside the table.

    Choices and an instruction stand in the text of the question.
    Source: https://huggingface.co/datasets/xai-org/RealworldQA (realworldqa.zip: annotations.jsonl + webp)
    """
    entries, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        image = save_image(scene.image, folder / f"{i}.webp")
        if i % 3:
            question, choices, right = scene.ask_closed(3)
            text = (
                question
                + "\n\n"
                + "\n".join(f"{letter(j)}. {choice}" for j, choice in enumerate(choices))
                + "\nPlease answer directly with only the letter of the correct option and nothing else."
            )
            answer = letter(right)
            accepted = [answer, choices[right]]
        else:
            question, answer = scene.ask("count")
            text = question + "\nPlease answer directly with a single word or number."
            accepted, choices = [answer], None
        entries.append({"image": f"{i}.webp", "question": text, "answer": answer})
        rows.append(row(text, answer, [image], accept=accepted))
    write_jsonl(folder / "annotations.jsonl", entries)
    return "", rows


@layout("dev")
def blink_hf(folder: Path, rng: random.Random) -> Made:
    """Each task is a config.

    The answer is a letter in brackets, in the test split `hidden`. Some of four image columns are null. The
    column `prompt` repeats the question with its choices.
    Source: https://huggingface.co/datasets/BLINK-Benchmark/BLINK
    """
    tasks = ["Counting", "Visual_Similarity"]
    write_card(folder, {each: data_files("val", "test", folder=each) for each in tasks}, "BLINK")
    rows = []
    features = {
        "idx": STRING,
        "question": STRING,
        "sub_task": STRING,
        **{f"image_{i}": IMAGE for i in range(1, 5)},
        "choices": List(STRING),
        "answer": STRING,
        "prompt": STRING,
    }
    for task in tasks:
        for split, count in (("val", 4), ("test", 2)):
            records = []
            for i in range(count):
                scene = Scene(rng)
                cell, image = image_cell(scene.image, kind="JPEG")
                images = [image]
                entry = {"idx": f"{split}_{task}_{i + 1}", "sub_task": task, "image_1": cell}
                if task == "Counting":
                    question, choices, right = scene.ask_closed(4, "count")
                else:
                    second = Scene(rng)
                    third = Scene(rng)
                    second_cell, second_image = image_cell(second.image, kind="JPEG")
                    third_cell, third_image = image_cell(third.image, kind="JPEG")
                    entry |= {"image_2": second_cell, "image_3": third_cell}
                    images += [second_image, third_image]
                    right = i % 2
                    question = f"Which of the last two images has the word {[second, third][right].word}?"
                    choices = ["the second image", "the third image"]
                gold = f"({letter(right)})"
                entry |= {
                    "question": question,
                    "choices": choices,
                    "answer": gold if split == "val" else "hidden",
                    "prompt": question
                    + "\nSelect from the following choices.\n"
                    + "\n".join(f"({letter(j)}) {choice}" for j, choice in enumerate(choices)),
                }
                records.append(entry)
                rows.append(
                    row(
                        question,
                        None,
                        images,
                        choices=choices,
                        idx=right if split == "val" else None,
                        split=split,
                        accept=[gold] if split == "val" else None,
                    )
                )
            write_parquet(folder / f"{task}/{split}-00000-of-00001.parquet", records, features)
    return "", rows


@layout("dev")
def mmvet_original(folder: Path, rng: random.Random) -> Made:
    """One object has all questions, keyed by their ids.

    Several accepted answers are one text, separated by `<OR>`.
    Source: https://github.com/yuweihao/MM-Vet (mm-vet.zip)
    """
    entries, rows, top = {}, [], folder / "mm-vet"
    for i in range(9):
        scene = Scene(rng)
        file_name = f"v1_{i}.png" if i % 2 else f"v1_{i}.jpg"
        image = save_image(scene.image, top / "images" / file_name)
        question, answer = scene.ask("word")
        gold = f"{answer}<OR>the {answer}" if i % 3 == 0 else answer
        entries[f"v1_{i}"] = {
            "imagename": file_name,
            "question": question,
            "answer": gold,
            "imagesource": "http://x",
            "capability": ["ocr"],
        }
        rows.append(row(question, gold, [image], accept=[gold, answer]))
    write_json(top / "mm-vet.json", entries, 2)
    return "mm-vet", rows


@layout("heldout", refusable=True)
def llava_bench_in_the_wild(folder: Path, rng: random.Random) -> Made:
    """There is no gold answer.

    Replies of a model are a second file, with a column of the same name as the question. To refuse it, or to ask
    without gold, is right.
    Source: https://huggingface.co/datasets/liuhaotian/llava-bench-in-the-wild
    """
    questions, context, annotations, rows = [], [], [], []
    for i in range(8):
        if i % 2 == 0:
            scene = Scene(rng)
            file_name = f"{i // 2 + 1:03d}.jpg"
            image = save_image(scene.image, folder / "images" / file_name)
            context.append(
                {"id": file_name[:-4], "image": file_name, "caption": f"{scene.count} {scene.colour} {scene.shape}s"}
            )
        question, answer = scene.ask("word" if i % 2 else "count")
        questions.append({"question_id": i, "image": file_name, "text": question, "category": "conv"})
        annotations.append(
            {
                "question_id": i,
                "prompt": question,
                "answer_id": f"a{i}",
                "model_id": "gpt-4",
                "text": f"It is {answer}.",
                "metadata": {},
            }
        )
        rows.append(row(question, None, [image], accept=[f"It is {answer}."]))
    write_jsonl(folder / "questions.jsonl", questions)
    write_jsonl(folder / "context.jsonl", context)
    write_jsonl(folder / "answers_gpt4.jsonl", annotations)
    return "", rows


@layout("dev")
def zerobench_hf(folder: Path, rng: random.Random) -> Made:
    """One column is a list of paths, another the list of pictures: one or two.

    Source: https://huggingface.co/datasets/jonathan-roberts1/zerobench
    """
    records, rows = [], []
    for i in range(8):
        scenes = [Scene(rng) for _ in range(1 + i % 2)]
        cells = [image_cell(scene.image) for scene in scenes]
        question, answer = ("What word is printed at the bottom of the last image?", scenes[-1].word)
        records.append(
            {
                "question_id": str(i + 1),
                "question_text": question,
                "question_images": [f"images/{i}_{j}.png" for j in range(len(scenes))],
                "question_images_decoded": [cell for cell, _ in cells],
                "question_answer": answer,
                "image_attribution": "Own",
            }
        )
        rows.append(row(question, answer, [image for _, image in cells]))
    write_parquet(
        folder / "data/zerobench-00000-of-00001.parquet",
        records,
        {
            "question_id": STRING,
            "question_text": STRING,
            "question_images": List(STRING),
            "question_images_decoded": List(IMAGE),
            "question_answer": STRING,
            "image_attribution": STRING,
        },
    )
    write_card(folder, {"default": {"zerobench": "data/zerobench-*"}}, "zerobench")
    return "", rows
