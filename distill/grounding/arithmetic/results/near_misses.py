"""Results that narrowly miss what a list before them gives: "Ana 19, Ben 12, Cleo 17. All together that is 49".

A sentence that names an operation is compared with the lists before its last number: numbers of one sentence, of
lines that follow each other, or of a column. A number that these give in any way is right. One that narrowly misses
the result of a whole list is a slip. Any other number says something else.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from distill.grounding.arithmetic.canonical_text import Number
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.reading_effort import ReadingEffort
from distill.grounding.arithmetic.results.derivations import results_of
from distill.grounding.arithmetic.results.number_roles import NumberedSentence, cut_at_numbers
from distill.grounding.arithmetic.results.rates import STEPS
from distill.grounding.arithmetic.results.stated_results import OVERRULED, WITH_ANOTHER, is_unread
from distill.word_tables import read_table, word_set

_TABLE: Final = read_table(__file__)
_CUES: Final = {word: name for name in ("sum", "difference", "rate") for word in _TABLE[name].split()}
_NAMING: Final = frozenset(_CUES)
_SIGNS: Final = {operation: _TABLE[f"{operation}_signs"].split() for operation in ("sum", "difference")}
"""Cues in Chinese and Japanese."""
_SIGNED: Final = re.compile("|".join(sign for signs in _SIGNS.values() for sign in signs))
_OTHERS: Final = word_set(_TABLE["others"])
NEAR_WORDS: Final = _NAMING | _OTHERS
"""All words that are asked for."""
_COMMON: Final = word_set(_TABLE["common"]) | _NAMING
_LINKS: Final = word_set(_TABLE["links"]) | _NAMING
_ELIDED: Final = ("", "are", "is", "in", "at", "on", "and", "by")
"""What stands behind a number whose unit is said before."""
_HEDGED: Final = re.compile(
    r"\b(?:about|roughly|approx\w*|around|nearly|almost|over|under|least|most|than|some)\b|[≈~(]"
)
_NAME: Final = re.compile(r"[^\W\d_]{3,}")
_SUMS_UP: Final = re.compile(
    rf"(?:^|[,:] )(?:\w+ ){{0,2}}(?:{'|'.join(_CUES)})\b|\b(?:this|that) [a-z]+|{_SIGNED.pattern}"
)
_SIGN: Final = re.compile(r"[,;:.(|\n]|\band\b")
_ENDS: Final = (".", "!", "?")
LIST: Final = "list"
"""What the key of a claim about a list begins with."""
_EARLIER: Final = 12
"""So many sentences with numbers before a result are looked at."""
_LONGEST_LIST: Final = 12
_LONGEST_ROW: Final = 3
_NEAR: Final = 0.12
"""Relative distance of a near miss."""
_NEAR_DIGIT: Final = 0.25
"""The same, if only one digit differs."""


class Member(NamedTuple):
    """A number of a list."""

    place: int
    """In the text."""
    value: float
    piece: str
    """What stands before it."""
    of_unit: bool
    """It has the unit of the result."""


List = list[Member]


def find_near_misses(
    text: str,
    words: frozenset[str],
    numbers: Sequence[Number],
    offset: int,
    before: Sequence[tuple[str, int]],
    effort: ReadingEffort,
) -> Iterable[ArithmeticClaim]:
    """The claim of a sentence of these words, whose first number has the index `offset`.

    `before` are the sentences before it that hold numbers, each with the index of its first one.
    """
    if words.isdisjoint(_NAMING) and (text.isascii() or not _SIGNED.search(text)):
        return ()
    if not (words.isdisjoint(_OTHERS) and words.isdisjoint(OVERRULED)) or WITH_ANOTHER in text or is_unread(text):
        return ()
    operations = {_CUES[word] for word in words & _NAMING}
    if not text.isascii():
        operations |= {operation for operation, signs in _SIGNS.items() if any(sign in text for sign in signs)}
    # "Counting everything, 3 crates with 18 each are 54" is a product.
    operation = "rate" if "rate" in operations else operations.pop() if len(operations) == 1 else ""
    return _claims(cut_at_numbers(text, numbers, offset, effort, before[-_EARLIER:]), operation) if operation else ()


def _claims(sentence: NumberedSentence, operation: str) -> Iterator[ArithmeticClaim]:
    index = len(sentence.numbers) - 1
    before, behind = sentence.before(index), sentence.behind(index)
    if (
        sentence.is_label(index)
        or before.operator
        or behind.operator
        or _HEDGED.search(sentence.pieces[index])
        or not (before.stated or behind.cue == operation or before.link in _LINKS or not before.link.isascii())
    ):
        return
    if operation == "rate":
        yield from _rate_claims(sentence)
        return
    stated, unit = abs(sentence.value(index)), sentence.numbers[index].unit
    lists, values = _lists_before(sentence, index)
    if any(stated == value for value in values) or (sentence.numbers[index].percent and stated == 100):
        return  # rounded shares may add up to 99
    for one in lists:
        expected = _result(operation, one)
        if stands_for(stated, unit, expected, False):
            if one[0].place < sentence.offset:  # a list of its own may hold the count of its members
                yield _claim(sentence, index, one, True, expected, operation)
            return
    for one in reversed(_named(sentence, lists)):
        expected = _result(operation, one)
        if _is_near(stated, unit, expected):
            if not any(stands_for(stated, unit, value, False) for value in _given(one, expected, values, sentence)):
                yield _claim(sentence, index, one, False, expected, operation)
            return


def _rate_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """The product or the quotient of the two numbers before a result: "18 pets for 8 children, 2.25 each"."""
    index = len(sentence.numbers) - 1
    operands, result = sentence.operands(index), sentence.numbers[index]
    if len(operands) != 2 or any(sentence.numbers[at].percent or sentence.behind(at).operator for at in operands):
        return
    stated, (x, y) = result.value, (sentence.value(at) for at in operands)
    if min(x, y) <= 0:
        return
    results = (100 * x / y, 100 * y / x) if result.percent else (x * y, x / y, y / x)
    near = [value for value in results if value != stated and _is_near(stated, result.unit, value)]
    given = results_of((x, y), "+-*/p" if result.percent else "+-*/") if near else ()
    readings = (abs(value) * step for value in given for step in STEPS)
    if near and not any(stands_for(stated, result.unit, value, False) for value in readings):
        yield sentence.claim(operands[0], index, False, near[0], ("rate", x, y))


def _claim(
    sentence: NumberedSentence, index: int, one: List, right: bool, expected: float, operation: str
) -> ArithmeticClaim:
    key = (LIST, operation, *(member.value for member in one))
    return ArithmeticClaim(one[0].place, sentence.offset + index, right, expected, key)


def _lists_before(sentence: NumberedSentence, index: int) -> tuple[list[List], list[float]]:
    """The lists of numbers before a result, oldest first, and all numbers that may be added to one."""
    own = _row(sentence, sentence, range(index))
    if len(own) > 1:
        return [own], [member.value for member in own]
    # "Together these are 40" sums up, "team B has a total of 40" does not.
    counts = {int(sentence.value(at)) for at in sentence.operands(index)}
    said = " ".join(sentence.pieces[: index + 1])
    together = "together" in sentence.pieces[index + 1]
    if not (counts or together or sentence.before(index).inferred or _SUMS_UP.search(said)):
        return [], []
    lists: list[List] = []
    block: list[List] = []
    block_kind = ""
    for one in sentence.earlier:
        row = _row(one, sentence, range(len(one.numbers)))
        kind = ""
        if row and not one.pieces[-1].endswith(_ENDS):
            kind = "line"
        elif len(row) == 1:
            kind = "sentence"
        if kind != block_kind:
            lists += _columns(block)
            block, block_kind = [], kind
        if kind:
            block.append(row)
        if len(row) > 1 and kind != "line":
            lists.append(row)
    lists += _columns(block)
    lists += [one[-count:] for one in lists for count in counts if 1 < count < len(one)]
    lists = [one for one in lists if not counts or len(one) in counts]  # "these 3 together"
    lists = [one for one in lists if one[0].of_unit] or lists
    return lists, [member.value for one in lists for member in one]


def _row(one: NumberedSentence, sentence: NumberedSentence, places: range) -> List:
    """The numbers of a sentence, or those of the unit of the result of another one."""
    result, name = sentence.numbers[-1], sentence.behind(len(sentence.numbers) - 1).name
    percent = result.percent or name == "percentage"
    with_years = name in ("years", "year")
    found = [
        at
        for at in places
        if one.numbers[at].percent == percent
        and (not one.is_label(at) or (with_years and one.is_year(at)))
        and ":" not in (one.pieces[at], one.pieces[at + 1])
    ]
    if one.pieces[0].startswith("step "):
        return []
    computed = [at for at in found if one.before(at).operator == "="]
    found = computed or [at for at in found if not one.before(at).operator]
    of_unit = [at for at in found if name and one.behind(at).name == name]
    if of_unit:  # "7 children stand, 4 sit and 2 are at the door"
        of_unit += [at for at in found if at > of_unit[0] and one.behind(at).name in _ELIDED]
        of_unit.sort()
    return [
        Member(one.offset + at, abs(one.value(at)), f"{one.pieces[at]} {one.behind(at).name}", bool(of_unit))
        for at in of_unit or found
    ]


def _label(piece: str) -> frozenset[str]:
    """The words between a number and the sign or number before it."""
    parts = [part for part in _SIGN.split(piece) if _NAME.search(part)]
    return frozenset(_NAME.findall(parts[-1])) if parts else frozenset()


def _columns(block: Sequence[List]) -> Iterator[List]:
    """The columns of lines that follow each other, without one that only counts them."""
    if 1 < len(block) <= _LONGEST_LIST:
        for column in range(min(_LONGEST_ROW, *map(len, block))):
            one = [row[column] for row in block]
            if [member.value for member in one] != list(range(1, len(one) + 1)):
                yield one


def _named(sentence: NumberedSentence, lists: Sequence[List]) -> Sequence[List]:
    """The members that a sentence names ("coal 21, wind 23, solar 14. Wind and solar together are"), or all lists."""
    if len(sentence.numbers) > 1:
        return lists
    own = frozenset(_NAME.findall(" ".join(sentence.pieces))) - _COMMON - {sentence.behind(0).name}
    for one in reversed(lists):
        labels = [_label(member.piece) for member in one]
        named = [
            member
            for member, label in zip(one, labels, strict=True)
            if any(word in own and sum(word in other for other in labels) == 1 for word in label)
        ]
        if named:
            return [named] if len(named) > 1 else []
    return lists


def _result(operation: str, one: List) -> float:
    return sum(member.value for member in one) if operation == "sum" else abs(one[0].value - one[-1].value)


def _given(one: List, expected: float, values: Sequence[float], sentence: NumberedSentence) -> set[float]:
    """What a list may give otherwise: sums of some of its numbers, or the result with another number."""
    results = {0.0}
    for member in one[:_LONGEST_LIST]:
        results |= {total + member.value for total in results}
    if len(one) == 2:
        results |= {one[0].value * one[1].value, abs(one[0].value - one[1].value)}
    results |= {abs(expected + sign * value) for value in values for sign in (1, -1, -2)}
    sentence.effort.results -= len(results)
    return results


def _is_near(stated: float, unit: float, expected: float) -> bool:
    """Whether a number narrowly misses another one that has no more decimals."""
    if not expected or abs(expected / unit - round(expected / unit)) > 1e-6:
        return False
    distance = abs(stated - expected) / expected
    if distance <= _NEAR:
        return True
    one, two = (str(round(value / unit)) for value in (stated, expected))
    differing = sum(a != b for a, b in zip(one, two, strict=False))
    return distance <= _NEAR_DIGIT and len(one) == len(two) and differing == 1
