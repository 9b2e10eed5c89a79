"""Tests of perception: choices about photographs, and questions in several languages."""

import random
from pathlib import Path

from datasets import List
from layouts.package import (
    IMAGE,
    INT64,
    STRING,
    Made,
    image_cell,
    letter,
    row,
    save_image,
    write_json,
    write_jsonl,
    write_parquet,
)
from layouts.scenes import Scene
from layouts.second_set.languages import ask_in, blind, distinct, kind_of


@blind("in part")
def xgqa_original(folder: Path, rng: random.Random) -> Made:
    """A file for each language with a question for each key; the pictures are those of GQA.

    Source: adapter-hub/xGQA data/zero_shot (keys as in GQA).
    """
    scenes = distinct(rng, 8)
    numbers = [f"n{rng.randrange(1000, 600000)}" if i % 2 else str(rng.randrange(2300000, 2420000)) for i in range(8)]
    images = [
        save_image(scene.image, folder / "images" / f"{number}.jpg")
        for scene, number in zip(scenes, numbers, strict=True)
    ]
    ids = [str(rng.randrange(20000000, 209999999)) for _ in scenes]
    rows = []
    for language in ("de", "id", "pt", "ru"):
        records = {}
        for i, (scene, number, image) in enumerate(zip(scenes, numbers, images, strict=True)):
            kind = "colour" if i % 2 else "word"
            question, answer = ask_in(scene, language, kind)[0], scene.ask(kind)[1]
            records[ids[i]] = {
                "semantic": [{"operation": "select", "dependencies": [], "argument": f"{scene.shape} (0)"}],
                "entailed": [],
                "equivalent": [ids[i]],
                "question": question,
                "imageId": number,
                "isBalanced": True,
                "groups": {"global": "color", "local": "02q"},
                "answer": answer,
                "semanticStr": f"select: {scene.shape} (0)",
                "annotations": {"answer": {}, "question": {}, "fullAnswer": {}},
                "types": {"detailed": "query", "semantic": "attr", "structural": "query"},
                "fullAnswer": f"It is {answer}.",
            }
            rows.append(row(question, answer, [image], split=language))
        write_json(folder / "data" / "zero_shot" / f"testdev_balanced_questions_{language}.json", records)
    return "", rows


@blind("in part")
def qbench_llvisionqa(folder: Path, rng: random.Random) -> Made:
    """The answer is the text of a candidate; the test file has no answers.

    Source: https://huggingface.co/datasets/teowu/LLVisionQA-QBench (file names and img_path confirmed; other fields
    from knowledge).
    """
    rows = []
    for split, count in (("dev", 8), ("test", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            name = f"{rng.randrange(10**8, 10**10)}.jpg"
            image = save_image(scene.image, folder / "images" / name)
            question, choices, right = scene.ask_closed(3, kind_of(i))
            record = {"img_path": name, "question": question, "candidates": choices, "type": i % 3, "concern": i % 4}
            if split == "dev":
                record["correct_ans"] = choices[right]
                rows.append(row(question, None, [image], choices, right, split=split))
            records.append(record)
        write_json(folder / f"llvisionqa_{split}.json", records, 4)
    return "", rows


@blind("in part")
def vstar_bench(folder: Path, rng: random.Random) -> Made:
    """One file with the questions, their choices written into the text; beside each picture lies a file with its
    objects.

    Source: https://huggingface.co/datasets/craigwu/vstar_bench, README and evaluation of penghao-wu/vstar,
    lmms-eval vstar_bench (text, label,
    category, question_id).
    """
    rows, records = [], []
    for i in range(10):
        scene, category = Scene(rng), ("direct_attributes", "relative_position")[i // 6]
        path = f"{category}/sa_{rng.randrange(1000, 99999)}.jpg"
        image = save_image(scene.image, folder / path)
        question, choices, right = scene.ask_closed(4 if i < 6 else 2, "colour")
        others = [each for j, each in enumerate(choices) if j != right]
        write_json(
            (folder / path).with_suffix(".json"),
            {
                "target_object": [scene.shape],
                "bbox": [[6, 4, 20, 20]],
                "question": question,
                "options": [f"The color is {each}." for each in (choices[right], *others)],
            },
        )
        listed = "\n".join(f"({letter(j)}) {each}" for j, each in enumerate(choices))
        text = f"{question}\n{listed}\nAnswer with the option's letter from the given choices directly."
        records.append({"image": path, "text": text, "category": category, "label": letter(right), "question_id": i})
        rows.append(row(question, None, [image], choices, right))
    write_jsonl(folder / "test_questions.jsonl", records)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    return "", rows


@blind("in part")
def cv_bench_hf(folder: Path, rng: random.Random) -> Made:
    """The answer is a letter in brackets; a column has the question with its choices.

    Source: https://huggingface.co/datasets/nyu-visionx/CV-Bench, lmms-eval cv_bench.
    """
    lines = [
        "---",
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: test",
        '    path: "test*.parquet"',
        "---",
        "# CV-Bench",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines))
    rows, number = [], 0
    for name, task, count in (("2d", "Count", 6), ("3d", "Depth", 4)):
        records = []
        for _ in range(count):
            scene = Scene(rng)
            path = f"img/{name.upper()}/{task.lower()}/ade20k_{number}.png"
            cell, image = image_cell(scene.image, path)
            question, choices, right = scene.ask_closed(4 if name == "2d" else 2)
            listed = "\n".join(f"({letter(j)}) {each}" for j, each in enumerate(choices))
            answer = f"({letter(right)})"
            records.append(
                {
                    "idx": number,
                    "type": name.upper(),
                    "task": task,
                    "image": cell,
                    "question": question,
                    "choices": choices,
                    "answer": answer,
                    "prompt": f"{question} Select from the following choices.\n{listed}",
                    "filename": path,
                    "source": "ADE20K",
                    "source_dataset": "ADE20K Validation Set",
                    "source_filename": f"ADE_val_{number:08d}.jpg",
                    "target_class": scene.shape,
                    "target_size": 1200,
                    "bbox": [[1.0, 2.0, 3.0, 4.0]],
                }
            )
            number += 1
            rows.append(row(question, None, [image], choices, right, accept=[answer]))
        text = (
            "type",
            "task",
            "question",
            "answer",
            "prompt",
            "filename",
            "source",
            "source_dataset",
            "source_filename",
            "target_class",
        )
        from datasets import Value

        write_parquet(
            folder / f"test_{name}.parquet",
            records,
            {
                "idx": INT64,
                "image": IMAGE,
                **dict.fromkeys(text, STRING),
                "choices": List(STRING),
                "target_size": INT64,
                "bbox": List(List(Value("float64"))),
            },
        )
    return "", rows
