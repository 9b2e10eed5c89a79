"""Exports of tools for labels and of a learning platform."""

import base64
import random
import uuid
from pathlib import Path
from xml.sax.saxutils import escape

from layouts.package import Made, row, save_image, write_json
from layouts.scenes import digest, encoded

from .drawing import COLOURS, draw, held_out, offer, other


@held_out()
def label_studio_tasks(folder: Path, rng: random.Random) -> Made:
    """Label Studio, JSON: the answer is a text area of the annotation; a model's prediction may be another text."""
    rows, tasks = [], []
    for i in range(9):
        shown = draw(rng)
        name = f"{rng.randrange(16**8):08x}-meter_{i + 1:02}.jpg"
        image = save_image(shown.image, folder / "media" / "upload" / "3" / name)
        question, answer = [
            ("What does the meter show?", shown.code),
            ("What colour is the needle?", shown.colour),
        ][i % 2]
        wrong = "T000" if i % 2 == 0 else other(rng, answer, list(COLOURS))

        def result(text: str, number: int) -> list[dict[str, object]]:
            return [
                {
                    "value": {"text": [text]},
                    "id": f"r{number}",
                    "from_name": "answer",
                    "to_name": "image",
                    "type": "textarea",
                    "origin": "manual",
                }
            ]

        predictions = [{"id": 50 + i, "model_version": "v1", "score": 0.41, "result": result(wrong, 100 + i)}]
        tasks.append(
            {
                "id": 210 + i,
                "annotations": [
                    {
                        "id": 80 + i,
                        "completed_by": 1,
                        "result": result(answer, i),
                        "was_cancelled": False,
                        "ground_truth": False,
                        "created_at": "2026-02-11T09:30:12.120000Z",
                        "updated_at": "2026-02-11T09:30:12.120000Z",
                        "lead_time": 6.2 + i,
                    }
                ],
                "file_upload": name,
                "drafts": [],
                "predictions": predictions if i % 3 == 0 else [],
                "data": {"image": f"/data/upload/3/{name}", "question": question},
                "meta": {},
                "created_at": "2026-02-10T16:00:00.000000Z",
                "updated_at": "2026-02-11T09:30:12.200000Z",
                "inner_id": i + 1,
                "total_annotations": 1,
                "cancelled_annotations": 0,
                "total_predictions": 1 if i % 3 == 0 else 0,
                "comment_count": 0,
                "project": 3,
            }
        )
        rows.append(row(question, answer, [image]))
    write_json(folder / "project-3-at-2026-02-12-08-00-1f2e3d4c.json", tasks)
    return "", rows


@held_out()
def label_studio_min(folder: Path, rng: random.Random) -> Made:
    """Label Studio, JSON-MIN, with local storage: paths stand behind `?d=`, the answer is called `choice`."""
    rows, tasks = [], []
    for i in range(10):
        shown = draw(rng)
        image = save_image(shown.image, folder / "pcb" / "batch 2" / f"board_{i + 1:02}.png")
        question, answer = [
            ("Are there more than three pads?", "Yes" if int(shown.count) > 3 else "No"),
            ("Are the pads round?", "Yes" if shown.shape == "circle" else "No"),
        ][i % 2]
        tasks.append(
            {
                "image": f"/data/local-files/?d=pcb/batch%202/board_{i + 1:02}.png",
                "question": question,
                "id": 31 + i,
                "choice": answer,
                "annotator": 2,
                "annotation_id": 70 + i,
                "created_at": "2026-03-01T10:00:00.000000Z",
                "updated_at": "2026-03-01T10:00:00.000000Z",
                "lead_time": 3.5,
            }
        )
        rows.append(row(question, answer, [image]))
    write_json(folder / "project-5-at-2026-03-02-07-00-aa11bb22.json", tasks, indent=2)
    return "", rows


@held_out()
def via_project(folder: Path, rng: random.Random) -> Made:
    """VGG Image Annotator: question and answer are attributes of a file, whose key is its name and size."""
    rows, files = [], {}
    for i in range(9):
        shown = draw(rng)
        name = f"coin_{i + 1}.jpg"
        image = save_image(shown.image, folder / name)
        size = (folder / name).stat().st_size
        question, answer = [
            ("How many coins are on the cloth?", shown.count),
            ("What colour is the cloth?", shown.colour),
            ("Which find number is on the card?", shown.code),
        ][i % 3]
        box = {"name": "rect", "x": 8, "y": 8, "width": 30, "height": 30}
        files[f"{name}{size}"] = {
            "filename": name,
            "size": size,
            "regions": [{"shape_attributes": box, "region_attributes": {"type": "coin"}}] if i % 2 else [],
            "file_attributes": {"question": question, "answer": answer, "quality": "good"},
        }
        rows.append(row(question, answer, [image]))
    text = {"type": "text", "description": "", "default_value": ""}
    write_json(
        folder / "via_project_2Mar2026_10h12m.json",
        {
            "_via_settings": {"ui": {"image": {"region_label": "__via_region_id__"}}, "project": {"name": "coins"}},
            "_via_img_metadata": files,
            "_via_attributes": {
                "region": {"type": text},
                "file": {"question": text, "answer": text, "quality": text},
            },
            "_via_data_format_version": "2.0.10",
            "_via_image_id_list": list(files),
        },
    )
    return "", rows


