"""Runs of a sixth writer, who did not know the rules of the diagnosis: 10 broken ones and 4 healthy, unusual ones.

A name that no finding has, such as `rationales_are_summaries`, stands for a cause that the diagnosis does not name.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from broken_cases.case import (
    STAGE,
    TEACHERS,
    TINY,
    Case,
    Row,
    draw,
    misread,
    retold,
    student_copy,
    table_rows,
)
from PIL import Image

from distill.types import Sample, Trace

BUDGET_WORDS: Final = 5
MISREAD_OF_TEN: Final = 4


def _all_rows(name: str) -> list[Row]:
    return pq.read_table(TINY / "data" / f"{name}.parquet").to_pylist()


def _with_answer(row: Row, answer: Any) -> Row:
    return {**row, "answer": answer}


# --- test images: a cut-out background, saved without its transparency -------------------------------------------


def _flattened_on_black(rows: list[Row]) -> list[Row]:
    """The white background was made transparent; the export to RGB then left it black."""
    return [{**row, "image": {"bytes": _on_black(row["image"]["bytes"]), "path": None}} for row in rows]


def _on_black(data: bytes) -> bytes:
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).copy()
    pixels[(pixels >= 215).all(axis=-1)] = 0
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


# --- test answers: classes of a label encoder --------------------------------------------------------------------


def _label_encoded(rows: list[Row]) -> list[Row]:
    """The answer is the index among all answers in the order of texts: 0, 1, 10, 11, ..., 2, 20."""
    classes = sorted({row["answer"] for name in ("questions", "test") for row in _all_rows(name)})
    return [_with_answer(row, str(classes.index(row["answer"]))) for row in rows]


# --- all answers: joined on the text of the question alone -------------------------------------------------------


@cache
def _first_answers() -> dict[str, str]:
    found: dict[str, str] = {}
    for row in _all_rows("questions"):
        found.setdefault(row["question"], row["answer"])
    return found


def _joined_on_question(rows: list[Row]) -> list[Row]:
    return [_with_answer(row, _first_answers().get(row["question"], row["answer"])) for row in rows]


# --- a gateway whose cache knows the text of a request and not its image -----------------------------------------


def _cached_by_text() -> Callable[[Sample, Trace], Trace]:
    replies: dict[str, tuple[str, str]] = {}

    def edit(sample: Sample, written: Trace) -> Trace:
        reasoning, answer = replies.setdefault(sample.question, (written.reasoning, written.answer))
        return retold(written, reasoning, answer)

    return edit


# --- a hosted teacher that returns a summary of its thinking -----------------------------------------------------

LEADS: Final = (
    "The question was read first and the image was looked at carefully.",
    "I identified what is being asked.",
    "The relevant parts of the picture were located.",
    "I examined the image and found what the question needs.",
)


def _things(term: str) -> str:
    return f"{term} shapes" if term in ("red", "blue", "green", "yellow") else f"{term}s"


def _summary_of(sample: Sample) -> str:
    meta = sample.meta
    kind, terms = meta["kind"], tuple(meta["terms"])
    if "bars" in meta:
        return {
            "sum": "I read the {} bar and the {} bar and added the two values.",
            "difference": "I compared the {} bar with the {} bar and took the difference.",
            "total": "I read all of the bars and added them up.",
            "range": "I found the highest and the lowest bar and subtracted one from the other.",
        }[kind].format(*terms)
    if "digits" in meta:
        return {
            "row": "I read the digits of the {} row and added them.",
            "range": "I found the largest and the smallest digit and subtracted one from the other.",
            "largest": "I found the largest digit of each row and added the two.",
        }[kind].format(*terms)
    how = "added the counts" if kind == "total" else "took the difference of the counts"
    return f"I counted the {_things(terms[0])} and the {_things(terms[1])} and {how}."


def _summarised(sample: Sample, written: Trace) -> Trace:
    lead = LEADS[int(written.id[:6], 16) % len(LEADS)]
    return retold(written, f"{lead} {_summary_of(sample)}")


# --- a thinking budget that closes every rationale early ---------------------------------------------------------


def _budget_spent(sample: Sample, written: Trace) -> Trace:
    words = list(re.finditer(r"\S+", written.reasoning))
    end = words[min(BUDGET_WORDS, len(words)) - 1].end()
    return retold(written, written.reasoning[:end])


# --- students ----------------------------------------------------------------------------------------------------


def _tower_not_loaded(folder: Path) -> None:
    """The names of the tower's weights did not match on conversion: they have their initial, random values."""
    import torch  # of the train extra, and slow to import
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    def initial(name: str, weight: torch.Tensor) -> torch.Tensor:
        if name.endswith("bias"):
            return torch.zeros_like(weight)
        if weight.ndim == 1:
            return torch.ones_like(weight)
        return (torch.randn(weight.shape, generator=rng) * 0.02).to(weight.dtype)

    rng = torch.Generator().manual_seed(0)
    for file in student_copy(folder).glob("*.safetensors"):
        with safe_open(file, "pt") as stored:
            metadata = stored.metadata() or {"format": "pt"}
        weights = load_file(file)
        for name, weight in weights.items():
            if "vision" in name and "projector" not in name and "connector" not in name:
                weights[name] = initial(name, weight)
        save_file(weights, file, metadata)


