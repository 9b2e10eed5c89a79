"""Readings of a text as an expression: "the area is 36π square units", "three times the square root of 2", "x = 2√5".

Gives texts that `distill.answers.verdicts` compares with a gold expression; only their agreement counts, never that
one of them differs.
"""

import re
from collections.abc import Iterator
from typing import Final

from distill.answers.numbers.number_words import spelled
from distill.answers.numbers.units import unit_factor, unit_name

_LONGEST: Final = 300
_WORDS: Final = (
    (re.compile(r"\b(?:the )?(?:square )?root of (?:the )?|\b(?:square )?root (?=\d)", re.IGNORECASE), "√"),
    (re.compile(r"\s(?:times|multiplied by)\s", re.IGNORECASE), "*"),
    (re.compile(r"\s(?:over|divided by)\s", re.IGNORECASE), "/"),
    (re.compile(r"\spi\b|\bpi\s", re.IGNORECASE), " π "),
    (re.compile(r"\ssquared\b", re.IGNORECASE), "^2"),
    (re.compile(r"\scubed\b", re.IGNORECASE), "^3"),
    (re.compile(r"\s(?:is )?(?:equals?|equal to)\s", re.IGNORECASE), " = "),
    (re.compile(r"\s(?:is )?(?:greater|more|larger|bigger) than\s", re.IGNORECASE), " > "),
    (re.compile(r"\s(?:is )?(?:less|smaller|fewer) than\s", re.IGNORECASE), " < "),
    (re.compile(r"\s(?:plus)\s", re.IGNORECASE), " + "),
    (re.compile(r"\s(?:minus)\s", re.IGNORECASE), " - "),
)
_STATED = re.compile(
    r".{0,120}\b(?:is|are|equals|gives|so|thus|therefore|hence|get|by)\b:?\s", re.IGNORECASE | re.DOTALL
)
_ABOUT = re.compile(r"^\s*(?:(?:approximately|approx\.|about|roughly|around)\s|≈\s?)(?=-?\d+\.\d)", re.IGNORECASE)
_APPROXIMATE_ASIDE = re.compile(
    r"\s?\((?:in )?(?:(?:square|cubic) )?(?:units?|[a-z]{1,3}[²³]?)\)\.?$"
    r"|\s?\((?:≈|~|about |approximately |approx\. |\\approx)[^()]{1,20}\)|\s?(?:≈|\\approx)\s?\d[\d.]*$"
)
_OPEN = re.compile(
    r"\b(?:or|not|n't|between|about|approximately|either|neither|except|but)\b|≈|±|\\pm", re.IGNORECASE
)
_UNIT_AT_END = re.compile(
    r"\s*(?:\\text\{)?\s*(?P<unit>(?:cubic |square )?[a-zA-Z]{1,12}(?:\^\{?[23]\}?)?)\}?\s*\$?\.?$"
)
_FUNCTION = re.compile(r"^\s*\$?\s*[a-z]\s?\(\s?x\s?\)\s?=")
_MULTIPLE = re.compile(r"^\s*\$?\s*-?\d+\s?[a-zA-Z]\b")


def readings(text: str, gold: str, *, with_units: bool) -> Iterator[str]:
    """The expressions that a text may state; without its unit, unless the gold answer is an amount `with_units`."""
    text = _APPROXIMATE_ASIDE.sub("", _ABOUT.sub("", text.partition(" because ")[0]))
    if len(text) > _LONGEST or _OPEN.search(text):
        return
    text = in_signs(text)
    if _FUNCTION.match(text):
        yield _FUNCTION.sub("y =", text)
    stated = _STATED.match(text)
    parts = [text] if stated is None else [text, text[stated.end() :]]
    for part in parts:
        sides = part.split("=")
        last = [] if len(sides) < 2 or _MULTIPLE.match(sides[0]) or "=" in gold else [sides[-1]]
        for candidate in (part, *last):
            yield candidate.strip(" .$")
            if not with_units:
                yield without_unit(candidate)


def in_signs(text: str) -> str:
    """Spoken mathematics in signs, with numbers in figures."""
    for value, start, end in reversed(list(spelled(text))):
        text = f"{text[:start]}{value.normalize():f}{text[end:]}"
    for pattern, sign in _WORDS:
        text = pattern.sub(sign, text)
    return " ".join(text.split())


def without_unit(text: str) -> str:
    """An expression without the unit at its end."""
    match = _UNIT_AT_END.search(text)
    if match is None or not match.start():
        return text
    unit = match["unit"].replace("{", "").replace("}", "")
    for word, power in (("cubic ", "^3"), ("square ", "^2")):
        unit = unit.removeprefix(word) + power if unit.startswith(word) else unit
    is_unit = (
        unit == "units" or unit_factor(unit) is not None or unit_factor(unit_name(unit.partition("^")[0])) is not None
    )
    return text[: match.start()].strip(" .$") if is_unit else text
