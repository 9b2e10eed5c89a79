"""Whether one clause states the gold words and no other answer: "She wears a pearl necklace", "A modern kitchen".

All words beside the gold ones are words of the question or words that only state, place or describe; one verb may be
new. So no word is left that could be another answer. Clauses that deny, compare, join or add a second statement are
not read.
"""

import re
from collections.abc import Sequence
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
from distill.answers.texts.turned_relations import turns_relation
from distill.answers.words.basic_words import is_colour
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
)
from distill.answers.words.word_forms import is_form_of_any, looks_like_verb

_LONGEST: Final = 300
_MOST_WORDS: Final = 30
_ELIDED = re.compile(r"\b[ld]['’](?=\w)", re.IGNORECASE)
_ENGLISH: Final = frozenset(
    ["what", "which", "who", "whom", "whose", "where", "how", "why", "is", "are", "does", "the"]
)
_BE: Final = CLASSES["be"]
_INDEFINITE: Final = frozenset({"un", "une", "una", "uno", "um", "uma", "ein", "eine", "einen"})
_WITH: Final = frozenset({"with", "mit", "con", "com", "avec"})
_AND: Final = frozenset({"and", "und", "y", "e", "et"})
_CAUSES: Final = frozenset({"because", "since", "due", "parce", "porque", "weil"})
_ASIDE = re.compile(r"\s\([^()]{1,60}\)")
_USED = re.compile(r"\bis used (?=for\b)", re.IGNORECASE)
_AT_LEAST = re.compile(r"(?:more|less|fewer) than (?=\d)", re.IGNORECASE)
_LEAD_IN = re.compile(
    r"(?:judging (?:by|from)|looking at|according to|based on|compared (?:to|with)|with|of|among|in|on|from|at|above"
    r"|below|behind|under|laut|nach|auf|im|según|d'après|selon|dans|en|sur)\s[^,;:]{2,80}, (?=\S)"
    r"|[^:;]{3,80}(?:: |; )(?=(?:it|this|that|he|she|they) (?:is|are)\b)",
    re.IGNORECASE,
)
"""Also what shows the answer. Bread and cakes in the window: it is a bakery."""
_REMARK = re.compile(
    r",? (?:followed by|ahead of|because|since|according to|based on|judging (?:by|from)|as (?:shown|seen|indicated"
    r"|stated|written|the|it)|which|who|whose|where|that|partly|including|most likely|number|mit|avec|con|com)\b.*"
    r"|, (?:an?|the|in|on|at|with|by|from|near|right|just|of|for|der|die|das|eine?|le|la|une?|el|una|em|im|au)\b.*"
    r"|, (?:wie|comme|como|come|conforme)\b.*|, l['’].*|, [$€£]?\d.*| while \w+ing\b.*",
    re.IGNORECASE,
)
"""What follows an answer and only adds to it."""
_APPOSED = re.compile(r"[^,;:!?]{2,60}, (?:i\.e\.,? )?(?P<apposed>an? .{2,40})", re.IGNORECASE)
_ASKS_HOW = re.compile(
    r"\s*how (?:is|are|does|do|did)\b|\blike\?|\b(?:mood|expression|feel|feeling|describe)\b", re.IGNORECASE
)
_ASKS_FOR_A_CAUSE = re.compile(r"\s*(?:why|pourquoi|¿por qué|warum)\b|\b(?:reason|caused?)\b", re.IGNORECASE)
_RANKS = re.compile(r"\w+est|most|least")
_STOPS = re.compile(r"[;:!?\n—→=]|\s[-–]\s|,(?!\d)")


