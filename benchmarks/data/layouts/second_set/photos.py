"""Photographs: questions of COCO and Visual Genome, knowledge, hallucination."""

import csv
import random
from pathlib import Path

from layouts.package import (
    Made,
    row,
    save_image,
    write_json,
)
from layouts.scenes import WORDS, Scene
from layouts.second_set.languages import ask_in, blind, kind_of


@blind("whole")
def cocoqa_original(folder: Path, rng: random.Random) -> Made:
    """Four text files whose lines belong together, and pictures of COCO.

    Source: http://www.cs.toronto.edu/~mren/research/imageqa/data/cocoqa, phiyodr/vqaloader.
    """
    rows = []
    for split, images, count in (("train", "train2014", 7), ("test", "val2014", 4)):
        lines: dict[str, list[str]] = {"questions": [], "answers": [], "img_ids": [], "types": []}
        for i in range(count):
            scene, number = Scene(rng), rng.randrange(1000, 580000)
            image = save_image(scene.image, folder / images / f"COCO_{images}_{number:012d}.jpg")
            for kind in ("count", "colour")[: 1 + i % 2]:
                question, answer = scene.ask(kind)
                question = question.lower().replace("?", " ?")
                for name, text in (
                    ("questions", question),
                    ("answers", answer),
                    ("img_ids", str(number)),
                    ("types", "1" if kind == "count" else "2"),
                ):
                    lines[name].append(text)
                rows.append(row(question, answer, [image], split=split))
        (folder / split).mkdir()
        for name, each in lines.items():
            (folder / split / f"{name}.txt").write_text("".join(f"{line}\n" for line in each))
    return "", rows


@blind("in part")
def visual_genome_qa(folder: Path, rng: random.Random) -> Made:
    """Questions are grouped by picture; pictures are numbers in two folders.

    Source: Visual Genome v1.4 (names of files and folders confirmed; fields of a question from knowledge).
    """
    rows, groups, images = [], [], []
    for i in range(8):
        scene, number = Scene(rng), rng.randrange(1, 2400000) if i % 3 else i + 1
        place = "VG_100K" if i % 2 else "VG_100K_2"
        image = save_image(scene.image, folder / place / f"{number}.jpg")
        images.append(
            {
                "width": scene.image.width,
                "height": scene.image.height,
                "url": f"https://cs.stanford.edu/people/rak248/{place}/{number}.jpg",
                "image_id": number,
                "coco_id": None,
                "flickr_id": None,
            }
        )
        asked = []
        for kind in ("count", "colour")[: 1 + i % 2]:
            question, answer = scene.ask(kind)
            written = answer.capitalize() + "."
            asked.append(
                {
                    "a_objects": [],
                    "question": question,
                    "image_id": number,
                    "qa_id": 986769 + len(rows),
                    "answer": written,
                    "q_objects": [],
                }
            )
            rows.append(row(question, written, [image], accept=[answer]))
        groups.append({"id": number, "qas": asked})
    write_json(folder / "image_data.json", images)
    write_json(folder / "question_answers.json", groups)
    return "", rows


