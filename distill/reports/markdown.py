"""Markdown from templates: the cards of a dataset and of a student."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


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
    """One cell of a table: no bar and no line break of the text ends it."""
    return text.replace("|", "\\|").replace("\r", " ").replace("\n", " ")
