"""Data sets of questions about charts and tables."""

import random
from pathlib import Path

from datasets import ClassLabel, List
from layouts.package import (
    IMAGE,
    INT64,
    STRING,
    Made,
    Record,
    image_cell,
    layout,
    row,
    save_image,
    write_card,
    write_json,
    write_parquet,
)
from layouts.scenes import COLOURS, Scene


@layout("heldout")
def chartqa_hf(folder: Path, rng: random.Random) -> Made:
    """The answer is a list with one string.

    A column of class labels lies beside it.
    Source: https://huggingface.co/datasets/HuggingFaceM4/ChartQA (dataset card features)
    """
    write_card(folder, {"default": {"train": "data/train-*", "val": "data/val-*", "test": "data/test-*"}}, "ChartQA")
    rows = []
    for split, count in (("train", 6), ("val", 3), ("test", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            question, answer = scene.ask()
            cell, image = image_cell(scene.image)
            records.append({"image": cell, "query": question, "label": [answer], "human_or_machine": i % 2})
            rows.append(row(question, answer, [image], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001-e2cd0b7a0f9eb20d.parquet",
            records,
            {
                "image": IMAGE,
                "query": STRING,
                "label": List(STRING),
                "human_or_machine": ClassLabel(names=["human", "machine"]),
            },
        )
    return "", rows


@layout("dev")
def chartqa_original(folder: Path, rng: random.Random) -> Made:
    """The folder name has a space.

    Each split has a folder with two question files; tables in CSV and annotations in JSON lie beside them. The
    image names have no folder.
    Source: https://github.com/vis-nlp/ChartQA (folder 'ChartQA Dataset')
    """
    rows, top = [], folder / "ChartQA Dataset"
    for split, count in (("train", 6), ("val", 2), ("test", 2)):
        images = []
        for i in range(count // 2 + 1):
            scene = Scene(rng)
            file_name = (
                f"{rng.randrange(10**7, 10**8)}{rng.randrange(10**6, 10**7)}.png"
                if i % 2
                else f"two_col_{rng.randrange(1000, 90000)}.png"
            )
            image = save_image(scene.image, top / split / "png" / file_name)
            images.append((file_name, scene, image))
            (top / split / "tables").mkdir(parents=True, exist_ok=True)
            (top / split / "tables" / file_name.replace("png", "csv")).write_text(
                f"Item,Count\n{scene.shape},{scene.count}\nother,{scene.count + 2}\n"
            )
            write_json(
                top / split / "annotations" / file_name.replace("png", "json"),
                {
                    "type": "v_bar",
                    "general_figure_info": {"title": {"text": scene.word}},
                    "models": [{"name": scene.shape, "y": [scene.count]}],
                },
            )
        for kind in ("human", "augmented"):
            entries = []
            for i in range(count // 2 + count % 2):
                file_name, scene, image = images[i % len(images)]
                question, answer = scene.ask("count" if kind == "human" else "word")
                entries.append({"imgname": file_name, "query": question, "label": answer})
                rows.append(row(question, answer, [image], split=split))
            write_json(top / split / f"{split}_{kind}.json", entries, 2)
    return "ChartQA Dataset", rows


@layout("heldout")
def dvqa_original(folder: Path, rng: random.Random) -> Made:
    """Questions and images lie in two folders.

    Files of metadata hold no questions.
    Source: https://github.com/kushalkafle/DVQA_dataset
    """
    rows = []
    for split, count in (("train", 7), ("val_easy", 3)):
        entries = []
        for i in range(count):
            scene = Scene(rng)
            file_name = f"bar_{split}_{i + 1:08d}.png"
            image = save_image(scene.image, folder / "images" / file_name)
            question, answer = scene.ask()
            entries.append(
                {
                    "question": question,
                    "question_id": 1000 + i,
                    "template_id": "structure",
                    "answer": answer,
                    "image": file_name,
                    "answer_bbox": [],
                    "question_type": "structure",
                }
            )
            rows.append(row(question, answer, [image], split=split))
        write_json(folder / f"qa/{split}_qa.json", entries)
        write_json(
            folder / f"metadata/{split}_metadata.json",
            [{"image": entry["image"], "bars": {"bboxes": []}, "table": []} for entry in entries],
        )
    return "", rows


@layout("heldout")
def figureqa_original(folder: Path, rng: random.Random) -> Made:
    """The answers 0 and 1 mean no and yes.

    The image name follows from an index. The question id is the number of a template. Annotations lie beside the
    questions. Written from memory: the names of the outer folders.
    Source: https://www.microsoft.com/en-us/research/project/figureqa-dataset/ (figureqa-sample-train1-v1 layout;
    paper arXiv:1710.07300)
    """
    rows, questions, top = [], [], folder / "figureqa-sample-train-v1/sample_train1"
    for i in range(5):
        scene = Scene(rng)
        image = save_image(scene.image, top / "png" / f"{i}.png")
        for holds in (True, False):
            phrase, _ = scene.claim(holds)
            question = f"Is there a {phrase}?"
            questions.append(
                {
                    "question_string": question,
                    "question_id": 2,
                    "image_index": i,
                    "answer": int(holds),
                    "color1_name": scene.colour.title(),
                    "color1_id": 3,
                    "color1_rgb": list(COLOURS[scene.colour]),
                    "color2_name": "--None--",
                    "color2_id": -1,
                    "color2_rgb": [-1, -1, -1],
                }
            )
            rows.append(
                row(question, "yes" if holds else "no", [image], accept=["yes", "1"] if holds else ["no", "0"])
            )
    write_json(
        top / "qa_pairs.json", {"qa_pairs": questions, "total_distinct_questions": 15, "total_distinct_colors": 100}
    )
    write_json(
        top / "annotations.json",
        [{"type": "vbar_categorical", "image_index": i, "general_figure_info": {}, "models": []} for i in range(5)],
    )
    return "figureqa-sample-train-v1/sample_train1", rows


@layout("dev")
def plotqa_original(folder: Path, rng: random.Random) -> Made:
    """The rows stand under `qa_pairs`.

    The image name follows from an index. Answers are numbers or texts. Written from memory: the fields that are
    not read.
    Source: https://github.com/NiteshMethani/PlotQA (PlotQA_Dataset.md)
    """
    rows = []
    for split, count in (("train", 4), ("val", 2)):
        questions: list[Record] = []
        for i in range(count):
            scene = Scene(rng)
            index = 100 * i + 7
            image = save_image(scene.image, folder / "data" / split / "png" / f"{index}.png")
            for kind in ("count", "colour"):
                question, answer = scene.ask(kind)
                questions.append(
                    {
                        "image_index": index,
                        "qid": f"{index}{kind}",
                        "question_string": question,
                        "answer_bbox": [],
                        "template": "structural",
                        "answer": float(answer)
                        if kind == "count" and i % 2
                        else int(answer)
                        if kind == "count"
                        else answer,
                        "answer_id": 0,
                        "type": "vbar_categorical",
                        "question_id": len(questions),
                    }
                )
                rows.append(row(question, str(questions[-1]["answer"]), [image], split=split, accept=[answer]))
        write_json(folder / "data" / split / "qa_pairs_V2.json", {"qa_pairs": questions})
        write_json(
            folder / "data" / split / "annotations.json",
            [{"image_index": 7, "type": "vbar_categorical", "models": []}],
        )
    return "data", rows


@layout("heldout")
def charxiv_hf(folder: Path, rng: random.Random) -> Made:
    """One pair of columns is a question and its answer.

    Four other columns are the numbers of templates whose texts the file does not have.
    Source: https://huggingface.co/datasets/princeton-nlp/CharXiv (val.parquet)
    """
    records, rows = [], []
    for i in range(9):
        scene = Scene(rng)
        cell, image = image_cell(scene.image, kind="JPEG")
        question, answer = scene.ask("count")
        records.append(
            {
                "image": cell,
                "category": "cs",
                "year": "20",
                "original_figure_path": f"2004.{i}/fig.pdf",
                "original_id": f"2004.{i:05d}",
                "figure_path": f"images/{i}.jpg",
                "num_subplots": 1,
                "subplot_row": 0,
                "subplot_col": 0,
                "subplot_loc": None,
                **{f"descriptive_q{j}": 2 * j + i % 2 for j in range(1, 5)},
                **{f"descriptive_a{j}": "Not Applicable" if j % 2 else scene.word for j in range(1, 5)},
                "reasoning_q": question,
                "reasoning_q_source": 1,
                "reasoning_a": answer,
                "reasoning_a_type": 3,
            }
        )
        rows.append(row(question, answer, [image]))
    write_parquet(
        folder / "val.parquet",
        records,
        {
            "image": IMAGE,
            "category": STRING,
            "year": STRING,
            "original_figure_path": STRING,
            "original_id": STRING,
            "figure_path": STRING,
            "num_subplots": INT64,
            "subplot_row": INT64,
            "subplot_col": INT64,
            "subplot_loc": STRING,
            **{f"descriptive_{part}{j}": (INT64 if part == "q" else STRING) for j in range(1, 5) for part in "qa"},
            "reasoning_q": STRING,
            "reasoning_q_source": INT64,
            "reasoning_a": STRING,
            "reasoning_a_type": INT64,
        },
    )
    write_card(folder, {"default": {"validation": "val.parquet"}}, "CharXiv")
    return "", rows


@layout("dev")
def pixmo_docs_hf(folder: Path, rng: random.Random) -> Made:
    """The column `questions` is a struct of two parallel lists, of questions and of answers.

    Source: https://huggingface.co/datasets/allenai/pixmo-docs (charts, diagrams, ...)
    """
    records, rows = [], []
    for i in range(4):
        scene = Scene(rng)
        cell, image = image_cell(scene.image)
        kinds = ("count", "colour", "word")[: 2 + i % 2]
        pairs = [scene.ask(kind) for kind in kinds]
        records.append(
            {
                "image": cell,
                "image_id": f"charts_matplotlib_{i}",
                "questions": {
                    "question": [question for question, _ in pairs],
                    "answer": [answer for _, answer in pairs],
                },
            }
        )
        rows += [row(question, answer, [image]) for question, answer in pairs]
    write_parquet(
        folder / "charts/train-00000-of-00033.parquet",
        records,
        {"image": IMAGE, "image_id": STRING, "questions": {"question": List(STRING), "answer": List(STRING)}},
    )
    write_card(folder, {"charts": {"train": "charts/train-*"}}, "pixmo-docs")
    return "charts", rows


@layout("dev")
def tabmwp_original(folder: Path, rng: random.Random) -> Made:
    """One object has all questions, keyed by their ids, which are the names of the images.

    Choices may be null. The table stands also as text.
    Source: https://github.com/lupantech/PromptPG (data/tabmwp)
    """
    rows, top, splits = [], folder / "tabmwp", {}
    for split, count, first in (("train", 7, 1), ("dev", 3, 50)):
        problems = {}
        for i in range(first, first + count):
            scene = Scene(rng)
            image = save_image(scene.image, top / "tables" / f"{i}.png")
            closed = i % 3 == 0
            if closed:
                question, choices, right = scene.ask_closed(3, "colour")
                answer = choices[right]
            else:
                (question, answer), choices = scene.ask("count"), None
            problems[str(i)] = {
                "question": question,
                "choices": choices,
                "answer": answer,
                "unit": None,
                "table_title": scene.word,
                "table": f"Item | Count\n{scene.shape} | {scene.count}",
                "table_for_pd": {"Item": [scene.shape], "Count": [str(scene.count)]},
                "row_num": 2,
                "column_num": 2,
                "solution": f"Count the {scene.shape}s.\n{answer}",
                "ques_type": "multi_choice" if closed else "free_text",
                "ans_type": "other_text" if closed else "integer_number",
                "grade": 3,
                "split": split,
            }
            rows.append(row(question, answer, [image], choices=choices, idx=right if closed else None, split=split))
        write_json(top / f"problems_{split}.json", problems, 2)
        splits[split] = list(problems)
    write_json(top / "splits.json", splits)
    return "tabmwp", rows
