"""A seventh set: frequent mistakes as people report them in public threads, made by a writer who had read neither the
rules of the diagnosis nor the older sets.

`source` is the thread, `cause` what a helpful person answers there. A broken run counts as named if one printed
finding or warning about the dataset has the words of a pattern in `words`, written before the first run.
"""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from broken_cases.case import STAGE, TEACHERS, Case, Row, draw, of_all_teachers, retold, student_copy, table_rows
from PIL import Image

from distill.types import Sample, Trace

_ALL: Final = 3000
_CUT_WORDS: Final = 25
_IMAGES: Final = 6
_VICUNA: Final = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}{{- 'USER: ' -}}{%- else -%}{{- ' ASSISTANT: ' -}}{%- endif -%}"
    "{%- if message['content'] is string -%}{{- message['content'] -}}"
    "{%- else -%}{%- for content in message['content'] -%}"
    "{%- if content['type'] in ('image', 'image_url') -%}{{- '<image>\n' -}}{%- else -%}{{- content['text'] -}}"
    "{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- ' ASSISTANT:' -}}{%- endif -%}"
)


def _png(row: Row, change: Callable[[Image.Image], Image.Image], kind: str = "PNG") -> Row:
    """The row with a changed copy of its image."""
    made = io.BytesIO()
    change(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")).save(made, kind)
    return row | {"image": {"bytes": made.getvalue(), "path": None}}


def _each_domain(rows: list[Row], count: int) -> list[Row]:
    return [row for domain in TEACHERS for row in [row for row in rows if row["domain"] == domain][:count]]


def _charts(name: str, count: int) -> list[Row]:
    return [row for row in table_rows(name, 3 * count) if row["domain"] == "charts"]


# --- broken ---------------------------------------------------------------------------------------------


def _foreign_template(folder: Path) -> None:
    (student_copy(folder) / "chat_template.jinja").write_text(_VICUNA, encoding="utf-8")


def _thinking_cut(sample: Sample, written: Trace) -> Trace:
    """What a server returns at a small max_tokens: the start of the thinking, and no answer."""
    words = written.reasoning.split(" ")
    if len(words) <= _CUT_WORDS:
        return written
    begun = " ".join(words[:_CUT_WORDS])
    return replace(
        retold(written, begun, ""), text=f"<think>{begun}", outcome="truncated_thinking", finish_reason="length"
    )


def _few_images(rows: list[Row]) -> list[Row]:
    """Images saved under the same few names: each question has the image that was written last."""
    kept, seen = [], set()
    for number, row in enumerate(rows):
        same = [other for other in rows if other["domain"] == row["domain"]]
        image = same[number % _IMAGES]["image"]
        key = (row["question"], image["bytes"])
        if key not in seen:
            seen.add(key)
            kept.append(row | {"image": image})
    return kept


def _one_answer(rows: list[Row]) -> list[Row]:
    del rows
    every = table_rows("questions", _ALL)
    return [row for row in every if row["answer"] == "4"][:200] + [row for row in every if row["answer"] == "7"][:14]


def _resaved(rows: list[Row]) -> list[Row]:
    """A test that was cut out of the training images: saved again as JPEG."""
    trained = _each_domain(table_rows("questions", 360), len(rows) // 3)
    return [_png(row, lambda image: image, "JPEG") for row in trained]


def _short_answer_prompt(rows: list[Row]) -> list[Row]:
    tail = "\nAnswer the question using a single word or phrase."
    return [row | {"question": row["question"] + tail} for row in rows]


def _thumbnails(rows: list[Row]) -> list[Row]:
    return [_png(row, lambda image: image.resize((20, 20))) for row in rows]


# --- healthy --------------------------------------------------------------------------------------------


def _terse(sample: Sample, written: Trace) -> Trace:
    if sample.domain == "charts":
        return retold(written, written.reasoning.removeprefix("The chart shows "))
    if sample.domain == "digits":
        return retold(written, written.reasoning.removeprefix("The image reads ").removeprefix("Transcript: "))
    return written


def _which_is_higher(rows: list[Row]) -> list[Row]:
    made = []
    for row in rows:
        meta = json.loads(row["meta"])
        first, second = list(meta["bars"])[:2]
        if meta["bars"][first] != meta["bars"][second]:
            answer = "yes" if meta["bars"][first] > meta["bars"][second] else "no"
            meta |= {"kind": "sum", "terms": [first, second]}
            asked = f"Is the {first} bar higher than the {second} bar?"
            made.append(row | {"question": asked, "answer": answer, "answer_type": "text", "meta": json.dumps(meta)})
    return made


def _compared(sample: Sample, written: Trace) -> Trace:
    first, second = sample.meta["terms"]
    left, right = (sample.meta["bars"][bar] for bar in (first, second))
    sign = "more" if left > right else "less"
    rationale = f"{first} {left}, {second} {right}: {left} is {sign} than {right}."
    return retold(written, rationale, "yes" if left > right else "no")


def _scenes_hard(sample: Sample, written: Trace) -> Trace:
    if sample.domain != "scenes" or draw(written) < 5:
        return written
    answer = str(int(written.answer) + 1 + written.k)
    return replace(written, answer=answer, text=f"<think>{written.reasoning}</think>{answer}")


CASES: Final = {
    "images_thirty_for_many_epochs": Case(
        source="QwenLM/Qwen3-VL#770",
        cause="Thirty images, learned by heart in dozens of epochs: more images, or fewer epochs (max_steps).",
        words=(r"by heart|overfit|memori[sz]", r"\b(few|only \d+|30) (different )?(questions|images|samples)"),
        questions=lambda rows: _each_domain(rows, 10),
        set={STAGE + "max_steps": 120},
    ),
    "template_of_another_family": Case(
        source="haotian-liu/LLaVA#1363, hiyouga/LlamaFactory#5489",
        cause="The checkpoint's chat template was replaced by that of Vicuna: restore chat_template.jinja.",
        words=(r"template", r"(form|format) of the prompt"),
        before=_foreign_template,
    ),
    "end_of_turn_not_learned": Case(
        source="unslothai/unsloth#416, mlabonne/llm-course#33",
        cause="The end of the turn and the tags are masked out of the loss: set stages.reason.loss.format to 1.",
        words=(r"loss\.format", r"end of the (turn|reply).*(loss|weight)", r"(loss|weight).*end of the turn"),
        set={STAGE + "loss.format": 0.0},
    ),
    "rate_ten_times_too_high": Case(
        source="haotian-liu/LLaVA#1301, haotian-liu/LLaVA#1375",
        cause="The learning rate is 20 times that of the recipe, without warm-up: lower stages.reason.learning_rate.",
        words=(r"learning[ _]rate",),
        set={STAGE + "learning_rate": 2e-2, STAGE + "warmup_share": 0.0, STAGE + "schedule": "constant"},
    ),
    "longest_rows_left_out": Case(
        source="hiyouga/LlamaFactory#3995, zjysteven/lmms-finetune#45",
        cause="max_length is shorter than the rationales of one domain, which are left out: raise it.",
        words=(r"max_length",),
        set={STAGE + "max_length": 110},
    ),
    "thinking_takes_all_tokens": Case(
        source="huggingface/chat-ui#2383, jundot/omlx#3796",
        cause="Teachers are cut off while they think: raise max_tokens of the teachers.",
        words=(r"max_tokens",),
        trace=_thinking_cut,
        set=of_all_teachers("sampling.max_tokens", 40),
    ),
    "images_overwritten": Case(
        source="DigiRL-agent/digiq#14",
        cause="All questions of a domain point at the same six image files, which are not theirs.",
        words=(r"(same|few|18|different|other) (\w+ )?(images|pictures)", r"images? .*(belong|match|do not show)"),
        questions=_few_images,
    ),
    "one_answer_mostly": Case(
        source="haotian-liu/LLaVA#1750, DigiRL-agent/digiq#14",
        cause="93 % of the questions have the answer 4: balance the answers of the training data.",
        words=(
            r"(answer|gold)\S* .*(same|'4'|\"4\"|\b4\b.*(93|9\d) %)",
            r"(93|9\d) % .*(answer|gold).*4",
            r"imbalanc|balance",
        ),
        questions=_one_answer,
    ),
    "test_cut_from_training": Case(
        source="UCSC-VLAA/MedTrinity-25M#26, stefyste/RIAWELC#2",
        cause="All images of the test are training images, saved again: split by image.",
        words=(r"overlap|leak|contaminat|in both", r"images of the (test|evaluation) .*train"),
        refused="test",
        test=_resaved,
        set={"eval.allow_overlap": True},
    ),
    "test_asks_for_a_single_word": Case(
        source="haotian-liu/LLaVA#1789",
        cause="The test's questions end with an instruction that no training question has: ask both in one form.",
        words=(
            r"single word or phrase",
            r"questions? of the test.*(differ|other|longer|words|form)",
            r"test.*(question|prompt)s?.*(differ|other|longer|words|form)",
        ),
        test=_short_answer_prompt,
    ),
    "untrained_model_evaluated": Case(
        source="hiyouga/LlamaFactory#9109, hiyouga/LlamaFactory#8134",
        cause="The evaluated arm is the model before training (the adapter was not loaded): eval.arms.",
        words=(r"eval\.arms", r"(is|asked|evaluated)\b.* (base|untrained|not trained|before (any )?training)"),
        set={"eval.arms.distilled": "base"},
    ),
    "test_images_are_thumbnails": Case(
        source="hiyouga/LlamaFactory#5538, JingbiaoMei/RGCL#2",
        cause="The test has images of 20 by 20 pixels, training images have 96: use images of the same size.",
        words=(r"images? .*(small|size|pixels|side|resol|differ)", r"(small|size|pixels|resol|differ)\S* .*images?"),
        test=_thumbnails,
    ),
    "healthy_short_run": Case(set={STAGE + "max_steps": 40, STAGE + "batch_size": 24}),
    "healthy_few_rows": Case(questions=lambda _: _charts("questions", 90), test=lambda _: _charts("test", 60)),
    "healthy_terse": Case(trace=_terse),
    "healthy_yes_and_no": Case(
        questions=lambda _: _which_is_higher(_charts("questions", 240)),
        test=lambda _: _which_is_higher(_charts("test", 60)),
        trace=_compared,
    ),
    "healthy_hard_for_one_teacher": Case(trace=_scenes_hard),
}
