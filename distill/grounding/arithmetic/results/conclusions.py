"""Results that a sentence draws from its numbers in words, without a fixed phrase: "52 seats, 38 taken: 24 are free".

A result is a number after words that draw a conclusion, or beside words for an operation: a total, a remainder, a
difference, a mean, a share, a price. Its operands are the numbers before it. It is a slip only if no reading gives
it: no operation that the sentence may mean, on any of its numbers.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from distill.grounding.arithmetic.canonical_text import Number
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.results.derivations import results_of
from distill.grounding.arithmetic.results.number_roles import CUE_LEADING, CUE_WORDS, NumberedSentence
from distill.word_tables import read_table, word_set

_TABLE: Final = read_table(__file__)
CONCLUSION_WORDS: Final = CUE_WORDS
_OPERATIONS: Final = {
    "sum": "+", "left": "-", "difference": "-", "change": "-%", "mean": "m/", "product": "*", "price": "+-*/",
    "share": "/",
    "any": "+-*/",
}  # fmt: skip
"""What a cue means itself."""
_NAMES: Final = {
    word: {operation for operation, words in _TABLE["named"].items() if word in words.split()}
    for word in " ".join(_TABLE["named"].values()).split()
}
"""The operations that a word names."""
_HIDDEN: Final = {
    word: tuple(map(float, numbers.split()))
    for numbers, words in (line.split(":") for line in _TABLE["hidden"].strip().splitlines())
    for word in words.split()
}
"""Numbers that a word brings in."""
_UNKNOWN: Final = word_set(_TABLE["unknown"])
"""What each of some things has, in a number that is not written."""
_COMPARING: Final = word_set(_TABLE["comparing"])
"""Words of relations, after which a number may be used twice: "Ann is 12, Tom 3 years older, together 27"."""
_OF_THEMSELVES: Final = ("sum", "difference", "mean", "product")
"""Cues that state a result without a word that concludes."""
_GIVES: Final = word_set(_TABLE["gives"])
_YEARLY: Final = word_set("year years yearly annual annually per each every average mean")
_OF_WHOLE: Final = word_set(_TABLE["of_whole"])
_POINTING_BACK: Final = word_set("altogether together combined their therefore")
LINKING_BACK: Final = _POINTING_BACK | word_set("so thus hence them total all leaving leaves that this")
"""Words of which a sentence has one if it computes with the numbers of the one before it."""
_PERCENT_WORK: Final = 3
"""How much longer a result takes where percentages are among the operations."""
_SCALES: Final = (1e3, 1e6, 1e9)
_FEWEST, _MOST = 2, 10
_MOST_BARE: Final = 6
"""Numbers before a result that no word concludes: ", 14 in all"."""
_COUNTING: Final = re.compile(r"\b(?:the|these|those|all|both|les|ces|los|las|die|den|beiden) $")
_PAIR: Final = 2
_ROUNDED_UP: Final = word_set("needed need needs enough full necessary required")
_SHARING: Final = word_set("split splits share shares shared divide divided divides distributed among")
_MOST_ANYHOW: Final = 3
"""Operands of a conclusion that names no operation."""


def find_conclusions(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """The conclusion of a sentence from its numbers, or from the numbers of the sentences before it."""
    leading = _leading_cue(sentence)
    for index in range(0 if sentence.before_it else _FEWEST, len(sentence.numbers)):
        cue = _cue_of(sentence, index, leading) if leading or sentence.has_cue(index) else ""
        if not cue:
            continue
        places, words = sentence.operands(index), sentence.words
        if len(places) < _FEWEST:
            if not _is_of_earlier(sentence, index, cue, len(places)):
                continue
            places = [*_earlier_places(sentence, counts=False), *places]
            words = words.union(*(one.words for one in sentence.earlier))
        if not _FEWEST <= len(places) <= (_MOST_ANYHOW if cue == "any" or places[0] < 0 else _MOST):
            continue
        values = [sentence.value_at(place) for place in places]
        if cue not in ("mean", "share", "price", "product") and _COUNTING.search(sentence.pieces[max(places[0], 0)]):
            values = _without_count(values)
        judged = _judge(sentence, index, cue, values, words)
        if judged is not None:
            right, expected = judged
            yield sentence.claim(places[0], index, right, expected, (cue, *values))


def _earlier_places(sentence: NumberedSentence, *, counts: bool = True) -> list[int]:
    """The operands of the sentences before, by negative places. `counts`: also the number of "the two curves"."""
    return [
        one.offset + at - sentence.offset
        for one in sentence.earlier
        for at in one.operands(len(one.numbers))
        if counts or one.value(at) != _PAIR or not _COUNTING.search(one.pieces[at])
    ]


def _without_count(values: list[float]) -> list[float]:
    """Numbers to add without the one before them that counts them: "the two bars show 22 and 12"."""
    for at, value in enumerate(values[:-2]):
        if value == len(values) - at - 1:
            return [*values[:at], *values[at + 1 :]]
    return values


def _leading_cue(sentence: NumberedSentence) -> str:
    """The operation that the words before the first number announce."""
    for word in sentence.pieces[0].split()[-8:]:
        if word in CUE_LEADING:
            return CUE_LEADING[word]
    return ""


def _may_end(sentence: NumberedSentence, index: int) -> bool:
    """Whether the text after a number does not continue it, and the number is no name."""
    behind = sentence.behind(index)
    if behind.operator or behind.cue == "than" or behind.name == "to" or sentence.is_label(index):
        return False
    return not sentence.pieces[index + 1].startswith(("/", "-", "x"))


def _is_of_earlier(sentence: NumberedSentence, index: int, cue: str, own: int) -> bool:
    """Whether a result is of the numbers in the sentences before: "4 are red and 5 blue. So the total is 9"."""
    if own:
        return sentence.before(index).inferred and "them" in sentence.words
    words = sentence.pieces[index].split()
    return cue in ("sum", "difference", "left", "mean") and (
        sentence.before(index).inferred
        or not _POINTING_BACK.isdisjoint(words)
        or "total:" in words
        or "in total" in sentence.pieces[index]
    )


def _cue_of(sentence: NumberedSentence, index: int, leading: str) -> str:
    """The operation whose result a number states; empty for none."""
    before = sentence.before(index)
    if before.operator or before.hedged or not (before.stated or before.bare) or not _may_end(sentence, index):
        return ""
    behind = sentence.behind(index)
    last = index == len(sentence.numbers) - 1
    cue = ""
    if before.cue and before.stated:
        if before.cue in _OF_THEMSELVES:
            cue = before.cue
        elif before.cue == "left" and (before.inferred or before.link in ("leaves", "leaving") or last):
            cue = "left"
        elif before.inferred or (before.cue == "change" and before.appositive and index > 1):
            cue = before.cue
    if not cue and behind.cue and (before.inferred or (before.bare and index <= _MOST_BARE)):
        shared = behind.cue != "share" or before.inferred or not _SHARING.isdisjoint(sentence.words)
        cue = behind.cue if shared else ""
    if not cue and before.link in ("gets", "receives") and behind.name == "back":
        cue = "left"
    if not cue and leading and index > 1 and before.link in _GIVES:
        cue = leading
    return cue or ("any" if before.inferred and before.stated and last else "")


def _judge(
    sentence: NumberedSentence, index: int, cue: str, values: list[float], words: frozenset[str]
) -> tuple[bool, float | None] | None:
    """Whether a result of these values is right, and the correct value; None if another result is possible."""
    result = sentence.numbers[index]
    if not _UNKNOWN.isdisjoint(words) and cue in ("any", "sum"):
        return None
    if any(sentence.is_label(at) and not sentence.is_year(at) for at in range(index)) and cue in ("any", "sum"):
        return None
    if cue == "any" and not _ROUNDED_UP.isdisjoint(words):
        return None  # "30 pupils in vans of 8, so 4 vans are needed"
    if "numbers" in words and len(values) == _FEWEST and cue in ("sum", "difference", "product"):
        return None  # "the sum of two numbers is 20 and their difference 4"
    others = [at for at in range(len(sentence.numbers)) if at != index]
    if any(result.value == sentence.numbers[at].value for at in others) or _may_count(result, values):
        return None
    percent = result.percent or any(sentence.numbers[at].percent for at in range(index))
    operations = set(_OPERATIONS[cue]).union(*(_NAMES[word] for word in words if word in _NAMES))
    operations |= {sign for sign in "+-*/" if any(sign in piece for piece in sentence.pieces)}
    named = "".join(sorted(operations | set("%-" if percent else "") | set("p" if result.percent else "")))
    expected = _expected(values, cue)
    if _gives(sentence, values, named, index):
        return True, expected
    if len(values) == _FEWEST and _gives(sentence, values, "+-*/", index):
        return None  # "7 squares wide and 7 tall, 49 in all"
    wide = "".join(sorted({*named, *"+-"}))
    hidden = _hidden(sentence, index, values, words, percent)
    if any(_gives(sentence, [*values, value], wide, index) for value in hidden):
        return None
    return False, expected


def _hidden(
    sentence: NumberedSentence, index: int, values: list[float], words: frozenset[str], percent: bool
) -> Iterator[float]:
    """Numbers that may belong to the operands of a result, and are not written before it."""
    years = [sentence.numbers[at].value for at in range(index) if sentence.is_year(at)]
    if len(years) > 1 and not _YEARLY.isdisjoint(words):
        yield max(years) - min(years)
    if percent and not _OF_WHOLE.isdisjoint(words):
        yield from (100.0, 1.0)
    yield from (sentence.value(at) for at in range(index + 1, len(sentence.numbers)))
    yield from dict.fromkeys(value for word in words if word in _HIDDEN for value in _HIDDEN[word])
    if not _COMPARING.isdisjoint(words):
        yield from values
    for place in _earlier_places(sentence):
        if (value := sentence.value_at(place)) not in values:
            yield value


def _gives(sentence: NumberedSentence, values: Sequence[float], operations: str, index: int) -> bool:
    """Whether some of these numbers give a number of the sentence as it is written."""
    stated, unit = sentence.value(index), sentence.numbers[index].unit
    results = results_of(tuple(values), operations)
    sentence.effort.results -= len(results) * (_PERCENT_WORK if "%" in operations else 1)
    for value in results:
        if stands_for(abs(stated), unit, abs(value), False):
            return True
        if sentence.numbers[index].percent and stands_for(abs(stated), unit, 100 * abs(value), False):
            return True  # of a share: "0.3 is gone, 70% is left"
        # The result alone may name the scale: "83.2 against 67.4, so 15.8 million more".
        if unit > 1 and any(stands_for(stated, unit, abs(value) * scale, False) for scale in _SCALES):
            return True
    return False


def _may_count(result: Number, values: Sequence[float]) -> bool:
    """Whether a result may count the numbers before it: "12, 15 and 18 are above 10, so it is 3 bars"."""
    return result.unit == 1 and not result.percent and result.value <= len(values)


def _expected(values: list[float], cue: str) -> float | None:
    if cue == "sum":
        return sum(values)
    if cue in ("left", "difference", "change") and len(values) == 2:
        return abs(values[0] - values[1])
    if cue == "mean":
        return sum(values) / len(values)
    return None
