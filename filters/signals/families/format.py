"""Whether a trace has the layout that training needs and is complete. Correctness is not measured here.

A text can be truncated even if the server reports a normal stop: by a limit of a proxy, by a stop string in the
middle of a sentence, or by a thinking budget that closed the tag for the model. A text whose end leaves this open
counts as complete.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from distill.rationale import ANY_TAG
from distill.types import Outcome, Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, SignalOfEachTrace, family

# A placeholder left in the text makes the trainer look for an image that is not there.
_IMAGE_PLACEHOLDER = re.compile(
    r"<image(?:_soft_token)?>|<img>|</img>|<IMG_CONTEXT>|\[IMG\]|<\|?(?:image|image_pad|vision_start|vision_end)\|?>"
    r"|<fake_token_around_image>|<global-img>",
    re.IGNORECASE,
)
# Chat templates' own marks: the student would learn to end or open turns inside its answer.
_SPECIAL_TOKEN = re.compile(r"<\|[A-Za-z0-9_]+\|>|<｜[^｜>]+｜>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>")
_UNREADABLE = bytes(byte for byte in [*range(0x20), 0x7F] if byte not in b"\t\n\r")

# Words after which no sentence ends, in the languages that teachers mostly write.
_HANGING = """
    the a an of and or but because than from into my our their your whose
    der das den und oder weil als le les et ou mais que du el los pero porque il gli ma perché os mas het een en maar
    и или но что
"""
_NEVER_LAST = frozenset(_HANGING.split())
_LEAST_WORDS = 6
"""A shorter text may be a label, which ends as it likes."""
_TAIL = 400
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|[。！？]")
_LIST_ITEM = re.compile(r"\s*(?:[-*•#>|+]|\d{1,3}[.):]|\*\*)")

PROBLEMS = (
    "empty_answer",
    "think_tag_in_answer",
    "think_tag_in_reasoning",
    "image_placeholder",
    "special_token",
    "unreadable_characters",
)
"""What `format_problem` can say; where several apply, the first of this list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format(SignalOfEachTrace):
    name: ClassVar[str] = "format"
    version: ClassVar[str] = "2"
    columns: ClassVar[pa.Schema] = family(
        "format",
        format_valid=("flag", "one rationale, one answer, no left-over marks of the teacher's template"),
        format_problem=("text", "the most severe formatting problem"),
        has_reasoning=("flag", "the trace holds a rationale"),
        truncated=("flag", "the text was cut before its end, also where the server reports a normal stop"),
        truncated_by=("text", "how that is known: length, open_think_tag, mid_sentence or open_block"),
    )

    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        if trace.outcome == Outcome.ERROR:
            return {"format_state": NOT_APPLICABLE}
        problem = format_problem(trace.reasoning, trace.answer)
        cut_by = truncated_by(trace)
        return {
            "format_state": OK,
            "format_valid": problem is None,
            "format_problem": problem,
            "has_reasoning": bool(trace.reasoning.strip()),
            "truncated": cut_by is not None,
            "truncated_by": cut_by,
        }


def format_problem(reasoning: str, answer: str) -> str | None:
    """The most severe of PROBLEMS that applies, or None."""
    both = f"{reasoning}\n{answer}"
    tags = "<" in both or "[" in both
    problems = {
        "empty_answer": not answer.strip(),
        "think_tag_in_answer": tags and ANY_TAG.search(answer),
        "think_tag_in_reasoning": tags and ANY_TAG.search(reasoning),
        "image_placeholder": tags and _IMAGE_PLACEHOLDER.search(both),
        "special_token": tags and _SPECIAL_TOKEN.search(both),
        "unreadable_characters": _unreadable(both),
    }
    return next((problem for problem in PROBLEMS if problems[problem]), None)


def _unreadable(text: str) -> bool:
    if "\ufffd" in text:
        return True
    # In UTF-8 these bytes are no part of other characters.
    data = text.encode("utf-8", "surrogatepass")
    return len(data.translate(None, _UNREADABLE)) != len(data)


def truncated_by(trace: Trace) -> str | None:
    """What shows that a trace is not whole; None when nothing does."""
    if trace.finish_reason == "length" or trace.outcome in (Outcome.TRUNCATED_THINKING, Outcome.TRUNCATED_ANSWER):
        return "length"
    reasoning, answer = trace.reasoning.rstrip(), trace.answer.rstrip()
    if _last_tag(trace.text)[:2] not in ("", "</"):
        return "open_think_tag"
    last = answer or reasoning
    if last.count("```") % 2 == 1 or (last.count("$$") % 2 == 1 and "\\" in last):
        return "open_block"
    if _hangs(reasoning, introduces=bool(answer)) or _hangs(answer) or (not answer and _breaks_off(reasoning)):
        return "mid_sentence"
    return None


def _last_tag(text: str) -> str:
    """The last think tag of a text; empty without one."""
    start = text.rfind("<")
    while start >= 0:
        if (tag := ANY_TAG.match(text, start)) is not None:
            return tag[0]
        start = text.rfind("<", 0, start)
    return ""


def _hangs(text: str, *, introduces: bool = False) -> bool:
    """Whether a text ends where no sentence does. What introduces the answer that follows it is whole."""
    line = text[max(text.rfind("\n") + 1, len(text) - _TAIL) :]
    last_words = line.rsplit(maxsplit=_LEAST_WORDS - 1)
    if len(last_words) < _LEAST_WORDS and (line.isascii() or len(line) < 3 * _LEAST_WORDS):
        return False
    if text[-1] in ":：=":
        return not introduces
    return text[-1] in ",;([{，、；（" or last_words[-1].lower().strip("*_") in _NEVER_LAST


def _breaks_off(text: str) -> bool:
    """Whether a text whose sentences end in stops ends in a word."""
    line = text[text.rfind("\n") + 1 :]
    return text[-1:].isalpha() and not _LIST_ITEM.match(line) and len(_SENTENCE_END.findall(text[-_TAIL:])) >= 2
