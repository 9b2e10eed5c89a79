"""Whether the Hugging Face hub answers: asked in a few seconds, before its client would try for half a minute a file.

While the hub does not answer, its client reads its cache alone. Does not know what is in the cache.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from distill.errors import first_line

Kind = Literal["model", "dataset"]

TIMEOUT_S = 4.0
"""After so long without an answer the hub counts as not reached."""
_NAME_LOOKUP_S = 2.0
"""More for the look-up of the host's name, which no time limit of an HTTP client covers."""
_BELIEVED_S = 300.0
"""So long an answer holds for the whole process."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FORBIDDEN = "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"
_lock = threading.Lock()
_answered: tuple[float, str] | None = None
_offline_blocks = 0
_before = False


def is_name(value: str) -> bool:
    """Whether a value that is not on this disk has the form of a name of the hub."""
    return bool(_NAME.fullmatch(value)) and not Path(value).exists()


def load_fault(error: Exception) -> str:
    """Why a checkpoint cannot be loaded, in one line. The client calls the path of a missing folder a wrong name."""
    from huggingface_hub.errors import HFValidationError

    is_path = isinstance(error, HFValidationError) or isinstance(error.__cause__, HFValidationError)
    return "there is no such folder" if is_path else first_line(error)


def why_unreached(name: str, kind: Kind = "model") -> str:
    """Why the hub cannot be asked about a name; empty where it gives any answer. Asked once in five minutes."""
    from huggingface_hub import constants

    global _answered
    if _offline_blocks and _answered:
        return _answered[1]
    if constants.HF_HUB_OFFLINE:
        return _FORBIDDEN
    with _lock:
        if _answered is None or time.monotonic() - _answered[0] > _BELIEVED_S:
            why = _asked(name, kind)
            _answered = (time.monotonic(), why)
        return _answered[1]


def note_unreached(why: str) -> None:
    """Take over from another question to the hub that it does not answer."""
    global _answered
    _answered = (time.monotonic(), why)


@contextmanager
def cache_if_unreached(name: str, kind: Kind = "model") -> Iterator[str]:
    """Keep the hub's client to its cache where the hub does not answer; gives why, or nothing.

    `name` is a folder of this machine, for which nothing is asked, or a name of the hub.
    """
    why = why_unreached(name, kind) if is_name(name) else ""
    with offline(bool(why)):
        yield why


@contextmanager
def offline(now: bool) -> Iterator[None]:
    """Keep the hub's client from waiting for a network that is known not to be there."""
    from huggingface_hub import constants

    global _offline_blocks, _before
    if not now:
        yield
        return
    with _lock:
        if not _offline_blocks:
            _before = constants.HF_HUB_OFFLINE
        _offline_blocks += 1
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        with _lock:
            _offline_blocks -= 1
            if not _offline_blocks:
                constants.HF_HUB_OFFLINE = _before


def unreached_text(name: str, why: str, reason: str) -> str:
    """A message for a name that is not on this disk while the hub is not reached. `reason`: what its cache lacks."""
    from huggingface_hub import constants

    if why == _FORBIDDEN:
        return (
            f"{name}: no folder of this name is here, and {why}, so the hub is not asked; its local cache does not "
            f"help: {reason}\ngive the path of a local folder, or run `hf download {name}` without these variables"
        )
    return (
        f"{name}: no folder of this name is here, the hub ({constants.ENDPOINT}) cannot be reached ({why}), and its "
        f"local cache does not help: {reason}\ngive the path of a local folder, or run `hf download {name}` where "
        "there is a network; with HF_HUB_OFFLINE=1 the hub is not asked at all, and its cache alone is read"
    )


def _asked(name: str, kind: Kind) -> str:
    """Ask in a thread of its own: only so the look-up of a host's name has a time limit."""
    why = [f"no answer within {TIMEOUT_S + _NAME_LOOKUP_S:g} s"]

    def ask() -> None:
        why[0] = _answer(name, kind)

    thread = threading.Thread(target=ask, name="hub", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S + _NAME_LOOKUP_S)
    return why[0]


def _answer(name: str, kind: Kind) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        HfApi().repo_info(name, repo_type=kind, timeout=TIMEOUT_S)
    except (HfHubHTTPError, ValueError):
        return ""
    except OfflineModeIsEnabled:
        return "HF_HUB_OFFLINE is set"
    except Exception as error:  # of the client's HTTP library, which changes with its version
        return f"no answer, {type(error).__name__}"
    return ""
