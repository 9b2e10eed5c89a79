"""Facts about a list of values: its median, range, largest and smallest value."""

# ruff: noqa: E501
# A phrase broken over lines cannot be read as a phrase.

import re
from collections.abc import Iterator
from statistics import median
from typing import Final

from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.results.number_roles import NumberedSentence
from distill.word_tables import word_set

FACT_WORDS: Final = word_set(
    "median range largest smallest highest lowest greatest biggest maximum minimum middle least"
)
_JOINT: Final = re.compile(
    r"^(?: [a-z]+){0,2}(?:,| and|, and| &|;|,? then)(?: (?!so |the |which |that )[a-z]+:?){0,2} -?$"
)
_FEWEST: Final = 3
_FACTS: Final = "median|middle|range|largest|smallest|highest|lowest|greatest|biggest|maximum|minimum"
_STATED: Final = re.compile(
    rf"\b({_FACTS})(?:,? (?:value|number|one|of|them|these|the|is|are|therefore|thus|equals|being|median|=)\b|[:,]| =)* -?$"
)
_OF_LIST: Final = re.compile(rf"\b({_FACTS}) (?:of|among|value of|number of)? ?(?:the )?(?:[a-z]+ )?$")
_IS: Final = ("is", "is therefore", "=", "equals", "is thus")


def find_list_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """What a sentence states of a list in it, or in the sentence before it."""
    if FACT_WORDS.isdisjoint(sentence.words):
        return
    run = _run(sentence)
    for index in range(len(sentence.numbers)):
        stated = _STATED.search(sentence.pieces[index])
        before, behind = sentence.before(index), sentence.behind(index)
        if not stated or before.operator not in ("", "=") or behind.operator or before.hedged:
            continue
        if f"from the {stated[1]}" in sentence.pieces[index]:
            continue  # the third from the lowest is 55
        if behind.name in ("to", "and") or sentence.pieces[index + 1].startswith(("-", " -", ":")):
            continue
        if run and run[-1] < index:
            yield from _fact_claim(sentence, stated[1], [sentence.value(at) for at in run], run[0], index)
        elif not run and index == 0 and sentence.earlier:
            one = sentence.earlier[-1]
            listed = _run(one)
            if listed:
                first = one.offset + listed[0] - sentence.offset
                yield from _fact_claim(sentence, stated[1], [one.value(at) for at in listed], first, index)
    if run:
        last = len(sentence.numbers) - 1
        lead = _OF_LIST.search(sentence.pieces[0])
        if lead and run[0] == 0 and run[-1] == last - 1 and sentence.pieces[last].strip() in _IS:
            yield from _fact_claim(sentence, lead[1], [sentence.value(at) for at in run], 0, last)


def _fact_claim(
    sentence: NumberedSentence, fact: str, values: list[float], first: int, index: int
) -> Iterator[ArithmeticClaim]:
    """The statement of a number about these values."""
    facts = _facts(fact, values)
    if facts and not sentence.behind(index).operator:
        yield sentence.claim(first, index, sentence.is_any_of(index, facts), facts[0], (fact, *values))


def _run(sentence: NumberedSentence) -> list[int]:
    """The longest run of numbers that are listed one after another, without labels."""
    best: list[int] = []
    run: list[int] = []
    for at in range(len(sentence.numbers)):
        if run and not (_JOINT.match(sentence.pieces[at]) and not sentence.is_label(at)):
            run = []
        run = [*run, at]
        best = run if len(run) > len(best) else best
    return best if len(best) >= _FEWEST else []


def _facts(word: str, values: list[float]) -> list[float]:
    """What a fact about these values may be."""
    if word in ("median", "middle"):
        return [median(values)]
    if word == "range":
        return [max(values) - min(values)]
    if word in ("largest", "highest", "greatest", "biggest", "maximum"):
        return [max(values)]
    if word in ("smallest", "lowest", "minimum", "least"):
        return [min(values)]
    return []
