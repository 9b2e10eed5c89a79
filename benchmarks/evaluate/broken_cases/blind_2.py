"""Blind set 2: 16 broken runs and 4 healthy, unusual ones, of other kinds than those before.

Where a setting of a teacher is the fault, the traces are written as that teacher would write them then.
"""

import json
from dataclasses import replace
from typing import Any, Final

import numpy as np
from broken_cases.case import (
    MORE_TRAINING,
    RULE,
    STAGE,
    Case,
    Row,
    draw,
    of_all_teachers,
    often_wrong,
    result_of,
    retold,
)
from questions import caption, rationale
from world import Picture, Question

from distill.types import Sample, Trace

# --- how questions and test questions are changed ------------------------------------------------------------------


def _off_by_one(rows: list[Row]) -> list[Row]:
    """Give the questions about digits a gold answer that is one too large, as an export that counts from 1 does."""
    return [row | {"answer": str(int(row["answer"]) + 1)} if row["domain"] == "digits" else row for row in rows]


def _untyped(rows: list[Row]) -> list[Row]:
    """Leave out the column of answer types, which is optional."""
    return [{key: value for key, value in row.items() if key != "answer_type"} for row in rows]


def _five(rows: list[Row]) -> list[Row]:
    """Keep five rows, of all three domains."""
    return rows[::12][:5]


_THINGS = {"circle": "Kreise", "square": "Quadrate", "triangle": "Dreiecke"}
_COLOURS = {
    "red": "rote",
    "blue": "blaue",
    "green": "grüne",
    "yellow": "gelbe",
    "purple": "violette",
    "orange": "orangefarbene",
}
_GERMAN = {
    "total": "Wie viele {0} und {1} gibt es insgesamt?",
    "more": "Wie viele {0} gibt es mehr als {1}?",
    "sum": "Wie hoch sind der {0} und der {1} Balken zusammen?",
    "difference": "Um wie viel ist der {0} Balken höher als der {1} Balken?",
    "row": "Wie groß ist die Summe der Ziffern in der {0} Reihe?",
    "largest": "Wie groß ist die größte Ziffer der oberen Reihe plus die größte Ziffer der unteren Reihe?",
}


def _in_german(row: Row) -> str:
    """The question of a row in German."""
    meta = json.loads(row["meta"])
    kind, domain = meta["kind"], row["domain"]
    if domain == "charts" and kind in ("total", "range"):
        return (
            "Wie hoch sind alle Balken zusammen?"
            if kind == "total"
            else "Wie groß ist der höchste Wert minus der niedrigste Wert?"
        )
    if domain == "digits" and kind == "range":
        return "Wie groß ist die größte Ziffer minus die kleinste Ziffer?"
    if domain == "scenes":
        terms = [_THINGS.get(term) or f"{_COLOURS[term]} Formen" for term in meta["terms"]]
    else:
        terms = [_COLOURS.get(term) or {"top": "oberen", "bottom": "unteren"}[term] for term in meta["terms"]]
    return _GERMAN[kind].format(*terms)


def _german(rows: list[Row]) -> list[Row]:
    return [row | {"question": _in_german(row)} for row in rows]


# --- how traces are changed ----------------------------------------------------------------------------------------


def _shown(sample: Sample) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """What the image of a sample shows, and kind and terms of its question."""
    meta = dict(sample.meta)
    content = {key: value for key, value in meta.items() if key not in ("kind", "terms")}
    return content, meta["kind"], tuple(meta["terms"])


def _silent(sample: Sample, written: Trace) -> Trace:
    """Think nothing: an empty block, then the right answer."""
    usage = replace(written.usage, reasoning=0)
    return replace(written, reasoning="", text=f"<think>\n\n</think>\n\n{written.answer}", usage=usage)


def _parrots(sample: Sample, written: Trace) -> Trace:
    """Repeat the answer that the prompt gives, in place of a rationale."""
    answer = written.answer
    reasoning = (
        f"The correct answer is given as {answer}. The picture is consistent with that, so the answer is {answer}.",
        f"We are told that the correct answer is {answer}, so what the picture shows must come to {answer}.",
    )[written.k % 2]
    return retold(written, reasoning, hinted=True)


def _unasked(sample: Sample, written: Trace) -> Trace:
    """Describe the image and end with a number in it: the teacher was not told what is asked."""
    content, _, _ = _shown(sample)
    if sample.domain == "scenes":
        answer = sum(cell != "empty" for cell in content["cells"])
    elif sample.domain == "charts":
        answer = max(content["bars"].values())
    else:
        answer = sum(content["digits"])
    lead = ("The picture shows the following.", "Here is what can be seen.")[written.k % 2]
    return retold(written, f"{lead} {caption(Picture(domain=sample.domain, content=content))}", str(answer))


