"""One writing for the words of other scripts: simplified characters, no blanks between them, Arabic without articles.

Is for the comparison of words only: numbers, units, dates and times are read from the text as it is written.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Final

_HAN_TEXT: Final = "\u3040-\u30ff\u3400-\u9fff々"
_HAN = re.compile(f"[{_HAN_TEXT}]")
_BETWEEN_HAN = re.compile(f"(?<=[{_HAN_TEXT}])[\\s・·•]+(?=[{_HAN_TEXT}])")
_ASIDE = re.compile(r"(?<=\S)\s?\([^()\d\u3400-\u9fff]{1,60}\)[.。]?$")
_DOUBT = re.compile("[不没非否或]|ない|ません|\\b(?:not|or|no)\\b|n't", re.IGNORECASE)
_ARABIC = re.compile("[\u0621-\u064a]")
_ARABIC_MARKS = re.compile("[\u064b-\u065f\u0640]|\u0627(?=\u064b)")
_ARABIC_LETTERS: Final = str.maketrans("أإآةى", "اااهي")
_ARABIC_ARTICLE = re.compile("(?<![\u0621-\u064a])(?:[وبك]?ال|لل)(?=[\u0621-\u064a]{3})")


def plain_abroad(text: str) -> str:
    """A normalised text in the one writing of its script."""
    if text.isascii():
        return text
    if _HAN.search(text):
        text = _BETWEEN_HAN.sub("", _simplified()(text))
        aside = _ASIDE.search(text)
        if aside is not None and not _DOUBT.search(aside[0]):
            text = text[: aside.start()]  # how it is read, or what it is in English: 大熊猫 (giant panda)
    if _ARABIC.search(text):
        text = _ARABIC_MARKS.sub("", text).translate(_ARABIC_LETTERS)
        text = _ARABIC_ARTICLE.sub("", text)
    return text


@cache
def _simplified() -> Callable[[str], str]:
    """From traditional to simplified characters; texts without Chinese characters do not load the library."""
    from opencc import OpenCC

    convert: Callable[[str], str] = OpenCC("t2s").convert
    return convert
