"""One spelling for answers that look or mean the same: Unicode, quotes and signs, simple LaTeX, phrases of units.

Changes notation only; numbers are read from the result by `distill.answers.numbers.quantities`, words by
`distill.answers.texts.text_answers`.
"""

import re
import unicodedata
from decimal import Decimal
from functools import lru_cache
from typing import Final

from distill.answers.numbers.currencies import NATIONAL
from distill.answers.numbers.number_words import numeral, numerals
from distill.answers.numbers.units import unit_factor, unit_name, unit_symbol
from distill.word_tables import longest_first

_SUPERSCRIPTS: Final = str.maketrans({"⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7",
                                      "⁸": "8", "⁹": "9", "⁻": "-", "⁺": "+"})  # fmt: skip
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_VULGAR = re.compile(r"(?<=\w)[¼½¾⅐-⅞]")
_CHARACTERS: Final = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys("\u2018\u2019\u201b\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
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
_INLINE_MATHS = re.compile(r"(?<=\w\s)\$(\d[\d.,]*\s?\\[^$=]{0,40})\$(?!\$)")
r"""A quantity between dollar signs: $52\,\text{cm}^2$."""
_LATEX: Final = (
    # A sign at the beginning of a formula or after a word belongs to its fraction.
    (
        re.compile(r"(^|[$(=]|(?<=[a-zA-Z]{2}\s)|(?<=[:,]\s))\s*-\s*\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"),
        r"\1-\2/\3 ",
    ),
    (re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r" \1/\2 "),
    (re.compile(r"\\[dtc]?frac\s?(\d)\s?(\d)"), r" \1/\2 "),
    # \mathbf{26\text{ cm}}: the outer one, then the inner one.
    *2
    * ((re.compile(r"\\(?:text|mathrm|mathbf|textbf|mathit|operatorname)\s*\{((?:[^{}]|\{[^{}]*\})*)\}"), r" \1 "),),
    (re.compile(r"\^?\s*\\circ\b"), "°"),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "×"),
    (re.compile(r"\\infty(?![a-zA-Z])"), "∞"),
    (re.compile(r"\\pi(?![a-zA-Z])"), "π"),
    (re.compile(r"~(?=\\)"), " "),
    (re.compile(r"\\Omega(?![a-zA-Z])"), "Ω"),
    (re.compile(r"\\mu(?![a-zA-Z])\s?"), "μ"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])"), "|"),
    (re.compile(r"\\leq?(?![a-zA-Z])"), "≤"),
    (re.compile(r"\\geq?(?![a-zA-Z])"), "≥"),
    (re.compile(r"\\pm(?![a-zA-Z])"), "±"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\(?:left|right)\b|\\[,!;: ]"), ""),
    (re.compile(r"\\([$%&#_])"), r"\1"),
    (re.compile(r"\\[()\[\]]"), " "),
)
_UNIT_PHRASES: Final = (
    (re.compile(r"\bmetric tons?\b", re.IGNORECASE), lambda _: "tonnes"),
    (
        re.compile(r"\s?\bdegrees? (celsius|fahrenheit|[cf])\b", re.IGNORECASE),
        lambda match: f" °{match[1][0].upper()}",
    ),
    (re.compile(r"\bmiles? (?:per|an) hour\b", re.IGNORECASE), lambda _: "mph"),
    (re.compile(r"\b(?:km|kilomet(?:er|re)s?) (?:per|an) hour\b", re.IGNORECASE), lambda _: "km/h"),
    (re.compile(r"\bkilo-?watt[- ]hours?\b", re.IGNORECASE), lambda _: "kWh"),
    (re.compile(r"\b(sq|cu)(?:uare|bic|\.)? ([a-z]+)\b", re.IGNORECASE), lambda match: _power(match)),
)
_SPACED_POWER = re.compile(r"(?<=[^\W\d_])\s+\^(?=\s?\{?-?\d)")
_POWER_AFTER = re.compile(r"(?<=\d)(\s?)(mm|cm|dm|m|km|ft|in|yd|mi)([23])\b")
"""25 cm2."""
_PER = re.compile(r"\b([a-zA-Z]+)(?: per | ?/ ?)([a-zA-Z]+)( squared| cubed)?\b")
_POWER_WORD = re.compile(r"\b([a-zA-Z]+) (squared|cubed)\b")
_INVERSE = re.compile(r"\b(k?m|cm|kg|g|mol)\s?[·*×.]?\s?(s|h|m|l|L)\s?\^\s?\{?-([123])\}?")
"""m s^{-2}."""
_DOTTED_SCALE = re.compile(r"\b(Mio|Mrd|Tsd|Bio|mln|mld|mrd|mio)\.")
_MIXED_NUMERAL = re.compile(r"\d+(?:\.\d+)?[百千万萬億亿]\d[\d百千万萬億亿]*")
"""1万2千."""
_AND_A_HALF = re.compile(r"\ban? ([a-z]+) and a half\b", re.IGNORECASE)
_NATIONAL_MONEY = re.compile(rf"\b({longest_first(map(re.escape, NATIONAL))})(?:s|r)?\b", re.IGNORECASE)
_SUBSCRIPT = re.compile(r"(?<=[A-Za-z)])\$?_\{?(\d+)\}?\$?")
"""The subscripts of a formula: H$_2$O, CO_2."""
_FEET = re.compile(r"""(?<![\w'])(\d{1,2})'\s?(\d{1,2})(?:"|''|$)""")
_HAN: Final = r"[\d.零〇一二两兩三四五六七八九十百点]+"
_HUNDREDTHS = re.compile(rf"百分之({_HAN})")
_PARTS = re.compile(rf"({_HAN})分之({_HAN})")
_TENTHS = re.compile(rf"({_HAN})割")
_HALF = re.compile("一半|半分|半数")
_ERA = re.compile(r"(令和|平成|昭和|大正|明治)(元|\d{1,2}|[一二三四五六七八九十]{1,3})年")
_ERAS: Final = {"令和": 2018, "平成": 1988, "昭和": 1925, "大正": 1911, "明治": 1867}
_MONEY_WORD = re.compile(
    r"(?i:dollar|franc|peso|kron|koruna|lira|rupee|zloty|rea[li]|rand|pound|yen|yuan|won|r[ou]{1,2}ble|riyal|dirham|forint)"
)
_SIGN_AFTER = re.compile(r"(?<![\w$.,])(\d[\d.,]*) ?\$(?![\w$])")
"""12,50 $; two signs may be those around a formula."""
_SIGN_INSIDE = re.compile(r"(?<![\w.,])(\d[\d.]*) ?(€|£|\$|euros?\b|kr\b) ?(\d\d)(?![\w.,%]| ?[€£$])")
"""12 € 50."""
_TENTHS_OF_CENT = re.compile(r"(\d\.\d\d) ?9/10\b")
"""$3.45 9/10, of fuel."""
_BASE = re.compile("(?<=\\d)([₀-₉]+)")
_ABSOLUTE = re.compile(r"\babs\(([^()]*)\)")
_OTHER_DIGIT = re.compile(r"[^\D0-9]")