def _invented(content: dict[str, Any], domain: str, rng: np.random.Generator) -> dict[str, Any]:
    """A made-up image of the same kind, with bars of the same colours."""
    if domain == "scenes":
        things = [f"{colour} {shape}" for colour in ("red", "blue", "green", "yellow") for shape in _THINGS]
        cells = ["empty" if rng.random() < 0.3 else str(rng.choice(things)) for _ in content["cells"]]
        return content | {"cells": cells}
    if domain == "charts":
        return content | {"bars": {colour: int(rng.integers(1, 10)) for colour in content["bars"]}}
    return content | {"digits": [int(digit) for digit in rng.integers(0, 10, size=6)]}


def _unseen(sample: Sample, written: Trace) -> Trace:
    """Reason about a made-up image: the image never reached the teacher, so its prompt has no image tokens."""
    content, kind, terms = _shown(sample)
    rng = np.random.default_rng([11, written.k, *sample.id.encode()[:8]])
    made = _invented(content, sample.domain, rng)
    answer = str(result_of(made, kind, terms))
    question = Question(kind=kind, terms=terms, text=sample.question, answer=answer)
    told = retold(written, rationale(Picture(domain=sample.domain, content=made), question, rng), answer)
    return replace(told, usage=replace(told.usage, prompt=written.usage.prompt - written.usage.image, image=0))


def _sometimes_wrong(sample: Sample, written: Trace) -> Trace:
    """Miscount in one of ten traces, as any teacher does."""
    if draw(written) != 0:
        return written
    return retold(written, written.reasoning, str(int(written.answer) + 1))


