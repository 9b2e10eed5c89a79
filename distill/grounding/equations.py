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
from distill.grounding.expressions import evaluate, stands_for
from distill.grounding.numbers_in_text import word_set

_TOKEN: Final = re.compile(r"->|=>|==|!=|<=|>=|N!?|[a-zX][\w'/]*|\S")
_NUMBERS: Final = (MARK, "N!")
_ENDS: Final = (*_NUMBERS, ")")
_OPENERS: Final = (*_NUMBERS, "π", "plus", "minus", "less", "times", "dividedby", "of", "same")
"""What is read at the beginning of a chain, besides signs."""
_REMAINDERS: Final = ("r", "mod", "rest", "remainder")
_SIGNS: Final = {"+": "+", "-": "-", "*": "*", "/": "/", "^": "^", "√": "√"}
_OPERATORS: Final = {"plus": "+", "minus": "-", "less": "-", "times": "*", "x": "*", "dividedby": "/", "of": "of"}
_EQUALS: Final = {"=": "=", "==": "=", "≈": "≈", "→": "=", "->": "=", "=>": "=", "same": "="}
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
"""What makes a sentence no claim of its own: questions, negations, conditions, mistakes that it tells of."""
_PI: Final = (math.pi, 3.14, 22 / 7, 3.1416)
_PHRASES: Final = (
    (re.compile(r"\b(?:multiplied by|multiplied with)\b"), "times"),
    (re.compile(r"\bdivided by\b"), "dividedby"),
    (re.compile(r"(?<=N) out of (?=N)"), " of "),
    (re.compile(r"\bsquare root of (?=N)"), "√ "),
    (re.compile(r"(?<=N) squared\b"), "^2"),
    (re.compile(r"\bless than\b"), "lessthan"),
    (re.compile(r"\b(?:is|are) the same as\b|\b(?:reduces?|simplif(?:y|ies)|corresponds?|converts?) to\b|\bequals?\b"
                r"|\bas an? (?:percentage|percent|decimal|fraction),?(?: is| gives)?|\b(?:is|are) equal to\b"), "same"),
    (re.compile(r"\((?:because|since|as) (?=[N(])"), "= ("),
    (re.compile(r"(?<=N) (?:rows|columns|packs?|packets|boxes|groups|bags|sets|stacks|crates|piles|shelves|teams|tables"
                r"|bunches|bundles|trays|cartons) of (?=N)"), " times "),
    (re.compile(r"(?<=N) [a-z]+ at (?=N [a-z ]{0,12}each\b)|(?<=N) [a-z]+ at (?=N each\b)"), " times "),
    (re.compile(r" each(?= costs?\b)"), ""),
)  # fmt: skip
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
    """What is computed, whatever is said to come out."""


