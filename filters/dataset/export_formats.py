"""The formats of other trainers for one example: conversations, image placeholders, and placeholders inside texts.

The formats, as their projects document them: LLaVA (and other readers of ShareGPT conversations), LLaMA-Factory's
sharegpt formatting, ms-swift's standard messages. All formats mark an image by `<image>` in the text, compare the
number of marks with the number of images, and have no escape for a mark. So the same letters in a question or a
rationale are written `< image>`; the dataset itself keeps them unchanged. Writes nothing
(filters/dataset/exports.py).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill.errors import RecipeError
from distill.extensions import EXPORT_FORMATS, call_fault, field_fault, load

IMAGE = "<image>"
ROLES = {"user": "human", "assistant": "gpt", "system": "system"}
"""The roles of messages, with their names in LLaVA."""
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
PAIRS_INFO: Mapping[str, Any] = {
    **DATASET_INFO,
    "ranking": True,
    "columns": {"messages": "messages", "chosen": "chosen", "rejected": "rejected", "images": "images"},
}
"""The same for pairs."""
DATASET_INFO_FILE = "dataset_info.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportImage:
    data: bytes
    suffix: str
    """Suffix of the file name, with its dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRow:
    """A row of the dataset. `values` are its columns besides images and messages."""

    messages: Sequence[Mapping[str, str]]
    pictures: tuple[ExportImage, ...]
    values: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.values["trace_id"])

    def copy(self) -> "DatasetRow":
        """A copy of a row for user code, which may change its argument."""
        return replace(self, messages=[dict(message) for message in self.messages], values=dict(self.values))


def without_tags(text: str, tags: Sequence[str]) -> str:
    """The text with a space after the bracket of each tag in it."""
    if "<" not in text:
        return text
    for tag in tags:
        text = text.replace(tag, f"< {tag[1:]}")
    return text


def is_altered(example: DatasetRow, tags: Sequence[str]) -> bool:
    """Whether a format with these tags must change the example's text."""
    return any(tag in message["content"] for message in example.messages for tag in tags)


def mark_images(example: DatasetRow, tags: Sequence[str], marks: str) -> list[tuple[str, str]]:
    """Role and text of each turn; the placeholders of all images are before the first question."""
    turns = []
    for message in example.messages:
        text = without_tags(message["content"], tags)
        if message["role"] == "user":
            text, marks = marks + text, ""
        turns.append((message["role"], text))
    return turns


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFormat:
    """A format of a trainer: the record of each example, and the instructions for use."""

    file: str
    """The name of the file; a JSON array where it ends in .json, else JSON lines."""
    record: Callable[[DatasetRow, Sequence[str]], Mapping[str, Any]] | None
    """The record of an example with the paths of its images; None for a format with a writer of its own."""
    tags: tuple[str, ...] = ()
    """What the trainer would take for a mark of its own wherever it stands in a text."""
    guide: str = ""
    """Markdown of the export's README: how to train from it. {name} is the dataset's."""
    pairs: bool = False
    """Whether an example is a pair: a question, its right reply and its wrong one as three messages."""


