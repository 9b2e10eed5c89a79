"""Option letters: which choice a text names, by its letter or by the words of an option.

Gives letters, not verdicts: `distill.answers.verdicts` compares them.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rapidfuzz.distance import Levenshtein

from distill.answers.answer_types import infer_type
from distill.answers.final_answer import final_answer
from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.pick_number import pick_stated_number
from distill.answers.numbers.quantities import read_quantities, read_single_quantity
from distill.answers.numbers.units import unit_factor
from distill.answers.words.place_names import is_region
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import CLASSES, NEGATIONS
from distill.answers.words.word_forms import same_word_form

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
_ALL_BUT = re.compile(
    r"\b(?:anything|everything|nothing|all|any|every \w+) (?:but|except|other than)\b", re.IGNORECASE
)
_AND_NOT = re.compile(r",? (?:and |but )?not .+$")
_FOREIGN_REJECTED = re.compile(
    r"(?:不选|不選|排除|而不是|不是)([A-Z])"
    r"|([A-Z])\)?(?:项|选项)?(?:不正确|不对|错误|是错|不是|不符合|は違|は誤|ではな)"
)
_LEADING_LETTER = re.compile(
    r"\(?([A-Za-z])(?:[).:、．]|\)\s*[:.])(?=\s|$|(?<=[、．]))|\(([A-Za-z])\)|\[([A-Za-z])\]"
)
_LABEL = re.compile(r"(?<![\w'])([A-Z])[.):]\s(?=\S)")
_PARENTHESISED = re.compile(r"[(\[]([A-Za-z])[)\]]")
_BARE = re.compile(r"(?<![A-Za-z0-9_'])(?<!\d\s)([A-Z])(?![A-Za-z0-9_'])")
_REJECTED = re.compile(
    r"\b(?:(?:(?i:anything|everything|(?:all|any)(?: of (?:them|these|those))?|nothing)"
    r"|(?i:any) (?:option|choice)) (?:but|except|other than)(?: for)?"
    r"|except(?: for)?|other than|apart from"
    r"|(?i:not|neither|nor)|disagree[sd]? with|doubt(?:s|ed)?|den(?:y|ies|ied)|(?:false|unlikely) that"
    r"|rul(?:e|es|ed|ing) out|eliminat(?:e|es|ed|ing)|exclud(?:e|es|ed|ing)"
    r"|reject(?:s|ed|ing)?)\s+(?:options?\s+|choices?\s+)?"
    r"\(?([A-Z]\)?(?:(?:, and |, or |, | and | or )\(?[A-Z]\)?)*)(?![\w'])"
    r"|(?<![\w'])\(?([A-Z]\)?(?:, \(?[A-Z]\)?)*,? (?:and|or) \(?[A-Z]"
    r"|[A-Z](?=\)?\s+(?:is|was|would|seems|can|could)))\)?\s+"
    r"(?:is|are|was|were|would be|seems|can be|could be)\s+(?:also\s+|clearly\s+|all\s+|both\s+)?"
    r"(?:not\b|wrong|incorrect|false|ruled out|eliminated|rejected|excluded|out\b)"
    r"|(?<![\w'])\(?([A-Z])\)?\s+(?:isn't|can't|cannot|doesn't|does not)\b"
)
_NAMED = re.compile(r"\b(?:option|choice|letter|alternative)\s+\(?([A-Za-z])\)?(?![\w'])", re.IGNORECASE)

_PREDICATE = re.compile(
    r"(?:it|they|this|that|he|she|(?:the|this) [\w' -]{1,30}?) (?:is|are|was|were) (?P<rest>[^.,;]+)\.?",
    re.IGNORECASE,
)
"""The function is odd, for an option "It is odd"."""


@lru_cache(maxsize=8192)
def infer_type_among(gold: str, options: tuple[str, ...]) -> str:
    """The type a gold answer looks like; a choice when it is one of the options, or the letter of one."""
    letter = options and find_gold_letter(normalise(final_answer(gold).text), tuple(map(normalise, options)))
    return "choice" if letter and LETTERS.index(letter) < len(options) else infer_type(gold)


def find_gold_letter(text: str, options: Sequence[str]) -> str | None:
    """The option letter that a gold answer means: the letter itself, or the text of one option."""
    stripped = text.strip("()[].: ")
    if _is_letter(stripped, options):
        return stripped.upper()
    if (leading := _LEADING_LETTER.match(text)) is not None:
        return _letter_of(leading)
    words = tokens(text)
    same = [
        letter
        for letter, option in zip(LETTERS, map(tokens, options), strict=False)
        if words in (option, (letter.lower(), *option))  # also B isosceles
    ]
    return same[0] if len(same) == 1 else None


def _letter_of(leading: re.Match[str]) -> str:
    return "".join(filter(None, leading.groups())).upper()


def with_letter(text: str, options: Sequence[str]) -> str:
    """A text that names one of numbered options by its number, with the letter instead: B. dog for 2. dog."""
    named = _NUMBER.fullmatch(final_answer(text).text.strip())
    if named is None or not 1 <= int(named["number"]) <= min(len(options), len(LETTERS)):
        return text
    return f"{LETTERS[int(named['number']) - 1]}. {named['rest'] or ''}".strip(". ")


_NUMBER = re.compile(
    r"(?:(?:option|choice|answer|number)\s)?[(\[]?(?P<number>\d{1,2})(?:[.):\]]+(?:\s(?P<rest>.+))?)?",
    re.IGNORECASE | re.DOTALL,
)


def _is_letter(text: str, options: Sequence[str]) -> bool:
    """Whether a text is one letter, and no option of that name beyond the letters: w of the options x, y, z, w."""
    is_one = len(text) == 1 and text.isascii() and text.isalpha()
    return is_one and (LETTERS.index(text.upper()) < len(options) or text not in options)


def find_chosen_letters(text: str, options: Sequence[str]) -> set[str]:
    """The option letters that a prediction leaves standing; more than one when it does not decide."""
    stripped = text.strip("()[].:*\"' ")
    if _is_letter(stripped, options):
        return {stripped.upper()}
    by_text = {LETTERS[index] for index, option in enumerate(options) if option and tokens(option) == tokens(text)}
    if not by_text and (predicate := _PREDICATE.fullmatch(text)) is not None:
        said = tokens(predicate["rest"])
        by_text = {
            letter
            for letter, option in zip(LETTERS, options, strict=False)
            if (meant := _PREDICATE.fullmatch(option)) is not None and tokens(meant["rest"]) == said
        }
    if by_text or (by_text := _letters_by_value(text, options)):
        return by_text
    if (concluding := _SO.search(text)) is not None:
        return {concluding[1]}
    affirmed = {match[1] for match in _AFFIRMED.finditer(text)} - _rejected_letters(text)
    if len(affirmed) == 1:
        return affirmed
    if (ordinal := _ORDINAL.fullmatch(text)) is not None:
        return {_ORDINALS[ordinal[1].lower()]}
    leading = _LEADING_LETTER.match(text)
    if leading is not None and not _REJECTED.match(text):
        letter = _letter_of(leading)
        rest = text[leading.end() :]
        return {letter, *_LABEL.findall(rest)} | _other_option_after_letter(rest, letter, options)
    for pattern in (_PARENTHESISED, _NAMED, _BARE):
        read = _without_options(text, options) if pattern is _BARE else text
        letters = {match[1].upper() for match in pattern.finditer(read)} - _rejected_letters(text)
        if pattern is _BARE:
            letters -= {letter for letter in letters & {"A", "I"} if not _is_option_letter(text, letter)}
        if options:
            letters = {letter for letter in letters if LETTERS.index(letter) < len(options)}
        if letters:
            return letters | _set_against(text, options)
    return (
        _mentioned_letters(text, options)
        or _letter_of_shortened_option(text, options)
        or _letter_of_same_words(text, options)
        or _letter_by_own_words(text, options)
        or _letter_of_misspelled_option(text, options)
    )


def _without_options(text: str, options: Sequence[str]) -> str:
    """A text without the options that hold a letter of their own: It is vitamin A."""
    for option in options:
        if len(option) > 1 and _BARE.search(option) is not None:
            text = text.replace(option, " ")
    return text


def _set_against(text: str, options: Sequence[str]) -> set[str]:
    """Options named by their words after "but": option B says fog, but the image shows rain."""
    clause = _BUT.search(text)
    return set() if clause is None else _mentioned_letters(clause["rest"], options)


_BUT = re.compile(r"\b(?:but|however|yet)\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_FEWEST_WORDS: Final = 4


def _letter_of_shortened_option(text: str, options: Sequence[str]) -> set[str]:
    """The only option that has all words of a text in their order: an option repeated with words left out."""
    words = tokens(text)
    if len(words) < _FEWEST_WORDS:
        return set()
    holding = set()
    for letter, option in zip(LETTERS, options, strict=False):
        option_words = tokens(option)
        left = iter(option_words)
        same_negations = set(words) & NEGATIONS == set(option_words) & NEGATIONS
        if len(option_words) <= 2 * len(words) and same_negations and all(word in left for word in words):
            holding.add(letter)
    return holding if len(holding) == 1 else set()


def _letter_of_same_words(text: str, options: Sequence[str]) -> set[str]:
    """The only option with the content words of a text, in any order: the shop of Ann, for Ann's shop."""
    said, *offered = (
        {word.removesuffix("'s") for word in tokens(each) if word not in _SMALL_WORDS} for each in (text, *options)
    )
    letters = {letter for letter, own in zip(LETTERS, offered, strict=False) if own == said}
    return letters if len(letters) == 1 and len(said) >= _FEWEST_WORDS else set()


