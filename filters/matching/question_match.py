"""When two questions ask the same thing in other words, decided without a model.

A question is read as tokens (words, numbers, operators; case, punctuation and layout gone), and its *content*: the
tokens less small words and instructions, each under one name for its inflections and near synonyms. Two questions
are the same when their contents are, in an order that one moved clause explains. A content word that was exchanged
makes another question ("blue bar", "red bar"), unless it is a misspelling, or a word of little consequence in a long
text. Word lists are English; in other languages every word is content, so an edit must leave all of them alone.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

from filters.text.synonyms import (
    ALWAYS_CONTENT,
    CONTRASTS,
    GROUPS,
    INSTRUCTION,
    LIGHT_VERBS,
    MEDIA,
    NUMBERS,
    ORDER_MATTERS,
    SMALL,
    STRICT_ORDER,
    UNDOING,
)
from filters.text.words import spaced

_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+|[-+*/=<>^](?=\s?[\d(])|(?<=\s)[+*/=<>^](?=\s)")
_LONG_FORMS = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "–": "-", "—": "-", "−": "-", "‐": "-", "‑": "-", "×": "*", "÷": "/", "·": "*"}
)
_THIN_SPACE = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff\u0300-\u036f]")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SCALED = re.compile(r"(\d+(?:\.\d+)?) ?(thousand|million|billion)\b")
_TENS = re.compile(
    r"\b(twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)[- ]"
    r"(one|two|three|four|five|six|seven|eight|nine)\b"
)
_MONEY = re.compile(r"([$€£])\s?(\d[\d.,]*\d|\d)")
_CAPITAL = re.compile(r"(?<=[\w,;)] )[A-Z][A-Za-z]+")
_PLACEHOLDER = re.compile(r"<\|?/?[a-z_]*image[a-z_]*(?:_\d+)?\|?>|\[image\]")
_REQUEST = re.compile(r"(?:^|(?<=[.?!:\n]))\s*(?:please )?(?:answer|respond|reply)\b[^.?!:\n]*(?:[.!:\n]|$)")

_REQUEST_AT_END = re.compile(
    r"\b(?:answer|respond|reply) (?:the question|with|using|in|by|only|briefly|shortly|directly)\b"
    r"[^.?!:\n]*(?:[.!]| \?)?\s*$"
)

# Cyrillic and Greek letters that look like Latin ones, lower case.
_LOOK_ALIKES = str.maketrans("асеорхуіјѕһԁԛԝкмтнвгαεικνορτυχωβ", "aceopxyijshdqwkmthbraeiknoptuxwb")
_MIXED = re.compile(r"[^\W\d_]*[\u0370-\u052f][^\W\d_]*")

_UNITS = {word: int(value) for word, value in NUMBERS.items() if len(value) == 1} | {"one": 1}
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound"}
_MOST_CHANGED = 5
_ORDINALS = frozenset(["st", "nd", "rd", "th"])
_DEPENDENT = _ORDINALS | {"above", "below"}

Answers = Literal["agree", "may agree", "unknown", "differ"]
"""Of two gold answers. What many questions have for an answer may agree by chance."""

# Content words that must be the same for each one that was exchanged: for any, and for words that were exchanged one
# for one in a question about the same picture.
_SHARED: dict[Answers, float] = {"agree": 4, "may agree": 10, "unknown": 16, "differ": float("inf")}
_SHARED_SHOWN: dict[Answers, float] = {"agree": 1, "may agree": 2, "unknown": float("inf"), "differ": float("inf")}
_SHARED_SHOWN_VERBS = _SHARED_SHOWN | {"unknown": 4}
"""Another verb seldom asks about another thing; another noun does, so that only gold answers can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A question as it is compared. `content` holds (name, token as it was written) in order."""

    tokens: tuple[str, ...]
    content: tuple[tuple[str, str], ...]
    names: frozenset[str]
    numbers: frozenset[str]
    """What of the content is no word: an edit that touches it is no light one."""

    @property
    def text(self) -> str:
        return " ".join(self.tokens)


def tokens(question: str) -> list[str]:
    """Words, numbers and operators, lower case, in one spelling of each number and in the letters they seem to be."""
    text = question.lower() if question.isascii() else _latin(question)
    if "<" in text or "[" in text:
        text = _PLACEHOLDER.sub(" ", text)
    if "n't" in text:
        text = text.replace("n't", " not")
    if "answer" in text or "respond" in text or "reply" in text:
        text = _REQUEST_AT_END.sub(" ", _REQUEST.sub(" ", text)).strip() or text
    if "$" in text or "€" in text or "£" in text:
        text = _MONEY.sub(lambda match: f"{match[2]} {_CURRENCIES[match[1]]}", text)
    if "%" in text:
        text = text.replace("%", " percent ")
    if "per cent" in text:
        text = text.replace("per cent", "percent")
    if "ty" in text:
        text = _TENS.sub(lambda match: str(int(NUMBERS[match[1]]) + _UNITS[match[2]]), text)
    if "all but" in text:
        text = text.replace("all but", "all except")
    if "illion" in text or "thousand" in text:
        text = _SCALED.sub(lambda match: _plain_number(match[1], int(NUMBERS[match[2]])), text)
    found = _TOKEN.findall(text)
    if "," in text or "." in text:
        return [_plain_number(token) if token[0].isdigit() else token for token in found]
    return found


def _latin(question: str) -> str:
    """Lower case without what cannot be seen; look-alikes of Latin letters in a text that is Latin become such."""
    text = unicodedata.normalize("NFKC", _THIN_SPACE.sub("", question)).translate(_LONG_FORMS).casefold()
    text = unicodedata.normalize("NFC", _INVISIBLE.sub("", unicodedata.normalize("NFD", text)))
    if not text.isascii():
        letters = sum(character.isalpha() for character in text)
        if 2 * sum("a" <= character <= "z" for character in text) > letters:
            text = _MIXED.sub(lambda match: match[0].translate(_LOOK_ALIKES), text)
    return spaced(text)


def _plain_number(token: str, times: int = 1) -> str:
    """One spelling of a number: no separators of thousands, no zeros behind a decimal point."""
    if _THOUSANDS.fullmatch(token):
        token = token.replace(",", "")
    if times != 1:
        whole, _, decimals = token.partition(".")
        token = str(int(whole + decimals) * times // 10 ** len(decimals))
    if token.count(".") == 1 and "," not in token:
        token = token.rstrip("0").rstrip(".")
    return token


@lru_cache(maxsize=1 << 17)
def meaning(token: str) -> str:
    """The one name of a word's inflections and near synonyms; empty for small words and instructions."""
    if token in UNDOING:
        return "not"
    if token in NUMBERS:
        return NUMBERS[token]
    if token not in ALWAYS_CONTENT and (token in SMALL or token in INSTRUCTION):
        return ""
    if not token.isalpha():
        return token
    return _GROUPS.get(token) or _GROUPS.get(stem(token)) or stem(token)


