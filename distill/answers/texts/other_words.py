"""Whether two texts of different words are different answers, or may mean the same.

"Cat" for "dog" is wrong: another thing of the same kind, in an answer of the same form. "To stay safe" for "safety"
may be a paraphrase, so it is undecided.
"""

import re
from collections.abc import Sequence
from typing import Final

from rapidfuzz.distance import Levenshtein, Prefix

from distill.answers.compare_result import CompareResult, undecided, wrong
from distill.answers.numbers.units import unit_name
from distill.answers.texts.answer_sentences import stated_parts
from distill.answers.words.spelling import are_opposites
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import (
    CLASSES,
    COLOURS,
    KINDS,
    NAMED_THINGS,
    PRONOUNS,
    SET_AGAINST,
    SIDES,
    SIZES,
    denies,
)
from distill.answers.words.word_forms import same_word_form

LONG: Final = 8
"""A gold answer of so many words is a sentence: no comparison of words can call another text wrong."""


def compare_other_words(text: str, gold: str, question: str = "") -> CompareResult:
    """Compares a prediction with other words than the gold answer: wrong, or undecided with the reason."""
    words, gold_words = tokens(text), tokens(gold)
    if len(gold_words) > LONG:
        return undecided("free_text")
    word_set, gold_word_set = set(words), set(gold_words)
    if gold_word_set <= word_set or word_set <= gold_word_set:
        return undecided("one_contains_the_other")
    joined, gold_joined = " ".join(words), " ".join(gold_words)
    near = max(len(joined), len(gold_joined)) >= 6 and Levenshtein.normalized_similarity(joined, gold_joined) >= 0.83
    plural = [unit_name(word) for word in words] == [unit_name(word) for word in gold_words]
    prefix = Prefix.similarity(joined, gold_joined)
    inflected = (
        len(words) == len(gold_words) == 1 and prefix >= 5 and max(len(joined), len(gold_joined)) - prefix <= 3
    )
    if inflected:
        return undecided("inflected")
    if near or plural:
        return undecided("nearly_the_same_words")
    shortest = 2 if _HAN.match(gold_joined) and not _DENIED_IN_HAN.search(joined) else 4
    inside = min(len(joined), len(gold_joined)) >= shortest and (gold_joined in joined or joined in gold_joined)
    if inside or _stems(word_set) & _stems(gold_word_set):
        return undecided("words_shared")
    if len(words) > 2 * LONG:
        return undecided("free_text")
    if _may_be_short_for(text, gold) or _may_be_short_for(gold, text):
        return undecided("may_be_short_for_it")
    return wrong("other_words") if _names_another(text, gold, question) else undecided("other_words")


def has_same_content(text: str, gold: str, question: str = "") -> bool:
    """Whether one sentence has all content words of a longer gold answer, in their order or turned by a preposition.

    "a drink on a tray" for "a tray of drinks", "blow the candles out" for "blow out candles". Both texts have the
    same number of denials.
    """
    words, gold_words = tokens(text), tokens(gold)
    if not _FEWEST <= len(gold_words) <= LONG or not len(gold_words) <= len(words) <= 2 * LONG:
        return False
    if _SECOND_CLAUSE.search(text.strip(" .!;")) or _SIGNS.search(gold) or _SIGNS.search(text):
        return False
    codes = _CODES.findall(gold.casefold())
    if [code for code in _CODES.findall(text.casefold()) if code in codes] != codes:
        return False
    denied, gold_denied = (sum(map(denies, side)) for side in (words, gold_words))
    asked = tokens(question[:_LONGEST_QUESTION])
    meant, said = (
        [word for word in side if word not in _FUNCTION_WORDS | _REFLEXIVES and not denies(word)]
        for side in (gold_words, words)
    )
    if denied != gold_denied or len(meant) < _FEWEST or (SET_AGAINST - _LINKING) & {*said} - {*meant, *asked}:
        return False
    places = [next((index for index, word in enumerate(said) if _same_content(word, other)), -1) for other in meant]
    if -1 in places or len({*places}) < len(places):
        return False
    rest = [word for index, word in enumerate(said) if index not in places]
    if any(are_opposites(word, other) for word in rest for other in meant) or any(map(str.isdigit, "".join(rest))):
        return False
    if any(group & {*rest} and group & {*meant} for group in (COLOURS, SIDES)):
        return False
    added = [word for word in rest if word not in PRONOUNS and not any(same_word_form(word, one) for one in asked)]
    if _AVOIDED & {*rest} or (" and " in text and " and " not in gold):
        return False
    if re.search(rf"\b(?:of|for|to (?:the|an?|his|her)) (?:the |an? )?{re.escape(meant[0])}", text, re.IGNORECASE):
        return False  # the assistant to the president, for the president
    if _part_of_a_name(text, meant[0], meant[-1]) and not NAMED_THINGS & {*asked}:
        return False
    main = [place for place, word in zip(places, meant, strict=True) if word not in _PARTICLES]
    in_order = main == sorted(main)
    turned = len(meant) == _FEWEST and bool({*words} & _TURNING) != bool({*gold_words} & {"and", "or"})
    return len(added) <= _MOST_ADDED and (in_order or turned)


