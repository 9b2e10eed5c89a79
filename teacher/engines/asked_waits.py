"""How long a server asks its clients to wait, in the headers or the body of a refusal.

APIs give the time as a number of seconds or milliseconds, a span ("6m0s", "900ms"), a date, or seconds since 1970.
They write it into Retry-After, into headers of limits (with "ratelimit" and "reset" in their names), or into the
body. One rule reads them all. Only for answers that are refusals: a good answer costs nothing here.
"""

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_UNITS_S: Mapping[str, float] = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_UNIT_OF_NAME: Mapping[str, float] = {"ms": 1e-3, "milliseconds": 1e-3}
_SPAN = re.compile(r"(?:\d{1,9}(?:\.\d{0,9})?(?:ms|[dhms]))+", re.ASCII)
_SPAN_PART = re.compile(r"(\d{1,9}(?:\.\d{0,9})?)(ms|[dhms])", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,9})?", re.ASCII)
_SINCE_1970_S, _SINCE_1970_MS = 1e9, 1e12
"""Larger numbers are no spans: a time in seconds since 1970, and one in milliseconds."""
_IN_BODY = re.compile(
    r'(?:try(?:ing)? (?:again|it again) in|retry(?:ing)? (?:in|after)|"retryDelay"\s*:\s*")\s*'
    r"(\d{1,9}(?:\.\d{0,9})?)\s*(ms|milliseconds?|[dhms](?:\d[\w.]{0,40})?|seconds?|minutes?|hours?)\b",
    re.IGNORECASE | re.ASCII,
)
"""Sentences of OpenAI, Azure, Groq and Gemini, and the field of Google's RetryInfo."""
_BODY_CHARACTERS = 1 << 14


def asked_wait_s(status: int, headers: Mapping[str, str], payload: bytes = b"") -> float | None:
    """Seconds until a server takes another request; None where it does not say. Names of headers are in lower case.

    Limits have reset times in every answer, so they count only where the status says that a limit was reached, and
    only those limits of which nothing remains.
    """
    for name in ("retry-after-ms", "retry-after"):
        if (wait_s := _seconds(name, headers.get(name, ""))) is not None:
            return wait_s
    if status < 500 and status != 429:
        return None
    resets = list(_resets(headers)) if status == 429 else []
    return max(resets) if resets else _in_body(payload)


def _resets(headers: Mapping[str, str]) -> Iterator[float]:
    for name, value in headers.items():
        plain = name.replace("-", "")
        if "ratelimit" not in plain or "reset" not in plain:
            continue
        remaining = headers.get(name.replace("reset", "remaining"), "").strip()
        if remaining and _NUMBER.fullmatch(remaining) and float(remaining) > 0:
            continue
        if (wait_s := _seconds(name, value)) is not None:
            yield wait_s


def _in_body(payload: bytes) -> float | None:
    found = _IN_BODY.search(payload[:_BODY_CHARACTERS].decode(errors="replace"))
    if found is None:
        return None
    number, unit = found[1], found[2].lower()
    words = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h"}
    return _span_s(number + words.get(unit.removesuffix("s"), unit))


def _seconds(name: str, text: str) -> float | None:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        number = float(text) * _UNIT_OF_NAME.get(name.rpartition("-")[2], 1.0)
        if number >= _SINCE_1970_S:
            number = number / (1e3 if number >= _SINCE_1970_MS else 1.0) - time.time()
        return max(0.0, number)
    if (span_s := _span_s(text)) is not None:
        return span_s
    return _until_s(text)


def _span_s(text: str) -> float | None:
    text = text.rstrip(".").lower()
    if not _SPAN.fullmatch(text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _SPAN_PART.findall(text))


def _until_s(text: str) -> float | None:
    """Seconds until a date: of HTTP, or of ISO 8601 as RFC 3339 has it."""
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            return max(0.0, moment.timestamp() - time.time())
        except (ValueError, TypeError, OverflowError):
            continue
    return None