def stem(word: str) -> str:
    """A word without its plural, past or progressive ending; crude, and the same for every form it knows."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("xes", "ches", "shes", "sses")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) > len(ending) + 3:
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


_GROUPS = {form: f"={group[0]}" for group in GROUPS for word in group for form in (stem(word), word)}
_CONTRAST_NAMES = frozenset(
    name for word in CONTRASTS for name in (word, stem(word), _GROUPS.get(word) or _GROUPS.get(stem(word)) or word)
)


_LIGHT_NAMES = frozenset(_GROUPS.get(word) or stem(word) for word in LIGHT_VERBS)


def wording(question: str) -> Wording:
    """A question as it is compared; a question of small words only is all content."""
    found = tokens(question)
    content = [
        (name, token)
        for place, token in enumerate(found)
        if (name := meaning(token)) and not (token in _DEPENDENT and _says_nothing(found, place))
    ]
    # "Count how many" says it twice.
    content = [item for place, item in enumerate(content) if not place or content[place - 1][0] != item[0]]
    content = content or [(token, token) for token in found]
    return Wording(
        tokens=tuple(found),
        content=tuple(content),
        names=frozenset([name for name, _ in content]),
        numbers=frozenset([name for name, token in content if not token.isalpha()]),
    )


def _says_nothing(found: list[str], place: int) -> bool:
    """Whether a word only completes its neighbour: "2 nd", "the chart above", "the figure below"."""
    before, after = found[place - 1] if place else "", found[place + 1] if place + 1 < len(found) else ""
    if found[place] in _ORDINALS:
        return before.isdigit()
    return before in MEDIA or after in MEDIA


def names(question: str) -> frozenset[str]:
    """The words of a question, in lower case, that are written with a capital inside a sentence."""
    found = _CAPITAL.findall(question)
    return frozenset(word.lower() for word in found) if len(found) * 2 <= len(question.split()) else frozenset()


def similarity(one: Wording, other: Wording) -> float:
    """How alike two questions are written, 0 to 1; the order of their words may differ."""
    if one.tokens == other.tokens:
        return 1.0
    return max(fuzz.ratio(one.text, other.text), fuzz.token_sort_ratio(one.text, other.text)) / 100


def alike(
    one: Wording,
    other: Wording,
    *,
    same_picture: bool = False,
    is_word: Callable[[str], bool] = lambda word: False,
    is_name: Callable[[str], bool] = lambda word: False,
    answers: Callable[[], Answers] = lambda: "unknown",
) -> bool:
    """Whether `one` is `other`, as it is or lightly edited.

    `is_word` says whether a word of `one` is known to be spelt right, `is_name` whether it names something (a name is
    never exchanged lightly), `answers` whether the gold answers agree.
    """
    if one.tokens == other.tokens:
        return True
    if not (one.numbers <= other.names and other.numbers <= one.names):
        return False
    here, there = Counter(name for name, _ in one.content), Counter(name for name, _ in other.content)
    if here == there:
        return _one_moved_clause(one, other)
    shared = (here & there).total()
    if not shared:
        return False
    extra, missing = _written(one, here - there), _written(other, there - here)
    if max(len(extra), len(missing)) > _MOST_CHANGED:
        return False
    extra, missing, other_letter = _less_misspellings(extra, missing, other, is_word)
    if shared > 1:
        extra, missing = _less_light_verbs(extra), _less_light_verbs(missing)
    changed = max(len(extra), len(missing))
    if not changed:
        return answers() in (("agree", "may agree") if other_letter else ("agree", "may agree", "unknown"))
    if changed > 3 or any(_is_fixed(name) or is_name(word) for name, word in [*extra, *missing]):
        return False
    contrasts = [any(name in _CONTRAST_NAMES for name, _ in words) for words in (extra, missing)]
    if all(contrasts) or other_letter:
        return False
    agreement = answers()
    if same_picture and _one_for_one(one, other, changed):
        verbs = not any(contrasts) and all(word.endswith(("ed", "ing")) for _, word in [*extra, *missing])
        if shared >= (_SHARED_SHOWN_VERBS if verbs else _SHARED_SHOWN)[agreement] * changed:
            return True
    return not any(contrasts) and shared >= 4 * changed and shared >= _SHARED[agreement] * changed


def _written(question: Wording, names: Counter[str]) -> list[tuple[str, str]]:
    left = Counter(names)
    found = []
    for name, word in question.content:
        if left[name] > 0:
            left[name] -= 1
            found.append((name, word))
    return found


def _is_fixed(name: str) -> bool:
    """Numbers, operators, single letters and negations: an edit that touches one is no light edit."""
    return len(name) == 1 or name == "not" or not name.lstrip("=").isalpha()


def _less_light_verbs(words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [item for item in words if item[0] not in _LIGHT_NAMES]


def _one_for_one(one: Wording, other: Wording, changed: int) -> bool:
    """Whether words were exchanged where they stood: as many contents, which differ in so many places."""
    if len(one.content) != len(other.content):
        return False
    pairs = zip(one.content, other.content, strict=True)
    return sum(ours[0] != theirs[0] for ours, theirs in pairs) == changed


def _less_misspellings(
    extra: list[tuple[str, str]], missing: list[tuple[str, str]], other: Wording, is_word: Callable[[str], bool]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], bool]:
    """Both lists without the words that are one word, once misspelt, and without misspelt small words.

    The last says whether a letter stands for another one, as in two words of their own ("lamp", "lamb"); letters that
    are missing, doubled or swapped seldom make another word.
    """
    left = list(missing)
    rest = []
    other_letter = False
    for item in extra:
        word = item[1]
        if word in _GROUPS or word in CONTRASTS or is_word(word):
            rest.append(item)
            continue
        twin = next((right for right in left if _misspells(word, right[1])), None)
        if twin is not None:
            left.remove(twin)
            other_letter |= len(word) == len(twin[1]) and sorted(word) != sorted(twin[1])
        elif not any(not meaning(token) and _misspells(word, token) for token in other.tokens):
            rest.append(item)
    return rest, left, other_letter


def _misspells(word: str, right: str) -> bool:
    if len(right) < 4 or not right.isalpha() or word[0] != right[0]:
        return False
    most = 1 if len(right) < 8 else 2
    return OSA.distance(word, right, score_cutoff=most) <= most


def _one_moved_clause(one: Wording, other: Wording) -> bool:
    """Whether equal contents stand in the same order but for clauses that changed places."""
    first, second = [name for name, _ in one.content], [name for name, _ in other.content]
    if first == second:
        return True
    if any(first == second[turn:] + second[:turn] for turn in range(1, len(second))):
        return True
    if STRICT_ORDER & {*one.tokens, *other.tokens}:
        return False
    if not (ORDER_MATTERS & {*one.tokens} or ORDER_MATTERS & {*other.tokens}) and len(first) <= 6:
        return True
    blocks = _blocks(first, second)
    moved = blocks[1:-1] if len(blocks) > 2 else blocks
    if len(blocks) <= 4:
        return max(moved, default=0) > 1 or len(first) > 6
    return min(moved) > 1 and len(blocks) <= 1 + len(first) // 3


def _blocks(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Lengths of the runs of `first` of which `second` is made, in its order; both hold the same words."""
    lengths = []
    place = 0
    while place < len(second):
        best = 1
        for start in range(len(first)):
            length = 0
            while (
                start + length < len(first)
                and place + length < len(second)
                and first[start + length] == second[place + length]
            ):
                length += 1
            best = max(best, length)
        lengths.append(best)
        place += best
    return lengths
