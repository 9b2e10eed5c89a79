"""Written arithmetic in a canonical text: expressions with a sign or a word of equality between them.

Reads + - * / ^ √ and parentheses, percentages, and English words for them ("8 plus 6 equals 14", "2/5 of 15 is 6").
An expression with a variable, or cut off by other words, has no value. What only looks like arithmetic (ranges,
scores, sizes, enumerations) is passed over.
"""

# ruff: noqa: E501
# A phrase broken over lines cannot be read as a phrase.

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from distill.grounding.canonical_text import MARK, Number
from distill.grounding.expressions import evaluate_expression, stands_for
from distill.grounding.numbers_in_text import word_set

_TOKEN: Final = re.compile(r"->|=>|==|!=|<=|>=|N!?|[a-zX][\w'/]*|\S")
_NUMBERS: Final = (MARK, "N!")
_ENDS: Final = (*_NUMBERS, ")")
_OPENERS: Final = (*_NUMBERS, "π", "plus", "minus", "less", "times", "dividedby", "of", "same")
"""Words and letters that a chain begins with."""
_REMAINDERS: Final = ("r", "mod", "rest", "remainder")
_SIGNS: Final = {"+": "+", "-": "-", "*": "*", "/": "/", "^": "^", "√": "√"}
_OPERATORS: Final = {"plus": "+", "minus": "-", "less": "-", "times": "*", "x": "*", "dividedby": "/", "of": "of"}
_EQUALS: Final = {"=": "=", "==": "=", "≈": "≈", "→": "=", "->": "=", "=>": "=", "same": "="}
_BEGINNINGS: Final = frozenset([*_OPENERS, *_SIGNS, "(", *(sign for sign in _EQUALS if not sign.isalpha())])
"""Words and signs that a chain begins with; all others are passed over before it."""
_ARROWS: Final = ("→", "->", "=>")
_SAYS: Final = word_set(
    """is are equals makes make making gives give giving yields yield leaves leave leaving totals becomes gets cost
    costs get reaches was were comes"""
)
_FILLERS: Final = word_set(
    """a an the about approximately roughly around nearly almost only just exactly total of to we us you get approx
    : or ie that so circa some precisely again also ~ then"""
)
_HEDGES: Final = word_set("about approximately roughly around nearly almost approx circa some ~ ≈")
_MEASURES: Final = word_set(
    """cm mm m km dm kg g mg t l ml cl h s min hours hour minutes minute seconds degrees percent km/h m/s units points
    cents dollars euros pounds m2 m3 cm2 cm3 km2 celsius fahrenheit quarters dimes nickels pennies feet inches ft"""
)
_AFTER: Final = word_set(
    """times more less fewer greater higher lower larger smaller off remainder remaining rest r mod or years of x
    percentage th ago per"""
)
"""What follows a number that is not the result itself: "2 more than 5", "3 remainder 4"."""
_JOINTS: Final = word_set(
    "and or but in to than from for with on at by so because which that while since then thus hence where as when if"
)
"""What stands between two statements, and not between a number and its unit."""
_OVERRULED: Final = re.compile(
    r"\?|\b(?:wrong|mistake|mistaken|mistakenly|incorrect|misread|miscounted|false|(?:is|are|was|does|do|can) not|isn't"
    r"|aren't|wasn't|doesn't|don't|cannot|can't|would|were to|instead|rather|suppose|whether|unless|oops|remainder|left over|leftover)\b"
)
"""Words that make a sentence no claim: questions, negations, conditions, reported mistakes."""
_OVERRULING: Final = word_set(
    """wrong mistake mistaken mistakenly incorrect misread miscounted false not cannot t would were instead rather
    suppose whether unless oops remainder left leftover"""
)
"""Words of which a sentence without a question mark must hold one to be overruled; "t" ends "isn't"."""
_PI: Final = (math.pi, 3.14, 22 / 7, 3.1416)
_PHRASES: Final = (
    (word_set("multiplied"), re.compile(r"\b(?:multiplied by|multiplied with)\b"), "times"),
    (word_set("divided"), re.compile(r"\bdivided by\b"), "dividedby"),
    (word_set("out"), re.compile(r"(?<=N) out of (?=N)"), " of "),
    (word_set("root"), re.compile(r"\bsquare root of (?=N)"), "√ "),
    (word_set("squared"), re.compile(r"(?<=N) squared\b"), "^2"),
    (word_set("than"), re.compile(r"\bless than\b"), "lessthan"),
    (word_set("same reduce reduces simplify simplifies correspond corresponds convert converts equal equals percentage"
              " percent decimal fraction"),
     re.compile(r"\b(?:is|are) the same as\b|\b(?:reduces?|simplif(?:y|ies)|corresponds?|converts?) to\b|\bequals?\b"
                r"|\bas an? (?:percentage|percent|decimal|fraction),?(?: is| gives)?|\b(?:is|are) equal to\b"), "same"),
    (word_set("because since as"), re.compile(r"\((?:because|since|as) (?=[N(])"), "= ("),
    (word_set("of"),
     re.compile(r"(?<=N) (?:rows|columns|packs?|packets|boxes|groups|bags|sets|stacks|crates|piles|shelves|teams|tables"
                r"|bunches|bundles|trays|cartons) of (?=N)"), " times "),
    (word_set("each"), re.compile(r"(?<=N) [a-z]+ at (?=N [a-z ]{0,12}each\b)|(?<=N) [a-z]+ at (?=N each\b)"), " times "),
    (word_set("each"), re.compile(r" each(?= costs?\b)"), ""),
)  # fmt: skip
"""Words of which a sentence must hold one, what is replaced, and by what."""
_IN_PHRASES: Final = frozenset[str]().union(*(words for words, _, _ in _PHRASES))
# Most sentences hold no expression, and a look costs far less than reading them.
_SOME_EQUALITY: Final = re.compile(
    rf"[=≈→>(]|\b(?:{'|'.join(sorted(_SAYS, key=len, reverse=True))}|equals?|reduces?|simplif\w+|corresponds?|converts?|or|ie|as)\b"
)
_SOME_OPERATOR: Final = re.compile(
    r"[-+*/^√%]|\b(?:plus|minus|less|times|x|divided|multiplied|of|root|squared|each|same)\b"
)
_MOST_NUMBERS: Final = 64
"""In one chain: no more are written by hand."""


