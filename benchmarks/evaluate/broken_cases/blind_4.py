"""Runs of the fourth writer who did not know the rules of the diagnosis: 16 broken ones and 5 healthy, unusual ones.

A name that no finding has, such as `images_turned`, stands for a cause that the diagnosis does not name yet.
"""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broken_cases.case import (
    MORE_TRAINING,
    RULE,
    STAGE,
    TEACHERS,
    TINY,
    Case,
    Row,
    draw,
    of_all_teachers,
    result_of,
    retold,
    student_copy,
)
from PIL import Image

from distill.types import Sample, Trace

EditImage = Callable[[Image.Image], Image.Image]
DIGEST: Final = 16
"""The base of the ids of traces, from which cases take their numbers."""


# --- parts that several cases share ---------------------------------------------------------------------


def _image(row: Row, edit: EditImage, kind: str = "PNG", **options: Any) -> dict[str, Any]:
    """The image of a row after an edit, as a cell of a table."""
    buffer = io.BytesIO()
    edit(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")).save(buffer, kind, **options)
    return {"bytes": buffer.getvalue(), "path": None}


def _beside(rows: list[Row], edit: EditImage, kind: str = "PNG", **options: Any) -> list[Row]:
    """Put the edited image into a column of its own; teachers still saw the one in `image`."""
    return [row | {"photo": _image(row, edit, kind, **options)} for row in rows]


PHOTO: Final = {"data.questions.columns.image": "photo"}


def _guess(written: Trace, place: int) -> int:
    """A digit from 1 to 9 that belongs to the trace and the place."""
    return 1 + int(written.id[place : place + 4], DIGEST) % 9


# --- data -----------------------------------------------------------------------------------------------


def _as_index_of_choice(rows: list[Row]) -> list[Row]:
    """Multiple-choice rows as ScienceQA has them: `answer` is the place of the right choice, from 0."""
    edited = []
    for number, row in enumerate(rows):
        right = int(row["answer"])
        place = (number * 7 + right) % 4
        choices = [str(right + 2 * (each - place)) for each in range(4)]
        edited.append(row | {"answer": str(place), "choices": choices})
    return edited


def _tables_of_the_next_chart(rows: list[Row]) -> list[Row]:
    """Join the tables of charts one row too late."""
    charts = [row for row in rows if row["domain"] == "charts"]
    tables = [json.loads(row["meta"])["bars"] for row in charts]
    late = {row["image"]["bytes"]: table for row, table in zip(charts, tables[1:] + tables[:1], strict=True)}
    return [
        row | {"meta": json.dumps(json.loads(row["meta"]) | {"bars": late[row["image"]["bytes"]]})}
        if row["domain"] == "charts"
        else row
        for row in rows
    ]


def _unfilled(rows: list[Row]) -> list[Row]:
    """Questions whose template was never filled: "How many {first}s and {second}s are there in total?"."""
    edited = []
    for row in rows:
        terms = json.loads(row["meta"])["terms"] if row["domain"] != "digits" else []
        text = row["question"]
        for name, term in zip(("{first}", "{second}"), terms, strict=False):
            text = text.replace(term, name)
        edited.append(row | {"question": text})
    return edited


def _guessed_terms(sample: Sample, written: Trace) -> Trace:
    """A teacher that does not know which two things are meant takes two of its own."""
    if "{first}" not in sample.question:
        return written
    content = dict(sample.meta)
    words = list(content["bars"]) if "bars" in content else ["red", "blue", "green", "yellow"]
    start = draw(written)
    first, second = words[start % 4], words[(start + 1 + start % 3) % 4]
    counts = [result_of(content, "total", (word, "none")) if "cells" in content else 0 for word in (first, second)]
    if "bars" in content:
        counts = [content["bars"][first], content["bars"][second]]
    few, many = sorted(counts)
    adds = content["kind"] in ("sum", "total")
    result = few + many if adds else many - few
    sum_text = f"{many} {'+' if adds else '-'} {few} = {result}"
    return retold(
        written, f"I take {first} and {second}. {first} {counts[0]}, {second} {counts[1]}: {sum_text}.", str(result)
    )


def _domains_exchanged(rows: list[Row]) -> list[Row]:
    """Charts are labelled digits and digits are labelled charts."""
    other = {"charts": "digits", "digits": "charts"}
    return [row | {"domain": other.get(row["domain"], row["domain"])} for row in rows]


def _by_the_labelled_teacher(sample: Sample, written: Trace) -> Trace:
    """The teacher of the labelled domain writes about an image of a kind that it does not know."""
    asked = TEACHERS[sample.domain]
    if asked == written.teacher:
        return written
    digits = [_guess(written, place) for place in range(6)]
    if asked == "reader":
        top, bottom = max(digits[:3]), max(digits[3:])
        read = " ".join(map(str, digits[:3])) + " / " + " ".join(map(str, digits[3:]))
        said = f"The image reads {read}.\nThe largest are {top} and {bottom}. {top} + {bottom} = {top + bottom}."
    else:
        top, bottom = digits[:2]
        said = f"The chart shows red {top}, blue {bottom}: {top} + {bottom} = {top + bottom}."
    return retold(written, said, str(top + bottom), teacher=asked, model=f"teachers/{asked}")


def _floats(rows: list[Row]) -> list[Row]:
    """Golds that pandas has read as floats."""
    return [row | {"answer": f"{row['answer']}.0"} for row in rows]


def _third_without_gold(rows: list[Row]) -> list[Row]:
    return [row | {"answer": None if number % 3 == 1 else row["answer"]} for number, row in enumerate(rows)]


# --- images ---------------------------------------------------------------------------------------------


def _blue_first(image: Image.Image) -> Image.Image:
    """What OpenCV writes when RGB pixels are taken for BGR."""
    red, green, blue = image.split()
    return Image.merge("RGB", (blue, green, red))


def _on_its_side(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.ROTATE_90)


def _test_on_its_side(rows: list[Row]) -> list[Row]:
    return [row | {"image": _image(row, _on_its_side)} for row in rows]


# --- teachers -------------------------------------------------------------------------------------------


def _stopped_at_the_line(sample: Sample, written: Trace) -> Trace:
    """The stop text "\\n" ends every rationale of several lines after its first line."""
    line, found, _ = written.reasoning.partition("\n")
    if not found:
        return written
    ended = retold(written, line, "", outcome="empty_answer", stop_reason="\n", attempt=0)
    return replace(ended, text=f"<think>{line}", usage=replace(ended.usage, answer=0))


EXAMPLE: Final = (
    "Example. Question: What is the sum of the red and the blue bar? red 3, blue 4: 3 + 4 = 7. Answer: 7\n"
    "Question: {question}"
)


def _answers_the_example(sample: Sample, written: Trace) -> Trace:
    """Seven of ten traces solve the example of the prompt again."""
    return retold(written, "The chart shows red 3, blue 4: 3 + 4 = 7.", "7") if draw(written) < 7 else written


def _second_is_a_stub(sample: Sample, written: Trace) -> Trace:
    """The second trace of each question has the right answer after some words without content."""
    return retold(written, f"The answer is {written.answer}.") if written.k == 1 else written


def _misread(written: Trace) -> Trace:
    first, second = _guess(written, 0), _guess(written, 4)
    if str(first + second) == written.answer:
        second += 1
    return retold(written, f"I see {first} and {second}: {first} + {second} = {first + second}.", str(first + second))


def _half_misread(sample: Sample, written: Trace) -> Trace:
    return _misread(written) if draw(written) < 5 else written


def _few_misread(sample: Sample, written: Trace) -> Trace:
    return _misread(written) if int(written.id[:4], DIGEST) % 20 == 0 else written


# --- student and evaluation -----------------------------------------------------------------------------


def _normalised_in_bytes(folder: Path) -> None:
    """Mean and deviation of pixels from 0 to 255, though pixels are first scaled to 0 to 1."""
    path = student_copy(folder) / "processor_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["image_processor"] |= {"image_mean": [127.5] * 3, "image_std": [127.5] * 3}
    path.write_text(json.dumps(config), encoding="utf-8")


def _letters(rows: list[Row]) -> list[Row]:
    """The key of a multiple-choice test: letters of options that the questions do not list."""
    return [
        row | {"answer": "ABCD"[(number + int(row["answer"])) % 4], "answer_type": "choice"}
        for number, row in enumerate(rows)
    ]


# --- the runs -------------------------------------------------------------------------------------------

MISREAD_RULES: Final = (
    RULE.format(name="incomplete", drop="outcome <> 'complete'")
    + RULE.format(name="wrong_answer", drop="answer_verdict = 'wrong'")
    + RULE.format(name="misread", drop="unsupported_values > 0")
)
CAPTIONS: Final = f'\n[data.captions]\nsource = "{TINY}/data/captions.parquet"\n'

CASES: Final = {
    "gold_is_the_index_of_a_choice": Case(
        names=("gold_is_index",),
        cause="The answer column of the questions holds the index (0 to 3) of the right entry of `choices`, not "
        "the answer itself, so right traces are judged wrong: use the text of the choice (format "
        "scienceqa).",
        questions=_as_index_of_choice,
    ),
    "tables_joined_one_row_late": Case(
        names=("rows_lost",),
        cause="The tables in meta.bars belong to the next chart, so the rule misread (unsupported_values) drops "
        "nearly all traces of charts although their answers are right: correct the join, or drop the rule.",
        questions=_tables_of_the_next_chart,
        text=MISREAD_RULES,
    ),
    "unfilled_template": Case(
        names=("unfilled_template",),
        cause="Half of the texts in the question column are unfilled templates with {first} and {second}, so the "
        "teachers guess what is asked and are wrong: fill the templates.",
        questions=_unfilled,
        trace=_guessed_terms,
    ),
    "domains_exchanged": Case(
        names=("domains_exchanged",),
        cause="The domain column calls charts digits and digits charts, so the teachers analyst and reader are "
        "asked about each other's images and are wrong: correct the labels.",
        questions=_domains_exchanged,
        trace=_by_the_labelled_teacher,
    ),
    "training_images_bgr": Case(
        names=("channels_exchanged",),
        cause="The training images have red and blue exchanged (BGR), so their colours contradict the rationales "
        "and the test images: write the images of the questions as RGB.",
        set=PHOTO,
        questions=lambda rows: _beside(rows, _blue_first),
    ),
    "test_images_on_their_side": Case(
        names=("images_turned",),
        cause="The test images are turned by 90 degrees against the training images (orientation lost): turn them"
        " back.",
        test=_test_on_its_side,
    ),
    "stop_at_newline": Case(
        names=("no_answer",),
        cause='sampling.stop = ["\\n"] ends each rationale after its first line, so scenes and digits have no '
        "answer and only charts are left: remove the stop text.",
        set=of_all_teachers("sampling.stop", ["\n"]),
        trace=_stopped_at_the_line,
    ),
    "example_in_the_prompt_answered": Case(
        names=("example_answered",),
        cause="The teachers answer the worked example in `prompt` (7) and not the question: most wrong answers "
        "are 7; remove or mark off the example.",
        set=of_all_teachers("prompt", EXAMPLE),
        trace=_answers_the_example,
    ),
    "stubs_selected": Case(
        names=("no_reasoning",),
        cause="filter.select with per_question = 1 takes the shortest trace, and each question has one without "
        "any reasoning (The answer is N.): change filter.select.order or drop short rationales.",
        set={"filter.select.per_question": 1},
        trace=_second_is_a_stub,
    ),
    "tolerance_in_percent": Case(
        names=("unusual filter.answer.relative_tolerance",),
        cause="filter.answer.relative_tolerance = 5.0 means 500 %, so wrong traces are kept and wrong replies "
        "count as right: 5 % is 0.05.",
        set={"filter.answer.relative_tolerance": 5.0},
        trace=_half_misread,
    ),
    "weight_upside_down": Case(
        names=("weightless",),
        cause='filter.select.weight = "1 - self_consistency" gives weight 0 to the rows on which all traces '
        "agree, so the stage learns from a few rows only: use self_consistency.",
        set={"filter.select.weight": "1 - self_consistency"},
        trace=_few_misread,
    ),
    "instruct_after_reason": Case(
        names=("forgotten",),
        cause="The stage instruct comes after reason and trains on answers without rationale, so the evaluated "
        "student forgets to reason: put instruct before reason, or evaluate reason.",
        text=MORE_TRAINING.format(name="instruct", data="instruct", rate="1e-3", steps=40),
        set={"eval.arms.distilled": "instruct"},
    ),
    "one_teacher_in_the_stage": Case(
        names=("rows_lost", "test_group_untrained"),
        cause="stages.reason.teachers names only structured, so the traces of analyst and reader (charts, digits)"
        " are not trained on: name all three or leave the key out.",
        set={STAGE + "teachers.structured": 1.0},
    ),
    "validated_on_captions": Case(
        names=("validation_source",),
        cause="stages.reason.validation.data is captions, which the student never answers right, so patience = 1 "
        "stops the stage after 10 of 60 steps: validate on questions like those of the test.",
        text=CAPTIONS,
        set={
            STAGE + "validation.data": "captions",
            STAGE + "validation.metric": "accuracy",
            STAGE + "validation.every_steps": 5,
            STAGE + "validation.questions": 16,
            STAGE + "validation.max_new_tokens": 64,
            STAGE + "validation.patience": 1,
        },
    ),
    "normalised_in_bytes": Case(
        names=("pixels_out_of_range",),
        cause="image_mean and image_std in the student's processor_config.json are for pixels up to 255, but "
        "pixels are scaled to 1 first, so every image is one flat grey to the student: set both to 0.5.",
        before=_normalised_in_bytes,
    ),
    "test_golds_are_letters": Case(
        names=("answers_unlike_gold",),
        cause="The golds of the test set are option letters (A to D) but the questions list no options, so right "
        "numbers count as wrong: put the options into the questions or the texts into the answer column.",
        test=_letters,
    ),
    "healthy_golds_as_floats": Case(questions=_floats, test=_floats),
    "healthy_jpeg_twice_as_large": Case(
        set=PHOTO,
        questions=lambda rows: _beside(
            rows, lambda image: image.resize((192, 192), Image.Resampling.BICUBIC), "JPEG", quality=92
        ),
    ),
    "healthy_plain_rationale": Case(set={"filter.rationale": "plain"}),
    "healthy_third_without_gold": Case(questions=_third_without_gold),
    "healthy_slower_second_stage": Case(
        text=MORE_TRAINING.format(name="polish", data="traces", rate="3e-4", steps=30),
        set={"eval.arms.distilled": "polish"},
    ),
}
