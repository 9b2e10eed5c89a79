"""In which scripts a text is written: letters counted by Unicode script, each as long as its romanisation.

Digits, marks, punctuation and symbols have no script. Languages are not looked at.
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Final

from filters.text.shared_texts import shared

_ASCII_LETTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NOT_LETTERS: Final = bytes(byte for byte in range(256) if byte not in _ASCII_LETTERS)
_ASCII: Final = bytes(range(128))
_OTHER: Final = re.compile(r"[^\x00-\x7f]+")
# What is not here is Latin, with or without marks, or of no script: dashes, quotes, arrows, other signs.
_NOT_LATIN: Final = re.compile("[^\x00-\u024f\u1e00-\u1eff\u2000-\u2bff]")
# Greek letters on their own are the signs of formulas; Greek words have three or more.
_GREEK: Final = re.compile("[\u0370-\u03ff]")
_GREEK_SIGNS: Final = re.compile(
    r"(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0370-\u03ff]{1,2}(?![\u0370-\u03ff\u1f00-\u1fff])"
)

_NAMES: Final = {
    "LATIN": "latin",
    "CJK": "han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "KATAKANA-HIRAGANA": "kana",
    "HANGUL": "hangul",
}
# What one character takes when it is written in Latin letters, so that shares compare contents and not keystrokes.
_LENGTHS: Final = {"han": 3, "kana": 2, "hangul": 2}
# Blocks of which every character is a letter of one script; the others are looked up one by one.
_BLOCKS: Final = (
    ("han", re.compile("[\u4e00-\u9fff]+")),
    ("hangul", re.compile("[\uac00-\ud7a3]+")),
    ("cyrillic", re.compile("[\u0410-\u044f]+")),
)
_KANA_SHARE: Final = 0.1
"""From this share of kana on, Han characters are Japanese writing; Chinese quotes a few kana at most."""


def scripts(text: str) -> Counter[str]:
    """Letters by script: latin, han, japanese, hangul, cyrillic, greek, arabic, hebrew, thai and so on."""
    return _count_letters(text).copy()


@lru_cache(maxsize=4)
def _count_letters(text: str) -> Counter[str]:
    """A text without quotes is often the text itself."""
    counts: Counter[str] = Counter()
    latin = latin_letters(text)
    if latin:
        counts["latin"] = latin
    if text.isascii():
        return counts
    rest = _beyond_ascii(text)
    if _GREEK.search(rest):
        rest = _GREEK_SIGNS.sub("", " ".join(_OTHER.findall(text)))
    for script, letters in _BLOCKS:
        without_script = letters.sub("", rest)
        if len(without_script) < len(rest):
            counts[script] += (len(rest) - len(without_script)) * _LENGTHS.get(script, 1)
            rest = without_script
    for character, count in Counter(rest).items():
        script_name = script_of(character)
        if script_name:
            counts[script_name] += count * _LENGTHS.get(script_name, 1)
    return _with_japanese(counts)


def latin_letters(text: str) -> int:
    """The number of letters from A to Z."""
    return len(text.encode("utf-8", "surrogatepass").translate(None, _NOT_LETTERS))


@shared
def latin_alone(text: str) -> bool:
    """Whether a text certainly has no letter of a script other than Latin; faster than to count."""
    return text.isascii() or not _NOT_LATIN.search(_beyond_ascii(text))


def _beyond_ascii(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").translate(None, _ASCII).decode("utf-8", "surrogatepass")


def _with_japanese(counts: Counter[str]) -> Counter[str]:
    kana = counts.pop("kana", 0)
    if kana:
        if kana >= _KANA_SHARE * (kana + counts["han"]):
            kana += counts.pop("han", 0)
        counts["japanese"] = kana
    return counts


@lru_cache(maxsize=1 << 16)
def script_of(character: str) -> str | None:
    """The script of one letter; None for everything that is not a letter of words."""
    # Ordinals such as "5º", and letters that are signs: of units, of sets, raised or in a circle.
    if character in "ªº" or "\u2070" <= character <= "\u218f":
        return None
    if unicodedata.category(character) not in ("Lu", "Ll", "Lt", "Lo", "Lm"):
        return None
    words = unicodedata.name(character, "").split()
    if words and words[0] in ("FULLWIDTH", "HALFWIDTH"):
        words = words[1:]
    if not words or words[0] in ("MATHEMATICAL", "MICRO", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "MODIFIER"):
        return None
    return _NAMES.get(words[0], words[0].lower())
