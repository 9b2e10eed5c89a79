"""Data sets of questions about geometry and mathematics."""

import random
import zipfile
from pathlib import Path
from typing import Final

from datasets import List
from layouts.package import (
    FLOAT64,
    IMAGE,
    INT64,
    STRING,
    Made,
    Record,
    conversation,
    data_files,
    image_cell,
    layout,
    letter,
    row,
    save_image,
    write_card,
    write_json,
    write_parquet,
)
from layouts.scenes import Scene, digest, encoded
from PIL import ImageDraw

MATHVISTA_FEATURES: Final = {
    "pid": STRING,
    "question": STRING,
    "image": STRING,
    "decoded_image": IMAGE,
    "choices": List(STRING),
    "unit": STRING,
    "precision": FLOAT64,
    "answer": STRING,
    "question_type": STRING,
    "answer_type": STRING,
    "metadata": {
        "category": STRING,
        "context": STRING,
        "grade": STRING,
        "img_height": INT64,
        "img_width": INT64,
        "language": STRING,
        "skills": List(STRING),
        "source": STRING,
        "split": STRING,
        "task": STRING,
    },
    "query": STRING,
}


@layout("heldout")
def mathvista_hf(folder: Path, rng: random.Random) -> Made:
    """The column `image` is a path and `decoded_image` the picture.

    A zip file has the same pictures again. The column `query` repeats the question with hints. Choices are null
    for free answers; answers of the test split are empty.
    Source: https://huggingface.co/datasets/AI4Math/MathVista
    """
    write_card(folder, {"default": {"testmini": "data/testmini-*", "test": "data/test-*"}}, "MathVista")
    rows = []
    pid = 0
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for split, count in (("testmini", 8), ("test", 3)):
            records = []
            for i in range(count):
                pid += 1
                scene = Scene(rng)
                cell, image = image_cell(scene.image, kind="JPEG")
                archive.writestr(zipfile.ZipInfo(f"images/{pid}.jpg"), cell["bytes"])
                closed = i % 2
                if closed:
                    question, choices, right = scene.ask_closed(4)
                    answer = choices[right]
                    query = (
                        "Hint: Please answer the question and provide the correct option letter, e.g., A, B, C, D, "
                        "at the end.\nQuestion: "
                        + question
                        + "\nChoices:\n"
                        + "\n".join(f"({letter(j)}) {choice}" for j, choice in enumerate(choices))
                    )
                else:
                    (question, answer), choices = scene.ask("count"), None
                    query = (
                        "Hint: Please answer the question requiring an integer answer and provide the final value, "
                        "e.g., 1, 2, 3, at the end.\nQuestion: " + question
                    )
                records.append(
                    {
                        "pid": str(pid),
                        "question": question,
                        "image": f"images/{pid}.jpg",
                        "decoded_image": cell,
                        "choices": choices,
                        "unit": None,
                        "precision": None,
                        "answer": answer if split == "testmini" else "",
                        "question_type": "multi_choice" if closed else "free_form",
                        "answer_type": "text" if closed else "integer",
                        "metadata": {
                            "category": "math-targeted-vqa",
                            "context": "synthetic scene",
                            "grade": "daily life",
                            "img_height": scene.image.height,
                            "img_width": scene.image.width,
                            "language": "english",
                            "skills": ["arithmetic reasoning"],
                            "source": "CLEVR-Math",
                            "split": split,
                            "task": "math word problem",
                        },
                        "query": query,
                    }
                )
                rows.append(
                    row(
                        question,
                        answer if split == "testmini" else None,
                        [image],
                        choices=choices,
                        idx=right if closed and split == "testmini" else None,
                        split=split,
                    )
                )
            write_parquet(
                folder / f"data/{split}-00000-of-00001-725687bf7a18d64b.parquet", records, MATHVISTA_FEATURES
            )
    return "", rows


