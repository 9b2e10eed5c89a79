"""The chat protocol: the settings of a request body, and a server's answer as a completion. Pure."""

import re
from collections.abc import Mapping, Sequence
from os import environ
from typing import TYPE_CHECKING, Any

import orjson

from distill import redact
from distill.errors import RecipeError
from distill.rationale import enclose
from distill.recipe.messages import did_you_mean
from distill.recipe.sections.sampling import PARAMETERS, Sampling
from distill.recipe.sections.teachers import Teacher
from teacher.engines.outage import Failure
from teacher.messages.completion import Completion

if TYPE_CHECKING:
    import numpy as np

_VLLM_ONLY: Mapping[str, float] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
_REPETITION: Mapping[str, int] = {"max_pattern_size": 16, "min_pattern_size": 1, "min_count": 32}
"""A piece of up to 16 tokens 32 times in a row is a loop; tables and runs of digits have fewer. vLLM looks for every
size of pattern after every token, so longer ones would cost more than the few loops they find earlier."""
_FILTERED = re.compile(r"filter|safety|prohibited|blocklist|recitation|spii|sensitive|refus", re.IGNORECASE)
"""Parts of the words by which servers say that they withhold an answer: OpenAI, Google, Z.ai, Anthropic."""
_GIVEN_UP = re.compile(r"error|abort|cancel|insufficient|timeout|overload|rate_limit", re.IGNORECASE)
"""That they gave an answer up: vLLM, OpenRouter, Z.ai, DeepSeek."""
_CUT = re.compile(r"length|max_|limit|window", re.IGNORECASE)
"""That an answer was cut at a number of tokens: OpenAI, Google, Mistral, Z.ai."""
REASONING_KEYS = ("reasoning", "reasoning_content", "reasoning_details")
"""Where a message has its reasoning. A server that writes one text under several names means it once."""
_TOKEN_ID = "token_id:"
MAX_TOKENS = (1 << 31) - 1
"""More tokens than any answer has; a count beyond it is an error of the server."""
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(\\u[dD][89a-fA-F][\da-fA-F]{2})|\\.", re.DOTALL
)
"""An escape in a JSON text; the group is half a surrogate pair."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9][\w!#$%&'*+.^`|~-]*", re.ASCII)
_UNSUPPORTED = re.compile(
    r"unsupported|not support|n't support|unknown|unrecogni[sz]ed|unexpected|not (?:permitted|allowed)|deprecated",
    re.IGNORECASE,
)
"""How servers say that they do not take a parameter, or not this value of it."""
_SYSTEM_ROLE = re.compile(
    r"\brole\b.{0,80}\bsystem\b|\bsystem (?:role|message|prompt|instruction)|developer instruction", re.IGNORECASE
)
_WORD_CHARACTERS = 200
_MAX_NOTES = 8
_MAX_LOGPROBS = 64
_ROUNDING = 1e-3


def api_key(teacher: Teacher, where: str = "") -> str:
    """The key of a teacher's server; empty when it needs none. Raises RecipeError when its variable is not set.

    `where` is the recipe's key of what is asked as a teacher is.
    """
    where = where or f"teachers.{teacher.name}"
    if any(map(redact.is_masked, teacher.urls)):
        raise RecipeError(
            f"{where}.base_url = {teacher.urls[0]!r}: its password is masked, because this recipe is the copy in a "
            "run directory; use the original recipe, or set base_url again"
        )
    variable = teacher.api_key_env
    if not variable:
        return ""
    key = environ.get(variable, "").strip()  # a key read from a file often ends with a line break
    if not key:
        state = "empty" if variable in environ else f"not set{did_you_mean(variable, environ)}"
        raise RecipeError(f"{where}: api_key_env names {variable}, which is {state}; export it first")
    redact.know(key)
    if key[0] in "\"'" and key[-1] == key[0]:
        raise RecipeError(f"{where}: the value of {variable} is in quotation marks; export it without them")
    return key


def request_headers(teacher: Teacher) -> dict[str, str]:
    """The headers of every request. Raises RecipeError when the variable of a key is not set."""
    headers = {"content-type": "application/json", **teacher.extra_headers}
    if key := api_key(teacher):
        headers["authorization"] = f"Bearer {key}"
    for name, variable in teacher.headers_env.items():
        value = environ.get(variable, "").strip()
        if not value:
            raise RecipeError(
                f"teachers.{teacher.name}: headers_env names {variable} for the header {name!r}, and it is not set; "
                "export it first"
            )
        redact.know(value)
        headers[name] = value
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise RecipeError(
                f"teachers.{teacher.name}: the header {name!r} cannot be sent; a name has letters, digits and "
                "dashes, a value has printable ASCII characters"
            )
    return headers


def shown_headers(teacher: Teacher) -> dict[str, str]:
    """The headers for display: secrets are named and not shown."""
    headers = {"content-type": "application/json", **teacher.extra_headers}
    if teacher.api_key_env:
        headers["authorization"] = f"Bearer ${teacher.api_key_env}"
    return headers | {name: f"${variable}" for name, variable in teacher.headers_env.items()}


def refused_parameter(teacher: Teacher, payload: bytes) -> str:
    """What to change in the recipe when a server does not take a parameter; empty when it names none."""
    said = payload[: 1 << 16].decode(errors="replace")
    body = parse_json(payload[: 1 << 16])
    error = body.get("error") if isinstance(body, dict) else None
    named = error.get("param") if isinstance(error, dict) else None
    where = f"teachers.{teacher.name}"
    if teacher.choices > 1 and (named == "n" or re.search(r"['`\"]n\\?['`\"]", said)):
        return f"set {where}.choices = 1"
    if not _UNSUPPORTED.search(said):
        return ""
    if teacher.system and _SYSTEM_ROLE.search(said):
        return f"take {where}.system out, and put its text into {where}.prompt"
    names = [str(named), *re.findall(r"\w+", said)]
    name = next((each for each in names if each in PARAMETERS or each in teacher.extra_body), "")
    if name in teacher.extra_body:
        return f"correct {where}.extra_body.{name}, or take it out"
    if name == "max_tokens" and "max_completion_tokens" in said:
        return f"set {where}.max_completion_tokens = true"
    if not name:
        return ""
    leave_out = f"leave the parameter out: {where}.omit = {orjson.dumps([*teacher.omit, name]).decode()}"
    return leave_out if name == "seed" else f"change {where}.{PARAMETERS[name]}, or {leave_out}"


def sampling_body(teacher: Teacher, sampling: Sampling) -> dict[str, Any]:
    """The settings in a request body. Raises RecipeError for a setting that such a server does not accept.

    A vLLM server gets every value: it takes a missing one from the model's generation_config.json, and the trace
    would then record another value than the one used. Other servers get only values that are not neutral.
    """
    body: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if teacher.chat_template_kwargs:
        body["chat_template_kwargs"] = dict(teacher.chat_template_kwargs)
    more = _body_for_vllm if teacher.capabilities.knows_sampling else _body_for_other_servers
    body |= more(teacher, sampling)
    for name in teacher.omit:
        body.pop(name, None)
    if teacher.max_completion_tokens and "max_tokens" in body:
        body["max_completion_tokens"] = body.pop("max_tokens")
    return body | dict(teacher.extra_body)


def _body_for_vllm(teacher: Teacher, sampling: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {"top_p": sampling.top_p} | {key: getattr(sampling, key) for key in _VLLM_ONLY}
    if sampling.stop_repetition:
        body["repetition_detection"] = dict(_REPETITION)
    if sampling.thinking_budget is not None:
        body["thinking_token_budget"] = sampling.thinking_budget
    if teacher.mm_processor_kwargs:
        body["mm_processor_kwargs"] = dict(teacher.mm_processor_kwargs)
    if teacher.logprobs:
        body |= {"logprobs": True, "top_logprobs": teacher.logprobs, "return_tokens_as_token_ids": True}
    return body


def _body_for_other_servers(teacher: Teacher, sampling: Sampling) -> dict[str, Any]:
    unknown = [key for key, neutral in _VLLM_ONLY.items() if getattr(sampling, key) != neutral]
    if sampling.thinking_budget is not None:
        unknown.append("thinking_budget")
    if unknown:
        raise RecipeError(
            f"teachers.{teacher.name}.sampling: {', '.join(unknown)} cannot be sent by backend {teacher.backend!r}; "
            'leave them out, or set backend = "vllm" for a vLLM server'
        )
    backend = teacher.capabilities
    for key, supported in (
        ("logprobs", backend.has_token_ids),
        ("mm_processor_kwargs", backend.takes_processor_settings),
    ):
        if getattr(teacher, key) and not supported:
            raise RecipeError(
                f"teachers.{teacher.name}.{key} needs backend 'vllm'; a server of backend {teacher.backend!r} has no "
                "token ids and no such setting"
            )
    return {"top_p": sampling.top_p} if sampling.top_p != 1 else {}


class ResponseReader:
    """Takes values of a server's answer one by one; what cannot be true is left out and noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def _note(self, name: str, value: Any) -> None:
        if len(self.notes) < _MAX_NOTES:
            shown = repr(value) if isinstance(value, str | int | float | bool) else type(value).__name__
            self.notes.append(f"{name} = {redact.cut(shown, 40)}")

    def table(self, name: str, value: Any) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        if value is not None:
            self._note(name, value)
        return {}

    def count(self, name: str, value: Any) -> int | None:
        """A number of tokens, also one that is written as a float or in digits. None for other values."""
        if value is None or (type(value) is int and 0 <= value <= MAX_TOKENS):
            return value
        number = value
        digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10
        if digits or (isinstance(value, float) and value.is_integer()):
            number = int(value)
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_TOKENS:
            return number
        self._note(name, value)
        return None

    def word(self, name: str, value: Any) -> str:
        """A short text; a number counts as one, for stop tokens have numbers."""
        if value is None:
            return ""
        if type(value) is str or type(value) is int:
            return redact.cut(str(value), _WORD_CHARACTERS)
        self._note(name, value)
        return ""


