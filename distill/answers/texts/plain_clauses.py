"""Whether one plain clause states the gold words: "She wears a pearl necklace", "A kitchen with white cabinets".

Such a clause has a subject that its question knows, at most one verb that the question lacks, and the gold words as
the head of what follows. So no word is left that could be another answer. Clauses that deny, compare, join or add a
second statement are not read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from distill.answers.texts.asked_roles import (
    PERSONS,
    POSTURES,
    acts_otherwise,
    asked_verbs,
    is_about_the_opposite,
    is_placed_elsewhere,
    is_stating,
)
from distill.answers.texts.mentions import (
    OTHER_THINGS,
    Sentence,
    core_words,
    gold_places,
    is_adjective,
    names_rival,
    read_sentence,
    sentences_of,
    words_of,
)
from distill.answers.texts.restated_questions import is_form_of_any
from distill.answers.texts.turned_relations import turns_relation
from distill.answers.words.basic_words import is_colour
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import (
    ADJECTIVES,
    ARTICLES,
    ASKS_FOR_ANY,
    ATTACHES,
    CLASSES,
    COLOURS,
    COPIES,
    GERMAN,
    JOINS,
    KINDS,
    KNOWN,
    MEASURES,
    MOVING,
    NATIONAL,
    OPEN_PREPOSITIONS,
    PLACING,
    PRONOUNS,
    RANKED_BELOW,
    SET_AGAINST,
    SHADES,
    SIDES,
    SIZES,
    TIED,
    TOPICS,
    UNTIED,
    affirms,
)
from distill.answers.words.word_forms import looks_like_verb

_LONGEST: Final = 300
_MOST_WORDS: Final = 30
_LATIN = re.compile(r"[^\W\d_]", re.ASCII)
_ENGLISH: Final = frozenset(
    ["what", "which", "who", "whom", "whose", "where", "how", "why", "is", "are", "does", "the"]
)
_BE: Final = CLASSES["be"]
_ASIDE = re.compile(r"\s\([^()]{1,60}\)")
_SEEN = re.compile(r"\bcan (?:be )?(?:see|seen|read)\b", re.IGNORECASE)
_USED = re.compile(r"\bis used (?=for\b)", re.IGNORECASE)
_AT_LEAST = re.compile(r"(?:more|less|fewer) than (?=\d)", re.IGNORECASE)
_LEAD_IN = re.compile(
    r"(?:judging (?:by|from)|looking at|according to|based on|compared (?:to|with)|with|of|among|in|on|from|at|above"
    r"|below|behind|under|laut|nach|auf|im|según|d'après|selon|dans|en|sur)\s(?P<lead>[^,;:]{2,80}), (?=\S)",
    re.IGNORECASE,
)
_THUS = re.compile(r"[^:;]{3,80}(?:: |; )(?=(?:it|this|that|he|she|they) (?:is|are)\b)", re.IGNORECASE)
"""Bread and cakes in the window: it is a bakery."""
_REMARK = re.compile(
    r",? (?:followed by|ahead of|because|since|according to|based on|judging (?:by|from)|as (?:shown|seen|indicated"
    r"|stated|written|the|it)|which|who|whose|where|that|partly|including|most likely|number|mit|avec|con|com)\b.*"
    r"|, (?:an?|the|in|on|at|with|by|from|near|right|just|of|for|der|die|das|eine?|le|la|une?|el|una|em|im|au)\b.*"
    r"|, l['’].*|, [$€£]?\d.*| while \w+ing\b.*",
    re.IGNORECASE,
)
"""What follows an answer and only adds to it."""
_APPOSED = re.compile(r"[^,;:!?]{2,60}, (?:i\.e\.,? )?(?P<apposed>an? .{2,40})", re.IGNORECASE)
_JOINED = re.compile(r"(?P<first>\w+) and (?!not\b)\w+", re.IGNORECASE)
_ASKS_HOW = re.compile(
    r"\s*how (?:is|are|does|do|did)\b|\blike\?|\b(?:mood|expression|feel|feeling|describe)\b", re.IGNORECASE
)
_CAUSE = re.compile(
    r"(?:.{0,60}\s|^)(?:because(?: of)?|due to|owing to|parce que?|porque|weil)(?: |(?<=qu)['’])(?P<cause>.+)",
    re.IGNORECASE,
)
_IT_IS = re.compile(r"\b(it|he|she|that)['’]s\b", re.IGNORECASE)
_ASKS_FOR_A_CAUSE = re.compile(r"\s*(?:why|pourquoi|¿por qué|warum)\b|\b(?:reason|caused?)\b", re.IGNORECASE)
_STOPS = re.compile(r"[;:!?\n—→=]|\s[-–]\s|,(?!\d)")


@dataclass(frozen=True, slots=True)
class _Clause:
    read: Sentence
    inside: range
    asked: frozenset[str]
    """The words of the question, and words for the kind of thing that it asks for."""

    @property
    def is_english(self) -> bool:
        return bool(_ENGLISH & self.asked)

    @property
    def is_name(self) -> bool:
        """Whether the gold words are a name; German writes each noun with a capital."""
        return (
            not GERMAN & {*self.read.words}
            and self.read.written[self.inside.start][0].isupper()
            and self.inside.start > 0
        )

    def is_new(self, index: int) -> bool:
        word = self.read.words[index]
        if word in MOVING and self.read.words[index - 1] != "made":
            return word not in self.asked
        return word[0].isalnum() and not (
            is_stating(word) or word in PRONOUNS | KNOWN | OPEN_PREPOSITIONS or is_form_of_any(word, {*self.asked})
        )


def states_plainly(text: str, gold: str, question: str) -> bool:
    """Whether `text` is one plain clause that gives the words of `gold` as its answer.

    "She wears a pearl necklace" states "necklace", for "What is she wearing?".
    """
    if not question or max(len(text), len(question)) > _LONGEST or not _LATIN.search(question):
        return False
    if _ASKS_FOR_A_CAUSE.search(question) and (cause := _CAUSE.fullmatch(text.strip(" ."))) is not None:
        return _is_cause(cause["cause"], gold)
    sentences, gold_words = sentences_of(text), core_words(read_sentence(gold).words)
    written = [word.removesuffix("'s") for word in read_sentence(question).words]
    if len(sentences) != 1 or not gold_words or {*gold_words} <= {*written}:
        return False
    clause = _bare_clause(sentences[0], gold_words)
    joined = _JOINED.fullmatch(clause)
    if joined is not None and joined["first"].casefold() == gold.casefold() and _ASKS_HOW.search(question):
        clause = joined["first"]
    apposed = _APPOSED.fullmatch(clause)
    if apposed is not None and gold.islower() and not SET_AGAINST & {*read_sentence(clause).words}:
        clause = apposed["apposed"]
    read = read_sentence(clause)
    places = list(gold_places(read, gold_words))
    if gold_words[-1].endswith("ing") and not all(read.words[place.stop - 1].endswith("ing") for place in places):
        return False  # he carries a skateboard, for skateboarding
    if len(places) != 1 or len(read.words) > _MOST_WORDS or _STOPS.search(clause):
        return False
    asked = frozenset(written).union(*(topic for topic in TOPICS if topic & {*written}))
    plain = _Clause(read, places[0], asked)
    return (
        _is_affirmed(plain)
        and not is_about_the_opposite(clause, gold_words, question)
        and not names_rival(read, places[0], gold_words, words_of(question))
        and not is_placed_elsewhere(read.words, written)
        and not acts_otherwise(read.words, places[0], written)
        and _is_answer(plain, written)
        and (_has_indefinite(gold) or not turns_relation(clause, gold_words, question))
    )


def _is_cause(cause: str, gold: str) -> bool:
    """Whether a cause is the gold one, with at most two words after it: it is cold outside, for "it's cold"."""
    said, meant = (tokens(_IT_IS.sub(r"\1 is", part)) for part in (cause, gold))
    rest = said[len(meant) :]
    return (
        said[: len(meant)] == meant and len(rest) <= _TWO and not {*rest} & (SET_AGAINST | JOINS) and affirms(cause)
    )


def _has_indefinite(gold: str) -> bool:
    """Whether the gold answer has an indefinite article of another language: un bolso, eine Katze."""
    return gold.partition(" ")[0].casefold() in {"un", "une", "una", "uno", "um", "uma", "ein", "eine", "einen"}


def _is_affirmed(clause: _Clause) -> bool:
    """Whether no word denies, doubts, compares or joins: not "a dog or a cat".

    What describes the gold words may join and place things: "a man with a hat and a tie".
    """
    words, inside = clause.read.words, clause.inside
    barred = (JOINS | SET_AGAINST | RANKED_BELOW) - clause.asked - {"both"} | {"less", "least"}
    after = {*words[inside.stop :]}
    if words[-1] in PRONOUNS | {"him", "her", "them"} and len(words) - inside.stop == _TWO:
        after -= ATTACHES  # behind him
    if inside.stop < len(words) and words[inside.stop] in ATTACHES:
        after -= ATTACHES | ({"and", "und", "y", "e", "et"} if words[inside.stop] in _WITH else set())
    return not barred & {*words[: inside.start], *after} and not any(word.endswith(("n't", "n’t")) for word in words)


_WITH: Final = frozenset({"with", "mit", "con", "com", "avec"})


def _bare_clause(sentence: str, gold: Sequence[str]) -> str:
    """A sentence without an aside, a lead-in and a last remark.

    "It is a bus" of "In the image, it is a bus (red), as shown".
    """
    sentence = _SEEN.sub("see", _USED.sub("is ", sentence))
    sentence = _AT_LEAST.sub("", _ASIDE.sub("", sentence.rstrip(" .!;。")))
    lead_in = _LEAD_IN.match(sentence) or _THUS.match(sentence)
    if lead_in is not None and _adds_nothing(lead_in[0], gold):
        sentence = sentence[lead_in.end() :]
    for remark in _REMARK.finditer(sentence):
        head = sentence[: remark.start()]
        words = read_sentence(head).words
        if (
            words[-1:]
            and words[-1] not in _BE
            and any(gold_places(read_sentence(head), gold))
            and _adds_nothing(remark[0], gold)
        ):
            return head
    return sentence


def _adds_nothing(part: str, gold: Sequence[str]) -> bool:
    """Whether a part of a sentence can be left out: it has no gold word, denies nothing and names no rival."""
    read = read_sentence(part)
    words = {*read.words}
    if any(gold_places(read, gold)) or words & (SET_AGAINST - UNTIED):
        return False
    return not any(kinds & {*gold} and kinds & words for kinds in (COLOURS, SIDES))


def _is_answer(clause: _Clause, written: Sequence[str]) -> bool:
    start = _noun_phrase_start(clause)
    if start is None:
        return False
    return _is_known_before(clause, start, written) and _is_free_after(clause)


def _noun_phrase_start(clause: _Clause) -> int | None:
    """Where the noun phrase of the gold answer begins: at "pearl" for necklace.

    None where a word before it makes it another thing: "a sea cow" for cow.
    """
    read, inside = clause.read, clause.inside
    index = inside.start
    while index and _is_modifier(clause, index - 1):
        index -= 1
    is_determined = index > 0 and (read.words[index - 1] in ARTICLES or read.words[index - 1].endswith("'s"))
    if not is_determined and index < inside.start and index and looks_like_verb(read.words[index]):
        index += 1  # the verb
    modifiers = range(index, inside.start)
    if {read.words[place] for place in modifiers} & (OTHER_THINGS | SET_AGAINST):
        return None
    head = read.words[inside.stop - 1]
    is_plural = head.endswith("s") and not head.endswith(("ss", "us", "is"))
    if all(_describes(read, place) for place in modifiers):
        return index
    is_said = clause.is_english and any(read.words[place] not in _BE | PRONOUNS | ARTICLES for place in range(index))
    if not is_said or not (is_determined or is_plural):
        return None  # it is a sea cow
    return index


def _describes(read: Sentence, index: int) -> bool:
    word = read.words[index]
    return (
        word in COLOURS | SIZES | ADJECTIVES | NATIONAL
        or is_adjective(read, index)
        or word.endswith(("ed", "ing", "an", "ese", "less", "ant", "ent"))
    )


def _is_modifier(clause: _Clause, index: int) -> bool:
    """Whether a word may describe the noun after it: "pearl" in "pearl necklace", no "Red" in "Red Sox"."""
    read = clause.read
    word, written = read.words[index], read.written[index]
    if not word.isalpha() or word in ARTICLES | PRONOUNS | _BE | SIDES | TIED | ATTACHES | OPEN_PREPOSITIONS:
        return False
    if (is_stating(word) or word in KNOWN) and word not in COLOURS | SIZES:
        return False
    if word in NATIONAL or (written[0].isupper() and word.endswith(("an", "ese", "ish"))):
        return not clause.is_name or len(clause.inside) > _TWO
    if not clause.is_english:
        return is_colour(word)
    return not clause.is_name and (written[0].islower() or index == 0)


_TWO: Final = 2


def _is_known_before(clause: _Clause, start: int, written: Sequence[str]) -> bool:
    """Whether only the subject of the question and one verb are before the noun phrase: "She wears"."""
    read = clause.read
    before = [index for index in range(start) if read.words[index] not in ARTICLES]
    new = [index for index in before if clause.is_new(index) and not _only_places(read.words, index)]
    if len(new) > 1 or _is_copy(clause, start):
        return False
    if before and read.words[before[-1]] in (TIED | PLACING) - OPEN_PREPOSITIONS - clause.asked:
        return False
    if not new:
        return True
    verb = new[0]
    word = read.words[verb]
    if not clause.is_english or (verb + 1 == start and read.words[start].endswith("ing")):
        return False  # she teaches cooking
    if verb == 0 or not (looks_like_verb(word) or read.words[verb - 1] in _BE) or read.words[verb - 1] in ARTICLES:
        return False
    between = [index for index in before if index > verb]
    if any(read.words[index] in _BE | TIED - OPEN_PREPOSITIONS - clause.asked for index in between):
        return False
    if any(word.endswith("est") or word in ("most", "least") for word in written):
        return False  # it exceeds Italy, for the highest
    verbs = asked_verbs(written)
    if ASKS_FOR_ANY & {*written[2:]}:
        return True
    verbs = verbs.union(*(topic for topic in TOPICS if topic & verbs))
    return not verbs or any(is_form_of_any(one, {*verbs}) for one in read.words)


def _is_copy(clause: _Clause, start: int) -> bool:
    words = clause.read.words[:start]
    return any(word in COPIES - clause.asked and after == "of" for word, after in pairwise(words))


def _only_places(words: Sequence[str], index: int) -> bool:
    """Whether a noun only tells an amount or a place: pile in "a pile of fries", cover in "the name on the cover"."""
    after = words[index + 1 : index + 3]
    if words[index] in MEASURES and after[:1] == ("of",):
        return not ARTICLES & {*after}
    is_placed = index > 1 and words[index - 1] in ARTICLES and words[index - 2] in ("on", "in", "at")
    return is_placed and {*after[:1]} <= _BE | {"belongs", "says", "reads"}


def _is_free_after(clause: _Clause) -> bool:
    """Whether what follows the gold words only describes them, or repeats the question: "a bus that is red"."""
    read, stop = clause.read, clause.inside.stop
    after = range(stop, len(read.words))
    if not after:
        return True
    if read.words[stop] in KINDS and len(after) == 1:
        return True
    describes = COLOURS | SIZES | POSTURES
    new = [index for index in after if clause.is_new(index) and not read.words[index].isdigit()]
    if not new and not {read.words[index] for index in after} & (describes - clause.asked):
        return read.words[stop] not in PERSONS - clause.asked
    if read.words[stop] in ATTACHES and not (clause.is_name and read.words[stop] in ("of", "de")):
        return clause.is_english or read.words[stop] not in _FOREIGN_OF
    return len(after) == 1 and _describes_behind(clause)


_FOREIGN_OF: Final = frozenset({"de", "du", "des", "del", "da", "do", "von"})


def _describes_behind(clause: _Clause) -> bool:
    """Whether a last word is an adjective of a Romance language: un cheval brun, un verde claro."""
    read, word = clause.read, clause.read.words[clause.inside.stop]
    gold = " ".join(read.words[index] for index in clause.inside)
    if is_colour(gold):
        return word in SHADES
    return is_colour(word) and not clause.is_english
