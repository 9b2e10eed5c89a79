"""What concludes an answer that reasons: the last sentence of a chain of thought, or the clause after "so".

Reads the form of the text only. A text has a conclusion if its last sentence holds a word such as "so" or
"therefore", or an arrow. A last sentence without them concludes too, if no sentence before it is an answer itself. A
last sentence that retracts, doubts or starts another subject is no conclusion, unless the question itself has the
word for this.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise, product
from typing import Final

from distill.answers.words.spelling import are_opposites
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import CLASSES, PRONOUNS, sets_apart
from distill.answers.words.word_forms import same_word_form

_LONGEST: Final = 2_000
_LONGEST_SENTENCE: Final = 300
_SHORT_FORM: Final = (
    r"(?<!(?<![\w-])[A-Z])(?<!\b(?:[Mm]r|[Dd]r|[Ss]t|vs))(?<!\b(?:Mrs|etc|[Vv]ol|Inc|Ltd|i\.e|e\.g))(?<!\bNo)"
)
_BEGINS: Final = r"(?=(?:So|Thus|Hence|Therefore|Then|The|This|That|These|It|He|She|They|There|A|In|On|At|As)\b)"
_END = re.compile(
    rf"\n\s*(?=\S)|(?:{_SHORT_FORM}|(?=\.\s+{_BEGINS}))[.!?][\"'”’)\]]*\s+(?=[^\sa-z])|(?<=[。！？।؟])\s*(?=\S)"
)
_LEADS_IN: Final = (
    r"so|thus|therefore|hence|consequently|accordingly|overall|altogether|all in all|in conclusion|in short"
    r"|in summary|in total|as a result|finally|that means|this means|which means|meaning|that is why|i\.e\.|that is"
    r"|also|folglich|somit|daher|deshalb|insgesamt|d\.h\."
    r"|donc|ainsi|par conséquent|au total|en conclusion|así que|por (?:lo )?tanto|entonces|es decir|en total"
    r"|en conclusión|quindi|dunque|perciò|in totale|cioè|portanto|então|assim|ou seja"
    r"|значит|итак|поэтому|следовательно"
    r"|таким образом|всего|то есть|إذن|إذًا|لذلك|لذا|وبالتالي|أي|इसलिए|अतः|यानी|따라서|그러므로|그래서|즉"
)
_LEAD_IN = re.compile(
    rf"\s*(?:(?:and |but )?(?:{_LEADS_IN})(?!\w)[,:]?\s*(?:(?:that|que|dass|что)\s)?"
    r"|(?:所以|因此|因而|综上所述|综上|总之|可见|よって|したがって|従って|つまり|だから|ゆえに|以上から)[,，、:：]?\s*)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    rf"(?:[,;:–—-]\s+|\s)(?:and )?(?<=[,;:–—-]\s)(?:{_LEADS_IN})(?!\w),?\s+(?!that\b)"
    r"|\s(?:shows?|suggests?|tells?|means?|indicates?|proves?|confirms?)\sthat\s"
    r"|,\s(?=(?:it|this|that|she|he|they)\smust\sbe\s|it\sis\s[^,]{2,60}\s(?:that|who|which)\s)"
    r"|^(?:since|as|because|given that|da|weil|comme|puisque|como|poiché)\s[^,]{3,}?,\s(?=[^,]*$)"
    r"|,\s(?:which|that) (?:belongs to|corresponds to|gives|makes|means)\s"
    r"|[，,]\s?(?:一共|总共|總共|合计)[是有为為]?|\sकुल\s"
    r"|\s?[→⇒⟹]\s?|[，,。](?:所以|因此|因而|よって|したがって|つまり|だから)[,，、]?|^(?=[^=]*?[^\W\d_]{3})[^=]+\s=\s(?=[^=,;]+$)"
    r"|(?<=\d)\s(?:makes?|leaves?|gives?|equals?|ergibt|macht|font|fait|dan|fanno)\s",
    re.IGNORECASE,
)
"""What stands before the last clause of a sentence: 5 - 2 = 3 more, tips 2 and 4, so two."""
_INSIDE = re.compile(
    r"\b(?:therefore|thus|hence|consequently|accordingly|somit|folglich|daher|donc|por (?:lo )?tanto|quindi|dunque"
    r"|portanto|también)\b,?\s?",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:wait|actually|but|however|although|though|unless|whereas|instead|contrast|note|check|verify|either|or|maybe"
    r"|perhaps|possibly|probably|might|may|could|unsure|unclear|uncertain|not sure|then again|next|followed"
    r"|others?|another"
    r"|aber|jedoch|oder|vielleicht|mais|ou|peut-être|pero|quizás|tal vez|forse|talvez)\b|但|可能|也许|かも|しかし",
    re.IGNORECASE,
)


def conclusions(text: str, question: str = "", emphasised: str = "", *, of_words: bool = False) -> Iterator[str]:
    """The parts that may conclude a text, the shortest first; none for a text that only states something.

    `emphasised` are the only bold words of the last paragraph. An answer `of_words` stands alone or behind a colon if
    it is bold: the **red** car is behind the blue one.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        return
    ends = [match.end() for match in _END.finditer(text)]
    sentences = [text[start:end].strip() for start, end in pairwise((0, *ends, len(text)))]
    if not _goes_on(sentences[-1], question):
        yield from _of_last_sentence(sentences, question)
    paragraph = _PARAGRAPH.split(text)[-1]
    if not (_goes_on(paragraph, question) or sets_apart(paragraph, question) or _turns(paragraph, question)):
        if paragraph != text and "\n" not in paragraph and _is_short_or_about(paragraph, question):
            yield paragraph
        around = [_ASIDE.sub("", one.replace(emphasised, "")) for one in sentences if emphasised in one]
        if emphasised and around:
            around_last = around[-1].strip()
            if _ALONE.search(around_last) if of_words else not any(map(str.isdigit, around_last)):
                yield emphasised
    if (concluding := _before_remarks(sentences, question)) is not None:
        yield concluding


