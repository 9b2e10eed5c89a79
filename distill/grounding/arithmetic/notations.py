"""Turns the notations in which people and programs write arithmetic into one that is read from left to right.

Sums in columns, prompts of Python, fractions of LaTeX, powers of ten, binary numbers, decimal commas, Indian groups
of digits, and the signs of electric units. Works on the text as written, before numbers are read.
"""

import re
from collections.abc import Callable
from typing import Final

from distill.answers.numbers.number_words import SMALL

_DIGITS: Final = r"\d[\d.,]*"
_COLUMNS: Final = re.compile(
    rf"({_DIGITS})[ \t]*\n[ \t]*([-+−–×*])[ \t]*({_DIGITS})[ \t]*\n[ \t]*[-—–_=]{{3,}}[ \t]*\n[ \t]*(?==?[ \t]*\d)"
)
_RULE_LINE: Final = re.compile(r"\n[ \t]*[-—–_=]{3,}[ \t]*\n")
_PROMPT: Final = re.compile(r"(?m)^[ \t]*>>> ?([\d(][\d .+*/()-]*)\n[ \t]*(-?\d[\d.]*)(?=\s|$)")
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*(?:\{([^{}]*)\}\s*\{([^{}]*)\}|(\d)\s*(\d))")
# Beside ÷ a fraction written without spaces is one operand.
_DIVIDED_FRACTION: Final = re.compile(r"(?<![\w./])\d{1,6}/\d{1,6}(?=\s*÷)|(?<=÷)(\s*)(\d{1,6}/\d{1,6})(?![\w/])")
_AFTER_DIGIT: Final = r"(?:\.\d{1,9})?(?:e[+-]?\d{1,2})?"
_SCIENTIFIC: Final = rf"\d{{1,9}}{_AFTER_DIGIT}"
# In a calculation only: "step=1000 lr=1e-4" is none. The digit comes first: a search for one finds its place fast.
_POWERS_OF_TEN: Final = re.compile(
    rf"\d(?<![\w.=]\d)(?=[\d.]*e|[^e=\n]{{0,29}}e[+-]?\d)\d{{0,8}}{_AFTER_DIGIT}"
    rf"(?:\s?[-+−×*·/÷]\s?{_SCIENTIFIC})+\s?[=≈]\s?{_SCIENTIFIC}(?![\w.]*\w)"
)
_POWER_OF_TEN: Final = re.compile(r"(\d[\d.]*)e([+-]?\d+)")
_HAS_POWER_OF_TEN: Final = re.compile(r"e(?<=\de)[+-]?\d")
_BASE: Final = re.compile(r"(?<!\w)0b([01]{1,40})(?!\w)|(?<!\w)0x([0-9a-fA-F]{1,10})(?!\w)")
COMMA_AND_FEW_DIGITS: Final = re.compile(r",(?<=\d,)\d\d?(?!\d)")
"""A comma as in 12,5: no decimal comma is found without one, and a search for it is fast."""
_LAKHS: Final = re.compile(r"\d(?<![\w.,]\d)\d?(?:,\d\d){1,4},\d{3}(?![\w,])")
# A comma between digits is decimal where an operator, or the sign of the euro, stands beside such a number.
_DECIMAL_COMMA: Final = re.compile(
    r"\d(?<![\w.,]\d)\d{0,3},\d{1,2}(?![\d,])(?:\s?€|\s[-+−×·*/=]\s?\d)"
    r"|\d\s[-+−×·*/=]\s\d{1,4},\d{1,2}(?![\d,.]\d|\d)"
    r"|\d(?<![\w.,(]\d)\d{0,3},\d{1,2}(?:[-+−×·*/]\d{1,4}(?:,\d{1,2})?){1,4}=\d"
)
_LISTED: Final = re.compile(r"\d,(\d{1,2}) ?([-+]) ?(\d{1,4}) ?= ?(\d{1,4})(?![\d,.]\d|\d)")
"""A list that may end in a sum: points 8,4 + 4 = 8."""
_COMMA_NUMBER: Final = re.compile(r"(?<![\w.,])(\d{1,4}),(\d{1,2})(?![\d,]|\.\d)")
_BELOW_ONE: Final = re.compile(r"0(?<![\w.,]0),(\d{3,9})(?![\d,])")
"""0,012: no group of digits follows a single zero."""
_THOUSANDS: Final = re.compile(r"\d,\d{3}(?!\d)")
# Without a prefix, which would change the scale.
_ELECTRIC: Final = re.compile(
    r"(?<=\d)\s?(?:[VWΩJ]|A(?=\s*(?:[-+×*·/÷=≈.,;)]|$)))(?![\w°/])"
    r"(?!\s*[=≈]\s*[\d.,]+\s?[mkµMn][VAWΩJ])"
)
_ELECTRIC_ENDS: Final = re.compile(r"[VAWΩJ](?:(?<=\d.)|(?<=\d\s.))")
_FACTOR: Final = re.compile(r"(?: ×(?<=\d ×)|×(?<=\d×))(?=\s*(?:[.,;)]|$|\n))")
_INCHES: Final = re.compile(r" in(?<=\d in)(?=\.?\s?[×*·/=])")
_LATEX_SPACE: Final = re.compile(r"\\[ ,;:](?=[^\d\s])")
"""A space before a word: "68\\ cm"."""
_LATEX_COMMA: Final = re.compile(r"\{,\}(?=(\d{3}(?!\d))?)")
"""Groups thousands before three digits, and is decimal before others: 0{,}8."""
_LABELS: Final = re.compile(
    r" \((?:[^\W\d]{1,20} )?(?:nr\.|no\.|n°|number|nummer|page|seite|dossard|bib|platform|gleis|voie|porte|gate)"
    r" ?[A-Z]?\d[^()\n=]{0,30}\)",
    re.IGNORECASE,
)
"""A number that names something and is no operand: (Nr. 4711, 12.03.2021)."""
_DEGREE: Final = re.compile(r"\s?\^\s?\{?\s?\\circ\b\s?\}?")
_SPACED_DASH: Final = re.compile(r"\s*—\s*(?![\d(])")


