"""Think tags: splits a text into rationale and answer, and joins the two into one text.

All code about think tags is here. The parser of teachers' completions, the judge, the dataset's rows and the scoring
of replies use it. Pure, and linear in the length of a text. Does not look for an answer inside the part after the
thinking (teacher/messages/parse.py, distill/answers/final_answer.py).
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
)
OPEN, CLOSE = TAGS[0]
_FIRST_CHARACTERS = tuple(sorted({tag[0] for pair in TAGS for tag in pair}))
ANY_TAG = re.compile(r"</?\s*(?:think|thinking|thought|reasoning)\s*>", re.IGNORECASE)
"""A think tag as a model may misspell it: any case, blanks before the bracket closes."""
NO_THINK = " /no_think"
"""The end of a question that asks a student of two modes for the answer alone."""

Style = Literal["think", "plain"]
"""How a rationale stands before its answer: in think tags, or as plain text and a blank line."""
STYLES: tuple[Style, ...] = get_args(Style)
State = Literal["closed", "open", "malformed", "none"]
"""One closed think block; a block that does not close; tags in another order or number; no tag."""


class SplitText(NamedTuple):
    """A text as rationale and answer."""

    rationale: str
    """Without blanks around it."""
    answer: str
    """All that follows the thinking, as it stands."""
    state: State

    @property
    def well_formed(self) -> bool:
        """At most one closed think block, and an answer after it."""
        return self.state in ("closed", "none") and bool(self.answer.strip())


def split(text: str, style: Style = "think") -> SplitText:
    """Split a text at its think tags, of the kind that occurs first; in plain style at its last blank line.

    The opening tag may be missing, as chat templates write it. A block that does not close has no answer.
    """
    if style == "plain":
        rationale, _, answer = text.rpartition("\n\n")
        return SplitText(rationale.strip(), answer, "none")
    tags = _tags_in(text)
    if tags is None:
        return SplitText("", text, "none")
    opening, closing = tags
    opens, closes = text.count(opening), text.count(closing)
    before, _, after = text.rpartition(closing) if closes else (text, "", "")
    start = before.find(opening)
    inside = before[start + len(opening) :] if start >= 0 else before
    well_formed = closes <= 1 and opens <= 1 and opening not in after and not before[: max(start, 0)].strip()
    if not well_formed:
        rationale = inside.replace(opening, "").replace(closing, "").strip()
        return SplitText(rationale, after.replace(opening, ""), "malformed")
    return SplitText(inside.strip(), after, "closed" if closes else "open")


def _tags_in(text: str) -> tuple[str, str] | None:
    """The kind of think tags that occurs first."""
    if text.startswith(OPEN):
        return TAGS[0]
    first, kind = len(text), None
    if not any(mark in text for mark in _FIRST_CHARACTERS):
        return None
    for pair in TAGS:
        for tag in pair:
            position = text.find(tag, 0, first)  # only what comes before the first one known so far
            if position >= 0:
                first, kind = position, pair
    return kind


def thinking_end(text: str) -> int:
    """The position after the last closing tag of any kind; 0 without a closing tag."""
    return max((text.rfind(closing) + len(closing) for _, closing in TAGS if closing in text), default=0)


def opened_thinking(rendered: str) -> str:
    """The opening thinking tag with which a rendered prompt ends, if it does."""
    stripped = rendered.rstrip()
    for opening, _ in TAGS:
        if stripped.endswith(opening):
            return rendered[len(stripped) - len(opening) :]
    return ""


def opened_by_prompts(texts: Iterable[str]) -> str:
    """The opening tag at the end of the prompts of these replies, inferred from the replies: most of those that close
    a block do not open it.

    Empty if the replies do not show it.
    """
    votes: Counter[str] = Counter()
    for text in texts:
        for opening, closing in TAGS:
            before, closes, _ = text.partition(closing)
            if closes:
                votes[opening] += -1 if opening in before else 1
    opening, vote = max(votes.items(), key=lambda item: item[1], default=("", 0))
    return opening if vote > 0 else ""


def join(rationale: str, answer: str, style: Style) -> str:
    """The turn that a student learns: an empty rationale leaves an empty think block, or nothing in plain style."""
    if style == "think":
        return f"{OPEN}\n{rationale}\n{CLOSE}\n\n{answer}"
    return f"{rationale}\n\n{answer}" if rationale else answer


def enclose(rationale: str, answer: str) -> str:
    """The raw text of a completion whose rationale came in a field of its own; `split` gives both back.

    Without an answer the thinking may not have ended, so the tag stays open.
    """
    if not rationale:
        return answer
    return f"{OPEN}{rationale}{CLOSE}{answer}" if answer.strip() else f"{OPEN}{rationale}"
