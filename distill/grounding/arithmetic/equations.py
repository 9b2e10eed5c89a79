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
from functools import lru_cache
from typing import Final, NamedTuple

from distill.grounding.arithmetic.canonical_text import MARK, Number
from distill.grounding.arithmetic.equation_sides import SAYS, EquationReader, Side, chains_of, split_parts
from distill.grounding.arithmetic.expressions import evaluate_expression, stands_for
from distill.grounding.arithmetic.reading_effort import ReadingEffort
from distill.word_tables import longest_first, word_set

_OVERRULED: Final = re.compile(
    r"\?|\b(?:wrong|mistake|mistaken|mistakenly|incorrect|misread|miscounted|false|slip|error|instead|rather|oops)\b"
)
"""A sentence with one of these words is no claim: questions, reported mistakes.

A condition is a claim: "it would be 8 + 6 = 14" states arithmetic.
"""
_NOT: Final = r"(?:(?:is|are|was|does|do|can) not|isn't|aren't|wasn't|doesn't|don't|cannot|can't)\b"
_NEGATED: Final = re.compile(rf"\b{_NOT}")
"""A part of a sentence with one of these words is no claim; other parts are: "it doesn't count, so 10 - 1 = 9"."""
_SAID_OF_RESULT: Final = re.compile(
    rf"\bwhich {_NOT} (?!be |right|correct|true|possible|what|the |match|fit|add|agree)"
)
_TAKEN_BACK: Final = re.compile(rf" ?(?:(?:but|and|yet),? )?(?:that|this|it|which) {_NOT}")
_OVERRULING: Final = word_set(
    """wrong mistake mistaken mistakenly incorrect misread miscounted false slip error not cannot t instead rather oops"""
)
"""A sentence without a question mark is no claim only if it has one of these words; "t" ends "isn't"."""
_REMAINDER: Final = re.compile(r"\b(?:remainder|left over|leftover)\b")
"""Beside a division they mean that its result is rounded to a whole number."""
_REMAINING: Final = word_set("remainder left leftover")
_DIVIDED: Final = re.compile(r"/|\bdivided")
_ABSOLUTE: Final = re.compile(r"\|\s?(-?N(?: ?[-+*/] ?N){1,3})\s?\|(?=\s?[=≈])")
_TEMPERATURES: Final = frozenset(["celsius", "fahrenheit"])
_PI: Final = (math.pi, 3.14, 22 / 7, 3.1416)
_PHRASES: Final = (
    (word_set("multiplied"), re.compile(r"\b(?:multiplied by|multiplied with)\b"), "times"),
    (word_set("divided"), re.compile(r"\bdivided by\b"), "dividedby"),
    (word_set("out"), re.compile(r"(?<=N) out of (?=N)"), " of "),
    (word_set("root"), re.compile(r"\bsquare root of (?=N)"), "√ "),
    (word_set("jan feb mar apr may jun jul aug sep oct nov dec mon tue wed thu fri sat sun"),
     re.compile(r"\b[a-z]{3} \(N\)(?= ?[-+=])"), "N"),
    (frozenset("q"), re.compile(r"\bq[1-4] (?=N)"), ""),
    (word_set("more"), re.compile(r"(?<=N) more than (?=N times N)"), " plus "),
    (word_set("less fewer"), re.compile(r"(?<=N) (?:less|fewer) than (?=N times N)"), " X times "),  # no claim about the product
    (word_set("than"), re.compile(r"\bless than\b"), "lessthan"),
    (word_set("same reduce reduces simplify simplifies correspond corresponds convert converts equal equals percentage"
              " percent decimal fraction"),
     re.compile(r"\b(?:is|are) the same as\b|\b(?:reduces?|simplif(?:y|ies)|corresponds?|converts?) to\b|\bequals?\b"
                r"|\bas an? (?:percentage|percent|decimal|fraction),?(?: is| gives)?|\b(?:is|are) equal to\b"), "same"),
    (word_set("all total altogether together"),
     re.compile(r" (?:in all|in total|altogether|together|total) \((?=N ?[-+*/] ?N)"), " = ("),
    (word_set("away"), re.compile(r"(?<=N) takes? away (?=N)"), " minus "),
    (word_set("because since as"), re.compile(r"\((?:because|since|as) (?=[N(])"), "= ("),
    (word_set("of"),
     re.compile(r"(?<=N) (?:rows|columns|packs?|packets|boxes|groups|bags|sets|stacks|crates|piles|shelves|teams|tables"
                r"|bunches|bundles|trays|cartons) of (?=N)"), " times "),
    (word_set("each"), re.compile(r"(?<=N) [a-z]+ at (?=N [a-z ]{0,12}each\b)|(?<=N) [a-z]+ at (?=N each\b)"), " times "),
    (word_set("each"), re.compile(r" each(?= costs?\b)"), ""),
)  # fmt: skip
"""Words of which a sentence must have one, the pattern that is replaced, and the replacement."""
_IN_PHRASES: Final = frozenset[str]().union(*(words for words, _, _ in _PHRASES))
# Most sentences hold no expression, and a look costs far less than reading them.
_EQUALITY_SIGN: Final = re.compile(r"[=≈→>(]")
_EQUALITIES: Final = SAYS | word_set(
    "equal equals reduce reduces simplify simplifies correspond corresponds convert converts or ie as"
)
_EQUALITY: Final = re.compile(rf"\b(?:{longest_first(_EQUALITIES)})\b")
_OPERATOR_SIGN: Final = re.compile(r"[-+*/^√%!]")
_OPERATORS: Final = word_set("plus minus less times x divided multiplied of root each same away")
_OPERATOR: Final = re.compile(rf"\b(?:{'|'.join(sorted(_OPERATORS))})\b")
# A word of equality needs an expression before it, and so an operator before an operand; an equals sign does not.
_BEFORE_OPERAND: Final = (*"-+*/^√", "plus", "minus", "less", "times", "x", "dividedby")
_OTHER_OPERAND: Final = re.compile(r"[()√π+-]")
# The search finds its place by the first letter.
_SOME_OPERAND: Final = re.compile(
    r"[-+*/^√pmltxd](?:(?<=[-+*/^√x])|(?<=p)lus|(?<=m)inus|(?<=l)ess|(?<=t)imes|(?<=d)ividedby)\s*[()√π+-]"
)
_OF_NUMBER: Final = re.compile(r"of\s*N")
_SOME_SHARE: Final = re.compile(r"[N)]\s*(?:[a-zX][\w'/]*\s+)*of\s*N")
_MAKING_EQUATIONS: Final = _IN_PHRASES - {"of", "out", "than"}
"""Words of phrases that become an operator or equality; "out of" is found by its "of"."""
_CONTEXT: Final = 2
"""So many characters before and after a part can change the tokens at its ends."""

