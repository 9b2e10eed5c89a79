"""The final answer in what a model says: boxed, after a cue such as "the answer is", or the text itself.

Works on text only and decides nothing: `distill.answers` judges what is found here.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_THINK_END = re.compile(r".*</think(?:ing)?>", re.DOTALL)
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.DOTALL)
_MARKS = re.compile(r"(?<![\w*])\*{1,3}(?=\S)|(?<=\S)\*{1,3}(?![\w*])|__+|`+|^\s{0,3}#{1,3}\s|^\s*>\s", re.MULTILINE)
_CUE = re.compile(
    r"""(?:^|(?<=[\s.,;:!?("'*]))
    (?:(?:the|my|our|so|thus|hence|therefore|final|correct|right|best|short)\s+)*
    (?:(?:final|correct|right|best|short)\s+)?
    (?:answer|(?:correct|right|best)\s+(?:option|choice)|(?:final\s+)?(?:result|solution)(?=\s*(?:is|:|=)))
    (?:\s+(?:to\s+(?:this|the|that)\s+question|option|choice|here))?
    \s*(?:(?:is|are|was|would\s+be|should\s+be|must\s+be|will\s+be)(?:\s+(?:therefore|thus|simply|clearly|option|choice))?
      \s*:?(?=\W|\w)|[:=]|\n)""",
    re.IGNORECASE | re.VERBOSE,
)
_REMARK = re.compile(r"\n[ \t]*(?:explanation|reason(?:ing)?|rationale|justification|note)\s*:", re.IGNORECASE)
_MATHS_DELIMITED = re.compile(r"\$\$?\s*([^$]+?)\s*\$\$?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The words of the answer, and whether the model marked them as such."""

    text: str
    marked: bool


def final_answer(text: str) -> Final:
    """The part of a response that states its answer."""
    return _remembered(text) if len(text) <= _SHORT else _found(text)


_SHORT = 60
"""Short answers come again and again."""


@lru_cache(maxsize=8192)
def _remembered(text: str) -> Final:
    return _found(text)


def _found(text: str) -> Final:
    marked = False
    if "</think" in text:
        text = _THINK_END.sub("", text, count=1)
    if "<answer>" in text:
        text, marked = _ANSWER_TAG.findall(text)[-1], True
    boxed = _boxed(text)
    if boxed is not None:
        return Final(text=undelimited(boxed), marked=True)
    if "####" in text:
        text, marked = text.rsplit("####", 1)[1].strip().split("\n", 1)[0], True
    if "*" in text or "#" in text or "`" in text or "_" in text or ">" in text:
        text = _MARKS.sub("", text)
    if "\n" in text:
        text = _REMARK.split(text, maxsplit=1)[0].rstrip() or text
    lowered = text.lower()
    if any(word in lowered for word in ("answer", "result", "solution", "option", "choice")):
        cues = list(_CUE.finditer(text))
        while cues:
            rest = text[cues.pop().end() :].strip()
            if rest:
                return Final(text=undelimited(first_sentence(rest.split("\n", 1)[0])), marked=True)
    return Final(text=undelimited(text), marked=marked)


def _boxed(text: str) -> str | None:
    r"""The inside of the last \boxed{...} or \fbox{...}."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    opening = text.find("{", start)
    if opening < 0:
        return text[start:].split(maxsplit=1)[1].split("$")[0] if " " in text[start:] else None
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1 : position]
    return None


def first_sentence(line: str) -> str:
    """A line up to the end of its first sentence; points in numbers and in short abbreviations end nothing."""
    for match in re.finditer(r"[.!?;](?=\s)", line):
        word = re.findall(r"\S+$", line[: match.start()])
        if not word or len(word[0]) > 3 or not word[0].isalpha() or len(word[0]) == 1 or line[match.start()] != ".":
            return line[: match.start()]
    return line


def undelimited(text: str) -> str:
    """Text without the quotes, math delimiters and closing punctuation around it."""
    text = _unquoted(text.strip())
    while (match := _MATHS_DELIMITED.fullmatch(text)) is not None:
        text = match[1]
    if text.endswith((".", "!", ";", ",", ":")) and not text.endswith("..") and not _FACTORIAL.search(text):
        text = text[:-1].rstrip()
    return _unquoted(text)


_QUOTES = "\"'“”‘’"
_FACTORIAL = re.compile(r"\d!$")


def _unquoted(text: str) -> str:
    """Text without its quotes; those of a year ('98) and of feet and inches (6'2") stay."""
    if not text or (text[0] not in _QUOTES and text[-1] not in _QUOTES):
        return text
    inside = text.strip(_QUOTES)
    if text[0] not in _QUOTES and inside[-1:].isdigit():
        return text
    if text[-1] not in _QUOTES and inside[:2].isdigit() and len(inside) == 2:
        return text
    return inside.strip()
