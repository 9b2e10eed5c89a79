"""Students whose chat template opens, trims or leaves out the thinking: each token of a response keeps its part."""

from dataclasses import replace
from pathlib import Path

import pytest
from worlds import student_worlds as worlds

from distill.errors import ModelError
from distill.rationale import join, split
from student.data.encode import Encoder
from student.data.rows import TrainingRow
from student.models import inputs

RATIONALE, ANSWER = "row 1: red green, 1\nrow 2: m", "m"
THINKING = "{{- '<|im_start|>assistant\\n<think>\\n' -}}"
TURN = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' -}}
{%- for content in message['content'] -%}
{%- if content['type'] == 'image' -%}{{- '<image>' -}}
{%- elif message['role'] == 'user' -%}{{- content['text'] -}}
{%- else -%}ANSWERED{%- endif -%}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}OPENED{%- endif -%}
"""
SPLIT = """\
{%- set parts = content['text'].split('</think>') -%}
{%- set thought = parts[0].split('<think>')[-1].strip() if parts|length > 1 else '' -%}
{{- '<think>\\n' + thought + '\\n</think>\\n\\n' + parts[-1].strip() -}}
"""
TEMPLATES = {
    "plain": ("{{- content['text'] -}}", "{{- '<|im_start|>assistant\\n' -}}"),
    "opens": ("{{- content['text'] -}}", THINKING),
    "opens and writes a block (Qwen3 thinking)": (SPLIT, THINKING),
    "opens without a line (some R1 students)": (SPLIT, "{{- '<|im_start|>assistant\\n<think>' -}}"),
    "opens and forgets (R1)": ("{{- content['text'].split('</think>')[-1] -}}", THINKING),
    "forgets": ("{{- content['text'].split('</think>')[-1] -}}", "{{- '<|im_start|>assistant\\n' -}}"),
    "closes at once (Qwen3.5, no thinking)": (SPLIT, "{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' -}}"),
}


def trained(template: str, row: TrainingRow, *, marks: bool = False) -> tuple[str, str, dict[str, str]]:
    """What a student is asked with, what it learns to say after it, and that by part."""
    model, processor = worlds.other("llava")
    answered, opened = TEMPLATES[template]
    answered = f"{{%- generation -%}}{answered}{{%- endgeneration -%}}" if marks else answered
    processor.chat_template = TURN.replace("ANSWERED", answered).replace("OPENED", opened)
    encoder = Encoder(processor, inputs.end_ids(model))
    ((ids, begin, kinds),) = encoder.conversations([row])
    (prompt,) = encoder.prompts([(row.question, 0)])
    assert ids[:begin] == prompt
    decode = processor.tokenizer.decode
    parts = {
        name: decode([token for token, kind in zip(ids[begin:], kinds, strict=True) if kind == number])
        for number, name in enumerate(("rationale", "answer", "format"))
    }
    return decode(prompt), decode(ids[begin:]), parts


def row(response: str, rationale: str) -> TrainingRow:
    begin = response.index(rationale) if rationale else 0
    return TrainingRow(
        id="row",
        images=(),
        question="How many?",
        response=response,
        rationale=(begin, begin + len(rationale)),
        answer=(len(response) - len(ANSWER), len(response)),
    )


@pytest.mark.parametrize("marks", [False, True], ids=["no block is marked", "a block is marked"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_rationale_and_its_answer_follow_the_prompt_whatever_the_template_makes_of_them(template: str, marks: bool):
    asked, said, parts = trained(template, row(join(RATIONALE, ANSWER, "think"), RATIONALE), marks=marks)
    assert parts["rationale"] == RATIONALE and parts["answer"] == ANSWER
    reply = split(asked.rpartition("assistant\n")[2].replace("<think>\n\n</think>\n\n", "") + said)
    assert (reply.rationale, reply.answer.strip(), reply.state) == (RATIONALE, f"{ANSWER}<|im_end|>", "closed")


@pytest.mark.parametrize("marks", [False, True], ids=["no block is marked", "a block is marked"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_student_of_answers_alone_closes_a_block_that_its_prompt_opens(template: str, marks: bool):
    asked, said, parts = trained(template, row(ANSWER, ""), marks=marks)
    assert parts["rationale"] == "" and parts["answer"] == ANSWER
    reply = split(asked.rpartition("assistant\n")[2] + said)
    assert reply.rationale == "" and reply.answer.strip() == f"{ANSWER}<|im_end|>"
    assert reply.state == ("none" if "think" not in asked + said else "closed")


@pytest.mark.parametrize("template", ["opens", "opens and forgets (R1)"])
def test_a_response_without_known_parts_follows_the_prompt_too(template: str):
    unknown = replace(row(join(RATIONALE, ANSWER, "think"), RATIONALE), rationale=(0, 0), answer=(0, 0))
    _, said, parts = trained(template, unknown)
    assert said == f"{RATIONALE}\n</think>\n\n{ANSWER}<|im_end|>" and parts["format"] == said


def test_a_template_that_writes_the_question_in_another_way_is_an_error(tmp_path: Path):
    _, processor = worlds.other("llava")
    processor.chat_template = "{{ messages|length }}{%- for message in messages -%}x{%- endfor -%}"
    with pytest.raises(Exception, match="changes a question when its answer follows"):
        Encoder(processor, []).conversations([row(ANSWER, "")])


def test_a_template_that_refuses_a_question_is_an_error_that_names_its_reason():
    _, processor = worlds.other("llava")
    for template, reason in (("{{ raise_exception('no images here') }}", "no images here"), ("{{ 'a' + 1 }}", "str")):
        processor.chat_template = template
        with pytest.raises(ModelError, match=f"the student's chat template refuses a question: .*{reason}"):
            Encoder(processor, []).prompts([("How many?", 0)])
