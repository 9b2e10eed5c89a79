"""A sample and a template become a chat."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.messages.prompts import messages, prompt, prompt_sha

IMAGE = ImageRef(sha256="ab" * 32, path="a.png")


def sample(question: str = "How many?", *images: ImageRef) -> Sample:
    return Sample(id="s", images=images, question=question)


def teacher(**settings: object) -> Teacher:
    return Teacher.model_validate({"name": "t", "model": "m", **settings})


def test_the_question_is_put_into_the_template_as_it_is_even_with_braces() -> None:
    asked = prompt(teacher(prompt="Think.\n{question}\nThen answer."), sample("What is {question} in {x}?"))
    assert asked.text == "Think.\nWhat is {question} in {x}?\nThen answer."


def test_images_come_before_the_text_and_the_system_turn_comes_first() -> None:
    asked = prompt(teacher(system="Be brief."), sample("How many?", IMAGE, IMAGE))
    chat = messages(asked, [{"type": "image"}, {"type": "image"}])
    assert [turn["role"] for turn in chat] == ["system", "user"]
    assert [part["type"] for part in chat[1]["content"]] == ["image", "image", "text"]


def test_without_a_system_text_there_is_no_system_turn() -> None:
    assert [turn["role"] for turn in messages(prompt(teacher(), sample()), [])] == ["user"]


def test_the_digest_changes_with_texts_and_image_bytes_and_with_nothing_else() -> None:
    base = prompt_sha(prompt(teacher(), sample("How many?", IMAGE)))
    moved = ImageRef(sha256=IMAGE.sha256, path="elsewhere/b.png")
    other = ImageRef(sha256="cd" * 32, path="a.png")
    assert prompt_sha(prompt(teacher(name="renamed"), sample("How many?", moved))) == base
    different = [
        prompt(teacher(), sample("How many?", other)),
        prompt(teacher(), sample("How many!", IMAGE)),
        prompt(teacher(), sample("How many?", IMAGE, IMAGE)),
        prompt(teacher(system="Be brief."), sample("How many?", IMAGE)),
        prompt(teacher(prompt="{question}\n"), sample("How many?", IMAGE)),
    ]
    digests = {prompt_sha(asked) for asked in different}
    assert base not in digests and len(digests) == len(different)


def test_cues_are_what_the_recipe_names_and_are_part_of_the_digest() -> None:
    shown = replace(sample(), meta={"caption": "Two {dogs}.", "table": {"a": 1, "b": [2]}})
    captioned = teacher(prompt="{question} ({cues})", cues="caption")
    assert prompt(captioned, shown).text == "How many? (Two {dogs}.)"
    assert prompt(teacher(prompt="{question} ({cues})", cues="table"), shown).text == 'How many? ({"a":1,"b":[2]})'
    assert prompt(captioned, sample()).text == "How many? ()"
    assert prompt_sha(prompt(captioned, shown)) != prompt_sha(prompt(captioned, sample()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"prompt": "{question} {cues}"}, "set its content"), ({"cues": "caption"}, "does not contain {cues}")],
)
def test_cues_and_their_placeholder_go_together(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        teacher(**settings)
