"""Numbers of a text that are no answer: they repeat the question, or are years that say when."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final

from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.quantities import Quantity, read_quantities


def without_context(numbers: tuple[Quantity, ...], text: str, gold: Quantity, question: str) -> tuple[Quantity, ...]:
    """The numbers but those that only repeat the question, and years that say when: the value was 42 in 2014."""
    if not (len(numbers) > 1 or question):
        return numbers
    may_repeat = question and not _UNSURE.search(text)
    asked = {quantity.value for quantity in read_quantities(normalise(question))} if may_repeat else set()
    of_gold = {gold.value, *gold.others}
    if " per " in text and " per " not in question:
        numbers = tuple(item for item in numbers if not text[: item.start].endswith(" per ")) or numbers
    asked -= _offered_beside(of_gold, numbers, text)
    gold_is_year = is_year(gold)
    kept = tuple(
        quantity
        for quantity in numbers
        if quantity.value in of_gold
        or not (quantity.value in asked or (not gold_is_year and _says_when(quantity, text)))
    )
    if not kept and not of_gold & asked:
        kept = read_quantities(_FIGURES.sub("#", text))  # four bars exceed 50
    return kept or numbers


def _offered_beside(of_gold: set[Decimal], numbers: Sequence[Quantity], text: str) -> set[Decimal]:
    """Numbers that an answer offers together with the gold's, and does not only repeat: 16 or 18."""
    return {
        value
        for first, second in pairwise(sorted(numbers, key=lambda quantity: quantity.start))
        if of_gold & {first.value, second.value} and _OFFERED.search(text[first.start : second.start])
        for value in (first.value, second.value)
    }


_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|might|could|may be|either|vielleicht|entweder|peut-être|quizás?|tal vez|"
    r"forse|talvez)\b|可能|也许|かもしれ|может",
    re.IGNORECASE,
)
_OFFERED = re.compile(
    r"(?:\b(?:or|nor|oder|ou|o|ou bien|или|либо)\b|或|还是|または|か|또는)\W*(?:\w+\W+)?$"
    r"|^\W*\d[\d.,]*\W*(?:(?:and|to|und|bis|et|à|y|a|e|и)\b|[,;/&~–-])\W*$",
    re.IGNORECASE,
)
_FIGURES = re.compile(r"\d[\d.,]*")


def is_year(quantity: Quantity) -> bool:
    is_bare = not (quantity.percent or quantity.currency or quantity.unit or quantity.decimals)
    return is_bare and 1500 <= quantity.value < 2100


def _says_when(quantity: Quantity, text: str) -> bool:
    return (
        is_year(quantity) and _WHEN.search(text[max(0, quantity.start - _LOOKED_BACK) : quantity.start]) is not None
    )


_LOOKED_BACK: Final = 20
_WHEN = re.compile(r"\b(?:in|for|during|of|by|since|im Jahr|en|nel|em)\s(?:the year\s)?$|^$", re.IGNORECASE)