_FEWEST: Final = 2
_LINKING: Final = frozenset({"so", "and", "while", "what", "who", "which"})
_REFLEXIVES: Final = frozenset(
    {"himself", "herself", "itself", "themselves", "yourself", "oneself", "someone", "something"}
)
_PARTICLES: Final = frozenset({"out", "up", "off", "down", "away", "back"})
"""Parts of a verb that may stand after its object: blow the candles out."""
_AVOIDED: Final = CLASSES["avoiding"]
_MOST_ADDED: Final = 2
_TURNING: Final = frozenset({"of", "on", "in", "with", "for"})
_SECOND_CLAUSE = re.compile(r"[,;:]|\b(?:but|or|than|from)\b", re.IGNORECASE)

_SIGNS = re.compile(r"[=^<>*/√π±+\\]|\s-\s|\w\.\w")
_CODES = re.compile(r"\w*\d\w*")


def _part_of_a_name(text: str, first: str, last: str) -> bool:
    """Whether a name continues before or after its words: UC San Diego, Main Street North."""
    goes_on = re.search(rf"(?<=\s)(?=[A-Z])(?i:{re.escape(last)})\s[A-Z][a-z]", text) is not None
    return goes_on or re.search(rf"[A-Z][\w.'-]*\s(?=[A-Z])(?i:{re.escape(first)})\b", text) is not None


def _same_content(word: str, other: str) -> bool:
    if same_word_form(word, other):
        return True
    shared = Prefix.similarity(word, other)
    return shared >= _SHARED_LETTERS and {word[shared:], other[shared:]} <= _DERIVED


_SHARED_LETTERS: Final = 5
_DERIVED_TEXT: Final = "s e es ed ing ion ions ation ations ment ments er ers or al ally ly ness ive ance ence y ies"
_DERIVED: Final = frozenset({"", *_DERIVED_TEXT.split()})
"""How a verb and the noun or adjective of the same word may end: protect, protection."""

_HAN = re.compile("[\u3400-\u9fff]")
_DENIED_IN_HAN = re.compile("[不没非无否或]")


def _stems(words: set[str]) -> set[str]:
    return {word[:5] for word in words if len(word) > 2 and not word.isdigit()}


_FUNCTION_WORDS: Final = CLASSES["function_words"]
_LONGEST_QUESTION: Final = 400
_CLASSES: Final = (COLOURS - {"colored"}, SIDES)
_EASTERN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_SHORT_SENTENCE: Final = 3


def _names_another(text: str, gold: str, question: str) -> bool:
    """Whether a text without a word of the gold answer is another answer of the same form."""
    asked = tokens(question[:_LONGEST_QUESTION])
    gold_content = _content(tokens(gold), asked)
    part = next(iter(reversed(stated_parts(text))), text)
    said = _content(tokens(part), asked)
    if not said or not gold_content:
        return False
    if any(group & {*said} and group & {*gold_content} for group in _CLASSES):
        return True
    if _is_name(gold) and _is_name(part):
        return len(said) <= _SHORT_SENTENCE + len(gold_content)
    if _EASTERN.search(gold):
        return len("".join(said)) <= 2 * len("".join(gold_content)) + _SHORT_SENTENCE
    return len(said) == len(gold_content) <= _SHORT_SENTENCE


def _content(words: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The words that the question does not have, without those that only describe: "bus" of "a big red bus"."""
    own = [word for word in words if word not in _FUNCTION_WORDS | PRONOUNS]
    new = [word for word in own if not any(same_word_form(word, other) for other in asked)]
    bare = [word for word in new if word not in KINDS | SIZES | COLOURS]
    return bare or new or own


def _is_name(text: str) -> bool:
    """Whether every content word has a capital: "Bank of America"."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word.casefold() not in _FUNCTION_WORDS]
    return bool(words) and all(word[0].isupper() for word in words)


_FEWEST_LETTERS, _MOST_LETTERS = 2, 6


def _may_be_short_for(short: str, name: str) -> bool:
    """Whether `short` may be a short form of `name`: its capitals (NRW, EEUU), or its beginning (sun of sunlight)."""
    letters = re.sub(r"[.\s&-]", "", short)
    words = re.findall(r"[^\W\d_]+", name.casefold())
    if not words:
        return False
    if letters.isupper() and _FEWEST_LETTERS <= len(letters) <= _MOST_LETTERS and len(letters) < len("".join(words)):
        initials = {word[0] for word in words}
        if len(letters) == len(words) and not set(letters.casefold()) <= initials:
            return False  # CFO, Chief Executive Officer
        left = iter("".join(words))
        return letters[0].casefold() == words[0][0] and all(letter in left for letter in letters.casefold())
    content = [word for word in tokens(short) if word not in _FUNCTION_WORDS]
    return (
        len(content) == 1
        and len(content[0]) >= _SHORT_SENTENCE
        and content[0].isalpha()
        and any(word != content[0] and word.startswith(content[0]) for word in words)
    )
