"""A map in little memory: it holds what a dict would hold."""

import random

import pytest

from distill.artifacts import compact_map
from distill.artifacts.compact_map import KEY_BYTES, CompactMap


@pytest.fixture(autouse=True)
def merges_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_map, "_MIN_MERGED", 50)


def test_it_holds_what_a_dict_would_hold() -> None:
    rng = random.Random(0)
    # Few different bytes, so that the end of one key and the beginning of the next one often look like a third key.
    keys = [bytes(rng.choices(b"\0\1\xff", k=KEY_BYTES)) for _ in range(3000)] + [b"", b"ab", b"longer than ten"]
    made, expected = CompactMap(3), dict[bytes, bytes]()
    for _ in range(9000):
        key, value = rng.choice(keys), rng.randbytes(3)
        made[key] = expected[key] = value
    assert len(made) == len(expected)
    for key in [*keys, *(bytes(rng.choices(b"\0\1\xff", k=KEY_BYTES)) for _ in range(3000)), b"none"]:
        assert made.get(key) == expected.get(key)
        assert (key in made) == (key in expected)


def test_its_pieces_make_it_again_and_keys_of_several_lengths_have_none() -> None:
    rng = random.Random(1)
    made = CompactMap(2)
    entries = {rng.randbytes(KEY_BYTES): rng.randbytes(2) for _ in range(120)}
    for key, value in entries.items():
        made[key] = value
    pieces = made.pieces()
    assert pieces is not None and all(pieces)  # some entries are merged, some are not
    again = CompactMap.load(2, [bytearray(piece) for piece in pieces])
    assert len(again) == 120 and all(again.get(key) == value for key, value in entries.items())
    made[b"short"] = b"ab"
    assert made.pieces() is None


def test_entries_in_any_order_are_sorted_once() -> None:
    rng = random.Random(2)
    entries = {rng.randbytes(KEY_BYTES): rng.randbytes(8) for _ in range(1000)}
    made = CompactMap.of(8, b"".join(entries), b"".join(entries.values()))
    assert all(made.get(key) == value for key, value in entries.items()) and len(made) == 1000
    assert CompactMap.of(8, b"", b"").get(b"0123456789") is None


def test_few_entries_wait_to_be_merged() -> None:
    rng = random.Random(3)
    made = CompactMap(2)
    for number in range(3000):
        made[rng.randbytes(KEY_BYTES)] = b"ab"
        if number % 100 == 0:
            pieces = made.pieces()
            assert pieces is not None
            merged, new = (len(pieces[at]) // KEY_BYTES for at in (0, 2))
            assert new <= max(50, merged // 8)