def _processor_shrinks(folder: Path) -> None:
    """The processor makes every image 6 pixels wide before it brings it to the size of the tower."""
    student = student_copy(folder)
    for name in ("processor_config.json", "preprocessor_config.json"):
        file = student / name
        if file.is_file():
            settings = json.loads(file.read_text(encoding="utf-8"))
            images = settings.get("image_processor", settings)
            images["size"] = dict.fromkeys(images["size"], 6)
            file.write_text(json.dumps(settings, indent=2), encoding="utf-8")


# --- healthy -----------------------------------------------------------------------------------------------------

FEW: Final = {
    "charts": ("What is the total of all bars?", "What is the highest value minus the lowest value?"),
    "digits": (
        "What is the largest digit minus the smallest digit?",
        "What is the largest digit of the top row plus the largest digit of the bottom row?",
    ),
}


@cache
def _few_texts() -> tuple[str, ...]:
    scenes = Counter(row["question"] for row in _all_rows("questions") if row["domain"] == "scenes")
    return (*FEW["charts"], *FEW["digits"], *(text for text, _ in scenes.most_common(4)))


def _few_questions(name: str) -> Callable[[list[Row]], list[Row]]:
    """As many rows as before, as far as there are, all with one of eight questions."""

    def edit(rows: list[Row]) -> list[Row]:
        texts = _few_texts()
        every = [row for row in _all_rows(name) if row["question"] in texts]
        return [
            row
            for domain in TEACHERS
            for row in [row for row in every if row["domain"] == domain][: len(rows) // len(TEACHERS)]
        ]

    return edit


def _unlabelled(rows: list[Row]) -> list[Row]:
    return [_with_answer(row, "") for row in rows]


def _checked_again(sample: Sample, written: Trace) -> Trace:
    """The teacher doubts itself and repeats its last calculation."""
    steps = re.findall(r"\d+ [+-] \d+ = \d+", written.reasoning)
    phrase = ("Wait: {}? Yes.", "Check: {}, OK.")[draw(written) % 2]
    return retold(written, f"{written.reasoning} {phrase.format(steps[-1])}") if steps else written


def _telegram(sample: Sample, written: Trace) -> Trace:
    """Readings and calculation without any words around them; a chart's bars only in their calculation."""
    calculated = re.findall(r"\d+ [+-] \d+ = \d+", written.reasoning)
    told = f"{', '.join(calculated)}."
    if sample.domain == "digits":
        digits = [str(digit) for digit in sample.meta["digits"]]
        told = f"{' '.join(digits[:3])} / {' '.join(digits[3:])}. {told}"
    elif sample.domain == "charts" and sample.meta["kind"] == "range":
        told = f"{' '.join(str(value) for value in sample.meta['bars'].values())}. {told}"
    elif sample.domain == "scenes":
        told = re.sub(r"Row \d: ", "", written.reasoning)
    return retold(written, told)


CASES: Final = {
    # Broken: the data.
    "test-images-flattened-on-black": Case(
        names=("test_image_differs",),
        cause="The test images lost their transparency on export: what is white in the training images is black in "
        "them, so the student gets pictures of a kind that it has not been trained on.",
        test=_flattened_on_black,
    ),
    "test-answers-are-class-ids": Case(
        names=("answer_relation",),
        cause="The gold answers of the test set are ids of classes (a label encoder over the answers sorted as "
        "texts) and not the answers: right replies are judged wrong.",
        test=_label_encoded,
    ),
    "answers-joined-on-question-text": Case(
        names=("gold_by_text",),
        cause="The gold answers, of training and test, were joined on the text of the question without the image: "
        "all images with the same question have the answer of the first one, so right traces are dropped as wrong.",
        questions=_joined_on_question,
        test=_joined_on_question,
    ),
    # Broken: teachers.
    "gateway-caches-by-text": Case(
        names=("same_reply",),
        cause="The gateway before the teachers caches by the text of the request and ignores the image: each "
        "question gets the reply that was written for the first image with that question.",
        trace=_cached_by_text(),
    ),
    "thinking-comes-as-summary": Case(
        names=("rationales_are_summaries",),
        cause="The hosted teachers return a summary of their thinking and not the thinking: the rationales say what "
        "was done, without any value that was read or any calculation, so the student has no steps to learn.",
        trace=_summarised,
    ),
    "thinking-budget-too-small": Case(
        names=("rationales_cut_by_thinking_budget",),
        cause="The teachers' server closes their thinking after some ten tokens (its default thinking budget): "
        "nearly all rationales break off in the middle of a reading, and the answer follows without the steps to it.",
        trace=_budget_spent,
    ),
    # Broken: settings.
    "tolerance-in-percent": Case(
        names=("unusual filter.answer.relative_tolerance",),
        cause="filter.answer.relative_tolerance = 5 was meant as 5 percent and is 500 percent: wrong traces pass the "
        "filter as correct, and the evaluation counts nearly every number as right.",
        set={"filter.answer.relative_tolerance": 5.0},
        trace=lambda sample, written: misread(sample, written, MISREAD_OF_TEN),
    ),
    "short-rows-first-and-stopped": Case(
        names=("test_group_untrained",),
        cause='stages.reason.order = "length" sorts the rows from short to long and max_steps ends the stage within '
        "the first third: the student sees the short rationales of charts and no rationale of a scene.",
        questions=lambda rows: table_rows("questions", 1800),
        set={f"{STAGE}order": "length"},
    ),
    # Broken: students.
    "vision-tower-not-loaded": Case(
        names=("tower_untrained",),
        cause="The student's vision tower has random weights (they were not found when the checkpoint was "
        "converted), and the tower is frozen: the student cannot see what is in an image.",
        before=_tower_not_loaded,
    ),
    "processor-shrinks-images": Case(
        names=("pixels_unusual",),
        cause="The student's image processor resizes every image to 6 pixels (size.longest_edge) before it enlarges "
        "it for the tower: bars, digits and shapes cannot be read any more.",
        before=_processor_shrinks,
    ),
    # Healthy.
    "healthy-eight-questions-for-all-images": Case(
        questions=_few_questions("questions"),
        test=_few_questions("test"),
    ),
    "healthy-training-without-gold": Case(questions=_unlabelled),
    "healthy-teachers-check-themselves": Case(trace=_checked_again),
    "healthy-telegram-rationales": Case(trace=_telegram),
}
