"""Names of persons in their usual forms: with a title or a degree, and with the family name first."""

import re
from typing import Final

from distill.answers.words.spelling import without_accents
from distill.answers.words.tokens import tokens
from distill.answers.words.word_classes import SET_AGAINST, affirms

_TITLE = re.compile(
    r"(?:(?P<title>dr|mr|mrs|ms|miss|prof|professor|sir|doctor|mister|madam|captain|capt|senator|sen|reverend|rev|colonel|col|sergeant|sgt)\b\.?\s+)+",
    re.IGNORECASE,
)
_DEGREE = re.compile(
    r"(?:,?\s(?:M\.?D|Ph\.?\s?D|Esq|CPA|R\.?N|D\.?D\.?S|MBA|P\.?E|J\.?D|LL\.?M|DVM|M\.?S|B\.?S|M\.?A|B\.?A)\b\.?)+$"
)
_FAMILY_NAME_FIRST = re.compile(
    r"(?P<family>[^\W\d_][\w'-]+(?: [\w'-]+)?), (?P<given>[^\W\d_][\w'.-]*(?: [\w'.-]+){0,2})"
)
_SEX: Final = {"mr": "m", "mister": "m", "sir": "m", "mrs": "f", "ms": "f", "miss": "f", "madam": "f"}
_NO_GIVEN_NAME: Final = frozenset({"jr", "sr", "inc", "ltd", "llc", "co", "corp", "director", "president", "manager"})
_LONGEST: Final = 60


def same_person(text: str, gold: str) -> bool:
    """Whether two names of one person differ only in title, degree and order."""
    if max(len(text), len(gold)) > _LONGEST:
        return False
    (title, words), (gold_title, gold_words) = _parts(text), _parts(gold)
    if title and gold_title and _SEX.get(title, "") != _SEX.get(gold_title, "") and {title, gold_title} <= set(_SEX):
        return False
    return len(gold_words) > 1 and words == gold_words and all(word.isalpha() for word in gold_words)


_ASKS_WHO = re.compile(
    r"\b(?:who|whose|whom|author|candidate|president|player|singer|artist|actor|actress|politician|founder|director"
    r"|signed|wer|wem|qui|quién|chi|quem|кто|автор|auteur|autora?|autore)\b"
    r"|\bname of the (?:man|woman|person|boy|girl|author|president|player|artist)",
    re.IGNORECASE,
)
_NAME_IN_SENTENCE = re.compile(
    r"(?:(?:it|he|she|this|that)(?: is|'s) |c'est |es ist |es )?"
    r"(?P<name>(?:(?!The |A )[A-ZÀ-Þ][\w.'’-]*(?: (?:de|da|di|van|von|der|la|le|el|al|bin))* ?){2,6})"
    r"(?P<rest>(?: ?(?:is|was|leads|with|by|has|had|wrote|painted|signed)\b[^,;]*)?)\.?"
)


def names_person(text: str, gold: str, question: str) -> bool:
    """Whether one of two names is the other with more given names, where a question asks who: Joe Biden for Biden."""
    if max(len(text), len(gold)) > _LONGEST or _ASKS_WHO.search(question) is None:
        return False
    sentence = _NAME_IN_SENTENCE.fullmatch(text)
    if sentence is not None and affirms(sentence["rest"]):
        text = sentence["name"].strip()
    if not all(word[:1].isupper() or word.isupper() or word.casefold() in _PARTICLES for word in _WORD.findall(text)):
        return False
    names = sorted((_plain_name(text), _plain_name(gold)), key=len)
    short, long = names
    if not short or len(long) > _MOST_NAMES or not all(word.isalpha() for word in (*short, *long)):
        return False
    if {*short, *long} & (_NO_GIVEN_NAME | SET_AGAINST):
        return False
    if short[-1] == long[-1] and _FIRST_AND_LAST < len(short) < len(long):
        return False  # George W. Bush and George H. W. Bush
    left = iter(long[:-1])
    return short[-1] == long[-1] and all(any(_same_given(word, other) for other in left) for word in short[:-1])


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_PARTICLES: Final = frozenset(
    ("de", "da", "di", "van", "von", "der", "la", "le", "el", "al", "bin", "v", "dr", "mr", "mrs", "ms", "prof")
)
_FIRST_AND_LAST: Final = 2
_MOST_NAMES: Final = 6


def without_title(name: str) -> str | None:
    """A name of several words without its title: Emily Watson for Ms. Emily Watson; None without one."""
    title = _TITLE.match(name) or _FOREIGN_TITLE.match(name)
    rest = name[title.end() :] if title is not None else ""
    return rest if len(_WORD.findall(rest)) > 1 else None


_FOREIGN_TITLE = re.compile(r"(?:Herrn?|Frau|Mme|Mlle|M\.|Sra?\.|Señora?|Dña\.|D\.)\s")


def _same_given(left: str, right: str) -> bool:
    return left == right or (min(len(left), len(right)) == 1 and left[0] == right[0])


def _plain_name(name: str) -> tuple[str, ...]:
    _, words = _parts(name)
    return tuple(map(without_accents, words))


def _parts(name: str) -> tuple[str, tuple[str, ...]]:
    """The title in lower case, and the words of the name in their usual order."""
    name = _DEGREE.sub("", name.strip())
    title = _TITLE.match(name)
    if title is not None:
        name = name[title.end() :]
    swapped = _FAMILY_NAME_FIRST.fullmatch(name)
    if swapped is not None and not set(tokens(swapped["given"])) & _NO_GIVEN_NAME:
        given = swapped["given"]
        name = f"{given}{'.' if len(given) == 1 else ''} {swapped['family']}"  # no article: Kühn, A
    return ("" if title is None else title["title"].lower()), tokens(name)
