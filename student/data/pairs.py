"""Pairs of rows: the right and the wrong trace of one question, one after the other."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from student.data.encoded_rows import Example

NO_PARTNER = "no_partner"
"""A row whose partner cannot be trained on, because it is too long for example."""


def whole_pairs(examples: Iterable[Example], dropped: Counter[str]) -> Iterator[Example]:
    """The right row of each whole pair, then its wrong one; a row without a partner is left out and counted."""
    for _, group in groupby(examples, key=lambda example: example.row.sample_id):
        rows = sorted(group, key=lambda example: example.row.rejected)
        if [example.row.rejected for example in rows] == [False, True]:
            yield from rows
        else:
            dropped[NO_PARTNER] += len(rows)