def llava(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    """`image` is one path, as in LLaVA, or a list of paths for several images, as in LLaVA-NeXT."""
    image = {} if not paths else {"image": paths[0] if len(paths) == 1 else list(paths)}
    turns = mark_images(example, FORMATS["llava"].tags, f"{IMAGE}\n" * len(paths))
    talk = [{"from": ROLES[role], "value": text} for role, text in turns]
    return {"id": example.id, **image, "conversations": talk}


def llama_factory(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    return _messages(example, FORMATS["llama-factory"].tags, paths)


def ms_swift(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    return _messages(example, FORMATS["ms-swift"].tags, paths)


def _messages(example: DatasetRow, tags: Sequence[str], paths: Sequence[str]) -> dict[str, Any]:
    talk = [{"role": role, "content": text} for role, text in mark_images(example, tags, IMAGE * len(paths))]
    return {"id": example.id, "messages": talk, "images": list(paths)}


FORMATS: Mapping[str, ExportFormat] = {
    "llava": ExportFormat(
        file="llava.json",
        record=llava,
        tags=(IMAGE,),
        guide="""## LLaVA, ShareGPT: `llava.json`

`--data_path llava.json --image_folder .`, both from this folder. Examples with several images hold a list of paths,
which LLaVA-NeXT reads and LLaVA 1.5 does not.""",
    ),
    "llama-factory": ExportFormat(
        file="llama-factory.jsonl",
        record=llama_factory,
        tags=(IMAGE, "<video>", "<audio>"),
        guide="""## LLaMA-Factory: `llama-factory.jsonl`, `dataset_info.json`

`dataset_dir: <this folder>` and `dataset: {name}`. Images are looked for below `media_dir`, which is `dataset_dir`
unless it is given.""",
    ),
    "ms-swift": ExportFormat(
        file="ms-swift.jsonl",
        record=ms_swift,
        tags=(*(IMAGE, "<video>", "<audio>", "<img>", "<bbox>"), *("<ref-object>", "<cot-process>", "<start-image>")),
        guide="""## ms-swift: `ms-swift.jsonl`

`ROOT_IMAGE_DIR=<this folder> swift sft --dataset <this folder>/ms-swift.jsonl`.""",
    ),
    "webdataset": ExportFormat(
        file="webdataset",
        record=None,
        guide="""## WebDataset: `webdataset/*.tar`

`webdataset.WebDataset(<list of the tars>)` reads them all. Each series of tars holds examples with equally many
images of the same kinds, for `datasets.load_dataset("webdataset", data_files=...)` takes the columns from the first
tar that it is given and silently leaves out what others have beyond them: give it one series at a time.""",
    ),
}
"""The project's formats by their names in the recipe; `webdataset` is a folder of tars."""


def trl_pairs(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    """TRL puts the marks of images before the first question itself."""
    *prompt, right, wrong = map(dict, example.messages)
    return {"id": example.id, "prompt": prompt, "chosen": [right], "rejected": [wrong], "images": list(paths)}


def llama_factory_pairs(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    record = llama_factory(example, paths)
    *prompt, right, wrong = record["messages"]
    return {**record, "messages": prompt, "chosen": right, "rejected": wrong}


def ms_swift_pairs(example: DatasetRow, paths: Sequence[str]) -> dict[str, Any]:
    record = ms_swift(example, paths)
    *talk, wrong = record["messages"]
    return {**record, "messages": talk, "rejected_response": wrong["content"]}


PAIR_FORMATS: Mapping[str, ExportFormat] = {
    "trl-pairs": ExportFormat(
        file="trl-pairs.jsonl",
        record=trl_pairs,
        pairs=True,
        guide="""## TRL: `trl-pairs.jsonl`

`datasets.load_dataset("json", data_files="trl-pairs.jsonl", split="train")`, then
`.cast_column("images", datasets.List(datasets.Image()))` with this folder as working directory, for `DPOTrainer`.""",
    ),
    "llama-factory-pairs": ExportFormat(
        file="llama-factory-pairs.jsonl",
        record=llama_factory_pairs,
        tags=FORMATS["llama-factory"].tags,
        pairs=True,
        guide="""## LLaMA-Factory: `llama-factory-pairs.jsonl`, `dataset_info.json`

`stage: dpo`, `dataset_dir: <this folder>` and `dataset: {name}`.""",
    ),
    "ms-swift-pairs": ExportFormat(
        file="ms-swift-pairs.jsonl",
        record=ms_swift_pairs,
        tags=FORMATS["ms-swift"].tags,
        pairs=True,
        guide="""## ms-swift: `ms-swift-pairs.jsonl`

`ROOT_IMAGE_DIR=<this folder> swift rlhf --rlhf_type dpo --dataset <this folder>/ms-swift-pairs.jsonl`.""",
    ),
}
"""Formats of pairs by their names; recipes do not have them, because pairs are made for a training stage."""


def chosen_formats(names: Sequence[str], folder: Path) -> dict[str, ExportFormat]:
    """The formats of these names, of which files are relative to `folder`. Raises RecipeError."""
    formats = {name: FORMATS[name] for name in FORMATS if name in names}
    for name in names:
        if name not in FORMATS:
            own_format = load(EXPORT_FORMATS, name, "filter.exports", folder, _lacking).loaded
            # Some file systems take names that differ in case for one.
            if any(own_format.file.lower() == other_format.file.lower() for other_format in formats.values()):
                raise RecipeError(f"filter.exports = {name!r}: another export writes {own_format.file}; name another")
            formats[name] = own_format
    return formats


def format_codes(names: Sequence[str], folder: Path) -> dict[str, str]:
    """The digests of the users' formats, for the fingerprint."""
    outside = [name for name in names if name not in FORMATS]
    return {name: load(EXPORT_FORMATS, name, "filter.exports", folder, _lacking).code for name in outside}


def _lacking(made: Any) -> str:
    if not isinstance(made, ExportFormat):
        return f"an export is a filters.dataset.export_formats.ExportFormat, this is {type(made).__name__}"
    if fault := field_fault(made):
        return fault
    if made.record is None or not re.fullmatch(r"[A-Za-z0-9_-]+\.jsonl?", made.file):
        return f"it needs a record and a file such as mine.jsonl or mine.json, got file = {made.file!r}"
    if made.file == DATASET_INFO_FILE:
        return f"{DATASET_INFO_FILE} is a file of the export llama-factory; name another"
    return call_fault(made.record, "example", "paths")