def _power(match: re.Match[str]) -> str:
    """m^2 for square meters."""
    unit = unit_name(match[2].lower())
    return f"{unit_symbol(unit)}^{2 if match[1].lower() == 'sq' else 3}" if unit_factor(unit) else match[0]


_HAN_SIGNS = re.compile("分之|割|半|[和成正治]")


def _in_western_signs(text: str) -> str:
    """Shares and years of eras in Chinese and Japanese: 百分之五十, 三分之一, 五割, 令和元年."""
    text = _HUNDREDTHS.sub(lambda share: f"{_han_value(share[1])}%", text)
    text = _PARTS.sub(lambda part: f"{_han_value(part[2])}/{_han_value(part[1])}", text)
    text = _TENTHS.sub(lambda share: f"{10 * _han_value(share[1])}%", text)
    text = _HALF.sub("1/2", text)
    return _ERA.sub(lambda era: f"{_ERAS[era[1]] + (1 if era[2] == '元' else int(_han_value(era[2])))}年", text)


def _han_value(digits: str) -> Decimal:
    values = [Decimal(digits)] if _PLAIN.fullmatch(digits) else [value for value, *_ in numerals(digits)]
    return values[0] if values else Decimal(0)


def _units_in_symbols(text: str) -> str:
    """One spelling of compound units and scale words: m/s^2 for meters per second squared, 25 cm^2 for 25 cm2."""
    text = _POWER_AFTER.sub(r"\1\2^\3", text)
    if " per " in text or "quared" in text or "ubed" in text or "/" in text:
        text = _POWER_WORD.sub(_with_power, _PER.sub(_ratio_of_units, text))
    if "^" in text:
        text = _INVERSE.sub(lambda unit: f"{unit[1]}/{unit[2]}" + (f"^{unit[3]}" if unit[3] != "1" else ""), text)
    for pattern, symbol in _UNIT_WORDS:
        text = pattern.sub(symbol, text)
    if "." in text:
        text = _DOTTED_SCALE.sub(r"\1", text)
    if not text.isascii():
        text = _MIXED_NUMERAL.sub(lambda run: f"{numeral(run[0]) or run[0]}", text).replace("人民币", "")
    return text


