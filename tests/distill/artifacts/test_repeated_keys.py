"""Keys that a JSON object names twice are found by the tokens of the text, as a reader of pairs finds them."""

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from distill.artifacts.repeated_keys import repeated_key

TEXTS = st.text(alphabet='ab":{},\\ \n', max_size=6)
VALUES: Any = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(TEXTS, inner), max_size=3).map(tuple),
    max_leaves=12,
)


def written(value: Any) -> str:
    """JSON, in which a tuple of pairs is an object that may name a key twice."""
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{json.dumps(name)} : {written(item)}" for name, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


@given(VALUES)
def test_a_repeated_key_is_found_where_a_reader_of_pairs_finds_one(value: Any) -> None:
    text, repeated = written(value), []

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.extend(name for name in dict(pairs) if [key for key, _ in pairs].count(name) > 1)
        return dict(pairs)

    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return  # a whole number beyond 64 bits is read elsewhere
    json.loads(text, object_pairs_hook=read)
    found = repeated_key(text.encode(), parsed)
    assert (found in repeated) if repeated else found is None


def test_a_value_of_a_thousand_levels_is_read() -> None:
    for inner, expected in (('{"a":1}', None), ('{"a":1,"a":2}', "a")):
        text = "[" * 1000 + inner + "]" * 1000
        assert repeated_key(text.encode(), orjson.loads(text)) == expected
