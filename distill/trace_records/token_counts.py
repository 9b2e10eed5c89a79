"""Which token counts of a trace are known.

A server that reports no usage, or one that cannot be true, leaves zeros in the record. A request that was answered
has a prompt, and a reply has at least its end, so such a zero says that the count is not known.
"""

from collections.abc import Mapping
from typing import Any

from distill.types import Outcome


def output_tokens(usage: Mapping[str, Any], outcome: str) -> int | None:
    """The tokens of a reply, reasoning and answer; None where they are not known. An error has none."""
    tokens: int = usage["reasoning"] + usage["answer"]
    # A server may count no token for an empty reply. It has then counted the prompt.
    if tokens or outcome == Outcome.ERROR or (outcome == Outcome.EMPTY_ANSWER and usage["prompt"]):
        return tokens
    return None


def known_usage(record: Mapping[str, Any]) -> dict[str, int | None]:
    """The token counts of a trace record by their names; None means "not known"."""
    usage: dict[str, int | None] = dict(record["usage"])
    if output_tokens(record["usage"], record["outcome"]) is None:
        usage |= {"reasoning": None, "answer": None}
    # The prompt of several choices of one request belongs to the first of them.
    later_choice = (record.get("choice") or {}).get("index", 0) > 0
    if not usage["prompt"] and not later_choice and record["outcome"] != Outcome.ERROR:
        usage |= {"prompt": None, "image": None}
    return usage
