"""Splits a raw completion into reasoning, answer and outcome.

Pure and repeatable: a trace keeps its raw text, so a better parser is applied to old traces without a GPU. When a
server hands the reasoning over in a field of its own, `rationale.enclose` writes it back between tags first, so the
text alone always suffices. The time is linear in the length of any text (5 ms for 64 kB), so the event loop may call
it: no pattern here tries the same characters twice. Does not judge whether an answer is right.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from distill import rationale
from distill.types import Outcome

VERSION = 4
"""Raised with every change of what `parse` returns; traces parsed by another version are parsed again."""

Mode = Literal["auto", "field", "tags", "json", "none"]

_ANSWER_TAG, _ANSWER_END = "<answer>", "</answer>"
# The dot takes the whole text first and gives it back from the end, so that the last cue is found; what follows the
# word is possessive, so that a run of blanks is read once.
_LAST_CUE = re.compile(
    r".*(\banswer(?:\s++is\b\s*+[:=]?|\s*+[*_]{0,2}+\s*+[:=][*_]{0,2})[ \t]*+)", re.IGNORECASE | re.DOTALL
)
_BEFORE_CUE = re.compile(
    r"(?:\b(?:so|thus|hence|therefore)\b,?)?[#*_\s]*"
    r"(?:\b(?:the\s+(?:(?:final|correct)\s+)?|(?:final|correct)\s+))?\Z",
    re.IGNORECASE,
)
_BEFORE_CUE_CHARACTERS = 80
"""How far before the word "answer" the beginning of a cue is looked for."""
_CUE_CHARACTERS = 4000
"""Where a final answer can stand, counted from the end of a text: a cue introduces one line of it."""
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
_TEXT_COMMAND = re.compile(r"\\text(?:bf|rm)?\{([^{}]*)\}")
_BOX_CHARACTERS = 2000
"""A longer box is none that holds an answer."""
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


@dataclass(slots=True, kw_only=True)
class ParsedCompletion:
    """The parts and the outcome of a completion."""

    reasoning: str
    answer: str
    outcome: Outcome


def parse(text: str, *, mode: Mode = "auto", finish_reason: str = "stop") -> ParsedCompletion:
    """Split a raw completion into reasoning and answer, and classify its end; every text has exactly one outcome.

    `auto` looks for thinking tags (the opening tag may be missing, because chat templates write it). Then it looks
    for a JSON object with `answer` or `final_answer` at the end, then for the last "Answer:", "The answer is",
    <answer> or \\boxed. Otherwise the whole text is the answer. `tags` requires tags. `field` uses the server's field
    (`rationale.enclose` wrote it as tags). `json` requires a JSON object with `answer`; its other members are the
    reasoning. `none` splits nothing.
    """
    cut = finish_reason == "length"
    reasoning, content, state = _split(text, mode, cut=cut)
    answer = content.strip() if mode in ("json", "none") else _final(content)
    outcome = _outcome(text, reasoning, answer, state, finish_reason=finish_reason, cut=cut)
    return ParsedCompletion(reasoning=reasoning, answer=answer, outcome=outcome)


_State = rationale.State | Literal["cued"]


def _split(text: str, mode: Mode, *, cut: bool) -> tuple[str, str, _State]:
    """Reasoning, the rest, and what separates them."""
    if mode == "none":
        return "", text, "none"
    by_tags = rationale.split(text)
    if mode == "json" and by_tags.state in ("closed", "none"):
        return _split_json(by_tags.rationale, by_tags.answer.strip(), cut=cut)
    if mode == "auto" and by_tags.state in ("closed", "none") and (found := _split_at_object(by_tags.answer)):
        return "\n".join(filter(None, (by_tags.rationale, found[0]))), *found[1:]
    if by_tags.state != "none":
        return by_tags
    if mode == "tags":
        # The chat template may have opened the thinking, so a text that was cut had not left it yet.
        return text.strip(), "", "open" if cut else "malformed" if text.strip() else "none"
    if mode == "field":
        return "", text, "none"
    position = _final_position(text)
    if position is None:
        return "", text, "none"
    return text[:position].rstrip().rstrip("#*_$([\\").rstrip(), text[position:], "cued"


def _split_json(thinking: str, text: str, *, cut: bool) -> tuple[str, str, _State]:
    """The members of a JSON object, which may be in a code block: `answer`, and the others as reasoning."""
    if text.startswith("```"):
        text = text.partition("\n")[2].rpartition("```")[0]
    try:
        members = orjson.loads(text)
        answer = members.pop("answer")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return thinking or text, "", "none" if cut else "malformed"
    return "\n".join(filter(None, (thinking.strip(), *_lines_of(members)))), _as_text(answer), "closed"


def _split_at_object(text: str) -> tuple[str, str, _State] | None:
    """The rationale before and in the JSON object that ends a text, and its answer; None without such an object."""
    head, fence, _ = text.rstrip().removesuffix("```").rstrip().rpartition("}")
    if not fence or "answer" not in head[-_CUE_CHARACTERS:]:
        return None
    for start in dict.fromkeys((head.find("{"), head.rfind("\n{") + 1, head.rfind("{"))):
        try:
            members: dict[str, Any] = orjson.loads(head[start:] + "}") if head[start : start + 1] == "{" else {}
        except orjson.JSONDecodeError:
            continue
        named = [name for name in members if name.casefold() in ("answer", "final_answer")]
        if named:
            answer = members.pop(named[-1])
            before = head[:start].rstrip().removesuffix("```json").removesuffix("```").rstrip()
            return "\n".join(filter(None, (before, *_lines_of(members)))), _as_text(answer), "closed"
    return None


def _lines_of(members: dict[str, Any]) -> list[str]:
    lines = (line for value in members.values() for line in (value if isinstance(value, list) else [value]))
    return [_as_text(line) for line in lines if line not in ("", None)]


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else orjson.dumps(value).decode()


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
    tagged = _tagged(text)
    if tagged is not None:
        return tagged[0] - len(_ANSWER_TAG)
    cue = _last_cue(text)
    boxed = text.rfind("\\boxed{")
    if cue is not None and boxed <= cue[1] + 40:
        return cue[0]
    return boxed if boxed >= 0 else None


def _tagged(text: str) -> tuple[int, int] | None:
    """From where to where the last <answer> tag encloses a text; a tag inside another is text of that one."""
    if "<" not in text:
        return None
    lower = text.replace("\u0130", "i").lower()  # the one letter that is longer in lower case
    last = lower.rfind(_ANSWER_TAG)
    if last < 0:
        return None
    before = lower.rfind(_ANSWER_END, 0, last)
    inner = lower.find(_ANSWER_TAG, max(before, 0)) + len(_ANSWER_TAG)
    end = lower.find(_ANSWER_END, inner)
    return inner, end if end >= 0 else len(text)


def _last_cue(text: str) -> tuple[int, int] | None:
    """Where the last cue begins and ends, if it introduces the final answer."""
    end = len(text.rstrip())
    match = _LAST_CUE.match(text, max(0, end - _CUE_CHARACTERS), end)
    if match is None:
        return None
    word, end = match.span(1)
    rest = text[end:].strip()
    line, _, beyond = rest.partition("\n")
    if len(beyond.strip()) > _AFTER_CUE_CHARACTERS or len(line) > 2 * _AFTER_CUE_CHARACTERS:
        return None
    before = _BEFORE_CUE.search(text, max(0, word - _BEFORE_CUE_CHARACTERS), word)
    return before.start() if before is not None else word, end


def _final(content: str) -> str:
    """The final answer that a piece of text states, without the markup and phrases around it."""
    if (word := content.strip()).isalnum():
        return word  # most short answers: nothing is around them
    tagged = _tagged(content)
    if tagged is not None:
        content = content[slice(*tagged)]
    boxed = _boxed(content)
    if boxed is not None:
        return _unwrap(boxed)
    cue = _last_cue(content)
    if cue is not None:
        content = _unfenced(content[cue[1] :].strip()).partition("\n")[0].strip()
        return _unwrap(content[:-1] if content.endswith(".") else content)
    answer = _unwrap(content)
    return answer[:-1] if answer.endswith(".") and not re.search(r"\s", answer) else answer


def _unfenced(text: str) -> str:
    """What the code block holds that a text begins with; other text as it is."""
    if not text.startswith("```"):
        return text
    return text.partition("\n")[2].partition("```")[0].strip() or text


def _boxed(text: str) -> str | None:
    r"""What the last \boxed{...} holds, braces balanced; None without one or when it is cut."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    inner = start + len("\\boxed{")
    for position in range(inner - 1, min(len(text), inner + _BOX_CHARACTERS)):
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
            if text.startswith(left) and text.endswith(right) and len(text) > len(left) + len(right):
                inner = text[len(left) : -len(right)]
                if right not in inner:
                    text, changed = inner.strip(), True
        match = _TEXT_COMMAND.fullmatch(text)
        if match:
            text, changed = match[1].strip(), True
        if text.endswith((".**", ".__")):
            text, changed = text[:-2].rstrip(".") + text[-2:], True
    return text


def _loops(text: str, *, cut: bool) -> bool:
    """Whether the end of a text is one repeated piece, or only blanks and line breaks.

    A text that the model ended itself has to be far more repetitive than one that ran into the token limit.
    """
    times, least = (6, 60) if cut else (20, 240)
    written = text.rstrip()
    if len(text) - len(written) >= least:
        return True
    tail = written[-4000:]
    if len(tail) < least:
        return False
    longest = min(400, len(tail) // times)
    # A text that ends in a loop has its last characters once more, one period earlier: only such distances are tried.
    end = len(tail) - _ENDING
    position = tail.rfind(tail[end:], max(0, end - longest), len(tail) - 1)
    while position >= 0:
        period = end - position
        loop = tail[-max(least, times * period) :]
        if loop[period:] == loop[:-period]:
            return True
        position = tail.rfind(tail[end:], max(0, end - longest), position + _ENDING - 1)
    return False
