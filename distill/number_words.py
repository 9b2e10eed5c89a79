"""Numbers written in words: English number words, Chinese and Japanese numerals, and scale words of a few languages.

Gives values and where they stand in a text; what is said around a number is the matter of `distill.numbers`.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

_SMALL_TEXT: Final = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen"""
_TENS_TEXT: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
SMALL: Final = {word: value for value, word in enumerate(_SMALL_TEXT.split())}
TENS: Final = {word: 10 * value for value, word in enumerate(_TENS_TEXT.split(), start=2)}
_ORDINALS_TEXT: Final = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
ORDINALS: Final = {word: Decimal(value) for value, word in enumerate(_ORDINALS_TEXT.split(), start=1)}
PARTS: Final = {
    **{"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7},
    **{"eighth": 8, "ninth": 9, "tenth": 10, "hundredth": 100, "thousandth": 1000},
}
_K, _M, _G, _T = (Decimal(10) ** power for power in (3, 6, 9, 12))
SCALES: Final[dict[str, Decimal]] = {
    "hundred": Decimal(100),
    "dozen": Decimal(12),
    "lakh": Decimal(10**5),
    "crore": Decimal(10**7),
    **dict.fromkeys(["thousand", "tausend", "tsd", "duizend", "mila", "тысяча", "тысяч", "тысячи", "тыс"], _K),
    **dict.fromkeys(
        [
            "million",
            "mn",
            "mln",
            "mio",
            "mil",
            "millionen",
            "millones",
            "millón",
            "milione",
            "milioni",
            "milhão",
            "milhões",
        ],
        _M,
    ),
    **dict.fromkeys(["miljoen", "miljoner", "milhoes", "millon", "миллион", "миллиона", "миллионов", "млн"], _M),
    **dict.fromkeys(
        ["billion", "bn", "bln", "milliard", "milliarde", "milliarden", "miliardi", "mrd", "миллиард", "миллиарда"],
        _G,
    ),
    **dict.fromkeys(["миллиардов", "млрд"], _G),
    **dict.fromkeys(["trillion", "tn", "trn"], _T),
    **{"百": Decimal(100), "千": _K, "천": _K, "万": Decimal(10**4), "萬": Decimal(10**4), "만": Decimal(10**4)},
    **{"億": Decimal(10**8), "亿": Decimal(10**8), "억": Decimal(10**8), "兆": _T},
}
OTHER_SCALES: Final = {"mil": _K}
"""Second readings: short for million in English, thousand in Spanish and Portuguese."""

_NAMES: Final = "|".join(sorted({*SMALL, *TENS}, key=len, reverse=True))
_SCALE_NAMES: Final = "hundred|thousand|million|billion|trillion"
_SPELLED = re.compile(
    r"\b(?:(?P<count>one|two|three|four|five|six|seven|eight|nine|ten)[ -]|an?\s)?"
    r"(?P<part>half|halves|third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth)(?P<plural>s?)\b(?!-)"
    rf"(?:\s(?:of\s)?an?\s(?P<scale>{_SCALE_NAMES}|dozen|percent))?"
    rf"|\b(?P<negative>minus |negative )?(?P<number>(?:(?:a|an)\s(?={_SCALE_NAMES}|dozen))?"
    rf"(?:{_NAMES}|{_SCALE_NAMES}|dozen)(?:(?:\sand\s|-|\s)(?:{_NAMES}|{_SCALE_NAMES}|dozen)s?\b)*"
    rf"(?:\sand\sa\shalf(?:\s(?:{_SCALE_NAMES}))?)?)\b(?!-)",
    re.IGNORECASE,
)
_HINTS = re.compile(
    r"(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|teen|ty|hundred|thousand|illion|dozen"
    r"|half|halves|third|quarter|fifth|sixth|seventh|eighth|ninth|tenth)",
    re.IGNORECASE,
)
_CJK_DIGITS: Final = {character: value for value, character in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
    "兩": 2,
}
_CJK_TENS: Final = {"十": 10, "百": 100, "千": 1000}
_CJK_SCALES: Final = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_CJK = re.compile("[零〇一二两兩三四五六七八九十百千万萬亿億]+")


def spelled(text: str) -> Iterator[tuple[Decimal, int, int]]:
    """Value, start and end of every number in English words. A bare "third" or "half" is none."""
    if _HINTS.search(text) is None:
        return
    for match in _SPELLED.finditer(text):
        if match["number"]:
            yield from _groups(match)
        else:
            value = _part(match)
            if value is not None:
                yield value, match.start(), match.end() - len("percent" if _is_percent(match) else "")


def _is_percent(match: re.Match[str]) -> bool:
    return (match["scale"] or "").lower() == "percent"


def _part(match: re.Match[str]) -> Decimal | None:
    """A fraction in words: two thirds, a quarter of a million."""
    part = match["part"].lower()
    divisor = 2 if part == "halves" else PARTS[part]
    scale = (match["scale"] or "").lower()
    if match["count"] is None and not scale:
        return None
    count = SMALL[match["count"].lower()] if match["count"] else 1
    if count > 1 and not (match["plural"] or part == "halves"):
        return None
    return Decimal(count) / divisor * SCALES.get(scale, Decimal(1))


def _groups(match: re.Match[str]) -> Iterator[tuple[Decimal, int, int]]:
    """The numbers in a run of number words: three hundred and five is one, four five is two."""
    start = match.start("number")
    words = [
        (word[0].lower(), word.start() + start, word.end() + start) for word in re.finditer(r"\w+", match["number"])
    ]
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


def numerals(text: str) -> Iterator[tuple[Decimal, int, int]]:
    """Value, start and end of every number in Chinese or Japanese numerals."""
    for match in _CJK.finditer(text):
        value = _numeral(match[0])
        if value is not None:
            yield value, match.start(), match.end()


def _numeral(run: str) -> Decimal | None:
    if all(character in _CJK_DIGITS for character in run):
        return Decimal("".join(str(_CJK_DIGITS[character]) for character in run))
    total = section = 0
    digit: int | None = None
    for character in run:
        if character in _CJK_DIGITS:
            digit = _CJK_DIGITS[character]
        elif character in _CJK_TENS:
            section += (1 if digit is None else digit) * _CJK_TENS[character]
            digit = None
        else:
            total = (total + section + (digit or 0)) * _CJK_SCALES[character] if section or digit else 0
            section, digit = 0, None
    value = total + section + (digit or 0)
    return Decimal(value) if value or run in ("零", "〇") else None
