"""Two texts of different words: is one of them another answer, or may they mean the same?

"Wrong" needs evidence: another thing of the same kind in an answer of the same form. A sentence or phrase of other
words than the gold answer's may be a paraphrase ("to stay safe" for "safety") and stays open.
"""

import re
from collections.abc import Sequence
from typing import Final

from rapidfuzz.distance import Levenshtein, Prefix

from distill.answers.compare_result import CompareResult, undecided, wrong
from distill.answers.numbers.units import unit_name
from distill.answers.texts.answer_sentences import stated_parts
from distill.answers.texts.word_classes import COLOURS, KINDS, PRONOUNS, SIDES, SIZES
from distill.answers.texts.word_forms import same_word_form
from distill.answers.texts.words import tokens

LONG: Final = 8
"""Words from which a gold answer is a sentence, which no comparison of words can call wrong."""


def compare_other_words(text: str, gold: str, question: str = "") -> CompareResult:
    """A prediction whose words are not those of the gold answer."""
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
    if near or plural or joined.replace(" ", "") == gold_joined.replace(" ", ""):
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


_HAN = re.compile("[\u3400-\u9fff]")
_DENIED_IN_HAN = re.compile("[不没非无否或]")


def _stems(words: set[str]) -> set[str]:
    return {word[:5] for word in words if len(word) > 2 and not word.isdigit()}


_FUNCTION_TEXT: Final = """it is are was were be been being has have had do does did this that these those there here
    he she they we you i the a an of in on at to by for from with and or as its his her their my our your so not no
    n't it's he's she's they're that's can will would because into onto about which who
    es ist sind war der die das den dem ein eine einen im am ce c'est sont le la les un une des du de en au aux el los
    las una son está il lo gli è sono o os um uma é são het een"""
_FUNCTION_WORDS: Final = frozenset(_FUNCTION_TEXT.split())
_LONGEST_QUESTION: Final = 400
_CLASSES: Final = (COLOURS - {"colored"}, SIDES)
_EASTERN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_SHORT_SENTENCE: Final = 3


def _names_another(text: str, gold: str, question: str) -> bool:
    """Whether a text that shares nothing with the gold answer is another answer of the same form."""
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
    """The words that say something beyond their question, without those that only describe the last one."""
    own = [word for word in words if word not in _FUNCTION_WORDS | PRONOUNS]
    new = [word for word in own if not any(same_word_form(word, other) for other in asked)]
    bare = [word for word in new if word not in KINDS | SIZES | COLOURS]
    return bare or new or own


_NAME = re.compile(r"(?:(?<=\s)|^)[A-ZÀ-Þ][^\W\d_]+")


def _is_name(text: str) -> bool:
    """Whether every longer word has a capital."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if word.casefold() not in _FUNCTION_WORDS]
    return bool(words) and all(word[0].isupper() for word in words)


_FEWEST_LETTERS, _MOST_LETTERS = 2, 6


def _may_be_short_for(short: str, name: str) -> bool:
    """Whether capitals may abbreviate a name: NRW, EEUU; and one word begins as the other does: sun, sunlight."""
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