@dataclass(slots=True)
class Side:
    """One side of a chain: tokens, the places of its numbers, and whether it has a value."""

    tokens: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    worded: bool = False
    """An operator is a word."""
    crossed: bool = False
    """An operator is the letter x, as in sizes."""
    units: set[str] = field(default_factory=set)
    unit: bool = False
    """The last number has a word after it that is no measure."""
    sound: bool = True
    hedged: bool = False
    weak: bool = False
    """A word, not a sign, ties it to the side before."""

    @property
    def operators(self) -> list[str]:
        return [token for token in self.tokens if token not in (*_NUMBERS, "(", ")", "π", "u")]

    def end_unit(self) -> None:
        if self.tokens and self.tokens[-1] == "u":
            self.tokens.pop()


@dataclass(frozen=True, slots=True)
class ArithmeticClaim:
    """One claim that can be checked."""

    first: int
    last: int
    """Places of its first and last number."""
    right: bool
    expected: float | None
    key: tuple[object, ...]
    """What is computed, without the stated result."""


def find_equation_claims(
    sentence: str, words: frozenset[str], numbers: Sequence[Number], offset: int
) -> Iterator[ArithmeticClaim]:
    """The claims in signs of a sentence of a canonical text; its first number has the index `offset`."""
    if not _SOME_EQUALITY.search(sentence) or not _SOME_OPERATOR.search(sentence):
        return
    if ("?" in sentence or not words.isdisjoint(_OVERRULING)) and _OVERRULED.search(sentence):
        return
    if not words.isdisjoint(_IN_PHRASES):
        for clues, pattern, word in _PHRASES:
            if not words.isdisjoint(clues):
                sentence = pattern.sub(word, sentence)
    for chain in _EquationReader(sentence, offset).chains():
        yield from _check_chain(chain, numbers)


