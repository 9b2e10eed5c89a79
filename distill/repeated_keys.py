"""Keys that an object of a JSON text names twice.

JSON readers keep the last value of such a key in silence, so a row would lose one of two answers.
"""

import re
from typing import Any

import orjson

_COLON = re.compile(rb'"\s*:')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}:]', re.DOTALL)


def repeated_key(data: bytes, value: Any) -> str | None:
    """The first key that an object of a JSON text names twice; None where there is none.

    `value` is the same text, read. Most texts have as many colons after a quote as keys, so they are not read again.
    """
    if sum(1 for _ in _COLON.finditer(data)) == _count_keys(value):
        return None
    return _first_repeated(data)


def _count_keys(value: Any) -> int:
    keys, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            keys += len(item)
            waiting.extend(each for each in item.values() if isinstance(each, dict | list))
        elif isinstance(item, list):
            waiting.extend(each for each in item if isinstance(each, dict | list))
    return keys


def _first_repeated(data: bytes) -> str | None:
    """The same by the tokens of a text that is valid JSON."""
    objects: list[set[str]] = []
    text = b""
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token == b"{":
            objects.append(set())
        elif token == b"}":
            objects.pop()
        elif token == b":":
            name = str(orjson.loads(text))
            if name in objects[-1]:
                return name
            objects[-1].add(name)
        else:
            text = token
    return None
