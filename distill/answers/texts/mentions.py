"""A gold text within a longer answer: "She holds a red umbrella over her head", "a bottle of Budweiser", "stop sign".

The question is not known, so the form of the answer decides: the gold words stand together as a part of the sentence,
the words beside them tie them to no other word (hot dog, Chicago Heights, next to the bus), nothing denies, doubts or
contrasts anything, and no second answer of the same kind is there (a name beside a name, a colour beside a colour).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from distill.answers.texts.answer_sentences import trusted
from distill.answers.texts.spelling import SPELLINGS, are_opposites
from distill.answers.texts.word_forms import plain_forms, same_word_form

_LONGEST: Final = 400
_MOST_WORDS: Final = 40
_FRAGMENT: Final = 3
_MANY_WORDS: Final = 4
"""Words of a gold answer that hardly stand together by chance."""
_WORD = re.compile(r"(?:[A-Z]\.(?![^\W\d_]{2}))+|[^\W_]+(?:['’&.-][^\W_]+)*|[^\w\s]")
_SENTENCE = re.compile(r"(?<=[^\W\d_]{2}[.!?;])\s+|(?<=[\d)\"'][.!?;])\s+|\n+|(?<=[。！？])")
_ARTICLES_TEXT: Final = """the a an this that these those its his her their my our your some el la los las un una le les
    une der die das ein eine einen einem dem den il lo gli uno o os um uma het een al"""
_ARTICLES: Final = frozenset(_ARTICLES_TEXT.split())
_PRONOUNS: Final = frozenset({"it", "he", "she", "they"})
_OPENING: Final = frozenset("so thus therefore hence note explanation reason reasoning here based i there".split())
_COUNTS: Final = frozenset("one two three four five six seven eight nine ten several many few".split())
_BEFORE_TEXT: Final = """is are was were be been being 's in on at to by for as into onto towards toward through inside
    has have had says say said reads read shows show showing called named labelled titled like-this play plays wear
    wears wearing hold holds means mean represents represent see it's that's there's he's she's they're
    ist sind war nach im am zur zum auf an ans ins bei heißt lautet zeigt hat liest
    est sont était en à au aux dans vers sur c'est s'appelle indique
    es son era está están hay hacia dice muestra tiene é è são foi em no na verso
    में है هو هي في"""
_BEFORE: Final = frozenset(_BEFORE_TEXT.split())
_AFTER_TEXT: Final = """is are was were be has have had in on at to by for with from as of during over under when where
    because since according which that who had will would can does did do
    ist sind war hat hatte im am in auf zu est sont a avait dans sur es son está tiene tenía en hay é tem è ha में है का
    की के رنگ"""
_AFTER: Final = frozenset(_AFTER_TEXT.split())
_TIED_TEXT: Final = """of from than behind beside near over under above below around against between with without like
    and or de del du des von vor aus neben hinter di da do dos und et y e vom der"""
_TIED: Final = frozenset(_TIED_TEXT.split())
"""Words that tie what follows to something else: the assistant of the mayor."""
_AFTER_COMMA_TEXT: Final = "at in on with for from by as where when located about around a an to the near during"
_AFTER_COMMA: Final = frozenset(_AFTER_COMMA_TEXT.split())
_KINDS_TEXT: Final = """
    country city state town village county region province continent planet river lake island street avenue company
    brand logo sign word words label text title name person man woman party group category section department division
    team player school university college airline station store shop restaurant hotel hospital museum
    color colour shade line bar bars lines slice segment area part side hand option choice answer one ones thing
    phone phones camera cameras beer wine soda drink car cars truck bus train plane airplane boat bike laptop computer
    tablet watch shirt jersey jacket hat bottle can box bag book movie film song magazine newspaper website app
    game sport sports match animal animals bird fish fruit vegetable tree flower food dish weather day season time room
    triangle triangles angle angles shape lines figure quadrilateral polygon curve function reaction energy force
    age people year years month week months brand-name pattern type kind style bars symbol letter value number
    hand couple pair bottle glass cup piece slice bowl plate picture image photo drawing painting
    stadt land farbe seite linie marke firma ville pays couleur côté ligne marque ciudad país color lado línea marca
    mano रंग शहर देश مدينة لون دولة اللون"""
_KINDS: Final = frozenset(_KINDS_TEXT.split())
_COLOURS_TEXT: Final = """red blue green yellow black white orange purple brown pink gray grey violet gold golden silver
    beige tan navy teal cyan magenta maroon turquoise crimson colored"""
_COLOURS: Final = frozenset(_COLOURS_TEXT.split())
_SIZES_TEXT: Final = "big large small little tall short long old new young round"
_SIZES: Final = frozenset(_SIZES_TEXT.split())
_SIDES: Final = frozenset("left right top bottom up down north south east west front back middle center centre".split())
_CALENDAR_TEXT: Final = """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday i"""
_CALENDAR: Final = frozenset(_CALENDAR_TEXT.split())
_RANKED_BELOW: Final = frozenset("nowhere second third fourth fifth runner-up than".split())
_ADDED = re.compile(
    r"(?<=\w),? (?:followed by|ahead of|compared (?:to|with)|because|since|according to|based on|which (?:is|was|has|had)"
    r"|with (?:about |a |an )?(?:\w+ of )?[$€£]?\d|as (?:shown|seen|indicated|stated|written|the|it))\b.*",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    written: tuple[str, ...]
    words: tuple[str, ...]
    """In lower case, one spelling."""


def mentions(text: str, gold: str) -> bool:
    """Whether a text states the gold words within a sentence: its only one, its last, or a first one that stands."""
    gold_words = _core(_read(gold).words)
    if not any(map(str.isalnum, "".join(gold_words))) or not 2 < len(text) <= _LONGEST:
        return False
    text = _HEDGED.sub("", _HYPHENED.sub(" ", text))
    if "(" in text and "(" not in gold:
        text = _ASIDE.sub(" ", text)
    sentences = [part for part in _SENTENCE.split(text) if part.strip()]
    if len(sentences) > 1 and not any(_places(_read(sentences[-1]), gold_words)):
        rest = " ".join(sentences[1:])
        stands = trusted(rest) and not any(_places(_read(rest), gold_words))
        return stands and not _names(_read(rest)) and _is_stated_in(sentences[0], gold_words)
    if any(len(part.split()) <= _FRAGMENT for part in sentences[:-1]):
        return False  # an answer of its own
    before = _read(" ".join(sentences[:-1]))
    if _OPEN.search(" ".join(before.words)) or _rivals(before, range(0), gold_words):
        return False
    return bool(sentences) and _is_stated_in(sentences[-1], gold_words)


_OPEN = re.compile(r"\b(?:or|maybe|might|perhaps|possibly|unclear|unknown)\b", re.IGNORECASE)
_HEDGED = re.compile(r"\b(?:would|will|must|should|(?:more|most|less|least) likely(?: to)?)\s", re.IGNORECASE)
"""Words that doubt elsewhere, but not in "that would be Germany" and "adults are most likely"."""
_HYPHENED = re.compile(r"(?<=\w)-(?=(?:hand|side)\b)")
_ASIDE = re.compile(r"\s\([^()]*\)")


def _core(words: tuple[str, ...]) -> tuple[str, ...]:
    """Gold words without an article or preposition before them and the name of their kind: left of "to the left"."""
    start, end = 0, len(words)
    while start < end - 1 and words[start] in _ARTICLES | _LEADING:
        start += 1
    while end - 1 > start and words[end - 1] in ("side", "color", "colour") and end - start == 2:
        end -= 1
    return words[start:end]


_LEADING_TEXT: Final = "in on at to by into towards toward nach im am à au vers sur en a hacia auf zu"
_LEADING: Final = frozenset(_LEADING_TEXT.split())


def _is_stated_in(sentence: str, gold: tuple[str, ...]) -> bool:
    sentence = sentence.rstrip(" .!;。")
    head = _ADDED.sub("", sentence)
    added = " ".join(re.findall(r"[\w'’]+", sentence[len(head) :])[2:])
    read = _read(head)
    outside = [word for word in read.words if word not in gold]
    if len(read.words) > _MOST_WORDS or _RANKED_BELOW & {*outside} or not trusted(" ".join((*outside, added))):
        return False
    for place in _places(read, gold):
        inside = range(place, place + len(gold))
        is_free = _is_free_before(read, place, gold) and _is_free_after(read, inside.stop, gold)
        if is_free and not _rivals(read, inside, gold):
            return True
    return False


def _read(sentence: str) -> _Sentence:
    written = tuple(word for word in _WORD.findall(sentence) if word not in "\"'“”‘’«»*_`()[]")
    lowered = (word.casefold().rstrip(".").replace(".", "" if word[1:2] == "." else ".") or word for word in written)
    return _Sentence(written, tuple(SPELLINGS.get(word, word) for word in lowered))


def _places(read: _Sentence, gold: Sequence[str]) -> Iterator[int]:
    for start in range(len(read.words) - len(gold) + 1):
        if all(
            same_word_form(said, meant) if len(gold) == 1 or len(meant) > 3 else said == meant
            for said, meant in zip(read.words[start:], gold, strict=False)
        ):
            yield start


def _names(read: _Sentence) -> bool:
    """Whether a word has a capital that no place in a sentence explains."""
    return any(
        written[0].isupper() and word not in _BEFORE | _AFTER | _ARTICLES | _PRONOUNS | _OPENING
        for written, word in zip(read.written, read.words, strict=True)
    )


def _is_verb(word: str) -> bool:
    return len(word) > 3 and word.endswith(("s", "ed", "ing")) and not word.endswith(("ss", "'s"))


def _is_free_before(read: _Sentence, place: int, gold: tuple[str, ...]) -> bool:
    words = read.words
    index = place - 1
    has_article = index >= 0 and words[index] in _ARTICLES
    while index >= 0 and (
        words[index] in _ARTICLES
        or words[index] in _COUNTS
        or (words[index] in _COLOURS | _SIZES and not _COLOURS & {*gold} and gold[0] not in _SIDES)
    ):
        index -= 1
    if index < 0 or not words[index][0].isalnum():
        return index < 0 or words[index] in ",:"
    word = words[index]
    if word == "of":
        before = words[index - 1] if index else ""
        return before in _KINDS or before in ("made", "kind", "type")
    is_last = place + len(gold) == len(words)
    is_verb = len(gold) == 1 and words[place].endswith(("s", "ed")) and gold[0].endswith("ing")
    if is_last and (is_verb or word in _PRONOUNS):
        return word not in _TIED  # the boy runs
    if has_article or word in _BEFORE or word in _KINDS:
        return word not in _TIED or word in _KINDS
    return _is_verb(word) and not (read.written[index][0].isupper() and index)


def _is_free_after(read: _Sentence, place: int, gold: tuple[str, ...]) -> bool:
    words = read.words
    if place >= len(words):
        return True
    word = words[place]
    if not word[0].isalnum():
        return word in ".:;!" or (word == "," and words[place + 1 : place + 2] and words[place + 1] in _AFTER_COMMA)
    if word in _KINDS or (_COLOURS & {*gold} and not read.written[place][0].isupper()):
        return place + 1 >= len(words) or _is_free_after(read, place + 1, ("",)) or _is_verb(words[place + 1])
    if word in _AFTER:
        return place + 1 < len(words) or not word.isascii()
    return _is_verb(word) and place + 1 < len(words) and not read.written[place][0].isupper()


_GERMAN: Final = frozenset("der die das den dem ein eine ist hat und im nicht".split())
"""Where nouns have capitals too."""


def _rivals(read: _Sentence, inside: range, gold: Sequence[str]) -> bool:
    """Whether another word could be the answer in place of the gold one."""
    outside = [index for index in range(len(read.words)) if index not in inside]
    gold_set = {*gold}
    for kinds in (_COLOURS, _SIDES):
        if kinds & gold_set and any(read.words[index] in kinds - gold_set - {"colored"} for index in outside):
            return True
    if any(are_opposites(read.words[index], word) for index in outside for word in gold):
        return True
    if any(sign.isdigit() for word in gold for sign in word):
        return any(sign.isdigit() for index in outside for sign in read.words[index])
    if len(gold) >= _MANY_WORDS:
        return False
    is_name = not _GERMAN & {*read.words} and any(read.written[index][0].isupper() for index in inside)
    return is_name and any(
        index
        and read.written[index][0].isupper()
        and read.words[index] not in _CALENDAR | _KINDS
        and not gold_set & plain_forms(read.words[index])
        for index in outside
    )
