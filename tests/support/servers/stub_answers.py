"""What the stub server answers: bodies and their bytes, made of the request alone."""

import hashlib
import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from typing import Any

import orjson


def part_url(part: dict[str, Any]) -> str:
    return str(part.get("image_url", {}).get("url", ""))[:8]


def spoken(content: str | None, finish: str) -> dict[str, Any]:
    usage = {"prompt_tokens": 30, "completion_tokens": 9}
    return {"choices": [{"message": {"content": content}, "finish_reason": finish}], "usage": usage}


def completion(text: str, body: dict[str, Any], *, words: int, field: bool) -> dict[str, Any]:
    """Words and an answer that depend on the question and the seed alone."""
    digest = hashlib.sha256(f"{text} {body.get('seed')}".encode()).hexdigest()
    steps = [f"step {digest[start : start + 4]}" for start in range(32)]
    reasoning = " ".join(steps * (words // 32) + steps[: words % 32])
    answer = str(int(digest[:4], 16) % 100)
    message = (
        {"role": "assistant", "reasoning": reasoning, "content": answer}
        if field
        else {"role": "assistant", "content": f"<think>\n{reasoning}\n</think>\n\n{answer}"}
    )
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": words + 3,
        "completion_tokens_details": {"reasoning_tokens": words + 1},
        "prompt_tokens_details": {"multimodal_tokens": {"image": 16}},
    }
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [_token(digest, at, body["top_logprobs"]) for at in range(words + 3)]}
    scored = {}
    if "prompt_logprobs" in body:
        scored["prompt_logprobs"] = prompt_logprobs(body["messages"][-1]["content"], body)
    return {"choices": [choice], "usage": usage, **scored}


def prompt_logprobs(given: str, body: dict[str, Any]) -> list[Any]:
    """A prompt of three tokens, then the words of a text, which are likelier where the prompt has an image."""
    seen = any("image_url" in part for turn in body["messages"][:-1] for part in turn["content"])
    entries: list[Any] = [None]
    for place, word in enumerate(["user", "assistant", *re.findall(r"\s*\S+|\s+", given)]):
        entry = {str(place): {"logprob": -0.5 - place % 3 * (not seen), "rank": 2, "decoded_token": word}}
        best = {
            str(1000 + rank): {"logprob": -0.25 - rank, "rank": rank + 1} for rank in range(body["prompt_logprobs"])
        }
        entries.append(entry | {name: value | {"decoded_token": "x"} for name, value in best.items()})
    return entries


def _token(digest: str, position: int, top: int) -> dict[str, Any]:
    first = int(digest[position % 32 : position % 32 + 4], 16)
    likely = [{"token": f"token_id:{first + rank}", "logprob": -0.25 - rank} for rank in range(top)]
    return {"token": f"token_id:{first}", "logprob": -0.25, "top_logprobs": likely}


def events(answer: dict[str, Any]) -> Iterator[bytes]:
    """An answer in pieces, as vLLM sends them: one a word, then the end, then the numbers of tokens."""
    model = {"model": answer["model"]} if "model" in answer else {}
    # Pieces of several choices take turns.
    for piece in chain.from_iterable(zip_longest(*map(_pieces_of_choice, answer["choices"]))):
        if piece is not None:
            yield b"data: " + orjson.dumps({"choices": [piece], **model}) + b"\n\n"
    yield b"data: " + orjson.dumps({"choices": [], "usage": answer["usage"], **model}) + b"\n\ndata: [DONE]\n\n"


def _pieces_of_choice(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message, tokens = choice["message"], (choice.get("logprobs") or {}).get("content", [])
    texts = [
        (key, word) for key in ("reasoning", "content") for word in re.findall(r"\S*\s*", message.get(key) or "")
    ]
    for place, (key, word) in enumerate(texts):
        last = place == len(texts) - 1
        piece: dict[str, Any] = {"index": choice["index"], "delta": {key: word}}
        if tokens:
            piece["logprobs"] = {"content": tokens[place:] if last else tokens[place : place + 1]}
        if last:
            piece["finish_reason"] = choice["finish_reason"]
        yield piece


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def pieces_of(answer: dict[str, Any]) -> bytes:
    body = b"".join(chunk(piece) for piece in events(answer)) + chunk(b"")
    return response(b"", kind="text/event-stream", length=False) + body


_REASONS = {200: "OK", 302: "Found"}


def response(
    value: Any,
    *,
    status: int = 200,
    retry_after: bool = False,
    encoding: str = "",
    kind: str = "application/json",
    length: bool = True,
) -> bytes:
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    extra = "retry-after: 0.05\r\n" if retry_after else "location: http://127.0.0.1:9/\r\n" if status == 302 else ""
    extra += f"content-encoding: {encoding}\r\n" if encoding else ""
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Planted')}\r\ncontent-type: {kind}\r\n{extra}"
    size = f"content-length: {len(body)}" if length else "transfer-encoding: chunked"
    return f"{head}{size}\r\n\r\n".encode() + body
