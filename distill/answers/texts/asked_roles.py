"""Whether a sentence gives the gold words the role that its question asks for.

For "Who wins?" and the gold answer Spain, "Portugal beats Spain" has the gold words in another role. So every word
before the gold words must be a word of the question, or a word that only states something ("the answer is"). The
words after them must be about the asked thing.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from distill.answers.texts.mentions import (
    Sentence,
    core_words,
    gold_places,
    is_adjective,
    read_sentence,
    sentences_of,
)
from distill.answers.texts.stated_polarity import compares
from distill.answers.words.spelling import OPPOSITES, are_opposites
from distill.answers.words.word_classes import (
    ARTICLES,
    CLASSES,
    COLOURS,
    COPIES,
    COUNTS,
    KINDS,
    NAMED_THINGS,
    OPENING,
    PRONOUNS,
    SIDES,
    SIZES,
    TIED,
)
from distill.answers.words.word_forms import is_form_of_any, looks_like_verb

_LONGEST: Final = 400
_BE: Final = CLASSES["be"]
_STATING: Final = CLASSES["stating"] | CLASSES["be_in_any_language"] | _BE | {"mit", "avec", "con", "com"}
_SAYS: Final = frozenset({"says", "say", "reads", "read", "spells", "states"})
_CONCLUDES: Final = frozenset({":", ";", "so", "thus", "hence", "therefore", "i.e", *_SAYS})
"""Words after which a statement of its own begins."""
_BEFORE_A_VERB: Final = frozenset({"do", "does", "did", "can", "could", "will", "would", "might", "may", "should"})
_AUXILIARY: Final = _BE | _BEFORE_A_VERB | {"has", "have", "had"}
PERSONS: Final = frozenset({"man", "men", "woman", "women", "boy", "girl", "child", "people", "person"})
POSTURES: Final = frozenset({"sits", "lies", "hangs", "stands", "leads", "tops"})
_PLACES: Final = {
    **{"in": "in", "inside": "in", "within": "in", "on": "on", "atop": "on", "under": "under", "below": "under"},
    **{"beneath": "under", "above": "over", "over": "over", "behind": "behind", "outside": "outside", "off": "off"},
    **{"near": "near", "beside": "near", "after": "after", "before": "before", "from": "from", "to": "to"},
    **{"by": "near", "out": "outside"},
}
"""Prepositions of place and time to what they say."""
_BREAKS: Final = frozenset(
    {",", ";", ":", "because", "since", "as", "which", "who", "where", "when", "with", "while"}
)
_ASKING: Final = frozenset(
    {"what", "which", "who", "whom", "whose", "where", "how", "why", "when", "is", "are", "does"}
)
_LATIN = re.compile(r"[^\W\d_]", re.ASCII)


def is_about_another(text: str, gold: str, question: str) -> bool:
    """Whether an answer that holds the gold words is about another thing than its question.

    "The vase is on the floor" holds "floor", and not as the answer to "What is under the vase's table?".
    """
    if not question:
        return False
    words = core_words(read_sentence(gold).words)
    text = text[-_LONGEST:]
    return is_about_the_opposite(text, words, question) or not _stands_where_asked(text, words, question)


def _stands_where_asked(text: str, gold: tuple[str, ...], question: str) -> bool:
    written = [word.removesuffix("'s") for word in read_sentence(question[:_LONGEST]).words]
    asked = {*written}
    if "@" in text or not _LATIN.search(question):
        return True
    if {*gold} <= asked and "or" not in asked:
        return False  # the girl wants a doll, for "what does the girl want?"
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None and core_words(read_sentence(quoted["quoted"]).words) == gold:
        return True
    sentences = sentences_of(text)
    for place, sentence in reversed([*enumerate(sentences)]):
        read = read_sentence(sentence.partition("(")[0] or sentence)
        places = list(gold_places(read, gold))
        if places:
            return (
                any(
                    _is_explained_before(read, inside, written) and _is_explained_after(read, inside, asked)
                    for inside in places
                )
                and not is_placed_elsewhere(read.words, written)
                and not any(acts_otherwise(read.words, inside, written) for inside in places)
                and not any(_answers_later(later, read, asked) for later in sentences[place + 1 :])
            )
    return True


_QUOTED = re.compile(r"(?=[^\"“”]|[\"“][^\"“”]+[\"”]\.?$)[^\"“”.;!?]*[\"“](?P<quoted>[^\"“”]+)[\"”](?: [a-z]+)?\.?")
"""Words in quotes at the end, or before one noun: it represents "Very favorable" opinions."""


def _answers_later(later: str, read: Sentence, asked: set[str]) -> bool:
    """Whether a later sentence has more words of the question than `read`, the one with the gold words."""
    words = read_sentence(later).words
    known = {word for word in asked if is_form_of_any(word, {*read.words})} | _STATING | ARTICLES | _ASKING
    refers_back = {*words[:1]} & (PRONOUNS | {"this", "that"})
    return not refers_back and any(is_form_of_any(word, asked - known) for word in words)


def acts_otherwise(words: Sequence[str], inside: range, asked: Sequence[str]) -> bool:
    """Whether the gold words are acted on where the question asks for what acts, or the other way round.

    "It is addressed to her" gives "her" as the receiver, for "Who signed it?".
    """
    before = [word for word in words[: inside.start] if word not in ARTICLES - {"that"}]
    after = words[inside.stop : inside.stop + 1]
    if asked[:1] == ["who"] and {*before[-1:]} & {"for", "to", "at", "on", "in", "with"} - {*asked}:
        return True  # it is addressed to her, for "who signed it?"
    if "being" in asked:
        return bool(after) and after[0] not in _AUXILIARY and is_form_of_any(after[0], {*asked} - _AUXILIARY)
    place = {"who": 1, "what": 1, "which": 2}.get(next(iter(asked), ""), len(asked))
    verb = {*asked[place : place + 1]} - _AUXILIARY
    if not verb or _AUXILIARY & {*asked[place:]}:
        return False
    if "by" in words[inside.stop :]:
        return True
    stated = {"by", ":"} & {*before} or {*before[-1:]} & (_BE | {"comes"})
    return not stated and any(is_form_of_any(word, verb) for word in before)


def is_placed_elsewhere(words: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether a thing of the question has another place: "on the table", for "What is under the table?"."""
    said, meant = _placed(words), _placed(asked)
    return any(meant.get(thing, place) != place for thing, place in said.items())


