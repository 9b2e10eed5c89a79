"""Several traces by one request (the API's `n`): the prompt and its images are sent and read once.

A server counts the tokens of all choices together. The tokens of a choice are counted from its log-probabilities if
there are some. Else each choice gets one token for its end and a share of the rest by the length of its text, so that
the sum is the server's count. The tokens of the prompt belong to the first choice, because they were read once.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from teacher.engines.http.chat_protocol import completion_from_body
from teacher.messages.completion import Completion
from teacher.messages.request import Request


def completions_from_body(body: Any, payload: bytes, latency_s: float, *, logprobs: bool) -> list[Completion]:
    """The completion of every choice of a server's answer, at least one. Raises Failure for another body."""
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or len(choices) < 2:
        return [completion_from_body(body, payload, latency_s, logprobs=logprobs)]
    each = [
        completion_from_body({**body, "choices": [one]}, payload, latency_s, logprobs=logprobs) for one in choices
    ]
    counts = _token_counts(each)
    first, *others = [
        replace(one, completion_tokens=count, reasoning_tokens=None) for one, count in zip(each, counts, strict=True)
    ]
    cached = None if first.cached_tokens is None else 0
    return [first, *(replace(one, prompt_tokens=0, image_tokens=0, cached_tokens=cached) for one in others)]


def _token_counts(choices: Sequence[Completion]) -> list[int]:
    if all(one.token_ids is not None for one in choices):
        return [len(one.token_ids) for one in choices if one.token_ids is not None]
    total = choices[0].completion_tokens
    certain = int(total >= len(choices))
    shared, lengths = total - certain * len(choices), [len(one.text) for one in choices]
    if not any(lengths):
        lengths = [1] * len(choices)
    ends = [round(shared * written / sum(lengths)) for written in accumulate(lengths, initial=0)]
    return [certain + end - start for start, end in pairwise(ends)]


async def ask_choices(
    request: Request, together: Awaitable[list[Completion]], alone: Callable[[Request], Awaitable[Completion]]
) -> AsyncIterator[tuple[Request, Completion]]:
    """The completions of a request and its siblings.

    `together` asks for all of them and may give fewer, or an error; `alone` asks for the missing ones, one by one,
    and so finds the fault of each.
    """
    wanted = request.parts
    completions = (await together)[: len(wanted)]
    if completions[0].error:
        completions = []
    for number, (each, completion) in enumerate(zip(wanted, completions, strict=False)):
        yield each, replace(completion, choice={"index": number, "of": len(wanted), "seed": request.seed})
    for each in wanted[len(completions) :]:
        yield each, await alone(each)
