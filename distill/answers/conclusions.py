"""What concludes an answer that reasons: the last sentence of a chain of thought, or the clause after "so".

Reads the form of the text only. A text has a conclusion if its last sentence holds a word such as "so" or
"therefore" or an arrow, or if it ends a chain of at least three sentences and speaks of what the question asks for
more than the sentences before it. A last sentence that takes something back, doubts or goes on to another thing is
none, unless the question itself has that word.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

from distill.answers.words.spelling import are_opposites
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import CLASSES
from distill.answers.words.word_forms import same_word_form

_LONGEST: Final = 2_000
_LONGEST_SENTENCE: Final = 300
_FEWEST: Final = 3
"""Sentences of a chain that needs no concluding word: a second sentence may only add something."""
_SHORT_FORM: Final = (
    r"(?<!(?<![\w-])[A-Z])(?<!\b(?:[Mm]r|[Dd]r|[Ss]t|vs))(?<!\b(?:Mrs|etc|[Vv]ol|Inc|Ltd|i\.e|e\.g))(?<!\bNo)"
)
_BEGINS: Final = r"(?=(?:So|Thus|Hence|Therefore|Then|The|This|That|These|It|He|She|They|There|A|In|On|At|As)\b)"
_END = re.compile(
    rf"\n\s*(?=\S)|(?:{_SHORT_FORM}|(?=\.\s+{_BEGINS}))[.!?][\"'”’)\]]*\s+(?=[^\sa-z])|(?<=[。！？।؟])\s*(?=\S)"
)
_LEADS_IN: Final = (
    r"so|thus|therefore|hence|consequently|accordingly|overall|altogether|in conclusion|in short|in summary|in total"
    r"|as a result|finally|that means|this means|which means|meaning|that is why|i\.e\.|that is"
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
    r"|,\s(?=(?:it|this|that|she|he|they)\smust\sbe\s)"
    r"|,\s(?:which|that) (?:belongs to|corresponds to|gives|makes|means)\s"
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


def conclusions(text: str, question: str = "") -> Iterator[str]:
    """The parts that may conclude a text, the shortest first; none for a text that only states something."""
    text = text.strip()
    if len(text) > _LONGEST:
        return
    ends = [match.end() for match in _END.finditer(text) if match.end() < len(text)]
    last = text[ends[-1] :].strip() if ends else text
    asked = question.casefold()
    if len(last) > _LONGEST_SENTENCE or any(word.casefold() not in asked for word in _GOES_ON.findall(last)):
        return
    clauses = list(_CLAUSE.finditer(last))
    if clauses and (clause := last[clauses[-1].end() :].strip()):
        yield clause
    if not ends:
        return
    if (lead_in := _LEAD_IN.match(last)) is not None:
        yield last[lead_in.end() :]
    elif (inner := _INSIDE.search(last)) is not None:
        yield last[: inner.start()] + last[inner.end() :]
    elif len(ends) + 1 >= _FEWEST and _is_about(last, [text[a:b] for a, b in pairwise((0, *ends))], question):
        yield last


def _is_about(last: str, before: Sequence[str], question: str) -> bool:
    """Whether no sentence before the last one shares as many words with the question."""
    asked = [word for word in tokens(question[:_LONGEST_SENTENCE]) if word not in _SMALL]
    if not asked:
        return False
    said = {*tokens(last)}
    if any(are_opposites(word, other) for word in asked for other in said if other not in asked):
        return False
    shared = _shared(said, asked)
    most = max(_shared({*tokens(sentence)}, asked) for sentence in before)
    return shared > most or (shared == most and _IT_IS.match(last) is not None)


def _shared(said: Collection[str], asked: Sequence[str]) -> int:
    return sum(any(same_word_form(word, other) for other in said) for word in asked)


_IT_IS = re.compile(
    r"(?:(?:it|this|that|they|these|he|she)(?: must be| has to be| is|['’]s| are|['’]re)"
    r"|(?:his|her|its|their) [\w-]+ (?:is|are))\b",
    re.IGNORECASE,
)
_SMALL: Final = CLASSES["small_of_question"]
