"""Units of measure that can be converted into each other, and one spelling for counted nouns."""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final

from distill.word_tables import read_table

_TABLE: Final = read_table(__file__)
_UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    name: (dimension, Decimal(size))
    for dimension, units in _TABLE["units"].items()
    for *names, size in map(str.split, units.split(";"))
    for name in names
}

_PLURALS: Final = (
    ("ies", "y"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("uses", "us"),
    ("sses", "ss"),
    ("s", ""),
)
_IRREGULAR: Final = {
    **{"people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse", "teeth": "tooth"},
    **{"leaves": "leaf", "knives": "knife", "geese": "goose", "shelves": "shelf", "wolves": "wolf"},
}

_FOREIGN: Final[dict[str, str]] = {name: unit for unit, names in _TABLE["foreign"].items() for name in names.split()}

_MORE_AFTER = re.compile(r"[〇零一二三四五六七八九十百]|です|でした|だ(?!けど)|[いあ]ります|います|が|の|[达的是最]")


def foreign_unit_length(word: str) -> int:
    """Length of the unit at the beginning of words without spaces: 時間 of 時間二十分; else 0."""
    for end in range(min(len(word) - 1, 6), 0, -1):
        if word[:end] in _FOREIGN and _MORE_AFTER.match(word, end):
            return end
    return 0


@lru_cache(maxsize=4096)
def unit_name(word: str) -> str:
    """A unit or counted noun in the singular."""
    word = word.replace(" ", "").lower()
    if word in ("st", "nd", "rd"):
        return "th"
    if "^" in word and (base := _FOREIGN.get(word[:-2])) is not None:
        return base + word[-2:]
    if (english := _FOREIGN.get(word) or _FOREIGN.get(word.removesuffix("s"))) is not None:
        return english
    if word in _UNITS or len(word) <= 3:
        return word
    if word.removesuffix("s") in _UNITS:
        return word.removesuffix("s")
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    for ending, instead in _PLURALS:
        if word.endswith(ending) and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word


def loosely_equal(value: Decimal, unit: str, other_value: Decimal, other_unit: str) -> bool:
    """Whether two amounts in known units may be the same one by a conversion that is not one factor.

    Fahrenheit and Celsius, months and days, kilobytes of 1024.
    """
    factor, other_unit_factor = unit_factor(unit), unit_factor(other_unit)
    if factor is None or other_unit_factor is None:
        return False
    kinds = {factor[0], other_unit_factor[0]}
    if kinds == {"celsius", "fahrenheit"}:
        celsius, fahrenheit = (value, other_value) if factor[0] == "celsius" else (other_value, value)
        return abs(celsius * 9 / 5 + 32 - fahrenheit) <= 1
    size, other_size = value * factor[1], other_value * other_unit_factor[1]
    if kinds == {"calendar", "duration"}:
        size, other_size = (
            amount * (2629746 if unit_size[0] == "calendar" else 1)
            for amount, unit_size in ((size, factor), (other_size, other_unit_factor))
        )
    elif kinds != {"data"}:
        return False
    return abs(size - other_size) <= abs(other_size) * Decimal("0.1" if kinds == {"data"} else "0.02")


_SYMBOL_OF: Final[dict[tuple[str, Decimal], str]] = {}
for _name, _size in _UNITS.items():
    _SYMBOL_OF.setdefault(_size, _name)


def unit_symbol(unit: str) -> str:
    """The symbol of a known unit; empty for another word."""
    size = _UNITS.get(unit)
    return "" if size is None else _SYMBOL_OF[size]


def unit_factor(unit: str) -> tuple[str, Decimal] | None:
    """Dimension of a known unit and its size in that dimension's base unit."""
    return _UNITS.get(unit)
