"""The first runs: healthy ones, a half that the first rules were written with, and a half that was kept apart."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from broken_cases.case import RULE, STAGE, TEACHERS, TINY, Case, EditRows, Row, often_wrong, student_copy, table_rows

from distill.types import Sample, Trace

QUESTIONS: Final = 360


def _shift_images(rows: list[Row]) -> list[Row]:
    """Give every question the image of another question of its domain, as a wrong join does."""
    images = [row["image"] for row in rows]
    return [row | {"image": image} for row, image in zip(rows, images[7:] + images[:7], strict=True)]


def _typed(answer_type: str) -> EditRows:
    return lambda rows: [row | {"answer_type": answer_type} for row in rows]


def _one_answer(rows: list[Row]) -> list[Row]:
    """Select questions so that nine of ten have the answer 3. Only scenes have enough of them."""
    every = pq.read_table(TINY / "data" / "questions.parquet").to_pylist()
    threes = [row for row in every if row["answer"] == "3"]
    return threes + [row for row in rows if row["answer"] != "3"][: len(threes) // 9]


def _again(rows: list[Row]) -> list[Row]:
    """Repeat 90 questions in four spellings."""
    spellings = (str, str.upper, str.lower, str.title)
    return [row | {"question": spell(row["question"])} for spell in spellings for row in rows[::4]]


def _wrong_answers(sample: Sample, written: Trace) -> Trace:
    """Make every trace of the teacher of digits wrong, with its rationale."""
    if written.teacher != "reader":
        return written
    answer = str(int(written.answer) + 1 + written.k)
    reasoning = written.reasoning.replace(written.answer, answer)
    return replace(written, answer=answer, reasoning=reasoning, text=f"<think>{reasoning}</think>{answer}")


def _untagged(sample: Sample, written: Trace) -> Trace:
    """Write the reasoning into the answer, without think tags."""
    text = f"{written.reasoning} The answer is {written.answer}."
    return replace(written, reasoning="", answer=text, text=text)


def _cut(sample: Sample, written: Trace) -> Trace:
    """Cut four of five traces within the rationale, as a token limit does."""
    if int(written.id[:4], 16) % 5 == 0:
        return written
    text = written.reasoning[:40]
    return replace(
        written, reasoning=text, answer="", text=text, outcome="truncated_thinking", finish_reason="length"
    )


def _long(sample: Sample, written: Trace) -> Trace:
    """Repeat the rationale of every trace four times."""
    reasoning = " Let me check again. ".join([written.reasoning] * 4)
    usage = replace(written.usage, reasoning=4 * written.usage.reasoning)
    return replace(written, reasoning=reasoning, usage=usage, text=f"<think>{reasoning}</think>{written.answer}")


def _half_agree(sample: Sample, written: Trace) -> Trace:
    """Make the second trace of a question wrong in nine of ten cases, so that its two traces disagree."""
    if written.k == 0 or int(written.id[:4], 16) % 10 == 0:
        return written
    answer = str(int(written.answer) + 1)
    return replace(written, answer=answer, text=f"<think>{written.reasoning}</think>{answer}")


def _blind(folder: Path) -> None:
    """Set the weights of the vision tower to zero, as a faulty conversion does."""
    from safetensors.numpy import load_file, save_file

    path = student_copy(folder) / "model.safetensors"
    weights = load_file(path)
    tower = [name for name in weights if "vision" in name]
    assert tower, sorted(weights)[:5]
    save_file({name: value * (0 if name in tower else 1) for name, value in weights.items()}, path, {"format": "pt"})


def _foreign_template(folder: Path) -> None:
    """Use the chat template of another model family. This tokenizer reads its marks as text, so no turn ends."""
    path = student_copy(folder) / "chat_template.jinja"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("<|im_start|>", "[INST] ").replace("<|im_end|>", " [/INST]"), encoding="utf-8")


_PARTS = f'vision = "{TINY}/tower"\nlanguage = "{TINY}/decoder"\npixel_shuffle = 2'


def _leaked(rows: list[Row]) -> list[Row]:
    return rows[:30] + table_rows("questions", QUESTIONS)[::4]


HEALTHY: Final[dict[str, Case]] = {
    "healthy": Case(),
    "healthy_lora": Case(set={f"{STAGE}lora.rank": 32, f"{STAGE}lora.alpha": 64, f"{STAGE}learning_rate": 4e-3}),
    "healthy_charts": Case(
        questions=lambda rows: [row for row in rows if row["domain"] == "charts"],
        test=lambda rows: [row for row in rows if row["domain"] == "charts"],
    ),
    "healthy_seed": Case(set={"seed": 3, f"{STAGE}schedule": "linear", f"{STAGE}learning_rate": 7e-4}),
    "healthy_tiny": Case(
        student=_PARTS,
        set={f"{STAGE}max_steps": 150, f"{STAGE}batch_size": 32, f"{STAGE}learning_rate": 1.5e-3},
        questions=lambda rows: table_rows("questions", 3000),
    ),
}

HALF_1: Final[dict[str, Case]] = {
    "few_steps": Case(names=("few_steps",), set={f"{STAGE}max_steps": 4}),
    "cut_replies": Case(names=("replies_cut",), set={"eval.max_new_tokens": 16}),
    "leaked_test": Case(names=("leaked",), test=_leaked, set={"eval.allow_overlap": True}, train=False),
    "wrong_split": Case(names=("leaked",), set={"eval.allow_overlap": True, "eval.data": "questions"}, train=False),
    "lr_x30": Case(names=("learning_rate_high",), set={f"{STAGE}learning_rate": 3e-2}),
    "no_think_tags": Case(names=("teacher_format",), trace=_untagged, refused="bad_format", train=False),
    "cut_thinking": Case(names=("traces_cut",), trace=_cut, train=False),
    "teacher_wrong": Case(names=("teacher_wrong",), trace=_wrong_answers, train=False),
    "rule_drops_all": Case(
        names=("rule_drops",),
        refused="every_long",
        text=RULE.format(name="every_long", drop="rationale_tokens > 3"),
        train=False,
    ),
    "collapse": Case(names=("one_answer",), questions=_one_answer),
    "mismatched_images": Case(names=("gold_or_images",), questions=_shift_images, train=False),
}

HALF_2: Final[dict[str, Case]] = {
    "blind_student": Case(names=("blind",), before=_blind),
    "lr_100th": Case(names=("learning_rate_low",), set={f"{STAGE}learning_rate": 1e-5}),
    "foreign_template": Case(names=("chat_template",), before=_foreign_template),
    "answer_type": Case(names=("answer_type",), questions=_typed("date"), refused="answer_type", train=False),
    "long_rationales": Case(names=("long_rationales",), trace=_long, refused="repetition"),
    "frozen_projector": Case(names=("projector_frozen",), student=_PARTS, set={f"{STAGE}train": ["language"]}),
    "no_answer_loss": Case(
        names=("unusual stages.*.loss.answer",), set={f"{STAGE}loss.answer": 0.0, f"{STAGE}loss.format": 0.0}
    ),
    "duplicates": Case(names=("duplicates",), questions=_again, train=False),
    "strict_consensus": Case(
        names=("rule_drops",),
        trace=_half_agree,
        text=RULE.format(name="wrong", drop="answer_verdict = 'wrong'")
        + RULE.format(name="consensus", drop="self_consistency < 1"),
        train=False,
    ),
    "few_traces": Case(
        names=("few_traces",),
        trace=often_wrong,
        set={f"teachers.{name}.samples": 1 for name in TEACHERS.values()},
        train=False,
    ),
    "eval_type": Case(names=("answer_type",), test=_typed("date")),
    "overflow": Case(names=("learning_rate_high",), refused="loss is", set={f"{STAGE}learning_rate": 1e9}),
}
