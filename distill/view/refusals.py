"""Writes to the log of the run why the page's server refuses a request, or cannot read it."""

import logging
from typing import Any, Final

from distill import redact

log = logging.getLogger(__name__)
_MOST: Final = 1_000
_SHOWN: Final = 200


def page_message(error: Exception) -> str:
    """The message of an error as the page shows it: a person there gives a label again, and runs no command."""
    return redact.message(str(error)).replace("run the same command again", "then do it again on this page")


class RefusalLog:
    """The refusals of one server. Equal ones are written the 1st, 2nd, 4th, 8th time and so on."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int, str], int] = {}

    def note(self, method: str, path: str, status: int, reason: str) -> None:
        """Write a line; `path` is without its query, which may hold the token."""
        refusal = method, path[:_SHOWN], status, reason
        if len(self._counts) >= _MOST:
            self._counts.clear()
        self._counts[refusal] = count = self._counts.get(refusal, 0) + 1
        if count & (count - 1) == 0:
            again = f" (time {count})" if count > 1 else ""
            # Only into the file, because of its level: the page shows it to the user.
            log.info("%s %s: %d, %s%s", *map(_plain, refusal), again, extra={"level": "warning"})


def _plain(value: object) -> object:
    return redact.message(value) if isinstance(value, str) else value


class ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """What the HTTP library logs: requests that are no HTTP, and connections that end early, without a traceback."""

    def __init__(self, refusals: RefusalLog) -> None:
        super().__init__(logging.getLogger(f"{__name__}.http"), {})
        self._refusals = refusals

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        """Note a client's fault as a refusal; log anything else as it is."""
        from aiohttp.http_exceptions import HttpProcessingError

        error = options.get("exc_info")
        if isinstance(error, HttpProcessingError):
            reason = " ".join(str(error.message).split())[:_SHOWN]
            self._refusals.note("(no request)", "", error.code, f"the request cannot be read: {reason}")
        elif isinstance(error, ConnectionError):
            self._refusals.note("(no request)", "", 400, "the connection ended before the answer")
        else:
            super().log(level, msg, *args, **options)
