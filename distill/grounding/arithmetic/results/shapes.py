"""Areas, perimeters, volumes and angles of shapes: "the room is 4 m by 5 m, so its area is 20 m2"."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Final

from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.results.number_roles import NumberedSentence
from distill.word_tables import word_set

MEASURE_WORDS: Final = word_set("area perimeter circumference volume diameter radius hypotenuse angle diagonal")
_OF_ONE_SIDE: Final = word_set("square cube circle circular radius diameter sphere equilateral")
_UNKNOWN: Final = word_set("surface interior exterior regular central inscribed")
_LINKS: Final = word_set("is of = equals are : so was has gives comes makes to measures have")
_CORNERS: Final = {
    "triangle": 3, "triangular": 3, "equilateral": 3, "square": 4, "rhombus": 4,
    "pentagon": 5, "hexagon": 6, "octagon": 8,
}  # fmt: skip
_PI: Final = (math.pi, 3.14, 22 / 7)
_ROUND: Final = word_set("circle circles circular radius diameter circumference sphere cylinder cone round disc")
_MOST: Final = 5


def find_shape_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """What a sentence states of a shape, computed from the numbers before it."""
    if MEASURE_WORDS.isdisjoint(sentence.words):
        return
    for index in range(1, len(sentence.numbers)):
        before, behind = sentence.before(index), sentence.behind(index)
        tokens = sentence.pieces[index].split()
        measure = next((word for word in reversed(tokens) if word in MEASURE_WORDS), "")
        if (
            not measure
            or before.operator
            or behind.operator
            or before.hedged
            or before.link not in (*_LINKS, measure)
        ):
            continue
        operands = sentence.operands(index)
        values = [sentence.value(at) for at in operands]
        if not 1 <= len(values) <= _MOST or min(values) <= 0 or not _UNKNOWN.isdisjoint(sentence.words):
            continue
        if len(values) == 1 and _OF_ONE_SIDE.isdisjoint(sentence.words):
            continue
        results = list(_results(measure, values, sentence.words))
        sentence.effort.results -= len(results)
        number = sentence.numbers[index]
        right = any(stands_for(number.value, number.unit, result, False) for result in results)
        later = [sentence.value(at) for at in range(index + 1, len(sentence.numbers))]
        if not right and any(
            stands_for(number.value, number.unit, result, False)
            for more in later
            for result in _results(measure, [*values, more], sentence.words)
        ):
            continue  # a side is stated behind it
        yield sentence.claim(operands[0], index, right, None, (measure, *values))


def _results(measure: str, values: Sequence[float], words: frozenset[str]) -> Iterator[float]:
    """What a measure of a shape with these sides may be; none for one that is not known."""
    yield from values  # stated before
    pis = () if _ROUND.isdisjoint(words) else _PI
    if measure == "area":
        yield from _areas(values, pis)
        if "perimeter" in words or "circumference" in words:
            yield from (value**2 / around for value in values for around in (16, 4 * math.pi))
    elif measure in ("perimeter", "circumference"):
        yield sum(values)
        yield from (2 * (one + two) for one, two in combinations(values, 2))
        for value in values:
            yield from (corners * value for word, corners in _CORNERS.items() if word in words)
            yield from (factor * pi * value for pi in pis for factor in (1, 2))
            yield from (4 * math.sqrt(value),) if "area" in words else ()
        yield from (one * two for one, two in combinations(values, 2))  # sides and their number
    elif measure == "volume":
        yield from (one * two * factor for one, two in combinations(values, 2) for factor in (1, 1 / 3))
        yield from (math.prod(three) * factor for three in combinations(values, 3) for factor in (1, 0.5, 1 / 3))
        yield from (factor * pi * value**3 for value in values for pi in pis for factor in (1, 4 / 3))
        yield from (
            factor * pi * one**2 * two
            for one, two in permutations(values, 2)
            for pi in pis
            for factor in (1, 1 / 3, 0.25)
        )
        yield from (value**3 for value in values)
    elif measure in ("diameter", "radius"):
        yield from (value * factor for value in values for factor in (2, 0.5))
        yield from (value / pi / factor for value in values for pi in pis for factor in (1, 2))
        yield from (math.sqrt(value / pi) * factor for value in values for pi in pis for factor in (1, 2))
    elif measure in ("hypotenuse", "diagonal"):
        yield from (math.hypot(one, two) for one, two in combinations(values, 2))
        yield from (math.sqrt(2) * value for value in values)
        yield from (math.hypot(*three) for three in combinations(values, 3))
    elif measure == "angle" and len(values) > 1:
        yield from (whole - sum(values[at:]) for whole in (90, 180, 360) for at in range(len(values)))
        yield from (whole - value for whole in (90, 180, 360) for value in values)
        yield sum(values)
        yield abs(values[0] - values[1])


def _areas(values: Sequence[float], pis: Sequence[float]) -> Iterator[float]:
    products = [one * two for one, two in combinations(values, 2)]
    yield from (product * factor for product in products for factor in (1, 0.5, 2))
    yield from (value**2 * factor for value in values for factor in (1, math.sqrt(3) / 4, 6))
    yield from (factor * pi * value**2 for value in values for pi in pis for factor in (1, 0.25, 0.5))
    yield from ((one + two) / 2 * three for one, two, three in permutations(values, 3))
    yield sum(values)
    yield from (abs(one - two) for one, two in combinations(values, 2))
    yield from (one + sign * two for one, two in combinations(products, 2) for sign in (1, -1))
