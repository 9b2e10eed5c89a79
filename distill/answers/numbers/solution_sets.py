"""Intervals and sets of solutions: [1, 3), 1 ≤ x < 3, x > 4, (4, ∞), ±4, x = 2 or x = 5.

The ends of an interval belong to it or not: [1, 3) and [1, 3] are different answers. (1, 3) and [1, 3] may
also be a point or a list; lists are compared in `distill.answers.lists`, unless only the brackets differ.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.numbers.quantities import read_single_quantity

_INFINITE: Final = Decimal("Infinity")
_END: Final = r"[-+]?\s?(?:∞|inf(?:inity)?|\d+(?:\.\d+)?(?:/\d+)?)"
_BRACKETS = re.compile(
    rf"(?:[a-z]\s?(?:∈|\bin\b)\s?)?(?P<open>[\[(\]])\s?(?P<low>{_END})\s?[,;]\s?(?P<high>{_END})\s?(?P<close>[\])\[])",
    re.IGNORECASE,
)
_SIGN: Final = r"(?:<=|>=|≤|≥|⩽|⩾|<|>)"
_CHAIN = re.compile(
    rf"(?P<low>{_END})\s?(?P<first>{_SIGN})\s?[a-z]\s?(?P<second>{_SIGN})\s?(?P<high>{_END})", re.IGNORECASE
)
_ONE_SIDED = re.compile(
    rf"[a-z]\s?(?P<sign>{_SIGN})\s?(?P<end>{_END})|(?P<first>{_END})\s?(?P<back>{_SIGN})\s?[a-z]", re.IGNORECASE
)
_WORDED = re.compile(
    rf"(?:from |between )(?P<low>{_END}) (?:to|and) (?P<high>{_END}),? "
    r"\(?(?P<ends>(?:both )?(?:ends |endpoints )?(?:included|inclusive|excluded|exclusive)(?:ly)?)\)?",
    re.IGNORECASE,
)
_BACKWARDS: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_LATEX: Final = (
    (re.compile(r"\\(?:leq?|leqslant)(?![a-z])"), "≤"),
    (re.compile(r"\\(?:geq?|geqslant)(?![a-z])"), "≥"),
    (re.compile(r"\\lt(?![a-z])"), "<"),
    (re.compile(r"\\gt(?![a-z])"), ">"),
    (re.compile(r"\\pm(?![a-z])"), "±"),
    (re.compile(r"\\in(?![a-z])"), "∈"),
    (re.compile(r"\\([{}])"), r"\1"),
)
_IN_WORDS = re.compile(
    r"(?<=\b[a-z] )(?:is|must be|has to be|should be) (?:(?P<greater>greater|larger|more)|less|smaller) than"
    r"(?P<equal> or equal to)?",
    re.IGNORECASE,
)
"""x must be greater than 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberInterval:
    """From `low` to `high`; True where the end itself belongs to it."""

    low: Decimal
    high: Decimal
    low_closed: bool
    high_closed: bool
    may_be_list: bool = False
    """In brackets that also hold a point or a list."""


def compare_intervals(text: str, gold: str) -> CompareResult | None:
    """Compares an interval, or the solutions of an equation, with the gold answer; None if one of both texts is
    another kind of answer."""
    interval, gold_interval = _interval(_plain(text)), _interval(_plain(gold))
    if interval is not None and gold_interval is not None:
        return _compare_two_intervals(interval, gold_interval)
    numbers, gold_numbers = read_solutions(text), read_solutions(gold)
    if numbers is None or gold_numbers is None or not (len(numbers) > 1 or len(gold_numbers) > 1):
        return None
    if not _has_solution_signs(text) and not _has_solution_signs(gold):
        return None
    return correct("same_solutions") if numbers == gold_numbers else wrong("other_solutions")


def _compare_two_intervals(predicted: NumberInterval, gold: NumberInterval) -> CompareResult | None:
    same_ends = (predicted.low, predicted.high) == (gold.low, gold.high)
    if predicted.may_be_list and gold.may_be_list:
        open_still = same_ends and predicted.low_closed != gold.low_closed
        return undecided("interval_or_pair") if open_still else None
    if not same_ends:
        return wrong("other_interval")
    if (predicted.low_closed, predicted.high_closed) == (gold.low_closed, gold.high_closed):
        return correct("same_interval")
    return wrong("other_ends")


def _plain(text: str) -> str:
    for pattern, sign in _LATEX if "\\" in text else ():
        text = pattern.sub(sign, text)
    text = _IN_WORDS.sub(lambda words: (">" if words["greater"] else "<") + ("=" if words["equal"] else ""), text)
    return text.strip(" $.")