EQUATION_WORDS: Final = _IN_PHRASES | _OVERRULING | _REMAINING | _EQUALITIES | _OPERATORS
"""All words that the patterns search for."""


class ArithmeticClaim(NamedTuple):
    """One claim that can be checked."""

    first: int
    last: int
    """Places of its first and last number."""
    right: bool
    expected: float | None
    key: tuple[object, ...]
    """What is computed, without the stated result."""


def find_equation_claims(
    sentence: str, words: frozenset[str], numbers: Sequence[Number], offset: int, effort: ReadingEffort
) -> Iterator[ArithmeticClaim]:
    """The claims that a sentence of a canonical text writes in signs; its first number has the index `offset`."""
    # The cheapest looks come first: a sentence must pass all of them.
    if "=" not in sentence:
        if words.isdisjoint(_MAKING_EQUATIONS) and not _may_state(sentence):
            return
        if not _EQUALITY_SIGN.search(sentence) and (words.isdisjoint(_EQUALITIES) or not _EQUALITY.search(sentence)):
            return
    if not _OPERATOR_SIGN.search(sentence) and (words.isdisjoint(_OPERATORS) or not _OPERATOR.search(sentence)):
        return
    if ("?" in sentence or not words.isdisjoint(_OVERRULING)) and _OVERRULED.search(sentence):
        return
    if not words.isdisjoint(_REMAINING) and _REMAINDER.search(sentence) and _DIVIDED.search(sentence):
        return
    if not words.isdisjoint(_IN_PHRASES):
        for pattern, word in _phrases_of(words & _IN_PHRASES):
            sentence = pattern.sub(word, sentence)
        if not _may_state(sentence):
            return
    if "|" in sentence:
        sentence = _ABSOLUTE.sub(r"‖(\1)", sentence)
    negated = not words.isdisjoint(_OVERRULING) and _NEGATED.search(sentence)
    if negated and "if " in sentence:
        return  # "if the 1 isn't carried, 17 + 26 = 33"
    for part, start in split_parts(sentence):
        count = part.count(MARK)
        end = start + len(part)
        if count > 1 and _may_state(part) and not (negated and _is_negated(part, sentence[end:])):
            # Without the words around the chains, four of five parts were read before.
            begun, ended, outside = chains_of(part)
            before = sentence[max(0, start - _CONTEXT) : start] if begun == 0 else ""
            chains, tokens = _read_chains(before, part[begun:ended], sentence[start + ended :][:_CONTEXT])
            effort.tokens -= tokens + outside
            own = numbers[offset : offset + count] if chains else ()
            for chain in chains:
                yield from _check_chain(chain, own, offset)
        offset += count


