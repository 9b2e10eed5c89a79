"""Streamed answers (server-sent events), and when to ask for them.

A streamed answer shows that it is still being written, so it is not given up and asked again. But every piece costs
the client and the server time. So the first answers of a run are streamed; once they have shown that the teacher
answers quickly, only requests that were given up once are streamed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from teacher.engines.http.chat_protocol import REASONING_KEYS, excerpt, message_text, parse_json
from teacher.engines.outage import Failure
from teacher.messages.completion import Completion

FIRST = 32
"""Answers in pieces before a teacher may count as quick."""
_QUICK_SHARE = 1 / 8
"""Share of timeout_s: a teacher whose every answer took less is quick."""
_SILENCE_FACTOR = 8
"""A server counts as lost when it is silent for this multiple of the longest answer of a quick teacher."""
_MIN_SILENCE_S = 60.0
STREAM_SETTINGS: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
_CONTENT_TYPE = "text/event-stream"
_MESSAGE_KEYS: Mapping[str, str] = {
    "content": "content",
    "refusal": "refusal",
    **dict.fromkeys(REASONING_KEYS, "reasoning"),
}
"""What the texts of a piece are parts of."""
_PREFERRED = {key: REASONING_KEYS[:place] for place, key in enumerate(REASONING_KEYS)}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Streaming:
    """Whether the next request asks for its answer in pieces, and how long a server may be silent."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._able = True
        self._answers = 0
        self._longest_s = 0.0
        self._worked = False

    @property
    def _quick(self) -> bool:
        return self._answers >= FIRST and self._longest_s < _QUICK_SHARE * self._timeout_s

    def should_stream(self, *, after_timeout: bool) -> bool:
        """`after_timeout`: the request was given up once."""
        return self._able and (after_timeout or not self._quick)

    def silence_s(self) -> float:
        """How long a server may send nothing of an answer in pieces."""
        if not self._quick:
            return self._timeout_s
        return min(self._timeout_s, max(_MIN_SILENCE_S, _SILENCE_FACTOR * self._longest_s))

    def answered(self, completion: Completion, *, streamed: bool) -> None:
        self._answers += 1
        if completion.latency_s > self._longest_s:
            self._longest_s = completion.latency_s
        self._worked = self._worked or streamed
        if streamed and not completion.prompt_tokens:
            self._able = False  # it counts no tokens for an answer in pieces; what traces cost must be known

    def refused(self) -> bool:
        """A server refused a request for an answer in pieces. Whether that may be why: it is then asked no more."""
        if self._worked or not self._able:
            return False
        self._able = False
        return True


def comes_in_pieces(content_type: str, payload: bytes) -> bool:
    """Whether an answer is a stream of events: by its first line where its content type is wrong or missing."""
    start = payload[:100].removeprefix(BYTE_ORDER_MARK).lstrip()
    return not start.startswith(b"{") and (
        content_type.lower().startswith(_CONTENT_TYPE) or start.startswith((b"data:", b"event:", b"id:", b":"))
    )


def assemble_body(payload: bytes) -> dict[str, Any]:
    """An answer in pieces, all of which have come, as one body. Raises Failure when one is missing."""
    choices: dict[int, dict[str, Any]] = {}
    body: dict[str, Any] = {}
    pieces, done = _pieces(payload)
    for data, event in pieces:
        if not isinstance(event, dict) or event.get("error"):
            raise Failure("server_error", f"an error in the middle of the answer: {excerpt(data)}")
        if event.get("usage") is not None:
            body["usage"] = event["usage"]
        if event.get("model") is not None:
            body["model"] = event["model"]
        try:
            for piece in event.get("choices") or ():
                index = piece.get("index") or 0
                if type(index) is not int:
                    raise TypeError("a choice has a number")
                if index not in choices:
                    message: dict[str, list[str]] = {"content": [], "reasoning": [], "refusal": []}
                    choices[index] = {"message": message, "logprobs": {"content": []}}
                _add(piece, choices[index])
        except (KeyError, TypeError, AttributeError, RecursionError):
            raise Failure("garbled_response", f"not a piece of a chat completion: {excerpt(data)}") from None
    if not choices or not (done or all(choice.get("finish_reason") for choice in choices.values())):
        raise Failure("garbled_response", "the streamed answer is not complete")
    for choice in choices.values():
        choice["message"] = {key: "".join(pieces) for key, pieces in choice["message"].items()}
    return {"choices": [choices[index] for index in sorted(choices)], **body}


def _pieces(payload: bytes) -> tuple[Iterable[tuple[bytes, Any]], bool]:
    """The data of every piece of a stream, each with its value, and whether the stream says that it is done."""
    events = list(_events(payload))
    done = b"[DONE]" in events
    if done:
        del events[events.index(b"[DONE]") :]
    values = parse_json(b"[%b]" % b",".join(events))  # one call for all, in two thirds of the time
    if not isinstance(values, list) or len(values) != len(events):
        values = [parse_json(event) for event in events]
    return zip(events, values, strict=True), done


def _events(payload: bytes) -> Iterator[bytes]:
    """The data of every event of a stream.

    Lines end in LF, CR LF or CR, and an event may have several lines of data
    (https://html.spec.whatwg.org/multipage/server-sent-events.html). Servers that leave out the empty line between
    two events are read, too.
    """
    payload = payload.removeprefix(BYTE_ORDER_MARK)
    if b"\r" not in payload:
        events = payload[5:-2].split(b"\n\ndata:")
        if payload[:5] == b"data:" and payload[-2:] == b"\n\n" and payload.count(b"\n") == 2 * len(events):
            yield from map(bytes.strip, events)  # as servers write them, in a fifth of the time
            return
    lines: list[bytes] = []
    for line in payload.splitlines():
        if line.startswith(b"data:"):
            lines.append(line[5:].strip())
        elif not line and lines:
            yield from lines if len(lines) == 1 else _data(lines)
            lines.clear()
    yield from _data(lines)


def _data(lines: list[bytes]) -> Sequence[bytes]:
    if len(lines) < 2:
        return lines
    joined = b"\n".join(lines)
    return lines if parse_json(joined) is None else (joined,)


def _add(piece: Mapping[str, Any], choice: dict[str, Any]) -> None:
    """Add one piece to what there is. Raises TypeError, KeyError or AttributeError for another form."""
    delta, message = piece.get("delta") or {}, choice["message"]
    for key, value in delta.items():
        if not value or (name := _MESSAGE_KEYS.get(key)) is None:
            continue
        if key != name and any(map(delta.get, _PREFERRED[key])):
            continue
        if type(value) is str:
            message[name].append(value)
            continue
        text, thoughts = message_text(value)
        message[name].append(text)
        message["reasoning"].append(thoughts)
    if logprobs := piece.get("logprobs"):
        choice["logprobs"]["content"].extend(logprobs.get("content") or ())
    for key in ("finish_reason", "stop_reason", "error"):
        if piece.get(key) is not None:
            choice[key] = piece[key]
