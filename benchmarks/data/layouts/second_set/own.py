"""Folders and exports as people keep them."""

import csv
import io
import json
import random
import tarfile
from pathlib import Path
from xml.sax.saxutils import escape

import datasets
from layouts.package import IMAGE, STRING, Made, image_cell, row, save_image, write_json, write_jsonl
from layouts.scenes import Scene, digest, encoded
from layouts.second_set.languages import base64_of, blind, closed_in, distinct, kind_of


@blind("own")
def own_txt_beside_images(folder: Path, rng: random.Random) -> Made:
    """A text with the lines `Q:` and `A:` beside each picture, sometimes two pairs."""
    rows = []
    for i in range(8):
        scene = Scene(rng)
        image = save_image(scene.image, folder / f"IMG_{4100 + i}.jpg")
        pairs = [scene.ask(kind) for kind in ("count", "word")[: 1 + i % 2]]
        (folder / f"IMG_{4100 + i}.txt").write_text(
            "\n\n".join(f"Q: {question}\nA: {answer}" for question, answer in pairs) + "\n"
        )
        rows += [row(question, answer, [image]) for question, answer in pairs]
    return "", rows


@blind("own")
def own_json_sidecars(folder: Path, rng: random.Random) -> Made:
    """A small JSON file of the same name beside each picture, in a folder for each month."""
    rows = []
    for i in range(10):
        scene = Scene(rng)
        path = folder / f"2025-{1 + i // 5:02d}" / f"meter_{i:03d}.png"
        image = save_image(scene.image, path)
        question, choices, right = scene.ask_closed(3, kind_of(i))
        write_json(
            path.with_suffix(".json"),
            {
                "question": question,
                "choices": choices,
                "answer": choices[right],
                "taken": f"2025-0{1 + i // 5}-1{i % 5}",
                "camera": "A7",
            },
            2,
        )
        rows.append(row(question, None, [image], choices, right))
    return "", rows


@blind("own")
def own_label_studio_export(folder: Path, rng: random.Random) -> Made:
    """The JSON export of Label Studio: the question is in `data`, the answer in the result of an annotation.

    A task whose annotation was cancelled has no answer and is not expected. Schema:
    docs.humansignal.com/guide/task_format.
    """
    rows, tasks = [], []
    for i in range(10):
        scene = Scene(rng)
        name = f"{rng.randrange(16**8):08x}-scene_{i}.png"
        image = save_image(scene.image, folder / "images" / name)
        question, answer = scene.ask(kind_of(i))
        result = {
            "value": {"text": [answer]},
            "id": f"r{i:09d}",
            "from_name": "answer",
            "to_name": "image",
            "type": "textarea",
            "origin": "manual",
        }
        cancelled = i == 6
        tasks.append(
            {
                "id": 500 + i,
                "annotations": [
                    {
                        "id": 900 + i,
                        "completed_by": 1,
                        "result": [] if cancelled else [result],
                        "was_cancelled": cancelled,
                        "ground_truth": False,
                        "created_at": "2026-03-09T21:52:49.513742Z",
                        "updated_at": "2026-03-09T22:16:08.746926Z",
                        "lead_time": 4.288,
                        "result_count": 1,
                        "task": 500 + i,
                    }
                ],
                "file_upload": name,
                "drafts": [],
                "predictions": [],
                "data": {"image": f"/data/upload/3/{name}", "question": question},
                "meta": {},
                "created_at": "2026-03-09T21:52:49.513742Z",
                "updated_at": "2026-03-09T22:16:08.746926Z",
                "inner_id": i + 1,
                "total_annotations": int(not cancelled),
                "cancelled_annotations": int(cancelled),
                "total_predictions": 0,
                "project": 3,
                "updated_by": 1,
                "comment_authors": [],
            }
        )
        if not cancelled:
            rows.append(row(question, answer, [image]))
    write_json(folder / "project-3-at-2026-03-10-09-12-0a1b2c3d.json", tasks)
    return "", rows


@blind("own")
def own_cvat_xml(folder: Path, rng: random.Random) -> Made:
    """`CVAT for images 1.1`: a tag on each picture with the attributes question and answer. Schema: docs.cvat.ai,
    XML annotation format.
    """
    rows, parts = [], []
    for i in range(9):
        scene = Scene(rng)
        name = f"frame_{i:06d}.png"
        image = save_image(scene.image, folder / "images" / name)
        question, answer = scene.ask(kind_of(i))
        parts.append(
            f'  <image id="{i}" name="{name}" width="{scene.image.width}" height="{scene.image.height}">\n'
            f'    <box label="{scene.shape}" source="manual" occluded="0" '
            'xtl="6.00" ytl="4.00" xbr="20.00" ybr="20.00" z_order="0">\n    </box>\n'
            f'    <tag label="qa" source="manual">\n      <attribute name="question">{escape(question)}</attribute>\n'
            f'      <attribute name="answer">{escape(answer)}</attribute>\n    </tag>\n  </image>\n'
        )
        rows.append(row(question, answer, [image]))
    (folder / "annotations.xml").write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n  <meta>\n    <task>\n'
        "      <id>12</id>\n      <name>shapes</name>\n"
        f"      <size>{len(parts)}</size>\n      <mode>annotation</mode>\n    </task>\n  </meta>\n"
        f"{''.join(parts)}</annotations>\n"
    )
    return "", rows


