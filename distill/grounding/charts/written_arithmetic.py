"""Arithmetic that a text writes out: which numbers are operands, which are results, and what comes out.

Knows signs and English words for them ("8 plus 6 equals 14"). Whether an operand is true is not asked here.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from distill.grounding.arithmetic.canonical_text import MARK
from distill.grounding.arithmetic.expressions import SIMPLE, evaluate_expression
from distill.grounding.numbers_in_text import TOKEN, Item
from distill.word_tables import word_set

_OPERATIVE = re.compile(
    r"[-+*/=×÷·≈⇒→]|\b(?:plus|minus|times|x|divided|multiplied|equals?|gives?|giving|makes?|yields?|get|totals?|is|comes)\b"
)
_NOTE = re.compile(r"\([^()]*[a-z][^()]*\)|\[[^\[\]]*[a-z][^\[\]]*\]")
_SIGNS: Final = {
    "+": "+", "plus": "+", "-": "-", "minus": "-", "*": "*", "×": "*", "·": "*", "x": "*", "times": "*",
    "multiplied": "*", "/": "/", "÷": "/", "divided": "/",
}  # fmt: skip
_MOST_IN_A_RUN: Final = 64
"""Numbers that signs tie together; no more are written by hand."""
_BETWEEN: Final = re.compile(r"\)*[-+*/]\(*")
"""A sign between two operands, with parentheses that end before it and begin after it."""
_EQUALS: Final = frozenset(["=", "≈", "⇒", "→", ">"])
_RESULTS: Final = word_set(
    "is equals equal gives give giving makes make yields yield yielding get gets totals results comes"
)
_FILLERS: Final = word_set(
    """, : which that we us a an the to total of sum difference result so in about approximately roughly around by **
    $ € £ % | ' " for units out answer this it from"""
)


@lru_cache(maxsize=1 << 15)
def read_operator(gap: str) -> str:
    """The operator between two numbers with the parentheses around it, "=" for a result; empty when there is none."""
    gap = gap.lower()
    if not _OPERATIVE.search(gap):
        return ""
    joined = ""
    count = words = 0
    result = comma = False
    tokens = TOKEN.findall(_NOTE.sub(" ", gap))
    for index, token in enumerate(tokens):
        if token in "()[]":
            joined += "(" if token in "([" else ")"
        elif token in _SIGNS and not (token == "x" and len(tokens) > 3):
            joined += _SIGNS[token]
            count += 1
        elif token in _EQUALS:
            if not joined.endswith("="):
                joined += "="
                count += 1
        elif token == "\n":
            if tokens[index + 1 : index + 2] != ["="]:
                return ""
        elif token in _RESULTS:
            result = True
        elif token in _FILLERS:
            comma = comma or token in (",", ":")
        elif token[0].isalpha():
            words += 1
            if words > 3:
                return ""
        else:
            return ""
    if ">" in tokens and "-" not in tokens and "=" not in tokens:
        return ""  # a comparison, unless it is the head of an arrow
    if count == 0:
        return joined.replace("(", "") + "=" if result and words <= 1 else ""
    if count > 1 or result or (comma and "=" not in joined):
        return ""
    return joined


class Role(NamedTuple):
    """A number's part in written arithmetic."""

    result: bool
    """Whether it is a result, and not an operand."""
    outcome: tuple[float, ...] = ()
    """What a result may be: the value of the side before it, and of the first side."""
    operands: tuple[float, ...] = ()
    """Every operand of its side."""
    scales: bool = False
    """Whether an operand multiplies or divides."""
    summand: bool = False
    """Whether its side only adds."""


def find_roles(text: str, items: list[Item]) -> dict[int, Role]:
    """The part each number plays in written arithmetic, by its first character."""
    roles: dict[int, Role] = {}
    run: list[int] = []
    signs: list[str] = []
    end = len(text)
    for index, item in enumerate(items):
        if item.number is None:
            continue
        sign = ""
        if 0 < item.start - end <= 80:
            gap = text[end : item.start]
            if "." not in gap or "(" in gap or "[" in gap:
                sign = read_operator(gap.rstrip("$€£").removesuffix("-") if item.negative else gap)
        if sign and sign.strip("()") and len(run) < _MOST_IN_A_RUN:
            signs.append(sign)
            run.append(index)
        else:
            if signs:
                roles.update(_roles_of_run(items, run, signs))
                signs = []
            run = [index]
        end = item.end
    if signs:
        roles.update(_roles_of_run(items, run, signs))
    return roles


