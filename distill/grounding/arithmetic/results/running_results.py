"""Results that take the one before: "then subtract 19 to get 64", "doubling that gives", "twice as many, so 24"."""

# ruff: noqa: E501
# A phrase broken over lines cannot be read as a phrase.

import re
from collections.abc import Callable, Iterator
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import evaluate_expression, stands_for
from distill.grounding.arithmetic.results.number_roles import NumberedSentence
from distill.word_tables import word_set

_STEPS: Final[dict[str, Callable[[float, float], float]]] = {
    "add": lambda a, b: a + b, "adding": lambda a, b: a + b, "plus": lambda a, b: a + b,
    "subtract": lambda a, b: a - b, "subtracting": lambda a, b: a - b, "minus": lambda a, b: a - b, "less": lambda a, b: a - b,
    "times": lambda a, b: a * b,
    "multiply by": lambda a, b: a * b, "multiplying by": lambda a, b: a * b, "multiplied by": lambda a, b: a * b,
    "divide by": lambda a, b: a / b if b else 0.0, "dividing by": lambda a, b: a / b if b else 0.0,
    "divided by": lambda a, b: a / b if b else 0.0,
}  # fmt: skip
STEP_WORDS: Final = frozenset(word for step in _STEPS for word in step.split()[:1]) | word_set(
    """double doubling halve halving half triple tripling twice less fewer more higher lower"""
)
_STEP: Final = re.compile(
    r"(?:^|[,;] |\bthen )(?:and )?(?:then )?(?:we )?(" + "|".join(_STEPS) + r")(?: the| another| a)? $"
)
_OBTAINS: Final = re.compile(
    r"^(?: [a-z]+)?,? (?:to get|gives|which gives|giving|makes|making|is|equals|we get|you get|leaves|leaving|yields|to obtain|and get) $"
)
_THAT: Final = re.compile(
    r"\b(doubl(?:e|ing)|halv(?:e|ing)|half of|tripl(?:e|ing)|twice) (?:that|this|it|the result|the sum) ?,?(?:is|gives|makes|equals|yields|leads to|we get)? $"
)
_FACTORS: Final = {"doubl": 2.0, "twice": 2.0, "halv": 0.5, "half ": 0.5, "tripl": 3.0}
_COMPARED: Final = re.compile(
    r"^ (?:[a-z]+ )?(more|less|fewer) than (?:that|this|it|the (?:result|last|first)) (?:is|makes|gives|equals|=) $"
)
_JOINED: Final = re.compile(r"^(?: [a-z]+){0,5} ([-+*]|plus|minus) $")
_EQUALS: Final = re.compile(r"^(?: [a-z]+){0,5} = $")
_TIMES_AS: Final = re.compile(r"^ times (?:as|the|more|larger|bigger|higher)\b")
_THAN_THE: Final = re.compile(r"^ (?:[a-z%]+ )?(more|less|fewer|higher|lower) than (?:the )?$")


def find_running_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """Results of steps that name only one of their numbers, and equations between words."""
    for index in range(len(sentence.numbers)):
        computed = list(_computed(sentence, index))
        if computed and not sentence.behind(index).operator:
            number, stated = sentence.numbers[index], sentence.value(index)
            right = any(stands_for(abs(stated), number.unit, abs(value), False) for value in computed)
            key = ("step", sentence.pieces[index], *computed)
            yield sentence.claim(0 if index else -1, index, right, computed[0], key)
    text = MARK.join(sentence.pieces)
    if " = " in text:
        yield from _worded_sums(sentence)
    if "N times" in text or " than " in text:
        yield from _comparisons(sentence)


def _computed(sentence: NumberedSentence, index: int) -> Iterator[float]:
    """What a number may be by the words before it: a step from one of the results before, the latest first."""
    piece = sentence.pieces[index]
    if index > 1 and _OBTAINS.match(piece) and not sentence.numbers[index].percent:
        step = _STEP.search(sentence.pieces[index - 1])
        if step and sentence.before(index - 2).operator in ("", "="):
            operand = sentence.value(index - 1)
            yield from (_STEPS[step[1]](sentence.value(at), operand) for at in range(index - 2, -1, -1)[:3])
    elif "than" in piece and index > 1:
        compared = _COMPARED.match(piece)
        if compared:
            step_up = sentence.value(index - 1) * (1 if compared[1] == "more" else -1)
            yield from (sentence.value(at) + step_up for at in range(index - 2, -1, -1)[:2])
    elif ("th" in piece or " it" in piece) and (that := _THAT.search(piece)) is not None:
        factor = _FACTORS[that[1][:5]]
        if index:
            yield from (factor * sentence.value(at) for at in range(index - 1, -1, -1)[:2])
        elif sentence.earlier:
            yield factor * sentence.earlier[-1].value(len(sentence.earlier[-1].numbers) - 1)


def _worded_sums(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """Sums with words between a number and the sign: "9 in the back + 6 in the front = 15"."""
    for index in range(2, len(sentence.numbers)):
        if not _EQUALS.match(sentence.pieces[index]) or sentence.behind(index).operator:
            continue
        first, tokens = index - 1, ["N"]
        while first > 0 and (joint := _JOINED.match(sentence.pieces[first])):
            tokens = ["N", {"plus": "+", "minus": "-"}.get(joint[1], joint[1]), *tokens]
            first -= 1
        before = sentence.before(first)
        if (
            first == index - 1
            or before.operator
            or before.negative
            or not any(len(sentence.pieces[at].split()) > 2 for at in range(first + 1, index + 1))
        ):
            continue
        values = [sentence.numbers[at].value for at in range(first, index)]
        if any(number.percent for number in sentence.numbers[first : index + 1]):
            continue
        expected = evaluate_expression(tokens, values)
        if expected is not None:
            yield sentence.claim(
                first, index, sentence.is_any_of(index, [expected]), expected, ("worded", *tokens, *values)
            )


def _comparisons(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """A difference or a factor between two numbers: "17, which is 2 more than the 15 of Sweden"."""
    for index in range(1, len(sentence.numbers) - 1):
        before, number = sentence.before(index), sentence.numbers[index]
        behind = sentence.pieces[index + 1]
        one, two = sentence.value(index - 1), sentence.value(index + 1)
        if (
            sentence.is_label(index - 1)
            or sentence.is_label(index + 1)
            or before.operator
            or before.hedged
            or sentence.behind(index + 1).operator
        ):
            continue
        if before.inferred and before.link in ("is", "are") and _THAN_THE.match(behind):
            expected = 100 * abs(one - two) / two if number.percent and two else abs(one - two)
            right = any(stands_for(number.value, number.unit, value, False) for value in (expected, abs(one - two)))
            yield sentence.claim(index - 1, index + 1, right, expected, ("than", one, two))
        elif (
            _TIMES_AS.match(behind)
            and sentence.pieces[index].strip(" )") == "is"
            and two
            and behind.endswith("(")
            and not number.percent
        ):
            right = stands_for(number.value, number.unit, one / two, False)
            yield sentence.claim(index - 1, index + 1, right, one / two, ("times", one, two))
