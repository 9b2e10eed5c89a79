"""An eighth set: other mistakes that people report in public threads, made before the diagnosis was read.

The writer knew the older sets with the names of their findings, and the log, but no rule. `source` is the thread,
`cause` what a helpful person answers there. A broken run counts as named if one printed finding or warning about the
dataset has the words of a pattern in `words`, written before the first run.
"""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broken_cases.case import STAGE, Case, Row, misread, of_all_teachers, retold, student_copy
from PIL import Image

from distill.types import Sample, Trace

_LETTERS: Final = "ABCD"
_UNITS: Final = {"scenes": "shapes", "charts": "points", "digits": "units"}
_LATE: Final = 7
_MISREAD_OF_TEN: Final = 6
_ROTATED: Final = 37
_TURNS: Final = 3


# --- questions --------------------------------------------------------------------------------------------


def _seen_text(meta: dict[str, Any]) -> str:
    """What a reader of text finds in an image; nothing in a scene."""
    if "bars" in meta:
        return ", ".join(f"{colour}, {value}" for colour, value in meta["bars"].items())
    return ", ".join(map(str, meta.get("digits", ())))


def _with_ocr(rows: list[Row]) -> list[Row]:
    made = []
    for row in rows:
        text = _seen_text(json.loads(row["meta"]))
        tail = f"\nReference OCR token: {text}" if text else ""
        made.append(row | {"question": row["question"] + tail})
    return made


def _with_options(rows: list[Row], *, first: bool) -> list[Row]:
    """Multiple choice with four options; the right one is always the first, or in any place."""
    made = []
    for number, row in enumerate(rows):
        right = int(row["answer"])
        place = 0 if first else (number * 7 + right) % 4
        numbers = [right + 2 * (each - place) for each in range(4)]
        if first or min(numbers) < 0:
            numbers = [right + 1 + each for each in range(4)]
            numbers[place] = right
        listed = "".join(f"\n{letter}. {option}" for letter, option in zip(_LETTERS, numbers, strict=True))
        asked = f"{row['question']}{listed}\nAnswer with the letter of the option."
        made.append(row | {"question": asked, "answer": _LETTERS[place], "answer_type": "choice"})
    return made


def _chosen(sample: Sample, written: Trace) -> Trace:
    """The calculation, and the letter of its result."""
    return retold(written, f"{written.reasoning} That is option {sample.answer}.", sample.answer)


def _with_units(rows: list[Row]) -> list[Row]:
    return [row | {"answer": f"{row['answer']} {_UNITS[row['domain']]}", "answer_type": "text"} for row in rows]


def _in_units(sample: Sample, written: Trace) -> Trace:
    return retold(written, f"{written.reasoning[:-1]} {_UNITS[sample.domain]}.", sample.answer)


def _as_text(rows: list[Row]) -> list[Row]:
    return [row | {"answer_type": "text"} for row in rows]


def _one_row_late(rows: list[Row]) -> list[Row]:
    images = [row["image"] for row in rows]
    return [row | {"image": image} for row, image in zip(rows, images[-1:] + images[:-1], strict=True)]


def _smaller(rows: list[Row]) -> list[Row]:
    made = []
    for row in rows:
        kept = io.BytesIO()
        Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB").resize((64, 64)).save(kept, "PNG")
        made.append(row | {"image": {"bytes": kept.getvalue(), "path": None}})
    return made


# --- teachers ---------------------------------------------------------------------------------------------


class _Late:
    """The lines of a batch file come back in another order and are joined by number: each row has another's reply."""

    def __init__(self) -> None:
        self.replies: dict[str, list[tuple[str, str]]] = {}

    def __call__(self, sample: Sample, written: Trace) -> Trace:
        before = self.replies.setdefault(written.teacher, [])
        before.append((written.reasoning, written.answer))
        reasoning, answer = before[max(0, len(before) - 1 - _LATE)]
        return retold(written, reasoning, answer)


