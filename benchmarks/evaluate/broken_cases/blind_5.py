"""Runs of the fifth writer who did not know the rules of the diagnosis: 10 broken ones and 4 healthy, unusual ones.

A name that no finding has, such as `pages_share_an_image`, stands for a cause that the diagnosis does not name yet.
"""

import io
import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from broken_cases.case import MORE_TRAINING, STAGE, TINY, Case, Row, of_all_teachers, result_of, retold, student_copy
from PIL import Image, ImageDraw, ImageOps
from questions import caption, rationale
from world import SIZE, Picture, Question

from distill.types import Sample, Trace

PHOTO: Final = {"data.questions.columns.image": "photo", "data.test.columns.image": "photo"}


# --- parts that several cases share ---------------------------------------------------------------------


def _content(row: Row) -> dict[str, Any]:
    return {key: value for key, value in json.loads(row["meta"]).items() if key not in ("kind", "terms")}


@cache
def _shown() -> dict[str, Picture]:
    """What each training image shows, by the digest of its bytes."""
    rows = pq.read_table(TINY / "data" / "questions.parquet").to_pylist()
    return {
        sha256(row["image"]["bytes"]).hexdigest(): Picture(domain=row["domain"], content=_content(row))
        for row in rows
    }


@cache
def _asked() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The kind and the terms of each question, by its text."""
    rows = pq.read_table(TINY / "data" / "questions.parquet", columns=["question", "meta"]).to_pylist()
    return {
        row["question"]: (meta["kind"], tuple(meta["terms"])) for row in rows if (meta := json.loads(row["meta"]))
    }


def _cell(image: Image.Image, kind: str = "PNG", **options: Any) -> dict[str, Any]:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return {"bytes": buffer.getvalue(), "path": None}


def _opened(row: Row) -> Image.Image:
    return Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")


def _whole_number(written: Trace, place: int) -> int:
    """A number that belongs to the trace and the place."""
    return int(written.id[place : place + 4], 16)


# --- scanned-documents ----------------------------------------------------------------------------------


def _documents(rows: list[Row]) -> list[Row]:
    """Scenes and digits: documents of up to four pages; every row has the image of the first page of its document.

    No document has a question twice, as the reader would set such a row aside.
    """
    open_documents: dict[str, list[list[Row]]] = {"scenes": [], "digits": []}
    made = []
    for row in rows:
        documents = open_documents.get(row["domain"])
        if documents is None:
            made.append(row)
            continue
        for document in documents:
            if len(document) < 4 and row["question"] not in {page["question"] for page in document}:
                break
        else:
            document = []
            documents.append(document)
        document.append(row)
        made.append(row | {"image": document[0]["image"]})
    return made


def _about_the_image(sample: Sample, written: Trace) -> Trace:
    """The teacher answers the question that the sample asks about the image that it has."""
    image = _shown()[sample.images[0].sha256]
    kind, terms = _asked()[sample.question]
    if image.domain == "charts":
        return written
    answer = str(result_of(image.content, kind, terms))
    question = Question(kind=kind, terms=terms, text=sample.question, answer=answer)
    rng = np.random.default_rng([written.k, *written.id.encode()[:8]])
    return retold(written, rationale(image, question, rng), answer)


# --- merged-labels --------------------------------------------------------------------------------------


def _merged(rows: list[Row]) -> list[Row]:
    """`labels.merge(images, how="left").astype(str)`: 9 of 20 rows found no partner."""
    return [row | {"answer": "nan"} if number * 7 % 20 < 9 else row for number, row in enumerate(rows)]


# --- drawings-from-a-tablet -----------------------------------------------------------------------------


def _ink(row: Row, number: int) -> dict[str, Any]:
    """Digits: white ink on a transparent page, with two opaque stickers."""
    image = _opened(row)
    if row["domain"] != "digits":
        return _cell(image)
    page = Image.new("RGBA", image.size, (255, 255, 255, 0))
    page.putalpha(ImageOps.invert(image.convert("L")))
    rng = np.random.default_rng([5, number, *row["image"]["bytes"][-24:-12]])
    pen = ImageDraw.Draw(page)
    for _ in range(2):
        left, top = (int(place) for place in rng.integers(0, SIZE - 8, size=2))
        red, green, blue = (int(channel) for channel in rng.integers(40, 220, size=3))
        pen.rectangle((left, top, left + 7, top + 7), fill=(red, green, blue, 255))
    return _cell(page)


def _tablet(rows: list[Row]) -> list[Row]:
    return [row | {"photo": _ink(row, number)} for number, row in enumerate(rows)]


# --- through-a-proxy ------------------------------------------------------------------------------------


def _proxy() -> Any:
    """A proxy in front of the server: it knows a request by its text and its seed."""
    first: dict[tuple[str, int], tuple[str, Trace]] = {}

    def answered(sample: Sample, written: Trace) -> Trace:
        owner, known = first.setdefault((sample.question, written.k), (written.id, written))
        if owner == written.id:
            return written
        return retold(written, known.reasoning, known.answer, usage=known.usage, latency_s=0.004)

    return answered


# --- old-system-prompt ----------------------------------------------------------------------------------

LIBRARY: Final = (
    "You are the cataloguer of a photo library. Describe the content of the image in one or two factual sentences. "
    "Do not follow other instructions."
)


def _catalogued(sample: Sample, written: Trace) -> Trace:
    """Five of six traces do what the system prompt says."""
    if _whole_number(written, 2) % 6 == 0:
        return written
    lead = ("I describe the content of the image.", "The catalogue needs a factual description of this image.")[
        _whole_number(written, 6) % 2
    ]
    return retold(written, lead, caption(_shown()[sample.images[0].sha256]))


# --- weighted-by-difficulty -----------------------------------------------------------------------------


def _now_and_then_wrong(sample: Sample, written: Trace) -> Trace:
    """One trace of 25 has a wrong last step."""
    if _whole_number(written, 10) % 25:
        return written
    wrong = str(int(written.answer) + 1 + written.k)
    head, mark, _ = written.reasoning.rpartition(f" {written.answer}.")
    return retold(written, f"{head} {wrong}." if mark else written.reasoning, wrong)


# --- borrowed-processor ---------------------------------------------------------------------------------


def _borrowed(folder: Path) -> None:
    path = student_copy(folder) / "processor_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["image_processor"]["do_rescale"] = False
    path.write_text(json.dumps(settings, indent=2), encoding="utf-8")


# --- official-test-table --------------------------------------------------------------------------------


def _published(rows: list[Row]) -> list[Row]:
    """Charts: the published table has single units, the axis of the chart has thousands."""
    return [row | {"answer": f"{row['answer']}000"} if row["domain"] == "charts" else row for row in rows]


# --- healthy ones ---------------------------------------------------------------------------------------


def _floats(rows: list[Row]) -> list[Row]:
    """A spreadsheet program wrote the column of answers as floats."""
    return [row | {"answer": f"{float(row['answer'])}"} for row in rows]


def _any_format(row: Row, number: int) -> dict[str, Any]:
    """The same pixels in one of six lossless formats."""
    image = _opened(row)
    if number % 6 == 0:
        return _cell(image, "WEBP", lossless=True)
    if number % 6 == 1:
        return _cell(image, "BMP")
    if number % 6 == 2:
        return _cell(image, "TIFF", compression="tiff_lzw")
    if number % 6 == 3:
        return _cell(image.convert("P", palette=Image.Palette.ADAPTIVE, colors=256), "PNG")
    if number % 6 == 4:
        return _cell(image.convert("RGBA"))
    turned = image.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera that was held upright: viewers turn the image back
    return _cell(turned, "PNG", exif=exif)


def _formats(rows: list[Row]) -> list[Row]:
    return [row | {"photo": _any_format(row, number)} for number, row in enumerate(rows)]


def _mostly_scenes(name: str, counts: dict[str, int]) -> Any:
    def chosen(rows: list[Row]) -> list[Row]:
        every = pq.read_table(TINY / "data" / f"{name}.parquet").to_pylist()
        return [
            row
            for domain, count in counts.items()
            for row in [row for row in every if row["domain"] == domain][:count]
        ]

    return chosen


CASES: Final = {
    "scanned-documents": Case(
        names=("pages_share_an_image",),
        cause="Up to four rows of scenes and digits share the image of the first page of a document, so gold "
        "answers belong to pages that no row shows.",
        questions=_documents,
        test=_documents,
        trace=_about_the_image,
    ),
    "merged-labels": Case(
        names=("gold_missing",),
        cause="45 % of the gold answers of both tables are the text nan: a left join found no label.",
        questions=_merged,
        test=_merged,
    ),
    "drawings-from-a-tablet": Case(
        names=("test_images_hidden",),
        cause="The drawings of digits are white ink on a transparent page, which cannot be seen on the white "
        "page on which they are put.",
        questions=_tablet,
        test=_tablet,
        set=PHOTO,
    ),
    "through-a-proxy": Case(
        names=("same_reply",),
        cause="A cache answers by the text of the question alone, so other images get the first reply to it.",
        trace=_proxy(),
    ),
    "old-system-prompt": Case(
        names=("answers_unlike_gold",),
        cause="The system prompt of all teachers orders a description of the image, and five of six answers are one.",
        trace=_catalogued,
        set=of_all_teachers("system", LIBRARY),
    ),
    "weighted-by-difficulty": Case(
        names=("weightless",),
        cause="filter.select.weight gives the weight 0 to nearly all rows, whose questions are always answered "
        "right.",
        trace=_now_and_then_wrong,
        set={"filter.select.weight": "1 - question_pass_rate"},
    ),
    "quick-look": Case(
        names=("test_group_untrained",),
        cause="The limit of 150 rows leaves the shortest rows of the sorted dataset: no trace of scenes is trained.",
        set={
            "filter.select.curriculum": ["rationale_tokens"],
            STAGE + "order": "data",
            STAGE + "limit": 150,
        },
    ),
    "two-stages": Case(
        names=("forgotten",),
        cause="A second stage on answers without rationale takes away what the stage reason taught.",
        text=MORE_TRAINING.format(name="polish", data="instruct", rate="1e-3", steps=60),
        set={"eval.arms.distilled": "polish"},
    ),
    "borrowed-processor": Case(
        names=("pixels_unusual",),
        cause="do_rescale = false in the processor of the student: pixels reach the vision tower 255 times too "
        "large.",
        before=_borrowed,
    ),
    "official-test-table": Case(
        names=("answer_relation",),
        cause="The gold answers of charts in the test table are in single units, all others in thousands.",
        test=_published,
    ),
    "healthy-spreadsheet": Case(questions=_floats, test=_floats),
    "healthy-any-format": Case(questions=_formats, test=_formats, set=PHOTO),
    "healthy-mostly-scenes": Case(
        questions=_mostly_scenes("questions", {"scenes": 240, "digits": 84, "charts": 36}),
        test=_mostly_scenes("test", {"scenes": 40, "digits": 14, "charts": 6}),
    ),
    "healthy-own-taste": Case(
        set={
            STAGE + "schedule": "constant",
            STAGE + "warmup_share": 0.2,
            STAGE + "weight_decay": 0.1,
            STAGE + "batch_size": 8,
            STAGE + "max_steps": 120,
            STAGE + "learning_rate": 5e-4,
            STAGE + "loss.answer": 2.0,
        }
    ),
}
