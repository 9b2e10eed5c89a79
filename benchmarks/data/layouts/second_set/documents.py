"""Documents, charts, tables, screens."""

import json
import random
from pathlib import Path

from datasets import List, Value
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
    write_parquet,
)
from layouts.scenes import Scene, digest, encoded
from layouts.second_set.languages import ask_in, blind, distinct, kind_of


@blind("in part")
def infographicvqa_original(folder: Path, rng: random.Random) -> Made:
    """Files of task 3 of the DocVQA challenge; the test file has no answers.

    Fields questionId, question, image_local_name, answers, ocr_output_file are confirmed by loaders on GitHub; file
    names from
    knowledge of https://rrc.cvc.uab.es/?ch=17.
    """
    rows, number, question_id = [], rng.randrange(20000, 60000), 65718
    for split, name, count in (
        ("train", "infographicsVQA_train_v1.0.json", 5),
        ("val", "infographicsVQA_val_v1.0_withQT.json", 3),
        ("test", "infographicsVQA_test_v1.0.json", 2),
    ):
        data = []
        for i in range(count):
            scene, number = Scene(rng), number + rng.randrange(1, 90)
            image = save_image(scene.image, folder / "infographicsvqa_images" / f"{number}.jpeg")
            write_json(
                folder / "infographicsvqa_ocr" / f"{number}.json",
                {"PAGE": [{"BlockType": "PAGE"}], "LINE": [{"Text": scene.word}], "WORD": [{"Text": scene.word}]},
            )
            for kind in ("count", "word")[: 1 + i % 2]:
                question, answer = scene.ask(kind)
                question_id += 1
                record = {
                    "questionId": question_id,
                    "question": question,
                    "image_local_name": f"{number}.jpeg",
                    "image_url": f"https://example.org/wp-content/uploads/{number}.jpg",
                    "ocr_output_file": f"{number}.json",
                }
                if split != "test":
                    record |= {
                        "answers": [answer, answer.title()] if kind == "word" else [answer],
                        "data_split": split,
                    }
                    rows.append(row(question, answer, [image], split=split))
                if split == "val":
                    record |= {"answer_type": ["single span"], "evidence": ["text"], "operation/reasoning": []}
                data.append(record)
        write_json(
            folder / name,
            {"dataset_name": "infographicVQA", "dataset_split": split, "dataset_version": "v1.0", "data": data},
        )
    return "", rows


@blind("in part")
def mp_docvqa_original(folder: Path, rng: random.Random) -> Made:
    """A question has several pages; the page of the answer is named beside them.

    Fields questionId, question, page_ids, answers, answer_page_idx are confirmed by loaders on GitHub (task 4 of
    DocVQA).
    """
    rows, question_id = [], 49100
    for split, count in (("train", 6), ("val", 3), ("test", 2)):
        data = []
        for _ in range(count):
            scenes, document = (
                distinct(rng, rng.randrange(2, 5)),
                f"{rng.choice('fhjklnpqrs')}{rng.choice('fhjklnpqrs')}bf{rng.randrange(1000, 9999)}",
            )
            first = rng.randrange(1, 60)
            pages = [f"{document}_p{first + i}" for i in range(len(scenes))]
            images = [
                save_image(scene.image, folder / "images" / f"{page}.jpg")
                for scene, page in zip(scenes, pages, strict=True)
            ]
            for scene, page in zip(scenes, pages, strict=True):
                write_json(folder / "ocr" / f"{page}.json", {"LINE": [{"Text": scene.word}]})
            at = rng.randrange(len(scenes))
            question, answer = (
                f"How many {scenes[at].shape}s are on the page with the word {scenes[at].word}?",
                str(scenes[at].count),
            )
            question_id += 1
            record = {"questionId": question_id, "question": question, "doc_id": document, "page_ids": pages}
            if split != "test":
                record |= {"answers": [answer], "answer_page_idx": at}
                rows.append(row(question, answer, images, split=split))
            data.append(record | {"data_split": split})
        write_json(
            folder / f"{split}.json",
            {"dataset_name": "MP-DocVQA", "dataset_version": "1.0", "dataset_split": split, "data": data},
        )
    return "", rows


