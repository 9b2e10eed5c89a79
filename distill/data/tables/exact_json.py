"""JSON of a user's data, read without rounding its whole numbers and without losing one of two equal keys.

Most JSON readers make a float of a whole number beyond 64 bits, and so change its digits. Here it becomes a text with
all digits, so an id or a gold answer does not change.
"""

import json
import re
from typing import Any

import orjson

from distill.artifacts.repeated_keys import repeated_key

_LONG = re.compile(rb"\d{19}")
"""Fewer digits always fit into 64 bits."""


class RepeatedKeyError(orjson.JSONDecodeError):
    """An object that names a key twice: which of the two values counts is not known."""

    def __init__(self, key: str) -> None:
        super().__init__(repeated_text(key), "", 0)

    def __str__(self) -> str:
        return self.msg


def repeated_text(key: str) -> str:
    """What is wrong with an object that names this key twice."""
    return f"the key {key[:80]!r} is named twice; keep one of them"


class RepeatedKeys(dict[str, Any]):
    """An object that names `key` twice, among the rows of a file."""

    key = ""


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; whole numbers beyond 64 bits are texts of their digits.

    Raises orjson.JSONDecodeError; RepeatedKeyError, which is one, where an object names a key twice.
    """
    value = orjson.loads(data)
    if (key := repeated_key(data, value)) is not None:
        raise RepeatedKeyError(key)
    return _with_whole_numbers(data, value)


def parse_rows(data: bytes) -> Any:
    """As `parse_json`, for a text of many rows: an object that names a key twice is one of RepeatedKeys."""
    value = orjson.loads(data)
    if (key := repeated_key(data, value)) is None:
        return _with_whole_numbers(data, value)
    try:
        return json.loads(data, parse_int=_whole_number, object_pairs_hook=_marked)
    except RecursionError:
        raise RepeatedKeyError(key) from None


def _with_whole_numbers(data: bytes, value: Any) -> Any:
    """The `value` of a JSON text; whole numbers beyond 64 bits are texts of their digits."""
    if not _LONG.search(data):
        return value
    try:
        return json.loads(data, parse_int=_whole_number)
    except RecursionError:
        raise orjson.JSONDecodeError("a value of a thousand levels", "", 0) from None


def find_repeated(value: Any) -> str | None:
    """The key that an object in a value of `parse_rows` names twice."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, RepeatedKeys):
            return item.key
        if isinstance(item, dict | list):
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return None


def _marked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    marked, seen = RepeatedKeys(values), set[str]()
    marked.key = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return marked


def _whole_number(digits: str) -> int | str:
    return int(digits) if len(digits) <= 20 and -(2**63) <= int(digits) < 2**64 else digits
