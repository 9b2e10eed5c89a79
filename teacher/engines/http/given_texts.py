"""Scoring a given text with a vLLM server: the request, and the log-probabilities of the text in its answer.

The text is the last turn of the chat, which the template leaves open. The server reads it as a prompt and returns the
log-probability of each of its tokens (`prompt_logprobs`). Where the text begins is found from its end, token by
token, so nothing has to be known of the template or of the tokens that an image takes.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distill.recipe.sections.teachers import Teacher
from teacher.engines.http.chat_protocol import excerpt, logprob_table
from teacher.engines.outage import Failure
from teacher.messages.completion import Completion

if TYPE_CHECKING:
    import numpy as np

_PART = "\N{REPLACEMENT CHARACTER}"
"""In the text of a token that is a part of a character."""
_PARTS_A_CHARACTER = 4


def scoring_body(teacher: Teacher, given: str, chat: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """The body of a request for the log-probabilities of `given` as the answer to `chat`."""
    settings: dict[str, Any] = {"prompt_logprobs": teacher.logprobs, "max_tokens": 1, "temperature": 0.0}
    if teacher.chat_template_kwargs:
        settings["chat_template_kwargs"] = dict(teacher.chat_template_kwargs)
    if teacher.mm_processor_kwargs:
        settings["mm_processor_kwargs"] = dict(teacher.mm_processor_kwargs)
    return {
        "messages": [*chat, {"role": "assistant", "content": given}],
        "model": model,
        **settings,
        **teacher.extra_body,
        "add_generation_prompt": False,
        "continue_final_message": True,
    }


_REMEDY = "let a teacher score that runs on vLLM or is embedded (stages.visual.teacher, stages.rollouts.teacher)"


def scored_text(body: Any, payload: bytes, latency_s: float, given: str, top_k: int) -> Completion:
    """The log-probabilities of `given` in a server's answer, with the `top_k` likeliest tokens at each position.

    `payload` is for the message of an error. Raises Failure where there are none.
    """
    if isinstance(body, Mapping) and body.get("choices") and body.get("prompt_logprobs") is None:
        raise Failure(
            "garbled_response",
            f"a reply without prompt_logprobs, so this server cannot score texts: {excerpt(payload)}; {_REMEDY}",
            remedy=_REMEDY,
        )
    try:
        entries = body["prompt_logprobs"]
        pieces = [
            "" if entry is None else str(next(iter(entry.values()))["decoded_token"] or "") for entry in entries
        ]
        ends = token_ends(given, pieces)
        if ends is None:
            raise Failure("garbled_response", f"the prompt does not end with the given text {given[-60:]!r}")
        first = len(entries) - len(ends)
        if first < 1:
            raise ValueError("no token before the text")
        ids, values = _table(entries[first:], top_k)
        name = body.get("model")
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, StopIteration, OverflowError):
        raise Failure(
            "garbled_response", f"no prompt_logprobs of a text to score: {excerpt(payload)}; a vLLM server gives them"
        ) from None
    import numpy as np

    return Completion(
        text=given,
        finish_reason="scored",
        prompt_tokens=first,
        completion_tokens=len(ends),
        token_ids=ids,
        token_logprobs=values,
        token_ends=np.array(ends, np.int32),
        model=name if isinstance(name, str) else "",
        latency_s=latency_s,
    )


def _table(entries: Sequence[Mapping[str, Mapping[str, Any]]], top_k: int) -> "tuple[np.ndarray, np.ndarray]":
    """Ids and log-probabilities [tokens, 1 + k], the token of the text first, then the likeliest by rank."""
    rows: list[list[tuple[str, float]]] = []
    for entry in entries:
        # A server lists the token of the text first, also if it is not among the likeliest tokens.
        own, *_ = entry.items()
        likeliest = sorted(entry.items(), key=lambda item: item[1]["rank"])[:top_k]
        rows.append([(token, value["logprob"]) for token, value in (own, *likeliest)])
    return logprob_table(rows, 1 + top_k)


def token_ends(text: str, pieces: Sequence[str]) -> list[int] | None:
    """The character of `text` after each of the last tokens of a prompt that ends with it; None where it does not.

    `pieces`: the text of every token of the prompt; the text of a partial character is unknown (empty or U+FFFD). A
    token that begins before the text and ends in it belongs to it.
    """
    end, parts, ends = len(text), 0, list[int]()
    for piece in reversed(pieces):
        # Parts of the first character, whose last one has its text, are in front of it.
        if not end and (piece or parts >= len(text[:1].encode()) - 1):
            break
        if not piece or _PART in piece:
            parts += 1
            # A server gives the text of a character to its last token; all of its tokens end with it.
            ends.append(ends[-1] if ends and not piece else end)
        elif text.endswith(piece, 0, end):
            ends.append(end)
            parts, end = 0, end - len(piece)
        elif piece.endswith(text[:end]):
            ends.append(end)
            end = 0
        elif parts:
            before = text.rfind(piece, max(0, end - _PARTS_A_CHARACTER * parts - len(piece)), end)
            if before < 0:
                # The characters of these parts are the beginning of the text.
                end = 0 if end <= _PARTS_A_CHARACTER * parts else end
                break
            ends.append(before + len(piece))
            parts, end = 0, before
        else:
            return None
    return None if end else ends[::-1]
