"""The options that a question offers in its own text: "... A) red B) blue", "(a) ... (b) ...", one a line.

Read strictly: the labels are consecutive from the first, all of one style, at least two, and each has a text. So a
sentence that merely holds the word "A" or names the panels (a) and (b) offers nothing.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_NAME: Final = r"[A-Za-z]|\d{1,2}"
_LABEL = re.compile(
    rf"(?:(?<![\w.(\[])|(?<=[\u3040-\u9fff]))(?:(?P<open>[(\[])(?P<inside>{_NAME})[)\]]"
    rf"|(?P<name>{_NAME})(?P<end>[.:](?=\s|[^\x00-\x7f])|[)、]))"
)
_UNMARKED = re.compile(r"[?:\n][ \t]*A\s(?=[^?.,:;!]+$)")
"""Which triangle is it? A equilateral B isosceles C scalene."""
_FEWEST_UNMARKED: Final = 3
_HEADING = re.compile(r"\b(?:options?|choices?|alternatives?|(?:possible )?answers)\s*:\s*$", re.IGNORECASE)
_COUNTS = re.compile(r"\bhow (?:many|much)\b|\bnumber of\b", re.IGNORECASE)
_AFTER_OPTION = re.compile(
    r"\n.*|(?<=\S)\s+(?:Please|Answer|Choose|Select|Pick|Reply|Respond|Give|Write)\b.*", re.DOTALL
)
"""What the prompt says after the last option: Answer with the letter."""
_JOINT = re.compile(r"[\s,;/|]+(?:(?:and|or)\s*)?$|(?:^|(?<=\s))(?:and|or)\s*$", re.IGNORECASE)
_LONGEST: Final = 4000


@dataclass(frozen=True, slots=True)
class QuestionOptions:
    """Texts of the options in order; `numbered` where their labels are 1, 2, 3 and not letters."""

    texts: tuple[str, ...] = ()
    numbered: bool = False


@lru_cache(maxsize=8192)
def read_options(question: str) -> QuestionOptions:
    """The options in a question's text; none where it offers none, or not clearly."""
    if len(question) > _LONGEST:
        question = question[-_LONGEST:]
    question = unicodedata.normalize("NFKC", question)
    styles: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for match in _LABEL.finditer(question):
        name = match["inside"] or match["name"]
        kind = "digit" if name.isdecimal() else "upper" if name.isupper() else "lower"
        number = int(name) if kind == "digit" else ord(name.upper()) - ord("A") + 1
        labels = styles.setdefault((match["open"] or match["end"], kind), [])
        if number == 1:
            labels.clear()
        labels.append((number, *match.span()))
    offered = [
        (kind == "digit", texts)
        for (_, kind), labels in styles.items()
        if [number for number, _, _ in labels] == list(range(1, len(labels) + 1))
        and (kind != "digit" or _offers_numbers(question, [start for _, start, _ in labels]))
        and (texts := _texts(question, [(start, end) for _, start, end in labels]))
    ]
    lettered = [texts for numbered, texts in offered if not numbered]
    if len(lettered) == 1 or (lettered := _unmarked(question)):
        return QuestionOptions(lettered[0])
    numbered = [texts for numbered, texts in offered if numbered and not any(text[0].isdigit() for text in texts)]
    return QuestionOptions(numbered[0], True) if len(numbered) == len(offered) == 1 else QuestionOptions()


def _offers_numbers(question: str, starts: list[int]) -> bool:
    """Whether numbered items are options: under a heading, or one a line where the question counts nothing."""
    lines = all(question[:start].rstrip(" \t")[-1:] in ("", "\n") for start in starts)
    return _HEADING.search(question[: starts[0]]) is not None or (lines and _COUNTS.search(question) is None)


def _texts(question: str, labels: list[tuple[int, int]]) -> tuple[str, ...]:
    """The text after each label; empty if a label has no text, or if a text is itself a question."""
    if len(labels) < 2:
        return ()
    ends = [*(start for start, _ in labels[1:]), len(question)]
    texts = [question[start:end].strip() for (_, start), end in zip(labels, ends, strict=True)]
    texts[-1] = _AFTER_OPTION.sub("", texts[-1])
    if texts[-2].endswith(" or"):  # Which is it, (a) the cat or (b) the dog?
        texts[-1] = texts[-1].removesuffix("?")
    texts = [_JOINT.sub("", text).strip() for text in texts]
    whole = all(text and "?" not in text and text.count("(") == text.count(")") for text in texts)
    return tuple(texts) if whole else ()


def _unmarked(question: str) -> list[tuple[str, ...]]:
    """Options whose letters have no mark, as all that follows the question."""
    begin = _UNMARKED.search(question)
    if begin is None:
        return []
    letters = re.finditer(r"(?<!\S)[A-Z](?=\s)", question[begin.start() + 1 :])
    labels = [(match[0], match.start(), match.end()) for match in letters]
    in_turn = all(letter == chr(ord("A") + place) for place, (letter, _, _) in enumerate(labels))
    shift = begin.start() + 1
    spans = [(start + shift, end + shift) for _, start, end in labels]
    texts = _texts(question, spans) if in_turn and len(labels) >= _FEWEST_UNMARKED else ()
    return [texts] if texts else []