@blind("whole")
def slidevqa_hf(folder: Path, rng: random.Random) -> Made:
    """Twenty columns of pages, most of them empty.

    Source: https://huggingface.co/datasets/NTT-hil-insight/SlideVQA, README of nttmdlab-nlp/SlideVQA, and lmms-eval
    slidevqa.
    """
    write_card(folder, {"default": data_files("train", "val", "test")}, "SlideVQA")
    features = {"deck_name": STRING, "deck_url": STRING} | {f"page_{i}": IMAGE for i in range(1, 21)}
    features |= {
        "qa_id": INT64,
        "question": STRING,
        "answer": STRING,
        "arithmetic_expression": STRING,
        "evidence_pages": List(INT64),
    }
    rows, number = [], 1
    for split, count in (("train", 5), ("val", 2), ("test", 2)):
        records = []
        for _ in range(count):
            scenes = distinct(rng, rng.randrange(3, 6))
            cells = [image_cell(scene.image, kind="JPEG") for scene in scenes]
            at = rng.randrange(len(scenes))
            question, answer = (
                f"What color are the shapes on the slide that says {scenes[at].word}?",
                scenes[at].colour,
            )
            record = {f"page_{i + 1}": cell for i, (cell, _) in enumerate(cells)}
            name = f"{scenes[0].word}-{scenes[1].word}-{number:02d}"
            records.append(
                record
                | {
                    "deck_name": name,
                    "deck_url": f"https://www.slideshare.net/someone/{name}",
                    "qa_id": number,
                    "question": question,
                    "answer": answer,
                    "arithmetic_expression": "None",
                    "evidence_pages": [at + 1],
                }
            )
            number += 1
            rows.append(row(question, answer, [image for _, image in cells], split=split))
        write_parquet(folder / f"data/{split}-00000-of-00001.parquet", records, features)
    return "", rows


@blind("whole")
def chartqapro_hf(folder: Path, rng: random.Random) -> Made:
    """Questions and answers are lists; pictures are plain bytes. Of a conversation only the last turn is expected.

    Source: https://huggingface.co/datasets/ahmed-masry/ChartQAPro, lmms-eval chartqapro, VLMEvalKit chartqapro.
    """
    write_card(folder, {"default": data_files("test")}, "ChartQAPro")
    rows, records = [], []
    for i in range(10):
        scene = Scene(rng)
        data = encoded(scene.image)
        kinds = ["count", "word", "colour"][i % 3 :][:1] if i % 4 else ["word", "count"]
        asked = [scene.ask(kind) for kind in kinds]
        paragraph = f"The figure was drawn for the {scene.word} report." if i % 5 == 2 else ""
        records.append(
            {
                "Question": [question for question, _ in asked],
                "Answer": [answer for _, answer in asked],
                "Question Type": "Conversational" if len(asked) > 1 else "Factoid",
                "image": data,
                "Year": ["NO"] * len(asked),
                "Paragraph": paragraph,
            }
        )
        rows.append(row(*asked[-1], [digest(data)]))
    write_parquet(
        folder / "data/test-00000-of-00001.parquet",
        records,
        {
            "Question": List(STRING),
            "Answer": List(STRING),
            "Question Type": STRING,
            "image": Value("binary"),
            "Year": List(STRING),
            "Paragraph": STRING,
        },
    )
    return "", rows


@blind("whole")
def screenqa_original(folder: Path, rng: random.Random) -> Made:
    """The same questions twice: with sentences and boxes, and with short answers; a picture is a number.

    Source: README of google-research-datasets/screen_qa; pictures of RICO lie in `combined`.
    """
    rows = []
    for split, count in (("train", 5), ("validation", 2), ("test", 2)):
        short, full = [], []
        for i in range(count):
            scene, number = Scene(rng), rng.randrange(100, 72000)
            image = save_image(scene.image, folder / "combined" / f"{number}.jpg")
            write_json(
                folder / "combined" / f"{number}.json",
                {
                    "activity_name": "com.example.app",
                    "activity": {"root": {"text": scene.word, "bounds": [0, 0, 1440, 2560]}},
                },
            )
            for kind in ("count", "word")[: 1 + i % 2]:
                question, answer = scene.ask(kind)
                sentence = f"The answer is {answer}."
                short.append(
                    {
                        "image_id": str(number),
                        "question": question,
                        "ground_truth": [answer, f"{answer} in total" if kind == "count" else answer.upper()],
                    }
                )
                full.append(
                    {
                        "image_id": str(number),
                        "image_width": 1080,
                        "image_height": 1920,
                        "question": question,
                        "ground_truth": [
                            {
                                "full_answer": sentence,
                                "ui_elements": [{"text": answer, "bounds": [8, 90, 70, 110], "vh_index": 3}],
                            }
                        ],
                    }
                )
                rows.append(row(question, answer, [image], split=split, accept=[sentence]))
        write_json(folder / "short_answers" / f"{split}.json", short, 2)
        write_json(folder / "answers_and_bboxes" / f"{split}.json", full, 2)
    return "", rows


