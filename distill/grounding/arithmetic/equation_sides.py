"""The sides of equations in a canonical text: runs of expressions with a sign or a word of equality between them.

Reads + - * / ^ √ and parentheses, percentages, and English words for them. What a side is worth, and whether two
sides agree, is decided by `distill.grounding.arithmetic.equations`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK
from distill.word_tables import word_set

_TOKEN: Final = re.compile(r"[a-zX][\w'/]*(?:-[a-z][a-z]+)*|N!?|->|=>|==|!=|<=|>=|\S")
_NUMBERS: Final = (MARK, "N!")
_ENDS: Final = frozenset([*_NUMBERS, ")", "u"])
"""What the tokens of a side that has a value end with; u stands for words behind a number."""
_BEGIN_OPERAND: Final = frozenset([*_NUMBERS, "("])
_OPENERS: Final = (*_NUMBERS, "π", "plus", "minus", "less", "times", "dividedby", "of", "same")
"""Words and letters that a chain begins with."""
_REMAINDERS: Final = ("r", "mod", "rest", "remainder")
_SIGNS: Final = {"+": "+", "-": "-", "*": "*", "/": "/", "^": "^", "√": "√", "‖": "‖"}
"""‖ is the absolute value of what follows."""
_OPERATORS: Final = {"plus": "+", "minus": "-", "less": "-", "times": "*", "x": "*", "dividedby": "/", "of": "of"}
_EQUALS: Final = {"=": "=", "==": "=", "≈": "≈", "→": "=", "->": "=", "=>": "=", "same": "="}
_BEGINNINGS: Final = frozenset([*_OPENERS, *_SIGNS, "(", *(sign for sign in _EQUALS if not sign.isalpha())])
"""Words and signs that a chain begins with; all others are passed over before it."""
_OPERANDS: Final = (*_NUMBERS, "(", "√", "‖", "π")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_ARROWS: Final = ("→", "->", "=>")
SAYS: Final = word_set(
    """is are equals makes make making gives give giving yields yield leaves leave leaving totals becomes gets cost
    costs get reaches was were comes"""
)
_FILLERS: Final = word_set(
    """a an the about approximately roughly around nearly almost only just exactly total of to we us you get approx
    : or ie is that which so circa some precisely again also ~ then"""
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
_COMPARING: Final = word_set("more less fewer greater higher lower larger smaller years per times")
"""Those of these words that may follow a result after an equals sign: "90 - 75 = 15 more"."""
_JOINTS: Final = word_set(
    """and or but in to than from for with on at by so because which that while since then thus hence where as when if
    over during across between among und et oder ou"""
)
"""What stands between two statements, and not between a number and its unit."""
# A comma ends a chain but where `EquationReader._goes_on` may say otherwise.
_END_OF_CHAIN: Final = re.compile(rf"[.;]|,(?!\s*(?:{'|'.join(_OPERATORS)}|or|ie|that|which|so|same)\b)")
_CHAIN_BEGINS: Final = re.compile(
    "|".join(re.escape(word if len(word) > 2 or word == "of" else word[0]) for word in sorted(_BEGINNINGS))
)
_NOT_GOING_ON: Final = re.compile(rf",(?!\s*(?:(?:{'|'.join(_OPERATORS)}|or|ie|same)\b|(?:that|which|so)\s+is\b))")
"""A comma behind which no chain goes on."""
_MOST_NUMBERS: Final = 64
"""In one chain: no more are written by hand."""


@dataclass(slots=True)
class Side:
    """One side of a chain: tokens, the places of its numbers in their part, and whether it has a value."""

    tokens: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    """The tokens that are operators."""
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

    def end_unit(self) -> None:
        if self.tokens and self.tokens[-1] == "u":
            self.tokens.pop()


def split_parts(sentence: str) -> Iterator[tuple[str, int]]:
    """The parts of a sentence that no chain leaves, and where each begins: cut behind what ends a chain always."""
    start = 0
    for match in _END_OF_CHAIN.finditer(sentence):
        end = match.end()
        yield sentence[start:end], start
        start = end
    yield sentence[start:], start


def chains_of(part: str) -> tuple[int, int, int]:
    """Where the word before the first chain of a part begins and where the last one has ended; the tokens outside."""
    begun, start = _CHAIN_BEGINS.search(part), 0
    if begun is not None and (word := part.rfind(" ", 0, begun.start())) > 0:
        before = part.rfind(" ", 0, word) + 1
        start = before if part[before:word].strip() else 0
    ended = _NOT_GOING_ON.search(part, part.rfind(MARK) + 1)
    end = len(part) if ended is None else ended.end()
    outside = (_TOKEN.findall(part, *span) for span in ((0, start), (end, len(part))) if span[0] < span[1])
    return start, end, sum(map(len, outside))


class EquationReader:
    """Reads the tokens of a part of a sentence into chains: runs of sides with equality between them."""

    def __init__(self, sentence: str, start: int, end: int) -> None:
        self.sentence = sentence
        self.matches = list(_TOKEN.finditer(sentence, start, end))
        self.tokens = [match[0] for match in self.matches]
        self.next_number = 0
        """Index of the next number in the part."""
        self.chain = [Side()]
        self.before = ""
        """The last token that belongs to no side: a word or a sign."""

    def chains(self) -> Iterator[list[Side]]:
        """The chains of two sides or more."""
        begun = False
        before = ""
        for at, token in enumerate(self.tokens):
            if MARK in token and token not in _NUMBERS:
                self.next_number += token.count(MARK)  # "f/2.8" is a word
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
        if len(self.chain) > 1:
            yield self.chain

    def _read(self, at: int, token: str, start: int, end: int) -> list[Side] | None:
        """Take one token; returns the chain that it ends."""
        side = self.chain[-1]
        last = side.tokens[-1] if side.tokens else ""
        after = self._token(at + 1)
        if token in _NUMBERS:
            self._number(side, token, start, end)
        elif self._leaves(side, token, start, after):
            return self._ended(token)
        elif token == "times" and last == MARK and after not in (*_OPERANDS, *_SIGNS) and len(self.chain) > 1:
            return self._unit(side, token, after)  # "60 / 15 = 4 times the smallest"
        elif token in _SIGNS or (token in _OPERATORS and (token != "x" or after in _BEGIN_OPERAND)):
            self._operator(side, token, start, end, after)
        elif token == "π" or (token == "(" and not (last in _ENDS and self.sentence[start - 1] == " ")):
            # What stands directly before it is the name of a function.
            side.sound = side.sound and not (token == "(" and self.sentence[start - 1 : start] in _LETTERS)
            side.tokens.append(token)
        elif token == ")" and side.tokens.count("(") > side.tokens.count(")"):
            side.end_unit()
            side.tokens.append(token)
        elif token in _EQUALS or (token in SAYS and side.numbers):
            # What an arrow leads to is a result only after an expression ("9 -> 9 + 5 = 14" names a step).
            self.chain.append(Side(hedged=token == "≈", weak=token in SAYS or token in _ARROWS))
        elif not side.tokens and len(self.chain) > 1 and token in _FILLERS:
            side.hedged |= token in _HEDGES
        elif token == "," and self._goes_on(at):
            if after not in _OPERATORS and after != "same":
                self.chain.append(Side(weak=True))
        elif last in _ENDS and token not in _JOINTS and (len(token) > 1 or token in _MEASURES):
            return self._unit(side, token, after) if token[0].isalpha() and token != "X" else self._ended(token)
        elif token in _REMAINDERS and last == MARK:
            side.sound = False
        else:
            if token == "and" and last == "u" and after in _NUMBERS and "/" in self.chain[0].operators:
                side.sound = False  # "60 / 7 = 8 weeks and 4 days"
            ended = self._ended(token)
            if token == "(":
                self.chain[0].tokens.append("(")  # "for 28 and 30 (28 + 30) that comes to 58"
            return ended
        return None

    def _leaves(self, side: Side, token: str, start: int, after: str) -> bool:
        """Whether a sign or "of" behind a result belongs to the words after it: "= 33 - so", "1/2 of the pizza"."""
        if not side.numbers or len(self.chain) == 1 or not self.chain[-2].operators or not after[:1].islower():
            return False
        if token == "of":
            return after not in _OPERATORS
        return token == "-" and len(after) > 1 and after not in _OPERATORS and self.sentence[start - 1] == " "

    def _token(self, at: int) -> str:
        return self.tokens[at] if at < len(self.tokens) else ""

    def _ended(self, token: str = "") -> list[Side]:
        """End the chain; an operator at its end, or equality, has a side without a value."""
        chain, self.chain = self.chain, [Side()]
        side = chain[-1]
        if side.tokens and side.tokens[-1] not in _ENDS and side.tokens[-1] != "π":
            side.sound = False
        self.before = _word_before(token)
        return chain

    def _number(self, side: Side, token: str, start: int, end: int) -> None:
        text = self.sentence
        last = side.tokens[-1] if side.tokens else ""
        if last == ")" and len(self.chain) == 1 and not side.operators:
            self.chain = [side := Side()]  # "(1) 3 + 4 = 7" begins a new one
        elif last == "u" and len(self.chain) == 1 and not side.operators:
            self.chain = [side := Side()]  # "5 boxes hold 24 * 5 = 120 cans"
        elif last in _ENDS:
            side.sound = False  # "6 1/2"
        beside = (text[end : end + 1], text[start - 1 : start])
        if beside[0].isalpha() or beside[0] in ("_", "±") or beside[1] == "_":
            side.sound = False
        if text[max(start - 2, 0) : start] == "N:" or text[end : end + 2] == ":N":
            side.sound = False
        side.tokens.append(token)
        side.numbers.append(self.next_number)
        side.operators += ["!"] if token == "N!" else []
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
        if not side.tokens and sign not in ("√", "‖", "of"):
            # A sign of its own number, or an operator whose other side is no number.
            tight = self.sentence[end : end + 1] in (MARK, "(") and self.sentence[start - 1 : start] in ("", " ", "(")
            if sign == "+" and tight and (len(self.chain) > 1 or not self.before):
                return  # "73 - 28 = +45"
            if not (sign == "-" and tight):
                if not self.before and len(self.chain) == 1:
                    return  # a mark at the beginning
                side.sound = False
        side.unit = False
        side.tokens.append(sign)
        side.operators.append(sign)
        side.worded |= token in _OPERATORS and token != "x"
        side.crossed |= token == "x"

    def _goes_on(self, at: int) -> bool:
        """Whether an expression continues after a comma: "27 plus 17 is 44, plus 10 is 54", "5.2 minus 3, or 2.2"."""
        after, then = self._token(at + 1), self._token(at + 2)
        side = self.chain[-1]
        if not side.numbers or not (side.operators or len(self.chain) > 1):
            return False
        if after in _OPERATORS and after != "x":
            return then in _OPERANDS  # not in "64 + 47 = 111, plus another 47"
        return after in ("or", "ie", "same") or (after in ("that", "which", "so") and then == "is")

    def _unit(self, side: Side, token: str, after: str) -> list[Side] | None:
        """A word behind a number: what is counted."""
        if token in _AFTER and len(self.chain) > 1 and len(side.tokens) == 1:
            compares = token in _COMPARING and after != "than"
            side.sound = side.sound and compares and not side.weak and bool(self.chain[-2].operators)
        if side.tokens[-1] != "u":
            side.tokens.append("u")
        side.unit = side.unit or token not in _MEASURES
        side.units |= {token} & _MEASURES
        return None


def _word_before(token: str) -> str:
    """A token before a chain, if it can belong to what the chain begins with."""
    return token if (token[:1].isalnum() and token not in _JOINTS) or token in (")", "'") else ""
