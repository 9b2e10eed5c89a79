"""What a line of generate/<teacher>/part-*.jsonl must hold to be a trace; a line that does not is damaged.

A checksum finds changes after a line was written; these checks find faults in lines that another program or a person
wrote. Does not judge texts.
"""

import re
from collections.abc import Mapping
from typing import Any

from distill.types import Outcome

_OUTCOMES = frozenset(map(str, Outcome))
_ID = re.compile(r"(?:[0-9a-f]{2})+\Z")
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "sample_id", "teacher", "reasoning", "answer", "text", "outcome", "finish_reason"), str),
    **dict.fromkeys(("model", "revision", "prompt_sha", "created", "draft", "error"), str),
    **dict.fromkeys(("k", "seed", "attempt"), int),
    **dict.fromkeys(("usage", "params", "engine"), dict),
    "latency_s": (int, float),
    "hinted": bool,
}
_OPTIONAL: dict[str, type | tuple[type, ...]] = {"stop_reason": str, "choice": (dict, type(None))}
USAGE = ("prompt", "image", "reasoning", "answer")
_TOO_MANY = 1 << 32
"""No request has so many tokens."""


def trace_fault(record: Mapping[str, Any]) -> str:
    """What keeps a record from being a trace; empty when nothing does."""
    for name, kind in _TYPES.items():
        if name not in record:
            return f"it has no {name}"
        if not isinstance(record[name], kind):
            return f"its {name} is a {type(record[name]).__name__}"
    for name, kind in _OPTIONAL.items():
        if name in record and not isinstance(record[name], kind):
            return f"its {name} is a {type(record[name]).__name__}"
    if not _ID.match(record["id"]):
        return "its id is not hexadecimal"
    if record["outcome"] not in _OUTCOMES:
        return f"its outcome is {record['outcome'][:40]!r}"
    for name in USAGE:
        count = record["usage"].get(name)
        if type(count) is not int or not 0 <= count < _TOO_MANY:
            return f"its usage.{name} is no number of tokens"
    if not {"name", "version"} <= record["engine"].keys():
        return "its engine has no name or version"
    return ""
