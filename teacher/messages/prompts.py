"""Renders the prompt: one sample and one teacher's template become a chat.

Images stay references; each engine converts them (data URLs, pixels).
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from distill import redact
from distill.artifacts.manifest import canonical
from distill.errors import RecipeError
from distill.extensions import FAILURES, PROMPTS, Extension, call, call_fault, describe, load_once
from distill.recipe.sections.rounds import REPLY
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample


@dataclass(slots=True, kw_only=True)
class Prompt:
    """A chat of one user turn: optional system text, then the images, then the text."""

    system: str
    images: tuple[ImageRef, ...]
    text: str


PLACEHOLDERS = ("question", "draft", "answer", "cues", "reply")
_PLACEHOLDER = re.compile(f"{{({'|'.join(PLACEHOLDERS)})}}")


def prompt(teacher: Teacher, sample: Sample, draft: str = "") -> Prompt:
    """The chat in which `teacher` is asked `sample`, given another teacher's `draft` if it works on drafts.

    Inserted text is not changed, braces included; other braces of the template are left alone.
    """
    template = teacher.prompt
    if template == "{question}":
        return Prompt(system=teacher.system, images=sample.images, text=sample.question)
    if teacher.prompt_from_outside:
        return Prompt(system=teacher.system, images=sample.images, text=_made_by(_outside(teacher), teacher, sample))
    values = {
        "question": sample.question,
        "draft": draft,
        "answer": sample.answer or "",
        "cues": cues(teacher, sample),
        "reply": str(sample.meta.get(REPLY, "")),
    }
    text = _PLACEHOLDER.sub(lambda match: values[match[1]], template)
    return Prompt(system=teacher.system, images=sample.images, text=text)


def cues(teacher: Teacher, sample: Sample) -> str:
    """What a teacher is shown of the image in words; empty where the sample has nothing under that key."""
    value = sample.meta.get(teacher.cues) if teacher.cues is not None else None
    if value is None or isinstance(value, str):
        return value or ""
    return orjson.dumps(value, default=str).decode()


def prompt_key(teacher: Teacher) -> str:
    """What identifies a teacher's prompt: the text of the template, or the code that makes the text."""
    return _outside(teacher).code if teacher.prompt_from_outside else teacher.prompt


def _outside(teacher: Teacher) -> Extension:
    def lacking(loaded: Any) -> str:
        if not callable(loaded):
            return f"a prompt is a function of a sample that returns the text to ask, this is {type(loaded).__name__}"
        return call_fault(loaded, "sample")

    return load_once(PROMPTS, teacher.prompt, f"teachers.{teacher.name}.prompt", teacher._folder, lacking)


def prompt_fault(teacher: Teacher, sample: Sample) -> str:
    """Why code from outside, which makes this teacher's prompts, makes none of a sample; '' where it does."""
    try:
        _made_by(_outside(teacher), teacher, sample)
    except RecipeError as error:
        return str(error)
    return ""


def _made_by(extension: Extension, teacher: Teacher, sample: Sample) -> str:
    """The text that code from outside makes; it sees the gold answer only with `hinted`. RecipeError."""
    shown = replace(sample.copy(), answers=sample.answers if teacher.hinted else ())
    where = f"teachers.{teacher.name}.prompt = {teacher.prompt!r}"
    try:
        text = call(extension.loaded, shown)
    except FAILURES as error:
        raise RecipeError(f"{where} failed on sample {sample.id}: {describe(error)}") from error
    if not (isinstance(text, str) and text.strip()):
        raise RecipeError(f"{where} returned {text!r:.60} for sample {sample.id}; it must return the text to ask")
    return redact.encodable(text)


def image_part(data: bytes, mime: str) -> dict[str, Any]:
    """The content part of an encoded image."""
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{base64.b64encode(data).decode()}"}}


def messages(asked: Prompt, image_parts: Sequence[Any]) -> list[dict[str, Any]]:
    """Chat messages in the shape all chat templates and servers take; one content part an image, images first."""
    chat: list[dict[str, Any]] = []
    if asked.system:
        chat.append({"role": "system", "content": [{"type": "text", "text": asked.system}]})
    chat.append({"role": "user", "content": [*image_parts, {"type": "text", "text": asked.text}]})
    return chat


def prompt_sha(asked: Prompt) -> str:
    """Digest of everything a prompt holds: texts, roles and image bytes."""
    chat = messages(asked, [{"type": "image", "sha256": image.sha256} for image in asked.images])
    return hashlib.sha256(canonical(chat)).hexdigest()