@held_out()
def argilla_records(folder: Path, rng: random.Random) -> Made:
    """Argilla: images are data URIs in fields; a person's response is the gold answer, no model's suggestion."""
    rows, records = [], []
    for i in range(8):
        shown = draw(rng)
        data = encoded(shown.image, "PNG")
        question, answer = [
            ("How many cells are stained?", shown.count),
            ("Which colour has the stain?", shown.colour),
        ][i % 2]
        wrong = other(rng, answer, [str(n) for n in range(1, 9)] if i % 2 == 0 else list(COLOURS))
        records.append(
            {
                "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
                "fields": {
                    "image": "data:image/png;base64," + base64.b64encode(data).decode(),
                    "question": question,
                },
                "metadata": {"microscope": "M2"},
                "suggestions": {"answer": {"value": wrong, "score": 0.3, "agent": "small-vlm"}},
                "responses": {
                    "answer": [{"value": answer, "user_id": str(uuid.UUID(int=rng.getrandbits(128), version=4))}]
                },
                "vectors": {},
                "status": "completed",
                "_server_id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
            }
        )
        rows.append(row(question, answer, [digest(data)]))
    write_json(folder / "records.json", records)
    return "", rows


@held_out()
def moodle_questions(folder: Path, rng: random.Random) -> Made:
    """Moodle XML: HTML texts with images that are embedded in base64; kinds with choices and with a short answer."""
    rows, parts = [], []
    for i in range(9):
        shown = draw(rng)
        data = encoded(shown.image, "PNG")
        name = f"figure {i + 1}.png" if i % 4 == 0 else f"figure{i + 1}.png"
        link = name.replace(" ", "%20")
        short = i % 3 == 2
        question = [
            "Which colour do the shapes in the figure have?",
            "How many shapes & symbols do you count in the figure?",
            "Which code is printed at the lower left?",
        ][i % 3]
        html = f'<p>{escape(question)}<br></p><p><img src="@@PLUGINFILE@@/{link}" alt="" width="200"></p>'
        if short:
            answers = (
                f'    <answer fraction="100" format="moodle_auto_format"><text>{shown.code}</text>'
                "<feedback format='html'><text></text></feedback></answer>\n"
            )
            extra = "    <usecase>0</usecase>\n"
            rows.append(row(question, shown.code, [digest(data)]))
        else:
            pool = list(COLOURS) if i % 3 == 0 else [str(n) for n in range(1, 9)]
            choices, right = offer(rng, shown.colour if i % 3 == 0 else shown.count, pool)
            answers = "".join(
                f'    <answer fraction="{100 if j == right else 0}" format="html">'
                f"<text><![CDATA[<p>{choice}</p>]]></text>"
                '<feedback format="html"><text></text></feedback></answer>\n'
                for j, choice in enumerate(choices)
            )
            extra = "    <single>true</single>\n    <shuffleanswers>true</shuffleanswers>\n"
            extra += "    <answernumbering>abc</answernumbering>\n"
            rows.append(row(question, None, [digest(data)], choices=choices, idx=right))
        parts.append(
            f'  <question type="{"shortanswer" if short else "multichoice"}">\n'
            f"    <name><text>Q{i + 1:02} figure</text></name>\n"
            f'    <questiontext format="html"><text><![CDATA[{html}]]></text>\n'
            f'<file name="{name}" path="/" encoding="base64">{base64.b64encode(data).decode()}</file>'
            "</questiontext>\n"
            '    <generalfeedback format="html"><text></text></generalfeedback>\n'
            "    <defaultgrade>1.0000000</defaultgrade>\n    <penalty>0.3333333</penalty>\n    <hidden>0</hidden>\n"
            f"{extra}{answers}  </question>\n"
        )
    category = "  <question type='category'><category><text>$course$/top/Figures</text></category></question>\n"
    (folder / "questions-PHYS1-Figures-20260302-0912.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<quiz>\n' + category + "".join(parts) + "</quiz>\n", encoding="utf-8"
    )
    return "", rows
