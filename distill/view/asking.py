"""Asks the models of a run a question from the page, in a process of its own.

The memory of the models is free when this process ends. So the server of the page stays small, and a model that needs
too much memory does not end the server. The process sends plain values.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from distill import live_text, redact
from distill.commands.ask import ModelReply, ReplyListener
from distill.commands.ask import ask as ask_models
from distill.commands.live_replies import HeardText
from distill.errors import DistillError
from distill.machine.child_process import spawn_context

_END_S: Final = 5.0


class Asking:
    """A question that is being answered.

    `next` waits for the next message of a model; `stop` ends the process from another thread.

    `next` gives `{"name", "model", "text"}` while a model writes, with all that it wrote, `{"reply": fields}` when it
    is done or was not asked, `{"error": message}`, and None at the end.
    """

    def __init__(self, run: Path, picture: bytes, question: str, kinds: Sequence[str]) -> None:
        context = spawn_context()
        self._folder = TemporaryDirectory()
        image = Path(self._folder.name) / "picture"
        image.write_bytes(picture)
        self._receiver, sender = context.Pipe(duplex=False)
        arguments = (sender, run, image, question, tuple(kinds))
        self._process = context.Process(target=_work, args=arguments, name="distill ask", daemon=True)
        self._process.start()
        sender.close()
        self._ended = False

    def next(self) -> dict[str, Any] | None:
        if self._ended:
            return None
        try:
            told: dict[str, Any] | None = self._receiver.recv()
        except (EOFError, OSError):
            self._ended = True
            self._process.join(_END_S)
            return {"error": f"the process that asks ended early (exit code {self._process.exitcode})"}
        self._ended = told is None
        return told

    def stop(self) -> None:
        """End the process; safe to call again."""
        self._process.terminate()

    def close(self) -> None:
        """End the process and delete its image."""
        self._process.terminate()
        self._process.join(_END_S)
        self._process.kill()
        self._process.join()
        self._receiver.close()
        self._folder.cleanup()


class _SentReplies(ReplyListener):
    """Sends replies to the server of the page, also while they are written."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender

    @contextmanager
    def hear(self, name: str, model: str) -> Iterator[None]:
        shown = {"name": name, "model": redact.message(model)}
        text = HeardText(lambda _: self._sender.send({**shown, "text": text.text}))
        self._sender.send({**shown, "text": ""})
        with live_text.heard_by(text):
            yield

    def replied(self, reply: ModelReply) -> None:
        self._sender.send({"reply": redact.tree(reply.as_fields())})


def _work(sender: Connection, run: Path, image: Path, question: str, kinds: tuple[str, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C on the terminal of the page: the server stops this process
    listener = _SentReplies(sender)
    try:
        for reply in ask_models(str(run), image, question, kinds=kinds, students=(), listener=listener):
            if reply.not_asked:
                listener.replied(reply)
    except DistillError as error:
        sender.send({"error": redact.message(str(error))})
    sender.send(None)
