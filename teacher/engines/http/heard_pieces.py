"""Sends the text of a streamed answer to a listener as it comes (distill/live_text.py).

Unreadable pieces are left out: teacher/engines/http/streaming.py decides about the answer.
"""

from collections.abc import Callable

import orjson

from distill.live_text import Listener
from distill.rationale import CLOSE, OPEN
from teacher.engines.http.chat_protocol import REASONING_KEYS, message_text

_LINE_BYTES = 1 << 17
"""A longer line is no piece: it is not kept until it ends."""
_FIRST_BYTES = 1 << 16
"""So early in an answer in pieces its text begins, if it ever does."""


class HeardPieces:
    """Passes the text of one answer to a listener, with its thinking between think tags."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._rest = b""
        self._thinking = False
        self._stopped = False
        self.model = ""
        """The name of the model; "" until a piece has it."""
        listener.begin()

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            self._rest = b""
        for line in lines:
            if self._stopped:
                return
            try:
                event = orjson.loads(line.removeprefix(b"data:"))
                self.model = str(event.get("model") or self.model)
                delta = event["choices"][0]["delta"]
                content, thoughts = message_text(delta.get("content"))
                reasoning = next(filter(None, map(delta.get, REASONING_KEYS)), None)
                self._tell("".join(message_text(reasoning)) + thoughts, thinking=True)
                self._tell(content, thinking=False)
            except (ValueError, LookupError, TypeError, AttributeError):
                continue

    def stop(self) -> None:
        """Read no further: the listener has heard what it waits for."""
        self._stopped = True

    def _tell(self, text: str, *, thinking: bool) -> None:
        if not text:
            return
        if thinking != self._thinking:
            text = (f"{OPEN}\n" if thinking else f"\n{CLOSE}\n\n") + text
            self._thinking = thinking
        self._listener.write(text)


class FirstText:
    """Reports once that the text of an answer has begun: at its first word or thought, not at an empty piece.

    `tell` gets the name of the model; "" if no part of the stream had it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._pieces: HeardPieces | None = HeardPieces(self)
        self._left = _FIRST_BYTES

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        if self._pieces is None:
            return
        self._left -= len(data)
        if self._left < 0:
            self._pieces = None  # not an answer in pieces
            return
        self._pieces.feed(data)

    def begin(self) -> None:
        pass

    def write(self, _text: str) -> None:
        if self._pieces is not None:
            pieces, self._pieces = self._pieces, None
            pieces.stop()
            self._tell(pieces.model)
