"""Compares answers that are yes or no, true or false, in English and other languages.

An answer may have the word ("Yes, it is") or repeat its question ("The door is not open", 没戴).
"""

import re
from collections.abc import Sequence
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.texts.asked_roles import is_placed_elsewhere
from distill.answers.texts.denied_answers import COPULA
from distill.answers.texts.stated_polarity import compares, stated_polarity
from distill.answers.words.basic_words import is_colour, is_same_word
from distill.answers.words.spelling import OPPOSITES_ABROAD, are_opposites
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import CLASSES, COLOURS, SIDES, denies
from distill.answers.words.word_forms import same_word_form

_YES: Final = frozenset({"yes", "yeah", "yep"})
_NO: Final = frozenset({"no", "nope"})
_LIKE_YES: Final = frozenset({"correct", "right", "indeed", "sure", "certainly", "incorrect", "none", "not"})
_POLAR: Final = dict.fromkeys(_YES, "yes") | dict.fromkeys(_NO, "no") | {"true": "true", "false": "false"}
_AFTER_NO: Final = frozenset({"it", "there", "this", "that", "they", "he", "she", "because", "not"})
_NO_AND_MORE = re.compile(r"no\s?[,.;:!-]", re.IGNORECASE)
_CONCLUDED = re.compile(r"\b(?:so|thus|hence|therefore),? (yes|no|true|false)$", re.IGNORECASE)
_SO_POLAR = re.compile(r"(?:\b(?:so|thus|hence|therefore),?|[,.!:])\s(?:it is\s)?(yes|no|true|false)$", re.IGNORECASE)


def compare_polar(text: str, words: Sequence[str], gold: str, question: str) -> CompareResult | None:
    """Compares a text with a gold yes, no, true or false; None if the gold answer is another text."""
    if gold in _POLAR:
        return _compare_english(text, words, _POLAR[gold], question)
    if gold not in _FOREIGN_POLAR:
        return None
    return _compare_foreign(text, words, gold, question) or undecided("no_yes_or_no")


def _compare_english(text: str, words: Sequence[str], gold: str, question: str) -> CompareResult:
    copula = COPULA.fullmatch(text)
    subject: Sequence[str] = ()
    if copula is not None:
        subject, words = tokens(text[: copula.start("rest")]), tokens(copula["rest"])
    if len(words) == 1 and words[0] in ("y", "n") and gold in ("yes", "no"):
        words = ("yes",) if words[0] == "y" else ("no",)
    if (denied := _NOT_TRUE.search(text)) is not None and gold in ("true", "false"):
        return (
            correct("same_words")
            if (denied[1].lower() in ("true", "correct")) == (gold == "false")
            else wrong("other_words")
        )
    first = _POLAR.get(words[0]) if words else None
    polar = {_POLAR[word] for word in words if word in _POLAR}
    ending = _SO_POLAR.search(text) if first is None and len(polar) == 1 else _CONCLUDED.search(text)
    if ending is not None:
        first = _POLAR[ending[1].lower()]
        polar = {first}
    goes_on = first == "no" and not ending and len(words) > 1 and words[1] not in _AFTER_NO
    begins_with_none = goes_on and not _NO_AND_MORE.match(text)
    stated = None
    if begins_with_none and _has_words_of(words[1:], question):
        stated = stated_polarity(text, question)  # No effusion is seen
    if first is None or copula is not None:
        repeated = None if _is_other_subject(subject, words, question) else _repeats(words, question)
        stated = repeated or stated_polarity(text, question) or _first_clause_repeats(text, question)
    if len(polar) > 1 or (first is None and polar and stated is None):
        return undecided("unclear_yes_or_no")
    of_the_places = stated == "yes" or any(map(denies, tokens(text)))
    if stated and of_the_places and is_placed_elsewhere(tokens(text), tokens(question[:_LONGEST_QUESTION])):
        return undecided("no_yes_or_no")  # it is under the bed, for "is it on the bed?"
    if stated is not None:
        as_asked = _OTHER_PAIR[stated] if gold in ("true", "false") else stated
        return correct("repeats_question") if as_asked == gold else wrong("repeats_question")
    if first is None:
        is_open = copula is not None or len(words) > 1 or _LIKE_YES & {*words} or not text.isascii()
        return undecided("no_yes_or_no") if is_open else wrong("other_words")
    if (first in ("yes", "no")) != (gold in ("yes", "no")):
        if not question or len(words) > 1:
            return undecided("yes_or_true")
        gold = _OTHER_PAIR[gold]
    if begins_with_none or _CONDITION.match(text):
        return undecided("unclear_yes_or_no")
    return correct("same_words") if first == gold else wrong("other_words")


def _has_words_of(words: Sequence[str], question: str) -> bool:
    """Whether words are those of a question that denies nothing, or say that something is there."""
    asked = tokens(question[:_LONGEST_QUESTION])
    said = [word for word in words if word not in _SMALL_WORDS | _FOUND]
    known = all(any(same_word_form(word, one) for one in asked) for word in said)
    return known and bool(said) and not any(map(denies, asked))


