"""Blind set 3: 12 broken runs and 2 healthy, unusual ones, of other kinds than those before.

Where a setting of a teacher is the fault, the traces are written as that teacher would write them then.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from broken_cases.case import STAGE, TEACHERS, Case, Row, draw, of_all_teachers, often_wrong, retold, student_copy

from distill.types import Sample, Trace, Usage

# --- how questions and test questions are changed ------------------------------------------------------------------


def _floats(rows: list[Row]) -> list[Row]:
    """Give gold answers as a data frame with gaps exports them: 3.0 in place of 3."""
    return [row | {"answer": f"{row['answer']}.0"} for row in rows]


def _letters(rows: list[Row]) -> list[Row]:
    """Give the letter of the right option as gold answer; the options stayed in a column that was not exported."""
    return [row | {"answer": "BDACCABD"[number % 8], "answer_type": "choice"} for number, row in enumerate(rows)]


def _sorted_apart(rows: list[Row]) -> list[Row]:
    """Give every test row the answer of another row of its domain: the answers were sorted apart from the rows."""
    changed = []
    for domain in TEACHERS:
        own = [row for row in rows if row["domain"] == domain]
        answers = [row["answer"] for row in own]
        changed += [row | {"answer": answer} for row, answer in zip(own, answers[7:] + answers[:7], strict=True)]
    return changed


# --- how traces are changed ----------------------------------------------------------------------------------------


_GREEDY: dict[str, Trace] = {}


def _greedy(sample: Sample, written: Trace) -> Trace:
    """Write the same text each time a question is asked, as a teacher without temperature does."""
    first = _GREEDY.setdefault(f"{written.teacher} {sample.id}", written)
    return retold(written, first.reasoning, first.answer)


_CACHE: dict[str, Trace] = {}


def _cached(sample: Sample, written: Trace) -> Trace:
    """Give the reply to the first image for all images that are asked the same: a cache that knows the text only."""
    first = _CACHE.setdefault(f"{written.teacher} {written.k} {sample.question}", written)
    return retold(written, first.reasoning, first.answer)


def _stopped(sample: Sample, written: Trace) -> Trace:
    """End at the first line break, which is inside the thinking of scenes and digits."""
    if "\n" not in written.reasoning:
        return written
    text = written.reasoning.split("\n")[0]
    usage = replace(written.usage, reasoning=len(text.split()), answer=0)
    return replace(
        written,
        reasoning=text,
        answer="",
        text=f"<think>{text}",
        usage=usage,
        outcome="empty_answer",
        finish_reason="stop",
        stop_reason="\n",
    )


def _miscalculates(sample: Sample, written: Trace) -> Trace:
    """Write equations that do not hold in nine of ten traces; the answer stays right."""
    if draw(written) == 0:
        return written

    def other(found: re.Match[str]) -> str:
        return f"{int(found[1]) + 3} {found[2]} {found[3]} ="

    return retold(written, re.sub(r"(\d+) ([+-]) (\d+) =", other, written.reasoning), written.answer)


def _server_error(sample: Sample, written: Trace) -> Trace:
    """The server of the teacher of digits refuses every request."""
    if written.teacher != "reader":
        return written
    return replace(
        written,
        reasoning="",
        answer="",
        text="",
        usage=Usage(prompt=0, image=0, reasoning=0, answer=0),
        outcome="error",
        finish_reason="error",
        error="400 Bad Request: This model's maximum context length is 64 tokens. However, your request has 86 input "
        "tokens. Please reduce the length of the input messages.",
    )


# --- how the student is changed ------------------------------------------------------------------------------------


def _new_decoder(folder: Path) -> None:
    """Give the language model fresh random weights, as a checkpoint whose names of weights do not match gets them."""
    from safetensors.numpy import load_file, save_file

    path = student_copy(folder) / "model.safetensors"
    weights = load_file(path)
    rng = np.random.default_rng(5)
    fresh = [name for name in weights if "text_model" in name and weights[name].ndim == 2]
    assert fresh, sorted(weights)[:5]
    for name in fresh:
        weights[name] = rng.normal(0, 0.02, weights[name].shape).astype(weights[name].dtype)
    save_file(weights, path, {"format": "pt"})


CASES: Final[dict[str, Case]] = {
    # --- healthy, but unusual ---
    "healthy_float_golds": Case(questions=_floats, test=_floats),
    "healthy_best_kept": Case(
        set={
            f"{STAGE}validation.hold_out": 0.1,
            f"{STAGE}validation.every_steps": 10,
            f"{STAGE}validation.keep": "best",
        },
    ),
    # --- broken: visible in what filter writes ---
    "greedy_samples": Case(
        cause=(
            "All four traces of a question are word for word the same, because "
            "teachers.*.sampling.temperature is 0 with samples = 4: three quarters of the dataset are"
            " copies and agreement says nothing; set the temperature to about 0.8, or samples to 1."
        ),
        names=("copies",),
        trace=_greedy,
        set=of_all_teachers("samples", 4) | of_all_teachers("sampling.temperature", 0.0),
        train=False,
    ),
    "stop_newline": Case(
        cause=(
            "teachers.*.sampling.stop has a line break, which ends the traces of scenes and digits "
            "(two thirds of all) inside the thinking, without an answer (finish_reason stop, not "
            "length): remove it from stop."
        ),
        names=("no_answer",),
        trace=_stopped,
        set=of_all_teachers("sampling.stop", ["\n"]),
        train=False,
    ),
    "gold_column_missing": Case(
        cause=(
            "No question has a gold answer, since data.questions.columns.answer names a column that "
            "does not exist ('label'), so no trace is checked and some 60 % of those that are kept "
            "have a wrong answer: set it to 'answer'."
        ),
        refused="no column 'label'",
        trace=often_wrong,
        set={"data.questions.columns.answer": "label"},
        train=False,
    ),
    "gold_letters": Case(
        cause=(
            "The gold answers of data.questions are letters of options (A to D) but no question lists"
            " its options, so teachers answer with numbers and all of them count as wrong: put the "
            "options into the question, or the values in place of the letters into the answer column."
        ),
        names=("gold_or_images",),
        questions=_letters,
        train=False,
    ),
    "cached_replies": Case(
        cause=(
            "Questions with the same text have word for word the same reply although their images "
            "differ, so most answers are wrong: something between run and teachers (a cache or proxy)"
            " looks at the text only; turn it off and ask again."
        ),
        names=("same_reply",),
        trace=_cached,
        train=False,
    ),
    "arithmetic_wrong": Case(
        cause=(
            "Nine of ten rationales have equations that do not hold ('6 + 0 = 3') although the "
            "answers are right, so the student learns wrong arithmetic: add a rule on the arithmetic "
            "signal to filter.rules, and look at the teachers."
        ),
        names=("arithmetic_slips",),
        trace=_miscalculates,
        train=False,
    ),
    "server_errors": Case(
        cause=(
            "Every request to the teacher reader failed ('maximum context length is 64 tokens'), so "
            "the dataset has no digits: raise max-model-len of that teacher's server (or make its "
            "images or max_tokens smaller) and run generate again."
        ),
        names=("no_answer",),
        trace=_server_error,
        train=False,
    ),
    # --- broken: the student is worse, or is measured wrongly ---
    "max_tokens_as_length": Case(
        cause=(
            "stages.reason.max_tokens = 4096 is the length of the whole stage and overrides max_steps"
            " = 60, so the stage ended after about two steps: remove it (max_length is the length of "
            "a row)."
        ),
        names=("few_steps",),
        set={f"{STAGE}max_tokens": 4096},
    ),
    "stage_wrong_source": Case(
        cause=(
            "The stage reason trains on the source instruct (bare answers) and not on the traces, so "
            "the student never sees a rationale and does not reason: set stages.reason.data to "
            "'traces'."
        ),
        names=("no_traces_learned",),
        set={f"{STAGE}data": "instruct"},
    ),
    "weight_decay_huge": Case(
        cause=(
            "stages.reason.weight_decay = 100 shrinks the weights by up to a tenth at each step "
            "(learning rate 1e-3), which destroys the student: set it to 0, or at most about 0.1."
        ),
        names=("unusual stages.*.weight_decay",),
        set={f"{STAGE}weight_decay": 100.0},
    ),
    "decoder_random": Case(
        cause=(
            "The student's language model has fresh random weights (its checkpoint was not really "
            "loaded or never trained), so 60 steps can't teach it to write or reason, and it starts "
            "at a loss of pure guessing: check student.model and its weights."
        ),
        names=("random_weights",),
        before=_new_decoder,
    ),
    "test_gold_misaligned": Case(
        cause=(
            "The gold answers of data.test belong to other rows (the answer column was sorted or "
            "shifted apart from the rest), so right replies count as wrong: make the test file again "
            "and compare some rows with their images."
        ),
        names=("gold_or_images", "gold_shifted"),
        test=_sorted_apart,
    ),
}
