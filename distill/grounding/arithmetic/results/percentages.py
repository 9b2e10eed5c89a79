"""Percentages of a number that the sentence names: "of 340 people 10% came, that is 34, so 5% is 17"."""

from collections.abc import Iterator
from typing import Final

from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.results.derivations import results_of
from distill.grounding.arithmetic.results.number_roles import NumberedSentence
from distill.word_tables import word_set

_TIED: Final = word_set("is are = equals makes means gives would be was were or")
_CHARGED: Final = word_set(
    "discount discounted off tip tax vat interest commission sale fee surcharge markup raise deposit"
)
_STATES: Final = word_set("costs cost is are = equals comes pays pay gives makes to get gets earns totals :")


def find_percentage_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """What a percentage of a whole is stated to be, and a price with a percentage taken off or added."""
    numbers = sentence.numbers
    if not any(number.percent for number in numbers):
        return
    for index in range(1, len(numbers)):
        number = numbers[index]
        tie = sentence.pieces[index].split()
        if number.percent or sentence.behind(index).operator or sentence.is_label(index):
            continue
        if numbers[index - 1].percent and tie and set(tie) <= _TIED:
            wholes = [*_wholes(sentence, index - 1)]
            if wholes and not (index > 1 and sentence.before(index - 1).operator):
                share = numbers[index - 1].value / 100
                right = any(stands_for(number.value, number.unit, share * whole, False) for whole in wholes)
                yield sentence.claim(0, index, right, share * wholes[0], ("share", share, *wholes))
    yield from _charged(sentence)


def _wholes(sentence: NumberedSentence, end: int) -> Iterator[float]:
    """The numbers of which percentages before this one are taken."""
    for at in range(end):
        words = sentence.pieces[at].split()
        if not sentence.numbers[at].percent and "of" in words[-2:] and not sentence.is_label(at):
            yield sentence.numbers[at].value


def _charged(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """A discount, a tip, a tax or interest: one percentage, a price, and what comes out."""
    numbers, last = sentence.numbers, len(sentence.numbers) - 1
    if not 2 <= last <= 3 or _CHARGED.isdisjoint(sentence.words) or sum(number.percent for number in numbers) != 1:
        return
    before = sentence.before(last)
    if numbers[last].percent or before.link not in _STATES or before.operator or before.hedged:
        return
    if (
        any(sentence.before(at).operator or sentence.is_label(at) for at in range(last))
        or sentence.behind(last).operator
    ):
        return
    values = tuple(sentence.value(at) for at in range(last))
    results = results_of(values, "%*" if last == 2 else "%*+-")
    right = any(stands_for(numbers[last].value, numbers[last].unit, result, False) for result in results)
    yield sentence.claim(0, last, right, None, ("charged", *values))