@blind("in part")
def visdial_v1(folder: Path, rng: random.Random) -> Made:
    """Dialogues whose questions and answers are numbers in two lists.

    Source: https://visualdialog.org/data, batra-mlp-lab/visdial data/prepro.py (dialogs, questions, answers
    confirmed).
    """
    rows = []
    for split, images, count in (("train", "train2014", 3), ("val", "VisualDialog_val2018", 2)):
        questions: list[str] = []
        answers = ["yes", "no", *WORDS]
        dialogs = []
        for _ in range(count):
            scene, number, turns = Scene(rng), rng.randrange(1000, 580000), []
            prefix = "COCO_train2014" if split == "train" else "VisualDialog_val2018"
            image = save_image(scene.image, folder / images / f"{prefix}_{number:012d}.jpg")
            for kind in ("colour", "count", "word"):
                question, answer = scene.ask(kind)
                question = question.lower().rstrip("?")
                for value, pool in ((question, questions), (answer, answers)):
                    if value not in pool:
                        pool.insert(rng.randrange(len(pool) + 1), value)
                turns.append((question, answer))
                rows.append(row(question, answer, [image], split=split))
            dialogs.append({"image_id": number, "caption": f"some {scene.shape}s above a word", "dialog": turns})
        for each in dialogs:
            written = []
            for question, answer in each["dialog"]:
                options = rng.sample([i for i, text in enumerate(answers) if text != answer], 4)
                at = rng.randrange(5)
                options.insert(at, answers.index(answer))
                written.append(
                    {
                        "question": questions.index(question),
                        "answer": answers.index(answer),
                        "answer_options": options,
                        "gt_index": at,
                    }
                )
            each["dialog"] = written
        write_json(
            folder / f"visdial_1.0_{split}.json",
            {
                "version": "1.0",
                "split": f"{split}2018",
                "data": {"dialogs": dialogs, "questions": questions, "answers": answers},
            },
        )
    return "", rows


@blind("whole")
def fvqa_original(folder: Path, rng: random.Random) -> Made:
    """One object with a question for each key, a file of facts, and lists of the pictures of each split.

    Source: FVQA release as a loader on GitHub that had downloaded it describes it.
    """
    rows, questions, facts, names = [], {}, {}, []
    top = folder / "new_dataset_release"
    for i in range(10):
        scene = Scene(rng)
        name = (
            f"COCO_val2014_{rng.randrange(100, 580000):012d}.jpg"
            if i % 2
            else f"ILSVRC2012_test_{rng.randrange(100, 99999):08d}.JPEG"
        )
        image = save_image(scene.image, top / "images" / name, "JPEG")
        question, answer = scene.ask(kind_of(i))
        question = question.rstrip("?")
        fact, number = f"conceptnet/e/{rng.randrange(10**6)}", str(rng.randrange(100, 9000))
        facts[fact] = {
            "KB": "conceptnet",
            "e1": f"/c/en/{scene.shape}",
            "e2": "/c/en/picture",
            "e1_label": f"a {scene.shape}",
            "e2_label": "a picture",
            "r": "/r/AtLocation",
            "surface": f"You can find [[a {scene.shape}]] in [[a picture]]",
        }
        questions[number] = {
            "fact_surface": facts[fact]["surface"],
            "ans_source": "image",
            "answer": answer,
            "question": question,
            "img_file": name,
            "visual_concept": "obj",
            "kb_source": "conceptnet",
            "fact": [fact],
            "question_id": number,
        }
        names.append(name)
        rows.append(row(question, answer, [image]))
    write_json(top / "all_qs_dict_release.json", questions)
    write_json(top / "all_fact_triples_release.json", facts)
    (folder / "Name_Lists").mkdir()
    for fold in range(2):
        half = [name for i, name in enumerate(names) if i % 2 == fold]
        (folder / "Name_Lists" / f"test_list_{fold}.txt").write_text("\n".join(half) + "\n")
        (folder / "Name_Lists" / f"train_list_{fold}.txt").write_text(
            "\n".join(each for each in names if each not in half) + "\n"
        )
    return "", rows


@blind("in part")
def kvqa_original(folder: Path, rng: random.Random) -> Made:
    """An object for each picture with lists of questions and answers that belong together; `split` is a number for
    each of five divisions.

    Source: https://malllabiisc.github.io/resources/kvqa, sanket0211/WK-VQA, phiyodr/vqaloader.
    """
    rows, records = [], {}
    for i in range(7):
        scene, number = Scene(rng), str(rng.randrange(10, 40000))
        path = f"KVQAimgs/{number}.{'png' if i % 2 else 'jpg'}"
        image = save_image(scene.image, folder / path)
        asked = [scene.ask(kind) for kind in ("count", "word")[: 1 + i % 2]]
        records[number] = {
            "NamedEntities": [scene.word.title()],
            "Qids": [f"Q{rng.randrange(10**6)}"],
            "wikiCap": f"{scene.word.title()} in 2014",
            "imgPath": path,
            "Questions": [question for question, _ in asked],
            "ParaQuestions": [f"Tell me: {question}" for question, _ in asked],
            "Answers": [answer for _, answer in asked],
            "Type of Question": [["1-hop"], ["Counting"]][: len(asked)],
            "split": [1 + i % 3, 1, 2, 3, 1],
        }
        rows += [row(question, answer, [image]) for question, answer in asked]
    write_json(folder / "Dataset.json", records)
    return "", rows