def _placed(words: Sequence[str]) -> dict[str, str]:
    things = [word for word in words if word not in ARTICLES - {"that"} and word != "of"]
    return {thing: _PLACES[place] for place, thing in pairwise(things) if place in _PLACES and thing not in SIDES}


def _is_explained_before(read: Sentence, inside: range, written: Sequence[str]) -> bool:
    asked, verbs = {*written}, asked_verbs(written)
    words = read.words
    start = max((index + 1 for index in range(inside.start) if _starts_again(words, index)), default=0)
    new = [index for index in range(start, inside.start) if _is_new(read, index, inside, asked)]
    if new and verbs and not any(is_form_of_any(word, verbs) for word in words):
        return False  # he sells hats, for "what is he wearing?"
    return not new or (len(new) == 1 and bool(_ASKING & asked) and _only_adds(read, new[0], start, inside))


def _starts_again(words: Sequence[str], index: int) -> bool:
    """Whether a statement of its own follows: with its long neck, this is a giraffe."""
    refers = words[index] == "," and words[index + 1] in ("this", "it") and words[index + 2 : index + 3] == ("is",)
    return refers or words[index] in _CONCLUDES


def asked_verbs(asked: Sequence[str]) -> set[str]:
    """The words by which a question describes its answer: "riding" of "What is he riding?", "tallest", "signed"."""
    asked = [*asked[:1], *(word for before, word in pairwise(asked) if not _qualifies(before, word))]
    place = {"who": 1, "which": 2}.get(next(iter(asked), ""), 0)
    done = {word for word in asked if _DONE.fullmatch(word)} | {*asked[place : place + 1][:place]}
    helper = next((index for index, word in enumerate(asked) if word in ("do", "does", "did")), len(asked))
    done |= {word for before, word in pairwise(asked[helper:]) if before not in ARTICLES and word[0].isalnum()}
    return done - _STATING - _AUXILIARY - ARTICLES - _ASKING - {"doing"}


def _qualifies(before: str, word: str) -> bool:
    """Whether a word specifies the thing and is not its verb: which operating system."""
    return before in ("what", "which", "the") and word.endswith("ing")


_DONE = re.compile(r"[a-z]{3,}(?:ing|ed|est)")