@layout("heldout")
def mathvision_hf(folder: Path, rng: random.Random) -> Made:
    """The question has an image tag.

    The choices are empty for open questions. The column `image` is a path and `decoded_image` the picture. The
    answer is a letter where there are choices.
    Source: https://huggingface.co/datasets/MathLLMs/MathVision
    """
    write_card(folder, {"default": {"test": "data/test-*", "testmini": "data/testmini-*"}}, "MathVision")
    rows = []
    for split, count in (("test", 7), ("testmini", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image, kind="JPEG")
            image_id = str(4 + 3 * i)
            base: Record = {
                "id": image_id,
                "image": f"images/{image_id}.jpg",
                "decoded_image": cell,
                "solution": "Count them." if i % 3 == 0 else None,
                "level": 1 + i % 5,
                "subject": "counting",
            }
            if i % 2:
                question, choices, right = scene.ask_closed(5, "count")
                base |= {"question": f"{question}\n<image1>", "options": choices, "answer": letter(right)}
                rows.append(row(question, None, [image], choices=choices, idx=right, split=split))
            else:
                question, answer = scene.ask("count")
                base |= {"question": f"{question}\n<image1>", "options": [], "answer": answer}
                rows.append(row(question, answer, [image], split=split))
            records.append(base)
        write_parquet(
            folder / f"data/{split}-00000-of-00001-3532b8d3f1b4047a.parquet",
            records,
            {
                "id": STRING,
                "question": STRING,
                "options": List(STRING),
                "image": STRING,
                "decoded_image": IMAGE,
                "answer": STRING,
                "solution": STRING,
                "level": INT64,
                "subject": STRING,
            },
        )
    return "", rows


@layout("dev")
def mathverse_hf(folder: Path, rng: random.Random) -> Made:
    """A third of the questions are drawn in the picture only.

    Their column `question` is empty, and `query_wo` asks for the answer. Choices stand in the text of the
    question. Other columns repeat it.
    Source: https://huggingface.co/datasets/AI4Math/MathVerse (testmini.parquet)
    """
    records, rows, number = [], [], 0
    for problem in range(3):
        for version in ("Text Dominant", "Text Lite", "Vision Only"):
            number += 1
            scene = Scene(rng)
            question, choices, right = scene.ask_closed(4, "count")
            full = question + "\nChoices:\n" + "\n".join(f"{letter(j)}:{choice}" for j, choice in enumerate(choices))
            drawn = version == "Vision Only"
            if drawn:
                ImageDraw.Draw(scene.image).text((2, 2), full, fill=(0, 0, 0))
            cell, image = image_cell(scene.image)
            request = "Please directly answer the question and provide the correct option letter, e.g., A, B, C, D."
            entry = {
                "sample_index": str(number),
                "problem_index": str(problem + 1),
                "problem_version": version,
                "question": "" if drawn else full,
                "image": cell,
                "answer": letter(right),
                "question_type": "multi-choice",
                "metadata": {
                    "split": "testmini",
                    "source": "GeoQA",
                    "subject": "Plane Geometry",
                    "subfield": "Angle",
                },
                "query_wo": request if drawn else f"{request}\nQuestion: {full}",
                "query_cot": "Please first conduct reasoning, and then answer the question and provide the correct "
                "option letter, e.g., A, B, C, D, at the end." + ("" if drawn else f"\nQuestion: {full}"),
                "question_for_eval": full,
            }
            records.append(entry)
            rows.append(
                row(request if drawn else full, letter(right), [image], accept=[letter(right), choices[right]])
            )
    write_parquet(
        folder / "testmini.parquet",
        records,
        {
            "sample_index": STRING,
            "problem_index": STRING,
            "problem_version": STRING,
            "question": STRING,
            "image": IMAGE,
            "answer": STRING,
            "question_type": STRING,
            "metadata": {"split": STRING, "source": STRING, "subject": STRING, "subfield": STRING},
            "query_wo": STRING,
            "query_cot": STRING,
            "question_for_eval": STRING,
        },
    )
    write_card(folder, {"testmini": {"testmini": "testmini.parquet"}}, "MathVerse")
    write_json(
        folder / "testmini.json",
        [
            {right: drawn for right, drawn in entry.items() if right != "image"}
            | {"image": f"images_version_1-4/image_{entry['sample_index']}.png"}
            for entry in records
        ],
    )
    return "testmini.parquet", rows


@layout("dev")
def geometry3k_hiyouga(folder: Path, rng: random.Random) -> Made:
    """The images are a list of one.

    The question has an image tag; some answers are LaTeX.
    Source: https://huggingface.co/datasets/hiyouga/geometry3k (EasyR1)
    """
    write_card(folder, {"default": data_files("train", "validation", "test")}, "geometry3k")
    rows = []
    for split, count in (("train", 6), ("validation", 2), ("test", 2)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image)
            question, answer = scene.ask("count")
            asked = question + (" Choose the closest value of $2 \\sqrt{x}$ if needed." if i % 2 else "")
            answer = f"{answer} \\sqrt {{ 1 }}" if i % 3 == 2 else answer
            records.append({"images": [cell], "problem": "<image>" + asked, "answer": answer})
            rows.append(row(asked, answer, [image], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {"images": List(IMAGE), "problem": STRING, "answer": STRING},
        )
    return "", rows


@layout("heldout")
def geometry3k_original(folder: Path, rng: random.Random) -> Made:
    """Each question has a folder with two images, of which img_diagram.png is the right one.

    The answer is a letter. A second JSON file holds no question.
    Source: https://github.com/lupantech/InterGPS (data/geometry3k)
    """
    rows, top = [], folder / "geometry3k"
    for split, count, first in (("train", 6, 0), ("val", 2, 2101), ("test", 2, 2401)):
        for i in range(first, first + count):
            scene = Scene(rng)
            place = top / split / str(i)
            image = save_image(scene.image, place / "img_diagram.png")
            pointed = scene.image.copy()
            ImageDraw.Draw(pointed).ellipse((3, 3, 9, 9), fill=(255, 0, 0))
            save_image(pointed, place / "img_diagram_point.png")
            question, choices, right = scene.ask_closed(4, "count")
            write_json(
                place / "data.json",
                {
                    "problem_type_graph": ["Triangle"],
                    "problem_type_goal": ["Number"],
                    "problem_text": question,
                    "choices": choices,
                    "answer": letter(right),
                    "data_type": split,
                    "annotat_text": question,
                    "compact_choices": choices,
                    "compact_text": question,
                    "id": i,
                    "source": "geometry_problems",
                    "precise_value": [float(choice) for choice in choices],
                },
            )
            write_json(
                place / "logic_form.json",
                {
                    "text_logic_form": ["Find(x)"],
                    "dissolved_text_logic_form": ["Find(x)"],
                    "diagram_logic_form": ["Equals(LengthOf(Line(A, B)), 3)"],
                    "line_instances": ["AB"],
                    "point_positions": {"A": [1, 2]},
                    "circle_instances": [],
                },
            )
            rows.append(row(question, None, [image], choices=choices, idx=right, split=split))
    return "geometry3k", rows


@layout("heldout")
def geo170k_hf(folder: Path, rng: random.Random) -> Made:
    """The images lie in a zip file only.

    One split has captions. The gold answer stands at the end of the reply. Written from memory: the folders
    inside of the zip file, and the end of the reply.
    Source: https://huggingface.co/datasets/Luckyfan-cs/Geo170K
    """
    write_card(folder, {"default": {"qa_tuning": "data/qa_tuning-*", "alignment": "data/alignment-*"}}, "Geo170K")
    rows = []
    features = {"image": STRING, "conversations": List({"from": STRING, "value": STRING})}
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        records, captions = [], []
        for i in range(9):
            scene = Scene(rng)
            path = f"geoqa_plus/{i}.png" if i % 2 else f"geo3k/train_{i}/img_diagram.png"
            data = encoded(scene.image)
            archive.writestr(zipfile.ZipInfo(f"images/{path}"), data)
            question, choices, right = scene.ask_closed(4, "count")
            text = f"{question}\nChoices:\n" + "\n".join(f"{letter(j)}: {choice}" for j, choice in enumerate(choices))
            reply = (
                f"We count the {scene.shape}s one by one: {scene.count}. "
                f"Therefore the answer is option {letter(right)}.\nAnswer:{letter(right)}"
            )
            records.append({"image": path, "conversations": conversation("<image>\n" + text, reply)})
            rows.append(
                row(
                    text,
                    letter(right),
                    [digest(data)],
                    accept=[letter(right), choices[right], reply],
                    split="qa_tuning",
                )
            )
            caption = f"There are {scene.count} {scene.shape}s."
            captions.append(
                {
                    "image": path,
                    "conversations": conversation(
                        "Render a clear and concise description of the image.\n<image>",
                        caption,
                    ),
                }
            )
            if i < 2:
                rows.append(
                    row(
                        "Render a clear and concise description of the image.",
                        caption,
                        [digest(data)],
                        split="alignment",
                    )
                )
    write_parquet(folder / "data/qa_tuning-00000-of-00001.parquet", records, features)
    write_parquet(folder / "data/alignment-00000-of-00001.parquet", captions[:2], features)
    return "", rows
