"""Numbers written in words: English number words, Chinese and Japanese numerals, and scale words of a few languages.

Gives values and their positions in a text; `distill.answers.numbers.quantities` reads the words around a number.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Final

from distill.word_tables import longest_first, read_table

_TABLE: Final = read_table(__file__)
SMALL: Final[dict[str, int]] = {word: value for value, word in enumerate(_TABLE["small"].split())}
TENS: Final[dict[str, int]] = {word: 10 * value for value, word in enumerate(_TABLE["tens"].split(), start=2)}
ORDINALS: Final[dict[str, Decimal]] = {
    word: Decimal(value) for value, word in enumerate(_TABLE["ordinals"].split(), start=1)
}
PARTS: Final = {
    **{"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7},
    **{"eighth": 8, "ninth": 9, "tenth": 10, "twelfth": 12, "sixteenth": 16},
}
SCALES: Final = {
    word: Decimal(int(float(scale))) for scale, words in _TABLE["scales"].items() for word in words.split()
}
OTHER_SCALES: Final = {"mil": Decimal(1000)}
"""Second readings: short for million in English, thousand in Spanish and Portuguese."""

_ORDINAL_NAMES: Final = (
    {f"{word}th": value for word, value in SMALL.items()}
    | {f"{word[:-1]}ieth": value for word, value in TENS.items()}
    | {word: int(value) for word, value in ORDINALS.items()}
)
ORDINAL_NAME: Final = rf"\b(?:(?P<tens>{'|'.join(TENS)})[- ])?(?P<word>{longest_first(_ORDINAL_NAMES)})\b"
"""A regular expression for an ordinal in words; `ordinal_value` gives the value of its match."""
_NAMES: Final = longest_first({*SMALL, *TENS})
_SCALE_NAMES: Final = "hundred|thousand|million|billion|trillion"
_SPELLED = re.compile(
    r"\b(?:(?P<count>one|two|three|four|five|six|seven|eight|nine|ten|eleven)[ -]|an?\s)?"
    r"(?P<part>half|halves|third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth|twelfth|sixteenth)"
    r"(?P<plural>s?)\b(?!-)"
    rf"(?:\s(?:of\s)?an?\s(?P<scale>{_SCALE_NAMES}|dozen|percent))?"
    rf"|\b(?P<negative>minus |negative )?(?P<number>(?:(?:a|an)\s(?={_SCALE_NAMES}|dozen))?"
    rf"(?:{_NAMES}|{_SCALE_NAMES}|dozen)(?:(?:\sand\s|-|\s)(?:{_NAMES}|{_SCALE_NAMES}|dozen)s?\b)*+"
    rf"(?:\sand\sa\shalf(?:\s(?:{_SCALE_NAMES}))?)?)\b",
    re.IGNORECASE,
)
_HINTS = re.compile(
    r"(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|teen|ty|hundred|thousand|illion|dozen"
    r"|half|halves|third|quarter|fifth|sixth|seventh|eighth|ninth|tenth)",
    re.IGNORECASE,
)
_DIGIT_NAMES: Final = rf"(?:{_NAMES}|oh)"
_POINT = re.compile(
    rf"(?:\b(?P<negative>minus |negative )?(?P<whole>(?:{_NAMES}|hundred|thousand)"
    rf"(?:(?:\sand\s|-|\s)(?:{_NAMES}|hundred|thousand)){{0,8}})\s|^)"
    rf"(?:point|dot) (?P<places>{_DIGIT_NAMES}(?:[ -]{_DIGIT_NAMES}){{0,12}})\b",
    re.IGNORECASE,
)
_CJK = re.compile("[负負]?[零〇一二两兩三四五六七八九十廿卅百千万萬亿億壹贰叁肆伍陆柒捌玖拾佰仟点點]+")
_NO_ONE = re.compile("[唯同统統]一|.?一[共起样様般定些直旦致切概律緒]", re.DOTALL)
"""Words in which the sign of one counts nothing: in all, together, the same."""
_CJK_SPELLINGS: Final = str.maketrans("〇兩萬億點負", "零两万亿点负")
_BARE_HUNDRED = re.compile("(^|[负万亿])([百千])|^(?=万)")


def spelled(text: str) -> Iterator[tuple[Decimal, int, int]]:
    """Value, start and end of every number in English words. "third" or "half" alone does not count."""
    if _HINTS.search(text) is None:
        return
    points = [_decimal(match) for match in _POINT.finditer(text)] if "point" in text or "dot" in text else []
    yield from points
    starts = [start for _, start, _ in points]
    for match in _SPELLED.finditer(text):
        before = bisect_left(starts, match.end())
        if before and points[before - 1][2] > match.start():
            continue  # part of a decimal
        if match["number"]:
            yield from _groups(match, _before_a_hyphen(match))
        else:
            value = _part(match)
            if value is not None:
                yield value, match.start(), match.end() - len("percent" if _is_percent(match) else "")


def ordinal_value(match: re.Match[str]) -> int:
    """The value of an ordinal in words: 21 of twenty-first."""
    return (TENS[match["tens"].lower()] if match["tens"] else 0) + _ORDINAL_NAMES[match["word"].lower()]


def _before_a_hyphen(match: re.Match[str]) -> str:
    """A run of number words without those that a hyphen ties to the next word: twenty of "twenty one-way tickets"."""
    number, after = match["number"], match.string[match.end() : match.end() + 1]
    while number and after == "-":
        cut = max(number.rfind("-"), number.rfind(" "))
        number, after = number[: max(cut, 0)].removesuffix(" and"), number[cut : cut + 1]
    return number


def _is_percent(match: re.Match[str]) -> bool:
    return (match["scale"] or "").lower() == "percent"


_HALF_UNIT = re.compile(
    r"\san?\s(?:mile|hour|minute|day|week|month|year|cup|liter|litre|kilo|pound|inch|foot|gallon|meter|metre|teaspoon"
    r"|tablespoon|ounce|kilometer|kilometre|kilogram|acre|degree|second|decade|century|pint|quart)\b",
    re.IGNORECASE,
)

_AN_ONLY_PART = re.compile(r"an? (?!quarter)[a-z]+\.?", re.IGNORECASE)


def _part(match: re.Match[str]) -> Decimal | None:
    """A fraction in words: two thirds, a quarter of a million."""
    part = match["part"].lower()
    scale = (match["scale"] or "").lower()
    if _AN_ONLY_PART.fullmatch(match.string):
        return Decimal(1) / PARTS[part]
    if match["count"] is None and not scale and not (part == "half" and _HALF_UNIT.match(match.string, match.end())):
        return None
    count = SMALL[match["count"].lower()] if match["count"] else 1
    if count > 1 and not (match["plural"] or part == "halves"):
        return None
    return Decimal(count) / PARTS[part] * SCALES.get(scale, Decimal(1))


def _groups(match: re.Match[str], number: str) -> Iterator[tuple[Decimal, int, int]]:
    """The numbers in a run of number words: three hundred and five is one, four five is two."""
    start = match.start("number")
    words = [(word[0].lower(), word.start() + start, word.end() + start) for word in re.finditer(r"\w+", number)]
    if not words:
        return
    sign = -1 if match["negative"] else 1
    total = current = Decimal(0)
    opened, last, end = start, "", start
    for word, begins, ends in words:
        if word in ("and", "a", "an"):
            continue
        word = word if word in SCALES or word in SMALL or word in TENS else word.removesuffix("s")
        if word == "half":
            current += Decimal("0.5")
        elif word in SCALES:
            if word in ("hundred", "dozen"):
                current = (current or 1) * SCALES[word]
            else:
                total += (current or 1) * SCALES[word]
                current = Decimal(0)
        else:
            value = SMALL.get(word, TENS.get(word, 0))
            if not last or last in SCALES or (last in TENS and 0 < value < 10):
                current += value
            elif value >= 10 and 10 <= current < 100 and not total:  # nineteen ninety
                current = current * 100 + value
            else:
                yield sign * (total + current), opened, end
                total, current, opened, sign = Decimal(0), Decimal(value), begins, 1
        end, last = ends, word
    yield sign * (total + current), opened, end


def _decimal(match: re.Match[str]) -> tuple[Decimal, int, int]:
    """A decimal read out: two point five, twelve point seventy-five, point oh five."""
    whole_part = (
        next((value for value, _, _ in spelled(match["whole"])), Decimal(0)) if match["whole"] else Decimal(0)
    )
    decimals, last = "", ""
    for word in re.split("[ -]", match["places"].lower()):
        digits = "0" if word == "oh" else str(SMALL.get(word, TENS.get(word)))
        decimals = decimals[:-1] + digits if last in TENS and digits in "123456789" else decimals + digits
        last = word
    value = whole_part + Decimal(f"0.{decimals}")
    return -value if match["negative"] else value, match.start(), match.end()


def numerals(text: str) -> Iterator[tuple[Decimal, int, int]]:
    """Value, start and end of every number in Chinese or Japanese numerals."""
    for match in _CJK.finditer(text):
        if match[0] == "一" and _NO_ONE.match(text, max(0, match.start() - 1)):
            continue
        value = numeral(match[0])
        if value is not None:
            yield value, match.start(), match.end()


@lru_cache(maxsize=4096)
def numeral(run: str) -> Decimal | None:
    """The value of a Chinese or Japanese numeral, also one with figures, by cn2an; None for other text.

    cn2an needs the one before a hundred that Japanese leaves out.
    """
    from cn2an import cn2an

    plain = run.translate(_CJK_SPELLINGS).strip("点")
    try:
        return Decimal(str(cn2an(_BARE_HUNDRED.sub(r"\1一\2", plain), "smart")))
    except (ValueError, LookupError, TypeError):  # what cn2an raises for what is no numeral
        return None
