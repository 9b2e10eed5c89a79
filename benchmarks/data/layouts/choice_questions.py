"""Data sets of questions about photographs with choices."""

import random
from pathlib import Path

from datasets import List
from layouts.package import (
    BOOL,
    IMAGE,
    INT8,
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

AokvqaEntry = tuple[str, list[str], int, Record, list[str], list[str]]
"""A question, its choices, the index of the right one, the entry, ten direct answers and three rationales."""


def aokvqa_entry(rng: random.Random, scene: Scene) -> AokvqaEntry:
    """What the two forms of the data set share."""
    question, choices, right = scene.ask_closed(4)
    return (
        question,
        choices,
        right,
        {
            "question_id": f"{rng.getrandbits(100):x}"[:22],
            "question": question,
            "choices": choices,
            "correct_choice_idx": right,
        },
        [choices[right]] * 7 + ["some", "a few", choices[right]],
        [f"There is a word {scene.word}.", f"The answer is {choices[right]}.", "One can see it."],
    )


@layout("dev")
def aokvqa_original(folder: Path, rng: random.Random) -> Made:
    """The image name follows from an image id and the split.

    A question has two golds: the index of a choice, and direct answers. The test split has none. Rationales are
    no answers.
    Source: https://github.com/allenai/aokvqa (aokvqa_v1p0_train.json) with COCO train2017
    """
    rows = []
    for split, count in (("train", 6), ("val", 3), ("test", 2)):
        entries = []
        for _ in range(count):
            scene = Scene(rng)
            image_id = rng.randrange(100, 580000)
            image = save_image(scene.image, folder / "coco" / f"{split}2017" / f"{image_id:012d}.jpg")
            question, choices, right, entry, direct, rationales = aokvqa_entry(rng, scene)
            entry = {"split": split, "image_id": image_id} | entry
            if split == "test":
                entry.pop("correct_choice_idx")
            else:
                entry |= {"direct_answers": direct}
            entry["difficult_direct_answer"] = False
            if split != "test":
                entry["rationales"] = rationales
            entries.append(entry)
            rows.append(
                row(question, None, [image], choices=choices, idx=None if split == "test" else right, split=split)
            )
        write_json(folder / f"aokvqa_v1p0_{split}.json", entries)
    return "", rows


@layout("dev")
def aokvqa_hf(folder: Path, rng: random.Random) -> Made:
    """The direct answers are the text of a Python list.

    The gold answer is the index of a choice. Rationales are no answers.
    Source: https://huggingface.co/datasets/HuggingFaceM4/A-OKVQA
    """
    write_card(folder, {"default": data_files("train", "validation")}, "A-OKVQA")
    rows = []
    for split, count in (("train", 6), ("validation", 4)):
        records = []
        for _ in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image, kind="JPEG")
            question, choices, right, entry, direct, rationales = aokvqa_entry(rng, scene)
            records.append(
                entry
                | {
                    "image": cell,
                    "direct_answers": repr(direct),
                    "difficult_direct_answer": False,
                    "rationales": rationales,
                }
            )
            rows.append(row(question, None, [image], choices=choices, idx=right, split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00002-c1d24de3bacb5e0c.parquet",
            records,
            {
                "image": IMAGE,
                "question_id": STRING,
                "question": STRING,
                "choices": List(STRING),
                "correct_choice_idx": INT8,
                "direct_answers": STRING,
                "difficult_direct_answer": BOOL,
                "rationales": List(STRING),
            },
        )
    return "", rows


@layout("heldout")
def visual7w_original(folder: Path, rng: random.Random) -> Made:
    """The rows are nested below their images.

    `multiple_choices` has the three wrong ones; the answer is the fourth.
    Source: http://ai.stanford.edu/~yukez/visual7w/ (dataset_v7w_telling.json, visual7w_images.zip)
    """
    images, rows = [], []
    for i in range(5):
        scene = Scene(rng)
        image_id = 2 + rng.randrange(2400)
        image = save_image(scene.image, folder / "images" / f"v7w_{image_id}.jpg")
        pairs = []
        for kind in ("count", "word"):
            question, choices, right = scene.ask_closed(4, kind)
            answer = choices[right]
            question_id = rng.randrange(10**5, 10**6)
            pairs.append(
                {
                    "qa_id": question_id,
                    "question": question,
                    "image_id": image_id,
                    "answer": answer,
                    "type": "how" if kind == "count" else "what",
                    "multiple_choices": [choice for choice in choices if choice != answer],
                }
            )
            rows.append(
                row(
                    question,
                    answer,
                    [image],
                    choices=sorted(choices),
                    accept=[answer],
                    split=["train", "val"][i % 2],
                )
            )
        images.append(
            {
                "split": ["train", "val"][i % 2],
                "image_id": image_id,
                "filename": f"v7w_{image_id}.jpg",
                "qa_pairs": pairs,
            }
        )
    write_json(folder / "dataset_v7w_telling.json", {"dataset": "visual7w-telling", "images": images})
    return "", rows


@layout("dev", refusable=True)
def vcr_original(folder: Path, rng: random.Random) -> Made:
    """Questions and choices are lists of words with numbers of objects; `question_orig` is readable.

    The boxes are not drawn in the image, so to refuse it is right too.
    Source: https://visualcommonsense.com/download (vcr1annots.zip, vcr1images.zip)
    """
    rows = []
    for split, count in (("train", 6), ("val", 3)):
        entries = []
        for i in range(count):
            scene = Scene(rng)
            file_name = f"lsmdc_{i:04d}_MOVIE/{i:04d}_{scene.word}@0.jpg"
            image = save_image(scene.image, folder / "vcr1images" / file_name)
            write_json(
                folder / "vcr1images" / file_name.replace("jpg", "json"),
                {
                    "boxes": [[1, 2, 3, 4, 0.9]],
                    "segms": [[]],
                    "names": ["person"],
                    "width": scene.image.width,
                    "height": scene.image.height,
                },
            )
            question, choices, right = scene.ask_closed(4, "colour")
            question = "What color do the shapes near 1 have ?"
            entries.append(
                {
                    "movie": file_name.split("/")[0],
                    "objects": ["person"],
                    "interesting_scores": [0, 1],
                    "answer_likelihood": "likely",
                    "img_fn": file_name,
                    "metadata_fn": file_name.replace("jpg", "json"),
                    "answer_orig": f"1 sees {choices[right]} .",
                    "question_orig": question,
                    "rationale_orig": "They are drawn so .",
                    "question": [([0] if word == "1" else word) for word in question.split()],
                    "answer_match_iter": [0, 1, 2, 3],
                    "answer_sources": [1, 2, 3, 4],
                    "answer_choices": [[[0], "sees", choice, "."] for choice in choices],
                    "answer_label": right,
                    "rationale_choices": [["So", "."]] * 4,
                    "rationale_label": 1,
                    "img_id": f"{split}-{i}",
                    "question_number": 0,
                    "annot_id": f"{split}-{i}",
                    "match_fold": f"{split}-0",
                    "match_index": i,
                }
            )
            rows.append(
                row(
                    question,
                    f"1 sees {choices[right]} .",
                    [image],
                    choices=[f"person1 sees {choice} ." for choice in choices],
                    split=split,
                    accept=[letter(right), f"1 sees {choices[right]} .", f"person1 sees {choices[right]} ."],
                )
            )
        write_jsonl(folder / f"{split}.jsonl", entries)
    return "", rows


@layout("dev")
def m3cot_hf(folder: Path, rng: random.Random) -> Made:
    """The answer is a letter.

    The column `context` belongs to the question; `rationale` is no answer.
    Source: https://huggingface.co/datasets/LightChen2333/M3CoT
    """
    write_card(folder, {"default": data_files("train", "validation")}, "M3CoT")
    rows = []
    for split, count in (("train", 7), ("validation", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image)
            question, choices, right = scene.ask_closed(4)
            context = "The sign is on Main Street." if i % 3 == 0 else ""
            records.append(
                {
                    "id": f"physical-commonsense-{i}",
                    "category": "sign",
                    "image_id": f"physical-commonsense-{i}",
                    "question": question,
                    "choices": choices,
                    "context": context,
                    "answer": letter(right),
                    "rationale": f"One sees {scene.count} {scene.shape}s. So the answer is {letter(right)}.",
                    "split": split,
                    "image": cell,
                    "domain": "commonsense",
                    "topic": "physical-commonsense",
                }
            )
            rows.append(row(question, None, [image], choices=choices, idx=right, split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {
                "id": STRING,
                "category": STRING,
                "image_id": STRING,
                "question": STRING,
                "choices": List(STRING),
                "context": STRING,
                "answer": STRING,
                "rationale": STRING,
                "split": STRING,
                "image": IMAGE,
                "domain": STRING,
                "topic": STRING,
            },
        )
    return "", rows
