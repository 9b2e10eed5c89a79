"""Whether two questions ask the same thing in other words, decided without a model.

A question is read as tokens (words, numbers, operators, without case, punctuation and layout). Its *content* is the
tokens without small words and instructions, with one name for all inflections and near synonyms of a word. Two
questions are the same when their contents are equal but for a moved clause. Another content word makes another
question ("blue bar", "red bar"), unless it is a misspelling or an unimportant word of a long text. Word lists are
English; in other languages every word is content, so all words must be the same.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

from filters.matching.question_tokens import tokenize
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

_EITHER_WAY = frozenset(["+", "*", "=", "!="])
"""Signs whose two sides may change places."""
_CAPITAL = re.compile(r"(?<=[\w,;)] )[A-Z][A-Za-z]+")
_MOST_CHANGED = 5
_ORDINALS = frozenset(["st", "nd", "rd", "th"])
_DEPENDENT = _ORDINALS | {"above", "below"}

Answers = Literal["agree", "may agree", "unknown", "differ"]
"""How two gold answers compare. Common answers ("yes", "2") may agree by chance."""

# Equal content words needed for each changed one: in general, and for words that were exchanged in place in a
# question about the same image.
_SHARED: dict[Answers, float] = {"agree": 4, "may agree": 10, "unknown": 16, "differ": float("inf")}
_SHARED_SHOWN: dict[Answers, float] = {"agree": 1, "may agree": 2, "unknown": float("inf"), "differ": float("inf")}
_SHARED_SHOWN_VERBS = _SHARED_SHOWN | {"unknown": 4}
"""Another verb seldom makes another question; another noun does, so that gold answers must decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A question prepared for comparison. `content` holds (name, token as written) in order."""

    tokens: tuple[str, ...]
    content: tuple[tuple[str, str], ...]
    names: frozenset[str]
    numbers: frozenset[str]
    """The content that is not words: a change of it makes another question."""

    @property
    def text(self) -> str:
        return " ".join(self.tokens)


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
    """A word without its plural, past or progressive ending; a rough rule with one result for all known forms."""
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


def parse_wording(question: str) -> Wording:
    """A question prepared for comparison; in a question of small words only, all words are content."""
    question_tokens = tokenize(question)
    content = [
        (name, token)
        for index, token in enumerate(question_tokens)
        if (name := meaning(token)) and not (token in _DEPENDENT and _completes_neighbour(question_tokens, index))
    ]
    # "Count how many" repeats one name.
    content = [entry for index, entry in enumerate(content) if not index or content[index - 1][0] != entry[0]]
    content = content or [(token, token) for token in question_tokens]
    return Wording(
        tokens=tuple(question_tokens),
        content=tuple(content),
        names=frozenset([name for name, _ in content]),
        numbers=frozenset([name for name, token in content if not token.isalpha()]),
    )


def _completes_neighbour(question_tokens: list[str], index: int) -> bool:
    """Whether a word only completes its neighbour: "2 nd", "the chart above", "the figure below"."""
    before, after = (
        question_tokens[index - 1] if index else "",
        question_tokens[index + 1] if index + 1 < len(question_tokens) else "",
    )
    if question_tokens[index] in _ORDINALS:
        return before.isdigit()
    return before in MEDIA or after in MEDIA


def capitalised_names(question: str) -> frozenset[str]:
    """The words of a question, in lower case, that are written with a capital inside a sentence."""
    capitalised = _CAPITAL.findall(question)
    return (
        frozenset(word.lower() for word in capitalised)
        if len(capitalised) * 2 <= len(question.split())
        else frozenset()
    )


def wording_similarity(left: Wording, right: Wording) -> float:
    """The similarity of two questions as written, 0 to 1; the order of their words may differ."""
    if left.tokens == right.tokens:
        return 1.0
    return max(fuzz.ratio(left.text, right.text), fuzz.token_sort_ratio(left.text, right.text)) / 100


def is_same_question(
    question: Wording,
    test_question: Wording,
    *,
    same_image: bool = False,
    is_word: Callable[[str], bool] = lambda word: False,
    is_name: Callable[[str], bool] = lambda word: False,
    answers: Callable[[], Answers] = lambda: "unknown",
) -> bool:
    """Whether `question` is `test_question`, unchanged or lightly edited.

    `is_word`: whether a word of `question` is spelled correctly. `is_name`: whether a word is a name (another name
    makes another question). `answers`: whether the gold answers agree.
    """
    if question.tokens == test_question.tokens:
        return True
    if not (question.numbers <= test_question.names and test_question.numbers <= question.names):
        return False
    counts, test_counts = (
        Counter(name for name, _ in question.content),
        Counter(name for name, _ in test_question.content),
    )
    if counts == test_counts:
        return _is_reordered(question, test_question)
    shared_count = (counts & test_counts).total()
    if not shared_count:
        return False
    added, missing = (
        _entries_of_names(question, counts - test_counts),
        _entries_of_names(test_question, test_counts - counts),
    )
    if max(len(added), len(missing)) > _MOST_CHANGED:
        return False
    added, missing, has_other_letter = _without_misspellings(added, missing, test_question, is_word)
    if shared_count > 1:
        added, missing = _without_light_verbs(added), _without_light_verbs(missing)
    changed = max(len(added), len(missing))
    if not changed:
        return answers() in (("agree", "may agree") if has_other_letter else ("agree", "may agree", "unknown"))
    if changed > 3 or any(_is_fixed(name) or is_name(word) for name, word in [*added, *missing]):
        return False
    has_contrast = [any(name in _CONTRAST_NAMES for name, _ in words) for words in (added, missing)]
    if all(has_contrast) or has_other_letter:
        return False
    agreement = answers()
    if same_image and _is_exchanged_in_place(question, test_question, changed):
        verbs = not any(has_contrast) and all(word.endswith(("ed", "ing")) for _, word in [*added, *missing])
        if shared_count >= (_SHARED_SHOWN_VERBS if verbs else _SHARED_SHOWN)[agreement] * changed:
            return True
    return not any(has_contrast) and shared_count >= 4 * changed and shared_count >= _SHARED[agreement] * changed


def _entries_of_names(question: Wording, name_counts: Counter[str]) -> list[tuple[str, str]]:
    remaining = Counter(name_counts)
    entries = []
    for name, word in question.content:
        if remaining[name] > 0:
            remaining[name] -= 1
            entries.append((name, word))
    return entries


def _is_fixed(name: str) -> bool:
    """Whether a name is a number, an operator, a single letter or a negation: another one makes another question."""
    return len(name) == 1 or name == "not" or not name.lstrip("=").isalpha()


def _without_light_verbs(words: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [item for item in words if item[0] not in _LIGHT_NAMES]


def _is_exchanged_in_place(question: Wording, test_question: Wording, changed: int) -> bool:
    """Whether words were exchanged in place: contents of one length that differ at `changed` positions."""
    if len(question.content) != len(test_question.content):
        return False
    pairs = zip(question.content, test_question.content, strict=True)
    return sum(entry[0] != test_entry[0] for entry, test_entry in pairs) == changed


def _without_misspellings(
    extra: list[tuple[str, str]],
    missing: list[tuple[str, str]],
    test_question: Wording,
    is_word: Callable[[str], bool],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], bool]:
    """Both lists without pairs of a word and its misspelling, and without misspelt small words.

    The third value says whether a letter was replaced, which may give another word ("lamp", "lamb"); missing, doubled
    or swapped letters seldom do.
    """
    remaining_missing = list(missing)
    remaining_extra = []
    has_other_letter = False
    for entry in extra:
        word = entry[1]
        if word in _GROUPS or word in CONTRASTS or is_word(word):
            remaining_extra.append(entry)
            continue
        twin = next((right for right in remaining_missing if _is_misspelling(word, right[1])), None)
        if twin is not None:
            remaining_missing.remove(twin)
            has_other_letter |= len(word) == len(twin[1]) and sorted(word) != sorted(twin[1])
        elif not any(not meaning(token) and _is_misspelling(word, token) for token in test_question.tokens):
            remaining_extra.append(entry)
    return remaining_extra, remaining_missing, has_other_letter


def _is_misspelling(word: str, right: str) -> bool:
    if len(right) < 4 or not right.isalpha() or word[0] != right[0]:
        return False
    max_distance = 1 if len(right) < 8 else 2
    return OSA.distance(word, right, score_cutoff=max_distance) <= max_distance


def _is_reordered(question: Wording, test_question: Wording) -> bool:
    """Whether equal contents have the same order, except for moved clauses. "5 - 3" and "3 - 5" have not."""
    if any(not token[0].isalnum() and token not in _EITHER_WAY for token in question.tokens) and (
        _terms(question) != _terms(test_question)
    ):
        return False
    question_names, test_names = [name for name, _ in question.content], [name for name, _ in test_question.content]
    if question_names == test_names:
        return True
    if any(question_names == test_names[offset:] + test_names[:offset] for offset in range(1, len(test_names))):
        return True
    if STRICT_ORDER & {*question.tokens, *test_question.tokens}:
        return False
    if (
        not (ORDER_MATTERS & {*question.tokens} or ORDER_MATTERS & {*test_question.tokens})
        and len(question_names) <= 6
    ):
        return True
    blocks = _blocks(question_names, test_names)
    moved = blocks[1:-1] if len(blocks) > 2 else blocks
    if len(blocks) <= 4:
        return max(moved, default=0) > 1 or len(question_names) > 6
    return min(moved) > 1 and len(blocks) <= 1 + len(question_names) // 3


def _terms(question: Wording) -> list[str]:
    """Numbers, signs and single letters but the article."""
    return [token for token in question.tokens if not token.isalpha() or (len(token) == 1 and token != "a")]


def _blocks(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Split `second` into the longest runs that `first` holds; returns their lengths. Both hold the same words."""
    lengths = []
    position = 0
    while position < len(second):
        best = 1
        for start in range(len(first)):
            length = 0
            while (
                start + length < len(first)
                and position + length < len(second)
                and first[start + length] == second[position + length]
            ):
                length += 1
            best = max(best, length)
        lengths.append(best)
        position += best
    return lengths
