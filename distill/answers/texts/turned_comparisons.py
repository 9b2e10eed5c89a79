"""A difference that an answer says the other way than its question: 6 fewer for "how many more"."""

import re
from typing import Final

from distill.answers.texts.words import tokens

_MORE_THAN = re.compile(
    r"\b(?P<sign>more|higher|larger|greater|longer|taller|older|fewer|less|lower|smaller|shorter|younger)\b"
    r"(?P<first>[^.,;?]{0,60}?) than (?P<second>[^.,;?]{1,60})",
    re.IGNORECASE,
)
_LESS: Final = frozenset({"fewer", "less", "lower", "smaller", "shorter", "younger"})


def turns_around(text: str, question: str) -> bool:
    """Whether an answer says the difference the other way than its question: 6 fewer for "how many more"."""
    asked, said = _MORE_THAN.search(question) if question else None, _MORE_THAN.search(text)
    if asked is None or said is None:
        return False
    first, second, said_first, said_second = (
        {*tokens(match[name])} for match in (asked, said) for name in ("first", "second")
    )
    swapped = bool(said_first & second - first and said_second & first - second)
    opposite = (asked["sign"].lower() in _LESS) != (said["sign"].lower() in _LESS)
    return opposite != swapped
