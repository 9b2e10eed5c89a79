"""Units of measure that `distill.answers.numbers.units` does not list, by the table of the pint library.

pint reads a unit as written: mW is no MW. It takes half a second to load, so it is asked once for a pair of units,
and only if one of them is known or looks like a symbol.
"""

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pint import UnitRegistry

_SYMBOL: Final = 4
"""Letters of the longest symbols: kmol, mmHg."""
_SIGNIFICANT: Final = ".12g"


def may_be_symbol(unit: str) -> bool:
    return len(unit) <= _SYMBOL or not unit.isalpha()


@lru_cache(maxsize=4096)
def size_in(unit: str, target: str) -> Decimal | None:
    """The factor from the first unit to the second; None where they measure different things or are no units."""
    if len(unit) > 30 or len(target) > 30:
        return None
    import pint

    registry = _registry()
    try:
        quantity, target_unit = registry.Quantity(1, _spelling(unit)), registry.Unit(_spelling(target))
        if quantity.dimensionless:
            return None
        return Decimal(format(quantity.to(target_unit).magnitude, _SIGNIFICANT))
    except (
        pint.errors.PintError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        SyntaxError,
        KeyError,
        AssertionError,
    ):
        return None


def _spelling(unit: str) -> str:
    """Symbols as they are, names in lower case; a power is written with two stars."""
    written = unit.replace("^", "**").replace("µ", "u").replace("μ", "u").replace("Ω", "ohm")
    return written if may_be_symbol(written) else written.lower()


@lru_cache(maxsize=1)
def _registry() -> "UnitRegistry[float]":
    from pint import UnitRegistry

    return UnitRegistry(autoconvert_offset_to_baseunit=False)
