"""Numbers written in words of other languages: six of western Europe, Hindi, Arabic, Russian and Korean.

German, French, Spanish, Italian, Portuguese and Dutch are read by text2num. Only whole words of a short text without
digits are looked at, since a word of one language is another word elsewhere (the English "once" is eleven in
Spanish). Ordinals are left out.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from distill.answers.numbers.number_words import numeral
from distill.word_tables import longest_first, read_table

_TABLE: Final = read_table(__file__)
LONGEST: Final = 80
"""Characters of a text that can be a number in words with its unit."""
_LANGUAGES: Final = ("de", "fr", "es", "it", "pt", "nl")
_WORD = re.compile(r"(?:[^\W\d_]|[\u0300-\u036f\u0900-\u0963\u064b-\u065f])+")
_HINT = re.compile(
    r"ein|halb|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|zig\b|ßig|null"
    r"|un|deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|vingt|trente|ante\b|cent|mil|zéro"
    r"|dos|tres|trece|catorce|quince|dieci|quindici|tredici|quattordici|sedici|cuatro|cinco|siete|ocho|nueve|diez|once|doce|veint|enta\b|cero|ciento|cien\b"
    r"|due|tre|quattro|cinque|sette|otto|nove|dieci|undici|dodici|venti|anta\b"
    r"|dois|duas|três|quatro|seis|sete|oito|dez|doze|catorze|vinte|trinta|cem\b"
    r"|twee|drie|vijf|\bzes\b|zeven|negen|tien|twaalf|tig\b|honderd"
    r"|\bsei\b|quinientos|cientos|cuart|tiers|terc|terz|drittel|viertel|[\u0400-\u04ff\u0600-\u06ff\u0900-\u097f\uac00-\ud7a3]",
    re.IGNORECASE,
)
_ENGLISH_TEXT: Final = "once elf due cent mil six ten an on million milliard billion trillion nil dice door"
_ENGLISH: Final = frozenset(_ENGLISH_TEXT.split())
"""Words that are no number, or the same one, in an English text."""
_ARTICLES: Final = frozenset(["ein", "eine", "einen", "un", "une", "uno", "una", "um", "uma", "een", "één"])
_MINUS: Final = frozenset(["minus", "moins", "menos", "meno", "min"])
_AND_A_HALF = re.compile(r"\s(?:y medi[oa]|et demie?|e mezz[oa]|e mei[oa])\b", re.IGNORECASE)
_HALF_INSIDE = re.compile(r"\b(\w*?)(?:und)?einhalb\b", re.IGNORECASE)
_FIGURES = re.compile(r"\d+(?:\.\d+)?")
"""What text2num writes for one number; for some runs of words it writes no number."""
_THOUSAND: Final = 1000


class Spelled(NamedTuple):
    value: Decimal
    start: int
    end: int


def foreign_numbers(text: str) -> tuple[Spelled, ...]:
    """The numbers in words of another language, each with its place, read in the language that explains the most."""
    return _spelled(text) if len(text) <= LONGEST and _HINT.search(text) else ()


@lru_cache(maxsize=4096)
def _spelled(text: str) -> tuple[Spelled, ...]:
    words = [(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]
    if re.search("[\u0400-\u04ff\u0600-\u06ff\u0900-\u097f\uac00-\ud7a3]", text):
        return tuple(_by_table(words))
    halved = _halved(text)
    if halved:
        return halved
    readings = [numbers for language in _LANGUAGES if (numbers := tuple(_read(text, words, language)))]
    if not readings:
        return ()
    longest = max(map(_characters_read, readings))
    best = {
        tuple(item.value for item in numbers): numbers for numbers in readings if _characters_read(numbers) == longest
    }
    return best.popitem()[1] if len(best) == 1 else ()


def _characters_read(numbers: tuple[Spelled, ...]) -> int:
    return sum(item.end - item.start for item in numbers)


class _Word:
    """A word as text2num wants it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def text(self) -> str:
        return self._text

    def nt_separated(self, _: "_Word") -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return False


