"""What a teacher is asked: one sample and one teacher's template become a chat.

Pure: images stay references. How an engine wants them (data URLs, pixels) is the engine's business.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distill.artifacts.manifest import canonical
from distill.recipe.teachers import Teacher
from distill.types import ImageRef, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A chat of one user turn: optional system text, then the images, then the text."""

    system: str
    images: tuple[ImageRef, ...]
    text: str


PLACEHOLDERS = ("question", "draft", "answer")
_PLACEHOLDER = re.compile("{(question|draft|answer)}")


def prompt(teacher: Teacher, sample: Sample, draft: str = "") -> Prompt:
    """The chat in which `teacher` is asked `sample`, given another teacher's `draft` if it works on drafts.

    What is inserted goes in as it is, braces and all; other braces of the template are left alone.
    """
    values = {"question": sample.question, "draft": draft, "answer": sample.answer or ""}
    text = _PLACEHOLDER.sub(lambda match: values[match[1]], teacher.prompt)
    return Prompt(system=teacher.system, images=sample.images, text=text)


def messages(asked: Prompt, image_parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
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
