"""Texts of other scripts in one spelling: simplified characters, no blanks between them, Arabic without articles.

Also whether a Chinese or Japanese sentence states the gold text: 它在左边, 图中的水果是苹果, 犬がいます. Words around
the gold text must only state it, and must not deny, doubt or add another answer. Only words are compared in this
spelling; numbers, units, dates and times are read from the text as written.
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


def other_scripts(text: str) -> str:
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


_LONGEST: Final = 60
_AGAINST = re.compile("[不没非无未莫或和与跟、]|也许|可能|ない|ません|または|かも|たぶん")
_COUNTED: Final = "[一两这那]?[个個只隻辆輛条條种種位名座张張本家件匹头頭块片]?"
_BEFORE: Final = (
    r"(?:[^,，。;；]{0,20}?(?:[是为為在有向到朝呈叫做选]|正?在[打踢玩放弹吃喝看读]|拿着|戴着|穿着"
    rf"|显示|指向|位于|写着|来自|变得|[はがに]))?{_COUNTED}的?[\"“「『]?"
)
_AFTER: Final = (
    r"[\"”」』]?(?:[をと](?:意味し|表し|書(?:か|い)て(?:い|あり)|書いてあり)ます)?"
    r"(?:[上里中内]|色|方向?|[边邊侧側面市区國国])?(?:[的了い]|色)?"
    r"(?:[线線柱条条]|颜色|部分|国家|城市|趋势|の[^、。]{1,6})?"
    r"(?:です|でした|だ|である|になります|が?(?:い|あ)り?ます|が(?:いる|ある)|に(?:い|あ)り?ます)?[。.!！]?"
)
_SMALL: Final = frozenset('的是在了有也都い。. "“”「」『』')
_LED_IN = re.compile(
    "^(?:从[图表].{0,6}(?:看出|可见|可知)|根据[^，,、]{1,12}|[^，,、]{1,12}によると|[図表]から)[，,、]"
)
_COUNTED_OUT = re.compile(r"(?:[，,、]|で、)(?:为|約|约|共|有|是)?[\d.,]+\s?[%％万億亿元円人個个吨]*(?:です)?[。.]?$")
"""A figure that a sentence only adds to its answer: 最も高いのは食費で、28%です."""
_COMPARES: Final = frozenset("比较把被给や給")
_ENDINGS: Final = ("です", "色", "的", "了", "边", "侧", "面", "側", "邊")


def states_in_han(text: str, gold: str, question: str = "") -> bool:
    """Whether a text says no more than the gold text in a sentence, or else only what the question says."""
    core = gold.strip("。 ")
    for ending in _ENDINGS:
        core = core.removesuffix(ending) or core
    text = _LED_IN.sub("", _COUNTED_OUT.sub("", text.strip()))
    if not core or len(text) > _LONGEST or core not in text or _AGAINST.search(text.replace(core, "", 1)):
        return False
    rest = {*text.replace(core, "", 1)} - _SMALL
    asked = {*other_scripts(question)}
    if rest and rest <= asked and not {*core} <= asked and not _COMPARES & asked:
        return True
    return re.fullmatch(_BEFORE + re.escape(core) + _AFTER, text.strip()) is not None
