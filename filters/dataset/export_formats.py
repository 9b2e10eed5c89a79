"""One example in the words of each trainer: conversations, placeholders, and what a placeholder looks like in text.

The formats, as their projects document them: LLaVA (and everybody who reads ShareGPT conversations), LLaMA-Factory's
sharegpt formatting, ms-swift's standard messages. All of them mark a picture by `<image>` in the text, count these
marks against the pictures, and know no way to escape one. So the same letters in a question or a rationale are
written `< image>`; the dataset itself keeps them as they were. Writes nothing (filters/dataset/exports.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distill.recipe.filter import ExportName

IMAGE = "<image>"
TAGS: Mapping[ExportName, tuple[str, ...]] = {
    "llava": (IMAGE,),
    "llama-factory": (IMAGE, "<video>", "<audio>"),
    "ms-swift": (
        *(IMAGE, "<video>", "<audio>", "<img>", "<bbox>"),
        *("<ref-object>", "<cot-process>", "<start-image>"),
    ),
    "webdataset": (),
}
"""What a trainer would take for a mark of its own wherever it stands in a text."""

_LLAVA_ROLES = {"user": "human", "assistant": "gpt", "system": "system"}
DATASET_INFO: Mapping[str, Any] = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages", "images": "images"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
    },
}
"""The entry of dataset_info.json, without the name of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportImage:
    data: bytes
    suffix: str
    """Of a file's name, with its dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRow:
    """A row of the dataset. `values` are its columns besides pictures and messages."""

    messages: Sequence[Mapping[str, str]]
    pictures: tuple[ExportImage, ...]
    values: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.values["trace_id"])


def without_tags(text: str, tags: Sequence[str]) -> str:
    """The text with a space after the bracket of everything that would be taken for a tag."""
    if "<" not in text:
        return text
    for tag in tags:
        text = text.replace(tag, f"< {tag[1:]}")
    return text


def altered(example: DatasetRow, name: ExportName) -> bool:
    """Whether the format cannot hold the example's text letter by letter."""
    return any(tag in message["content"] for message in example.messages for tag in TAGS[name])


def llava(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    """`image` is one path, as LLaVA reads it; a list of paths where there are several, as LLaVA-NeXT does."""
    image = {} if not paths else {"image": paths[0] if len(paths) == 1 else list(paths)}
    turns = _marked(example, "llava", f"{IMAGE}\n" * len(paths))
    talk = [{"from": _LLAVA_ROLES[role], "value": text} for role, text in turns]
    return {"id": example.id, **image, "conversations": talk}


def llama_factory(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    return _messages(example, "llama-factory", paths)


def ms_swift(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    return _messages(example, "ms-swift", paths)


LINES: Mapping[ExportName, Callable[[DatasetRow, Sequence[str]], dict[str, Any]]] = {
    "llava": llava,
    "llama-factory": llama_factory,
    "ms-swift": ms_swift,
}
"""Formats that are one file of records, with the pictures beside it."""


def _messages(example: DatasetRow, name: ExportName, paths: Sequence[str]) -> dict[str, Any]:
    turns = _marked(example, name, IMAGE * len(paths))
    talk = [{"role": role, "content": text} for role, text in turns]
    return {"id": example.id, "messages": talk, "images": list(paths)}


def _marked(example: DatasetRow, name: ExportName, marks: str) -> list[tuple[str, str]]:
    """Role and text of each turn; the marks of all pictures stand before the first question."""
    turns = []
    for message in example.messages:
        text = without_tags(message["content"], TAGS[name])
        if message["role"] == "user":
            text, marks = marks + text, ""
        turns.append((message["role"], text))
    return turns