def completion_from_body(body: Any, payload: bytes, latency_s: float, *, logprobs: bool) -> Completion:
    """The first choice of a server's answer. Raises Failure for another body.

    `payload` is for the message of an error.

    `logprobs`: log-probabilities were asked for. Others are not looked at.
    """
    try:
        choice = body["choices"][0]
        message = choice.get("message")
        if message is None and _FILTERED.search(str(choice["finish_reason"])):
            message = {}  # Google withholds the message, too
        content, thoughts = message_text(message.get("content"))
        said = next(filter(None, map(message.get, REASONING_KEYS)), None)
        reasoning = "".join(message_text(said)) + thoughts
        refusal, _ = message_text(message.get("refusal"))
        entries = (choice.get("logprobs") or {}).get("content") if logprobs else None
        token_ids, token_logprobs = _logprobs(entries) if entries else (None, None)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError):
        raise Failure("garbled_response", f"not a chat completion: {excerpt(payload)}") from None
    reader = ResponseReader()
    finish_reason, stop_reason = _finish(reader, choice)
    usage = reader.table("usage", body.get("usage"))
    details = reader.table("usage.completion_tokens_details", usage.get("completion_tokens_details"))
    prompt_tokens, generated, unwritten = _counts(reader, usage)
    of_prompt = reader.table("usage.prompt_tokens_details", usage.get("prompt_tokens_details"))
    media = reader.table("usage.prompt_tokens_details.multimodal_tokens", of_prompt.get("multimodal_tokens"))
    return Completion(
        text=enclose(reasoning, content or refusal),
        finish_reason="content_filter" if refusal and not content else finish_reason,
        stop_reason=stop_reason,
        prompt_tokens=prompt_tokens,
        image_tokens=reader.count("multimodal_tokens.image", media.get("image")) or 0,
        cached_tokens=reader.count("prompt_tokens_details.cached_tokens", of_prompt.get("cached_tokens")),
        completion_tokens=generated,
        reasoning_tokens=reader.count("reasoning_tokens", details.get("reasoning_tokens")) or unwritten or None,
        token_ids=token_ids,
        token_logprobs=token_logprobs,
        model=reader.word("model", body.get("model")),
        notes=tuple(reader.notes),
        latency_s=latency_s,
    )