@blind("whole")
def amber_original(folder: Path, rng: random.Random) -> Made:
    """Questions and answers in files of their own, joined by `id`; the same questions lie in smaller files.

    Only the questions with yes or no are expected; a description has a list of objects and no answer.
    Source: junyangwang0410/AMBER (files read); the pictures lie in `image`.
    """
    rows, queries, truths = [], [], []
    groups: dict[str, list[dict[str, object]]] = {
        "generative": [],
        "discriminative-attribute": [],
        "discriminative-existence": [],
    }
    scenes = [Scene(rng) for _ in range(5)]
    images = [save_image(scene.image, folder / "image" / f"AMBER_{i + 1}.jpg") for i, scene in enumerate(scenes)]
    for kind, group in groups.items():
        for i, (scene, image) in enumerate(zip(scenes, images, strict=True)):
            number = len(queries) + 1
            if kind == "generative":
                query, truth = "Describe this image.", {"truth": [scene.shape, scene.word], "hallu": ["cloud", "dog"]}
            elif kind == "discriminative-attribute":
                claim, holds = scene.claim(i % 2 == 0)
                query, truth = (
                    f"Is the {scene.shape} {claim.split()[0]} in this image?",
                    {"truth": "yes" if holds else "no"},
                )
            else:
                thing = scene.shape if i % 2 else next(each for each in ("circle", "square") if each != scene.shape)
                query, truth = (
                    f"Is there a {thing} in this image?",
                    {"truth": "yes" if thing == scene.shape else "no"},
                )
            group.append({"id": number, "image": f"AMBER_{i + 1}.jpg", "query": query})
            queries.append(group[-1])
            truths.append({"id": number, "type": kind} | truth)
            if kind != "generative":
                rows.append(row(query, str(truth["truth"]), [image]))
    write_json(folder / "data" / "query" / "query_all.json", queries, 4)
    for kind, group in groups.items():
        write_json(folder / "data" / "query" / f"query_{kind}.json", group, 4)
    write_json(
        folder / "data" / "query" / "query_discriminative.json",
        [each for kind, group in groups.items() for each in group if kind != "generative"],
        4,
    )
    write_json(folder / "data" / "annotations.json", truths, 4)
    write_json(folder / "data" / "relation.json", {"circle": ["disc"], "square": ["box"]}, 4)
    (folder / "data" / "safe_words.txt").write_text("image\npicture\nword\n")
    (folder / "data" / "metrics.txt").write_text("chair_score=0\nchair_num=0\n")
    return "", rows


@blind("whole")
def vivqa_original(folder: Path, rng: random.Random) -> Made:
    """A first column without a name, and pictures as numbers of COCO.

    Source: kh4nh12/ViVQA train.csv (read); the pictures are added by the user.
    """
    rows = []
    for split, count in (("train", 8), ("test", 3)):
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["", "question", "answer", "img_id", "type"])
            for i in range(count):
                scene, number, kind = Scene(rng), rng.randrange(100, 580000), kind_of(i)
                image = save_image(scene.image, folder / "images" / f"{number:012d}.jpg")
                question, answer = ask_in(scene, "vi", kind)
                writer.writerow([i, question, answer, number, {"count": 1, "colour": 2, "word": 0}[kind]])
                rows.append(row(question, answer, [image], split=split))
    return "", rows
