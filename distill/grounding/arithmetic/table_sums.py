"""Totals of columns in tables of Markdown: whether the last row is the sum of the rows above it."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK, Number
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for

_TABLE: Final = re.compile(r"(?m)(?:^[ \t]*\|[^\n]*\|[ \t]*(?:\n|\Z)){4,}")
_TOTAL: Final = re.compile(r"[ \t]*\|[ *_]*(?:grand )?(?:total|sum)s?[ *_:]*\|")
_RULE: Final = re.compile(r":?-+:?$")
"""The line under the names of the columns. These may stand behind a sentence, and are then no row."""


def find_table_claims(text: str, numbers: Sequence[Number]) -> Iterator[ArithmeticClaim]:
    """Claims of a canonical text with these numbers that a last row holds the sums of its columns.

    A column with an empty cell or a percentage makes none.
    """
    for table in _TABLE.finditer(text):
        rows: list[list[tuple[str, int]]] = []
        place = text.count(MARK, 0, table.start())
        for line in table[0].splitlines():
            cells = []
            for cell in line.strip(" \t|").split("|"):
                cells.append((cell.strip(" *_"), place))
                place += cell.count(MARK)
            rows.append(cells)
        under = next((at for at, cells in enumerate(rows) if all(_RULE.match(cell) for cell, _ in cells)), None)
        if under is not None and _TOTAL.match(table[0].splitlines()[-1]):
            yield from _column_claims(rows[under + 1 :], numbers)


def _column_claims(rows: list[list[tuple[str, int]]], numbers: Sequence[Number]) -> Iterator[ArithmeticClaim]:
    *body, total = rows
    for column, (cell, stated) in enumerate(total if body else ()):
        cells = [row[column] for row in body if column < len(row)]
        if cell != MARK or len(cells) < len(body) or any(written != MARK for written, _ in cells):
            continue
        summands = [numbers[n] for _, n in cells]
        if numbers[stated].percent or any(number.percent for number in summands):
            continue
        expected = sum(number.value for number in summands)
        right = stands_for(numbers[stated].value, numbers[stated].unit, expected, False)
        yield ArithmeticClaim(stated, stated, right, expected, ("column", *(number.value for number in summands)))