def _read(text: str, words: list[tuple[str, int, int]], language: str) -> Iterator[Spelled]:
    from text_to_num import find_numbers

    read_to = 0
    for match in find_numbers([_Word(word.lower()) for word, _, _ in words], language, 0.0):
        first, last = words[match.start], words[match.end - 1]
        if first[1] < read_to:
            continue
        inside = {word.lower() for word, _, _ in words[match.start : match.end]}
        part = _FOREIGN_PART.match(text, last[2])
        if (
            inside <= _ENGLISH
            or (inside <= _ARTICLES and len(words) > 1 and part is None)
            or not _FIGURES.fullmatch(figures := match.text.replace(",", ".").lstrip("+-"))
        ):
            continue
        value = Decimal(figures)
        start, end = first[1], last[2]
        if part is not None:
            value, end = value / _FOREIGN_PARTS[part[1].lower()], part.end()
            read_to = end
        if (half := _AND_A_HALF.match(text, end)) is not None:
            value, end = value + Decimal("0.5") * _scale(value), half.end()
        before = words[match.start - 1] if match.start else None
        if match.text.startswith("-") or (before is not None and before[0].lower() in _MINUS):
            value, start = -value, before[1] if before is not None and before[0].lower() in _MINUS else start
        yield Spelled(value, start, end)


_FOREIGN_PARTS: Final = {name: int(part) for part, names in _TABLE["parts"].items() for name in names.split()}
_FOREIGN_PART = re.compile(rf"\s({longest_first(_FOREIGN_PARTS)})\b", re.IGNORECASE)


def _scale(value: Decimal) -> int:
    """What "and a half" halves: two millions and a half."""
    scale = 1
    while value and value % (scale * _THOUSAND) == 0:
        scale *= _THOUSAND
    return scale


def _halved(text: str) -> tuple[Spelled, ...]:
    """German halves: anderthalb, zweieinhalb."""
    match = re.search(r"\banderthalb\b", text, re.IGNORECASE)
    if match is not None:
        return (Spelled(Decimal("1.5"), match.start(), match.end()),)
    match = _HALF_INSIDE.search(text)
    if match is None:
        return ()
    whole_numbers = list(_read(match[1], [(match[1], 0, len(match[1]))], "de")) if match[1] else []
    value = whole_numbers[0].value if whole_numbers else Decimal(1)
    return (Spelled(value + Decimal("0.5"), match.start(), match.end()),)


# --- Hindi and Arabic ---------------------------------------------------------------------------------------------