_FOUND: Final = CLASSES["found"]
"""Words that say that something is there."""


def _first_clause_repeats(text: str, question: str) -> str | None:
    """Yes or no of "It is signed and dated", where a pronoun repeats the question and more is only added."""
    clause = _PRONOUN_CLAUSE.fullmatch(text.strip(" ."))
    if clause is None or {*tokens(text)} & (COLOURS | {"but", "or"}) or _COMPARED.search(question):
        return None
    said, last = tokens(clause["said"]), tokens(question[:_LONGEST_QUESTION])[-1:]
    if _FORM.match(question) and len(said) == 1 and (said == last or are_opposites(*said, *last)):
        return "yes" if said == last else "no"  # it is off, for "is the light on?"
    return _repeats(said, question)


_PRONOUN_CLAUSE = re.compile(
    r"(?:it|he|she|they)(?: is| are|['’]s|['’]re) (?:turned |switched )?"
    r"(?P<said>(?:not )?[a-z]+)(?: and [a-z ]{2,40}|, [^,;]{2,60})?",
    re.IGNORECASE,
)
_COMPARED = re.compile(r"\b(?:than|as|between|both|all|every|more)\b", re.IGNORECASE)
_OTHER_PAIR: Final = {"yes": "true", "no": "false", "true": "yes", "false": "no"}
_CONDITION = re.compile(r"\W*(?:yes|no)\W+(?:but |only )*(?:if|unless)\b", re.IGNORECASE)
_NOT_TRUE = re.compile(r"(?:^|\b(?:is|was|are|were)\s)not (true|false|correct)$", re.IGNORECASE)
_SMALL_WORDS: Final = CLASSES["small_of_yes_or_no"]
_FORM: Final = re.compile(r"\s*(?:is|are|was|were|does|do|did|has|have|had|can)\b", re.IGNORECASE)


def _repeats(words: Sequence[str], question: str) -> str | None:
    """ "yes" where an answer repeats words of its question, "no" where it denies them; None for other words.

    "The door is open" repeats "Is the door open?".
    """
    if not _FORM.match(question) or " or " in question:
        return None
    said = [word for word in words if word not in _SMALL_WORDS]
    asked = tokens(question[:_LONGEST_QUESTION])
    denied = any(map(denies, words))
    if not said or not all(any(same_word_form(word, other) for other in asked) for word in said):
        return None
    if _QUANTIFIERS & {*asked} - {*words}:
        return None  # The line does rise, for "Does it always rise?"
    sides = [word for word in asked if word in SIDES]
    if len({*sides}) > 1 and sides[0] not in words:
        return None  # the one on the right is larger, for "is the left one larger than the right one?"
    compared = [word for word in said if not compares(word)]
    places = [next(index for index, other in enumerate(asked) if same_word_form(word, other)) for word in compared]
    if len(said) >= _FEWEST_TURNED and places != sorted(places):
        return None  # The cat is larger than the dog
    return "no" if denied else "yes"


def _is_other_subject(subject: Sequence[str], words: Sequence[str], question: str) -> bool:
    """Whether what an answer is about is not what its question asks about: the blue car, for "Is the red car new?".

    More words about the same are no other subject: the big red car.
    """
    bare = ([word.removesuffix("'s") for word in each] for each in (subject, tokens(question)))
    named, asked = ([word for word in each if word not in _SMALL_WORDS] for each in bare)
    if all(any(same_word_form(word, other) for other in asked) for word in named):
        return False
    said = [*named, *words]
    return not all(any(same_word_form(word, other) for other in said) for word in asked)


_QUANTIFIERS: Final = frozenset({"always", "every", "all", "each", "both", "only", "never", "most"})
_FEWEST_TURNED: Final = 3
_LONGEST_QUESTION: Final = 400
_FOREIGN_POLAR: Final = {
    word: verdict
    for verdict, words in (
        ("yes", "oui sí si ja jawohl sim 是 是的 对 对的 没错 有 はい ええ نعم أجل اجل हाँ हां जी да evet 네 예"),
        ("no", "non nein nee não 不是 不是的 不对 不 否 没有 いいえ لا كلا नहीं нет hayır 아니요 아니오 아뇨"),
    )
    for word in words.split()
}


def is_polar(text: str) -> bool:
    """Whether a gold answer is yes, no, true or false, in any language: sí, nein, 是."""
    words = tokens(text)
    return len(words) == 1 and (words[0] in _POLAR or words[0] in _FOREIGN_POLAR)


_FIRST_WORDS = re.compile(r"\s*[^\s\d,.!;:，。、،।]+(?:\s[^\s\d,.!;:，。、،।]+)?\s*[,.!;:，。、،।]")


