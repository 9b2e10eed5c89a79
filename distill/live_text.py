"""The text of a reply while a model writes it, for `distill ask`.

What generates text looks for a listener; where there is none, nothing is done and nothing is costlier. A student in
this process tells every word, a server every piece of a streamed answer. Other engines tell nothing: their replies
are there at their end. The reply itself is what the engine returns, never what was heard.
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
    """Let a listener hear what is generated in this block, one question at a time."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
