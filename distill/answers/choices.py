"""Option letters: which choice a text names, by its letter or by the words of an option.

Gives letters, not verdicts: `distill.answers.verdicts` compares them.
"""

import re
from collections.abc import Sequence
from typing import Final

from distill.answers.numbers import quantities, single
from distill.answers.pick_number import stated
from distill.answers.text_answers import NEGATIONS, tokens

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SO = re.compile(
    r"\b(?:[Ss]o|[Tt]hus|[Hh]ence|[Tt]herefore|leaving|leaves),?\s(?:only\s|it is\s|it's\s)?(?:option\s|choice\s)?"
    r"\(?([A-Z])\)?[.!]?$"
)
_AFFIRMED = re.compile(
    r"(?<![\w'])\(?([A-Z])\)?,?\s(?:is|must be|has to be)\s(?:the\s)?(?:only\s)?(?:right|correct|true|answer)\b"
)
_ORDINAL = re.compile(
    r"(?:it is |it's )?the (first|second|third|fourth|fifth|sixth) (?:option|choice)", re.IGNORECASE
)
_ORDINALS: Final = dict(zip(("first", "second", "third", "fourth", "fifth", "sixth"), LETTERS, strict=False))
_AND_NOT = re.compile(r",? (?:and |but )?not .+$")
_LEADING_LETTER = re.compile(r"\(?([A-Za-z])(?:[).:]|\)\s*[:.])(?=\s|$)|\(([A-Za-z])\)|\[([A-Za-z])\]")
_LABEL = re.compile(r"(?<![\w'])([A-Z])[.):]\s(?=\S)")
_PARENTHESISED = re.compile(r"[(\[]([A-Za-z])[)\]]")
_BARE = re.compile(r"(?<![A-Za-z0-9_'])(?<!\d\s)([A-Z])(?![A-Za-z0-9_'])")
_REJECTED = re.compile(
    r"\b(?:(?:(?i:anything|everything|(?:all|any)(?: of (?:them|these|those))?|nothing)"
    r"|(?i:any) (?:option|choice)) (?:but|except|other than)(?: for)?"
    r"|except(?: for)?|other than|apart from"
    r"|not|neither|nor|rul(?:e|es|ed|ing) out|eliminat(?:e|es|ed|ing)|exclud(?:e|es|ed|ing)"
    r"|reject(?:s|ed|ing)?)\s+(?:options?\s+|choices?\s+)?"
    r"\(?([A-Z]\)?(?:(?:, and |, or |, | and | or )\(?[A-Z]\)?)*)(?![\w'])"
    r"|(?<![\w'])\(?([A-Z])\)?\s+(?:is|are|was|would be|seems|can be|could be)\s+(?:also\s+|clearly\s+)?"
    r"(?:not\b|wrong|incorrect|false|ruled out|eliminated|rejected|out\b)"
    r"|(?<![\w'])\(?([A-Z])\)?\s+(?:isn't|can't|cannot|doesn't|does not)\b"
)
_NAMED = re.compile(r"\b(?:option|choice|letter|alternative)\s+\(?([A-Za-z])\)?(?![\w'])", re.IGNORECASE)


def letter_of(text: str, options: Sequence[str]) -> str | None:
    """The option letter that a gold answer means: the letter itself, or the text of one option."""
    bare = text.strip("()[].: ")
    if len(bare) == 1 and bare.upper() in LETTERS and bare.isascii() and bare.isalpha():
        return bare.upper()
    leading = _LEADING_LETTER.match(text)
    if leading is not None:
        return next(group for group in leading.groups() if group).upper()
    same = [LETTERS[index] for index, option in enumerate(options) if tokens(option) == tokens(text)]
    return same[0] if len(same) == 1 else None


