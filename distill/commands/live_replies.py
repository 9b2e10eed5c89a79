"""Replies of `distill ask` on a terminal while they are written: side by side where there is room, else in turn.

Side by side each model has a column, of which the last lines show while the models write; at the end every reply is
there as a whole. Text of a model reaches the terminal without control characters and without known secrets, also
where a secret comes in pieces.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from distill import live_text, redact
from distill.commands.ask import ModelReply, ReplyListener
from distill.commands.progress import show, visible

NARROWEST: Final = 36
"""Characters of a column that can be read."""
_HEAD_LINES = 6


class PrintedReplies(ReplyListener):
    """Shows whole replies, for an output that is no terminal."""

    def replied(self, reply: ModelReply) -> None:
        show(f"{reply}\n")


class LiveReplies(ReplyListener):
    """Shows replies while they are written."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._side_by_side = False
        self._replies: list[tuple[str, HeardText | ModelReply]] = []
        self._live: Any = None

    @contextmanager
    def begin(self, models: int) -> Iterator[None]:
        """Show the replies of this number of models until the block ends."""
        self._side_by_side = 1 < models <= self._width // NARROWEST
        if not self._side_by_side:
            yield
            return
        from rich.live import Live

        with Live(
            get_renderable=lambda: self._columns(tail=True), transient=True, refresh_per_second=8
        ) as self._live:
            yield
        self._live.console.print(self._columns(tail=False))

    @contextmanager
    def hear(self, name: str, model: str) -> Iterator[None]:
        """Receive the reply of the model that is asked in this block."""
        title = f"{name} ({model})"
        text = HeardText(self._write if not self._side_by_side else lambda _: None, head=f"== {title}\n")
        # A model that was begun with and could not be asked has no column.
        self._replies = [each for each in self._replies if isinstance(each[1], ModelReply)]
        self._replies.append((title, text))
        with live_text.heard_by(text):
            yield

    def replied(self, reply: ModelReply) -> None:
        """Show the complete reply instead of its pieces."""
        _, text = self._replies.pop()
        self._replies.append((reply.title, reply))
        if self._side_by_side:
            return
        assert isinstance(text, HeardText)
        if text.heard:
            text.end()
            show(f"\n({reply.seconds:.1f} s{', cut off' if reply.truncated else ''})\n")
        else:
            show(f"{reply}\n")

    def _columns(self, *, tail: bool) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1))
        replies = self._replies if tail else [each for each in self._replies if isinstance(each[1], ModelReply)]
        for title, _ in replies:
            table.add_column(Text(visible(redact.message(title))), ratio=1, overflow="fold", vertical="top")
        cells = [Text(_shown(each)) for _, each in replies]
        if tail and self._live is not None:
            console = self._live.console
            width = max(1, console.width // max(1, len(cells)) - 1)
            most = max(3, console.height - _HEAD_LINES)
            cells = [Text("\n").join(cell.wrap(console, width)[-most:]) for cell in cells]
        table.add_row(*cells)
        return table

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _shown(reply: "HeardText | ModelReply") -> str:
    return reply.text if isinstance(reply, HeardText) else visible(redact.exact(reply.body))


class HeardText:
    """What was heard of a reply; `on_text` gets every piece that may be shown."""

    def __init__(self, on_text: Callable[[str], None], *, head: str = "") -> None:
        self._on_text = on_text
        self._head = visible(redact.message(head))
        self._waiting = ""
        self.text = ""
        self.heard = False

    def begin(self) -> None:
        if self.text or self._waiting:
            self._on_text("\n(asked again)\n")

        self.text = self._waiting = ""

    def write(self, text: str) -> None:
        self.heard = True
        self._waiting += text
        held = redact.unfinished(self._waiting)
        self._show(self._waiting[: len(self._waiting) - held])

    def end(self) -> None:
        """Show what was held back."""
        self._show(self._waiting)

    def _show(self, text: str) -> None:
        if text:
            self._waiting = self._waiting[len(text) :]
            clean = visible(redact.exact(text))
            self.text += clean
            self._on_text(self._head + clean)
            self._head = ""