@blind("own")
def own_argilla_records(folder: Path, rng: random.Random) -> Made:
    """`records.to_json` of Argilla 2: fields with a picture as data URI, a suggestion of a model, the response of a
    person (from memory).
    """
    rows, records = [], []
    for i in range(9):
        scene = Scene(rng)
        text, data = base64_of(scene)
        question, choices, right = scene.ask_closed(3, kind_of(i))
        suggestion = choices[right if i % 3 else right - 1]
        records.append(
            {
                "id": f"rec-{i}",
                "fields": {"image": f"data:image/png;base64,{text}", "question": question},
                "metadata": {"batch": 1},
                "suggestions": {"answer": {"value": suggestion, "score": 0.7, "agent": "small-vlm"}},
                "responses": {
                    "answer": [{"value": choices[right], "user_id": "5f1b1f0e-0000-4000-8000-000000000001"}]
                },
                "vectors": {},
                "status": "completed",
            }
        )
        rows.append(row(question, choices[right], [digest(data)]))
    write_json(folder / "records.json", records)
    return "", rows


@blind("own")
def own_prodigy_choices(folder: Path, rng: random.Random) -> Made:
    """`prodigy db-out` of the interface `choice`: the accepted id is in `accept`; an example with `ignore` has no
    answer (from memory).
    """
    rows, records = [], []
    for i in range(10):
        scene = Scene(rng)
        text, data = base64_of(scene, "JPEG")
        question, choices, right = scene.ask_closed(4, kind_of(i))
        ignored = i == 4
        records.append(
            {
                "image": f"data:image/jpeg;base64,{text}",
                "question": question,
                "path": f"/home/ann/photos/{i}.jpg",
                "options": [{"id": j, "text": each} for j, each in enumerate(choices)],
                "_input_hash": rng.randrange(-(2**31), 2**31),
                "_task_hash": rng.randrange(-(2**31), 2**31),
                "_view_id": "choice",
                "config": {"choice_style": "single"},
                "accept": [] if ignored else [right],
                "answer": "ignore" if ignored else "accept",
                "_timestamp": 1764000000 + i,
                "_annotator_id": "ann",
                "_session_id": "ann",
            }
        )
        if not ignored:
            rows.append(row(question, None, [digest(data)], choices, right))
    write_jsonl(folder / "annotations.jsonl", records)
    return "", rows


