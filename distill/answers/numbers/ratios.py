"""Ratios in text (2:3, 2 to 3, two to three), and whether two of them agree."""

import re
from decimal import Decimal
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.numbers.number_words import SMALL
from distill.answers.numbers.quantities import Quantity, read_single_quantity

_RATIO = re.compile(
    r"(?<![\d:.])\d+(?:\.\d+)?(?:\s?:\s?\d+(?:\.\d+)?)+(?![\d:])"
    r"|(?<![\d.])\d+(?:\.\d+)?\s?%? to \d+(?:\.\d+)?"
)
_SPELLED_RATIO = re.compile(rf"\b({'|'.join(list(SMALL)[1:])}) to ({'|'.join(list(SMALL)[1:])})\b", re.IGNORECASE)


def read_ratios(text: str) -> list[tuple[Decimal, ...]]:
    """Every ratio in a normalised text, as its terms."""
    numeric = [
        tuple(Decimal(term) for term in re.findall(r"\d+(?:\.\d+)?", match[0])) for match in _RATIO.finditer(text)
    ]
    if numeric:
        return numeric
    spoken = _SPELLED_RATIO.finditer(text)
    return [(Decimal(SMALL[match[1].lower()]), Decimal(SMALL[match[2].lower()])) for match in spoken]


def same_ratio(first: tuple[Decimal, ...], second: tuple[Decimal, ...]) -> bool:
    """Whether two ratios have proportional terms."""
    if len(first) != len(second):
        return False
    return all(first[0] * right == second[0] * left for left, right in zip(first, second, strict=True)) and (
        any(first) == any(second)
    )


def are_same_ratios(text: str, gold: str) -> bool:
    numbers, gold_numbers = read_ratios(text), read_ratios(gold)
    return len(numbers) == len(gold_numbers) == 1 and same_ratio(numbers[0], gold_numbers[0])


def compare_ratios(text: str, gold: str) -> CompareResult | None:
    """Compares a stated ratio with the gold ratio; None if the gold answer is not a ratio and not a number that the
    ratio could equal."""
    gold_ratios, stated_ratios = read_ratios(gold), read_ratios(text)
    if len(gold_ratios) != 1:
        number = read_single_quantity(gold)
        if number is None or len(stated_ratios) != 1 or len(stated_ratios[0]) != 2 or not stated_ratios[0][1]:
            return None
        same = abs(stated_ratios[0][0] / stated_ratios[0][1] - number.value) < _TINY
        return correct("same_ratio") if same else wrong("other_ratio")
    if stated_ratios:
        verdicts = {same_ratio(ratio, gold_ratios[0]) for ratio in stated_ratios}
        if len(verdicts) > 1:
            return undecided("several_ratios")
        return correct("same_ratio") if verdicts == {True} else wrong("other_ratio")
    quantity = read_single_quantity(text)
    if quantity is None:
        return undecided("no_ratio_found")
    if (
        len(gold_ratios[0]) == 2
        and gold_ratios[0][1]
        and abs(quantity.value - gold_ratios[0][0] / gold_ratios[0][1]) < _TINY
    ):
        return correct("same_ratio") if "/" in text else undecided("ratio_or_number")
    return undecided("ratio_or_number") if quantity.value == gold_ratios[0][0] else wrong("other_ratio")


_SHARE = re.compile(
    r"(?:about |around |roughly )?(?:an? )?(?P<part>\S+) (?:in|out of) (?:every )?(?P<whole>[^\s,]+)(?: [a-z]+){0,2}",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"(?P<part>\d+)\s?/\s?(?P<whole>\d+)")


def compare_shares(text: str, gold: str) -> CompareResult | None:
    """One in five against 1/5 and 1 out of 5; None where one of the two is no share, or only one a percentage."""
    in_words = any(_read_share(answer, _SHARE) is not None for answer in (text, gold))
    gold_share, share = (_read_share(answer, _SHARE, _FRACTION) if in_words else None for answer in (gold, text))
    if gold_share is None or share is None:
        return None
    same = share[0] * gold_share[1] == share[1] * gold_share[0]
    return correct("same_share") if same else wrong("other_share")


def _read_share(text: str, *patterns: re.Pattern[str]) -> tuple[Decimal, Decimal] | None:
    for pattern in patterns:
        if len(text) <= _LONGEST_SHARE and (match := pattern.fullmatch(text)) is not None:
            terms = [read_single_quantity(match[name]) for name in ("part", "whole")]
            if terms[0] is not None and terms[1] is not None and terms[1].value > terms[0].value > 0:
                return terms[0].value, terms[1].value
    return None


_LONGEST_SHARE: Final = 80
_TINY: Final = Decimal("1e-12")

_TWO_TERMS = re.compile(r"(\d+(?:\.\d+)?)\s?(?::|to)\s?(\d+(?:\.\d+)?)")
_RADIANS = re.compile(r"(\d*)\s?π\s?(?:/\s?(\d+))?\s*rad(?:ians?)?\.?", re.IGNORECASE)
_HALF_TURN: Final = 180
_OUT_OF = re.compile(r"(?:about |around |roughly )?(?:an? )?(\S+) (?:in|out of|of) (?:every )?(\S+)", re.IGNORECASE)
_TO_ONE = re.compile(r"(\d+(?:\.\d+)?)\s?(?:to|:)\s?1")
_TINY_SHARE: Final = Decimal("1e-9")


def compare_worded_share(text: str, gold: Quantity) -> CompareResult | None:
    """A share in words for a percentage: one in eight for 12.5%; and 1.5 to 1, a ratio, for 1.5."""
    if gold.percent:
        match = _OUT_OF.fullmatch(text)
        parts = [read_single_quantity(part) for part in match.groups()] if match is not None else []
        values = [part.value for part in parts if part is not None]
        if len(values) != 2 or not values[1]:
            return None
        return correct("same_share") if abs(values[0] / values[1] * 100 - gold.value) < _TINY_SHARE else None
    match = _TO_ONE.fullmatch(text)
    return correct("same_ratio") if match is not None and Decimal(match[1]) == gold.value and not gold.unit else None


def compare_ratio_or_angle(text: str, gold: Quantity, question: str) -> CompareResult | None:
    """1:4 for the ratio 0.25, and 2π/3 radians for 120°."""
    ratio = _TWO_TERMS.fullmatch(text) if "ratio" in question.lower() and not gold.unit else None
    if ratio is not None and Decimal(ratio[2]):
        return correct("same_ratio") if Decimal(ratio[1]) == gold.value * Decimal(ratio[2]) else None
    angle = _RADIANS.fullmatch(text.replace("$", "").strip()) if gold.unit in ("°", "degree") else None
    if angle is None or not int(angle[2] or 1):
        return None
    degrees = _HALF_TURN * Decimal(angle[1] or 1) / Decimal(angle[2] or 1)
    return correct("same_angle") if degrees == gold.value else None