def _finish(reader: ResponseReader, choice: Mapping[str, Any]) -> tuple[str, str]:
    """How an answer ended, and what the server says beyond that. Raises Failure for one that it gave up."""
    said = reader.word("finish_reason", choice.get("finish_reason"))
    stop_reason = reader.word("stop_reason", choice.get("stop_reason"))
    if error := choice.get("error"):
        raise Failure("server_error", f"an error in the place of the answer: {excerpt(orjson.dumps(error))}")
    if said in ("stop", ""):
        return "stop", stop_reason
    if _FILTERED.search(said):
        return "content_filter", stop_reason or ("" if said == "content_filter" else said)
    if _GIVEN_UP.search(said):
        raise Failure("server_error", f"finish_reason {said}")
    if _CUT.search(said):
        return "length", stop_reason or ("" if said == "length" else said)
    return said, stop_reason


def _counts(reader: ResponseReader, usage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Tokens of the prompt, and generated tokens, including thoughts that Google and xAI count only in the total."""
    prompt = reader.count("usage.prompt_tokens", usage.get("prompt_tokens")) or 0
    written = reader.count("usage.completion_tokens", usage.get("completion_tokens")) or 0
    total = reader.count("usage.total_tokens", usage.get("total_tokens")) or 0
    unwritten = total - prompt - written if prompt and total > prompt + written else 0
    return prompt, written + unwritten, unwritten


def _logprobs(content: list[dict[str, Any]]) -> "tuple[np.ndarray, np.ndarray]":
    """Ids [tokens, 1 + k] and log-probabilities of the same shape: the sampled token first, then the likeliest.

    Raises ValueError, TypeError, KeyError or IndexError when `content` holds something else.
    """
    width = 1 + max(len(token["top_logprobs"]) for token in content)
    if width > _MAX_LOGPROBS:
        raise ValueError(f"{width} log-probabilities a token")
    each = ([token, *token["top_logprobs"]] for token in content)
    rows = [[(entry["token"].removeprefix(_TOKEN_ID), entry["logprob"]) for entry in entries] for entries in each]
    return logprob_table(rows, width)


def logprob_table(rows: Sequence[Sequence[tuple[str, float]]], width: int) -> "tuple[np.ndarray, np.ndarray]":
    """Ids and log-probabilities [rows, width] of tokens, which are numbers as text. Raises ValueError, TypeError."""
    import numpy as np

    ids = np.full((len(rows), width), -1, np.int32)
    values = np.full((len(rows), width), -np.inf, np.float32)
    for number, row in enumerate(rows):
        for column, (token, value) in enumerate(row):
            ids[number, column], values[number, column] = int(token), value
    if np.isnan(values).any() or (values > _ROUNDING).any() or ids[:, 0].min() < 0:
        raise ValueError("log-probabilities above 0, or tokens without a number")
    return ids, values


def message_text(value: Any) -> tuple[str, str]:
    """The text of a message or of its parts, and the text of its parts with thoughts. Raises TypeError for no
    text."""
    if value is None:
        return "", ""
    if isinstance(value, str):
        return value, ""
    if not isinstance(value, list):
        raise TypeError(f"a text is needed, not {type(value).__name__}")
    parts = [
        ("", "".join(message_text(part["thinking"])))
        if "thinking" in part
        else message_text(part.get("text") or part.get("summary"))
        for part in value
    ]
    return "".join(text for text, _ in parts), "".join(thoughts for _, thoughts in parts)


def parse_json(payload: bytes) -> Any:
    """JSON text as a value; None for other text. Half a surrogate pair, which is no character, becomes U+FFFD."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        pass
    repaired = _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], payload)
    try:
        return orjson.loads(repaired) if repaired != payload else None
    except orjson.JSONDecodeError:
        return None


def excerpt(payload: bytes) -> str:
    """What an answer says, in at most 300 characters: the message of an error where there is one."""
    body = parse_json(payload[: 1 << 16])
    if isinstance(body, dict):
        inner = body.get("error", body.get("message", body))
        body = inner.get("message", inner) if isinstance(inner, dict) else inner
    try:
        text = payload[:2000].decode(errors="replace") if body is None else str(body)
    except RecursionError:
        text = payload[:2000].decode(errors="replace")
    text = redact.exact(" ".join(text.split()))  # before it is cut: half a key is still a secret
    return text if len(text) <= 300 else f"{text[:297]}..."
