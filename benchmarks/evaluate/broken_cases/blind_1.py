"""Blind set 1: 14 broken runs and 4 healthy, unusual ones, by a writer who did not know the rules."""

import io
from dataclasses import replace
from typing import Any, Final

import numpy as np
from broken_cases.case import STAGE, TEACHERS, Case, Row, draw, result_of, retold
from PIL import Image
from questions import rationale
from world import Picture, Question

from distill.types import Sample, Trace

# --- how questions and test questions are changed ------------------------------------------------------------------


def _image_ids(rows: list[Row]) -> list[Row]:
    """Add a column with the number of the image in its catalogue."""
    return [row | {"picture_id": str(1000 + number)} for number, row in enumerate(rows)]


def _no_digits(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["domain"] != "digits"]


def _scenes(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["domain"] == "scenes"]


def _single_digit(rows: list[Row]) -> list[Row]:
    return [row for row in rows if len(row["answer"]) == 1]


def _told(rows: list[Row]) -> list[Row]:
    """Leave the gold answer in the text of the question, as a dump of an annotation tool does."""
    return [row | {"question": f"{row['question']} (answer: {row['answer']})"} for row in rows]


def _sentences(rows: list[Row]) -> list[Row]:
    """Give gold answers as whole sentences, as another annotator of the test set writes them."""
    return [
        {key: value for key, value in row.items() if key != "answer_type"}
        | {"answer": f"Looking at the picture, one finds that it is {row['answer']} altogether."}
        for row in rows
    ]