_SINO_KOREAN: Final = str.maketrans("영공일이삼사오육륙칠팔구십백천만억", "零零一二三四五六六七八九十百千万亿")
_SINO_KOREAN_NUMBER = re.compile("[영공일이삼사오육륙칠팔구십백천만억]+")
_KOREAN: Final = {
    **{word: value for value, word in enumerate(_TABLE["korean"].split())},
    **{"하나": 1, "둘": 2, "셋": 3, "넷": 4},
}
_BY_NAME: Final = {
    **_KOREAN,
    **{
        ten + one: 10 * tens + value
        for tens, ten in enumerate(_TABLE["korean_tens"].split(), start=1)
        for one, value in {**_KOREAN, "": 0}.items()
    },
    "스무": 20,
    **{word: 10 * value for value, word in enumerate(_TABLE["russian_tens"].split(), start=6)},
    **{word: 100 * value for value, word in enumerate(_TABLE["russian_hundreds"].split(), start=1)},
    **{word: value for value, word in enumerate(_TABLE["russian"].split())},
    **{"одна": 1, "две": 2, "тридцать": 30, "сорок": 40, "пятьдесят": 50},
    **{word: value for value, word in enumerate(_TABLE["hindi"].split())},
    **{"पांच": 5, "छः": 6, "छ": 6, "पन्द्रह": 15, "अठाईस": 28, "छे": 6},
    **{word: value for value, word in enumerate(_TABLE["arabic"].split())},
    **{word.removesuffix("ه"): value for value, word in enumerate(_TABLE["arabic"].split()) if value > 2},
    **{word: 10 * value for value, word in enumerate(_TABLE["arabic_tens"].split(), start=2)},
    **{word[:-2] + "ين": 10 * value for value, word in enumerate(_TABLE["arabic_tens"].split(), start=2)},
    **{"واحده": 1, "اثنين": 2, "اثنتان": 2, "اثنتين": 2, "احد": 1, "احدي": 1, "احدى": 1, "اثنا": 2, "ثماني": 8},
}
_SCALES: Final = {"सौ": 100, "हज़ार": 1000, "हजार": 1000, "लाख": 10**5, "करोड़": 10**7} | {
    **{"مئه": 100, "مائه": 100, "مئتان": 200, "مئتين": 200, "مائتان": 200, "الف": 1000, "الاف": 1000, "الفان": 2000},
    **{"тысяча": 1000, "тысячи": 1000, "тысяч": 1000, "миллион": 10**6, "миллиона": 10**6, "миллионов": 10**6},
    **{"مليون": 10**6, "ملايين": 10**6, "مليار": 10**9},
}
_HINDI_HALVES: Final = {"डेढ़": Decimal("1.5"), "ढाई": Decimal("2.5")}
_QUARTERS: Final = {"साढ़े": Decimal("0.5"), "सवा": Decimal("0.25"), "पौने": Decimal("-0.25")}
_ARABIC_MARKS = re.compile("[\u064b-\u065f\u0640]")

_ARABIC_LETTERS: Final = str.maketrans("أإآةى", "اااهي")


def _by_table(words: list[tuple[str, int, int]]) -> Iterator[Spelled]:
    """One number of neighbouring words: both languages say a hundred and five in this order."""
    total = current = Decimal(0)
    shift = Decimal(0)
    start: int | None = None
    end = 0
    for raw, begins, ends in _joined_korean(words):
        value = _sino_korean(raw) if len(words) == 1 or len(raw) > 1 else None
        value = value or _named(raw)
        if value is None and start is None:
            continue
        if value is None:
            break
        start, end = begins if start is None else start, ends
        kind, amount = value
        if kind == "shift":
            shift = amount
        elif kind == "scale":
            amount_of = (current + shift) or Decimal(1)
            shift = Decimal(0)
            current = amount_of * amount
            if amount > 100:
                total, current = total + current, Decimal(0)
        else:
            current += amount
    if start is not None:
        yield Spelled(total + current + shift, start, end)


def _joined_korean(words: list[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """Neighbouring words of Sino-Korean signs as one: 만 오천."""
    joined: tuple[str, int, int] | None = None
    for word in words:
        if joined is not None and _SINO_KOREAN_NUMBER.fullmatch(word[0]) and _SINO_KOREAN_NUMBER.fullmatch(joined[0]):
            joined = (joined[0] + word[0], joined[1], word[2])
            continue
        if joined is not None:
            yield joined
        joined = word
    if joined is not None:
        yield joined


def _sino_korean(word: str) -> tuple[str, Decimal] | None:
    """삼백이십; a single sign is a number only where it is the whole answer."""
    number = numeral(word.translate(_SINO_KOREAN)) if _SINO_KOREAN_NUMBER.fullmatch(word) else None
    return None if number is None else ("number", number)


def _named(raw: str) -> tuple[str, Decimal] | None:
    word = _ARABIC_MARKS.sub("", raw.lower()).translate(_ARABIC_LETTERS)
    for name in (word, word.removeprefix("و")):
        if name in _QUARTERS:
            return "shift", _QUARTERS[name]
        if name in _HINDI_HALVES:
            return "number", _HINDI_HALVES[name]
        if name in _SCALES:
            return "scale", Decimal(_SCALES[name])
        if name in _BY_NAME:
            return "number", Decimal(_BY_NAME[name])
    return None