def states_plainly(text: str, gold: str, question: str) -> bool:
    """Whether `text` is one plain clause that gives the words of `gold` as its answer.

    "She wears a pearl necklace" states "necklace", for "What is she wearing?".
    """
    if not question or max(len(text), len(question)) > _LONGEST:
        return False
    text, gold = _ELIDED.sub("", text), _ELIDED.sub("", gold)
    sentences, meant = sentences_of(text), core_words(read_sentence(" ".join(sentences_of(gold))).words)
    written = [word.removesuffix("'s") for word in read_sentence(question).words]
    asked = frozenset(written).union(*(topic for topic in TOPICS if topic & {*written}))
    if _ASKS_FOR_A_CAUSE.search(question):
        asked |= _CAUSES
    if len(sentences) != 1 or not meant or ({*meant} <= {*written} and "or" not in asked):
        return False
    clause = _bare_clause(sentences[0], gold, meant)
    read = read_sentence(clause)
    places = list(gold_places(read, meant))
    if len(places) != 1 or len(read.words) > _MOST_WORDS or _STOPS.search(clause):
        return False
    if _ASKS_HOW.search(question) and places[0].start == 0 and {*read.words[places[0].stop :][:1]} <= _AND:
        read = Sentence(read.written[: places[0].stop], read.words[: places[0].stop])  # happy and excited
    if meant[-1].endswith("ing") and not read.words[places[0].stop - 1].endswith("ing"):
        return False  # he carries a skateboard, for skateboarding
    return (
        _has_one_answer(read, places[0], asked)
        and not is_about_the_opposite(clause, meant, question)
        and not names_rival(read, places[0], meant, words_of(question))
        and not is_placed_elsewhere(read.words, written)
        and not acts_otherwise(read.words, places[0], written)
        and _is_verb_asked(read, places[0], asked, set() if ASKS_FOR_ANY & {*written[2:]} else asked_verbs(written))
        and (gold.partition(" ")[0].casefold() in _INDEFINITE or not turns_relation(clause, meant, question))
    )


def _bare_clause(sentence: str, gold: str, meant: Sequence[str]) -> str:
    """A sentence without an aside, a lead-in and a last remark.

    "It is a bus" of "In the image, it is a bus (red), as shown".
    """
    sentence = _AT_LEAST.sub("", _ASIDE.sub("", _USED.sub("is ", sentence).rstrip(" .!;。")))
    lead_in = _LEAD_IN.match(sentence)
    if lead_in is not None and _adds_nothing(lead_in[0], meant):
        sentence = sentence[lead_in.end() :]
    for remark in _REMARK.finditer(sentence):
        head = read_sentence(sentence[: remark.start()])
        if head.words[-1:] and head.words[-1] not in _BE and any(gold_places(head, meant)):
            return sentence[: remark.start()] if _adds_nothing(remark[0], meant) else sentence
    apposed = _APPOSED.fullmatch(sentence)
    is_apposed = apposed is not None and gold.islower() and not SET_AGAINST & {*read_sentence(sentence).words}
    return apposed["apposed"] if apposed is not None and is_apposed else sentence


def _adds_nothing(part: str, gold: Sequence[str]) -> bool:
    """Whether a part of a sentence can be left out: it has no gold word, denies nothing and names no rival."""
    read = read_sentence(part)
    words = {*read.words}
    if any(gold_places(read, gold)) or words & (SET_AGAINST - UNTIED):
        return False
    return not any(kinds & {*gold} and kinds & words for kinds in (COLOURS, SIDES))


def _has_one_answer(read: Sentence, inside: range, asked: frozenset[str]) -> bool:
    """Whether nothing denies, doubts, compares or joins, and only one verb beside the gold words is new."""
    words = read.words
    is_english = bool(_ENGLISH & asked)
    is_name = not GERMAN & {*words} and read.written[inside.start][0].isupper() and inside.start > 0
    start = _phrase_start(read, inside, asked, is_name=is_name)
    before, after = words[:start], words[inside.stop :]
    barred = (JOINS | SET_AGAINST | RANKED_BELOW | OTHER_THINGS) - asked - {"both"} | {"less", "least"}
    described = after[:1] and after[0] in ATTACHES and not (is_name and after[0] in ("of", "de"))
    if described or (after[1:] and {*after[1:]} <= PRONOUNS | {"him", "her", "them"}):
        barred_after = barred - ATTACHES - (_AND if after[0] in _WITH else set())
    else:
        barred_after = barred
    stated = {*words[words[0] in ARTICLES : inside.start]}  # "o" is an article here, and "or" elsewhere
    if barred & stated or barred_after & {*after} or any(word.endswith(("n't", "n’t")) for word in words):
        return False
    tied = (TIED | PLACING | MOVING) - asked - (OPEN_PREPOSITIONS - MOVING)
    bare = [word for word in before if word not in ARTICLES]
    if (bare and bare[-1] in tied) or any(word in COPIES - asked for word in before if "of" in before):
        return False
    new = [index for index in range(start) if _is_new(read, index, asked)]
    if len(new) > is_english or any(index == 0 or words[index - 1] in ARTICLES for index in new):
        return False
    return described or not after or _only_describes(read, inside, asked)