def _runs_on(sample: Sample, written: Trace) -> Trace:
    """The server does not stop at the end of the turn: the model asks and answers itself until max_tokens."""
    turn = f"<|im_end|>\n<|im_start|>user\nIs that right?<|im_end|>\n<|im_start|>assistant\nYes, {written.answer}."
    answer = written.answer + turn * _TURNS + "<|im_end|>\n<|im_start|>us"
    return replace(
        written,
        answer=answer,
        text=f"<think>{written.reasoning}</think>{answer}",
        outcome="truncated_answer",
        finish_reason="length",
        usage=replace(written.usage, answer=128 - written.usage.reasoning),
    )


def _sees_little(sample: Sample, written: Trace) -> Trace:
    read = misread(sample, written, _MISREAD_OF_TEN)
    return replace(read, usage=replace(read.usage, image=1))


def _answer_first(sample: Sample, written: Trace) -> Trace:
    return retold(written, f"The answer is {written.answer}. Explanation: {written.reasoning}")


# --- students ---------------------------------------------------------------------------------------------


def _foreign_tokenizer(folder: Path) -> None:
    """The same words, with the numbers that another model gave them."""
    path = student_copy(folder) / "tokenizer.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    fixed = {token["content"] for token in told["added_tokens"]}
    vocabulary = told["model"]["vocab"]
    words = [word for word in vocabulary if word not in fixed]
    numbers = [vocabulary[word] for word in words]
    vocabulary |= dict(zip(words, numbers[_ROTATED:] + numbers[:_ROTATED], strict=True))
    path.write_text(json.dumps(told), encoding="utf-8")


_UNLIKE: Final = r"(differ|unlike|longer|shorter|in other words|another form|one form|\bform of)"
_OTHERS: Final = r"(belong|other (question|image|row|sample)s?|(an)?other order|wrong order)"