class _EquationReader:
    """Reads the tokens of a sentence into chains: runs of sides with equality between them."""

    def __init__(self, sentence: str, offset: int) -> None:
        self.sentence = sentence
        self.matches = list(_TOKEN.finditer(sentence))
        self.tokens = [match[0] for match in self.matches]
        self.next_number = offset
        """Index of the next number in the text."""
        self.chain = [Side()]
        self.before = ""
        """The last token that belongs to no side: a word or a sign."""

    def chains(self) -> Iterator[list[Side]]:
        """The chains of two sides or more."""
        begun = False
        before = ""
        for at, token in enumerate(self.tokens):
            # Most tokens are words before a chain: only the last of them matters.
            if not begun:
                if token not in _BEGINNINGS:
                    before = token
                    continue
                if before:
                    self.before = _word_before(before)
            ended = self._read(at, token, *self.matches[at].span())
            if ended is not None and len(ended) > 1:
                yield ended
            begun = len(self.chain) > 1 or bool(self.chain[0].tokens)
            before = ""
        yield self.chain

    def _read(self, at: int, token: str, start: int, end: int) -> list[Side] | None:
        """Take one token; returns the chain that it ends."""
        side = self.chain[-1]
        last = side.tokens[-1] if side.tokens else ""
        after = self._token(at + 1)
        if token in _NUMBERS:
            self._number(side, token, start, end)
        elif token in _SIGNS or (token in _OPERATORS and (token != "x" or after in (*_NUMBERS, "("))):
            self._operator(side, token, start, end, after)
        elif token == "π" or (token == "(" and not (last in (*_ENDS, "u") and self.sentence[start - 1] == " ")):
            # What stands directly before it is the name of a function.
            side.sound = side.sound and not (token == "(" and self.sentence[start - 1 : start].isalpha())
            side.tokens.append(token)
        elif token == ")" and side.tokens.count("(") > side.tokens.count(")"):
            side.end_unit()
            side.tokens.append(token)
        elif token in _EQUALS or (token in _SAYS and side.numbers):
            # What an arrow leads to is a result only after an expression ("9 -> 9 + 5 = 14" names a step).
            self.chain.append(Side(hedged=token == "≈", weak=token in _SAYS or token in _ARROWS))
        elif not side.tokens and len(self.chain) > 1 and token in _FILLERS:
            side.hedged |= token in _HEDGES
        elif token == "," and self._goes_on(at):
            if after not in _OPERATORS:
                self.chain.append(Side(weak=True))
        elif last and last in (*_ENDS, "u") and token not in _JOINTS and (len(token) > 1 or token in _MEASURES):
            return self._unit(side, token) if token[0].isalpha() and token != "X" else self._ended(token)
        elif token in _REMAINDERS and last == MARK:
            side.sound = False
        else:
            return self._ended(token)
        return None

    def _token(self, at: int) -> str:
        return self.tokens[at] if at < len(self.tokens) else ""

    def _ended(self, token: str = "") -> list[Side]:
        """End the chain; an operator at its end, or equality, has a side without a value."""
        chain, self.chain = self.chain, [Side()]
        side = chain[-1]
        if side.tokens and side.tokens[-1] not in (*_ENDS, "u", "π"):
            side.sound = False
        self.before = _word_before(token)
        return chain

    def _number(self, side: Side, token: str, start: int, end: int) -> None:
        text = self.sentence
        last = side.tokens[-1] if side.tokens else ""
        if last == ")" and len(self.chain) == 1 and not side.operators:
            self.chain = [side := Side()]  # "(1) 3 + 4 = 7" begins anew
        elif last in (*_ENDS, "u"):
            side.sound = False  # "6 1/2"
        beside = (text[end : end + 1], text[start - 1 : start])
        if beside[0].isalpha() or beside[0] in ("_", "±") or beside[1] == "_":
            side.sound = False
        if text[max(start - 2, 0) : start] == "N:" or text[end : end + 2] == ":N":
            side.sound = False
        side.tokens.append(token)
        side.numbers.append(self.next_number)
        side.unit = False
        self.next_number += 1
        if len(side.numbers) > _MOST_NUMBERS:
            side.sound = False

    def _operator(self, side: Side, token: str, start: int, end: int, after: str) -> None:
        sign = _SIGNS.get(token) or _OPERATORS[token]
        side.end_unit()
        last = side.tokens[-1] if side.tokens else ""
        if sign == "of" and (last not in (MARK, ")") or after != MARK):
            self.chain = [side := Side()]
            self.before = token
            return
        if not side.tokens and sign not in ("√", "of"):
            # A sign of its own number, or an operator whose other side is no number.
            tight = self.sentence[end : end + 1] in (MARK, "(") and self.sentence[start - 1 : start] in ("", " ", "(")
            if not (sign == "-" and tight):
                if not self.before and len(self.chain) == 1:
                    return  # a mark at the beginning
                side.sound = False
        side.unit = False
        side.tokens.append(sign)
        side.worded |= token in _OPERATORS and token != "x"
        side.crossed |= token == "x"

    def _goes_on(self, at: int) -> bool:
        """Whether an expression goes on behind a comma: "27 plus 17 is 44, plus 10 is 54", "5.2 minus 3, or 2.2"."""
        after, then = self._token(at + 1), self._token(at + 2)
        side = self.chain[-1]
        if not side.numbers or not (side.operators or len(self.chain) > 1):
            return False
        if after in _OPERATORS and after != "x":
            return True
        return after in ("or", "ie") or (after in ("that", "which", "so") and then == "is")

    def _unit(self, side: Side, token: str) -> list[Side] | None:
        """A word behind a number: what is counted."""
        if token in _AFTER and len(self.chain) > 1 and len(side.tokens) == 1:
            side.sound = False
        if side.tokens[-1] != "u":
            side.tokens.append("u")
        side.unit = side.unit or token not in _MEASURES
        side.units |= {token} & _MEASURES
        return None