def _phrase_start(read: Sentence, inside: range, asked: frozenset[str], *, is_name: bool) -> int:
    """Where the noun phrase of the gold words begins: at "pearl" for necklace, at "cow" of "it is a sea cow"."""
    words, start = read.words, inside.start
    index = start
    while index and not is_name and _is_new(read, index - 1, asked) and read.written[index - 1][0].islower():
        index -= 1
    is_determined = index > 0 and (words[index - 1] in ARTICLES or words[index - 1].endswith("'s"))
    is_said = any(words[place] not in _BE | PRONOUNS | ARTICLES for place in range(index))
    if is_determined and is_said and _ENGLISH & asked:
        return index
    while start and _describes(read, start - 1):
        start -= 1
    is_verb = 0 < start < inside.start and words[start - 1] not in ARTICLES and looks_like_verb(words[start])
    return start + is_verb


def _describes(read: Sentence, index: int) -> bool:
    word = read.words[index]
    return (
        word in COLOURS | SIZES | ADJECTIVES | NATIONAL
        or is_adjective(read, index)
        or (word.endswith(("ed", "ing", "an", "ese", "less", "ant", "ent")) and word not in _BE)
    )


def _is_new(read: Sentence, index: int, asked: frozenset[str]) -> bool:
    word, behind = read.words[index], read.words[index + 1 : index + 3]
    if word in MEASURES and behind[:1] == ("of",) and not ARTICLES & {*behind}:
        return False  # a pile of fries
    if behind[:1] == ("to",) and is_form_of_any(behind[-1], {*asked}):
        return False  # she wants to catch it
    known = is_stating(word) or word in PRONOUNS | KNOWN | OPEN_PREPOSITIONS
    return word[0].isalnum() and not known and not is_form_of_any(word, {*asked})


def _only_describes(read: Sentence, inside: range, asked: frozenset[str]) -> bool:
    """Whether what follows the gold words repeats the question, or is one adjective of a Romance language."""
    words, stop = read.words, inside.stop
    after = range(stop, len(words))
    if len(after) == 1:
        if is_colour(" ".join(words[inside.start : stop])):
            return words[stop] in SHADES | asked
        is_adjective_after = is_colour(words[stop]) or _ROMANCE_ADJECTIVE.search(words[stop])
        if words[stop] in KINDS or (is_adjective_after and not _ENGLISH & asked):
            return True
    new = [index for index in after if _is_new(read, index, asked) and not words[index].isdigit()]
    return not new and not {*words[stop:]} & (COLOURS | SIDES | POSTURES | PERSONS) - asked


_ROMANCE_ADJECTIVE = re.compile(
    r"(?:al|ale|ali|ales|aux|iques?|ic[oa]s?|os[oa]s?|eux|euses?|ell[oea]s?|iv[oa]s?|ifs?)$"
)
"""How adjectives after their noun end: gelato artigianale, pain traditionnel."""


def _is_verb_asked(read: Sentence, inside: range, asked: frozenset[str], verbs: set[str]) -> bool:
    """Whether a clause with a new verb has the verb of its question too, if that has one."""
    words = read.words
    start = _phrase_start(read, inside, asked, is_name=False)
    new = [words[index] for index in range(start) if _is_new(read, index, asked)]
    if not new:
        return True
    if words[inside.start].endswith("ing") or not looks_like_verb(new[0]) or any(map(_RANKS.fullmatch, asked)):
        return False  # she stopped reading; it exceeds Italy, for the highest
    verbs = verbs.union(*(topic for topic in TOPICS if topic & verbs))
    return not verbs or any(is_form_of_any(word, {*verbs}) for word in words)