@blind("own")
def own_frames_of_clips(folder: Path, rng: random.Random) -> Made:
    """A folder of frames for each clip; the table names the folder, so a question has all frames of it in order."""
    rows, lines = [], []
    for i in range(8):
        scenes = distinct(rng, 3 + i % 2)
        clip = f"clip_{i + 1:02d}"
        images = [
            save_image(scene.image, folder / "frames" / clip / f"frame_{8 * j:04d}.jpg")
            for j, scene in enumerate(scenes)
        ]
        question, answer = (
            f"Which word is shown in the {'first' if i % 2 else 'last'} frame?",
            scenes[0 if i % 2 else -1].word,
        )
        lines.append([clip, question, answer, len(scenes)])
        rows.append(row(question, answer, images))
    with (folder / "questions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["clip", "question", "answer", "num_frames"])
        writer.writerows(lines)
    return "", rows


@blind("own")
def own_coco_style_json(folder: Path, rng: random.Random) -> Made:
    """One JSON with lists `images` and `annotations`, joined by `image_id`; the folder of the pictures is called
    otherwise.
    """
    rows, images, notes = [], [], []
    for i in range(7):
        scene = Scene(rng)
        name = f"plant_{i:02d}.webp"
        image = save_image(scene.image, folder / "img" / name)
        images.append({"id": 40 + i, "file_name": name, "width": scene.image.width, "height": scene.image.height})
        for kind in ("count", "colour")[: 1 + i % 2]:
            question, answer = scene.ask(kind)
            notes.append({"id": len(notes) + 1, "image_id": 40 + i, "question": question, "answer": answer})
            rows.append(row(question, answer, [image]))
    write_json(
        folder / "annotations.json",
        {"info": {"description": "plants", "year": 2026}, "licenses": [], "images": images, "annotations": notes},
        1,
    )
    return "", rows


@blind("own")
def own_saved_dataset_dict_spanish(folder: Path, rng: random.Random) -> Made:
    """`DatasetDict.save_to_disk` with Spanish columns and choices."""
    rows, splits = [], {}
    for split, count in (("train", 8), ("test", 3)):
        columns: dict[str, list[object]] = {"imagen": [], "pregunta": [], "opciones": [], "respuesta": []}
        for i in range(count):
            scene = Scene(rng)
            cell, image = image_cell(scene.image)
            question, choices, right = closed_in(scene, "es", kind_of(i), 3)
            for name, value in zip(columns, (cell, question, choices, choices[right]), strict=True):
                columns[name].append(value)
            rows.append(row(question, None, [image], choices, right, split=split))
        features = datasets.Features(
            {"imagen": IMAGE, "pregunta": STRING, "opciones": datasets.List(STRING), "respuesta": STRING}
        )
        splits[split] = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict(splits).save_to_disk(str(folder / "mis_datos"))
    return "mis_datos", rows


@blind("own")
def own_wds_conversations(folder: Path, rng: random.Random) -> Made:
    """Tar shards of two splits; each key has a picture and a JSON with the turns of a chat."""
    rows, number = [], 0
    for split, shards in (("train", (5, 4)), ("val", (3,))):
        for shard, count in enumerate(shards):
            path = folder / split / f"{split}-{shard:06d}.tar"
            path.parent.mkdir(exist_ok=True)
            with tarfile.open(path, "w") as file:
                for _ in range(count):
                    scene = Scene(rng)
                    data = encoded(scene.image, "JPEG")
                    question, answer = scene.ask(kind_of(number))
                    turns = [{"from": "human", "value": f"<image>\n{question}"}, {"from": "gpt", "value": answer}]
                    for ending, content in (
                        ("jpg", data),
                        ("json", json.dumps({"id": number, "conversations": turns}).encode()),
                    ):
                        info = tarfile.TarInfo(f"{number:08d}.{ending}")
                        info.size = len(content)
                        file.addfile(info, io.BytesIO(content))
                    number += 1
                    rows.append(row(question, answer, [digest(data)], split=split))
    return "", rows


@blind("own")
def own_imagefolder_several_images(folder: Path, rng: random.Random) -> Made:
    """A folder as `imagefolder` reads it: `metadata.jsonl` in each split, a column `images_file_names` with lists."""
    rows = []
    for split, count in (("train", 7), ("test", 3)):
        records = []
        for i in range(count):
            scenes = distinct(rng, 2)
            names = [f"{i:03d}_{side}.png" for side in ("before", "after")]
            images = [
                save_image(scene.image, folder / split / name) for scene, name in zip(scenes, names, strict=True)
            ]
            question, answer = (
                f"Which word is printed in the {('first', 'second')[i % 2]} picture?",
                scenes[i % 2].word,
            )
            records.append({"images_file_names": names, "question": question, "answer": answer})
            rows.append(row(question, answer, images, split=split))
        write_jsonl(folder / split / "metadata.jsonl", records)
    return "", rows


@blind("own")
def own_questions_in_markdown(folder: Path, rng: random.Random) -> Made:
    """A quiz in Markdown: a link to a picture, a question in bold, and the answer below each."""
    rows, text = [], "# Quiz of the club\n\nMade for the summer party.\n"
    for i in range(8):
        scene = Scene(rng)
        image = save_image(scene.image, folder / "pics" / f"q{i + 1}.png")
        question, answer = scene.ask(kind_of(i))
        text += f"\n## {i + 1}\n\n![picture](pics/q{i + 1}.png)\n\n**Question:** {question}\n\n**Answer:** {answer}\n"
        rows.append(row(question, answer, [image]))
    (folder / "quiz.md").write_text(text)
    return "", rows


@blind("own", refusable=True)
def own_links_only(folder: Path, rng: random.Random) -> Made:
    """A table with links to pictures that are not there; it should be refused."""
    lines = []
    for i in range(10):
        scene = Scene(rng)
        question, answer = scene.ask(kind_of(i))
        lines.append([f"https://photos.example.org/2025/{scene.word}_{i}.jpg", question, answer])
    with (folder / "questions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image_url", "question", "answer"])
        writer.writerows(lines)
    return "", []


@blind("own", refusable=True)
def own_unanswered_questions(folder: Path, rng: random.Random) -> Made:
    """A table of questions whose column of answers is still empty; it may be refused, or read, and then any answer
    counts as right.
    """
    rows, lines = [], []
    for i in range(10):
        scene = Scene(rng)
        name = f"{i + 1}.jpg"
        image = save_image(scene.image, folder / "images" / name)
        question, _ = scene.ask(kind_of(i))
        lines.append([i + 1, name, question, ""])
        rows.append(row(question, None, [image]))
    with (folder / "todo.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["no", "image", "question", "answer"])
        writer.writerows(lines)
    return "", rows
