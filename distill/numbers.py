"""Quantities in text: what number a piece of text states, with its percent sign, currency and unit.

Reads digits, thousands separators, scientific notation, fractions and mixed numbers, scale words and suffixes,
Unicode digits and signs, simple LaTeX and English number words. A number that can be read in two ways keeps both
readings. Does not decide whether two answers agree (`distill.answers`) and knows no algebra (`distill.mathworker`).
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from distill.units import unit_factor, unit_name

_SUPERSCRIPTS: Final = str.maketrans({"⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7",
                                      "⁸": "8", "⁹": "9", "⁻": "-", "⁺": "+"})  # fmt: skip
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_CHARACTERS: Final = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2018\u2019\u201b\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201f\u2033", '"'),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
        "\u2044": "/",
        "\u00d7": "×",
        "\u066b": ".",
        "\u066c": ",",
    }
)
_LATEX: Final = (
    (re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r" \1/\2 "),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|mathit|operatorname)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\^?\s*\\circ\b"), "°"),
    (re.compile(r"\\times\b|\\cdot\b"), "×"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\(?:left|right)\b|\\[,!;: ]"), ""),
    (re.compile(r"\\([$%&#_])"), r"\1"),
    (re.compile(r"\\[()\[\]]"), " "),
)
_UNIT_PHRASES: Final = (
    (
        re.compile(r"\s?\bdegrees? (celsius|fahrenheit|[cf])\b", re.IGNORECASE),
        lambda match: f" °{match[1][0].upper()}",
    ),
    (re.compile(r"\bmiles? (?:per|an) hour\b", re.IGNORECASE), lambda _: "mph"),
    (re.compile(r"\b(?:km|kilomet(?:er|re)s?) (?:per|an) hour\b", re.IGNORECASE), lambda _: "km/h"),
)


def normalise(text: str) -> str:
    """One spelling for what looks or means the same: NFKC, plain signs and quotes, simple LaTeX, single spaces."""
    if not text.isascii():
        text = _SUPERSCRIPT_RUN.sub(lambda run: "^" + run[0].translate(_SUPERSCRIPTS), text)
        text = _VULGAR.sub(lambda half: " " + half[0], text)
        text = unicodedata.normalize("NFKC", text).translate(_CHARACTERS)
    if "\\" in text or "{,}" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    if " hour" in text or "egree" in text:
        for phrase, unit in _UNIT_PHRASES:
            text = phrase.sub(unit, text)
    return " ".join(text.split())


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
    bound: bool = False
    """Stated as a limit ("more than 5"), so not the number itself."""
    negated: bool = False
    """Stated as what it is not ("not 5", "rather than 5")."""
    start: int = 0
    end: int = 0


_UNITS_IN_WORDS: Final = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen"""
_TENS_IN_WORDS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS: Final = {word: value for value, word in enumerate(_UNITS_IN_WORDS.split())}
_TENS: Final = {word: 10 * value for value, word in enumerate(_TENS_IN_WORDS.split(), start=2)}
_ORDINALS_IN_WORDS: Final = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ORDINALS: Final = {word: Decimal(value) for value, word in enumerate(_ORDINALS_IN_WORDS.split(), start=1)}
_PARTS: Final = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "tenth": 10}
_SCALES: Final = {
    "hundred": Decimal(100),
    "thousand": Decimal(10**3),
    "million": Decimal(10**6),
    "billion": Decimal(10**9),
    "trillion": Decimal(10**12),
    "dozen": Decimal(12),
    "lakh": Decimal(10**5),
    "crore": Decimal(10**7),
    "mn": Decimal(10**6),
    "mln": Decimal(10**6),
    "mio": Decimal(10**6),
    "bn": Decimal(10**9),
    "bln": Decimal(10**9),
    "tn": Decimal(10**12),
    "trn": Decimal(10**12),
}
_SUFFIXES: Final = {
    letter: Decimal(10**power) for letter, power in (("K", 3), ("k", 3), ("M", 6), ("B", 9), ("T", 12))
}
_MONEY_SUFFIXES: Final = {"m": Decimal(10**6), "b": Decimal(10**9), "t": Decimal(10**12)}
_SYMBOLS: Final = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "¢": "USD"}
_DOLLARS: Final = {"US$": "USD", "C$": "CAD", "A$": "AUD", "HK$": "HKD", "NZ$": "NZD", "S$": "SGD"}
_CURRENCIES: Final = {
    **dict.fromkeys(("usd", "dollar", "dollars", "buck", "bucks"), "USD"),
    **dict.fromkeys(("eur", "euro", "euros"), "EUR"),
    **dict.fromkeys(("gbp", "sterling"), "GBP"),
    **dict.fromkeys(("jpy", "yen"), "JPY"),
    **dict.fromkeys(("cny", "rmb", "yuan"), "CNY"),
    **dict.fromkeys(("inr", "rupee", "rupees"), "INR"),
    **{code.lower(): code for code in ("CAD", "AUD", "CHF", "KRW", "NZD", "HKD", "SGD")},
}
_CENTS: Final = frozenset({"cent", "cents", "¢"})
_PERCENTS: Final = frozenset({"%", "percent", "percentage", "pct", "percents"})
_NOT_UNITS_TEXT: Final = """a an and are as at be but by for from has have in is it its not of on or per so than that
    the then there these this to was were which while who with within because out if into x total times more less"""
