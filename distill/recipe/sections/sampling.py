"""How a teacher is sampled, and which recipe key sets each parameter of a request."""

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Self

from pydantic import model_validator

from distill.recipe.base import Section, Share, generate_key, key
from distill.recipe.messages import unknown_value

traces_key = partial(key, affects="traces")
optional_traces_key = partial(traces_key, omit_default="traces generate")
"""A key that fingerprints hold only where it is set."""
PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "temperature": "sampling.temperature",
        "top_p": "sampling.top_p",
        "top_k": "sampling.top_k",
        "min_p": "sampling.min_p",
        "repetition_penalty": "sampling.repetition_penalty",
        "max_tokens": "sampling.max_tokens",
        "stop": "sampling.stop",
        "repetition_detection": "sampling.stop_repetition",
        "thinking_token_budget": "sampling.thinking_budget",
        "seed": "the seed of the recipe",
        "chat_template_kwargs": "chat_template_kwargs",
        "mm_processor_kwargs": "mm_processor_kwargs",
        "logprobs": "logprobs",
        "top_logprobs": "logprobs",
        "return_tokens_as_token_ids": "logprobs",
    }
)
"""The parameters of a chat request that a recipe can leave out, and the keys that set them."""
_FIXED: Mapping[str, str] = {
    "messages": "prompt and system",
    "model": "model and served_model",
    "max_completion_tokens": "sampling.max_tokens and max_completion_tokens = true",
    "n": "choices",
    "stream": "the run",
    "stream_options": "the run",
}

_VLLM_ONLY = frozenset(
    {"top_k", "min_p", "repetition_penalty", "repetition_detection", "thinking_token_budget", "mm_processor_kwargs"}
)
"""Parameters that have their own recipe keys for a vLLM server; for others that accept them, use `extra_body`."""


def extra_body_problem(names: Iterable[str], *, of_vllm: bool) -> str:
    """What is wrong with the names of parameters that a recipe adds to each request; empty when nothing is."""
    for name in names:
        setter = PARAMETERS.get(name) or _FIXED.get(name)
        if setter and (of_vllm or name not in _VLLM_ONLY):
            return f"extra_body.{name} is set by {setter}; set it there"
    return ""


def omitted_keys(names: Iterable[str]) -> frozenset[str]:
    """The keys of `Sampling` whose values are not in force where these parameters are left out."""
    return frozenset(PARAMETERS[name].removeprefix("sampling.") for name in names)


def omit_problem(names: Iterable[str]) -> str:
    """What is wrong with the names of parameters that a recipe leaves out; empty when nothing is."""
    for name in names:
        if name not in PARAMETERS:
            return unknown_value("omit", name, list(PARAMETERS))
    return ""


class Sampling(Section):
    """Sampling parameters of one teacher, named as the OpenAI and vLLM APIs name them."""

    temperature: float = traces_key(0.8, "Sampling temperature; 0 is greedy.", ge=0, usual=(0, 1.5))
    top_p: float = optional_traces_key(
        1.0,
        "Sample among the likeliest tokens that have this probability together; 1 is off.",
        gt=0,
        le=1,
        usual=(0.5, 1),
    )
    top_k: int = optional_traces_key(
        0, "Sample among this number of likeliest tokens; 0 is off.", ge=0, usual=(0, 1000)
    )
    min_p: Share = optional_traces_key(
        0.0, "Leave out tokens that are less probable than this share of the likeliest one; 0 is off.", usual=(0, 0.2)
    )
    repetition_penalty: float = optional_traces_key(
        1.0, "Penalty of tokens that have occurred before; 1 is off.", gt=0, usual=(0.9, 1.3)
    )
    max_tokens: int = traces_key(
        1024, "Largest number of tokens of a reply, thinking included.", ge=1, usual=(100, None)
    )
    stop: tuple[str, ...] = optional_traces_key((), "Texts that end a reply.", strict=False, usual=((),))
    stop_repetition: bool = optional_traces_key(
        True,
        "End a text that repeats itself without end. Only a vLLM server does this; elsewhere such a text runs into "
        "max_tokens.",
    )
    thinking_budget: int | None = optional_traces_key(
        None,
        "Tokens of thinking after which a vLLM server closes the thinking (vLLM's thinking_token_budget); default: "
        "no limit.",
        ge=1,
        usual=(32, None),
    )


class Until(Section):
    """Adaptive sampling: fewer than `samples` traces where fewer are enough."""

    correct: int | None = generate_key(
        None,
        "Stop when this number of traces is correct by the gold answer; for questions with a gold answer.",
        ge=1,
        usual=(1, 8),
    )
    agree: int | None = generate_key(
        None,
        "Stop when this number of traces gives the same answer; for questions without a gold answer.",
        ge=2,
        usual=(2, 8),
    )
    at_once: int | None = generate_key(
        None, "Traces asked before the next decision; default: as many as could be enough.", ge=1
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.correct is None and self.agree is None:
            raise ValueError("until needs correct (for questions with a gold answer), agree, or both")
        return self
