"""Markdown from templates: the cards of a dataset and of a student."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from distill.reports.bidi import isolated, without_controls


@cache
def environment(package: str) -> Environment:
    """The templates in the folder `templates` of a package; `table`, `cell`, `count` and `percent` are known."""
    result = Environment(  # Markdown, not HTML
        loader=PackageLoader(package, "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    result.globals["table"] = table
    result.filters.update(cell=cell, count=lambda value: f"{value:,}", percent=lambda share: f"{100 * share:.1f}")
    return result


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell(str(value)) for value in line)} |\n" for line in lines)


def cell(text: str) -> str:
    """One cell of a table: nothing in the text ends it, and outside code no tag, link or image begins in it."""
    text = isolated(without_controls(_LINE_BREAK.sub(" ", text))).replace("|", "\\|")
    return text if text.startswith("`") else _BEGINS.sub(r"\\\g<0>", text)


_LINE_BREAK = re.compile("[\r\n\u0085\u2028\u2029]+")
_BEGINS = re.compile(r"[<\[]")
