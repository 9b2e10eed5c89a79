"""Arguments of the judge as texts: a number or a date is judged by its text; the error for another type names it.

As in a data source, a missing gold answer (None, NaN, the NA and NaT of pandas) is no gold answer. Cells of Arrow
tables, which `distill.traces` returns, and numpy arrays are read as the values that they hold.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from numbers import Number, Real
from typing import Any

from distill.errors import DataError

Text = str | float | Decimal | date
"""What is judged by its text."""


def text_of(name: str, value: Any) -> str:
    """The text of the argument of this name. Raises DataError where it is no text, number or date."""
    value = _plain(value)
    if isinstance(value, str):
        return value
    if isinstance(value, Number | date) and not _is_missing(value):
        try:
            return str(value)
        except ValueError:  # Python writes no whole number of more than 4,300 digits
            raise DataError(f"{name} is a number of too many digits; give its text") from None
    raise DataError(f"{name} is {_shown(value)}; give a text or a number")


def gold_texts(gold: Any) -> list[str]:
    """The accepted answers: one text or number, or several of them. Raises DataError for anything else."""
    gold = _plain(gold)
    golds = map(_plain, gold) if _is_group(gold) else [gold]
    return [_without_hedge(text_of("gold", each)) for each in golds if not _is_missing(each)]


def option_texts(options: Any) -> tuple[str, ...] | None:
    """The texts of the options. Raises DataError where they are no group of texts or numbers."""
    if options is not None and not _is_group(options):
        raise DataError(f"options is {_shown(options)}; give a list of texts")
    return None if options is None else tuple(text_of("an item of options", each) for each in options)


def type_text(answer_type: Any) -> str | None:
    """The name of the answer type, None where none is given. Raises DataError where it is no text."""
    return None if answer_type is None else text_of("answer_type", answer_type)


def checked_tolerance(value: Any) -> float:
    """The relative tolerance. Raises DataError where it is no finite share of at least 0."""
    if isinstance(value, Real) and 0 <= (tolerance := float(value)) < float("inf"):
        return tolerance
    raise DataError(f"relative_tolerance is {_shown(value)}; give a share of at least 0, such as 0.05")


def _is_group(value: Any) -> bool:
    # A data frame would give the names of its columns.
    return (
        isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) and not hasattr(value, "columns")
    )


def _plain(value: Any) -> Any:
    """The value in a cell of an Arrow table or in a numpy array without dimensions."""
    if hasattr(value, "as_py"):
        return value.as_py()
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float | date) and value != value  # NaN, and NaT, which is a date
    return value is None or is_nan or type(value).__name__ == "NAType"


def _shown(value: Any) -> str:
    return f"{value!r:.60} ({type(value).__name__})"


_HEDGE = re.compile(r"\s*(?:about|approximately|approx\.|around|roughly|circa|ca\.|~|≈)\s?(?=\d)", re.IGNORECASE)


def _without_hedge(gold: str) -> str:
    """A gold answer that is a number, without a word that says that it is approximate."""
    hedge = _HEDGE.match(gold)
    return gold if hedge is None else gold[hedge.end() :]
