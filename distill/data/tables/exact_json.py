"""JSON of a user's data, read without rounding its whole numbers.

Most JSON readers make a float of a whole number beyond 64 bits, and so change its digits. Here it becomes a text that
holds them: an id or a gold answer stays what it is.
"""

import json
import re
from typing import Any

import orjson

_LONG = re.compile(rb"\d{19}")
"""Fewer digits always fit into 64 bits."""


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; whole numbers beyond 64 bits are texts of their digits.

    Raises orjson.JSONDecodeError.
    """
    value = orjson.loads(data)
    return json.loads(data, parse_int=_whole_number) if _LONG.search(data) else value


def _whole_number(digits: str) -> int | str:
    return int(digits) if len(digits) <= 20 and -(2**63) <= int(digits) < 2**64 else digits
