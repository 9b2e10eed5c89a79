"""Quantities in text: what number a piece of text states, with its percent sign, currency and unit.

Reads digits, thousands separators, scientific notation, fractions and mixed numbers, scale words and suffixes,
Unicode digits and signs, simple LaTeX and English number words. A number that can be read in two ways keeps both
readings. Does not decide whether two answers agree (`distill.answers.verdicts`) and knows no algebra
(`distill.answers.math_worker`).
"""

import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final

from distill.answers.numbers.currencies import CURRENCIES, DOLLARS, NO_MILLS, SIGN_BEFORE, SYMBOLS
from distill.answers.numbers.digit_groups import readings_of_digits
from distill.answers.numbers.foreign_number_words import foreign_numbers
from distill.answers.numbers.number_words import ORDINALS, OTHER_SCALES, SCALES, numerals, spelled
from distill.answers.numbers.units import foreign_unit_length, unit_factor, unit_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number as stated. `value` includes scale words; `others` are further readings of ambiguous notation."""

    value: Decimal
    others: tuple[Decimal, ...] = ()
    certain: bool = True
    """False when no reading is the usual one, as in 1,5."""
    decimals: int | None = 0
    """Decimal places stated, None for fractions, scaled numbers and scientific notation."""
    percent: bool = False
    currency: str = ""
    unit: str = ""
    written_unit: str = ""
    """The unit with its capitals."""
    bound: bool = False
    """Stated as a limit ("more than 5"), so the number is not 5."""
    label: bool = False
    """A part of a name (figure 7, step 2), not an amount."""
    foreign: bool = False
    """In words of another language, where a comma is a decimal point."""
    negated: bool = False
    """Denied ("not 5", "rather than 5")."""
    start: int = 0
    end: int = 0

    @property
    def affirmed(self) -> bool:
        """Whether the text says this number of something, and neither denies it nor gives it as a limit."""
        return not (self.negated or self.bound)


_SUFFIXES: Final = {
    letter: Decimal(10**power) for letter, power in (("K", 3), ("k", 3), ("M", 6), ("B", 9), ("T", 12))
}
_SPACED_SUFFIXES: Final = frozenset("KMBT")
_MONEY_SUFFIXES: Final = {"m": Decimal(10**6), "b": Decimal(10**9), "t": Decimal(10**12)}
_COUNTERS: Final = "つ個个个個只隻"
"""Signs that may follow a number of things and are no unit."""
_CENTS: Final = frozenset({"cent", "cents", "¢"})
_PERCENTS_TEXT: Final = """% percent percentage pct percents prozent pourcent procent porcentaje процент процента
    процентов 퍼센트 パーセント パーセントです pourcents प्रतिशत फीसदी بالمئة بالمائة"""
_PERCENTS: Final = frozenset(_PERCENTS_TEXT.split())
_PERCENT_BEGINNINGS: Final = frozenset({"per", "pour", "por"})
_PERCENT_PHRASE = re.compile(r"\s?(?:per\s?cento?|pour\scent|por\sciento|por\scento)\b", re.IGNORECASE)
_NOT_UNITS_TEXT: Final = """
    a an and are as at be but by for from has have in is it its not of on or per so than that before after later
    earlier ago last next compared versus vs respectively since until during between among the then there these
    this to was were isn wasn aren weren don
    doesn which while who with within because out if into x total times more less minus plus divided