def _word_before(token: str) -> str:
    """A token before a chain, if it can belong to what the chain begins with."""
    return token if (token[:1].isalnum() and token not in _JOINTS) or token in (")", "'") else ""


def _check_chain(chain: list[Side], numbers: Sequence[Number]) -> Iterator[ArithmeticClaim]:
    if len(chain) < 2 or not any(side.operators for side in chain):
        if len(chain) == 2 and not chain[1].weak:
            yield from _check_percentage(chain, numbers)
        return
    for index in range(1, len(chain)):
        left, right = chain[index - 1], chain[index]
        if not (left.sound and right.sound and left.numbers and right.numbers):
            continue
        if not (left.operators or right.operators or index > 1):
            continue
        if right.weak and not _states_a_result(left, right, numbers):
            continue
        operators = {*left.operators, *right.operators}
        if operators & {"+", "-"} and ("of" in operators or len(left.units | right.units) > 1):
            continue
        comparison = _compare_sides(left, right, chain[0], numbers)
        if comparison is not None:
            agrees, expected = comparison
            key = (tuple(left.operators), tuple(numbers[n].value for n in left.numbers))
            yield ArithmeticClaim(left.numbers[0], right.numbers[-1], agrees, expected, key)


def _states_a_result(left: Side, right: Side, numbers: Sequence[Number]) -> bool:
    """Whether a word such as "is" between two sides states a result: not after a range, a size or a score."""
    operators = left.operators
    if not operators:
        return False
    if left.worded or "√" in operators:
        return True
    if left.unit or left.crossed:
        return False
    result = numbers[right.numbers[0]]
    if operators == ["/"] and numbers[left.numbers[0]].value < numbers[left.numbers[-1]].value:
        return result.value <= 1 or result.percent  # "3/4 is 60" is a share of something
    if set(operators) == {"-"} and len(left.numbers) == 2:
        return numbers[left.numbers[0]].value > numbers[left.numbers[1]].value
    return True