def _placeholders(rows: list[Row]) -> list[Row]:
    """Give every row an almost even grey image, as a failed download leaves it."""
    changed = []
    for number, row in enumerate(rows):
        pixels = np.random.default_rng(number).integers(205, 208, (96, 96, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        changed.append(row | {"image": row["image"] | {"bytes": buffer.getvalue()}})
    return changed


# --- how traces are changed ----------------------------------------------------------------------------------------


def _refuses(sample: Sample, written: Trace) -> Trace:
    """Decline seven of ten requests, whichever teacher it is."""
    if draw(written) >= 7:
        return written
    text = "I'm sorry, but I can't help with identifying what is shown in this image."
    usage = replace(written.usage, reasoning=0, answer=len(text.split()))
    return replace(written, reasoning="", answer=text, text=text, usage=usage, outcome="refusal")


def _chinese(sample: Sample, written: Trace) -> Trace:
    """The teacher of digits thinks in Chinese; its numbers and its answer are right."""
    if written.teacher != "reader":
        return written
    reasoning = written.reasoning
    for english, chinese in (
        ("The image reads ", "图片中的数字依次是 "),
        ("Transcript: ", "先把图片中的数字抄写下来："),
        ("The top row is ", "上面一行的数字是 "),
        ("The bottom row is ", "下面一行的数字是 "),
        ("The largest is ", "其中最大的数字是 "),
        (", the smallest is ", "，最小的数字是 "),
        ("The largest are ", "两行中最大的数字分别是 "),
        (" and ", " 和 "),
        (". ", "。因此可以这样计算："),
        (".", "。"),
    ):
        reasoning = reasoning.replace(english, chinese)
    return retold(written, f"我们先仔细看一下这张图片，然后一步一步地计算。{reasoning}")


def _contradicts(sample: Sample, written: Trace) -> Trace:
    """Conclude the rationale of four of five traces with another number than the answer that follows it."""
    if draw(written) < 2:
        return written
    other = int(written.answer) + 2 + written.k
    return retold(written, f"{written.reasoning}\nTherefore the answer is {other}.")


def _elsewhere(content: dict[str, Any], domain: str, rng: np.random.Generator) -> dict[str, Any]:
    """What another image of the same kind could show."""
    if domain == "scenes":
        return content | {"cells": [str(cell) for cell in rng.permutation(content["cells"])]}
    if domain == "charts":
        return content | {"bars": {colour: int(rng.integers(1, 10)) for colour in content["bars"]}}
    return content | {"digits": [int(digit) for digit in rng.integers(0, 10, size=6)]}


def _other_image(sample: Sample, written: Trace) -> Trace:
    """Describe another image that happens to have the same answer: the teacher saw the answer, not the image."""
    meta = dict(sample.meta)
    kind, terms = meta["kind"], tuple(meta["terms"])
    content = {key: value for key, value in meta.items() if key not in ("kind", "terms")}
    rng = np.random.default_rng([7, written.k, *sample.id.encode()[:8]])
    made = content
    for _ in range(5000):
        made = _elsewhere(content, sample.domain, rng)
        # Cells that change places are counted alike.
        if sample.domain == "scenes" or result_of(made, kind, terms) == int(written.answer):
            break
    else:
        made = content
    question = Question(kind=kind, terms=terms, text=sample.question, answer=written.answer)
    return retold(written, rationale(Picture(domain=sample.domain, content=made), question, rng))


_SIX = {f"teachers.{name}.samples": 6 for name in TEACHERS.values()}

CASES: Final[dict[str, Case]] = {
    # --- healthy, but unusual ---
    "healthy_scenes": Case(questions=_scenes, test=_scenes),
    "healthy_single_digit": Case(questions=_single_digit, test=_single_digit),
    "healthy_six_samples": Case(set=_SIX | {"seed": 11}),
    "healthy_one_in_six": Case(set=_SIX | {"filter.select.per_question": 1}),
    # --- broken: visible in what filter writes ---
    "gold_id_column": Case(
        cause=(
            "The gold answers are the picture ids (1000, 1001, ...): data.questions.columns.answer "
            "names the wrong column, so every right trace counts as wrong; set it to the column that "
            "holds the answer."
        ),
        refused="belong to other questions",
        questions=_image_ids,
        set={"data.questions.columns.answer": "picture_id"},
        train=False,
    ),
    "teacher_refuses": Case(
        cause=(
            "The teachers decline about seven of ten requests ('I'm sorry, but I can't help'), so "
            "most traces are lost: change the prompt or system prompt of the teachers, set "
            "generate.outcomes.refusal to resample, or take another teacher."
        ),
        names=("teacher_declines",),
        trace=_refuses,
        train=False,
    ),
    "teacher_chinese": Case(
        cause=(
            "The teacher reader (digits) writes its rationales in Chinese although questions and "
            "answers are English: ask for English in teachers.reader.system or prompt, or take "
            "another teacher."
        ),
        names=("teacher_language",),
        trace=_chinese,
        train=False,
    ),
    "rationale_contradicts": Case(
        cause=(
            "In about four of five traces the rationale concludes with another number than the answer"
            " that follows it, so reasoning and answer do not belong together: look at the teachers' "
            "prompt and how their text is parsed, and drop such traces by the conclusion signal."
        ),
        names=("contradicted",),
        trace=_contradicts,
        train=False,
    ),
    "mix_one_domain": Case(
        cause=(
            "The dataset has only charts because filter.select.mix gives charts a share of 1.0; good "
            "traces of scenes and digits are thrown away: change the shares."
        ),
        names=("mix",),
        text='\n[[filter.select.mix]]\nby = "domain"\nshares = { charts = 1.0 }\n',
        train=False,
    ),
    "answer_in_question": Case(
        cause=(
            "The text of every training question holds its gold answer ('(answer: 5)'), so neither "
            "teacher nor student has to look at the image: clean the question column of "
            "data.questions or choose another in data.questions.columns.question."
        ),
        names=("answer_in_question",),
        questions=_told,
        train=False,
    ),
    # --- broken: the student is worse, or is measured wrongly ---
    "rationale_other_image": Case(
        cause=(
            "The rationales describe other pictures than those of their questions although the "
            "answers are right, so the student learns to make up what it sees: look at the traces "
            "beside their images, at what the teacher was shown (images, hints), and use the "
            "grounding signal."
        ),
        names=("ungrounded",),
        trace=_other_image,
    ),
    "domain_missing": Case(
        cause=(
            "The training questions have no digits but a third of the test questions are digits, "
            "which the student answers badly: add questions of that domain to data.questions, or test"
            " without them."
        ),
        names=("test_group_untrained",),
        questions=_no_digits,
    ),
    "rows_too_long": Case(
        cause=(
            "stages.reason.max_length = 64 leaves out most rows as too long (all scenes, most "
            "digits), so the student learned from little but charts: raise max_length to some 200 or "
            "more."
        ),
        names=("rows_left_out",),
        set={f"{STAGE}max_length": 64},
    ),
    "debug_limit": Case(
        cause=(
            "stages.reason.limit = 12 lets the stage use only 12 of some 700 traces, which it repeats"
            " about 70 times and memorises: remove the limit."
        ),
        names=("few_rows",),
        set={f"{STAGE}limit": 12},
    ),
    "replay_heavy": Case(
        cause=(
            "stages.reason.replay gives the readings 97 % of the tokens, so the student hardly sees a"
            " trace and does not learn to reason: lower it to 0.1 to 0.3."
        ),
        names=("unusual stages.*.replay",),
        set={f"{STAGE}replay.readings": 0.97},
    ),
    "projector_only": Case(
        cause=(
            "stages.reason.train is only the projector, so the language model, which has to write the"
            " rationales, learns nothing: add 'language' to it."
        ),
        names=("language_frozen",),
        set={f"{STAGE}train": ["projector"]},
    ),
    "test_images_blank": Case(
        cause=(
            "The images of the test rows are empty grey placeholders, so the student cannot see what "
            "is asked and its accuracy says nothing about the training: look at the image files of "
            "data.test (images_root, download)."
        ),
        names=("test_images_plain",),
        test=_placeholders,
    ),
    "test_gold_sentences": Case(
        cause=(
            "The gold answers of the test rows are whole sentences while student and training answers"
            " are bare numbers, so right replies cannot count as right: clean the answer column of "
            "data.test (bare number, answer_type number)."
        ),
        names=("replies_undecided",),
        test=_sentences,
    ),
}