@lru_cache(maxsize=1 << 12)
def _phrases_of(clues: frozenset[str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    """The phrases, and what they become, that a sentence with these words may have."""
    return tuple((pattern, word) for words, pattern, word in _PHRASES if not clues.isdisjoint(words))


def _is_negated(part: str, behind: str) -> bool:
    """Whether a part of a sentence, or the text after it, denies the statement of the part."""
    return _NEGATED.search(_SAID_OF_RESULT.sub("", part)) is not None or _TAKEN_BACK.match(behind) is not None


@lru_cache(maxsize=1 << 11)
def _read_chains(before: str, part: str, after: str) -> tuple[tuple[list[Side], ...], int]:
    """The chains of a part of a sentence between these characters, and how many tokens it has.

    Their numbers are counted from the part's first one. Chains repeat, because each number is replaced by a letter.
    """
    reader = EquationReader(before + part + after, len(before), len(before) + len(part))
    return tuple(reader.chains()), len(reader.tokens)


def _may_state(sentence: str) -> bool:
    """Whether a sentence, or a part of one, has what every claim has."""
    if "=" in sentence or "≈" in sentence or "same" in sentence:
        return True
    # Before a number, and before another operand.
    for before in sentence.split(MARK)[:-1]:
        if before.rstrip().endswith(_BEFORE_OPERAND):
            return True
    if _OTHER_OPERAND.search(sentence) and _SOME_OPERAND.search(sentence):
        return True
    return _OF_NUMBER.search(sentence) is not None and _SOME_SHARE.search(sentence) is not None


def _check_chain(chain: list[Side], numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    """The claims of a chain of a part with these numbers; the first of them has the index `offset` in the text."""
    if not any(side.operators for side in chain):
        if len(chain) == 2 and not chain[1].weak:
            yield from _check_percentage(chain, numbers, offset)
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
        units = left.units | right.units
        if left.units != right.units and (not operators or ("cents" in units and _in_dollars(left, right, numbers))):
            continue  # "25 cents * 4 = $1", "... = 1000 ml = 1 l"
        if operators & {"+", "-"} and (
            ("of" in operators and not _of_shares(left, numbers))
            or (len(units) > 1 and not (units == _TEMPERATURES and "*" in operators))
        ):
            continue
        if _is_put_in(left, right, numbers):
            continue
        comparison = _compare_sides(left, right, numbers)
        if comparison is not None:
            agrees, expected = comparison
            # That two expressions agree corrects no result.
            key = (tuple(left.operators), tuple(numbers[n].value for n in left.numbers), len(right.operators))
            yield ArithmeticClaim(offset + left.numbers[0], offset + right.numbers[-1], agrees, expected, key)


def _is_put_in(left: Side, right: Side, numbers: Sequence[Number]) -> bool:
    """Whether a side puts numbers in for the letters of the side before: "1/2 g t^2 = 1/2 * 10 * 2.2^2"."""
    if left.tokens[-1] != "u":
        return False
    length, count = len(left.tokens) - 1, len(left.numbers)
    if right.tokens[: length + 1] != [*left.tokens[:-1], "*"] or len(right.numbers) <= count:
        return False
    return all(numbers[a].value == numbers[b].value for a, b in zip(left.numbers, right.numbers, strict=False))


def _in_dollars(left: Side, right: Side, numbers: Sequence[Number]) -> bool:
    """Whether one of two sides may be dollars where the other is cents: "25 cents * 4 = 1", "0.25 * 4 = 100 cents"."""
    dollars = left if "cents" in right.units else right
    return dollars is right or any(numbers[n].unit < 1 for n in dollars.numbers)


def _of_shares(side: Side, numbers: Sequence[Number]) -> bool:
    """Whether only percentages are before the "of" of a side: "700 - 20% of 700"."""
    marks = [at for at, token in enumerate(side.tokens) if token == MARK]
    shares = {at + 1 for at, n in zip(marks, side.numbers, strict=False) if numbers[n].percent}
    return shares == {at for at, token in enumerate(side.tokens) if token == "of"}


def _states_a_result(left: Side, right: Side, numbers: Sequence[Number]) -> bool:
    """Whether a word such as "is" between two sides states a result: not after a range, a size or a score."""
    operators = left.operators
    if not operators:
        return not left.unit and "of" in right.operators and "/" in right.operators  # "50 is half of 100"
    if left.worded or "√" in operators:
        return True
    if left.unit or left.crossed:
        return False
    if operators == ["-"] and len(left.numbers) == 1:
        return False  # "the product of -4 and -6 is 24"
    result = numbers[right.numbers[0]]
    if operators == ["/"] and numbers[left.numbers[0]].value < numbers[left.numbers[-1]].value:
        return result.value <= 1 or result.percent  # "3/4 is 60" is a share of something
    if set(operators) == {"-"} and len(left.numbers) == 2:
        return numbers[left.numbers[0]].value > numbers[left.numbers[1]].value
    return True


def _check_percentage(chain: list[Side], numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
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
    first_place, last_place = offset + left.numbers[0], offset + right.numbers[0]
    yield ArithmeticClaim(first_place, last_place, agrees, 100 * share.value, ("percentage", share.value))


def _compare_sides(left_side: Side, right_side: Side, numbers: Sequence[Number]) -> tuple[bool, float | None] | None:
    """Whether two sides agree, and the correct value of the side that is one number; None without values."""
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
        first = -begins.value if right_side.tokens[0] == "-" else begins.value
        if any(stands_for(first, begins.unit, value, hedged) for value in left_values):
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
    if "√" in (left_side.operators or right_side.operators) and number.unit == 1 and not hedged:
        # A root that is no whole number is not said to be one.
        return any(abs(stated_value - value) < 1e-6 for value in computed), computed[0]
    if number.unit > 1:
        # The last number alone may name the scale: "83.2 - 67.4 = 15.8 million".
        computed = [value * scale for value in computed for scale in (1.0, 1e3, 1e6, 1e9)]
    if number.percent:
        # "45 / 180 = 25 %" and "45 / 180 * 100 = 25 %"; percentages of percentages stay what they are.
        stated_value, computed = (
            100 * stated_value,
            [reading for value in computed for reading in (100 * value, value)],
        )
        computed += [
            100 * share for share in _shares(left_side if stated_side is right_side else right_side, numbers)
        ]
    return any(stands_for(stated_value, number.unit, value, hedged) for value in computed), computed[0]


def _shares(side: Side, numbers: Sequence[Number]) -> Iterator[float]:
    """The share that a side takes of a number: "a third of 135, or about 33%"."""
    if side.operators[-1:] == ["of"]:
        tokens = side.tokens[: side.tokens.index("of")]
        share = evaluate_expression(tokens, [numbers[n].value for n in side.numbers])
        if share is not None:
            yield share


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
