"""Servers that verify an export, and one question to such a server, without retries: what fails is a plain error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distill.errors import TeacherError
from distill.types import Sample
from teacher.engines.http.chat_protocol import excerpt, parse_json
from teacher.engines.http.connections import CONNECTION_ERRORS, fetch
from teacher.engines.http.exchange import MAX_ANSWER_BYTES

_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportServer:
    """A server of an exported student while it lives."""

    engine: str
    """Its name and version."""
    url: str
    """Where it speaks the OpenAI protocol."""
    ask: Callable[[Sequence[Sample]], list[tuple[list[int], list[int]]]]
    """Token ids of the prompts, image tokens included, and of greedy replies, the end of the turn included."""


async def ask_export(url: str, body: bytes, who: str, about: str) -> dict[str, Any]:
    """The JSON object that answers a POST of this body, or a GET without one; an empty one for another answer.

    `who` and `about` name the server and the question in errors. Raises TeacherError.
    """
    headers = {"content-type": "application/json"}
    try:
        page = await fetch(url, headers, proxy=None, max_bytes=MAX_ANSWER_BYTES, limit_s=_LIMIT_S, body=body)
    except CONNECTION_ERRORS as error:
        raise TeacherError(f"{who} gave no reply to {about}: {error!r}") from None
    if page.status != 200:
        raise TeacherError(f"{who} refused {about}: HTTP {page.status}: {excerpt(page.body)}")
    answer = parse_json(page.body)
    return answer if isinstance(answer, dict) else {}