_SMALL_WORDS: Final = CLASSES["function_words"] - NEGATIONS | {"should"}


def _letter_by_own_words(text: str, options: Sequence[str]) -> set[str]:
    """The only option with a word of a text that not all options have: Pacific, it evaporates, the root system."""
    words = set(tokens(text))
    if len(words) > _MOST_WORDS or words & NEGATIONS or _OPEN.search(text) or is_region(text):
        return set()
    offered = [set(tokens(option)) for option in options]
    shared = set.intersection(*offered) if offered else set()
    hits = [
        {word for word in words for other in own - shared if len(word) > _SHORT_WORD and _same_stem(word, other)}
        for own in offered
    ]
    best = max(hits, key=len, default=set())
    alone = best and all(own is best or own < best for own in hits)
    negated = alone and offered[hits.index(best)] & NEGATIONS
    return {LETTERS[hits.index(best)]} if alone and not negated else set()


def _same_stem(word: str, other: str) -> bool:
    stem = min(len(word), len(other), _STEM)
    return same_word_form(word, other) or (stem == _STEM and word[:stem] == other[:stem])


_OPEN = re.compile(rf"{_ALL_BUT.pattern}|\bor\b|\babove\b", re.IGNORECASE)
_MOST_WORDS, _SHORT_WORD, _STEM = 8, 2, 6
_FEWEST_SLIPS_OF_OTHERS, _FEWEST_LETTERS = 5, 7