def _check_percentage(chain: list[Side], numbers: Sequence[Number]) -> Iterator[ArithmeticClaim]:
    """A share and the same as a percentage ("0.7 is the same as 70%")."""
    left, right = chain
    if (
        not (left.sound and right.sound)
        or len(left.numbers) != 1
        or len(right.numbers) != 1
        or left.unit
        or right.unit
    ):
        return
    if left.tokens[0] != MARK or right.tokens[0] != MARK:
        return
    first, second = numbers[left.numbers[0]], numbers[right.numbers[0]]
    if first.percent == second.percent or max(first.unit, second.unit) > 1:
        return
    share, percent = (second, first) if first.percent else (first, second)
    if share.value > 1:
        return
    agrees = stands_for(percent.value, percent.unit, 100 * share.value, False) or (
        share.unit <= 0.01 and stands_for(share.value, share.unit, percent.value / 100, False)
    )
    yield ArithmeticClaim(left.numbers[0], right.numbers[0], agrees, 100 * share.value, ("percentage", share.value))


def _compare_sides(
    left_side: Side, right_side: Side, first: Side, numbers: Sequence[Number]
) -> tuple[bool, float | None] | None:
    """Whether two sides agree, and what should stand on the side that is one number; None without values."""
    left_values, right_values = (
        list(side_values(left_side, right_side, numbers)),
        list(side_values(right_side, left_side, numbers)),
    )
    if not left_values or not right_values:
        return None
    hedged = left_side.hedged or right_side.hedged
    stated, computed, stated_side = (
        (right_values, left_values, right_side)
        if not right_side.operators
        else (left_values, right_values, left_side)
    )
    if left_side.operators and right_side.operators:
        # "8 + 6 = 14 + 2 = 16" runs on: the side begins with the result of the one before.
        begins = numbers[right_side.numbers[0]]
        if any(stands_for(begins.value, begins.unit, value, hedged) for value in left_values):
            return True, None
        exact = (
            all(numbers[n].unit == 1 for n in (*left_side.numbers, *right_side.numbers))
            and "/" not in left_side.operators
        )
        slack = 1e-9 if exact else 0.005
        return any(
            abs(a - b) <= slack * max(abs(a), abs(b), 1e-9) for a in left_values for b in right_values
        ), left_values[0]
    number = numbers[stated_side.numbers[0]]
    stated_value = stated[0]
    if number.percent:
        # "45 / 180 = 25 %" and "45 / 180 * 100 = 25 %"; percentages of percentages stay what they are.
        stated_value, computed = (
            100 * stated_value,
            [reading for value in computed for reading in (100 * value, value)],
        )
    return any(stands_for(stated_value, number.unit, value, hedged) for value in computed), computed[0]


def side_values(side: Side, other: Side, numbers: Sequence[Number]) -> Iterator[float]:
    """What a side may be worth: percentages as shares or as plain numbers, π as it is rounded."""
    own = [numbers[n] for n in side.numbers]
    shares = any(number.percent for number in own)
    readings: list[list[float]] = []
    if shares:
        readings.append([number.value / 100 if number.percent else number.value for number in own])
        if "of" not in side.operators:
            readings.append([number.value for number in own])
        if len(own) == 2 and own[1].percent and not own[0].percent and side.operators in (["-"], ["+"]):
            sign = -1 if side.operators == ["-"] else 1
            yield own[0].value * (1 + sign * own[1].value / 100)
    else:
        readings.append([number.value for number in own])
    if (
        side.operators == ["of"]
        and side.tokens[0] == MARK
        and len(own) == 2
        and not own[0].percent
        and own[0].value >= 1
    ):
        if own[1].value:
            yield own[0].value / own[1].value
        return
    for reading in readings:
        for pi in _PI if "π" in side.tokens else (0.0,):
            value = evaluate_expression(side.tokens, reading, pi)
            if value is not None and math.isfinite(value):
                yield value
