"""Whether a longer answer states a gold text: "She holds a red umbrella over her head" for "red umbrella".

The form of the answer decides. The gold words are next to each other. The words beside them do not make another thing
of them ("hot dog" for dog, "next to the bus" for bus). Nothing denies, doubts or contrasts them. And there is no
second answer of the same kind: "red and blue" for red.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from distill.answers.words.other_scripts import states_in_han
from distill.answers.words.spelling import SPELLINGS, are_opposites
from distill.answers.words.spelling_variants import SHORT
from distill.answers.words.tokens import ABBREVIATIONS
from distill.answers.words.word_classes import (
    AFTER,
    AFTER_COMMA,
    ARTICLES,
    BEFORE,
    CALENDAR,
    CLASSES,
    COLOURS,
    COUNTS,
    GERMAN,
    KINDS,
    LEADING,
    NUMBERED,
    OPENING,
    PRONOUNS,
    RANKED_BELOW,
    SET_AGAINST,
    SIDES,
    SIZES,
    TIED,
    affirms,
)
from distill.answers.words.word_forms import looks_like_verb, plain_forms, same_word_form

_LONGEST: Final = 400
_MOST_WORDS: Final = 40
_FRAGMENT: Final = 3
_LETTERS_OF_ACRONYM: Final = 4
_COMPOUND: Final = 5
_MANY_WORDS: Final = 4
"""Words of a gold answer that hardly stand together by chance."""
_WORD = re.compile(r"(?:[A-Z]\.(?![^\W\d_]{2}))+|[^\W_]+(?:['’&.-][^\W_]+)*|[^\w\s]")
_SENTENCE = re.compile(r"(?<=[^\W\d_]{2}[.!?;])\s+|(?<=[\d)\"'][.!?;])\s+|\n+|(?<=[。！？])")
_ADDED = re.compile(
    r"(?<=\w),? (?:followed by|ahead of|compared (?:to|with)|because|since|according to|based on|judging (?:by|from)"
    r"|which (?:is|was|has|had|means)|with (?:about |a |an )?(?:\w+ of )?[$€£]?\d\S*"
    r"|as (?:shown|seen|indicated|stated|written|the|it))\b.*",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    written: tuple[str, ...]
    words: tuple[str, ...]
    """In lower case, one spelling."""


def mentions(text: str, gold: str, question: str = "") -> bool:
    """Whether a text states the gold words in its only sentence, its last, or a first one that is not taken back.

    Words of the `question` are no second answer: "The Nikon camera" states Nikon, for "Which camera is it?".
    """
    if _HAN.search(gold):
        return states_in_han(text, gold, question)
    if "@" in gold:
        return {address.casefold() for address in _ADDRESS.findall(text[:_LONGEST])} == {gold.casefold()}
    gold_words = core_words(read_sentence(gold).words)
    repeated = words_of(question) if len(text) <= _LONGEST else frozenset()
    if not any(map(str.isalnum, "".join(gold_words))) or not 0 < len(text) <= _LONGEST:
        return False
    text = _plain_sentence(text)
    if "(" in text and "(" not in gold:
        aside = _ENDING_ASIDE.fullmatch(text)
        if (
            aside is not None
            and core_words(read_sentence(aside["aside"]).words) == gold_words
            and affirms(aside["said"])
        ):
            return True
        text = _ASIDE.sub(lambda aside: aside[0] if _TAKEN_BACK.search(aside[0]) else " ", text)
    sentences = _split(text)
    if len(sentences) > 1 and not any(gold_places(read_sentence(sentences[-1]), gold_words)):
        rest = " ".join(sentences[1:])
        stands = affirms(rest) and not any(gold_places(read_sentence(rest), gold_words))
        return stands and not _names(read_sentence(rest)) and _is_stated_in(sentences[0], gold_words, repeated)
    if any(len(part.split()) <= _FRAGMENT for part in sentences[:-1]):
        return False  # an answer of its own
    before = read_sentence(" ".join(sentences[:-1]))
    if _OPEN.search(" ".join(before.words)) or names_rival(before, range(0), gold_words, repeated):
        return False
    is_alone = len(sentences) == 1 and question != "" and _is_alone_in(sentences[0], gold_words, question, repeated)
    return is_alone or (bool(sentences) and _is_stated_in(sentences[-1], gold_words, repeated))


def _is_alone_in(sentence: str, gold: tuple[str, ...], question: str, repeated: frozenset[str]) -> bool:
    """Whether one clause has the gold words, ties them to no other word, and holds no second answer."""
    head = _ADDED.sub("", sentence.rstrip(" .!;。"))
    read, asked = read_sentence(head), {*read_sentence(question[:_LONGEST]).words}
    outside = [word for word in read.words if word not in asked.union(gold)]
    if _JOINS.search(head) or len(read.words) > _MOST_WORDS or RANKED_BELOW & {*outside} or not affirms(sentence):
        return False
    for inside in gold_places(read, gold):
        before, after = read.words[: inside.start][-1:], read.words[inside.stop :][:1]
        is_tied = {*before} & (TIED - {"by", "of"} - asked)
        in_a_name = before and all(name[0].isupper() for name in read.written[inside.start - 1 : inside.start + 1])
        goes_on = {*after} - AFTER - BEFORE - ARTICLES - KINDS - repeated - asked
        if not (is_tied or in_a_name or goes_on or names_rival(read, inside, gold, repeated)):
            return True
    return False


_JOINS = re.compile(r"[,;:()—]|\b(?:and|y|e|et|und|или|と)\b")


def ends_with(sentence: str, gold: str, question: str) -> bool:
    """Whether a sentence ends with the gold words, or only adds to them: "the tallest bar is Burgos, as shown".

    For a sentence that must state the answer, such as the last one of a chain of thought.
    """
    gold_words = core_words(read_sentence(gold).words)
    if not any(map(str.isalnum, "".join(gold_words))) or not 0 < len(sentence) <= _LONGEST:
        return False
    sentence = _plain_sentence(sentence).rstrip(" .!;。")
    head = _ADDED.sub("", sentence)
    read, repeated = read_sentence(head), words_of(question)
    outside = [word for word in read.words if word not in gold_words]
    if len(read.words) > _MOST_WORDS or RANKED_BELOW & {*outside}:
        return False
    if not affirms(" ".join(word for word in outside if word not in _LINKING)):
        return False
    return any(
        (inside.stop == len(read.words) or _is_free_after(read, inside.stop, gold_words, repeated))
        and not names_rival(read, inside, gold_words, repeated)
        for inside in gold_places(read, gold_words)
    )


_LINKING: Final = frozenset({"what", "who", "which", "so", "also", "and", "both", "only", "while"})


def sentences_of(text: str) -> list[str]:
    """The sentences of an answer, without hedges and with contractions written out: "that is" for "that's"."""
    return _split(_plain_sentence(text))


def _split(text: str) -> list[str]:
    return [part for part in _SENTENCE.split(text) if part.strip()]


def _plain_sentence(text: str) -> str:
    text = _HEDGED.sub(lambda hedge: "there " if "likely" in hedge[0].lower() else "", text)
    text = _CONTRACTED.sub(r"\1 is", _NUMBER_SIGN.sub("number ", text))
    return _TITLED.sub(r"\1", _OWNER_AT_END.sub("", text))


_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_OPEN = re.compile(r"\b(?:or|maybe|might|perhaps|possibly|unclear|unknown)\b", re.IGNORECASE)
_HEDGED = re.compile(
    r"\b(?:(?:would|must|should)(?= be\b)|will|(?:more|most|less|least) likely(?: to)?)\b\s*", re.IGNORECASE
)
"""Words that doubt elsewhere, but not in "that would be Germany" and "adults are most likely"."""
_HAN = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_TAKEN_BACK = re.compile(r"\b(?:not|no|or|never|wrong|incorrect)\b|n't\b", re.IGNORECASE)
_TITLED = re.compile(r"\b(Mrs?|Ms|Dr|Prof|St|Jr|Sr|Inc|Co|Corp|Ltd|Mt|vs)\.(?=\s)")
_CONTRACTED = re.compile(r"\b(he|she|it|that|there|this|what|who)['’]s\b", re.IGNORECASE)
_OWNER_AT_END = re.compile(r"(?<=\w)['’]s[.!]?$")
_JOINED = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_NO_WORDS: Final = "\"'“”„‟‘’«»*_`()[]."
_CODE = re.compile(r"[a-z]{0,3}\d+[a-z]?")
_NUMBER_SIGN = re.compile(r"\b[Nn](?:o|r)\.\s?(?=[A-Z]*[-\d])|#(?=\d)")
_ENDING_ASIDE = re.compile(r"(?P<said>[^()]{1,60}) \((?P<aside>[^()]+)\)\.?")
"""Two names of one thing: football (soccer)."""
_ASIDE = re.compile(r"\s\([^()]*\)")


def core_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Gold words without words that may be left out: left of "to the left", flat of "it is flat", 5 of "page 5"."""
    start, end = 0, len(words)
    if end > 1 and words[0] in PRONOUNS:
        start = 2 if end > 2 and words[1] in _BE else 1
    while start < end - 1 and words[start] in ARTICLES | LEADING:
        start += 1
    while start < end - 1 and words[start] in NUMBERED and _CODE.fullmatch(words[end - 1]):
        start += 1
    while end - 1 > start and words[end - 1] in ("side", "color", "colour", "one") and end - start == 2:
        end -= 1
    return tuple(word for word in words[start:end] if word not in ARTICLES) or words[start:end]


