"""Texts that label their questions and answers (`Q:`, `**Answer:**`), and tables in Markdown, as records.

A text is read whole or not at all: a line that belongs to no label may be a choice, or the end of an answer.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from distill.word_tables import longest_first

Row = dict[str, Any]
_LABELS: Final = {
    **dict.fromkeys(("q", "question", "frage", "pregunta", "pergunta", "domanda", "vraag"), "question"),
    **dict.fromkeys(
        ("a", "answer", "correct answer", "right answer", "antwort", "réponse", "respuesta", "resposta", "risposta"),
        "answer",
    ),
    **dict.fromkeys(("image", "picture", "photo", "file", "bild", "foto", "imagen", "imagem"), "image"),
}
_WORDS: Final = longest_first(_LABELS)
_LABELLED: Final = re.compile(
    rf"[\s*_>#-]*(?P<label>{_WORDS})[\s*_]*\d*[\s*_]*[:：][\s*_]*(?P<text>.*)", re.IGNORECASE
)
_OWN_LABEL: Final = re.compile(r"[\s*_>#-]*(\(?[A-Za-z][).]|[^\W\d][\w ]{0,24}[:：])")
"""A line with a letter or a word of its own, such as `B) blue` or `Hint:`: no part of an answer."""
_LINK: Final = re.compile(r"!\[[^\]]*\]\(<?(?P<path>[^)\s>]+(?: [^)\s>]+)*?)>?(?:\s+\"[^\"]*\")?\)")
_NO_TEXT: Final = re.compile(r"\s*(#.*|[-*_=]{3,}|\d+[.)]?)?\s*")
"""Headings, rules, numbers and blank lines."""
_RULE: Final = re.compile(r"\|?(\s*:?-+:?\s*\|)+\s*(:?-+:?\s*)?")


def read_labelled(text: str) -> list[Row] | None:
    """The questions of a text in order, each with its answer and the image before or in it; None for other texts."""
    if (table := _table(text)) is not None:
        return table
    pairs = _pairs(text)
    if not pairs:
        return None
    first = pairs[0][0]
    if first == "answer":
        return None
    blocks: list[list[tuple[str, str]]] = []
    for label, said in pairs:
        if label == first or not blocks:
            blocks.append([])
        blocks[-1].append((label, said))
    records = [record for block in blocks for record in _records_of(block)]
    whole = all(record.keys() == records[0].keys() for record in records)
    return records if whole and all({"question", "answer"} <= record.keys() for record in records) else None


def _records_of(block: list[tuple[str, str]]) -> Iterator[Row]:
    """The questions of a block that begins with its image or its question. A label that comes twice spoils it."""
    shared: Row = {}
    record: Row = {}
    if block[0][0] == "image":
        shared, block = {"image": block[0][1]}, block[1:]
    for label, said in block:
        if label == "question" and record:
            yield record
            record = {}
        if label in record or (label == "image" and shared) or (label == "answer" and not record):
            yield {}
            return
        record = {**(record or shared), label: said}
    yield record


def _pairs(text: str) -> list[tuple[str, str]] | None:
    """The labels of a text with their values; None if a part of the text has no label."""
    pairs: list[tuple[str, str]] = []
    open_label = False
    for line in text.splitlines():
        if (link := _LINK.search(line)) and not line.replace(link[0], "").strip(" *_-"):
            pairs.append(("image", link["path"]))
            open_label = False
        elif label := _LABELLED.fullmatch(line):
            said = label["text"].strip()
            said = said.rstrip("*_").rstrip() if said.count("*") % 2 or said.count("_") % 2 else said
            link = _LINK.fullmatch(said)
            pairs.append((_LABELS[label["label"].lower()], link["path"] if link else said))
            open_label = True
        elif _NO_TEXT.fullmatch(line):
            open_label = open_label and bool(line.strip()) and not line.lstrip().startswith("#")
        elif pairs and pairs[-1][0] == "answer" and _OWN_LABEL.match(line):
            return None
        elif open_label or (pairs and pairs[-1][0] == "question"):
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]}\n{line.strip()}")
        elif pairs:
            return None
    return pairs


def _table(text: str) -> list[Row] | None:
    """The rows of the one table in a Markdown text; None without one."""
    lines = text.splitlines()
    rules = [at for at, line in enumerate(lines) if at and "|" in line and _RULE.fullmatch(line.strip())]
    if len(rules) != 1:
        return None
    names = _cells(lines[rules[0] - 1])
    rows: list[Row] = []
    for line in lines[rules[0] + 1 :]:
        if "|" not in line:
            break
        cells = _cells(line)
        if len(cells) != len(names) or len(set(names)) != len(names):
            return None
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _cells(line: str) -> list[str]:
    cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|"))]
    cells = cells[:-1] if cells and not cells[-1] and line.rstrip().endswith("|") else cells
    links = [_LINK.fullmatch(cell) for cell in cells]
    return [link["path"] if link else cell for link, cell in zip(links, cells, strict=True)]
