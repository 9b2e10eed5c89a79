"""The text of a reply while a model writes it, for `distill ask`.

Code that generates text calls the listener, if there is one. A student in this process sends every word, a server
every piece of a streamed answer. Other engines send nothing before their reply is complete. The reply that counts is
what the engine returns, not the pieces.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Listener(Protocol):
    """Hears one reply after the other."""

    def begin(self) -> None:
        """A model begins to write; what was heard before is no longer its reply."""

    def write(self, text: str) -> None:
        """The next piece of the text, of any length."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def current() -> Listener | None:
    """The listener of the replies of this task; None without one."""
    return _listener.get()


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Send the text that is generated in this block to a listener, one question at a time."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