"""
_NOT_UNITS: Final = frozenset(_NOT_UNITS_TEXT.split())
_PLUS = re.compile(r"\+(?!\s?\d)")
_OF_A = re.compile(r"\s?(?:of )?an? (?=[a-z])")

# A number is not part of a word (H2O, COVID-19, Q3) or of a dotted version. A minus sign directly after a digit is a
# range or a difference. Digit groups are matched whole or not at all: 1,2,3 is three numbers.
_NUMBER = re.compile(
    r"""(?<![0-9A-Za-z_\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u1fff.])(?<![A-Za-z]-)
    (?P<lead>(?P<sign>^[-+]\s?|(?<![\d)])[-+](?=[\d.$€£¥₹₩₽₺])|(?<!\d\s)(?:[mM]inus|[nN]egative)\s)?
      (?P<symbol>"""
    + SIGN_BEFORE
    + r""")?\s?(?P<sign2>-)?)
    (?P<digits>
        \d{1,3}(?:[ ]\d{3})+(?:[.,]\d+)?(?!\d|[.,]\d)
      | \d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d|,\d)
      | \d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?(?!\d|,\d)
      | \d{1,3}(?:\.\d{3})+(?:,\d+)?(?!\d|[.,]\d)
      | \d{1,3}(?:['_]\d{3})+(?:[.,]\d+)?(?!\d)
      | \d++(?:[.,]\d++)?(?![.,]\d)
      | \d++(?!\.\d)
      | \.\d++
    )
    (?:
        [eE](?P<exponent>[-+]?\d{1,3})(?![\w.])
      | \s?(?:\^|\*\*)\s?[{(]?(?P<raised>[-+]?\d{1,2})(?![\d.])[})]?
      | \s?[×*x]\s?10\s?(?:\^|\*\*)\s?[{(]?(?P<power>[-+]?\d{1,3})[})]?
      | \s?/\s?(?P<denominator>\d+(?:\.\d+)?)(?![\w/])
      | (?P<joint>\s(?:and\s)?|-)(?P<numerator>\d+)\s?/\s?(?P<mixed>\d+)(?![\w/])
    )?
    (?P<suffix>[KkMBTmbt](?![\w'-]))?(?!(?<=[12]\d\d0)'?s\b)""",
    re.VERBOSE,
)
# No unit has more letters: a text without spaces would be read again to its end after each of its numerals.
_AFTER = re.compile(
    r"\s?-?\s?([\u0900-\u0963\u0970-\u097f]+|%|[¢€£₽₺₴₪₫₦฿₱₩]|°(?:\s?[CFcf]\b)?|[万萬億亿千百兆만억천]|[^\W\d_]{1,64}(?:/[A-Za-z]+)?(?:\^\d)?)|\s?(/\s?[A-Za-z]+)"
)
_MORE = re.compile(r"\s(?:more|fewer|less|additional|extra)\s([a-z]{3,20})\b")
"""25 more hours."""
_RATE = re.compile(
    r"\s+(?:per|a|an|each)\s+(second|minute|hour|day|week|month|quarter|year|person|unit|piece|pound"
    r"|lb|kg|kilogram|gallon|liter|litre|ounce|oz|night|mile|km|serving)\b",
    re.IGNORECASE,
)
_SIMPLE = re.compile(r"-?\d+(?:\.\d+)?")
_BOUND = re.compile(
    r"(?:\b(?:than|least|most|over|under|above|below|nearly|almost|exceed(?:s|ing)?|up to)|[<>≤≥])\s*$", re.IGNORECASE
)
_LABEL = re.compile(
    r"\b(?:fig(?:ure|\.)?|table|page|chapter|section|step|question|problem|version|example|equation|panel)\s*$"
    r"|(?-i:\b[A-Za-z]*[a-z][A-Z][A-Za-z]*)\s*$",
    re.IGNORECASE,
)
_IN_CENTS = re.compile(r"(?:cents?|centimes|c[eé]ntimos|centavos|centesimi|pence|paise|копе\w+|grosz\w*)\b|¢")
_NEGATED = re.compile(
    r"(?:\b(?:not|except(?: for)?|rather than|instead of|cannot be|(?:anything|everything|nothing|all) but|other than"
    r"|apart from|no (?:number|digit|figure|value|letter))|n't)"
    r"(?:\s(?:be|a|an|the|just|in|at|on|by|from))?\s*$|(?:≠|!=)\s*$",
    re.IGNORECASE,
)

_DENIED_AFTER = re.compile(
    r"\s?(?:is|was|are|were|would be)(?:\snot|n't)\b(?! only)"
    r"|[もはが]?(?:ありません|いません|ない)|\s(?:is|was|are|were|would be) (?:wrong|incorrect|false)\b",
    re.IGNORECASE,
)
"""18 is not the answer."""

_MOST = 400
"""At most so many quantities of a text are read: a text with more is a listing and no answer."""

_MOST_JOINED = 32
"""At most so many neighbours are joined to one quantity, as in 1 hour 30 minutes."""


def read_quantities(text: str) -> tuple[Quantity, ...]:
    """The quantities stated in a normalised text, in order. Number words count only when there are no digits.

    1 hour 30 minutes is one quantity.
    """
    first = _read_first(text, _MOST_JOINED)
    return _join_neighbours(first, text) if len(first) < _MOST_JOINED else _read_first(text, _MOST)


@lru_cache(maxsize=4096)
def _read_first(text: str, most: int) -> tuple[Quantity, ...]:
    """The first quantities of a text, at most so many of those in digits, or of those in words."""
    if _SIMPLE.fullmatch(text):
        return (_plain_quantity(text),)
    if text.lower() in ORDINALS:
        return (Quantity(value=ORDINALS[text.lower()], unit="th", end=len(text)),)
    numbers: list[Quantity] = []
    for match in _NUMBER.finditer(text):
        quantity = _quantity(match, text)
        if quantity is not None and (not numbers or quantity.start >= numbers[-1].end):
            numbers.append(quantity)
            if len(numbers) == most:
                break
    if numbers:
        return tuple(numbers)
    in_words = islice(spelled(text) if text.isascii() else chain(spelled(text), numerals(text)), most)
    from_words = tuple(_quantity_in_words(value, start, end, text) for value, start, end in in_words)
    return from_words or tuple(
        replace(_quantity_in_words(*item, text), foreign=True) for item in foreign_numbers(text)
    )


def read_single_quantity(text: str) -> Quantity | None:
    """The quantity a normalised text consists of, with nothing else around it; None for anything else."""
    if _SIMPLE.fullmatch(text):
        return _plain_quantity(text)
    numbers = _read_first(text, _MOST_JOINED)
    if 1 < len(numbers) < _MOST_JOINED:
        numbers = _join_neighbours(numbers, text)
    if len(numbers) != 1 or not numbers[0].affirmed:
        return None
    before, after = text[: numbers[0].start].strip(" ~≈$("), text[numbers[0].end :].strip(" .)$")
    return numbers[0] if not before and not after else None


_CENT_VALUES: Final = frozenset(map(Decimal, range(1, 100)))
_BETWEEN: Final = ("", "and", "et", "und", "con", "y", "e")


def _join_neighbours(parts: tuple[Quantity, ...], text: str) -> tuple[Quantity, ...]:
    """The quantities with one for each run of neighbours such as 1 hour 30 minutes."""
    runs: list[tuple[Quantity, ...]] = []
    for part in parts:
        is_next = runs and text[runs[-1][-1].end : part.start].strip(" ,") in _BETWEEN
        runs[-1:] = [(*runs[-1], part)] if is_next else [*runs[-1:], (part,)]
    return tuple(chain.from_iterable(_join_compound(run, text) if len(run) > 1 else run for run in runs))


def _join_compound(parts: tuple[Quantity, ...], text: str) -> tuple[Quantity, ...]:
    """One quantity for a run of known units of one kind, each smaller than the last."""
    bare_cents = len(parts) == 2 and parts[1].value in _CENT_VALUES and not (parts[1].unit or parts[1].currency)
    if bare_cents and parts[0].currency and parts[0].decimals == 0 and not parts[1].percent:
        value = parts[0].value + parts[1].value / 100  # 12 euros 50
        return (replace(parts[0], value=value, others=(), end=parts[1].end, decimals=2, certain=True),)
    if len(parts) == 2 and parts[0].currency and _IN_CENTS.search(text[parts[1].start : parts[1].end]):
        cents = parts[1].value if parts[1].currency else parts[1].value / 100
        return (replace(parts[0], value=parts[0].value + cents, others=(), end=parts[1].end, decimals=2),)
    factors = [unit_factor(quantity.unit) for quantity in parts]
    sizes = [factor[1] for factor in factors if factor is not None]
    same_kind = len(sizes) == len(parts) and len({factor[0] for factor in factors if factor is not None}) == 1
    if not same_kind or sizes != sorted(set(sizes), reverse=True):
        return parts
    total = sum((quantity.value * size for quantity, size in zip(parts, sizes, strict=True)), Decimal(0))
    return (replace(parts[0], value=total / sizes[0], others=(), decimals=None, end=parts[-1].end),)


def _plain_quantity(text: str) -> Quantity:
    readings, _, decimals = readings_of_digits(text.lstrip("-"))
    sign = -1 if text.startswith("-") else 1
    others = tuple(sign * reading for reading in readings[1:])
    return Quantity(value=sign * readings[0], others=others, decimals=decimals, end=len(text))


@dataclass(slots=True, kw_only=True)
class _Tail:
    """What follows the digits of a number: scale words, percent sign, currency, unit."""

    end: int
    factor: Decimal = Decimal(1)
    other_factor: Decimal | None = None
    exact: bool = True
    percent: bool = False
    currency: str = ""
    unit: str = ""
    written: str = ""


def _read_tail(text: str, tail: _Tail) -> _Tail:
    more = _MORE.match(text, tail.end)
    if more is not None and unit_factor(unit_name(more[1].lower())) is not None:
        tail.end = more.start(1) - 1
    start = tail.end
    while not tail.unit and (after := _AFTER.match(text, tail.end)):
        if after[2]:
            if tail.currency:
                tail.unit, tail.end = "per " + unit_name(after[2].strip("/ ").lower()), after.end()
            break
        word = after[1].lower()
        scale = SCALES.get(word) or SCALES.get(word.removesuffix("s"))
        if scale is not None:
            if word in OTHER_SCALES:
                tail.other_factor = tail.factor * OTHER_SCALES[word]
            tail.factor *= scale
            tail.exact = False
        elif after[1] in _SPACED_SUFFIXES and tail.end == start and tail.exact:
            # 7 M may be seven million, or seven of a unit called M.
            tail.other_factor = tail.factor
            tail.factor *= _SUFFIXES[after[1]]
            tail.exact = False
        elif word in _PERCENTS:
            tail.percent = True
        elif word in _CENTS and not tail.currency:
            tail.currency, tail.factor, tail.exact = "USD", tail.factor / 100, False
        elif word in CURRENCIES or after[1] in SYMBOLS:
            tail.currency = tail.currency or CURRENCIES.get(word) or SYMBOLS[after[1]]
        elif word in _PERCENT_BEGINNINGS and (phrase := _PERCENT_PHRASE.match(text, tail.end)):
            tail.percent = True
            tail.end = phrase.end()
            continue
        elif word[0] in _COUNTERS:
            tail.end = after.start(1) + 1
            break
        elif word in _NOT_UNITS and after[1] != "A" and (word != "in" or after.end() < len(text)):
            break
        else:
            length = 0 if word.isascii() else foreign_unit_length(word)
            written = after[1][:length] if length else after[1]
            tail.unit, tail.written = unit_name(written.lower()), written
            if length:
                tail.end = after.start(1) + length
                break
        tail.end = after.end()
    if tail.currency and not tail.unit and (rate := _RATE.match(text, tail.end)):
        tail.unit, tail.end = "per " + unit_name(rate[1].lower()), rate.end()
    return tail


_THOUSAND: Final = 1000
_POINT_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}")
"""1.500 euros are 1500: no price has three decimal places, and languages of the euro group digits with a point."""
_IRRATIONAL: Final = ("π", "√")
"""A number beside one of these signs is a part of an expression."""


def _quantity(match: re.Match[str], text: str) -> Quantity | None:
    if text[match.end() : match.end() + 1] in _IRRATIONAL or (
        (start := match.start("digits")) and text[start - 1] == "√"
    ):
        return None
    readings, certain, decimals = readings_of_digits(match["digits"])
    factor = Decimal(1)
    exact = True
    try:
        if match["raised"]:
            readings = (readings[0] ** int(match["raised"]),)
            exact = not match["raised"].startswith("-")
        elif match["exponent"] or match["power"]:
            factor = Decimal(10) ** int(match["exponent"] or match["power"])
            exact = False
        elif match["denominator"]:
            factor = 1 / Decimal(match["denominator"])
            exact = False
        elif match["mixed"]:
            readings = (readings[0] + Decimal(match["numerator"]) / Decimal(match["mixed"]),)
            exact, certain = False, match["joint"] != "-"
    except (InvalidOperation, ZeroDivisionError):
        return None
    symbol = (match["symbol"] or "").strip()
    currency = "" if not symbol else SYMBOLS.get(symbol) or DOLLARS.get(symbol) or symbol
    suffix = match["suffix"]
    alternative: Decimal | None = None
    unit = ""
    if suffix:
        if suffix in _SUFFIXES or (currency and suffix in _MONEY_SUFFIXES):
            factor *= _SUFFIXES.get(suffix) or _MONEY_SUFFIXES[suffix]
            exact = False
        else:
            unit = suffix
            alternative = _MONEY_SUFFIXES[suffix]
    tail = _read_tail(text, _Tail(end=match.end(), factor=factor, exact=exact, currency=currency, unit=unit))
    amount = tail.currency or tail.percent or tail.factor >= _THOUSAND
    if amount and decimals in (1, 2) and match["digits"].count(",") == 1:
        certain, readings = True, readings[:1]  # 980,00 in money groups nothing, nor do 12,5 % and 1,5 million
    if tail.currency in NO_MILLS and tail.factor == 1 and _POINT_THOUSANDS.fullmatch(match["digits"]):
        readings, decimals = (Decimal(match["digits"].replace(".", "")),), 0
    if tail.other_factor is not None and tail.other_factor >= _THOUSAND and "," in match["digits"] and decimals:
        tail.factor, tail.other_factor = tail.other_factor, None  # 3,2 mil is Spanish
    sign = -1 if match["sign2"] or (match["sign"] or "+").strip() != "+" else 1
    scaled = [sign * reading * tail.factor for reading in readings]
    if alternative is not None:
        scaled.append(scaled[0] * alternative)
    if tail.other_factor is not None:
        scaled.append(sign * readings[0] * tail.other_factor)
    return Quantity(
        value=scaled[0],
        others=tuple(scaled[1:]),
        certain=certain,
        decimals=decimals if tail.exact else None,
        start=match.start(),
        **_after_digits(text, match.start("lead"), tail),
    )


def _quantity_in_words(value: Decimal, start: int, end: int, text: str) -> Quantity:
    of_a = _OF_A.match(text, end) if value != int(value) else None
    tail = _read_tail(text, _Tail(end=of_a.end() if of_a is not None else end))
    return Quantity(
        value=value * tail.factor,
        others=() if tail.other_factor is None else (value * tail.other_factor,),
        decimals=0 if tail.exact and value == int(value) else None,
        start=start,
        **_after_digits(text, start, tail),
    )


def _after_digits(text: str, start: int, tail: _Tail) -> dict[str, Any]:
    measure = {"percent": tail.percent, "currency": tail.currency, "unit": tail.unit, "written_unit": tail.written}
    return {**measure, "end": tail.end, **read_context(text, start, tail.end)}


def read_context(text: str, start: int, end: int) -> dict[str, Any]:
    """Whether the words around a number negate it or make it a limit or a name."""
    if _DENIED_AFTER.match(text, end):
        return {"negated": True}
    if _PLUS.match(text, end) is not None:
        return {"bound": True}
    before = text[max(0, start - 24) : start].rstrip()
    # What a pattern finds ends with a letter or one of a few signs.
    if not (before[-1:].isalpha() or before[-1:] in "≠=<>≤≥."):
        return {}
    negated = _NEGATED.search(before) is not None
    return {
        "negated": negated,
        "bound": not negated and _BOUND.search(before) is not None,
        "label": _LABEL.search(before) is not None,
    }