def chosen_letters(text: str, options: Sequence[str]) -> set[str]:
    """The option letters that a prediction leaves standing; more than one when it does not decide."""
    bare = text.strip("()[].:*\"' ")
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        return {bare.upper()}
    by_text = {LETTERS[index] for index, option in enumerate(options) if option and tokens(option) == tokens(text)}
    if by_text or (by_text := _by_value(text, options) or _by_form(text, options)):
        return by_text
    if (so := _SO.search(text)) is not None:
        return {so[1]}
    affirmed = {match[1] for match in _AFFIRMED.finditer(text)} - _rejected(text)
    if len(affirmed) == 1:
        return affirmed
    if (ordinal := _ORDINAL.fullmatch(text)) is not None:
        return {_ORDINALS[ordinal[1].lower()]}
    leading = _LEADING_LETTER.match(text)
    if leading is not None and not _REJECTED.match(text):
        letter = next(group for group in leading.groups() if group).upper()
        rest = text[leading.end() :]
        return {letter, *_LABEL.findall(rest)} | _contradiction(rest, letter, options)
    for pattern in (_PARENTHESISED, _NAMED, _BARE):
        found = {match[1].upper() for match in pattern.finditer(text)} - _rejected(text)
        if pattern is _BARE:
            found -= {letter for letter in found & {"A", "I"} if not _stands_alone(text, letter)}
        if options:
            found = {letter for letter in found if LETTERS.index(letter) < len(options)}
        if found:
            return found
    return _mentioned(text, options)


def _by_value(text: str, options: Sequence[str]) -> set[str]:
    """Options that are the number stated: 18.0, eighteen and 12 + 6 = 18 for an option 18."""
    if not options:
        return set()
    number = single(text) or (stated(text, quantities(text)) if "=" in text else None)
    if number is None:
        return set()
    offered = ((letter, single(option)) for letter, option in zip(LETTERS, options, strict=False))
    return {
        letter
        for letter, quantity in offered
        if quantity is not None and quantity.value == number.value and quantity.percent == number.percent
    }


_ABOVE = re.compile(r"(?:all|both|none|neither|any|either) of (?:the above|these|them|those)(?: \w+)?", re.IGNORECASE)


def _by_form(text: str, options: Sequence[str]) -> set[str]:
    """The one option that says "all of the above" or the like in other words."""
    if _ABOVE.fullmatch(text) is None:
        return set()
    about = text.split()[0].lower()
    found = {
        letter
        for letter, option in zip(LETTERS, options, strict=False)
        if _ABOVE.fullmatch(option) and option.split()[0].lower() == about
    }
    return found if len(found) == 1 else set()


def _contradiction(rest: str, letter: str, options: Sequence[str]) -> set[str]:
    """Another option's text right after a letter ("B) text of A") leaves both standing."""
    said = tokens(rest)
    others = {LETTERS[index] for index, option in enumerate(options) if said and tokens(option) == said}
    return others - {letter}


def _rejected(text: str) -> set[str]:
    groups = "".join(group for match in _REJECTED.finditer(text) for group in match.groups() if group)
    return {letter for letter in groups if letter in LETTERS}


def _stands_alone(text: str, letter: str) -> bool:
    """Whether A or I is a letter here, not the article or the pronoun."""
    return re.search(rf"(?<![\w']){letter}(?=\s*(?:[).,:;/]|$|(?:is|was|and|or|because|since)\b))", text) is not None


def _mentioned(text: str, options: Sequence[str]) -> set[str]:
    """Options whose text occurs in the prediction, longer texts first so that "dark red" is not also "red"."""
    affirmed = _AND_NOT.sub("", text)
    if affirmed != text and len(found := _mentioned(affirmed, options)) == 1:
        return found
    padded = f" {' '.join(tokens(text))} "
    found = set()
    for index in sorted(range(len(options)), key=lambda item: -len(options[item])):
        words = f" {' '.join(tokens(options[index]))} "
        if words.strip() and words in padded:
            found.add(LETTERS[index])
            padded = padded.replace(words, "  ")
    return found if not set(padded.split()) & NEGATIONS else found | ({*LETTERS[: len(options)]} if found else set())
