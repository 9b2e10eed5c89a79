"""Files as they lie in a published data set, and the rows that a careful person reads from them.

Each layout names the source of its schema. The layouts are written from knowledge of these sources, not from a
download; "Written from memory" marks what is less sure. The groups `dev` and `heldout` were drawn at random.
`second_set` has the layouts of `heldout-2`; many of their schemas were confirmed (`PublicLayout.confirmed`).
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import datasets
from layouts.scenes import Digest, digest, encoded
from PIL import Image

SEED: Final = 20261128
STRING, BOOL = datasets.Value("string"), datasets.Value("bool")
INT8, INT32, INT64 = datasets.Value("int8"), datasets.Value("int32"), datasets.Value("int64")
FLOAT64: Final = datasets.Value("float64")
IMAGE: Final = datasets.Image()
_KINDS: Final = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}


@dataclass(frozen=True, slots=True)
class Row:
    """One question that a careful person would ask of a data set."""

    question: str
    """Without the tags of images; empty if it is drawn in the picture."""
    answer: str | None
    """The gold answer, the text of the right choice where there are choices; None if the file has none."""
    images: Sequence[Digest]
    choices: Sequence[str]
    accept: Sequence[str]
    """Forms of the gold answer that are as good."""
    split: str | None


Record = dict[str, Any]
Made = tuple[str, list[Row]]
"""The path inside the folder that a user would give, and the expected rows in any order."""


@dataclass(frozen=True, slots=True)
class PublicLayout:
    """One data set as it is published."""

    name: str
    group: str
    """`dev`, `heldout`, `heldout-2` or `heldout-3`."""
    refusable: bool
    """Whether it is right to refuse it."""
    write: Callable[[Path, random.Random], Made]
    confirmed: str = ""
    """How far its schema was confirmed: `whole`, `in part`, `knowledge`, or `own` (a folder of a person)."""

    def make(self, folder: Path) -> Made:
        """Write the files; the same in every run."""
        folder.mkdir(parents=True)
        datasets.disable_progress_bars()
        path, rows = self.write(folder, random.Random(f"{SEED}:{self.name}"))
        return str(folder / path), rows


def layout(group: str, *, refusable: bool = False) -> Callable[[Callable[[Path, random.Random], Made]], PublicLayout]:
    """Make a layout of a function that writes its files; the name of the function is that of the layout."""
    return lambda write: PublicLayout(write.__name__, group, refusable, write)


def letter(index: int) -> str:
    """The letter of a choice."""
    return "ABCDEFGHIJ"[index]


def row(
    question: str,
    answer: str | None,
    images: Sequence[Digest],
    choices: Sequence[str] | None = None,
    idx: int | None = None,
    *,
    split: str | None = None,
    accept: Sequence[str] | None = None,
) -> Row:
    """An expected row; `idx` is the index of the right choice."""
    accepted = list(accept or [])
    if choices and idx is not None:
        answer = choices[idx]
        accepted += [letter(idx), answer]
    return Row(question, answer, images, choices or [], sorted(set(accepted)), split)


def save_image(image: Image.Image, path: Path, kind: str | None = None) -> Digest:
    """Write an image file, by default of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = encoded(image, kind or _KINDS[path.suffix.lower()])
    path.write_bytes(data)
    return digest(data)


def image_cell(image: Image.Image, path: str | None = None, kind: str = "PNG") -> tuple[Record, Digest]:
    """A cell of a Parquet column of images, and the digest of its pixels."""
    data = encoded(image, kind)
    return {"bytes": data, "path": path}, digest(data)


def write_json(path: Path, value: Any, indent: int | None = None) -> None:
    """Write a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False), encoding="utf-8")


def write_jsonl(path: Path, rows: Sequence[Record]) -> None:
    """Write one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows), encoding="utf-8")


def write_parquet(path: Path, records: Sequence[Record], features: Mapping[str, Any]) -> None:
    """Write a Parquet file with the metadata of the package `datasets`; a missing value is null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {name: [record.get(name) for record in records] for name in features}
    datasets.Dataset.from_dict(columns, features=datasets.Features(features)).to_parquet(str(path))


def data_files(*splits: str, folder: str = "data") -> dict[str, str]:
    """The pattern of the files of each split, as a hub repository names them."""
    return {split: f"{folder}/{split}-*" for split in splits}


def write_card(folder: Path, configs: Mapping[str, Mapping[str, str]], name: str) -> None:
    """Write the files at the top of a hub repository; `configs` has the pattern of each split of each config."""
    lines = ["---", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, pattern in splits.items():
            lines += [f"  - split: {split}", f"    path: {pattern}"]
    lines += ["---", f"# {name}", "", "Synthetic copy of the layout only.", ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
    attributes = "".join(f"*.{kind} filter=lfs diff=lfs merge=lfs -text\n" for kind in ("parquet", "zip"))
    (folder / ".gitattributes").write_text(attributes, encoding="utf-8")


def conversation(*turns: str) -> list[Record]:
    """Turns of a person and a model, as LLaVA writes them."""
    return [{"from": "human" if i % 2 == 0 else "gpt", "value": text} for i, text in enumerate(turns)]