_UNIT_WORDS: Final = (
    (re.compile(r"\bkelvins?\b", re.IGNORECASE), "K"),
    # A d before hours is days; an m after hours or before seconds is minutes, not metres: 1d 4h, 2h 35m, 5m 20s.
    (re.compile(r"\b(\d+) ?d,? ?(?=\d{1,2} ?h)"), r"\1 days "),
    (re.compile(r"(?<=\d)( ?h(?:ou)?(?:rs?)?),? ?([0-5]?\d) ?m(?:ins?)?(?![^\W\d])"), r"\1 \2 min"),
    (re.compile(r"\b([0-5]?\d)(?:m| ?min) ?([0-5]?\d) ?s\b"), r"\1 min \2 s"),
    (re.compile(r"\s?\b(?:square units?|sq\.? units?|units squared|units\^2)\b", re.IGNORECASE), ""),
    (
        re.compile(
            r"(?<=\d),(\d{3} (?:millions|milliards|milioni|miliardi|millones|milhões) (?:d'|d[ei] ))", re.IGNORECASE
        ),
        r".\1",
    ),
    (
        re.compile(r"\b(millions?|millones|milliards?|milhões|milioni|miliardi)\s+(?:d'|d[ei]\s)", re.IGNORECASE),
        r"\1 ",
    ),
    (re.compile(r"\bквадратн\w+ (?=\w)|\b[qQ]uadrat(?=(?:zenti|milli|kilo)?meter)"), "square "),
    (re.compile(r"\bкубическ\w+ (?=\w)|\b[kK]ubik(?=(?:zenti|milli)?meter)"), "cubic "),
    (re.compile(r"\b([^\W\d_]*m[eèé]t[^\W\d_]+) (?:carrés?|cuadrados?|quadrat[io]|quadrados?)\b"), r"square \1"),
    (re.compile(r"\b([^\W\d_]*m[eèé]t[^\W\d_]+) (?:cubes?|cúbicos?|cub[io])\b"), r"cubic \1"),
    (
        re.compile(r"\b(?P<power>sq|cu)(?:uare|bic) (?P<unit>[^\W\d_]+)\b"),
        lambda match: unit_name(match["unit"].lower()) + ("^2" if match["power"] == "sq" else "^3"),
    ),
)


def _ratio_of_units(match: re.Match[str]) -> str:
    above, below = (unit_symbol(unit_name(match[group].lower())) for group in (1, 2))
    if not above or not below or "^" in above + below:
        return match[0]
    power = {" squared": "^2", " cubed": "^3"}.get(match[3] or "", "")
    return f"{above}/{below}{power}"


def _with_power(match: re.Match[str]) -> str:
    symbol = unit_symbol(unit_name(match[1].lower()))
    return f"{symbol}^{2 if match[2] == 'squared' else 3}" if symbol else match[0]


_PLAIN = re.compile(r"\d+(?:\.\d+)?")


@lru_cache(maxsize=1 << 11)
def normalise(text: str) -> str:
    """One spelling for what looks or means the same: NFKC, plain signs and quotes, simple LaTeX, single spaces."""
    if not text.isascii():
        text = _BASE.sub(lambda base: f" base {unicodedata.normalize('NFKC', base[1])}", text)
        text = _SUPERSCRIPT_RUN.sub(lambda run: "^" + run[0].translate(_SUPERSCRIPTS), text)
        text = _VULGAR.sub(lambda half: " " + half[0], text)
        text = unicodedata.normalize("NFKC", text).translate(_CHARACTERS)
        if _OTHER_DIGIT.search(text):
            text = _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)
        if _HAN_SIGNS.search(text):
            text = _in_western_signs(text)
    if "\\" in text or "{,}" in text:
        text = _INLINE_MATHS.sub(r"\1", text)
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    if " ^" in text:
        text = _SPACED_POWER.sub("^", text)
    if "_" in text:
        text = _SUBSCRIPT.sub(r"\1", text)
    if "'" in text and ('"' in text or text.endswith("'") or "''" in text):
        text = _FEET.sub(r"\1 ft \2 in", text)
    if "hour" in text or "egree" in text or "quare " in text or "ubic " in text or "sq" in text or "metric" in text:
        for phrase, unit in _UNIT_PHRASES:
            text = phrase.sub(unit, text)
    if _MONEY_WORD.search(text):
        text = _NATIONAL_MONEY.sub(lambda name: NATIONAL[name[1].lower()], text)
    if any(map(str.isalpha, text)) and (any(map(str.isdigit, text)) or "quare" in text):
        text = _units_in_symbols(text)
    if " and a half" in text:
        text = _AND_A_HALF.sub(r"1.5 \1s", text)
    if text.count("$") == 1:
        text = _SIGN_AFTER.sub(r"$\1", text)
    if "€" in text or "£" in text or "$" in text or "euro" in text:
        text = _SIGN_INSIDE.sub(r"\1.\3 \2", text)
    if "9/10" in text:
        text = _TENTHS_OF_CENT.sub(r"\g<1>9", text)
    if "abs(" in text:
        text = _ABSOLUTE.sub(r"|\1|", text)
    return " ".join(text.split())