def plain_notation(text: str) -> str:
    """The text with these notations written out. Most texts have no such notation, and a few quick checks are
    enough."""
    if "\n" in text:
        if _RULE_LINE.search(text):
            text = _COLUMNS.sub(r"\1 \2 \3 = ", text)
        if ">>>" in text:
            text = _PROMPT.sub(r"\1 = \2\n", text)
    if "\\" in text:
        text = _LATEX_COMMA.sub(lambda comma: "," if comma[1] else ".", _LATEX_SPACE.sub(" ", text))
    if "0," in text:
        text = _BELOW_ONE.sub(r"0.\1", text)
    if " (" in text:
        text = _LABELS.sub("", text)
    if "frac" in text:
        text = _FRACTION.sub(lambda match: f"(({match[1] or match[3]})/({match[2] or match[4]}))", text)
    if "\\circ" in text:
        text = _DEGREE.sub("°", text)
    if "0b" in text or "0x" in text:
        text = _BASE.sub(_from_base, text)
    if _HAS_POWER_OF_TEN.search(text):
        text = _POWERS_OF_TEN.sub(lambda match: _POWER_OF_TEN.sub(r"(\1*10^(\2))", match[0]), text)
    if COMMA_AND_FEW_DIGITS.search(text):
        text = _LAKHS.sub(lambda match: match[0].replace(",", ""), text)
        if _DECIMAL_COMMA.search(text) and not _THOUSANDS.search(text) and not _has_sum_after_list(text):
            text = _COMMA_NUMBER.sub(r"\1.\2", text)
    if " dozen" in text or " pair" in text:
        text = _WORDED_DOZEN.sub(lambda match: f"{_DOZEN_COUNTS[match[1].lower()]} dozen", _HALF_DOZEN.sub("6", text))
        text = _COUNTED_PIECES.sub(_in_pieces, text)
        text = _DOZENS.sub(lambda match: str(12 * int(match[1] or match[2])), text)
    for sign, pattern, replacement in _SIGNS:
        if sign in text:
            text = pattern.sub(replacement, text)
    return _ELECTRIC.sub("", text) if _ELECTRIC_ENDS.search(text) else text


_HALF_DOZEN: Final = re.compile(r"\bhalf (?:a|of a) dozen\b", re.IGNORECASE)
_DOZEN_COUNTS: Final = {"a": 1} | {word: value for word, value in SMALL.items() if value}
_WORDED_DOZEN: Final = re.compile(rf"\b({'|'.join(_DOZEN_COUNTS)}) dozen\b", re.IGNORECASE)
_PLUS_OR_MINUS: Final = r"(?:[-+−]|plus|minus)"
_COMES_TO: Final = r"(?:=|\b(?:is|are|equals|makes?|leaves?|gives?)\b)"
_COUNTS_PIECES: Final = rf"{_COMES_TO} ?\d[\d,]*+(?! ?dozen)"
_DOZENS: Final = re.compile(
    rf"(?<![\w.,])(\d{{1,4}}) dozen(?=(?: [a-z]+)? {_PLUS_OR_MINUS}"
    rf" (?:(?!dozen|{_COMES_TO})[^=.;\n]){{1,40}}{_COUNTS_PIECES})"
    rf"|(?:(?<=\d [-+−] )|(?<=\d plus )|(?<=\d minus ))(\d{{1,4}}) dozen(?=(?: [a-z]+)? ?{_COUNTS_PIECES})"
)
"""Dozens in a sum of pieces; in one of dozens they are a unit."""

_COUNTED_PIECES: Final = re.compile(
    r"(?<![\w.,])(\d{1,4}) (dozen|pairs?)((?: of)?(?: [a-z]+)?) ([-+−]) (\d{1,4})( (?:dozen|pairs?))?"
    r"((?: of)?(?: [a-z]+)?) ?(=|equals|is|makes) ?(\d[\d,]*+)(?! ?(?:dozen|pair))"
)
"""A sum of dozens or pairs whose result may count the pieces."""


def _in_pieces(match: re.Match[str]) -> str:
    """The sum in pieces where its result counts them; any other as it is."""
    size = 12 if match[2] == "dozen" else 2
    first, second = size * int(match[1]), int(match[5]) * (size if match[6] else 1)
    if int(match[9].replace(",", "")) != (first + second if match[4] == "+" else first - second):
        return match[0]
    return f"{first}{match[3]} {match[4]} {second}{match[7]} {match[8]} {match[9]}"


def _has_sum_after_list(text: str) -> bool:
    for match in _LISTED.finditer(text):
        last, more = int(match[1]), int(match[3])
        if int(match[4]) == (last + more if match[2] == "+" else last - more):
            return True
    return False


def _from_base(match: re.Match[str]) -> str:
    # As an expression, so that "6 = 0b110" is a claim, and not a name with its value.
    return f"({int(match[1], 2) if match[1] else int(match[2], 16)}+0)"


def _in_parentheses(match: re.Match[str]) -> str:
    return f"{match[1]}({match[2]})" if match[2] else f"({match[0]})"


_SIGNS: Final[tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    ("÷", _DIVIDED_FRACTION, _in_parentheses),
    ("×", _FACTOR, " times"),
    (" in", _INCHES, " inches"),
    ("—", _SPACED_DASH, ", "),
)