def _roles_of_run(items: list[Item], run: list[int], signs: list[str]) -> Iterator[tuple[int, Role]]:
    roles = _find_roles(tuple(items[index].value for index in run), tuple(signs))
    return ((items[run[number]].start, role) for number, role in roles.items())


@lru_cache(maxsize=1 << 13)
def _find_roles(values: tuple[float, ...], signs: tuple[str, ...]) -> dict[int, Role]:
    """The parts that numbers with these signs between them play: sides between equals signs."""
    if len(signs) == 2 and signs[1] == "=" and signs[0] in ("+", "-", "*", "/"):
        return _roles_of_step(values, signs[0])
    roles: dict[int, Role] = {}
    run = list(enumerate(values))
    sides: list[tuple[list[tuple[int, float]], list[str]]] = [([run[0]], [])]
    for sign, member in zip(signs, run[1:], strict=True):
        if "=" in sign:
            sides[-1][1].append(sign.split("=")[0])
            sides.append(([member], []))
        else:
            sides[-1][1].append(sign)
            sides[-1][0].append(member)
    if all(len(members) == 1 for members, _ in sides):
        return roles
    if len(sides) == 1 and len(signs) == 1 and signs[0] == "-":
        return roles  # a range ("40 - 50"), not a step
    side_values = [_side_value([value for _, value in members], inner) for members, inner in sides]
    first = next(index for index, (members, _) in enumerate(sides) if len(members) > 1)
    for index, (members, inner) in enumerate(sides):
        if len(members) > 1:
            operands = tuple(value for _, value in members)
            summand = all(sign.strip("()") in ("+", "") for sign in inner)
            for number, (position, _) in enumerate(members):
                scales = number > 0 and inner[number - 1].strip("()") in ("*", "/")
                roles[position] = Role(False, operands=operands, scales=scales, summand=summand)
            if index and _is_same(side_values[index], side_values[index - 1]):
                # "(8 + 6) / 2 = 14 / 2" says the same once more.
                roles.update((position, Role(True, (value,))) for position, value in members)
            # "8 + 6 = 14 + 2 = 16" runs on: the side begins with the result of the one before.
            before = side_values[index - 1] if index > first else None
            if before is not None and abs(members[0][1] - before) < 1e-6:
                roles[members[0][0]] = Role(True, (before,))
        elif index > first:
            outcome = [value for value in (side_values[index - 1], side_values[first]) if value is not None]
            roles[members[0][0]] = Role(True, tuple(outcome))
    return roles


def _roles_of_step(values: tuple[float, ...], sign: str) -> dict[int, Role]:
    """The parts of one step with its result ("8 + 6 = 14"): most of written arithmetic."""
    operands = values[:2]
    result = evaluate_signs(operands, (sign,))
    scales, summand = sign in ("*", "/"), sign == "+"
    return {
        0: Role(False, operands=operands, summand=summand),
        1: Role(False, operands=operands, scales=scales, summand=summand),
        2: Role(True, () if result is None else (result, result)),
    }


def _is_same(left: float | None, right: float | None) -> bool:
    return left is not None and right is not None and abs(left - right) <= 1e-6 * abs(right)


def _side_value(operands: list[float], inner: list[str]) -> float | None:
    # What is left of `inner` is a parenthesis before the equals sign.
    return operands[0] if len(operands) == 1 else evaluate_signs(operands, inner[: len(operands) - 1])


def evaluate_signs(operands: Sequence[float], operators: Sequence[str]) -> float | None:
    """The value of operands with the signs between them; parentheses that are missing at the ends are added."""
    if all(sign == "+" for sign in operators):
        return sum(operands)
    if len(operands) == 2 and (operate := SIMPLE.get(operators[0])) is not None:
        return operate(*operands) if operands[1] or operators[0] != "/" else None
    if not all(map(_BETWEEN.fullmatch, operators)):
        return None
    tokens = [MARK, *(token for sign in operators for token in (*sign, MARK))]
    depths = accumulate((token == "(") - (token == ")") for token in tokens)
    return evaluate_expression(["("] * -min(depths) + tokens, operands)