_BE: Final = frozenset({"is", "are", "was", "were"})


def _is_stated_in(sentence: str, gold: tuple[str, ...], repeated: frozenset[str]) -> bool:
    sentence = sentence.rstrip(" .!;。")
    head = _ADDED.sub("", sentence)
    added = " ".join(re.findall(r"[\w'’]+", sentence[len(head) :])[2:])
    read = read_sentence(head)
    outside = [word for word in read.words if word not in gold]
    if len(read.words) > _MOST_WORDS or RANKED_BELOW & {*outside} or not affirms(" ".join((*outside, added))):
        return False
    for inside in gold_places(read, gold):
        is_free = _is_free_before(read, inside, gold, repeated) and _is_free_after(read, inside.stop, gold, repeated)
        if is_free and not names_rival(read, inside, gold, repeated):
            return True
    return False


@lru_cache(maxsize=1024)
def read_sentence(sentence: str) -> Sentence:
    written = tuple(word for word in _WORD.findall(_JOINED.sub(" ", sentence)) if word not in _NO_WORDS)
    lowered = (word.casefold().rstrip(".").replace(".", "" if word[1:2] == "." else ".") or word for word in written)
    return Sentence(written, tuple(SPELLINGS.get(word, word) for word in lowered))


def gold_places(read: Sentence, gold: Sequence[str]) -> Iterator[range]:
    """The places of the gold words; articles may differ: "swing his bat" for "swing the bat"."""
    for start in range(len(read.words) - len(gold) + 1):
        index = start
        for meant in gold:
            while start < index < len(read.words) and read.words[index] in ARTICLES and read.words[index] != meant:
                index += 1
            if index == len(read.words) or not _same_word(read.words[index], meant, len(gold)):
                break
            index += 1
        else:
            yield range(start, index)
    if len(gold) == 1 and len(gold[0]) > _COMPOUND:
        for start, (first, second) in enumerate(pairwise(read.words)):
            if first + second == gold[0]:
                yield range(start, start + 2)  # sea gull


