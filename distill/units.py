"""Units of measure that can be converted into each other, and one spelling for counted nouns."""

from decimal import Decimal
from functools import lru_cache
from typing import Final

_UNITS: Final[dict[str, tuple[str, Decimal]]] = {
    name: (dimension, Decimal(factor))
    for dimension, units in {
        "length": {
            "mm millimeter millimetre": "0.001",
            "cm centimeter centimetre": "0.01",
            "m meter metre": "1",
            "km kilometer kilometre": "1000",
            "in inch inches": "0.0254",
            "ft foot feet": "0.3048",
            "yd yard": "0.9144",
            "mi mile": "1609.344",
        },
        "mass": {
            "mg milligram": "0.000001",
            "g gram": "0.001",
            "kg kilogram kilo": "1",
            "tonne": "1000",
            "lb lbs pound": "0.45359237",
            "oz ounce": "0.028349523125",
        },
        "volume": {"ml milliliter millilitre": "0.001", "l liter litre": "1"},
        "duration": {
            "ms millisecond": "0.001",
            "s sec second": "1",
            "min minute": "60",
            "h hr hour": "3600",
            "day": "86400",
            "week": "604800",
        },
        "celsius": {"°c": "1"},
        "fahrenheit": {"°f": "1"},
        "angle": {"° degree deg": "1"},
        "kilometres an hour": {"km/h kph kmh": "1"},
        "miles an hour": {"mph": "1"},
    }.items()
    for names, factor in units.items()
    for name in names.split()
}


_PLURALS: Final = (
    *(("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("uses", "us")),
    ("s", ""),
)


@lru_cache(maxsize=4096)
def unit_name(word: str) -> str:
    """A unit or counted noun in the singular."""
    word = word.replace(" ", "").lower()
    if word in ("st", "nd", "rd"):
        return "th"
    if word in _UNITS or len(word) <= 3:
        return word
    for ending, instead in (
        ("ies", "y"),
        ("sses", "ss"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("xes", "x"),
        ("uses", "us"),
        ("s", ""),
    ):
        if word.endswith(ending) and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word


def unit_factor(unit: str) -> tuple[str, Decimal] | None:
    """Dimension of a known unit and its size in that dimension's base unit."""
    return _UNITS.get(unit)
