"""What goes over the wire: the settings of a request body, and a server's answer as a completion. Pure."""

from collections.abc import Mapping
from os import environ
from typing import TYPE_CHECKING, Any

import orjson

from distill import redact
from distill.errors import RecipeError
from distill.recipe import Sampling, Teacher
from teacher.completion import Completion
from teacher.parse import compose

if TYPE_CHECKING:
    import numpy as np

_VLLM_ONLY: Mapping[str, float] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
_REPETITION: Mapping[str, int] = {"max_pattern_size": 16, "min_pattern_size": 1, "min_count": 32}
"""A piece of up to 16 tokens 32 times in a row is a loop; tables and runs of digits have fewer. vLLM looks for every
size of pattern after every token, so longer ones would cost more than the few loops they find earlier."""
_FAILED_FINISHES = frozenset({"abort", "error"})
_TOKEN_ID = "token_id:"


class GarbledError(Exception):
    """An answer that is not a chat completion, or one that the server gave up."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def api_key(teacher: Teacher, where: str = "") -> str:
    """The key of a teacher's server; empty when it needs none. Raises RecipeError when its variable is not set.

    `where` is the recipe's key of what is asked as a teacher is.
    """
    where = where or f"teachers.{teacher.name}"
    if any(map(redact.is_masked, teacher.urls)):
        raise RecipeError(
            f"{where}.base_url = {teacher.urls[0]!r}: its password is masked, because this is the "
            "copy of a recipe that a run keeps; use the recipe itself, or set base_url again"
        )
    variable = teacher.api_key_env
    if variable and not environ.get(variable):
        raise RecipeError(f"{where}: api_key_env names {variable}, which is not set; export it first")
    redact.know(key := environ[variable] if variable else "")
    return key


def sampling_body(teacher: Teacher, sampling: Sampling) -> dict[str, Any]:
    """The settings in a request body. Raises RecipeError for what a server of this kind cannot be told.

    A vLLM server is told every value: what is left out it takes from the model's generation_config.json, and the
    trace would record something that was not in force. Other servers get only what differs from neutral.
    """
    body: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if teacher.chat_template_kwargs:
        body["chat_template_kwargs"] = dict(teacher.chat_template_kwargs)
    if teacher.backend != "vllm":
        return body | _for_others(teacher, sampling)
    body |= {"top_p": sampling.top_p} | {key: getattr(sampling, key) for key in _VLLM_ONLY}
    if sampling.stop_repetition:
        body["repetition_detection"] = dict(_REPETITION)
    if sampling.thinking_budget is not None:
        body["thinking_token_budget"] = sampling.thinking_budget
    if teacher.mm_processor_kwargs:
        body["mm_processor_kwargs"] = dict(teacher.mm_processor_kwargs)
    if teacher.logprobs:
        body |= {"logprobs": True, "top_logprobs": teacher.logprobs, "return_tokens_as_token_ids": True}
    return body


def _for_others(teacher: Teacher, sampling: Sampling) -> dict[str, Any]:
    unknown = [key for key, neutral in _VLLM_ONLY.items() if getattr(sampling, key) != neutral]
    if sampling.thinking_budget is not None:
        unknown.append("thinking_budget")
    if unknown:
        raise RecipeError(
            f"teachers.{teacher.name}.sampling: {', '.join(unknown)} cannot be sent by backend 'openai'; "
            'leave them out, or set backend = "vllm" for a vLLM server'
        )
    for key in ("logprobs", "mm_processor_kwargs"):
        if getattr(teacher, key):
            raise RecipeError(
                f"teachers.{teacher.name}.{key} needs backend 'vllm'; an 'openai' server has no token ids"
            )
    return {"top_p": sampling.top_p} if sampling.top_p != 1 else {}


def completion(payload: bytes, latency_s: float) -> Completion:
    """A server's answer. Raises GarbledError when it is not one."""
    body = parsed(payload)
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content = _text(message.get("content"))
        reasoning = _text(message.get("reasoning") or message.get("reasoning_content"))
        refusal = _text(message.get("refusal"))
        finish = str(choice.get("finish_reason") or "stop")
        usage = body.get("usage") or {}
        details = usage.get("completion_tokens_details") or {}
        of_prompt = usage.get("prompt_tokens_details") or {}
        media = of_prompt.get("multimodal_tokens") or {}
        cached, stopped_by = of_prompt.get("cached_tokens"), choice.get("stop_reason")
        logprobs = (choice.get("logprobs") or {}).get("content")
        token_ids, token_logprobs = _logprobs(logprobs) if logprobs else (None, None)
        found = Completion(
            text=compose(content or refusal, reasoning),
            finish_reason="content_filter" if refusal and not content else finish,
            stop_reason="" if stopped_by is None else str(stopped_by),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            image_tokens=int(media.get("image") or 0),
            cached_tokens=None if cached is None else int(cached),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            reasoning_tokens=details.get("reasoning_tokens") or None,
            token_ids=token_ids,
            token_logprobs=token_logprobs,
            latency_s=latency_s,
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        raise GarbledError("garbled_response", f"not a chat completion: {excerpt(payload)}") from None
    if finish in _FAILED_FINISHES:
        raise GarbledError("server_error", f"finish_reason {finish}")
    return found


def _logprobs(content: list[dict[str, Any]]) -> "tuple[np.ndarray, np.ndarray]":
    """Ids [tokens, 1 + k] and log-probabilities of the same shape: the sampled token first, then the likeliest."""
    import numpy as np

    width = 1 + max(len(token["top_logprobs"]) for token in content)
    ids = np.full((len(content), width), -1, np.int32)
    values = np.full((len(content), width), -np.inf, np.float32)
    for row, token in enumerate(content):
        for column, entry in enumerate([token, *token["top_logprobs"]]):
            ids[row, column] = int(entry["token"].removeprefix(_TOKEN_ID))
            values[row, column] = entry["logprob"]
    return ids, values


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value)
    return "" if value is None else str(value)


def parsed(payload: bytes) -> Any:
    """JSON text as a value; None when it is none."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None


def excerpt(payload: bytes) -> str:
    """What an answer says, in at most 300 characters: the message of an error where there is one."""
    body = parsed(payload[: 1 << 16])
    if isinstance(body, dict):
        inner = body.get("error", body.get("message", body))
        body = inner.get("message", inner) if isinstance(inner, dict) else inner
    text = body if isinstance(body, str) else payload[:2000].decode(errors="replace") if body is None else str(body)
    text = redact.exact(" ".join(text.split()))  # before it is cut: half a key is still a secret
    return text if len(text) <= 300 else f"{text[:297]}..."