def _interval(text: str) -> NumberInterval | None:
    if len(text) > 80:
        return None
    if text.lower() in ("all real numbers", "all reals", "all x", "ℝ", "\\mathbb{r}"):
        return NumberInterval(low=-_INFINITE, high=_INFINITE, low_closed=False, high_closed=False)
    if (match := _BRACKETS.fullmatch(text)) is not None:
        low, high = _end(match["low"]), _end(match["high"])
        low_closed, high_closed = match["open"] == "[", match["close"] == "]"
        may_be_list = match["open"] + match["close"] in ("()", "[]") and _INFINITE not in (abs(low), abs(high))
        return _ordered(low, high, low_closed, high_closed, may_be_list)
    if (match := _CHAIN.fullmatch(text)) is not None:
        first, second = _sign(match["first"]), _sign(match["second"])
        low, high = _end(match["low"]), _end(match["high"])
        if first[0] != second[0]:
            return None
        if first[0] == ">":
            low, high, first, second = high, low, second, first
        return _ordered(low, high, first.endswith("="), second.endswith("="), False)
    if (match := _ONE_SIDED.fullmatch(text)) is not None:
        sign = _sign(match["sign"]) if match["sign"] else _BACKWARDS[_sign(match["back"])]
        end = _end(match["end"] or match["first"])
        closed = sign.endswith("=")
        if sign[0] == ">":
            return _ordered(end, _INFINITE, closed, False, False)
        return _ordered(-_INFINITE, end, False, closed, False)
    if (match := _WORDED.fullmatch(text)) is not None:
        closed = "inclu" in match["ends"].lower()
        return _ordered(_end(match["low"]), _end(match["high"]), closed, closed, False)
    return None


def _ordered(
    low: Decimal, high: Decimal, low_closed: bool, high_closed: bool, may_be_list: bool
) -> NumberInterval | None:
    if not may_be_list and low > high:
        return None
    return NumberInterval(low=low, high=high, low_closed=low_closed, high_closed=high_closed, may_be_list=may_be_list)


def _sign(sign: str) -> str:
    return {"≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">="}.get(sign, sign)


def _end(text: str) -> Decimal:
    text = text.replace(" ", "").lower()
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("+-")
    if text.startswith(("∞", "inf")):
        return sign * _INFINITE
    above, _, below = text.partition("/")
    return sign * Decimal(above) / (Decimal(below) if below.strip("0") else 1)


_LIMITS_TEXT: Final = {
    ">": r"more than|over|above|greater than|higher than|larger than|exceeding|exceeds|upwards of|>",
    "<": r"less than|under|below|fewer than|lower than|smaller than|up to but not including|<",
    ">=": r"at least|no less than|not less than|minimum(?: of)?|>=|≥",
    "<=": r"at most|up to|no more than|not more than|maximum(?: of)?|<=|≤",
}
_LIMIT = re.compile(
    "|".join(f"(?P<s{index}>{words})" for index, words in enumerate(_LIMITS_TEXT.values())), re.IGNORECASE
)
_OR_MORE = re.compile(
    r"(?P<value>.+?)\s?(?:(?P<more>\+|(?:or|and) (?:more|above|over|higher|greater))|or less|or fewer)"
)


def compare_limits(text: str, gold: str) -> CompareResult | None:
    """More than 50% and >50%, at least 3 and 3 or more; None where one of the two is no limit."""
    limit, gold_limit = _read_limit(text), _read_limit(gold)
    if limit is None or gold_limit is None:
        return None
    if limit[:3] == gold_limit[:3] and (limit[3] == gold_limit[3] or not (limit[3] and gold_limit[3])):
        return correct("same_limit")
    if limit[1:] == gold_limit[1:] and limit[0][0] == gold_limit[0][0]:
        return undecided("limit_itself")
    return wrong("other_limit")


def _read_limit(text: str) -> tuple[str, Decimal, bool, str] | None:
    if len(text) > 60:
        return None
    sign, rest = "", ""
    if (match := _LIMIT.match(text)) is not None:
        sign, rest = list(_LIMITS_TEXT)[int(str(match.lastgroup)[1:])], text[match.end() :]
    elif (match := _OR_MORE.fullmatch(text)) is not None:
        sign, rest = ">=" if match["more"] else "<=", match["value"]
    quantity = read_single_quantity(rest.strip()) if rest.strip() else None
    return None if quantity is None else (sign, quantity.value, quantity.percent, quantity.unit)


_SOLUTION = re.compile(r"(?:(?P<name>[a-z])(?:_?\d)?\s?=\s?)?(?P<value>±?\s?[-+]?\s?\S+)", re.IGNORECASE)
_BETWEEN_SOLUTIONS = re.compile(r"\s*(?:[,;]|\bor\b|\band\b)\s*(?:(?:or|and)\b\s*)?")


def _has_solution_signs(text: str) -> bool:
    return "±" in _plain(text) or re.search(r"[a-z](?:_?\d)?\s?=", text) is not None


def read_solutions(text: str) -> frozenset[Decimal] | None:
    """The numbers of {2, 5}, x = 2 or x = 5, ±4; None for anything else."""
    text = _plain(text)
    if len(text) > 80 or not any(map(str.isdigit, text)):
        return None
    if text[:1] in "{[(" and text[-1:] in "}])":
        text = text[1:-1]
    values: set[Decimal] = set()
    name = ""
    for part in _BETWEEN_SOLUTIONS.split(re.sub(r"^([a-z])\s?(?:=|∈)\s?[{]?", r"\1 = ", text).strip("{} ")):
        match = _SOLUTION.fullmatch(part)
        quantity = read_single_quantity(match["value"].lstrip("± ")) if match is not None else None
        if match is None or quantity is None or quantity.percent or quantity.unit or quantity.currency:
            return None
        if name and match["name"] and match["name"] != name:
            return None
        name = match["name"] or name
        values.add(quantity.value)
        if match["value"].startswith("±"):
            values.add(-quantity.value)
    return frozenset(values)
