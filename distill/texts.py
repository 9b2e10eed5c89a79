"""Words and option letters: the parts of answer judging that are about language, in English first.

Gives findings, not judgements: `distill.answers` chooses which comparison applies.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from rapidfuzz.distance import Levenshtein

from distill.agreement import Finding, correct, undecided, wrong
from distill.numbers import quantities
from distill.units import unit_name

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ARTICLES: Final = frozenset({"a", "an", "the"})
_YES: Final = frozenset({"yes", "yeah", "yep"})
_NO: Final = frozenset({"no", "nope"})
_POLAR: Final = dict.fromkeys(_YES, "yes") | dict.fromkeys(_NO, "no") | {"true": "true", "false": "false"}
_NEGATIONS: Final = frozenset(
    {"not", "no", "never", "neither", "nor", "without", "except", "isn't", "aren't", "wasn't"}
)
_NAMES: Final = """monday tuesday wednesday thursday friday saturday sunday january february march april june july
    august september october november december"""
_ABBREVIATIONS: Final = {name[:3]: name for name in _NAMES.split()} | {"tues": "tuesday", "thurs": "thursday"}
_VAGUE_NUMBERS_TEXT: Final = """none nobody nothing no pair couple double both half third quarter single few several
    many once twice thrice dozen hundred thousand million billion"""
_VAGUE_NUMBERS: Final = frozenset(_VAGUE_NUMBERS_TEXT.split())
_TOKEN = re.compile(r"\b[a-z](?:\+\+|#)|[-+]?\d+(?:[.,:/]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)?|[%$€£¥₹+#&@=<>°^*/]")
_COPULA = re.compile(
    r"(?:it|this|that|they|these|those|he|she|there|(?:the|its|their|his|her)\s[\w' -]{1,60}?)"
    r"(?:\s(?:is|are|was|were)|'s)\s(?:called\s|named\s|labell?ed\s)?(?P<rest>.+)",
    re.IGNORECASE,
)
_ROMAN = re.compile(r"\b(?=[MDCLXVI])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b")
_MATHS = re.compile(
    r"\\[a-zA-Z]+|√|π|\bsqrt\b|\bpi\b|\w\s?\^|\d\s?[×*/+]\s?[\da-z(]|\b[a-z]\s?[=+*/-]\s?\d|\d[xyzn]\b|\)\s?\(|\b[a-z]\s?[+*]\s?[a-z]\b"
)
_WORDS_OR_SIGNS = re.compile(
    r"[:%$,;?!'\"&]|(?<![\\a-zA-Z])(?!(?:sqrt|pi|sin|cos|tan|log|ln|exp|theta)\b)[a-zA-Z]{2,}", re.IGNORECASE
)
_LONG: Final = 8
"""Words from which a gold answer is a sentence, which no comparison of words can call wrong."""


def tokens(text: str) -> tuple[str, ...]:
    """Lower-case words, numbers and meaningful symbols, without articles."""
    found = _TOKEN.findall(text.casefold().replace("grey", "gray"))
    return tuple(token for token in found if token not in _ARTICLES)


def looks_mathematical(text: str) -> bool:
    """Whether a text is nothing but an expression, whose value only algebra may tell.

    Words exclude it: symbolic parsers read a sentence as a product of letters, or stop at its first number.
    """
    return len(text) <= 400 and _MATHS.search(text) is not None and _WORDS_OR_SIGNS.search(text) is None


def without_number(text: str) -> Finding:
    """A prediction with no number for a numeric gold: wrong, unless its words may stand for one."""
    words = set(tokens(text))
    if words & _VAGUE_NUMBERS or (len(words) <= 2 and _ROMAN.search(text)):
        return undecided("number_in_words")
    return Finding(verdict="wrong", reason="no_number", can_be_mathematics=looks_mathematical(text))


def compare(text: str, gold: str) -> Finding:
    """A free-text prediction against a gold text."""
    said, meant = tokens(text), tokens(gold)
    mathematical = looks_mathematical(gold) or looks_mathematical(text)
    if len(said) == len(meant) == 1:
        said, meant = _unabbreviated(said), _unabbreviated(meant)
    if said == meant:
        same_symbols = bool(meant) or text.casefold() == gold.casefold()
        return correct("same_words") if same_symbols else wrong("other_symbols")
    if len(meant) == 1 and meant[0] in _POLAR:
        return _polar(said, _POLAR[meant[0]])
    copula = _COPULA.fullmatch(text)
    if copula is not None and tokens(copula["rest"]) == meant:
        return correct("same_words")
    if not said or not meant:
        return Finding(verdict="undecided", reason="nothing_to_compare", can_be_mathematics=mathematical)
    if "and" in meant and sorted(said) == sorted(meant) and set(_joined(said)) == set(_joined(meant)):
        return correct("same_words_in_other_order")
    if _without_accents(text) == _without_accents(gold):
        return undecided("accents_differ")
    finding = _numbers_in_order(text, gold) or _words(said, meant)
    return Finding(verdict=finding.verdict, reason=finding.reason, can_be_mathematics=mathematical)


def _unabbreviated(words: tuple[str, ...]) -> tuple[str, ...]:
    """A weekday or month in full."""
    return (_ABBREVIATIONS.get(words[0], words[0]),)


def _joined(words: Sequence[str]) -> list[str]:
    """The parts of "x and y"."""
    return " ".join(words).split(" and ")


def _without_accents(text: str) -> str:
    split = unicodedata.normalize("NFD", text.casefold())
    return "".join(character for character in split if not unicodedata.combining(character))


def _polar(said: Sequence[str], meant: str) -> Finding:
    first = _POLAR.get(said[0]) if said else None
    polar = {_POLAR[word] for word in said if word in _POLAR}
    if len(polar) > 1 or (first is None and polar):
        return undecided("unclear_yes_or_no")
    if first is None:
        return undecided("no_yes_or_no") if len(said) > 1 else wrong("other_words")
    if (first in ("yes", "no")) != (meant in ("yes", "no")):
        return undecided("yes_or_true")
    if (
        first == "no"
        and len(said) > 1
        and said[1] not in ("it", "there", "this", "they", "he", "she", "because", "not")
    ):
        return undecided("unclear_yes_or_no")
    return correct("same_words") if first == meant else wrong("other_words")


def _numbers_in_order(text: str, gold: str) -> Finding | None:
    """Ranges and labels with numbers: the numbers decide when the gold is little else."""
    meant = quantities(gold)
    if not meant or sum(len(word) > 2 for word in re.findall(r"[^\W\d_]+", gold)) > 1:
        return None
    said = quantities(text)
    values = [quantity.value for quantity in meant]
    if [quantity.value for quantity in said] == values:
        is_range = len(values) == 2 and re.fullmatch(r"[^\w]*\d[\d.,]*\s?(?:-|to)\s?\d[\d.,]*[^\w]*", gold)
        spelled_range = re.fullmatch(r"(?:from |between )?\S+?\s?(?:-|to|and)\s?\S+", text, re.IGNORECASE)
        return correct("same_range") if is_range and spelled_range else undecided("same_numbers")
    if said and not {quantity.value for quantity in said} & set(values):
        return wrong("other_numbers")
    return undecided("some_numbers_shared") if said else None


def _words(said: Sequence[str], meant: Sequence[str]) -> Finding:
    if len(meant) > _LONG:
        return undecided("free_text")
    ours, theirs = set(said), set(meant)
    if theirs <= ours or ours <= theirs:
        return undecided("one_contains_the_other")
    one, other = " ".join(said), " ".join(meant)
    near = max(len(one), len(other)) >= 6 and Levenshtein.normalized_similarity(one, other) >= 0.83
    plural = [unit_name(word) for word in said] == [unit_name(word) for word in meant]
    if near or plural or one.replace(" ", "") == other.replace(" ", ""):
        return undecided("nearly_the_same_words")
    inside = min(len(one), len(other)) >= 4 and (other in one or one in other)
    if inside or (_stems(ours) & _stems(theirs) and max(len(said), len(meant)) > 4):
        return undecided("words_shared")
    if len(said) > 2 * _LONG:
        return undecided("free_text")
    return wrong("other_words")


def _stems(words: set[str]) -> set[str]:
    return {word[:5] for word in words if len(word) > 2}


_LEADING_LETTER = re.compile(r"\(?([A-Za-z])(?:[).:]|\)\s*[:.])(?=\s|$)|\(([A-Za-z])\)|\[([A-Za-z])\]")
_LABEL = re.compile(r"(?<![\w'])([A-Z])[):]\s")
_PARENTHESISED = re.compile(r"[(\[]([A-Za-z])[)\]]")
_BARE = re.compile(r"(?<![\w'])([A-Z])(?![\w'])")
_REJECTED = re.compile(
    r"\b(?:not|neither|nor|rule[sd]? out|eliminate[sd]?|reject(?:s|ed)?)\s+(?:option\s+|choice\s+)?"
    r"\(?([A-Z])\)?(?![\w'])"
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
    if by_text:
        return by_text
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


def _contradiction(rest: str, letter: str, options: Sequence[str]) -> set[str]:
    """Another option's text right after a letter ("B) text of A") leaves both standing."""
    said = tokens(rest)
    others = {LETTERS[index] for index, option in enumerate(options) if said and tokens(option) == said}
    return others - {letter}


def _rejected(text: str) -> set[str]:
    return {group.upper() for match in _REJECTED.finditer(text) for group in match.groups() if group}


def _stands_alone(text: str, letter: str) -> bool:
    """Whether A or I is a letter here, not the article or the pronoun."""
    return re.search(rf"(?<![\w']){letter}(?=\s*(?:[).,:;/]|$|(?:is|was|and|or|because|since)\b))", text) is not None


def _mentioned(text: str, options: Sequence[str]) -> set[str]:
    """Options whose text occurs in the prediction, longer texts first so that "dark red" is not also "red"."""
    padded = f" {' '.join(tokens(text))} "
    found = set()
    for index in sorted(range(len(options)), key=lambda item: -len(options[item])):
        words = f" {' '.join(tokens(options[index]))} "
        if words.strip() and words in padded:
            found.add(LETTERS[index])
            padded = padded.replace(words, "  ")
    return found if not set(padded.split()) & _NEGATIONS else found | ({*LETTERS[: len(options)]} if found else set())