def claims(sentence: str, numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    """What a sentence of a canonical text says that arithmetic gives; its first number is that at `offset`."""
    if not _SOME_EQUALITY.search(sentence) or not _SOME_OPERATOR.search(sentence) or _OVERRULED.search(sentence):
        return
    for pattern, word in _PHRASES:
        sentence = pattern.sub(word, sentence)
    for chain in _EquationReader(sentence, offset).chains():
        yield from _checked(chain, numbers)


class _EquationReader:
    """Reads the tokens of a sentence into chains: runs of sides with equality between them."""

    def __init__(self, sentence: str, offset: int) -> None:
        self.sentence = sentence
        self.tokens = [(match[0], match.start(), match.end()) for match in _TOKEN.finditer(sentence)]
        self.place = offset
        """Of the next number."""
        self.chain = [Side()]
        self.before = ""
        """The last token that belongs to no side: a word or a sign."""

    def chains(self) -> Iterator[list[Side]]:
        for at, (token, start, end) in enumerate(self.tokens):
            ended = self._read(at, token, start, end)
            if ended is not None:
                yield ended
        yield self.chain

    def _read(self, at: int, token: str, start: int, end: int) -> list[Side] | None:
        """Take one token; returns the chain that it ends."""
        side = self.chain[-1]
        if not side.tokens and len(self.chain) == 1 and token[0].isalpha() and token not in _OPENERS:
            self.before = "" if token in _JOINTS else token
            return None
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
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def _ended(self, token: str = "") -> list[Side]:
        """End the chain; an operator at its end, or equality, has a side without a value."""
        chain, self.chain = self.chain, [Side()]
        side = chain[-1]
        if side.tokens and side.tokens[-1] not in (*_ENDS, "u", "π"):
            side.sound = False
        self.before = token if (token[:1].isalnum() and token not in _JOINTS) or token in (")", "'") else ""
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
        side.numbers.append(self.place)
        side.unit = False
        self.place += 1
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


def _checked(chain: list[Side], numbers: Sequence[Number]) -> Iterator[ArithmeticClaim]:
    if len(chain) < 2 or not any(side.operators for side in chain):
        if len(chain) == 2 and not chain[1].weak:
            yield from _percentage(chain, numbers)
        return
    for place in range(1, len(chain)):
        one, other = chain[place - 1], chain[place]
        if not (one.sound and other.sound and one.numbers and other.numbers):
            continue
        if not (one.operators or other.operators or place > 1):
            continue
        if other.weak and not _claimed(one, other, numbers):
            continue
        operators = {*one.operators, *other.operators}
        if operators & {"+", "-"} and ("of" in operators or len(one.units | other.units) > 1):
            continue
        found = _compared(one, other, chain[0], numbers)
        if found is not None:
            right, expected = found
            key = (tuple(one.operators), tuple(numbers[n].value for n in one.numbers))
            yield ArithmeticClaim(one.numbers[0], other.numbers[-1], right, expected, key)


def _claimed(one: Side, other: Side, numbers: Sequence[Number]) -> bool:
    """Whether a word such as "is" between two sides states a result: not after a range, a size or a score."""
    operators = one.operators
    if not operators:
        return False
    if one.worded or "√" in operators:
        return True
    if one.unit or one.crossed:
        return False
    result = numbers[other.numbers[0]]
    if operators == ["/"] and numbers[one.numbers[0]].value < numbers[one.numbers[-1]].value:
        return result.value <= 1 or result.percent  # "3/4 is 60" is a share of something
    if set(operators) == {"-"} and len(one.numbers) == 2:
        return numbers[one.numbers[0]].value > numbers[one.numbers[1]].value
    return True


def _percentage(chain: list[Side], numbers: Sequence[Number]) -> Iterator[ArithmeticClaim]:
    """A share and the same as a percentage ("0.7 is the same as 70%")."""
    one, other = chain
    if not (one.sound and other.sound) or len(one.numbers) != 1 or len(other.numbers) != 1 or one.unit or other.unit:
        return
    if one.tokens[0] != MARK or other.tokens[0] != MARK:
        return
    first, second = numbers[one.numbers[0]], numbers[other.numbers[0]]
    if first.percent == second.percent or max(first.unit, second.unit) > 1:
        return
    share, percent = (second, first) if first.percent else (first, second)
    if share.value > 1:
        return
    right = stands_for(percent.value, percent.unit, 100 * share.value, False) or (
        share.unit <= 0.01 and stands_for(share.value, share.unit, percent.value / 100, False)
    )
    yield ArithmeticClaim(one.numbers[0], other.numbers[0], right, 100 * share.value, ("percentage", share.value))


def _compared(one: Side, other: Side, first: Side, numbers: Sequence[Number]) -> tuple[bool, float | None] | None:
    """Whether two sides agree, and what should stand on the side that is one number; None without values."""
    left, right = list(values(one, other, numbers)), list(values(other, one, numbers))
    if not left or not right:
        return None
    hedged = one.hedged or other.hedged
    stated, computed, side = (right, left, other) if not other.operators else (left, right, one)
    if one.operators and other.operators:
        # "8 + 6 = 14 + 2 = 16" runs on: the side begins with the result of the one before.
        begins = numbers[other.numbers[0]]
        if any(stands_for(begins.value, begins.unit, value, hedged) for value in left):
            return True, None
        exact = all(numbers[n].unit == 1 for n in (*one.numbers, *other.numbers)) and "/" not in one.operators
        slack = 1e-9 if exact else 0.005
        return any(abs(a - b) <= slack * max(abs(a), abs(b), 1e-9) for a in left for b in right), left[0]
    number = numbers[side.numbers[0]]
    said = stated[0]
    if number.percent:
        # "45 / 180 = 25 %" and "45 / 180 * 100 = 25 %"; percentages of percentages stay what they are.
        said, computed = 100 * said, [reading for value in computed for reading in (100 * value, value)]
    return any(stands_for(said, number.unit, value, hedged) for value in computed), computed[0]


def values(side: Side, other: Side, numbers: Sequence[Number]) -> Iterator[float]:
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
            value = evaluate(side.tokens, reading, pi)
            if value is not None and math.isfinite(value):
                yield value