_NOT_UNITS: Final = frozenset(_NOT_UNITS_TEXT.split())

# A number is not part of a word (H2O, COVID-19, Q3) or of a dotted version. A minus sign directly after a digit is a
# range or a difference. Digit groups are matched whole or not at all: 1,2,3 is three numbers.
_NUMBER = re.compile(
    r"""(?<![\w.])(?<![A-Za-z]-)
    (?P<lead>(?P<sign>^[-+]\s?|(?<![\d)])[-+](?=[\d.$€£¥₹₩]))?
      (?P<symbol>(?:US|C|A|HK|NZ|S)?\$|[€£¥₹₩]|(?:USD|EUR|GBP|JPY|CNY|INR|CAD|AUD|CHF)\s)?\s?(?P<sign2>-)?)
    (?P<digits>
        \d{1,3}(?:[ ]\d{3})+(?:\.\d+)?(?!\d|[.,]\d)
      | \d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d|,\d)
      | \d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?(?!\d|,\d)
      | \d{1,3}(?:\.\d{3})+(?:,\d+)?(?!\d|[.,]\d)
      | \d{1,3}(?:'\d{3})+(?:[.,]\d+)?(?!\d)
      | \d++(?:[.,]\d++)?(?![.,]\d)
      | \d++(?!\.\d)
      | \.\d++
    )
    (?:
        [eE](?P<exponent>[-+]?\d{1,3})(?![\w.])
      | \s?(?:\^|\*\*)\s?[{(]?(?P<raised>\d{1,2})(?![\d.])[})]?
      | \s?[×*x]\s?10\s?(?:\^|\*\*)\s?[{(]?(?P<power>[-+]?\d{1,3})[})]?
      | \s?/\s?(?P<denominator>\d+(?:\.\d+)?)(?![\w/])
      | \s(?:and\s)?(?P<numerator>\d+)\s?/\s?(?P<mixed>\d+)(?![\w/])
    )?
    (?P<suffix>[KkMBTmbt](?![\w'-]))?(?!(?<=[12]\d\d0)'?s\b)""",
    re.VERBOSE,
)
_AFTER = re.compile(r"\s?-?\s?(%|¢|€|£|°(?:\s?[CFcf]\b)?|[A-Za-zµ]+(?:/[A-Za-z]+)?(?:\^\d)?)")
_SIMPLE = re.compile(r"-?\d+(?:\.\d+)?")
_BOUND = re.compile(
    r"(?:\b(?:than|least|most|over|under|above|below|nearly|almost|exceed(?:s|ing)?|up to)|[<>≤≥])\s*$", re.IGNORECASE
)
_NEGATED = re.compile(
    r"(?:\b(?:not|except|rather than|instead of|cannot be)|n't)(?:\s(?:be|a|an|the|just))?\s*$", re.IGNORECASE
)
_NUMBER_NAMES: Final = "|".join(sorted({*_WORDS, *_TENS}, key=len, reverse=True))
_WORD_NUMBER = re.compile(
    rf"\b(?P<negative>minus |negative )?(?P<number>(?:{_NUMBER_NAMES})(?:[- ](?:{'|'.join(_WORDS)}))?)\b(?!-)",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def quantities(text: str) -> tuple[Quantity, ...]:
    """Every quantity stated in a normalised text, in order. Number words count only when there are no digits."""
    if _SIMPLE.fullmatch(text):
        return (_simple(text),)
    if text.lower() in _ORDINALS:
        return (Quantity(value=_ORDINALS[text.lower()], unit="th", end=len(text)),)
    found = [quantity for match in _NUMBER.finditer(text) if (quantity := _quantity(match, text)) is not None]
    return tuple(found or _spelled(text))


def single(text: str) -> Quantity | None:
    """The quantity a normalised text consists of, with nothing else around it; None for anything else."""
    if _SIMPLE.fullmatch(text):
        return _simple(text)
    found = quantities(text)
    if len(found) > 1:
        found = _compound(found, text)
    if len(found) != 1 or found[0].bound or found[0].negated:
        return None
    before, after = text[: found[0].start].strip(" ~≈$("), text[found[0].end :].strip(" .)$")
    return found[0] if not before and not after else None


def _compound(found: tuple[Quantity, ...], text: str) -> tuple[Quantity, ...]:
    """One quantity for neighbours such as 1 hour 30 minutes: known units of one kind, each smaller than the last."""
    factors = [unit_factor(quantity.unit) for quantity in found]
    sizes = [factor[1] for factor in factors if factor is not None]
    same_kind = len(sizes) == len(found) and len({factor[0] for factor in factors if factor is not None}) == 1
    gaps = (text[one.end : other.start].strip(" ,") for one, other in pairwise(found))
    if not same_kind or sizes != sorted(set(sizes), reverse=True) or any(gap not in ("", "and") for gap in gaps):
        return found
    total = sum((quantity.value * size for quantity, size in zip(found, sizes, strict=True)), Decimal(0))
    return (replace(found[0], value=total / sizes[0], others=(), decimals=None, end=found[-1].end),)


def _simple(text: str) -> Quantity:
    readings, _, decimals = _readings(text.lstrip("-"))
    sign = -1 if text.startswith("-") else 1
    others = tuple(sign * reading for reading in readings[1:])
    return Quantity(value=sign * readings[0], others=others, decimals=decimals, end=len(text))


def _quantity(match: re.Match[str], text: str) -> Quantity | None:
    readings, certain, decimals = _readings(match["digits"])
    factor = Decimal(1)
    exact = True
    try:
        if match["raised"]:
            readings = (readings[0] ** int(match["raised"]),)
        elif match["exponent"] or match["power"]:
            factor = Decimal(10) ** int(match["exponent"] or match["power"])
            exact = False
        elif match["denominator"]:
            factor = 1 / Decimal(match["denominator"])
            exact = False
        elif match["mixed"]:
            readings = (readings[0] + Decimal(match["numerator"]) / Decimal(match["mixed"]),)
            exact = False
    except (InvalidOperation, ZeroDivisionError):
        return None
    symbol = (match["symbol"] or "").strip()
    currency = "" if not symbol else _SYMBOLS.get(symbol) or _DOLLARS.get(symbol) or symbol
    end = match.end()
    suffix = match["suffix"]
    alternative: Decimal | None = None
    unit = ""
    percent = False
    if suffix:
        if suffix in _SUFFIXES or (currency and suffix in _MONEY_SUFFIXES):
            factor *= _SUFFIXES.get(suffix) or _MONEY_SUFFIXES[suffix]
            exact = False
        else:
            unit = suffix
            alternative = _MONEY_SUFFIXES[suffix]
    while not unit and (after := _AFTER.match(text, end)):
        word = after[1].lower()
        scale = _SCALES.get(word) or _SCALES.get(word.removesuffix("s"))
        if after[1] == "M" and not suffix:
            scale = _SUFFIXES["M"]
        if scale is not None:
            factor *= scale
            exact = False
        elif word in _PERCENTS:
            percent = True
        elif word in _CENTS and not currency:
            currency, factor, exact = "USD", factor / 100, False
        elif word in _CURRENCIES or after[1] in _SYMBOLS:
            currency = currency or _CURRENCIES.get(word) or _SYMBOLS[after[1]]
        elif word == "per" and text[after.end() :].lstrip().lower().startswith("cent"):
            percent = True
            end = text.lower().index("cent", after.end()) + 4
            continue
        elif word in _NOT_UNITS and (word != "in" or after.end() < len(text)):
            break
        else:
            unit = unit_name(word)
        end = after.end()
    sign = -1 if (match["sign"] or "").startswith("-") or match["sign2"] else 1
    scaled = [sign * reading * factor for reading in readings]
    if alternative is not None:
        scaled.append(scaled[0] * alternative)
    return Quantity(
        value=scaled[0],
        others=tuple(scaled[1:]),
        certain=certain,
        decimals=decimals if exact else None,
        percent=percent,
        currency=currency,
        unit=unit,
        **_context(text, match.start("lead")),
        start=match.start(),
        end=end,
    )


def _context(text: str, start: int) -> dict[str, Any]:
    """What the words before a number make of it."""
    before = text[max(0, start - 20) : start]
    if not before.strip():
        return {}
    negated = _NEGATED.search(before) is not None
    return {"negated": negated, "bound": not negated and _BOUND.search(before) is not None}


_ENGLISH_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")
_POINT_GROUPS = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")


def _readings(digits: str) -> tuple[tuple[Decimal, ...], bool, int]:
    """Values a run of digits, points and commas can stand for, the usual one first; whether it is usual; places."""
    digits = digits.replace(" ", "")
    digits = digits.replace("'", "")
    if digits.isdigit():
        return (Decimal(digits),), True, 0
    commas, points = digits.count(","), digits.count(".")
    last = len(digits) - max(digits.rfind(","), digits.rfind(".")) - 1
    if not commas and points == 1:
        value = Decimal(digits)
        european = _POINT_GROUPS.fullmatch(digits) and not digits.startswith("0")
        return ((value, Decimal(digits.replace(".", ""))) if european else (value,)), True, last
    if _ENGLISH_GROUPS.fullmatch(digits):
        value = Decimal(digits.replace(",", ""))
        if commas == 1 and not points:
            return (value, Decimal(digits.replace(",", "."))), True, 0
        return (value,), True, last if points else 0
    if _POINT_GROUPS.fullmatch(digits):
        return (Decimal(digits.replace(".", "").replace(",", ".")),), True, last if commas else 0
    if commas == 1 and not points:
        return (Decimal(digits.replace(",", ".")), Decimal(digits.replace(",", ""))), False, last
    plain = digits.replace(",", "")
    return (Decimal(plain if plain.count(".") <= 1 else plain.replace(".", "")),), False, 0


def _spelled(text: str) -> Iterator[Quantity]:
    for match in _WORD_NUMBER.finditer(text):
        parts = re.split(r"[- ]", match["number"].lower())
        if len(parts) == 2 and not (parts[0] in _TENS and 1 <= _WORDS[parts[1]] <= 9):
            parts = parts[:1]
        value = Decimal(sum(_TENS.get(part, _WORDS.get(part, 0)) for part in parts))
        end = match.start("number") + len(" ".join(parts))
        unit, percent, currency = "", False, ""
        while not unit and (after := _AFTER.match(text, end)):
            word = after[1].lower()
            if word in _SCALES:
                value *= _SCALES[word]
            elif word.removesuffix("s") in _PARTS:
                value /= _PARTS[word.removesuffix("s")]
            elif word in _PERCENTS:
                percent = True
            elif word in _CURRENCIES:
                currency = _CURRENCIES[word]
            elif word in _NOT_UNITS or word in _WORDS:
                break
            else:
                unit = unit_name(word)
            end = after.end()
        yield Quantity(
            value=-value if match["negative"] else value,
            percent=percent,
            currency=currency,
            unit=unit,
            **_context(text, match.start()),
            start=match.start(),
            end=end,
        )