def _compare_foreign(text: str, words: Sequence[str], gold: str, question: str) -> CompareResult | None:
    """Compares with a gold yes or no of another language; an English word counts where it stands alone."""
    words = words[1:] if len(words) > 1 and words[0] == "जी" else words
    first = words[0] if words else ""
    verdict = _FOREIGN_POLAR.get(first) or (_POLAR.get(first) if first == "no" or len(words) == 1 else None)
    if not (_FIRST_WORDS.match(text) or {*words[1:]} <= {*tokens(question[:_LONGEST_QUESTION])}):
        verdict = None
    verdict = verdict or _repeats_in_han(text, question) or _repeats_foreign(text, question)
    if verdict is None:
        return None
    return correct("same_words") if verdict == _FOREIGN_POLAR[gold] else wrong("other_words")


_FOREIGN_NOT: Final = frozenset(
    {"nicht", "kein", "keine", "keinen", "ne", "n'", "pas", "no", "non", "não", "не", "нет"}
)
_FOREIGN_OR = re.compile(
    r"\b(?:oder|ou|или|nicht|pas|no|non|não|не)\b|(?<=\S\s)\bo\b(?=\s(?!homem\b)\w)", re.IGNORECASE
)
_LED_IN = re.compile(
    r"(?:laut|nach|auf|selon|d'après|según|segundo|secondo)\s[^,]{2,40}?(?:, |(?= gibt\b))", re.IGNORECASE
)


def _repeats_foreign(text: str, question: str) -> str | None:
    """As `_repeats`, for other European languages: "Die Tür ist nicht offen", or "Die Tür ist geschlossen"."""
    words = tokens(_LED_IN.sub("", text, count=1))
    denied = any(word in _FOREIGN_NOT for word in words)
    said = [word for word in words if word not in _FOREIGN_NOT | _FOREIGN_SMALL]
    if not said or not question or _FOREIGN_OR.search(question):
        return None
    asked = [word for word in tokens(question[:_LONGEST_QUESTION]) if word not in _FOREIGN_SMALL]
    other = [word for word in said if word not in asked]
    turned = other and any(_is_foreign_opposite(other[0], word) for word in asked)
    places = [asked.index(word) for word in said if word in asked]
    if len(other) > 1 or (other and (not turned or denied)):
        return None
    placed = [place for place in places if place]  # a question begins with its verb
    if placed != sorted(placed):
        return None
    return "no" if denied or turned else "yes"


def _is_foreign_opposite(word: str, other: str) -> bool:
    """Whether two words of one language exclude each other: offen and geschlossen, rot and blau."""
    if is_colour(word) and is_colour(other):
        return not is_same_word(word, other)
    return frozenset((word, other)) in OPPOSITES_ABROAD


_FOREIGN_SMALL: Final = CLASSES["small_abroad"]

_ASKS_IN_HAN = re.compile("吗|嗎|么|是否|是不是|有没有|有沒有")
_DENIES_IN_HAN = re.compile("^(?:没有?|沒有?|不|未)")


def _repeats_in_han(text: str, question: str) -> str | None:
    """Yes or no where a Chinese answer repeats the verb of its question, or denies it: 戴了, 没戴."""
    said = text.strip("。.!！ ")
    if (whole := _whole_in_han(said, question)) is not None:
        return whole
    core = _DENIES_IN_HAN.sub("", said).rstrip("了着著的")
    if not core or len(core) > _LONGEST_VERB or not _ASKS_IN_HAN.search(question) or core not in question:
        return None
    if set("不没沒未") & set(_ASKS_IN_HAN.sub("", question)):
        return None
    return "no" if _DENIES_IN_HAN.match(said) else "yes"


def _whole_in_han(said: str, question: str) -> str | None:
    """Yes or no where an answer is its whole Chinese or Japanese question, or this with one denial: 飲みません."""
    asked, stated = (_MOOD_IN_HAN.sub("", part) for part in (question.strip("？? "), said))
    if _POLITE.search(asked):
        asked, stated = (_PARTICLES.sub("", part) for part in (asked, stated))  # 月曜日は, for 月曜日に
    if not _ASKS_WHOLE.search(question) or len(asked) < _LONGEST_VERB or set("不没沒未") & set(asked):
        return None
    if stated == asked:
        return "yes"
    if _POLITE.search(asked) and asked.endswith(_POLITE_DENIAL.sub("ます", stated)):
        return "no" if _POLITE_DENIAL.search(stated) else "yes"
    return "no" if _DENIAL_IN_HAN.sub("", stated, count=1) == asked else None


_POLITE = re.compile("ます$")
_PARTICLES = re.compile("[はがをに]")
_POLITE_DENIAL = re.compile("ません$")

_DENIAL_IN_HAN = re.compile("没有?|沒有?|不|未")
_MOOD_IN_HAN = re.compile("[了吗嗎か。]")
_ASKS_WHOLE = re.compile("[吗嗎か][？?。]?$")
_LONGEST_VERB: Final = 4
