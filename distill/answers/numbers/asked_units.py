"""What a question asks a bare number for: 330 of "how many million users" is 330,000,000.

A gold answer without unit takes scale, percent sign, currency and unit from its question. So 36 m does not answer "in
centimetres", and 58% answers "what percentage". Only known units are read; of two units none is taken.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from distill.answers.numbers.currencies import CURRENCIES
from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.number_words import SCALES
from distill.answers.numbers.quantities import Quantity
from distill.answers.numbers.units import unit_factor, unit_name

_LONGEST: Final = 1000
_PERCENT = re.compile(
    r"\bpercent|\b(?:unemployment|inflation|growth|interest|approval|literacy) rate\b|\bshare of\b"
    r"|\bper cent\b|%|\bprozent|pour ?cent|porcentaje|por ciento|percentuale|porcentagem|百分|パーセント|%",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"(?:\b(?:in|nearest|how many(?: more| fewer)?|wie ?viele?|combien de"
    r"|cuántos|cuántas|quanti|quante|quantos|quantas|en|em)\b|多少)\s?"
    r"(?:(?P<scale>hundred|thousand|million|billion|trillion|millionen|tausend|millones|milliarden|miles|milhões|milioni|миллионов|тысяч)s?\b"
    r"(?: of| de)?\s?)?"
    r"(?:(?:u\.?s\.?|american|constant|current|metric|degrees?) )*(?P<unit>[^\W\d_]+(?:/[a-z]+)?(?:\^\d)?|°[CF]?)?",
    re.IGNORECASE,
)
_ANGLE = re.compile(r"\b(?:measure|value|size|degrees?) of (?:the )?(?:\w+ )?(?:angle|∠)|∠", re.IGNORECASE)
_NO_UNITS: Final = frozenset({"in", "a", "an", "m", "s", "l", "h", "second", "yard", "foot", "cup", "mile", "pound"})
"""Words and letters that are seldom the unit asked for: in the second picture."""


def with_asked_unit(quantity: Quantity | None, question: str) -> Quantity | None:
    """A bare gold quantity with what its question asks for; None if there is nothing to add."""
    if quantity is None or not question or quantity.percent or quantity.currency or quantity.unit:
        return None
    asked = _read_question(question[:_LONGEST])
    if not asked:
        return None
    scale = SCALES[asked["scale"]] if "scale" in asked and quantity.decimals is not None else 1
    return replace(
        quantity,
        value=quantity.value * scale,
        others=tuple(value * scale for value in quantity.others),
        decimals=quantity.decimals if scale == 1 else None,
        percent="percent" in asked,
        currency=asked.get("currency", ""),
        unit=asked.get("unit", ""),
        written_unit=asked.get("unit", ""),
    )


def asks_percent(question: str) -> bool:
    """Whether a text, such as a question, mentions a percentage."""
    return _PERCENT.search(question[:_LONGEST]) is not None


@lru_cache(maxsize=2048)
def _read_question(question: str) -> Mapping[str, str]:
    text = normalise(question)
    if _PERCENT.search(text):
        return {"percent": "%"}
    asked: dict[str, str] = {}
    units: set[str] = set()
    for match in _ASKED.finditer(text):
        if match["scale"]:
            scale = match["scale"].lower()
            asked["scale"] = scale if scale in SCALES else scale.removesuffix("s")
        written = match["unit"] or ""
        word = written.lower()
        if word in CURRENCIES:
            asked["currency"] = CURRENCIES[word]
        elif word not in _NO_UNITS and unit_factor(unit_name(word)) is not None:
            units.add(unit_name(word))
    if not units and _ANGLE.search(text):
        units.add("°")
    if len(units) == 1:
        asked["unit"] = units.pop()
    if asked.get("scale") not in SCALES:
        asked.pop("scale", None)
    return asked
