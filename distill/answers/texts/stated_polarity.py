"""Whether an answer without "yes" or "no" states what its question asks, or denies it.

"It does", "There isn't any skateboard", "So spoons are fewer than forks" for "Are there fewer spoons than forks?".
Only a sentence of one clause counts, and it must have all words of its question: in the same order, or with one word
replaced by its opposite. For "is there ...?", the words of the thing are enough.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from distill.answers.texts.answer_sentences import LED_IN
from distill.answers.words.spelling import are_opposites
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import CLASSES, COLOURS, SET_AGAINST, denies
from distill.answers.words.word_forms import same_word_form

_LONGEST: Final = 400
_POLAR_QUESTION = re.compile(
    r"(?:is|are|was|were|does|do|did|has|have|had|can|will)\b(?! not\b)(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)
_CAN_SEE = re.compile(r"can (?:you|we|one|i) see (?=(?:an?|any|the|some) )", re.IGNORECASE)
_INDEED = re.compile(
    r"\b(?:indeed|clearly|actually) "
    r"|^(?:there(?: is|['’]s) no (?:doubt|question) (?:that )?|(?:i (?:think|believe)|it is true) that )",
    re.IGNORECASE,
)
_EXISTS = re.compile(
    r"\s*(?:there\s+)(?:any\s+|an?\s+|some\s+|the\s+)*(?P<thing>[^,;?]*?)(?P<place>\s(?:in|on|at|near|under|behind)\s[^?]*)?\?"
)
_SHORT_ANSWER = re.compile(
    r"(?:it|he|she|they|there|those|these|(?:the|an?) \w+)\s"
    r"(?:is|are|was|were|does|do|did|has|have|had|can|will)(?P<not>n['’]t|\snot)?(?:\sone)?\s*(?:$|[.,;:!—–])",
    re.IGNORECASE,
)
_ASSESSED = re.compile(
    r"(?:this|that|it|the (?:statement|claim|sentence))\s(?:is|was)?\s?"
    r"(?P<verdict>(?:not\s|in)?correct|(?:not\s|un)?true|(?:not\s)?right|false|wrong|(?:not\s)?the case|holds"
    r"|does(?:n['’]t| not) hold)(?=\s*(?:$|[.,;:!]|that\b|because\b))",
    re.IGNORECASE,
)
_NEVER = re.compile(r"never\b\s*(?:$|[.,;:!—–])", re.IGNORECASE)
_SMALL: Final = CLASSES["small_of_statement"]
_AND = re.compile(r"[,;]?\s(?:and)\s|[,;]\s", re.IGNORECASE)
_SUBORDINATES = re.compile(r"[:()]|\b(?:but|while|because|since|if|when|although|with|or|than|not)\b", re.IGNORECASE)
_CLAUSES = re.compile(r"[,;:()]|\b(?:and|but|while|because|since|if|when|although|with)\b", re.IGNORECASE)


def stated_polarity(text: str, question: str) -> str | None:
    """ "yes" or "no" by a sentence without these words: "There isn't any" is "no"; None where it leaves this open."""
    question = _CAN_SEE.sub("is there ", question.strip())
    text = _INDEED.sub("", LED_IN.sub("", text, count=1) if LED_IN.match(text) else text)
    asked = _POLAR_QUESTION.match(question) if max(len(text), len(question)) <= _LONGEST else None
    if asked is None or re.search(r"\bor\b", question):
        return None
    if (short := _SHORT_ANSWER.match(text)) is not None:
        return "no" if short["not"] else "yes"
    if (assessed := _ASSESSED.match(text)) is not None:
        return "yes" if assessed["verdict"].lower() in ("correct", "true", "right", "holds", "the case") else "no"
    if _NEVER.match(text):
        return "no"
    exists = _EXISTS.match(asked["rest"])
    if exists is not None and " than " in exists["thing"]:
        exists = None
    wanted = _content(tokens(exists["thing"] if exists is not None else asked["rest"]))
    clause = text.strip(" .!")
    if _AND.search(clause) and not _SUBORDINATES.search(clause) and " and " not in question:
        stated = {stated_polarity(part, question) for part in _AND.split(clause)} - {None}
        return stated.pop() if len(stated) == 1 else None
    if not wanted or _CLAUSES.search(clause):
        return None
    thing = wanted[-1]
    if {"was", "were"} & {*tokens(clause)} and not {"was", "were", "did"} & {*tokens(question)}:
        return None
    if exists is not None and (
        _names_a_kind(tokens(clause), thing) or re.search(rf"\bof {re.escape(thing)}", " ".join(tokens(clause)))
    ):
        return None
    if exists is not None and exists["place"] and not _IMAGE.search(exists["place"]) and _PLACED.search(clause):
        place = (exists["place"].split()[0].lower(), *_content(tokens(exists["place"])))
        if not all(any(same_word_form(word, other) for other in tokens(clause)) for word in place):
            return None
    words = tokens(clause)
    if re.search(rf"\b(?:no|not any|n't any) {re.escape(thing)}\b", " ".join(words)) and words.count("no") < _TWO:
        return "no"
    return _of_statement(words, wanted, exists is not None)


_TWO: Final = 2
_NOWHERE: Final = -2
_ABSENT: Final = frozenset(
    {"absent", "missing", "lacking", "lack", "lacks", "gone", "free", "zero", "nowhere", "few"}
    | {"doubt", "doubts", "doubtful", "deny", "question", "unlikely", "impossible"}
    | {"turning", "becoming", "changing", "before", "previously", "about"}
)
_PLACED = re.compile(r"\b(?:in|on|at|near|under|behind|beside|next|inside|outside)\b", re.IGNORECASE)
_IMAGE = re.compile(r"\b(?:image|picture|photo|photograph|scene|chart|figure|graph|sky)\b", re.IGNORECASE)


def _content(words: Sequence[str]) -> list[str]:
    """The words that say something: "on" only of "the light is on", where it places nothing."""
    after = [*words[1:], ""]
    return [
        word
        for word, following in zip(words, after, strict=False)
        if word not in _SMALL or (word == "on" and following in _NO_THING)
    ]


_NO_THING: Final = frozenset({"", "in", "at", "and", "so"})
"""What follows a preposition that has no noun."""


def _names_a_kind(words: Sequence[str], thing: str) -> bool:
    """Whether the thing is before another noun: a train station is not a train."""
    after = [following for word, following in pairwise(words) if same_word_form(word, thing)]
    return bool(after) and not any(
        word in _SMALL or _PLACED.fullmatch(word) or word in _SEEN or word.endswith(("s", "ed", "ing"))
        for word in after
    )


_SEEN: Final = frozenset({"visible", "present", "there"})


def compares(word: str) -> bool:
    """Whether a word may be a comparative: more, fewer, taller. It can be before or after the compared things."""
    return word in ("more", "fewer", "less", "worse") or (len(word) > _LONGEST_STEM and word.endswith("er"))


_LONGEST_STEM: Final = 4


def _is_another(word: str, other: str, is_last: bool) -> bool:
    """Whether one word excludes the other: open and closed, or, as last words, two colours."""
    return are_opposites(word, other) or (is_last and word != other and {word, other} <= COLOURS)


def _of_statement(words: Sequence[str], wanted: Sequence[str], exists: bool) -> str | None:
    denied = [word for word in words if denies(word)]
    said = [word for word in _content(words) if word not in denied]
    if len(denied) > 1 or _ABSENT & {*said} - {*wanted} or {*said} & (SET_AGAINST - _SMALL) - {*wanted}:
        return None
    place, turned = -1, 0
    for word in wanted:
        if compares(word) and any(same_word_form(word, other) for other in said):
            continue  # fewer spoons than forks, spoons are fewer than forks
        rest = range(place + 1, len(said))
        place = next((index for index in rest if same_word_form(word, said[index])), _NOWHERE)
        if place == _NOWHERE:
            place = next((index for index in rest if _is_another(said[index], word, word == wanted[-1])), _NOWHERE)
            if (
                place != _NOWHERE
                and word == wanted[0]
                and not compares(word)
                and len(wanted) > _TWO
                and said[place] != said[-1]
            ):
                return None  # the left door is open, for the right one
            turned += 1
        if place == _NOWHERE:
            return None
    if turned > 1 or (exists and turned):
        return None
    return "no" if len(denied) + turned == 1 else "yes"
