"""Sentences that turn a relation of their question around.

"Germany exceeds France" turns "Which country exceeds Germany?" around, and "6 fewer" turns "How many more?". Only the
order of the words is read.
"""

import re
from collections.abc import Sequence
from typing import Final

from distill.answers.words.spelling import are_opposites
from distill.answers.words.tokens import only_place, tokens
from distill.answers.words.word_classes import ARTICLES, CLASSES
from distill.answers.words.word_forms import is_form_of_any

_LONGEST: Final = 400
_BE: Final = CLASSES["be_in_any_language"]
_DO: Final = frozenset({"do", "does", "did"})
_BY: Final = frozenset({"by", "von", "par", "por"})
_THE: Final = ARTICLES | {"der", "die", "das", "den", "dem", "le", "la", "les", "el", "los", "las", "il", "o", "os"}
_ENGLISH: Final = frozenset({"who", "what", "which", "whom"})
_FOREIGN_WHO: Final = frozenset({"wer", "qui", "quién", "quem", "chi"})
_FOREIGN_WHICH: Final = frozenset({"welche", "welcher", "welches", "quel", "quelle", "qué", "que", "qual", "quale"})
_ASKING: Final = _ENGLISH | _FOREIGN_WHO | _FOREIGN_WHICH
"""Questions that ask who acts or who is acted on. Where, when and how ask for neither."""
_NOT_A_RELATION: Final = _BE | _DO | _THE | _ASKING | {"of", "and", "or", "de", "du"}
_COMPARED = re.compile(
    r"\b(?:(?:more|less|más|menos|plus|moins|mais)\s+(?P<other>\w+)|(?P<word>\w{2,}er))\s+(?:than|als|que|do que)\b",
    re.IGNORECASE,
)


def turns_relation(text: str, gold: Sequence[str], question: str) -> bool:
    """Whether `text` gives, or may give, the words of `gold` the role of another thing in the `question`.

    "Ana is taller than Eva" gives Ana the other role, for "Who is shorter?".
    """
    if not question or not gold or max(len(text), len(question)) > _LONGEST:
        return False
    asked, said = _words(question), _words(text)
    asking = next((word for word in asked if word in _ASKING), "")
    compared = _COMPARED.search(text)
    if compared is not None and not is_form_of_any(
        (compared["other"] or compared["word"]).casefold(), {*asked, *gold}
    ):
        return True  # Ana is taller than Eva, for "who is shorter?"
    gold = [word for word in gold if word not in _THE] or [*gold]
    place = only_place(gold, said)
    if place is None or not asking:
        return False
    # Other languages put the verb before what acts too (was zeigt der Hund?): there both must be things that act.
    if asking in _FOREIGN_WHICH and not _has_article(text, gold[0]):
        return False
    names = {word.casefold() for word in re.findall(r"(?<=\s)[^\W\d_a-z]\w+", question)}
    names = names if gold[0].capitalize() in text else set()
    inside = range(place, place + len(gold))
    return any(
        _is_turned(asked, index, said, inside, word in names)
        for index, word in enumerate(asked)
        if index and word not in _NOT_A_RELATION and word not in gold and said.count(word) == 1
    )


def _is_turned(asked: list[str], index: int, said: list[str], gold: range, are_names: bool) -> bool:
    """Whether the thing at `index` acts in the question and is acted on in the answer, or the other way round."""
    before = asked[index - 1]
    if before in _BE | _DO:
        acts, relations = True, {*asked[index + 1 :]}
    else:
        acts, relations = False, {asked[index - 2] if before in _BY and index > 1 else before}
    relations -= _NOT_A_RELATION
    place = said.index(asked[index])
    is_first = place < gold.start
    between = said[place + 1 : gold.start] if is_first else said[gold.stop : place]
    if not relations or not between or between[-1] in _BE:
        return False
    if not any(is_form_of_any(word, relations) for word in between) and (not are_names or _BE & {*between}):
        return False
    is_passive = bool(_BY & {*between}) != bool(_BY & {*asked})
    return (acts == is_first) == is_passive


def _has_article(text: str, word: str) -> bool:
    return re.search(rf"\b(?:{'|'.join(_THE)})\s{re.escape(word)}\b", text.casefold()) is not None


def _words(text: str) -> list[str]:
    return [word for word in tokens(text) if word not in _THE]


_MORE_THAN = re.compile(
    r"\b(?P<sign>more|higher|larger|greater|longer|taller|older|fewer|less|lower|smaller|shorter|younger)\b"
    r"(?P<first>[^.,;?]{0,60}?) than (?P<second>[^.,;?]{1,60})",
    re.IGNORECASE,
)
_MORE: Final = frozenset({"more", "higher", "larger", "greater", "bigger"})
_LESS_OF_A_NUMBER: Final = frozenset({"fewer", "less", "lower", "smaller"})
_LESS: Final = _LESS_OF_A_NUMBER | {"shorter", "younger"}


def turns_around(text: str, question: str) -> bool:
    """Whether an answer turns the difference of its question around: "6 fewer" for "How many more?"."""
    asked, said = _MORE_THAN.search(question) if question else None, _MORE_THAN.search(text)
    if asked is None or said is None:
        return False
    first, second, said_first, said_second = (
        {*tokens(match[name])} for match in (asked, said) for name in ("first", "second")
    )
    swapped = bool(said_first & second - first and said_second & first - second)
    opposite = (asked["sign"].lower() in _LESS) != (said["sign"].lower() in _LESS)
    return opposite != swapped


_COMPARISON = re.compile(
    r"(?P<first>[^,;:]{1,60}?) (?:is|are|has|have|was|were)(?: \w+)? (?P<sign>more|fewer|less|\w{2,}er)(?: \w+)?"
    r" than (?P<second>[^,;:]{1,60})"
    r"|(?P<more>[^,;:]{1,60}?) (?:outnumber|exceed|surpass|outweigh|top|beat)(?:e?s|ed)? (?P<fewer>[^,;:]{1,60})",
    re.IGNORECASE,
)
_SIGN = re.compile(r"\b(?:more|fewer|less|(?!or\b|her\b|other\b|number\b)\w{2,}er)\b", re.IGNORECASE)


def wins_comparison(text: str, gold: Sequence[str], question: str) -> bool:
    """Whether `text` compares two things that its `question` offers, and `gold` is the one asked for.

    "Tea is hotter than milk" gives tea, for "Which is hotter, tea or milk?", and milk, for "Which is colder, ...?".
    """
    stated = _COMPARISON.fullmatch(text.strip(" ."))
    signs = {sign.casefold() for sign in _SIGN.findall(question)}
    if stated is None or len(signs) != 1 or not re.search(r"\bor\b", question):
        return False
    sign, asked = (stated["sign"] or "").casefold(), signs.pop()
    if not sign:
        sign = asked if asked in _MORE else "more"
        asked = "less" if asked in _LESS_OF_A_NUMBER else asked
    if sign != asked and not are_opposites(sign, asked):
        return False
    first, second = (
        {*_words(stated[name] or stated[verb])} for name, verb in (("first", "more"), ("second", "fewer"))
    )
    winner, loser = (first, second) if sign == asked else (second, first)
    known = {*_words(question), "one", "ones"}
    return {*gold} <= winner <= known and loser <= known and bool(loser - winner) and not {*gold} <= loser
