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
    try:
        keys = _count_keys(value)
        if data.count(b":") == keys or len(_COLON.findall(data)) == keys:
            return None
    except RecursionError:
        pass  # a value of a thousand levels
    return _first_repeated(data)


def _count_keys(value: Any) -> int:
    # A loop over a list of open values takes three times as long.
    is_object = type(value) is dict
    keys = len(value) if is_object else 0
    for each in value.values() if is_object else value if type(value) is list else ():
        if type(each) is dict or type(each) is list:
            keys += _count_keys(each)
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