def _same_word(said: str, meant: str, count: int) -> bool:
    return (
        said == meant
        or ABBREVIATIONS.get(said) == meant
        or (count > 1 and not SHORT.isdisjoint(((said, meant), (meant, said))))  # Oak Avenue, Oak Ave
        or ((count == 1 or len(meant) > _FRAGMENT) and same_word_form(said, meant))
    )


def _names(read: Sentence) -> bool:
    """Whether a word is written as a name: with a capital, and no word that may begin a sentence."""
    return any(
        written[0].isupper() and word not in BEFORE | AFTER | ARTICLES | PRONOUNS | OPENING
        for written, word in zip(read.written, read.words, strict=True)
    )


_BESIDE: Final = TIED | BEFORE | AFTER | ARTICLES


@lru_cache(maxsize=1024)
def words_of(question: str) -> frozenset[str]:
    """The content words of a question in every form: bus and buses."""
    words = {word for word in read_sentence(question[:_LONGEST]).words if len(word) >= _FRAGMENT}
    return (
        frozenset(form for word in words for form in plain_forms(word)) - SET_AGAINST - _BESIDE
        if question
        else frozenset()
    )


def _is_free_before(read: Sentence, inside: range, gold: tuple[str, ...], repeated: frozenset[str]) -> bool:
    kinds = KINDS | repeated
    words = read.words
    place = inside.start
    index = place - 1
    has_article = index >= 0 and words[index] in ARTICLES
    while index >= 0 and (
        words[index] in ARTICLES
        or words[index] in COUNTS
        or (words[index] in COLOURS | SIZES and not COLOURS & {*gold} and gold[0] not in SIDES)
    ):
        index -= 1
    if index < 0 or not words[index][0].isalnum():
        return index < 0 or words[index] in ",:"
    word = words[index]
    if word == "of":
        before = words[index - 1] if index else ""
        return before in kinds or before in ("made", "kind", "type", "because")
    is_last = inside.stop == len(words)
    is_verb = len(gold) == 1 and words[place].endswith(("s", "ed")) and gold[0].endswith("ing")
    if is_last and (is_verb or word in PRONOUNS):
        return word not in TIED  # the boy runs
    is_owner = word.endswith(("'s", "’s")) and read.written[index].islower()
    if has_article or is_owner or word in BEFORE or word in kinds or word in NUMBERED:
        return word not in TIED or word in kinds
    return looks_like_verb(word) and not (read.written[index][0].isupper() and index)


