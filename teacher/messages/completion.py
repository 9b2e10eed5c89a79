"""The result of one request, of the same type for all engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(slots=True, kw_only=True)
class Completion:
    """One raw completion, or the reason why there is none.

    `error` starts with its class: refused_request and server_lost stay; image, timeout, connection, server_error,
    rate_limited, garbled_response, oversized_response, oversized_request and other_model may pass on another day. An
    error is the row's own fault, proven (`teacher.engines.outage`): what the world does to all rows is waited for and
    leaves no completion.
    """

    text: str = ""
    finish_reason: str = ""
    stop_reason: str = ""
    """What ended it, where the engine says more than `finish_reason`: the stop string, or the number of a token."""
    prompt_tokens: int = 0
    image_tokens: int = 0
    cached_tokens: int | None = None
    """Prompt tokens that were not computed again; None when the engine does not say."""
    completion_tokens: int = 0
    reasoning_tokens: int | None = None
    """None when the engine does not count them apart."""
    token_ids: "np.ndarray | None" = None
    """[tokens, 1 + k], int32, where log-probabilities were asked for: the sampled token, then the k likeliest."""
    token_logprobs: "np.ndarray | None" = None
    """Their log-probabilities, float32, of the same shape."""
    token_ends: "np.ndarray | None" = None
    """[tokens], int32, of a given text that was scored: how many of its characters end with each token."""
    model: str = ""
    """The model that the server says has answered; empty when it says nothing."""
    notes: tuple[str, ...] = ()
    """Fields of the answer that cannot be true and were left out, such as "usage.prompt_tokens = -1"."""
    choice: Mapping[str, int] | None = None
    """Which of the choices of one request it is (`index`, `of`), and the seed that the request had."""
    latency_s: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What answers: the model name the engine uses, and the engine."""

    model: str
    engine: Mapping[str, str]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts that do not change while it runs (`teacher.engines.provenance`)."""
    listed: bool = True
    """Whether the server's list of models, if it has one, names this one."""


ROW_FAULTS = ("refused_request:", "server_lost:")
"""Errors that asking again unchanged does not cure."""
