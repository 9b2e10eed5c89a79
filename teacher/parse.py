"""A raw completion to reasoning, answer and outcome.

Pure and repeatable: a trace keeps its raw text, so a better parser is applied to old traces without a GPU. When a
server hands the reasoning over in a field of its own, `compose` writes it back between tags first, so the text
alone always suffices. Does not judge whether an answer is right.
"""

import re
from dataclasses import dataclass
from typing import Literal

from distill.types import Outcome

VERSION = 1
"""Raised with every change of what `parse` returns; traces parsed by another version are parsed again."""

Mode = Literal["auto", "field", "tags", "none"]

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
)
_ANSWER_TAG = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_CUE = re.compile(
    r"(?:\b(?:so|thus|hence|therefore)\b,?\s*)?"
    r"[#*_\s]*\b(?:the\s+)?(?:final\s+|correct\s+)?answer(?:\s+is\b\s*[:=]?|\s*[*_]{0,2}\s*[:=][*_]{0,2})[ \t]*",
    re.IGNORECASE,
)
_AFTER_CUE_CHARACTERS = 200
"""More text than this after the line of a cue means that the cue did not introduce the final answer."""
_REFUSAL = re.compile(
    r"\W*(?:(?:i\s*am|i'm|we\s*are|we're)\s+(?:very\s+|so\s+|really\s+)?sorry\b.{0,20}?|sorry,?\s+|apologies,?\s+)?(?:but\s+)?"
    r"(?:as\s+an?\s+(?:ai|language|large\s+language)\b"
    r"|(?:i|we)\s*(?:can\s*not|can't|cannot|won't|will\s+not|am\s+not\s+able\s+to|'m\s+not\s+able\s+to|am\s+unable\s+to|'m\s+unable\s+to)"
    r"\s+(?:help|assist|comply|fulfil+|provide|process|view|see\s+(?:the\s+|any\s+)?images?|discuss|answer\s+(?:that|this)|do\s+that))",
    re.IGNORECASE,
)
_REFUSAL_CHARACTERS = 400
_ENDING = 8
"""Characters that a loop must repeat at its end to be looked at; every loop that counts is far longer."""
_WRAPPERS = (
    ("**", "**"),
    ("__", "__"),
    ("`", "`"),
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ('"', '"'),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a completion holds, and how it ended."""

    reasoning: str
    answer: str
    outcome: Outcome


def compose(content: str, reasoning: str) -> str:
    """The raw text of an answer whose reasoning came in a field of its own.

    Without content nothing shows that the thinking ended, so the tag stays open.
    """
    if not reasoning:
        return content
    return f"<think>{reasoning}</think>{content}" if content.strip() else f"<think>{reasoning}"


def parse(text: str, *, mode: Mode = "auto", finish_reason: str = "stop") -> Parsed:
    """Split a raw completion and say how it ended; every text has exactly one outcome.

    `auto` looks for thinking tags (the opening one may be missing: chat templates write it), then for the
    last "Answer:", "The answer is", <answer> or \\boxed, else the whole text is the answer. `tags` demands tags,
    `field` trusts the server (its field was written as tags by `compose`), `none` splits nothing.
    """
    cut = finish_reason == "length"
    reasoning, content, state = _split(text, mode, cut=cut)
    answer = content.strip() if mode == "none" else _final(content)
    outcome = _outcome(text, reasoning, answer, state, finish_reason=finish_reason, cut=cut)
    return Parsed(reasoning=reasoning, answer=answer, outcome=outcome)


_State = Literal["closed", "open", "malformed", "cued", "none"]


def _split(text: str, mode: Mode, *, cut: bool) -> tuple[str, str, _State]:
    """Reasoning, the rest, and how they were told apart."""
    if mode == "none":
        return "", text, "none"
    tags = _tags_in(text)
    if tags is not None:
        return _by_tags(text, *tags)
    if mode == "tags":
        # The chat template may have opened the thinking, so a text that was cut had not left it yet.
        return text.strip(), "", "open" if cut else "malformed" if text.strip() else "none"
    if mode == "field":
        return "", text, "none"
    position = _final_position(text)
    if position is None:
        return "", text, "none"
    return _clean_end(text[:position]), text[position:], "cued"


def _tags_in(text: str) -> tuple[str, str] | None:
    """The kind of thinking tags that a text uses: the kind that occurs first."""
    first, kind = len(text), None
    for pair in TAGS:
        for tag in pair:
            position = text.find(tag, 0, first)  # only what comes before the first one known so far
            if position >= 0:
                first, kind = position, pair
    return kind


def _by_tags(text: str, opening: str, closing: str) -> tuple[str, str, _State]:
    opens, closes = text.count(opening), text.count(closing)
    before, _, after = text.rpartition(closing) if closes else (text, "", "")
    start = before.find(opening)
    inside = before[start + len(opening) :] if start >= 0 else before
    well_formed = closes <= 1 and opens <= 1 and opening not in after and not before[: max(start, 0)].strip()
    reasoning = inside.replace(opening, "").replace(closing, "").strip()
    if not well_formed:
        return reasoning, after.replace(opening, ""), "malformed"
    return reasoning, after, "closed" if closes else "open"


def _outcome(text: str, reasoning: str, answer: str, state: _State, *, finish_reason: str, cut: bool) -> Outcome:
    if finish_reason == "repetition" or _loops(text, cut=cut):
        return Outcome.REPETITION
    if finish_reason == "content_filter":
        return Outcome.REFUSAL
    if state == "malformed":
        return Outcome.MALFORMED
    if cut:
        return Outcome.TRUNCATED_THINKING if state == "open" else Outcome.TRUNCATED_ANSWER
    if not answer:
        return Outcome.EMPTY_ANSWER
    if len(answer) <= _REFUSAL_CHARACTERS and _REFUSAL.match(answer.replace("’", "'")):
        return Outcome.REFUSAL
    return Outcome.COMPLETE


def _final_position(text: str) -> int | None:
    """Where the part of an untagged text begins that states the final answer."""
    tagged = [match.start() for match in _ANSWER_TAG.finditer(text)]
    if tagged:
        return tagged[-1]
    cue = _last_cue(text)
    boxed = text.rfind("\\boxed{")
    if cue is not None and boxed <= cue.end() + 40:
        return cue.start()
    return boxed if boxed >= 0 else None


def _last_cue(text: str) -> re.Match[str] | None:
    last = None
    for match in _CUE.finditer(text):
        last = match
    if last is None:
        return None
    rest = text[last.end() :].strip()
    line, _, beyond = rest.partition("\n")
    return None if len(beyond.strip()) > _AFTER_CUE_CHARACTERS or len(line) > 2 * _AFTER_CUE_CHARACTERS else last


def _final(content: str) -> str:
    """The final answer that a piece of text states, without the markup and phrases around it."""
    tagged = _ANSWER_TAG.findall(content)
    if tagged:
        content = tagged[-1]
    boxed = _boxed(content)
    if boxed is not None:
        return _unwrap(boxed)
    cue = _last_cue(content)
    if cue is not None:
        content = content[cue.end() :].strip().partition("\n")[0].strip()
        return _unwrap(content[:-1] if content.endswith(".") else content)
    answer = _unwrap(content)
    return answer[:-1] if answer.endswith(".") and not re.search(r"\s", answer) else answer


def _boxed(text: str) -> str | None:
    r"""What the last \boxed{...} holds, braces balanced; None without one or when it is cut."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    inner = start + len("\\boxed{")
    for position in range(inner - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[inner:position]
    return None


def _unwrap(text: str) -> str:
    """A short text without the emphasis, code or formula marks that enclose the whole of it."""
    text = text.strip()
    changed = True
    while changed:
        changed = False
        for left, right in _WRAPPERS:
            inner = text[len(left) : -len(right)]
            if (
                len(text) > len(left) + len(right)
                and text.startswith(left)
                and text.endswith(right)
                and right not in inner
            ):
                text, changed = inner.strip(), True
        match = re.fullmatch(r"\\text(?:bf|rm)?\{([^{}]*)\}", text)
        if match:
            text, changed = match[1].strip(), True
        if text.endswith((".**", ".__")):
            text, changed = text[:-3] + text[-2:], True
    return text


def _clean_end(text: str) -> str:
    return text.rstrip().rstrip("#*_$([\\").rstrip()


def _loops(text: str, *, cut: bool) -> bool:
    """Whether the end of a text is one piece repeated over and over.

    A text that the model ended itself has to be far more repetitive than one that ran into the token limit.
    """
    times, least = (6, 60) if cut else (20, 240)
    tail = text.rstrip()[-4000:]
    if len(tail) < least:
        return False
    longest = min(400, len(tail) // times)
    # A text that ends in a loop has its last characters once more, one period earlier: only such distances are tried.
    end = len(tail) - _ENDING
    position = tail.rfind(tail[end:], max(0, end - longest), len(tail) - 1)
    while position >= 0:
        period = end - position
        if _repeated(tail, period) >= max(least, times * period):
            return True
        position = tail.rfind(tail[end:], max(0, end - longest), position + _ENDING - 1)
    return False


def _repeated(text: str, period: int) -> int:
    """How many characters at the end of a text repeat with this period."""
    position = len(text) - 1
    while position >= period and text[position] == text[position - period]:
        position -= 1
    return len(text) - 1 - position + period
