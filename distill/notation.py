"""One spelling for answers that look or mean the same: Unicode, quotes and signs, simple LaTeX, phrases of units.

Changes notation only; numbers are read from the result by `distill.numbers`, words by `distill.texts`.
"""

import re
import unicodedata
from typing import Final

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
        "\u2236": ":",
        "\u066a": "%",
        "\u066b": ".",
        "\u066c": ",",
        **dict.fromkeys("\u200e\u200f\u061c", ""),
    }
)
_LATEX: Final = (
    (re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r" \1/\2 "),
    (re.compile(r"\\[dtc]?frac\s?(\d)\s?(\d)"), r" \1/\2 "),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|mathit|operatorname)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\^?\s*\\circ\b"), "°"),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "×"),
    (re.compile(r"\\infty(?![a-zA-Z])"), "∞"),
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
    (re.compile(r"\bkilo-?watt[- ]hours?\b", re.IGNORECASE), lambda _: "kWh"),
    (re.compile(r"\b(sq|cu)(?:uare|bic|\.)? ([a-z]+)\b", re.IGNORECASE), lambda match: _power(match)),
)
_FEET = re.compile(r"""(?<![\w'])(\d{1,2})'\s?(\d{1,2})(?:"|''|$)""")
_HUNDREDTHS = re.compile(r"百分之([\d.零〇一二两三四五六七八九十百]+)")
_OTHER_DIGIT = re.compile(r"[^\D0-9]")


def _power(match: re.Match[str]) -> str:
    """m^2 for square meters."""
    unit = unit_name(match[2].lower())
    return f"{unit}^{2 if match[1].lower() == 'sq' else 3}" if unit_factor(unit) else match[0]


def normalise(text: str) -> str:
    """One spelling for what looks or means the same: NFKC, plain signs and quotes, simple LaTeX, single spaces."""
    if not text.isascii():
        text = _SUPERSCRIPT_RUN.sub(lambda run: "^" + run[0].translate(_SUPERSCRIPTS), text)
        text = _VULGAR.sub(lambda half: " " + half[0], text)
        text = unicodedata.normalize("NFKC", text).translate(_CHARACTERS)
        if _OTHER_DIGIT.search(text):
            text = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)
        if "百分之" in text:
            text = _HUNDREDTHS.sub(r"\1%", text)
    if "\\" in text or "{,}" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    if "'" in text and ('"' in text or text.endswith("'") or "''" in text):
        text = _FEET.sub(r"\1 ft \2 in", text)
    if "hour" in text or "egree" in text or "quare " in text or "ubic " in text or "sq" in text:
        for phrase, unit in _UNIT_PHRASES:
            text = phrase.sub(unit, text)
    return " ".join(text.split())