def _is_short_or_about(paragraph: str, question: str) -> bool:
    words = tokens(paragraph)
    return len(words) <= _FEW_WORDS or _shared(words, _asked(question)) > 0


_FEW_WORDS: Final = 3
_ALONE = re.compile(r"(?:^|:)\W*$")
_ASIDE = re.compile(r"\([^()]*\)")
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")


def _goes_on(sentence: str, question: str) -> bool:
    """Whether a sentence retracts, doubts or continues with another subject, by a word that its question lacks."""
    asked = question.casefold()
    return len(sentence) > _LONGEST_SENTENCE or any(
        word.casefold() not in asked for word in _GOES_ON.findall(sentence)
    )


def _of_last_sentence(sentences: Sequence[str], question: str) -> Iterator[str]:
    *before, last = sentences
    clauses = list(_CLAUSE.finditer(last))
    if clauses and (clause := last[clauses[-1].end() :].strip()):
        yield clause
    if not before:
        return
    if _IS_POLAR.match(last):
        yield last
    elif (lead_in := _LEAD_IN.match(last)) is not None:
        yield last[lead_in.end() :]
    elif (inner := _INSIDE.search(last)) is not None:
        yield last[: inner.start()] + last[inner.end() :]
    elif _is_bare(last, before[-1], question) or _answers(last, before, question):
        yield last


def _before_remarks(sentences: Sequence[str], question: str) -> str | None:
    """The last sentence that begins with "so" or has only words of the question, if those after it add remarks."""
    for place in range(len(sentences) - 2, 0, -1):
        sentence, after = sentences[place], sentences[place + 1 :]
        lead_in = _LEAD_IN.match(sentence)
        if lead_in is None and not _is_bare(sentence, sentences[place - 1], question):
            continue
        asked = _asked(question)
        shared = _shared({*tokens(sentence)}, asked)
        goes_on = any(_CONTRASTS.match(other) or _INSIDE.search(other) for other in after)
        less_about = all(_shared({*tokens(other)}, asked) < shared for other in after)
        is_last = less_about and not goes_on and not _goes_on(sentence, question)
        return sentence[lead_in.end() if lead_in else 0 :] if is_last else None
    return None


_CONTRASTS = re.compile(r"(?:but|however|although|though|unless|whereas|instead|aber|mais|pero)\b", re.IGNORECASE)


def _is_bare(last: str, before: str, question: str) -> bool:
    """Whether a sentence only gives a value to words of its question (The effort is 75 N), and the one before not."""
    return _has_only(last, question) and not _has_only(before, question)


def _has_words(sentence: str, question: str, kind: re.Pattern[str]) -> bool:
    """Whether a sentence has all words of a kind that its question has."""
    return {word for word in tokens(question[:_LONGEST_SENTENCE]) if kind.fullmatch(word)} <= {*tokens(sentence)}


_IS_POLAR = re.compile(r"(?:yes|no|ja|nein|oui|non|sí|sì|sim|não),", re.IGNORECASE)
_ORDINALS = re.compile(r"second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth")


def _has_only(sentence: str, question: str) -> bool:
    asked, words = _asked(question), tokens(sentence)
    others = [word for word, previous in zip(words, ("", *words), strict=False) if not _is_value(word, previous)]
    named = [word for word in others if word not in _SMALL]
    return bool(named) and all(any(same_word_form(word, other) for other in asked) for word in named)


def _is_value(word: str, before: str) -> bool:
    """Whether a word belongs to a value: a number, a sign, or the unit after a number."""
    return not word.isalpha() or before[-1:].isdigit() or word in CLASSES["calendar"] or word == "asked"


def _answers(last: str, before: Sequence[str], question: str) -> bool:
    """Whether a last sentence answers its question; none does that only goes on with what stands before it.

    It goes on if a sentence before it has the same form (A is 7. B is 5.) and as many words of the question. It also
    does if one before it concludes, or has all words of the question, and has more of them.
    """
    asked = _asked(question)
    if not asked or _turns(last, question) or not _has_words(last, question, _ORDINALS):
        return False
    shared = _shared({*tokens(last)}, asked)
    for sentence in before:
        words = _shared({*tokens(sentence)}, asked)
        is_answer = words == len(asked) or _LEAD_IN.match(sentence) is not None
        if (is_answer and words > shared) or (words >= shared and _have_one_form(sentence, last)):
            return False
    return True


def _have_one_form(sentence: str, other: str) -> bool:
    """Whether two sentences begin alike (he buys, he talks), or differ in three words at most, beside numbers."""
    words, others = ([word for word in tokens(each) if word.isalpha()] for each in (sentence, other))
    begin_alike = words[:1] == others[:1] and (words[1:2] == others[1:2] or {*words[:1]} <= PRONOUNS)
    return begin_alike or len({*words} ^ {*others}) <= _FEW_WORDS


def _turns(sentence: str, question: str) -> bool:
    """Whether a sentence has the opposite of a word of its question."""
    asked = _asked(question)
    return any(are_opposites(*pair) for pair in product(asked, {*tokens(sentence)}.difference(asked)))


def _asked(question: str) -> list[str]:
    return [word for word in tokens(question[:_LONGEST_SENTENCE]) if word not in _SMALL]


def _shared(said: Collection[str], asked: Sequence[str]) -> int:
    return sum(any(same_word_form(word, other) for other in said) for word in asked)


_SMALL: Final = CLASSES["small_of_question"]
