"""Names of persons in their usual forms: with a title or a degree, and with the family name first."""

import re
from typing import Final

from distill.answers.texts.words import tokens

_TITLE = re.compile(
    r"(?:(?P<title>dr|mr|mrs|ms|miss|prof|professor|sir|doctor|mister|madam)\b\.?\s+)+", re.IGNORECASE
)
_DEGREE = re.compile(
    r"(?:,?\s(?:M\.?D|Ph\.?\s?D|Esq|CPA|R\.?N|D\.?D\.?S|MBA|P\.?E|J\.?D|LL\.?M|DVM|M\.?S|B\.?S|M\.?A|B\.?A)\b\.?)+$"
)
_FAMILY_NAME_FIRST = re.compile(
    r"(?P<family>[^\W\d_][\w'-]+(?: [\w'-]+)?), (?P<given>[^\W\d_][\w'.-]*(?: [\w'.-]+){0,2})"
)
_SEX: Final = {"mr": "m", "mister": "m", "sir": "m", "mrs": "f", "ms": "f", "miss": "f", "madam": "f"}
_NO_GIVEN_NAME: Final = frozenset({"jr", "sr", "inc", "ltd", "llc", "co", "corp", "director", "president", "manager"})
_LONGEST: Final = 60


def same_person(text: str, gold: str) -> bool:
    """Whether two names of one person differ only in title, degree and order."""
    if max(len(text), len(gold)) > _LONGEST:
        return False
    (title, words), (gold_title, gold_words) = _parts(text), _parts(gold)
    if title and gold_title and _SEX.get(title, "") != _SEX.get(gold_title, "") and {title, gold_title} <= set(_SEX):
        return False
    return len(gold_words) > 1 and words == gold_words and all(word.isalpha() for word in gold_words)


def _parts(name: str) -> tuple[str, tuple[str, ...]]:
    """The title in lower case, and the words of the name in their usual order."""
    name = _DEGREE.sub("", name.strip())
    title = _TITLE.match(name)
    if title is not None:
        name = name[title.end() :]
    swapped = _FAMILY_NAME_FIRST.fullmatch(name)
    if swapped is not None and not set(tokens(swapped["given"])) & _NO_GIVEN_NAME:
        name = f"{swapped['given']} {swapped['family']}"
    return ("" if title is None else title["title"].lower()), tokens(name)
