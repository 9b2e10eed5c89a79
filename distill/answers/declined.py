"""Whether a text says that it cannot answer: the picture is missing, the writing illegible, the data not enough.

A number or letter that such a text mentions ("I cannot open chart 12") is no answer.
"""

import re
from functools import lru_cache
from typing import Final

from distill.answers import choices
from distill.answers.compare_result import CompareResult, correct, wrong
from distill.answers.number_answers import GoldAnswer

_VERBS: Final = (
    r"(?:see|view|open|read|access|determine|tell|answer|find|identify|make out|know|infer|load|display|say|calculate"
    r"|compute|provide|give|help|make|verify|confirm|locate|recogni[sz]e)"
)
_DONE: Final = r"(?:determined|answered|seen|read|identified|known|found|inferred|opened|made out|told|said)"
_DECLINES = re.compile(
    rf"\b(?:cannot|can't|can ?not|could not|couldn't|unable to|not able to|impossible to|not possible to|no way to)\s"
    rf"(?:\w+\s){{0,2}}?(?:be {_DONE}|{_VERBS})\b"
    r"|\b(?:no|without|lack|don't have|do not have|have no) (?:\w+ )?access\b"
    r"|\b(?:not enough|insufficient|too few|too little) (?:\w+ )?(?:information|data|context|details?|evidence)\b"
    r"|\b(?:could not|couldn't|cannot|can't|was not|wasn't|failed to) (?:be )?(?:load(?:ed)?|opened|found|rendered)\b"
    r"|\b(?:sorry|apologi[sz]e|unanswerable|illegible|unreadable)\b"
    r"|\bno (?:readable|visible|legible|discernible) \w+|\b(?:is|are) not (?:visible|readable|legible|shown|provided"
    r"|given|available|specified|stated|mentioned|clear)\b|\bi (?:do not|don't) (?:see|know)\b|\bi can only see\b"
    r"|\bno (?:image|picture|photo|chart|figure) (?:is|was|has been|provided|attached|available)\b"
    r"|\bcan neither\b|\bneither\b.{0,30}\bcan be\b|\bkann (?:ich )?(?:\w+ )?nicht\b|\bno puedo\b|\bje ne peux pas\b"
    r"|\bnon posso\b|\bnão posso\b|无法|不能|できません|見えません|لا أستطيع|لا يمكن|नहीं देख"
    r"|^(?:unanswerable|unknown|not answerable|undetermined|none visible|n/a|not applicable)\W*$",
    re.IGNORECASE,
)
_YET = re.compile(r"\b(?:but|however|although|though|still|yet|so|therefore|thus|hence)\b|=", re.IGNORECASE)

_HINTS_TEXT: Final = (
    "can|could|unable|able to|possible|not |no |without|lack|n't|sorry|apolog|insufficient|answerable|"
    "illegible|unread|unknown|undeterm|none|n/a|only see|无法|不能|ません|few |little |failed|nicht|pas|non |"
    "não|لا |नहीं"
)
_HINTS: Final = tuple(_HINTS_TEXT.split("|"))
"""Every such text has one of them: a cheap test before the regular expression."""


@lru_cache(maxsize=1 << 11)
def declines(text: str) -> bool:
    """Whether a text declines to answer and gives no answer after that."""
    lowered = text.lower()
    if not any(map(lowered.__contains__, _HINTS)):
        return False
    match = _DECLINES.search(text)
    return match is not None and _YET.search(text, match.end()) is None


def compare_declined(result: CompareResult, text: str, gold: GoldAnswer) -> CompareResult:
    """One of the two declines to answer: correct if both do; other words of a refusal are no answer."""
    if gold.answer_type == "choice":
        refusing = {letter for letter, option in zip(choices.LETTERS, gold.options, strict=False) if declines(option)}
        if result.verdict == "correct" and not refusing and declines(text) and not choices.begins_with_letter(text):
            return wrong("declined")
        if len(refusing) == 1 and declines(text) and result.reason == "no_choice_found":
            return (
                correct("same_choice")
                if choices.find_gold_letter(gold.text, gold.options) in refusing
                else wrong("declined")
            )
        return result
    if declines(text) and declines(gold.text):
        return correct("both_declined")
    if result.verdict == "correct" and result.reason not in ("same_words", "same_text"):
        return wrong("declined")
    return result