def _only_adds(read: Sentence, index: int, start: int, inside: range) -> bool:
    """Whether a word that the question lacks only states the answer: "runs" in "It runs Android"."""
    words, between = read.words, read.words[index + 1 : inside.start]
    word = words[index]
    if index == start or not (between or (looks_like_verb(word) and words[index - 1] not in ARTICLES)):
        return False  # rice cake
    if not between and words[inside.start].endswith("ing"):
        return False  # she stopped reading
    return not {*between} & (_AUXILIARY | _BREAKS | _JOINING | TIED - {"by"}) and word not in _PASSING


_PASSING: Final = TIED | _PLACES.keys() | {"past", "through", "across", "along", "toward", "towards", "about"}
_JOINING: Final = frozenset({"and", "y", "et", "und", "e", "that", "ist", "sind", "war", "est", "es", "fue"})


def _is_new(read: Sentence, index: int, inside: range, asked: set[str]) -> bool:
    word, after = read.words[index], read.words[index + 1]
    if not word[0].isalnum() or is_form_of_any(word, asked):
        return False
    if word in COPIES and after == "of":
        return True
    if word in _STATING | ARTICLES | PRONOUNS | OPENING | COUNTS | COLOURS | SIZES:
        return False
    if all(is_adjective(read, place) for place in range(index, inside.start)):
        return False  # a wooden bench
    if word in KINDS and after == "of" and read.words[index + 2] not in ARTICLES:
        return False  # a flock of sheep
    if NAMED_THINGS & asked and all(name[0].isupper() for name in read.written[index : inside.stop]):
        return False  # Boston Red Sox
    if after in _AUXILIARY and not _PLACES.keys() & asked:
        place = index - 2 if read.words[index - 1] in ARTICLES else index - 1
        if place > 0 and read.words[place] in _PLACES and is_form_of_any(read.words[place - 1], asked - _STATING):
            return False  # the book on the table is by her
    return not (word in KINDS and read.written[index][0].isupper() and index + 1 == inside.start)  # President Lincoln


def _is_explained_after(read: Sentence, inside: range, asked: set[str]) -> bool:
    words = read.words[inside.stop :]
    end = next((index for index, word in enumerate(words) if word in _BREAKS), len(words))
    tail = [word for word in words[:end] if word[0].isalnum()]
    if not tail or any(word in _BE for word in read.words[: inside.start]):
        return True
    if tail[0].endswith("s") and not tail[0].endswith("ss") and _is_unasked(tail[0], asked):
        return tail[0] in KINDS
    new = [word for word in tail if _is_unasked(word, asked) and not compares(word)]
    topics = asked - (_STATING - {"most"}) - ARTICLES - _ASKING
    if not new or (tail[0] not in _BE and not tail[0].endswith("s")):
        return True
    return all(is_form_of_any(topic, {*read.words}) for topic in topics)


def is_stating(word: str) -> bool:
    """Whether a lower-case word only states, counts or places something: is, two, sits."""
    return word in _STATING | ARTICLES | SIZES | COUNTS | POSTURES


def _is_unasked(word: str, asked: set[str]) -> bool:
    return not is_stating(word) and not is_form_of_any(word, asked)


def is_about_the_opposite(text: str, gold: tuple[str, ...], question: str) -> bool:
    """Whether a text is about the opposite of what is asked: the shortest one, where the tallest is asked for."""
    of_question = {*read_sentence(question[:_LONGEST]).words}
    said = {*read_sentence(text).words} - {*gold}
    doing, done = ({word for word in words if _DOING.fullmatch(word)} for words in (of_question, said))
    if doing and done and not doing & done and not any(map(_DOING.fullmatch, gold)) and "doing" not in of_question:
        return True  # baking, where eating is asked for
    asked = (of_question & _TURNED) - {*gold}
    coloured = COLOURS & of_question
    if coloured and not COLOURS & {*gold} and (COLOURS & said) - coloured:
        return True  # the black one, where the brown one is asked for
    if any(owner in of_question and owned not in of_question for owner, owned in _OWNED.findall(text.casefold())):
        return True  # the author's assistant, for the author
    return any(are_opposites(one, other) for one in asked for other in said - of_question)


_DOING = re.compile(r"(?!making|having|using|getting|building|operating|running)[a-z]{3,}ing")
_OWNED = re.compile(r"\b(\w+)['’]s (\w+)(?= (?:is|are|was|were)\b)")
_TURNED: Final = frozenset(word for pair in OPPOSITES for word in pair)