CASES: Final = {
    "ocr_tokens_in_training_only": Case(
        source="haotian-liu/LLaVA#976, bzluan/TextCoT#4",
        cause="Training questions end with the text that the image shows ('Reference OCR token: ...'), those of the "
        "test do not, so the student learned to copy and not to read: ask both in one form.",
        words=(
            r"reference ocr",
            rf"questions? of the (test|training).*{_UNLIKE}",
            rf"(test|training).*(question|prompt)s?.*{_UNLIKE}",
        ),
        questions=_with_ocr,
    ),
    "right_option_is_always_a": Case(
        source="rohitg00/ai-engineering-from-scratch#239, georgiosnikitas/brain-break#32",
        cause="The right option of every training question is A: shuffle the options.",
        words=(r"['\"(]A['\")]", r"imbalanc|balance|shuffle"),
        questions=lambda rows: _with_options(rows, first=True),
        test=lambda rows: _with_options(rows, first=False),
        trace=_chosen,
    ),
    "test_images_one_row_late": Case(
        source="LLaVA-VL/LLaVA-NeXT#168, LLaVA-VL/LLaVA-NeXT#118",
        cause="The images of the test are those of the row before: join images and questions again.",
        words=(rf"(images?|gold|answers?) .*{_OTHERS}.*", r"(test|row|image)s?\S* .*(shifted|joined|mixed up)"),
        test=_one_row_late,
    ),
    "batch_replies_in_another_order": Case(
        source="googleapis/python-genai#1909, edubruell/tidyllm#37, bespokelabsai/curator#289",
        cause="The teachers' replies belong to other questions: the batch was read by line and not by custom_id.",
        words=(rf"(repl(y|ies)|traces?|rationales?|teachers?'? answers?) .*{_OTHERS}",),
        trace=_Late(),
        train=False,
    ),
    "teacher_does_not_stop": Case(
        source="vllm-project/vllm#4180, ollama/ollama#3759",
        cause="The teachers' server does not stop at the end of the turn (eos or stop token), so they go on with "
        "further turns until max_tokens: set sampling.stop, or mend the server's generation_config.",
        words=(
            r"sampling\.stop",
            r"stop (token|string|text)",
            r"im_(end|start)|special token|\beos\b",
            r"\bturns?\b",
        ),
        refused="turn",
        trace=_runs_on,
        train=False,
    ),
    "tokenizer_of_another_model": Case(
        source="haotian-liu/LLaVA#1710, huggingface/transformers#5777",
        cause="The tokenizer's files are those of another model, so every word has the number of another word.",
        words=(r"tokeni[sz]er", r"vocabulary"),
        refused="tokenizer",
        before=_foreign_tokenizer,
    ),
    "lora_with_the_rate_of_full_training": Case(
        source="QwenLM/Qwen3-VL#1646, QwenLM/Qwen3-VL#127",
        cause="Adapters need some ten times the learning rate of full training: raise stages.reason.learning_rate.",
        words=(r"learning[ _]rate",),
        set={STAGE + "lora.rank": 16, STAGE + "lora.alpha": 32, STAGE + "learning_rate": 2e-5},
    ),
    "teachers_see_small_images": Case(
        source="QwenLM/Qwen3-VL#891, ollama/ollama#17152",
        cause="The teachers' server shrinks every image to one token (max_pixels), so they misread it: raise it.",
        words=(r"mm_processor_kwargs|max_pixels", r"images? .*(small|pixels|resol|size|shr[iu]nk|few tokens)"),
        trace=_sees_little,
        set=of_all_teachers("backend", "vllm") | of_all_teachers("mm_processor_kwargs.max_pixels", 784),
        train=False,
    ),
    "units_in_training_only": Case(
        source="open-compass/VLMEvalKit#1313",
        cause="Training answers have units ('7 points'), those of the test do not and are texts, so right replies do "
        "not count: answers in one form, or answer_type number.",
        words=(
            r"\bunits?\b",
            r"answer_type",
            rf"(answers?|gold|replies).*{_UNLIKE}",
        ),
        questions=_with_units,
        test=_as_text,
        trace=_in_units,
    ),
    "think_off_at_eval": Case(
        source="hiyouga/LlamaFactory#8112, hiyouga/LlamaFactory#9765",
        cause="eval.think = false asks with /no_think, which no training row has: set it to true.",
        words=(r"eval\.think", r"no_think"),
        set={"eval.think": False},
    ),
    "answer_before_reasoning": Case(
        source="NousResearch/Open-Reasoning-Tasks#15, confident-ai/deepeval#2333",
        cause="The rationales begin with the answer, so the student guesses and explains afterwards: ask the "
        "teachers to reason first.",
        words=(
            r"rationales? .*(begin|start|open)\S* .*(answer|result|conclu)",
            r"(answer|result|conclusion)s? (come|stand|are|is|comes|stands) (first|before|at the (start|begin))",
        ),
        trace=_answer_first,
    ),
    "steps_of_a_notebook": Case(
        source="rjb7731/LLM-demos#1",
        cause="max_steps of the example (15 steps of 4 rows) overrides epochs = 3: 60 of 720 traces are learned.",
        words=(r"max_steps", r"(few|only \d+) steps"),
        set={STAGE + "max_steps": 15, STAGE + "batch_size": 4, STAGE + "epochs": 3.0},
    ),
    "healthy_options": Case(
        questions=lambda rows: _with_options(rows, first=False),
        test=lambda rows: _with_options(rows, first=False),
        trace=_chosen,
    ),
    "healthy_units": Case(questions=_with_units, test=_with_units, trace=_in_units),
    "healthy_ocr_tokens_in_both": Case(questions=_with_ocr, test=_with_ocr),
    "healthy_small_adapters": Case(
        set={STAGE + "lora.rank": 8, STAGE + "lora.alpha": 32, STAGE + "learning_rate": 4e-3},
    ),
    "healthy_smaller_images": Case(questions=_smaller, test=_smaller),
}
