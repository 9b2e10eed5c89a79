"""The value of a written expression, and whether a written number can be the rounding of a value."""

import math
from collections.abc import Sequence
from operator import add, mul, sub, truediv
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK

_DEEPEST: Final = 20
_FINE: Final = 0.005
"""A decimal number whose last place is so small a share of a value has all digits of a value that ends there."""
SIMPLE: Final = {"+": add, "-": sub, "*": mul, "/": truediv}


def stands_for(stated: float, unit: float, value: float, hedged: bool) -> bool:
    """Whether a number as written is a value: exactly, or rounded or cut where the value has more decimals."""
    distance = abs(stated - value)
    if distance <= 1e-9 * max(1.0, abs(value)):
        return True
    if hedged and 0.1 * abs(value) >= distance and stated % 10 == 0 and distance <= 0.5 * _last_digit(stated):
        return True
    steps = value / unit
    whole = abs(steps) < 1e12 and abs(steps - round(steps)) <= 1e-6
    if whole and unit != 1 and unit <= _FINE * abs(value):
        return False  # "about 4.78" of what is 4.80
    if hedged and distance <= max(0.5 * unit if unit < 1 else 0.0, 0.03 * abs(value)):
        return True
    if whole:
        return False
    if unit < 1 or unit > 1:
        return distance < unit * 1.0001
    return distance <= 0.50001 and distance <= 0.05 * abs(value)


def _last_digit(stated: float) -> float:
    """One of the last place that is no zero: 10 for 80, 100 for 1200."""
    place = 10.0
    while stated and stated % (10 * place) == 0:
        place *= 10
    return place


class _UnreadableError(Exception):
    pass


def evaluate_expression(tokens: Sequence[str], numbers: Sequence[float], pi: float = math.pi) -> float | None:
    """The value of an expression; None for other text. Parentheses that are missing at the ends are added."""
    tokens = [token for token in tokens if token != "u"]
    if tokens == [MARK]:
        return numbers[0]
    if len(tokens) == 3 and tokens[0] == tokens[2] == MARK and tokens[1] in SIMPLE:
        # Most expressions.
        left, right = numbers
        return SIMPLE[tokens[1]](left, right) if right or tokens[1] != "/" else None
    opened = tokens.count("(") - tokens.count(")")
    if not tokens or opened < 0:
        return None
    try:
        reader = _Expression([*tokens, *[")"] * opened], numbers, pi)
        value = reader.sum()
    except (_UnreadableError, ZeroDivisionError, OverflowError, ValueError, IndexError):
        return None
    return float(value) if reader.position == len(reader.tokens) and isinstance(value, int | float) else None


class _Expression:
    """Reads an expression by descent: sums of products of powers."""

    def __init__(self, tokens: list[str], numbers: Sequence[float], pi: float) -> None:
        self.tokens, self.numbers, self.pi = tokens, iter(numbers), pi
        self.position = self.depth = 0

    def _next(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def sum(self) -> float:
        value = self._product()
        while (sign := self._next()) in ("+", "-"):
            self.position += 1
            value = value + self._product() if sign == "+" else value - self._product()
        return value

    def _product(self) -> float:
        value = self._power()
        while (sign := self._next()) in ("*", "/", "of", "(", "√", "‖", "π", MARK):
            if sign == MARK:
                raise _UnreadableError
            self.position += sign in ("*", "/", "of")
            factor = self._power()
            value = value / factor if sign == "/" else value * factor
        return value

    def _power(self) -> float:
        value = self._atom()
        if self._next() == "^":
            self.position += 1
            exponent = self._atom()
            if abs(exponent) > 64 or abs(value) > 1e15:
                raise _UnreadableError
            value = value**exponent
            if isinstance(value, complex):
                raise _UnreadableError
        return value

    def _atom(self) -> float:
        # Parentheses, roots and signs may nest so deep; no person writes more.
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _UnreadableError
        value = self._opened()
        self.depth -= 1
        return value

    def _opened(self) -> float:
        token = self._next()
        self.position += 1
        if token == MARK:
            return next(self.numbers)
        if token == "N!":
            value = next(self.numbers)
            if value != int(value) or not 0 <= value <= 20:
                raise _UnreadableError
            return float(math.factorial(int(value)))
        if token == "π":
            return self.pi
        if token == "√":
            return math.sqrt(self._atom())
        if token == "‖":
            return abs(self._atom())
        if token in ("-", "+"):
            value = self._power()
            return -value if token == "-" else value
        if token == "(":
            value = self.sum()
            if self._next() != ")":
                raise _UnreadableError
            self.position += 1
            return value
        raise _UnreadableError