@blind("knowledge")
def tablevqabench_hf(folder: Path, rng: random.Random) -> Made:
    """Splits are the names of sources, the answer is the column `gt`.

    Source: https://huggingface.co/datasets/terryoo/TableVQA-Bench (from memory).
    """
    write_card(folder, {"default": data_files("fintabnetqa", "vwtq", "vwtq_syn")}, "TableVQA-Bench")
    rows = []
    for split, count in (("fintabnetqa", 3), ("vwtq", 4), ("vwtq_syn", 3)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image)
            question, answer = scene.ask(kind_of(i))
            records.append(
                {
                    "qa_id": f"{split}_{i}",
                    "question": question,
                    "gt": answer,
                    "image": cell,
                    "text_html_table": f"<table><tr><td>{scene.shape}</td><td>{scene.count}</td></tr></table>",
                    "text_markdown_table": f"| {scene.shape} | {scene.count} |",
                }
            )
            rows.append(row(question, answer, [image], split=split))
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {
                "qa_id": STRING,
                "question": STRING,
                "gt": STRING,
                "image": IMAGE,
                "text_html_table": STRING,
                "text_markdown_table": STRING,
            },
        )
    return "", rows


@blind("whole")
def mtvqa_hf(folder: Path, rng: random.Random) -> Made:
    """The pairs of an image are the text of a Python list.

    Source: https://huggingface.co/datasets/ByteDance/MTVQA, lmms-eval mtvqa (`ast.literal_eval`).
    """
    write_card(folder, {"default": data_files("train", "test")}, "MTVQA")
    rows = []
    for split, languages in (("train", ["fr", "ja", "ru", "ar", "vi"]), ("test", ["de", "ja", "ar"])):
        records = []
        for i, language in enumerate(languages):
            scene = Scene(rng)
            cell, image = image_cell(scene.image, kind="JPEG")
            pairs = [ask_in(scene, language, kind) for kind in (("count", "word") if i % 2 else ("colour",))]
            text = str([{"question": question, "answer": answer} for question, answer in pairs])
            records.append(
                {"image": cell, "id": f"{language.upper()}_{i:03d}", "qa_pairs": text, "lang": language.upper()}
            )
            rows += [row(question, answer, [image], split=split) for question, answer in pairs]
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet",
            records,
            {"image": IMAGE, "id": STRING, "qa_pairs": STRING, "lang": STRING},
        )
    return "", rows


@blind("knowledge", refusable=True)
def cord_v2_hf(folder: Path, rng: random.Random) -> Made:
    """Receipts with the JSON to be read from them; there is no question, so it should be refused.

    Source: https://huggingface.co/datasets/naver-clova-ix/cord-v2 (from memory).
    """
    write_card(folder, {"default": data_files("train", "validation", "test")}, "CORD v2")
    for split, count in (("train", 6), ("validation", 2), ("test", 2)):
        records = []
        for i in range(count):
            scene = Scene(rng)
            parse = {
                "menu": [{"nm": scene.word.upper(), "cnt": str(scene.count), "price": f"{scene.count * 4},000"}],
                "total": {"total_price": f"{scene.count * 4},000"},
            }
            truth = {
                "gt_parse": parse,
                "meta": {"version": "2.0.0", "split": split, "image_id": i},
                "valid_line": [],
                "roi": {},
                "repeating_symbol": [],
                "dontcare": [],
            }
            records.append({"image": image_cell(scene.image)[0], "ground_truth": json.dumps(truth)})
        write_parquet(
            folder / f"data/{split}-00000-of-00001.parquet", records, {"image": IMAGE, "ground_truth": STRING}
        )
    return "", []