_MAKERS: Final = frozenset({"brand", "make", "maker", "manufacturer", "company"})


def _is_model(written: Sequence[str]) -> bool:
    """Whether a sentence ends in the name of a model after its maker: Dell Inspiron 15."""
    return len(written) <= _FRAGMENT and all(word[0].isupper() or word[0].isdigit() for word in written)


OTHER_THINGS: Final = CLASSES["other_things"]
"""Words before a noun that make it another thing: hot dog, toy car."""
_ADJECTIVES: Final = ("en", "y", "al", "ous", "ic", "ful", "ish")
"""How an adjective often ends. A noun before a noun may make it another thing: sea cow, rice cake."""
_MATERIALS: Final = CLASSES["materials"]
"""What a thing is of or for: a brick wall, a tennis ball."""
_SHADES: Final = frozenset({"dark", "light", "bright", "pale", "deep", "wide", "fresh", "cell", "big"})


def is_adjective(read: Sentence, index: int) -> bool:
    """Whether a word may describe the noun after it and does not make it another thing."""
    word = read.words[index]
    is_plain = read.written[index].isalpha() and read.written[index].islower()
    return (
        is_plain
        and word not in OTHER_THINGS | _BESIDE | SIDES | SET_AGAINST
        and (word in _SHADES | _MATERIALS or word.endswith(_ADJECTIVES))
    )


def _is_free_after(read: Sentence, place: int, gold: tuple[str, ...], repeated: frozenset[str]) -> bool:
    kinds = KINDS | repeated
    words = read.words
    if place >= len(words):
        return True
    word = words[place]
    if not word[0].isalnum():
        return word in ".:;!" or (word == "," and {*words[place + 1 : place + 2]} <= AFTER_COMMA | CALENDAR)
    if word in kinds or (COLOURS & {*gold} and not repeated and not read.written[place][0].isupper()):
        return (
            place + 1 >= len(words)
            or _is_free_after(read, place + 1, ("",), repeated)
            or looks_like_verb(words[place + 1])
        )
    if _MAKERS & repeated and read.written[place - 1][0].isupper() and _is_model(read.written[place:]):
        return True
    if word in AFTER:
        return place + 1 < len(words) or not word.isascii()
    return looks_like_verb(word) and place + 1 < len(words) and not read.written[place][0].isupper()


def names_rival(read: Sentence, inside: range, gold: Sequence[str], repeated: frozenset[str]) -> bool:
    """Whether another word could be the answer instead of the gold one: blue beside red, Spain beside Portugal."""
    outside = [index for index in range(len(read.words)) if index not in inside]
    gold_set = {*gold}
    for kinds in (COLOURS, SIDES):
        if kinds & gold_set and any(read.words[index] in kinds - gold_set - {"colored"} for index in outside):
            return True
    if any(are_opposites(read.words[index], word) for index in outside for word in gold):
        return True
    if any(sign.isdigit() for word in gold for sign in word):
        return any(sign.isdigit() for index in outside for sign in read.words[index])
    if len(gold) >= _MANY_WORDS:
        return False
    is_name = not GERMAN & {*read.words} and any(read.written[index][0].isupper() for index in inside)
    return is_name and any(
        index
        and read.written[index][0].isupper()
        and read.words[index + 1 : index + 2] != (":",)
        and read.words[index] not in CALENDAR | KINDS | repeated
        and not (read.written[index].isupper() and len(read.written[index]) <= _LETTERS_OF_ACRONYM)
        and not gold_set & plain_forms(read.words[index])
        and not (index >= inside.stop and _MAKERS & repeated and _is_model(read.written[inside.stop :]))
        for index in outside
    )