CASES: Final[dict[str, Case]] = {
    # --- healthy, but unusual ---
    "healthy_constant_rate": Case(
        set={f"{STAGE}schedule": "constant", f"{STAGE}learning_rate": 5e-4, f"{STAGE}weight_decay": 0.01}
    ),
    "healthy_two_stages": Case(
        text=MORE_TRAINING.format(name="more", data="traces", rate=3e-4, steps=30),
        set={"eval.arms.distilled": "more"},
    ),
    "healthy_few_errors": Case(trace=_sometimes_wrong),
    "healthy_untyped": Case(questions=_untyped, test=_untyped),
    # --- broken: visible in what filter writes ---
    "gold_off_by_one": Case(
        cause=(
            "The gold answers of the digits questions in data.questions are all one too large (a bad "
            "export), so every right trace of the teacher reader is dropped as wrong and the dataset "
            "has no digits: the gold of that domain is wrong, not the teacher; correct the answer "
            "column."
        ),
        names=("teacher_wrong",),
        questions=_off_by_one,
        train=False,
    ),
    "thinking_empty": Case(
        cause=(
            "All traces have an empty think block: the teachers answer without reasoning because "
            "teachers.*.chat_template_kwargs.enable_thinking is false, so there is no rationale to "
            "learn from; turn it on."
        ),
        names=("teacher_format",),
        trace=_silent,
        set=of_all_teachers("chat_template_kwargs.enable_thinking", False),
        train=False,
    ),
    "hint_parroted": Case(
        cause=(
            "The teachers are shown the gold answer (teachers.*.hinted = true with {answer} in the "
            "prompt) and their rationales only repeat it ('The correct answer is given as 5') in "
            "place of reasoning from the image: remove the hint, or reword the prompt and drop hinted"
            " traces."
        ),
        names=("hints_told",),
        trace=_parrots,
        set=of_all_teachers("hinted", True)
        | of_all_teachers("prompt", "{question}\nThe correct answer is {answer}. Explain it."),
        train=False,
    ),
    "question_column": Case(
        cause=(
            "data.questions.columns.question names the column of domains, so every question is only "
            "'scenes', 'charts' or 'digits' and the teachers were never told what is asked; they "
            "describe the picture and nearly all answers are wrong: name the column that holds the "
            "question."
        ),
        names=("gold_or_images",),
        trace=_unasked,
        set={"data.questions.columns.question": "domain"},
        train=False,
    ),
    "teacher_sees_no_image": Case(
        cause=(
            "The images do not reach the teachers (no image tokens in any prompt); they invent "
            "pictures, so about nine of ten answers are wrong and the others right by chance: check that"
            " model, server and teachers.*.images really pass images."
        ),
        names=("images_unseen",),
        trace=_unseen,
        train=False,
    ),
    "rules_replaced": Case(
        cause=(
            "The recipe's own filter.rules (only 'too_long') replace the default ones, so no rule "
            "drops wrong answers any more and about 60 % of the dataset's traces have a wrong answer:"
            " add wrong_answer and the other default rules again."
        ),
        names=("wrong",),
        trace=often_wrong,
        text=RULE.format(name="too_long", drop="rationale_tokens > 400"),
        train=False,
    ),
    "weights_zero": Case(
        cause=(
            "filter.select.weight = '1 - question_pass_rate' is 0 for every row, because every "
            "question's traces are all right, so the stage would learn nothing from the traces: "
            "change the expression so that it stays above 0, or leave it out."
        ),
        names=("weightless",),
        set={"filter.select.weight": "1 - question_pass_rate"},
        train=False,
    ),
    # --- broken: the student is worse, or is measured wrongly ---
    "lora_alpha_small": Case(
        cause=(
            "stages.reason.lora.alpha = 1 with rank = 64 scales the adapters by 1/64, so the language"
            " model hardly changes and does not learn to reason: set alpha to about twice the rank "
            "(or a higher learning rate)."
        ),
        names=("unusual stages.*.lora.alpha",),
        set={f"{STAGE}lora.rank": 64, f"{STAGE}lora.alpha": 1},
    ),
    "no_think_all": Case(
        cause=(
            "stages.reason.no_think = 1 lets every trace be learned without its rationale, so the "
            "student learns only bare answers after '/no_think' and does not reason when it is asked "
            "normally: set it to 0 or some 0.2."
        ),
        names=("unusual stages.*.no_think",),
        set={f"{STAGE}no_think": 1.0},
    ),
    "early_stopping": Case(
        cause=(
            "stages.reason.validation stops the stage after a few of its 60 steps: patience = 1, "
            "measured every 2 steps on only 3 questions of another kind (instruct); raise patience, "
            "every_steps and questions, and validate on questions of the kind that is trained."
        ),
        names=("stopped_early",),
        set={
            f"{STAGE}validation.data": "instruct",
            f"{STAGE}validation.questions": 3,
            f"{STAGE}validation.every_steps": 2,
            f"{STAGE}validation.metric": "accuracy",
            f"{STAGE}validation.patience": 1,
        },
    ),
    "second_stage_forgets": Case(
        cause=(
            "The second stage, polish, trains on instruct (bare answers, no rationales) at the full "
            "learning rate and makes the student forget the reasoning that the stage reason taught: "
            "remove it, lower its learning rate, or replay traces in it; or evaluate the student of "
            "reason."
        ),
        names=("forgotten",),
        text=MORE_TRAINING.format(name="polish", data="instruct", rate=1e-3, steps=60),
        set={"eval.arms.distilled": "polish"},
    ),
    "eval_base_arm": Case(
        cause=(
            "eval.arms.distilled is 'base', the student before any training, so the evaluation says "
            "nothing about the trained student: set it to the stage 'reason'."
        ),
        names=("no_trained_arm",),
        set={"eval.arms.distilled": "base"},
    ),
    "eval_temperature": Case(
        cause=(
            "eval.temperature = 2.0 draws the replies almost at random, so the student derails and "
            "its accuracy is far too low: set it to 0 (greedy)."
        ),
        names=("unusual eval.temperature",),
        set={"eval.temperature": 2.0},
    ),
    "tolerance_lax": Case(
        cause=(
            "filter.answer.relative_tolerance = 1.0 counts every number within 100 % of the gold "
            "answer as right, so wrong answers count as right and the accuracy is far too high: set "
            "it to 0, or 0.01 for one per cent."
        ),
        names=("unusual filter.answer.relative_tolerance",),
        set={"filter.answer.relative_tolerance": 1.0},
    ),
    "test_five_questions": Case(
        cause=(
            "The test set has only 5 questions, so the accuracy is uncertain by some 40 points and no"
            " comparison of students means anything: use more rows in data.test (several hundred)."
        ),
        names=("few_questions",),
        test=_five,
    ),
    "test_german": Case(
        cause=(
            "The test questions are in German while all training questions are in English, so the "
            "student does not understand them: test in the language of the training, or add German "
            "questions to data.questions."
        ),
        names=("test_language", "test_question_differs"),
        test=_german,
    ),
}
