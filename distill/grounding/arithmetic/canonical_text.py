"""A text in lower case with the letter N for each number, and the list of its numbers, from which claims are read.

Reads digits with separators, percent signs and scale words, fractions and English number words. What has the shape of
a date, a version, a serial number or an ordinal becomes the letter X. Signs of LaTeX and Markdown become
plain signs or are removed. Claims about the numbers are read elsewhere.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from distill.answers.numbers.number_words import SMALL, TENS, spelled
from distill.grounding.arithmetic.notations import COMMA_AND_FEW_DIGITS, plain_notation
from distill.grounding.arithmetic.other_languages import MARK_WORDS, in_english
from distill.grounding.numbers_in_text import plain_text
from distill.word_tables import longest_first

MARK: Final = "N"
UNREADABLE: Final = "X"
_SCALES: Final = {"hundred": 1e2, "thousand": 1e3, "k": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_PARTS: Final = {
    "half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10,
}  # fmt: skip
_TIMES: Final = {"twice": 2, "double": 2, "doubling": 2, "triple": 3, "tripling": 3, "thrice": 3, "quadruple": 4}
_COUNTS: Final = {word: value for word, value in SMALL.items() if value > 1} | TENS
_PART_WORDS: Final = frozenset([*_PARTS, *(f"{part}s" for part in _PARTS)])
_BESIDE_ONE: Final = frozenset(["plus", "minus", "times"])
"""Words beside which "one" is a number."""
_SPOKEN: Final = frozenset([*_COUNTS, *_PART_WORDS, *_TIMES, "one", "hundred"])
"""Numbers in words are searched for only in a text with one of these words."""
_ASKED: Final = _SPOKEN | _BESIDE_ONE | MARK_WORDS

_LATEX: Final = (
    (re.compile(r"\\sqrt\s*\{([^{}]*)\}"), r"√(\1)"),
    (re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}"), " "),
    (re.compile(r"\\pi\b"), "π"),
    (re.compile(r"\\leq?\b"), "≤"),
    (re.compile(r"\\geq?\b"), "≥"),
    (re.compile(r"\\[a-zA-Z]+|\\\\"), " "),
)
_SIGNS: Final = {
    "×": "*", "·": "*", "✕": "*", "÷": "/", "⁄": "/", "≅": "≈", "⇒": "→", "’": "'", "²": "^2", "³": "^3",
    "½": " 1/2", "¼": " 1/4", "¾": " 3/4", "\u00a0": " ", "\u202f": " ", "\u2009": " ",
    **dict.fromkeys("$€£¥₹`&#{}~", ""),
}  # fmt: skip
_OTHER_SCRIPTS: Final = (*zip("٫٬٪＋－＝＊／％（）＜＞．，：；", ".,%+-=*/%()<>.,:;", strict=True), ("。", ". "))
"""Signs of Arabic numbers, and full-width ones; a look for each is many times faster than `str.translate`."""
_IDEOGRAPH: Final = r"[\u3040-\u30ff\u3400-\u9fff]"
_BESIDE_IDEOGRAPH: Final = re.compile(rf"(?<={_IDEOGRAPH})(?=\d)|(?<=\d)(?={_IDEOGRAPH})")
"""Chinese and Japanese write no space before a number."""
_OF_DATE: Final = re.compile(r"\d(?<![\d.,]\d)\d{0,3}(?= ?[年月日])")
"""A number of a date is a name."""
_GLYPHS: Final = {"½": "1/2", "¼": "1/4", "¾": "3/4"}
_BULLET: Final = re.compile(r"\n[ \t]*(?:[-*+•>][ \t]+)+")
_FIRST_BULLET: Final = re.compile(r"[ \t]*(?:[-*+•>][ \t]+)+")
_POWERED_UNIT: Final = re.compile(r"\^(?<=[a-z]\^)(?=[23])")
_POWER_WORD: Final = re.compile(r"(?<=\d) (squared|cubed)\b(?! (?:m|k|c|f|in|yard))")
_MIXED: Final = re.compile(r"(?<![\d./])(\d{1,3})\s?([½¼¾])")
_SPACED_COLON: Final = re.compile(r"(?<=\d) : (?=\d)")
# Groups of three with spaces are one number beside an operator only: elsewhere they may be a list.
_GROUPS: Final = r"\d{1,3}(?: \d{3}){1,5}(?![\d.,]*\d| \d)"
_SPACED_GROUPS: Final = re.compile(rf"(?<=[-+*/=×÷−] ){_GROUPS}|(?<![\d.,] )(?<![\w.,]){_GROUPS}(?=\s*[-+*/=×÷−])")
_SPACED_DIGITS: Final = re.compile(r" \d{3}(?<=\d.{4})")
_CONTINENTAL: Final = re.compile(r"[1-9]\d{0,2}(?:\.\d{3}){1,5}(?:,\d{1,2}(?!\d)|(?:,\d\d?)?\s?€)")
_CONTINENTAL_NUMBER: Final = re.compile(
    r"(?<![\w.,])([1-9]\d{0,2}(?:\.\d{3}){1,5}|\d+)(?:,(\d{1,2}))?(?![\d]|[.,]\d)"
)
"""If a text has one such number, all its numbers have a decimal comma."""
_DEGREES: Final = re.compile(r"(?: (?<=\d )°|°(?<=\d°)) ?([cf]\b)?")
_SPACES: Final = re.compile(r"  +")
_NOTE: Final = re.compile(r"\((?!because|since|as |incl|excl|counting)[^()\d]{0,60}\)")
_UNIT: Final = "one|two|three|four|five|six|seven|eight|nine"
_COUNT: Final = longest_first(_COUNTS)
# Its end is searched for first: nearly all searches end with it.
_OF_NUMBER: Final = re.compile(rf" of (?:the |these |those |all )?(?=\d|(?:{_COUNT})\b)")
_PART: Final = re.compile(rf"\b(?:(an?|{_UNIT})[ -])?(half|(?:{'|'.join(_PARTS)})s?)\Z")
_LONGEST_PART: Final = len("seven quarters")
_MULTIPLE: Final = re.compile(rf"\b({'|'.join(_TIMES)})(?: of)?(?: the| those)? (?=\d|(?:{_COUNT})\b)")
_ENDS: Final = rf"\b(?![ -](?:hundred|thousand|million|billion|{'|'.join(_PARTS)}))"
_BY_LETTER: Final = {letter: [word[1:] for word in _COUNTS if word[0] == letter] for letter in "efnst"}
# The search finds its place by the first letter, which is many times faster than by a beginning of a word.
_IN_WORDS: Final = re.compile(
    r"[efnost](?<!\w.)(?:"
    + "|".join(rf"(?<={letter})(?:{longest_first(rest)})" for letter, rest in _BY_LETTER.items())
    + r"|(?<=plus o)ne|(?<=minus o)ne|(?<=times o)ne|(?<=o)ne(?= plus | times ))"
    + rf"(?:(?<=ty)[ -](?:{_UNIT}){_ENDS}|{_ENDS})"
)
_SMALL_WORDS: Final = longest_first({*SMALL, *TENS})
_TENS_AND_UNIT: Final = rf"(?:(?:{'|'.join(TENS)})(?:[ -](?:{_UNIT}))?|{_SMALL_WORDS})"
_AND: Final = ",? (?:and )?"
_HUNDREDS: Final = rf"(?:{_TENS_AND_UNIT}|an?) hundred(?:{_AND}{_TENS_AND_UNIT})?"
_LARGE: Final = re.compile(
    rf"\b(?:{_TENS_AND_UNIT} thousand(?:{_AND}(?:{_HUNDREDS}|{_TENS_AND_UNIT}))?|{_HUNDREDS})\b"
    r"(?![ -](?:hundred|thousand|million|billion|percent))"
)
_TO_SPACES: Final = bytes(code if chr(code).isalpha() else 32 for code in range(128)) + b" " * 128
# The first sign, by which the search finds its place, is no part of a word or another number. The second group is
# empty, and not None, for what has the shape of a number and is none.
_NUMBER: Final = re.compile(
    r"""([\d.](?<![\w.].)(?:
        (?<=\d)(?:\d*(?:\.\d+){2,}
            |(?:\d{3}-\d\d-\d\d|\d?/\d\d?/\d{2,4})(?![\d-])
            |\d+(?:-\d{2,}){2,}(?!\d|\s?=)
            |\d*(?:st|nd|rd|th)\b|\d{15,})()
        |(?:(?<=\d)(?:\d{0,2}(?:[,']\d{3})+(?!\d)|\d*)(?:\.\d+)?|(?<=\.)\d+)
            (?:\s?%|\spercent\b|\sper\scent\b)?
            (?:\s?(?:hundred|thousand|million|billion|trillion)\b|k\b)?
            (?:,\d)?))""",
    re.VERBOSE,
)
_PARTS_OF_NUMBER: Final = re.compile(
    r"((?:\d{1,3}(?:[,']\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(\s?%|\spercent|\sper\scent)?(\s?[a-z]+)?(,\d)?"
)

MOST_NUMBERS: Final = 400
"""So many numbers are read of a text of any length."""
CHARACTERS_A_NUMBER: Final = 100
"""For each so many characters one more number is read; a denser text is a listing."""

_UNREADABLE_A_NUMBER: Final = 3
"""For each number that is read, at most so many dates, versions and the like are skipped."""
_SHORT: Final = 1 << 13
"""A text of at most so many characters is cleaned as a whole."""
_WRITTEN_A_NUMBER: Final = 2
"""A longer text is cleaned up to so many runs of digits for each number that is read: "1 000" has two."""
_NEAR: Final = 600
"""The end of a sentence is searched for in so many characters before a cut."""
_WRITTEN: Final = re.compile(r"\d[\d.,:/'-]*+")


def max_numbers_of(text: str) -> int:
    """How many numbers of a text are read, so that the time depends on its length only."""
    return MOST_NUMBERS + len(text) // CHARACTERS_A_NUMBER


class Number(NamedTuple):
    """A number that is written; equal ones may be one object."""

    value: float
    unit: float
    """One of its last place: 0.1 for 2.5, 1000 for 3k."""
    percent: bool


def is_year(number: Number) -> bool:
    """Whether a number may be a year, and so the name of a column or row."""
    return 1900 <= number.value <= 2100 and number.unit == 1


def place_of(match: re.Match[str], offset: int) -> int:
    """The index of the first number of a match in a sentence whose own first number has the index `offset`."""
    return offset + match.string.count(MARK, 0, match.start())


@dataclass(frozen=True, slots=True)
class Canonical:
    text: str
    numbers: list[Number]
    plain: str
    complete: bool
    """Whether every number was read; a text may have more than `max_numbers`."""

    def number_spans(self, count: int = sys.maxsize) -> list[tuple[int, int]]:
        """Where each of the first `count` numbers begins and ends in the plain text."""
        found = _NUMBER.finditer(self.plain)
        spans = (match.span() for match in found if match[2] is None and _read_number(match[1]) is not None)
        return list(islice(spans, min(count, len(self.numbers))))


def mark_numbers(text: str, max_numbers: int) -> Canonical:
    """A text with its numbers marked: the first `max_numbers` of them, and the text up to there."""
    begin = _beginning(text, _WRITTEN_A_NUMBER * max_numbers)
    source = _replace_number_words(_clean(begin), max_numbers)
    pieces = _NUMBER.split(source, maxsplit=(1 + _UNREADABLE_A_NUMBER) * max_numbers + 2)
    readings = [
        _read_number(written) if odd is None else None
        for written, odd in zip(pieces[1::3], pieces[2::3], strict=True)
    ]
    count = _count_read(readings, max_numbers)
    complete = count == len(readings)
    del readings[count:], pieces[3 * count + complete :]
    pieces[1::3] = [UNREADABLE if number is None else MARK for number in readings]
    del pieces[2::3]
    numbers = [number for number in readings if number is not None]
    return Canonical("".join(pieces), numbers, source, complete=complete and len(begin) == len(text))


def _count_read(readings: Sequence[Number | None], max_numbers: int) -> int:
    """How many of these matches are read: up to `max_numbers` numbers, and some that are no numbers."""
    if len(readings) <= max_numbers:
        return len(readings)
    numbers = unreadable = 0
    for place, number in enumerate(readings):
        if numbers == max_numbers or unreadable > _UNREADABLE_A_NUMBER * max_numbers:
            return place
        numbers += number is not None
        unreadable += number is None
    return len(readings)


def _beginning(text: str, most: int) -> str:
    """A long text up to its run of digits number `most`, and to the end of the sentence before it, if one ends near.

    A claim that is cut ("= 1" of "= 1 000") would be a slip.
    """
    if len(text) <= _SHORT:
        return text
    last = next(islice(_WRITTEN.finditer(text), most - 1, None), None)
    if last is None:
        return text
    end = last.end()
    sentence_end = max(text.rfind(sign, end - _NEAR, end) for sign in (". ", "\n"))
    return text[: end if sentence_end < 0 else sentence_end + 1]


def _clean(text: str) -> str:
    if not text.isascii():
        if "。" in text or "，" in text:
            text = _OF_DATE.sub(" ", _BESIDE_IDEOGRAPH.sub(" ", text))
        for sign, usual in _OTHER_SCRIPTS:
            if sign in text:
                text = text.replace(sign, usual)
    text = plain_text(plain_notation(text))
    if ("€" in text or COMMA_AND_FEW_DIGITS.search(text)) and _CONTINENTAL.search(text):
        text = _CONTINENTAL_NUMBER.sub(
            lambda match: match[1].replace(".", "") + (f".{match[2]}" if match[2] else ""), text
        )
    if _SPACED_DIGITS.search(text):
        text = _SPACED_GROUPS.sub(lambda match: match[0].replace(" ", ""), text)
    if " : " in text:
        text = _SPACED_COLON.sub(":", text)
    if any(glyph in text for glyph in _GLYPHS):
        text = _MIXED.sub(lambda match: f"({match[1]}+{_GLYPHS[match[2]]})", text)
    if "\\" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    text = text.lower()
    if "squared" in text or "cubed" in text:
        text = _POWER_WORD.sub(lambda match: "^2" if match[1] == "squared" else "^3", text)
    if "**" in text:
        text = re.sub(r"(?<=\d)\*\*(?=\d)|(?<=\d) \*\* (?=\d)", "^", text).replace("**", "")
    for sign, plain_sign in _SIGNS.items():
        if sign in text:
            text = text.replace(sign, plain_sign)
    if "^" in text:
        text = _POWERED_UNIT.sub("", text)
    if "°" in text:
        text = _DEGREES.sub(
            lambda match: {"c": " celsius ", "f": " fahrenheit "}.get(match[1] or "", " degrees "), text
        )
    if "(" in text:
        text = _NOTE.sub(" ", text)
    for short, plain_form in (("i.e.,", "ie"), ("i.e.", "ie"), ("e.g.", "eg"), ("approx.", "approx")):
        text = text.replace(short, plain_form)
    # With the line break, by which the search finds its place, for a text of many lines.
    if "\n" in text:
        text = _BULLET.sub("\n", f"\n{text}")[1:]
    elif (bullet := _FIRST_BULLET.match(text)) is not None:
        text = text[bullet.end() :]
    return _SPACES.sub(" ", text) if "  " in text else text


def _replace_number_words(text: str, max_numbers: int) -> str:
    """A text with the first `max_numbers` numbers in words written in digits."""
    words = _words_of(text)
    if not text.isascii() or not words.isdisjoint(MARK_WORDS):
        translated = in_english(text, words)
        words = words if translated == text else _words_of(translated)
        text = translated
    if words.isdisjoint(_SPOKEN):
        return text
    if any(f"{word} of " in text for word in words & _PART_WORDS):
        text = _replace_parts(text, max_numbers)
    multiple = any(f"{word} " in text for word in words & _TIMES.keys())
    if multiple:
        text = _MULTIPLE.sub(lambda match: f"{_TIMES[match[1]]} times ", text, count=max_numbers)
    if "hundred" in words or "thousand" in words:
        text = _LARGE.sub(_spelled_digits, text, count=max_numbers)
    if not words.isdisjoint(_COUNTS) or ("one" in words and (multiple or not words.isdisjoint(_BESIDE_ONE))):
        text = _IN_WORDS.sub(_digits, text, count=max_numbers)
    return text


def _words_of(text: str) -> frozenset[str]:
    """The words of a text that are asked for."""
    return _ASKED.intersection(text.encode("ascii", "replace").translate(_TO_SPACES).decode().split())


def _replace_parts(text: str, max_numbers: int) -> str:
    """A text with "two thirds of the" before a number written as "(2/3) of"."""
    pieces: list[str] = []
    end = 0
    for match in _OF_NUMBER.finditer(text):
        part = _PART.search(text, max(end, match.start() - _LONGEST_PART), match.start())
        if part is not None:
            value, whole = _VALUES[part[1] or ""], _PARTS[_singular(part[2])]
            pieces += (text[end : part.start()], f"({value}/{whole}) of ")
            end = match.end()
            if len(pieces) == 2 * max_numbers:
                break
    return "".join(pieces) + text[end:]


_VALUES: Final = {**SMALL, "a": 1, "an": 1, "": 1}


def _singular(word: str) -> str:
    return word if word in _PARTS else word.removesuffix("s")


def _spelled_digits(match: re.Match[str]) -> str:
    """A number with hundreds or thousands in digits: 650 for "six hundred and fifty"."""
    values = [value for value, _, _ in spelled(match[0].replace(",", ""))]
    return str(int(values[0])) if len(values) == 1 else match[0]


def _digits(match: re.Match[str]) -> str:
    word, _, unit = match[0].replace("-", " ").partition(" ")
    return str(_COUNTS.get(word, 1) + SMALL.get(unit, 0))


@lru_cache(maxsize=1 << 14)
def _read_number(written: str) -> Number | None:
    """A number's value, one unit of its last place, and whether it is a percentage; None for a number that continues
    ("8,6")."""
    match = _PARTS_OF_NUMBER.fullmatch(written)
    assert match is not None
    digits, percent, scale, more = match.groups()
    if more:
        return None
    digits = digits.replace(",", "").replace("'", "")
    factor = _SCALES[scale.strip()] if scale else 1.0
    return Number(float(digits) * factor, factor * 10.0 ** -len(digits.partition(".")[2]), percent is not None)
