"""Whether a Chinese or Japanese sentence states the gold text: 它在左边, 图中的水果是苹果, 犬がいます, 青いです.

Only the words of such a sentence may stand around the gold text, and none that denies, doubts or adds another.
"""

import re
from typing import Final

_LONGEST: Final = 60
_AGAINST = re.compile("[不没非无未莫或和与跟、]|也许|可能|ない|ません|または|かも|たぶん")
_COUNTED: Final = "[一两这那]?[个個只隻辆輛条條种種位名座张張本家件匹头頭块片]?"
_BEFORE: Final = (
    rf"(?:[^,，。;；]{{0,20}}?(?:[是为為在有向到朝呈叫做选]|显示|指向|位于|写着|来自|变得|[はがに]))?{_COUNTED}的?"
)
_AFTER: Final = (
    r"(?:[上里中内]|色|方向?|[边邊侧側面市区國国])?(?:[的了い]|色)?"
    r"(?:[线線柱条条]|颜色|部分|国家|城市|趋势|の[^、。]{1,6})?"
    r"(?:です|でした|だ|である|になります|が?(?:い|あ)り?ます|が(?:いる|ある)|に(?:い|あ)り?ます)?[。.!！]?"
)
_SMALL: Final = frozenset("的是在了有也都。. ")
_COMPARES: Final = frozenset("比较把被给や給")
_ENDINGS: Final = ("です", "色", "的", "了", "边", "侧", "面", "側", "邊")


def states_in_han(text: str, gold: str, question: str = "") -> bool:
    """Whether a text says no more than the gold text in a sentence, or else only what the question says."""
    core = gold.strip("。 ")
    core = core.lstrip("在向") or core
    for ending in _ENDINGS:
        core = core.removesuffix(ending) or core
    if not core or len(text) > _LONGEST or core not in text or _AGAINST.search(text.replace(core, "", 1)):
        return False
    rest = {*text.replace(core, "", 1)} - _SMALL
    if rest and rest <= {*question} and not {*core} <= {*question} and not _COMPARES & {*question}:
        return True
    return re.fullmatch(_BEFORE + re.escape(core) + _AFTER, text.strip()) is not None
