"""What a student said, taken apart into reasoning and answer. Reads text only (student/inference/generation.py makes
it)."""

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReply:
    """A reply taken apart."""

    reasoning: str
    answer: str
    well_formed: bool
    """One closed think block, or none, and an answer after it."""


def take_apart(text: str, *, plain: bool = False) -> SplitReply:
    """Reasoning and answer of a reply; with `plain`, the rationale is everything before the last blank line.

    A think block that never closes holds no answer. The opening tag may be missing: templates may write it.
    """
    if plain:
        reasoning, _, answer = text.rpartition("\n\n")
        return SplitReply(reasoning=reasoning.strip(), answer=answer.strip(), well_formed=bool(answer.strip()))
    before, closed, after = text.partition(CLOSE)
    if closed:
        reasoning = before.partition(OPEN)[2] if OPEN in before else before
        extra = OPEN in after or CLOSE in after or before.count(OPEN) > 1
        answer = after.rpartition(CLOSE)[2] if CLOSE in after else after
        return SplitReply(
            reasoning=reasoning.strip(), answer=answer.strip(), well_formed=bool(answer.strip()) and not extra
        )
    if OPEN in text:
        return SplitReply(reasoning=text.partition(OPEN)[2].strip(), answer="", well_formed=False)
    return SplitReply(reasoning="", answer=text.strip(), well_formed=bool(text.strip()))
