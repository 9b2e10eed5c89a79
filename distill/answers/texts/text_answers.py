"""Compares answers that are words, in English first: "a red umbrella" and "She holds a red umbrella".

The comparison starts with the strictest form and ends with the loosest: the same words, another spelling ("hot dog"
and "hotdog"), a sentence that states them, other words. `distill.answers.verdicts` decides which answers come here.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rapidfuzz.distance import Levenshtein

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.numbers.number_words import SMALL, TENS
from distill.answers.numbers.quantities import read_quantities, read_single_quantity
from distill.answers.texts.asked_roles import is_about_another
from distill.answers.texts.denied_answers import compare_with_denied
from distill.answers.texts.mentions import ends_with, mentions
from distill.answers.texts.other_words import LONG, compare_other_words, has_same_content
from distill.answers.texts.plain_clauses import states_plainly
from distill.answers.texts.turned_relations import turns_relation, wins_comparison
from distill.answers.texts.yes_or_no import compare_polar, is_polar
from distill.answers.words.basic_words import FOREIGN_FILLERS, is_same_word, is_translation
from distill.answers.words.other_scripts import other_scripts
from distill.answers.words.person_names import names_person, same_person, without_title
from distill.answers.words.place_names import with_country
from distill.answers.words.spelling import NAMES, are_opposites, in_one_phrase, often_same_thing
from distill.answers.words.spelling_variants import compare_spellings, same_things, with_one_name
from distill.answers.words.tokens import tokens as tokens
from distill.answers.words.tokens import unabbreviated
from distill.answers.words.word_classes import ARTICLES, CLASSES, affirms

_VAGUE_NUMBERS: Final = CLASSES["vague_numbers"]
ROLES_TURNED: Final = "roles_turned"
NONE_THERE = re.compile(r"there (?:is|are|was|were) (?:no|not any|not an?)\b", re.IGNORECASE)
"""There are no dogs: an answer of zero."""
_ASSIGNED = re.compile(r"^[A-Za-z]\s?=\s?(?=\S)")
_ROMAN = re.compile(r"\b(?=[MDCLXVI])M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\b")
_MATHS = re.compile(
    r"\\[a-zA-Z]+|\d!|√|π|\bsqrt\b|\bpi\b|\w\s?\^|\d\s?[×*/+]\s?[\da-z(]|\b[a-z]\s?[=+*/-]\s?\d|\d[xyzn]\b|\d[a-z]\s?[+*/-]\s?\d|\)\s?\(|\b[a-z]\s?[+*]\s?[a-z]\b"
)
_WORDS_OR_SIGNS = re.compile(
    r"[:%$,;?!'\"&]|(?<![\\a-zA-Z])(?!(?:sqrt|pi|sin|cos|tan|log|ln|exp|theta)\b)[a-zA-Z]{2,}", re.IGNORECASE
)
_SPELLABLE: Final = tuple(number for number in (*SMALL, *TENS) if len(number) >= 4)


@lru_cache(maxsize=4096)
def looks_mathematical(text: str) -> bool:
    """Whether a text is an expression and nothing else: "2x + 3", "√12"; not "the area is 2x".

    Words exclude it, because symbolic parsers read a sentence as a product of letters, or stop at its first number.
    """
    return len(text) <= 400 and _MATHS.search(text) is not None and _WORDS_OR_SIGNS.search(text) is None


def without_number(text: str) -> CompareResult:
    """Compares a prediction without a number with a gold number.

    "A dog" is wrong. "Several" and "XII" may mean a number, so they are undecided.
    """
    words = set(tokens(text))
    if NONE_THERE.match(text) and affirms(NONE_THERE.sub("", text)):
        return undecided("none_there")
    if words & _VAGUE_NUMBERS or any(map(_nearly_a_number, words)) or (len(words) <= 2 and _ROMAN.search(text)):
        return undecided("number_in_words")
    return wrong("no_number", can_be_mathematics=looks_mathematical(text))


def _nearly_a_number(word: str) -> bool:
    return len(word) >= 4 and any(Levenshtein.distance(word, number, score_cutoff=1) <= 1 for number in _SPELLABLE)


def compare_texts(text: str, gold: str, question: str = "") -> CompareResult:
    """Compares a prediction with a gold text: "It's a stop sign." states "stop sign"."""
    if not (text.isascii() and gold.isascii()):
        text, gold = other_scripts(text), other_scripts(gold)
    text, gold = with_one_name(text, gold), with_one_name(gold, text)
    text, gold, question = in_one_phrase(with_country(text, gold)), in_one_phrase(gold), in_one_phrase(question)
    words, gold_words = tokens(text), tokens(gold)
    mathematical = looks_mathematical(gold) or looks_mathematical(text)
    if len(words) == len(gold_words) == 1:
        words, gold_words = unabbreviated(words), unabbreviated(gold_words)
    if words == gold_words or _full_names(words) == _full_names(gold_words):
        if mathematical and _symbols(text) != _symbols(gold):
            return undecided("expression", can_be_mathematics=True)
        same_symbols = bool(gold_words) or text.casefold() == gold.casefold()
        return correct("same_words") if same_symbols else wrong("other_symbols")
    if len(gold_words) == 1:
        polar = compare_polar(text, tokens(text), gold_words[0], other_scripts(question))
        if polar is not None:
            return polar
    if (
        _without_article(words) == _without_article(gold_words)
        or _same_foreign_word(words, gold_words)
        or same_person(text, gold)
        or names_person(text, gold, question)
    ):
        return correct("same_thing")
    if len(words) == len(gold_words) == 1 and is_translation(words[0], gold_words[0]):
        return correct("translated")
    if (stated := compare_with_denied(text, gold, gold_words)) is not None:
        return stated
    if not words or not gold_words:
        return undecided("nothing_to_compare", can_be_mathematics=mathematical)
    if _same_turned(words, gold_words) or _same_with_year(words, gold_words):
        return correct("same_words_in_other_order")
    if _same_letters(words, gold_words) or text.replace(".", "").casefold() == gold.replace(".", "").casefold():
        return correct("same_letters")
    if (respelled := compare_spellings(text, gold, words, gold_words, question)) is not None:
        return respelled
    plain = text if _DIGIT.search(gold) else _FIGURE.sub("", text)
    forms = _forms(gold, question)
    if not mathematical and any(_states(plain, form, question) for form in forms):
        turned = turns_relation(text, gold_words, question) and not states_plainly(plain, gold, question)
        return undecided(ROLES_TURNED) if turned else correct("mentioned")
    if wins_comparison(text, gold_words, question):
        return correct("wins_comparison")
    if not mathematical and any(states_plainly(plain, form, question) for form in forms):
        return correct("stated_plainly")
    finding = _compare_assigned(text, gold) if "=" in text or "=" in gold else None
    finding = finding or _compare_word_by_word(words, gold_words) or _compare_numbers_in_order(text, gold, question)
    if (finding is None or finding.verdict == "undecided") and question and not mathematical:
        is_stated = has_same_content(text, gold, question) and not is_about_another(text, gold, question)
        finding = correct("same_content") if is_stated else finding
    if finding is None:
        finding = (
            undecided("other_script") if _script(text) != _script(gold) else compare_other_words(text, gold, question)
        )
    return CompareResult(verdict=finding.verdict, reason=finding.reason, can_be_mathematics=mathematical)


def _forms(gold: str, question: str) -> tuple[str, ...]:
    """The ways to write a gold answer inside a sentence: also "Lincoln" for "President Lincoln"."""
    named = without_title(gold) if question else None
    return (
        gold,
        *_turned_pair(gold, question),
        *(same_things(gold) if question else ()),
        *((named,) if named is not None else ()),
    )


def _states(text: str, gold: str, question: str) -> bool:
    """Whether a sentence gives the gold words as its answer: Portugal of "Portugal wins", for "Who wins?"."""
    return mentions(text, gold, question) and not is_about_another(text, gold, question)


def _turned_pair(gold: str, question: str) -> tuple[str, ...]:
    """ "salt and pepper" as "pepper and salt"; empty where the order may matter: "Who came first and second?"."""
    pair = _PAIR.fullmatch(gold)
    return () if pair is None or _EACH.search(question) else (f"{pair[3]} {pair[2]} {pair[1]}",)


_PAIR = re.compile(r"([^,;]+?) (and|und|et|y|e) ([^,;]+)")
_EACH = re.compile(r"\b(?:and|respectively|order|first|from|und|et|y)\b", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_FIGURE = re.compile(
    r",?\s(?:mit|with|con|avec|com) (?:ca\. |about |etwa |environ )?[$€£]?\d[\d.,]*(?:\s?(?:%|Mio\.?|Mrd\.?|percent"
    r"|million|billion|Prozent|Millionen|millones|millions|por ciento|pour cent))?"
    r"(?=[.,]|$|\s(?!(?:for|of|to|bei|für|pour|para|per|and|und|et|y)\b))"
)
"""A figure that a sentence only adds to its answer: Texas, with 42 %."""


def concludes(sentence: str, gold: str, question: str) -> bool:
    """Whether the sentence that concludes an answer ends with the gold text: "So the winner is Burgos"."""
    if is_polar(gold) or looks_mathematical(gold) or not (sentence.isascii() and gold.isascii()):
        return False
    gold_words = tokens(gold)
    is_stated = ends_with(sentence, gold, question) and not is_about_another(sentence, gold, question)
    return is_stated and not turns_relation(sentence, gold_words, question)


def _without_article(words: Sequence[str]) -> Sequence[str]:
    """Words without a first article of another language: "das Haus" is "Haus"."""
    return words[1:] if len(words) > 1 and words[0] in _FOREIGN_ARTICLES else words


_FOREIGN_ARTICLES: Final = frozenset(
    ["le", "la", "les", "des", "un", "une", "der", "das", "ein", "eine", "el", "los", "las", "il"]
)


def _same_foreign_word(words: Sequence[str], gold_words: Sequence[str]) -> bool:
    """Whether both are one everyday word, in any language: rot and red, "red color" and red, 北京 and 北京市."""
    if len(gold_words) != 1 or not words or len(words) > 5:
        return False
    gold_word = gold_words[0]
    core = [word for word in words if word not in FOREIGN_FILLERS] if len(words) > 1 else words
    if len(core) != 1:
        return False
    shorter, longer = sorted((core[0], gold_word), key=len)
    is_place = len(shorter) > 1 and longer.startswith(shorter) and longer[len(shorter) :] in _PLACE_SIGNS
    return is_same_word(core[0], gold_word) or is_place or (core[0] == gold_word and not gold_word.isdigit())


_PLACE_SIGNS: Final = CLASSES["place_signs"]


def _symbols(text: str) -> str:
    """An expression without signs that do not change its value: "2\\cdot x" is "2x"."""
    return re.sub(r"\\(?:cdot|times|left|right)|[\s\\{}$×·.]", "", text)


def _full_names(words: Sequence[str]) -> str:
    return NAMES.get(" ".join(words)) or " ".join(NAMES.get(word, word) for word in words)


def _same_letters(words: Sequence[str], gold_words: Sequence[str]) -> bool:
    """hot dog and hotdog, e-mail and email."""
    if len(words) > 1 and words[0] in ARTICLES:
        words = words[1:]
    letters, gold_letters = ("".join(sequence).replace("'", "") for sequence in (words, gold_words))
    is_spelled_out = len(words) > 2 and all(len(word) == 1 for word in words)
    return (
        letters == gold_letters
        and (len(letters) >= 5 or is_spelled_out or (len(letters) > _TWO and not letters.isascii()))
        and letters.isalpha()
    )


def _same_turned(words: Sequence[str], gold_words: Sequence[str]) -> bool:
    """The average of the EU and EU average."""
    bare, gold_bare = (sorted(word for word in sequence if word not in _OF) for sequence in (words, gold_words))
    turned = abs(len(words) - len(bare) - len(gold_words) + len(gold_bare)) == 1
    return turned and len(gold_words) <= LONG and bare == gold_bare and len(bare) > 1


_OF: Final = frozenset({"of", "for"})


def _same_with_year(words: Sequence[str], gold_words: Sequence[str]) -> bool:
    """Q2 2020 and 2020 Q2."""
    years = [word for word in gold_words if _YEAR.fullmatch(word)]
    return len(years) == 1 and len(gold_words) <= _FEW and sorted(words) == sorted(gold_words)


_TWO: Final = 2
_YEAR = re.compile(r"(?:19|20)\d\d")
_FEW: Final = 3


def _compare_assigned(text: str, gold: str) -> CompareResult | None:
    """x = 3 and 3."""
    named = [_ASSIGNED.match(answer) for answer in (text, gold)]
    if all(named) or not any(named):
        return None
    value, gold_value = (read_single_quantity(_ASSIGNED.sub("", answer, count=1)) for answer in (text, gold))
    if value is None or gold_value is None:
        return None
    return correct("same_value") if value.value == gold_value.value else wrong("other_value")


def _compare_word_by_word(words: Sequence[str], gold_words: Sequence[str]) -> CompareResult | None:
    """Compares answers of the same form word by word: "on the left" and "on the right", "Figure 3" and "Figure 4"."""
    joined = ("".join(words if words[0] not in ARTICLES else words[1:]), "".join(gold_words))
    if are_opposites(*joined):
        return wrong("opposite")
    if sorted(words) == sorted(("-", *gold_words)) or sorted(gold_words) == sorted(("-", *words)):
        return wrong("other_sign")
    if len(words) != len(gold_words):
        return None
    pairs = [
        (word, gold_word)
        for word, gold_word in zip(words, gold_words, strict=True)
        if word != gold_word and not (_is_label(word) and _is_label(gold_word) and _same_number(word, gold_word))
    ]
    if len(pairs) == 1 and are_opposites(*pairs[0]):
        return wrong("opposite")
    if pairs and all(often_same_thing(word, gold_word) for word, gold_word in pairs):
        return undecided("may_mean_the_same")
    if pairs and all(_is_label(word) and _is_label(gold_word) for word, gold_word in pairs) and len(pairs) <= 2:
        return wrong("other_label")
    return None


def _is_label(word: str) -> bool:
    return len(word) == 1 or word.lstrip("+-")[:1].isdigit()


def _same_number(left: str, right: str) -> bool:
    values = [
        quantity.value for word in (left, right) if (quantity := read_single_quantity(word.lstrip("+-"))) is not None
    ]
    return len(values) == 2 and values[0] == values[1]


def _script(text: str) -> str:
    """The writing system of the first letter: "CYRILLIC" of "кот"."""
    if text.isascii():
        return "LATIN"
    return next((unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha()), "LATIN")


def _compare_numbers_in_order(text: str, gold: str, question: str) -> CompareResult | None:
    """Ranges and labels with numbers: the numbers decide when the gold is little else."""
    gold_numbers = read_quantities(gold)
    if _has_code(text, gold):
        return correct("same_code")
    if gold_numbers and _same_range(text, gold):
        return correct("same_range")
    if not gold_numbers or sum(len(word) > 2 for word in re.findall(r"[^\W\d_]+", gold)) > 1:
        return None
    numbers = read_quantities(text)
    values = [quantity.value for quantity in gold_numbers]
    if [quantity.value for quantity in numbers] == values:
        is_label = _same_label(text, gold) and not is_about_another(text, gold, question)
        return correct("same_label") if is_label else undecided("same_numbers")
    if numbers and not {quantity.value for quantity in numbers} & set(values):
        digits, gold_digits = _DIGIT.findall(text), _DIGIT.findall(gold)
        is_as_long = len(numbers) == len(values) and digits and digits != gold_digits
        return wrong("other_numbers") if is_as_long else undecided("other_numbers")
    return undecided("some_numbers_shared") if numbers else None


def _has_code(text: str, gold: str) -> bool:
    """Whether a sentence has a long number or code, grouped in any way: 010-6234 5678."""
    code = re.sub(r"[\s/-]", "", gold)
    if not _CODE.fullmatch(code) or len(_DIGIT.findall(code)) < _DIGITS_OF_A_CODE or not affirms(text):
        return False
    spaced = r"[\s/-]?".join(map(re.escape, code))
    return len(read_quantities(text)) <= len(read_quantities(gold)) and (
        re.search(rf"(?<![\w.,/-]){spaced}(?![\w/-]|[.,]\d)", text, re.IGNORECASE) is not None
    )


_CODE = re.compile(r"[A-Za-z\d]{8,40}")
_DIGITS_OF_A_CODE: Final = 4
_RANGE = re.compile(
    r"(?:(?:all |the )?(?:people|adults|children|those|persons|respondents|individuals|users|women|men) )?"
    r"(?:who are )?(?:ages? |aged |from |between )*(?:ages? )?[$€£]?\d[\d.,]*\s?%?\s?"
    r"(?:(?:-|to|and|until)\s?[$€£]?\d[\d.,]*\s?%?|(?P<open>\+|(?:years )?(?:and|or) (?:older|over|above|up|more)))"
    r"(?:[ -]years?(?:[ -]olds?| of age)?| age group| group)?",
    re.IGNORECASE,
)
"""18-24, people aged 18 to 24, 65+, adults 65 and older."""


def _same_range(text: str, gold: str) -> bool:
    ends = _range_ends(text)
    if ends is not None and ends == _range_ends(gold):
        return True
    match, gold_match = (_RANGE.fullmatch(answer.strip(" .()[]")) for answer in (text, gold))
    if match is None or gold_match is None or bool(match["open"]) != bool(gold_match["open"]):
        return False
    values, gold_values = ([quantity.value for quantity in read_quantities(answer)] for answer in (text, gold))
    return values == gold_values


_ENDS = re.compile(
    r"(?:between (?P<least>[^-]*?\d[^-]*?) and|(?:from )?(?P<low>[^-]*?\d[^-]*?)\s?(?:-| to | until ))\s?(?P<high>.+)"
)


def _range_ends(text: str) -> tuple[tuple[object, ...], ...] | None:
    """Both ends of a range with the unit that is written once or twice: 2-8 °C and 2 °C to 8 °C."""
    match = _ENDS.fullmatch(text.strip(" .")) if len(text) <= _LONGEST_RANGE else None
    ends = [read_single_quantity(part) for part in (match["least"] or match["low"], match["high"])] if match else []
    if len(ends) != _TWO or any(end is None or not end.affirmed for end in ends):
        return None
    low, high = (end for end in ends if end is not None)
    measures = tuple((end.unit, end.currency, end.percent) for end in (low, high))
    if measures[0] not in (measures[1], ("", "", False)) or not low.value < high.value:
        return None
    return (low.value,), (high.value, *measures[1])


_LONGEST_RANGE: Final = 60


def _same_label(text: str, gold: str) -> bool:
    """The gold words, a name with its number, as they are in a short sentence: It leaves from track 4."""
    words, phrase = f" {' '.join(tokens(text))} ", f" {' '.join(tokens(gold))} "
    is_name = re.search(r"[^\W\d_]{3}", gold) is not None and not looks_mathematical(text)
    return is_name and phrase in words and len(words.split()) <= 12 and affirms(text)
