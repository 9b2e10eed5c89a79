"""Texts side by side with a line for each row: questions.txt, answers.txt and the images, as in COCO-QA."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from distill.data import guessed_columns

_IMAGES: Final = re.compile(r"(im(a)?ge?s?|pictures?|photos?)[ _-]?(ids?|names?|files?|paths?)?", re.IGNORECASE)


def rows_of_lines(files: Sequence[Path]) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """The file of questions of each folder that has such texts, with its rows.

    A folder counts if it has one text of questions, one of answers and one of images, all of as many lines.
    """
    folders: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if file.suffix.lower() == ".txt":
            folders[file.parent].append(file)
    for held in folders.values():
        roles = {
            role: [file for file in held if guessed_columns.is_usual(role, file.stem)]
            for role in ("question", "answer")
        }
        roles["image"] = [file for file in held if _IMAGES.fullmatch(file.stem)]
        if any(len(found) != 1 for found in roles.values()):
            continue
        try:
            lines = {found[0].stem: found[0].read_text(encoding="utf-8-sig").splitlines() for found in roles.values()}
        except UnicodeDecodeError:
            continue
        counts = {len(texts) for texts in lines.values()}
        if len(counts) == 1 and min(counts) > 1 and all(text.strip() for texts in lines.values() for text in texts):
            rows = [
                dict(zip(lines, map(str.strip, cells), strict=True)) for cells in zip(*lines.values(), strict=True)
            ]
            yield roles["question"][0], rows