def _letter_of_misspelled_option(text: str, options: Sequence[str]) -> set[str]:
    """The only option that a text has with one letter more or less, where no other option is near."""
    said = text.casefold().strip(". ")
    if len(said) < _FEWEST_LETTERS or not said.replace(" ", "").isalpha():
        return set()
    slips = sorted(
        (Levenshtein.distance(said, option.casefold()), letter)
        for letter, option in zip(LETTERS, options, strict=False)
    )
    near = options[LETTERS.index(slips[0][1])] if slips else said
    is_clear = bool(slips) and slips[0][0] == 1 and len(near) != len(said)
    return {slips[0][1]} if is_clear and all(count >= _FEWEST_SLIPS_OF_OTHERS for count, _ in slips[1:]) else set()


def _letters_by_value(text: str, options: Sequence[str]) -> set[str]:
    """Options that are the number stated: 18.0, eighteen and 12 + 6 = 18 for an option 18."""
    offered = [
        (letter, quantity)
        for letter, option in zip(LETTERS, options, strict=False)
        if (quantity := read_single_quantity(option)) is not None
    ]
    if not offered:
        return set()
    number = read_single_quantity(text) or (pick_stated_number(text, read_quantities(text)) if "=" in text else None)
    if number is None:
        return set()
    same = {
        letter: quantity.unit
        for letter, quantity in offered
        if quantity.value == number.value and quantity.percent == number.percent
    }
    if len(same) > 1 and number.unit:
        factor = unit_factor(number.unit)
        return {
            letter for letter, unit in same.items() if unit == number.unit or (factor and unit_factor(unit) == factor)
        }
    return set(same)


def begins_with_letter(text: str) -> bool:
    """Whether a text gives a letter before its reason: (B) fog, because rain is not shown."""
    return _LEADING_LETTER.match(text) is not None


def covers_others(options: Sequence[str], letter: str) -> bool:
    """Whether an option is about the others: all of the above."""
    index = LETTERS.index(letter)
    return index < len(options) and options[index].lower().startswith(("all", "both", "any", "none", "neither"))


def _other_option_after_letter(rest: str, letter: str, options: Sequence[str]) -> set[str]:
    """Another option's text right after a letter ("B) text of A") leaves both standing."""
    words = tokens(rest)
    named_letters = {LETTERS[index] for index, option in enumerate(options) if words and tokens(option) == words}
    return named_letters - {letter}


def _rejected_letters(text: str) -> set[str]:
    groups = "".join(group for match in _REJECTED.finditer(text) for group in match.groups() if group)
    if not text.isascii():
        groups += "".join(left or right for left, right in _FOREIGN_REJECTED.findall(text))
    return {letter for letter in groups if letter in LETTERS}


def _is_option_letter(text: str, letter: str) -> bool:
    """Whether A or I is a letter here, not the article or the pronoun."""
    if not text.isascii() and re.search("[A-Za-z]{2}", text) is None:
        return True
    return re.search(rf"(?<![\w']){letter}(?=\s*(?:[).,:;/]|$|(?:is|was|and|or|because|since)\b))", text) is not None


def _mentioned_letters(text: str, options: Sequence[str]) -> set[str]:
    """Options whose text occurs in the prediction, longer texts first so that "dark red" is not also "red"."""
    if _ALL_BUT.search(text) or (is_region(text) and tokens(text) not in map(tokens, options)):
        return set()  # West Virginia is no Virginia
    affirmed = _AND_NOT.sub("", text)
    if affirmed != text and len(letters := _mentioned_letters(affirmed, options)) == 1:
        return letters
    padded = f" {' '.join(tokens(text))} "
    letters = set()
    for index in sorted(range(len(options)), key=lambda item: -len(options[item])):
        words = f" {' '.join(tokens(options[index]))} "
        if words.strip() and words in padded:
            letters.add(LETTERS[index])
            padded = padded.replace(words, "  ")
    return (
        letters
        if not set(padded.split()) & NEGATIONS
        else letters | ({*LETTERS[: len(options)]} if letters else set())
    )
